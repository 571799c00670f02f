"""Where does the next page begin?  Opaque cursors: a position and a check that ties it to the list it came from.

The check is no secret; it makes a cursor of another list, filter or tenant, and any edited one, an error instead of a
wrong page.
"""

import base64
import binascii
import hashlib
import json
from datetime import datetime
from typing import Any
from uuid import UUID

from memory_service.errors import InvalidFields

CHECK_BYTES = 8


def encode(position: tuple[datetime, UUID], scope: Any) -> str:
    payload = json.dumps([position[0].isoformat(), str(position[1])]).encode()
    return base64.urlsafe_b64encode(_check(payload, scope) + payload).decode().rstrip("=")


def decode(cursor: str, scope: Any) -> tuple[datetime, UUID]:
    """The position.  Raises InvalidFields for anything that `encode` did not make for this very list."""
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        check, payload = raw[:CHECK_BYTES], raw[CHECK_BYTES:]
        if check == _check(payload, scope):
            at, one = json.loads(payload)
            return datetime.fromisoformat(at), UUID(one)
    except (ValueError, binascii.Error, TypeError, UnicodeError):
        pass
    raise InvalidFields.of("cursor", "is not a cursor of this list")


def _check(payload: bytes, scope: Any) -> bytes:
    text = json.dumps(scope, sort_keys=True, default=str).encode()
    return hashlib.blake2b(
        payload, key=hashlib.blake2b(text, digest_size=32).digest(), digest_size=CHECK_BYTES
    ).digest()
