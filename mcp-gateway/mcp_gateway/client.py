"""How is the service asked? One shared HTTP client, bounded in time and size; failures come out typed.

Must not know tools, word sentences, or retry anything that could happen twice.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import anyio
import httpx
import orjson

from mcp_gateway.errors import FieldProblem, NotSent, Refused, Unanswered
from mcp_gateway.settings import GatewaySettings

# A JSON value as orjson reads it: dict, list, str, int, float, bool or None.
Json = Any

_REPLAY_ATTEMPTS = 2


@dataclass(frozen=True)
class Caller:
    """On whose behalf the service is asked. `authorization` is the header's bytes, passed on untouched."""

    request_id: str
    authorization: bytes | None = None

    def __repr__(self) -> str:
        return f"Caller(request_id={self.request_id!r})"


def path_segment(text: str) -> str:
    """Percent-encode one path segment; a bare '.' or '..' would be folded away as a relative path."""
    return quote(text, safe="") if text.strip(".") else text.replace(".", "%2E")


class ServiceClient:
    """Opened once per process; cancelling a call closes its connection, which is how the service learns of it."""

    def __init__(self, settings: GatewaySettings, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._timeout_seconds = settings.gateway_upstream_timeout_seconds
        self._body_bytes_max = settings.gateway_upstream_body_bytes_max
        # Held while a working memory is created, see tools/tasks.py.
        self.creation_lock = anyio.Lock()
        self._http = httpx.AsyncClient(
            base_url=settings.service_url,
            # Proxy variables of the environment must not see memories; the service is always addressed directly.
            trust_env=False,
            follow_redirects=False,
            timeout=httpx.Timeout(self._timeout_seconds, connect=settings.gateway_connect_timeout_seconds),
            limits=httpx.Limits(max_connections=settings.gateway_upstream_connections_max),
            transport=transport,
        )

    async def aclose(self) -> None:
        await self._http.aclose()

    async def read(
        self, caller: Caller, method: str, path: str, *, body: Json = None, params: Mapping[str, str] | None = None
    ) -> Json:
        """A request that changes nothing, so a broken connection is tried once more."""
        return await self._send_replayable(caller, method, path, body=body, params=params)

    async def write(self, caller: Caller, path: str, body: Json) -> Json:
        """POST with a fresh Idempotency-Key, which makes one replay after a broken connection safe."""
        return await self._send_replayable(caller, "POST", path, body=body, idempotency_key=uuid.uuid4().hex)

    async def write_once(self, caller: Caller, path: str, body: Json) -> Json:
        """POST whose Idempotency-Key follows from what is sent: the same again counts once, as long as the service
        keeps its keys (24 h)."""
        digest = hashlib.sha256(path.encode() + b"\0" + orjson.dumps(body, option=orjson.OPT_SORT_KEYS)).hexdigest()
        return await self._send_replayable(caller, "POST", path, body=body, idempotency_key=digest)

    async def change(self, caller: Caller, method: str, path: str, *, body: Json = None) -> Json:
        """PATCH, PUT or DELETE: the contract gives them no idempotency key, so they are sent once."""
        return await self._send_once(caller, method, path, body=body)

    async def _send_replayable(
        self,
        caller: Caller,
        method: str,
        path: str,
        *,
        body: Json,
        params: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
    ) -> Json:
        for attempt in range(1, _REPLAY_ATTEMPTS + 1):
            try:
                return await self._send_once(
                    caller, method, path, body=body, params=params, idempotency_key=idempotency_key
                )
            except NotSent:
                if attempt > 1:  # the first attempt was sent: it may have arrived
                    raise Unanswered(timed_out=False) from None
                raise
            except Unanswered as failure:
                if failure.timed_out or attempt == _REPLAY_ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    async def _send_once(
        self,
        caller: Caller,
        method: str,
        path: str,
        *,
        body: Json = None,
        params: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
    ) -> Json:
        headers = [(b"accept", b"application/json"), (b"x-request-id", caller.request_id.encode("ascii"))]
        if caller.authorization is not None:
            headers.append((b"authorization", caller.authorization))
        if idempotency_key is not None:
            headers.append((b"idempotency-key", idempotency_key.encode("ascii")))
        content = None
        if body is not None:
            content = orjson.dumps(body)
            headers.append((b"content-type", b"application/json"))
        request = self._http.build_request(method, path, params=params, headers=headers, content=content)
        try:
            # httpx bounds each read; a service that drips bytes is only bounded by this.
            with anyio.fail_after(self._timeout_seconds):
                response, answer = await self._exchange(request)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise NotSent(type(error).__name__) from None
        except (TimeoutError, httpx.TimeoutException):
            raise Unanswered(timed_out=True) from None
        except httpx.TransportError:
            raise Unanswered(timed_out=False) from None
        return _understand(response, answer)

    async def _exchange(self, request: httpx.Request) -> tuple[httpx.Response, bytes]:
        response = await self._http.send(request, stream=True)
        try:
            answer = bytearray()
            async for chunk in response.aiter_bytes():
                answer += chunk
                if len(answer) > self._body_bytes_max:
                    raise Unanswered(timed_out=False)
            return response, bytes(answer)
        finally:
            await response.aclose()


def _understand(response: httpx.Response, answer: bytes) -> Json:
    document: Json = None
    if answer:
        try:
            document = orjson.loads(answer)
        except orjson.JSONDecodeError:
            if response.is_success:
                raise Unanswered(timed_out=False) from None
    if response.is_success:
        return document
    raise _refusal(response, document if isinstance(document, dict) else {})


def _refusal(response: httpx.Response, problem: dict[str, Json]) -> Refused:
    errors = problem.get("errors")
    fields = tuple(
        FieldProblem(str(entry.get("field", "")), str(entry.get("message", "")))
        for entry in (errors if isinstance(errors, list) else [])
        if isinstance(entry, dict)
    )
    wait = response.headers.get("retry-after", "")
    detail = problem.get("detail")
    return Refused(
        response.status_code,
        code=str(problem.get("code", "")),
        detail=detail if isinstance(detail, str) else "",
        fields=fields,
        retry_after=int(wait) if wait.isascii() and wait.isdigit() and len(wait) < 7 else None,
    )
