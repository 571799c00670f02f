"""Where does a cut answer go on? Opaque, self-checking text that holds a position, never a permission.

Pure. A cursor grants nothing: whoever forges one only asks the service for another position with their own key, and
the service decides. The checksum is there so that a mangled cursor is told apart from a real one.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass

import orjson

from mcp_gateway.client import Json
from mcp_gateway.errors import BadArguments

_CHECKSUM_BYTES = 6
_CURSOR_CHARS_MAX = 1024


@dataclass(frozen=True)
class HitsCursor:
    """The next hit of a search; `question` is its fingerprint, because the position means nothing elsewhere."""

    offset: int
    question: str


@dataclass(frozen=True)
class ContentCursor:
    """The next character of one memory's content."""

    memory_id: str
    offset: int


Cursor = HitsCursor | ContentCursor


def fingerprint(question: Json) -> str:
    return hashlib.sha256(orjson.dumps(question, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def encode(cursor: Cursor) -> str:
    if isinstance(cursor, HitsCursor):
        payload = orjson.dumps(["hits", cursor.offset, cursor.question])
    else:
        payload = orjson.dumps(["content", cursor.offset, cursor.memory_id])
    return base64.urlsafe_b64encode(_checksum(payload) + payload).rstrip(b"=").decode("ascii")


def decode(text: str) -> Cursor:
    """Raises BadArguments for anything that `encode` did not make."""
    refusal = BadArguments("'cursor' is not one that memory_search returned. Copy it unchanged, or leave it out.")
    if len(text) > _CURSOR_CHARS_MAX or not text.isascii():
        raise refusal
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        checksum, payload = raw[:_CHECKSUM_BYTES], raw[_CHECKSUM_BYTES:]
        if checksum != _checksum(payload):
            raise refusal
        kind, offset, rest = orjson.loads(payload)
    except ValueError:
        raise refusal from None
    return HitsCursor(offset, rest) if kind == "hits" else ContentCursor(rest, offset)


def _checksum(payload: bytes) -> bytes:
    return hashlib.sha256(b"hindsight cursor 1" + payload).digest()[:_CHECKSUM_BYTES]
