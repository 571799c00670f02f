"""How do bytes become requests, and answers bytes?  uvicorn's protocol over httptools, with what it leaves out of HTTP.

What never becomes a request (an unknown method, a broken header) is answered here, in the shape of every other problem.  Must not
know any route.
"""

import asyncio
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from memory_service.api.problems import MEDIA_TYPE, problem
from memory_service.errors import BadRequest
from memory_service.shapes import to_json

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
    """Joins writes, declines every upgrade, answers who half-closes, and tells of bytes that are no request in a problem document."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._declined = b""
        super().connection_made(JoinedWrites(transport, self.loop))  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        """Requests with an offer to go on in another protocol (curl --http2 and Java's client make it with each) are read like any.

        llhttp stops behind the head of such a request, as if the other protocol began there: it is given the head again, without
        the offer, and then the rest.
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
        """The answer leaves before its log line is written: who asked need not wait for that."""
        self.transport.flush()  # type: ignore[attr-defined]
        super().on_response_complete()

    def _head_without_offer(self) -> bytes:
        version = self.parser.get_http_version().encode("ascii")
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        lines += [b"%b: %b" % (name, value) for name, value in self.headers if name != b"upgrade"]
        return b"\r\n".join((*lines, b"", b""))

    def eof_received(self) -> bool:  # type: ignore[override]
        """True keeps the connection: whoever has sent a whole request and closed its half of it still gets the answer, and no more.

        A client that went away looks the same.  Writing to it fails, so nothing is held for it longer than the answer takes.
        """
        answering = self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete
        if answering:
            self.cycle.keep_alive = False
        return answering

    def send_400_response(self, msg: str) -> None:
        body = to_json(problem(BadRequest(msg)))
        head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        self.transport.write(head.encode("ascii") + body)
        self.transport.close()
