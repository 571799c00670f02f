"""How does an answer leave? In one packet: uvicorn writes head and body apart, which wakes whoever waits for it twice."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# Of an answer that is longer, parts leave while others are made.
_JOINED_BYTES_MAX = 65_536


class _Joined:
    """A transport that sends at once what one turn of the loop writes."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size >= _JOINED_BYTES_MAX:
            self.flush()
        elif len(self._parts) == 1:
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        joined, self._parts, self._size = b"".join(self._parts), [], 0
        if joined:
            self._transport.write(joined)

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class JoiningProtocol(HttpToolsProtocol):
    """uvicorn's, over such a transport."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(_Joined(transport, self.loop))  # type: ignore[arg-type]
