"""How is the service asked? One shared HTTP client, bounded in time and size; failures come out typed.

Must not know tools, word sentences, or retry anything that could happen twice.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import aiohttp
import anyio
import orjson
from yarl import URL

from mcp_gateway.errors import FieldProblem, NotSent, Refused, ServiceFailure, Unanswered
from mcp_gateway.settings import GatewaySettings

if TYPE_CHECKING:
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

# A JSON value as orjson reads it: dict, list, str, int, float, bool or None.
Json = Any

_REPLAY_ATTEMPTS = 2
# Sent with its head in one piece.
_AT_ONCE_BYTES_MAX = 65_536


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


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: Mapping[str, str]
    content: bytes


@dataclass(slots=True)
class _Sending:
    """A request under way. Until it has a connection, nothing of it can have left."""

    connected: bool = False


_SENDING: ContextVar[_Sending] = ContextVar("sending")  # of the task that sends


class _Watched(aiohttp.TCPConnector):
    """Notes when a request has got its connection: aiohttp raises the same TimeoutError whether it has or still waits.

    Its tracing tells that too, and takes a fifth of the time of a request (benchmarks/speed, MCP).
    """

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        connection = await super().connect(req, traces, timeout)
        _SENDING.get().connected = True
        return connection


class ServiceClient:
    """Opened once per process, in its event loop; cancelling a call closes its connection, which is how the service
    learns of it."""

    def __init__(self, settings: GatewaySettings) -> None:
        # Held while a working memory is created, see tools/tasks.py.
        self.creation_lock = anyio.Lock()
        self._body_bytes_max = settings.gateway_upstream_body_bytes_max
        service = URL(settings.service_url)
        self._base = f"{service.origin()}{service.raw_path}".rstrip("/")
        self._http = aiohttp.ClientSession(
            connector=_Watched(limit=settings.gateway_upstream_connections_max),
            timeout=aiohttp.ClientTimeout(
                total=settings.gateway_upstream_timeout_seconds, sock_connect=settings.gateway_connect_timeout_seconds
            ),
            headers={"accept": "application/json"},
            skip_auto_headers=("accept-encoding",),  # packing costs more than the way next door
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            # Proxy variables of the environment must not see memories; the service is always addressed directly.
            trust_env=False,
        )

    async def aclose(self) -> None:
        await self._http.close()

    async def read(
        self, caller: Caller, method: str, path: str, *, body: Json = None, params: Mapping[str, str] | None = None
    ) -> Json:
        """A request that changes nothing, so a broken connection is tried once more."""
        return await self._send_replayable(caller, method, path, body=body, params=params)

    async def write(self, caller: Caller, path: str, body: Json) -> Json:
        """POST with a fresh Idempotency-Key, which makes one replay after a broken connection safe."""
        return await self._send_replayable(caller, "POST", path, body=body, idempotency_key=uuid.uuid4().hex)

    async def write_once(self, caller: Caller, path: str, body: Mapping[str, Json], beside: str = "") -> Json:
        """POST whose Idempotency-Key follows from what is sent: the same again counts once, as long as the service
        keeps its keys (24 h). The field `beside` makes no other of it: Refused `idempotency_mismatch` when it differs."""
        counted = {name: value for name, value in body.items() if name != beside}
        digest = hashlib.sha256(path.encode() + b"\0" + orjson.dumps(counted, option=orjson.OPT_SORT_KEYS)).hexdigest()
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
        headers = {"x-request-id": caller.request_id}
        if caller.authorization is not None:
            headers["authorization"] = _header_text(caller.authorization)
        if idempotency_key is not None:
            headers["idempotency-key"] = idempotency_key
        content = None
        if body is not None:
            content = orjson.dumps(body)
            headers["content-type"] = "application/json"
        address = URL(f"{self._base}{path}?{urlencode(params)}" if params else self._base + path, encoded=True)
        sending = _Sending()
        _SENDING.set(sending)
        try:
            answer = await self._exchange(method, address, headers, content)
        except (TimeoutError, aiohttp.ClientError) as error:
            raise _failure(error, sending) from None
        return _understand(answer)

    async def _exchange(self, method: str, address: URL, headers: Mapping[str, str], content: bytes | None) -> _Answer:
        """The whole answer. Leaving early, by an error or cancelled, closes the connection."""
        # As a file when it is long, since aiohttp warns of more than 1 MiB of bytes: it sends a file in parts.
        data = BytesIO(content) if content is not None and len(content) > _AT_ONCE_BYTES_MAX else content
        received = bytearray()
        async with self._http.request(
            method,
            address,
            headers=headers,
            data=data,
            allow_redirects=False,
            middlewares=() if method == "POST" else (_unrepeated,),  # POST is not repeated anyway
        ) as response:
            async for part in response.content.iter_any():
                received += part
                if len(received) > self._body_bytes_max:
                    raise Unanswered(timed_out=False)
        return _Answer(response.status, response.headers, bytes(received))


def _failure(error: Exception, sending: _Sending) -> ServiceFailure:
    if not sending.connected:
        return NotSent(type(error).__name__)
    return Unanswered(timed_out=isinstance(error, TimeoutError))


def _header_text(value: bytes) -> str:
    """aiohttp sends headers as UTF-8, so these are the same bytes again. Keys are ASCII: others are nobody's.

    Raises Refused, as the service would.
    """
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise Refused(401, code="unauthorized") from None
    if not text.replace("\t", " ").isprintable():
        raise Refused(401, code="unauthorized")
    return text


async def _unrepeated(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """aiohttp would repeat a GET, PUT or DELETE after a broken connection; who asks decides that here."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise aiohttp.ClientConnectionError(str(error)) from error


def _understand(answer: _Answer) -> Json:
    succeeded = 200 <= answer.status < 300
    document: Json = None
    if answer.content:
        try:
            document = orjson.loads(answer.content)
        except orjson.JSONDecodeError:
            if succeeded:
                raise Unanswered(timed_out=False) from None
    if succeeded:
        return document
    raise _refusal(answer, document if isinstance(document, dict) else {})


def _refusal(answer: _Answer, problem: dict[str, Json]) -> Refused:
    errors = problem.get("errors")
    fields = tuple(
        FieldProblem(str(entry.get("field", "")), str(entry.get("message", "")))
        for entry in (errors if isinstance(errors, list) else [])
        if isinstance(entry, dict)
    )
    wait = answer.headers.get("retry-after", "")
    detail = problem.get("detail")
    return Refused(
        answer.status,
        code=str(problem.get("code", "")),
        detail=detail if isinstance(detail, str) else "",
        fields=fields,
        retry_after=int(wait) if wait.isascii() and wait.isdigit() and len(wait) < 7 else None,
    )
