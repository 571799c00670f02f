"""How do bytes become requests, and answers bytes? By uvicorn's protocol, with what it leaves out of HTTP.

An answer leaves in one packet: uvicorn writes head and body apart, which wakes whoever waits for it twice.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# Of an answer that is longer, parts leave while others are made.
_JOINED_BYTES_MAX = 65_536
# Nearly all answers take less; a client that went away, which looks as if it had only said its last, cancels its call then.
_HALF_CLOSED_SECONDS = 1.0


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
    """uvicorn's, over such a transport; declines every upgrade, and answers who half-closes."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._declined = b""
        super().connection_made(_Joined(transport, self.loop))  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        """Requests with an offer to go on in another protocol (curl --http2 and Java's client make it) are read like any.

        llhttp stops behind the head of such a request, as if the other protocol began there: it is given the head
        again, without the offer, and then the rest.
        """
        self._unset_keepalive_if_required()
        rest: bytes | memoryview = data
        try:
            while rest:
                try:
                    self.parser.feed_data(rest)
                    return
                except httptools.HttpParserUpgrade as offer:
                    rest = memoryview(rest)[offer.args[0] :]
                    self.parser.feed_data(self._declined)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):  # the latter: CONNECT, which offers nothing
            self.send_400_response("Invalid HTTP request received.")

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            self._declined = self._head_without_offer()
        else:
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """The whole answer is there: nothing is gained by waiting for the end of the turn."""
        self.transport.flush()  # type: ignore[attr-defined]
        super().on_response_complete()

    def _head_without_offer(self) -> bytes:
        version = self.parser.get_http_version().encode("ascii")
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        lines += [b"%b: %b" % (name, value) for name, value in self.headers if name != b"upgrade"]
        return b"\r\n".join((*lines, b"", b""))

    def eof_received(self) -> bool:  # type: ignore[override]
        """True keeps the connection: who sent a whole request and closed its half still gets an answer that comes soon."""
        answering = self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete
        if answering:
            self.cycle.keep_alive = False
            self.loop.call_later(_HALF_CLOSED_SECONDS, self.transport.close)
        return answering
