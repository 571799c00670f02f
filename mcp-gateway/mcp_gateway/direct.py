"""How is a plain request of the 2025 protocols answered without the SDK's transport? By one call of its kernel, in JSON.

The SDK's stateless transport makes a session, five tasks, eight memory streams and an event stream for every POST,
which costs three times what the request itself does. Must not judge what is unusual: all but exactly one well-formed
request goes to the SDK, which answers or refuses it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import pydantic_core
from mcp.server import Server
from mcp.server.connection import Connection
from mcp.server.runner import serve_one
from mcp.server.streamable_http import REQUEST_CANCELLED
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.jsonrpc_dispatcher import handler_exception_to_error_data
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types import INTERNAL_ERROR, ErrorData
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from mcp_gateway.client import Caller, Json
from mcp_gateway.server import Asked, Handlers

# Requests that need nothing but their answer. `initialize` decides about the session and stays with the SDK.
METHODS: Final = frozenset(
    {
        "ping",
        "tools/call",
        "tools/list",
        "resources/list",
        "resources/read",
        "resources/templates/list",
        "prompts/get",
        "prompts/list",
    }
)
_MEMBERS: Final = frozenset({"jsonrpc", "id", "method", "params"})
_CALL_MEMBERS: Final = frozenset({"name", "arguments", "_meta"})
_JSON, _EVENTS = "application/json", "text/event-stream"
_TRANSPORT: Final = TransportContext(kind="streamable-http", can_send_request=False)

logger = logging.getLogger(__name__)


def read_plain(body: bytes, caller: Caller, session_id: str | None) -> Asked | None:
    """One request whose envelope is in order; its params are checked by the kernel.

    None for everything that the SDK has to look at: other methods, batches, what it would refuse. heads.py does the same
    for heads.
    """
    try:
        message = pydantic_core.from_json(body)  # the SDK's parser: numbers and doubled keys are read as it reads them
    except ValueError:
        return None
    if not isinstance(message, dict) or not message.keys() <= _MEMBERS or message.get("jsonrpc") != "2.0":
        return None
    request_id, method, params = message.get("id"), message.get("method"), message.get("params")
    if isinstance(request_id, bool) or not isinstance(request_id, int | str):
        return None
    if not isinstance(method, str) or method not in METHODS:
        return None
    if params is not None and not isinstance(params, dict):
        return None
    return Asked(request_id, method, params, caller, "http", session_id)


class Direct:
    """Answers plain requests; one for all of them."""

    def __init__(self, server: Server[Any], handlers: Handlers, quiet_seconds: float) -> None:
        """`quiet_seconds`: how long a client may wait without a byte, before the answer becomes an event stream."""
        self._server = server
        self._handlers = handlers
        self._quiet_seconds = quiet_seconds

    async def answer(self, plain: Asked, version: str, scope: Scope, receive: Receive, send: Send) -> None:
        """A client that goes away cancels its request, as in the SDK's transport. `version`: of the protocol."""
        beside = _Beside(receive, send, self._quiet_seconds)
        try:
            message = await self._answered(plain, version, scope)
        except asyncio.CancelledError:
            if beside.settle_departure():
                return
            raise
        finally:
            await beside.end()
        # The SDK's client fails as a whole when JSON answers a call that it gave up while it closes; events it drops.
        given_up = message.get("error", {}).get("code") == REQUEST_CANCELLED
        await beside.send_last(pydantic_core.to_json(message), events=given_up)

    async def _answered(self, plain: Asked, version: str, scope: Scope) -> dict[str, Json]:
        """The JSON-RPC message."""
        try:
            result = await self._result(plain, version, scope)
        except Exception as problem:
            error = handler_exception_to_error_data(problem)
            if error is None:
                logger.exception("%s failed", plain.method)
                error = ErrorData(code=INTERNAL_ERROR, message="Internal server error")
            told = error.model_dump(mode="json", by_alias=True, exclude_unset=True)
            return {"jsonrpc": "2.0", "id": plain.id, "error": told}
        return {"jsonrpc": "2.0", "id": plain.id, "result": result}

    async def _result(self, plain: Asked, version: str, scope: Scope) -> dict[str, Json]:
        if plain.method == "tools/call" and plain.params is not None and _is_usual_call(plain.params):
            return await self._handlers.answer_call(plain, plain.params["name"], plain.params.get("arguments") or {})
        exchange = _Exchange(plain.id, ServerMessageMetadata(request_context=Request(scope)))
        connection = Connection.from_envelope(version, None, None)
        return await serve_one(
            self._server, exchange, plain.method, plain.params, connection=connection, lifespan_state={}
        )


def _is_usual_call(params: Mapping[str, Json]) -> bool:
    """Whether the kernel, which builds a session and five models for a call, would find nothing to say."""
    if not params.keys() <= _CALL_MEMBERS or not isinstance(params.get("name"), str):
        return False
    if not isinstance(params.get("arguments", {}), dict):
        return False
    if "_meta" not in params:
        return True
    meta = params["_meta"]
    if not isinstance(meta, dict):
        return False
    token = meta.get("progressToken", 0)
    return isinstance(token, int | str) and not isinstance(token, bool)


@dataclass(slots=True)
class _Exchange:
    """The SDK's `DispatchContext` of a request that only gets an answer; the handlers send nothing in between."""

    request_id: int | str
    message_metadata: ServerMessageMetadata
    transport: TransportContext = _TRANSPORT
    can_send_request: bool = False
    cancel_requested: anyio.Event = field(default_factory=anyio.Event)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        raise NoBackChannelError(method)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        raise NoBackChannelError(method)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Nobody reports any."""


class _Beside:
    """What goes on beside a request that takes its time: the client may go away, and its connection is kept awake.

    Starts late, because most requests are done before a task for this would have paid.
    """

    _LATE_SECONDS = 0.05

    def __init__(self, receive: Receive, send: Send, quiet_seconds: float) -> None:
        self._asking = asyncio.current_task()
        self._departed = False
        self._receive = receive
        self._send = send
        self._quiet_seconds = quiet_seconds
        self._streaming = False
        self._task: asyncio.Task[None] | None = None
        self._start = asyncio.get_running_loop().call_later(self._LATE_SECONDS, self._begin)

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        leaving = asyncio.create_task(self._gone())
        try:
            while not (await asyncio.wait({leaving}, timeout=self._quiet_seconds))[0]:
                await self._keep_awake()
            self._departed = True
            if self._asking is not None:
                self._asking.cancel()
        finally:
            leaving.cancel()

    async def _gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _keep_awake(self) -> None:
        await self._start_stream()
        await self._send({"type": "http.response.body", "body": b": ping\r\n\r\n", "more_body": True})

    async def _start_stream(self) -> None:
        if not self._streaming:
            self._streaming = True
            headers = [(b"content-type", _EVENTS.encode()), (b"cache-control", b"no-cache, no-transform")]
            headers.append((b"x-accel-buffering", b"no"))
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    def settle_departure(self) -> bool:
        """Whether a cancellation came from here and from nobody else; then it has done its work."""
        return self._departed and self._asking is not None and self._asking.uncancel() == 0

    async def end(self) -> None:
        self._start.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def send_last(self, body: bytes, *, events: bool) -> None:
        """As JSON, unless events have begun or are wanted."""
        if self._streaming or events:
            await self._start_stream()
            body = b"event: message\r\ndata: " + body + b"\r\n\r\n"
        else:
            headers = [(b"content-type", _JSON.encode()), (b"content-length", b"%d" % len(body))]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": body, "more_body": False})
