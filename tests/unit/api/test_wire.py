"""What a client gets for bytes that never become a request, that offer another protocol, or that are its last."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
import uvicorn
import uvloop

from memory_service.wire import JOINED_BYTES_MAX, JoinedWrites, ServiceProtocol

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


async def nothing(_scope: Any, _receive: Any, _send: Any) -> None:
    raise AssertionError("this must not reach the app")


@asynccontextmanager
async def listening() -> AsyncIterator[int]:
    """A port that speaks as `hindsight serve` does."""
    server = uvicorn.Server(uvicorn.Config(nothing, port=0, lifespan="off", log_config=None, http=ServiceProtocol))
    running = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await running


@pytest.mark.parametrize(
    "sent", [b"BREW /v1/memories HTTP/1.1\r\nHost: x\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\r\n\r\n"]
)
async def test_an_unknown_method_or_broken_request_is_a_problem_like_any_other(sent: bytes) -> None:
    async with listening() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        head, _, body = (await asyncio.wait_for(reader.read(), 5)).partition(b"\r\n\r\n")
        writer.close()
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/problem+json" in head
    told = json.loads(body)
    assert (told["status"], told["code"], told["errors"]) == (400, "malformed", [])
    assert set(told) == {"type", "title", "status", "detail", "code", "errors"}


class Sent:
    """A transport that remembers."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.writes.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


async def test_head_and_body_leave_together_and_before_the_connection_ends() -> None:
    sent = Sent()
    joined = JoinedWrites(sent, asyncio.get_running_loop())  # type: ignore[arg-type]
    joined.write(b"head")
    joined.write(b"body")
    assert sent.writes == []
    await asyncio.sleep(0)
    assert sent.writes == [b"headbody"]
    joined.write(b"last")
    joined.close()
    assert (sent.writes, sent.closed, joined.is_closing()) == ([b"headbody", b"last"], True, True)
    await asyncio.sleep(0)
    assert len(sent.writes) == 2


async def test_a_long_answer_does_not_wait_until_it_is_whole() -> None:
    sent = Sent()
    joined = JoinedWrites(sent, asyncio.get_running_loop())  # type: ignore[arg-type]
    joined.write(b"head")
    joined.write(b"x" * JOINED_BYTES_MAX)
    assert [len(one) for one in sent.writes] == [JOINED_BYTES_MAX + 4]


class Echo:
    """Answers, after `delay_s`, with the method, the path and the body; remembers who did not wait for it."""

    def __init__(self, delay_s: float = 0.0) -> None:
        self.delay_s = delay_s
        self.began, self.ended, self.left = threading.Event(), threading.Event(), threading.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.left.set()
                return
            body, more = body + message["body"], message["more_body"]
        self.began.set()
        await asyncio.sleep(self.delay_s)
        told = f"{scope['method']} {scope['path']} {body.decode()};".encode()
        length = (b"content-length", str(len(told)).encode())
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": told})
        self.ended.set()


@contextmanager
def echoing(echo: Echo, new_loop: Callable[[], Any]) -> Iterator[tuple[int, uvicorn.Server]]:
    """A thread that serves `echo` on a loop of its own; the port and the server."""
    server = uvicorn.Server(uvicorn.Config(echo, port=0, lifespan="off", log_config=None, http=ServiceProtocol))

    def serve() -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(server.serve())

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    waited(lambda: server.started)
    try:
        yield server.servers[0].sockets[0].getsockname()[1], server
    finally:
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive()


def waited(condition: Callable[[], bool], wait_s: float = 5.0) -> None:
    deadline = time.monotonic() + wait_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=5)


def all_of(connection: socket.socket) -> bytes:
    """Until the other side closes."""
    got = b""
    while part := connection.recv(65_536):
        got += part
    return got


def told_in(answers: bytes) -> list[str]:
    """The bodies of the answers that are all 200."""
    assert answers.count(b"HTTP/1.1 200 OK") == answers.count(b"HTTP/1.1")
    return [part.partition(b"\r\n\r\n")[2].decode() for part in answers.split(b"HTTP/1.1 200 OK")[1:]]


OFFERS = {
    "h2c, as curl --http2 and Java offer it": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
    "a websocket": b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZQ==\r\n",
    "whatever": b"Upgrade: foo\r\nConnection: keep-alive, upgrade\r\n",
    "an upgrade without a Connection header": b"Upgrade: h2c\r\n",
}  # fmt: skip
BODIES = {
    "of a length": b"Content-Length: 5\r\n\r\nhello",
    "in chunks": b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("new_loop", LOOPS.values(), ids=LOOPS)
@pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS)
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_request_that_offers_an_upgrade_is_read_as_if_it_did_not(offer: bytes, body: bytes, new_loop: Any) -> None:
    first = b"POST /a?q=1 HTTP/1.1\r\nHost: x\r\n" + offer + body
    asked = first + b"GET /b HTTP/1.1\r\nHost: x\r\n" + offer + b"\r\n" + first
    asked += b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with echoing(Echo(), new_loop) as (port, _):
        with connected(port) as connection:  # four requests in one packet
            connection.sendall(asked)
            whole = told_in(all_of(connection))
        with connected(port) as connection:  # and in packets of one byte
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for at in range(len(asked)):
                connection.sendall(asked[at : at + 1])
            assert told_in(all_of(connection)) == whole
    assert whole == ["POST /a hello;", "GET /b ;", "POST /a hello;", "GET /last ;"]


def test_thousands_of_offers_in_a_row_are_answered_in_order() -> None:
    asked = b"".join(b"GET /%d HTTP/1.1\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n" % n for n in range(3000))
    with echoing(Echo(), uvloop.new_event_loop) as (port, _), connected(port) as connection:
        threading.Thread(target=connection.sendall, args=(asked + b"GET / HTTP/1.0\r\n\r\n",), daemon=True).start()
        assert told_in(all_of(connection)) == [*(f"GET /{n} ;" for n in range(3000)), "GET / ;"]


@pytest.mark.parametrize("target", [b"x:80", b"/v1/memories"])
async def test_a_tunnel_is_a_problem_like_any_other(target: bytes) -> None:
    async with listening() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"CONNECT " + target + b" HTTP/1.1\r\nHost: x:80\r\n\r\nGET / HTTP/1.1\r\n\r\n")
        head, _, body = (await asyncio.wait_for(reader.read(), 5)).partition(b"\r\n\r\n")
        writer.close()
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["code"] == "malformed"


@pytest.mark.parametrize("new_loop", LOOPS.values(), ids=LOOPS)
def test_who_closes_its_half_behind_a_whole_request_is_answered_and_then_closed(new_loop: Any) -> None:
    echo = Echo(0.3)
    asked = b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
    with echoing(echo, new_loop) as (port, server):
        for sent, expected in ((asked, ["POST /a hello;"]), (asked * 3, ["POST /a hello;"] * 3)):
            with connected(port) as connection:
                connection.sendall(sent)
                connection.shutdown(socket.SHUT_WR)
                assert told_in(all_of(connection)) == expected
        waited(lambda: not server.server_state.connections)
    assert not echo.left.is_set()


@pytest.mark.parametrize("new_loop", LOOPS.values(), ids=LOOPS)
def test_who_closes_its_half_within_a_request_is_gone(new_loop: Any) -> None:
    echo = Echo()
    with echoing(echo, new_loop) as (port, server):
        with connected(port) as connection:
            connection.sendall(b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhel")
            connection.shutdown(socket.SHUT_WR)
            assert all_of(connection) == b""
        assert echo.left.wait(5)
        waited(lambda: not server.server_state.connections)
    assert not echo.began.is_set()


@pytest.mark.parametrize("new_loop", LOOPS.values(), ids=LOOPS)
def test_for_a_client_that_went_away_nothing_is_held_longer_than_its_answer_takes(new_loop: Any) -> None:
    echo = Echo(0.3)
    with echoing(echo, new_loop) as (port, server):
        connection = connected(port)
        connection.sendall(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
        assert echo.began.wait(5)
        connection.close()
        assert echo.ended.wait(5)
        waited(lambda: not server.server_state.connections, 1.0)  # a kept connection would live for 5 s
        with connected(port) as idle:  # between two requests there is nothing to wait for
            idle.shutdown(socket.SHUT_WR)
            assert all_of(idle) == b""
