"""How does the service listen?  uvicorn on uvloop and httptools, with a bounded shutdown.

What never becomes a request (an unknown method, a broken header) is answered here, in the shape of every other problem.
"""

import asyncio
import gc
import socket
import sys
from contextlib import suppress
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from memory_service.api.problems import MEDIA_TYPE, problem
from memory_service.app import create_app
from memory_service.errors import BadRequest
from memory_service.logs import configure
from memory_service.settings import Settings, load_tunables
from memory_service.shapes import to_json
from memory_service.stores.waiting import stores_up

EXIT_REFUSED = 2
JOINED_BYTES_MAX = 65_536  # of an answer that is longer, parts leave while others are made


class JoinedWrites:
    """A transport that sends what one turn of the loop writes at once: uvicorn writes head and body apart, which would be two
    packets and two times waking whoever waits for the answer."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size >= JOINED_BYTES_MAX:
            self.flush()
        elif len(self._parts) == 1:
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        if self._parts:
            joined = b"".join(self._parts)
            self._parts, self._size = [], 0
            self._transport.write(joined)

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class ServiceProtocol(HttpToolsProtocol):
    """Joins writes, and answers bytes that are no HTTP request, which uvicorn itself would answer in plain text."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(JoinedWrites(transport, self.loop))  # type: ignore[arg-type]

    def send_400_response(self, msg: str) -> None:
        body = to_json(problem(BadRequest(msg)))
        head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        self.transport.write(head.encode("ascii") + body)
        self.transport.close()


class SettledServer(uvicorn.Server):
    """Once it serves, what the start made is no garbage: collections leave it out."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        gc.freeze()
        gc.enable()


def run(settings: Settings, stores_wait_s: float = 0.0) -> None:
    """Serve until SIGTERM.  Exits with 2 and one line when the set-up is refused."""
    configure(settings.log_level)
    numbers = load_tunables(settings)
    if stores_wait_s:
        asyncio.run(stores_up(settings.database_url, settings.qdrant_url, stores_wait_s))
    app = create_app(settings, tunables=numbers)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=ServiceProtocol,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        timeout_graceful_shutdown=max(1, int(numbers.limits.shutdown_s)),
    )
    server = SettledServer(config)
    with suppress(SystemExit):  # uvicorn exits by itself, with 3, when the start was refused
        server.run()
    if app.state.refused is not None:
        print(f"hindsight: {app.state.refused}", file=sys.stderr)
        sys.exit(EXIT_REFUSED)
    if not server.started:
        sys.exit(1)
