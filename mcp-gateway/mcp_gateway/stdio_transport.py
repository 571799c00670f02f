"""How is MCP served to one client over stdin and stdout? The SDK's stdio server, with every message answered.

Must not write anything but JSON-RPC to stdout. Two things are added to the SDK: a line that it cannot parse is
answered instead of dropped (the client would wait for ever), and requests still running when stdin closes get a
moment to answer before the process ends.
"""

from __future__ import annotations

import signal
from types import TracebackType
from typing import Any, Self

import anyio
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import (
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from mcp_gateway.server import create_server, open_gateway
from mcp_gateway.settings import GatewaySettings
from mcp_gateway.surrogates import neutralise


async def serve_stdio(settings: GatewaySettings) -> None:
    # A reader thread blocks in read(0), which Python's own handlers would wait for: let the signals end the process.
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.SIG_DFL)
    async with open_gateway(settings) as gateway, stdio_server() as (read_stream, write_stream):
        server = create_server(gateway)
        outgoing = Outgoing(write_stream)
        incoming = Incoming(read_stream, outgoing, settings.gateway_stdio_drain_seconds)
        await server.run(incoming, outgoing, server.create_initialization_options())


class Outgoing:
    """The SDK's write stream, knowing which requests are still unanswered."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._open: set[str] = set()
        self._answered = anyio.Event()

    def expect(self, request_id: object) -> None:
        self._open.add(str(request_id))

    def forget(self, request_id: object) -> None:
        self._open.discard(str(request_id))
        self._answered.set()

    async def wait_until_answered(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            while self._open:
                self._answered = anyio.Event()
                await self._answered.wait()

    async def send(self, item: SessionMessage, /) -> None:
        await self._inner.send(item)
        if isinstance(item.message, JSONRPCResponse | JSONRPCError):
            self.forget(item.message.id)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


class Incoming:
    """The SDK's read stream, repairing or answering what cannot be parsed."""

    def __init__(self, inner: Any, outgoing: Outgoing, drain_seconds: float) -> None:
        self._inner = inner
        self._outgoing = outgoing
        self._drain_seconds = drain_seconds

    @property
    def last_context(self) -> Any:
        return self._inner.last_context

    async def receive(self) -> SessionMessage | Exception:
        while True:
            try:
                item: SessionMessage | Exception = await self._inner.receive()
            except anyio.EndOfStream:
                await self._outgoing.wait_until_answered(self._drain_seconds)
                raise
            if isinstance(item, Exception):
                repaired = _repair(item)
                if repaired is None:
                    error = ErrorData(code=PARSE_ERROR, message="This line is not a JSON-RPC message.")
                    await self._outgoing.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=None, error=error)))
                    continue
                item = repaired
            self._follow(item)
            return item

    def _follow(self, item: SessionMessage) -> None:
        message = item.message
        if isinstance(message, JSONRPCRequest):
            self._outgoing.expect(message.id)
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._outgoing.forget((message.params or {}).get("requestId"))

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


def _repair(problem: Exception) -> SessionMessage | None:
    """The message of a line that failed only by half a surrogate pair; pydantic's error keeps the line as its input."""
    if not isinstance(problem, ValidationError):
        return None
    line = problem.errors(include_url=False)[0].get("input")
    if not isinstance(line, str):
        return None
    try:
        message = jsonrpc_message_adapter.validate_json(neutralise(line.encode()), by_name=False)
    except ValueError:
        return None
    return SessionMessage(message)
