"""What does the head of an HTTP request come to? Judged by the SDK's rules once; a client sends the same one every time.

Must not remember keys, which change who may ask but nothing of this, nor refusals, which are rare and which the SDK logs.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final

from mcp.server.streamable_http import check_accept_headers
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from mcp_types import DEFAULT_NEGOTIATED_VERSION
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

# As ASGI has them: names in lower case; of a doubled header the first.
Fields = dict[bytes, bytes]

REQUEST_ID: Final = b"x-request-id"
_USABLE_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
# All that a judgement looks at, beside the method.
_JUDGED: Final = (b"host", b"origin", b"content-type", b"content-encoding", b"accept", b"mcp-protocol-version")
_REMEMBERED_MAX = 128
_REMEMBERED_BYTES_MAX = 1_024


def take_fields(scope: Scope) -> Fields:
    """The headers by name. The request id is the caller's, or a new one where that is none; from now on it is the one
    among the request's headers."""
    headers = scope["headers"]
    fields: Fields = dict(reversed(headers))
    given = fields.get(REQUEST_ID)
    if given is not None:
        headers = [header for header in headers if header[0] != REQUEST_ID]
    if given is None or _USABLE_ID.fullmatch(given) is None:
        fields[REQUEST_ID] = os.urandom(16).hex().encode()
    scope["headers"] = [*headers, (REQUEST_ID, fields[REQUEST_ID])]
    return fields


@dataclass(frozen=True, slots=True)
class Judgement:
    """`packed`: the body has an encoding, and none is read. `version`: the protocol's, if a request with this head may be
    plain (see direct.py)."""

    refusal: Response | None
    packed: bool
    version: str | None


class Judge:
    """Bounded by the number and size of the heads that it remembers."""

    def __init__(self, security: TransportSecuritySettings) -> None:
        self._security = TransportSecurityMiddleware(security)
        self._remembered: dict[tuple[bytes | None, ...], Judgement] = {}

    async def judge(self, scope: Scope, fields: Fields) -> Judgement:
        part = (scope["method"], *map(fields.get, _JUDGED))
        known = self._remembered.get(part)
        doubled = len(fields) != len(scope["headers"])
        if known is not None and not doubled:
            return known
        request = Request(scope)
        refusal = await self._security.validate_request(request, is_post=request.method == "POST")
        judgement = Judgement(refusal, _is_packed(request), _plain_version(request))
        if refusal is None and not doubled and sum(map(len, filter(None, part))) <= _REMEMBERED_BYTES_MAX:
            if len(self._remembered) >= _REMEMBERED_MAX:
                self._remembered.pop(next(iter(self._remembered)))  # the oldest
            self._remembered[part] = judgement
        return judgement


def _is_packed(request: Request) -> bool:
    names = ",".join(request.headers.getlist("content-encoding")).split(",")
    return any(name.strip().lower() not in ("", "identity") for name in names)


def _plain_version(request: Request) -> str | None:
    version = request.headers.get("mcp-protocol-version", DEFAULT_NEGOTIATED_VERSION)
    if version not in HANDSHAKE_PROTOCOL_VERSIONS:
        return None
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        return None
    return version if all(check_accept_headers(request)) else None
