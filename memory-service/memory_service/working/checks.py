"""Can this be stored and given back exactly?  The contract's text and number rules, for callers that are not routes too.

Routes have refused all of this before, in their own words; whatever reaches the service another way meets it here.
"""

import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import cache
from typing import Any

from memory_service.errors import InvalidFields

# The contract's bounds, not tunables.
ID_CHARS_MAX = 128
JSON_DEPTH_MAX = 32
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1

UNPRINTABLE = ("Cc", "Cs", "Zl", "Zp", "Cn")


def checked_id(field: str, text: str) -> str:
    """An id: 1 to 128 printable characters of any script, not blank.  Raises InvalidFields."""
    if not 1 <= len(text) <= ID_CHARS_MAX:
        raise InvalidFields.of(field, f"must have 1 to {ID_CHARS_MAX} characters")
    if not _plain(text) and any(unicodedata.category(char) in UNPRINTABLE for char in text):
        raise InvalidFields.of(field, "must consist of printable characters")
    if _blank(text):
        raise InvalidFields.of(field, "must not be blank")
    return text


def refuse_unstorable(change: Any) -> None:
    """Check every text, number and depth in a patch or a step.  Raises InvalidFields naming the top-level field.

    Iterative: a value nested deeper than Python's stack must be refused, not crash.
    """
    for name in _names(change.__class__):
        value = getattr(change, name)
        depth, parts = 0, [value] if value else []  # in nothing, nothing can be wrong
        while parts:
            if depth > JSON_DEPTH_MAX:
                raise InvalidFields.of(name, f"is nested deeper than {JSON_DEPTH_MAX}")
            inside: list[Any] = []
            for part in parts:
                if (problem := _problem(part)) is not None:
                    raise InvalidFields.of(name, problem)
                if type(part) is not str and part is not None:
                    inside += _children(part)
            depth, parts = depth + 1, inside


@cache
def _names(kind: type) -> tuple[str, ...]:
    """Of a dataclass; none for any other type."""
    return tuple(one.name for one in fields(kind)) if is_dataclass(kind) else ()


def _children(part: Any) -> Sequence[Any]:
    if isinstance(part, list | tuple):
        return part
    if isinstance(part, dict | Mapping):  # dict first: asking a Mapping takes ten times as long
        return [*part.keys(), *part.values()]
    return [getattr(part, name) for name in _names(part.__class__)]


def _problem(part: Any) -> str | None:
    """What keeps one part, without its children, from being stored."""
    if isinstance(part, str):
        return _text_problem(part)
    if part is None or isinstance(part, bool | datetime | list | tuple | dict) or _names(part.__class__):
        return None
    if isinstance(part, int):
        return None if INTEGER_MIN <= part <= INTEGER_MAX else "must fit 64 bits"
    if isinstance(part, float):
        return None if math.isfinite(part) else "must be a finite number"
    return None if isinstance(part, Mapping) else "must be JSON"


def _text_problem(text: str) -> str | None:
    if "\0" in text:
        return "contains a NUL character"
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError:
        return "contains a lone surrogate"
    return None


def _plain(text: str) -> bool:
    """Nothing in it needs a look at each character."""
    return text.isascii() and text.isprintable()


def _blank(text: str) -> bool:
    return not text[:1].isalnum() and all(char.isspace() or unicodedata.category(char) == "Cf" for char in text)
