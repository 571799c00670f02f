"""Which payload fields are indexed, and how? Translates index schemas into the engine's, and names them again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import qdrant_edge as edge

from local_stack.qdrant.errors import BadRequest, NotMapped
from local_stack.qdrant.fields import Fields

if TYPE_CHECKING:  # the engine's type aliases exist in its stub only
    Schema = edge.PayloadSchemaType | edge.PayloadSchemaParams

_TYPES = {
    "keyword": edge.PayloadSchemaType.Keyword,
    "integer": edge.PayloadSchemaType.Integer,
    "float": edge.PayloadSchemaType.Float,
    "text": edge.PayloadSchemaType.Text,
    "bool": edge.PayloadSchemaType.Bool,
    "datetime": edge.PayloadSchemaType.Datetime,
    "uuid": edge.PayloadSchemaType.Uuid,
}
_TOKENIZERS = {
    "prefix": edge.TokenizerType.Prefix,
    "whitespace": edge.TokenizerType.Whitespace,
    "word": edge.TokenizerType.Word,
    "multilingual": edge.TokenizerType.Multilingual,
}


def index_schema(value: object) -> Schema:
    """The engine's schema from a type's name or an object with parameters."""
    if isinstance(value, str):
        if value not in _TYPES:
            raise NotMapped(f"a payload index of type {value!r}")
        return _TYPES[value]
    fields = Fields(value, "field_schema")
    kind = fields.need_text("type")
    if kind not in _BUILDERS:
        raise NotMapped(f"a payload index of type {kind!r}")
    # Where an index lies and whether a graph uses it steers speed only; no graph is built here.
    fields.ignore("on_disk", "memory", "enable_hnsw", "is_tenant", "is_principal")
    found = _BUILDERS[kind](fields)
    fields.done()
    return found


def _integer(fields: Fields) -> Schema:
    return edge.IntegerIndexParams(lookup=fields.flag("lookup"), range=fields.flag("range"))


def _text(fields: Fields) -> Schema:
    tokenizer = fields.choice("tokenizer", _TOKENIZERS)
    return edge.TextIndexParams(
        tokenizer=None if tokenizer is None else _TOKENIZERS[tokenizer],
        min_token_len=fields.whole("min_token_len"),
        max_token_len=fields.whole("max_token_len"),
        lowercase=fields.flag("lowercase"),
        ascii_folding=fields.flag("ascii_folding"),
        phrase_matching=fields.flag("phrase_matching"),
    )


_BUILDERS: dict[str, Callable[[Fields], Schema]] = {
    "keyword": lambda fields: edge.KeywordIndexParams(prefix=fields.flag("prefix")),
    "integer": _integer,
    "float": lambda _fields: edge.FloatIndexParams(),
    "text": _text,
    "bool": lambda _fields: edge.BoolIndexParams(),
    "datetime": lambda _fields: edge.DatetimeIndexParams(),
    "uuid": lambda _fields: edge.UuidIndexParams(),
}


def type_name(kind: edge.PayloadSchemaType) -> str:
    """The name of an index type on the wire."""
    for name, known in _TYPES.items():
        if known == kind:
            return name
    raise BadRequest(f"unknown payload index type {kind}")
