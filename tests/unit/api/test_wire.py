"""What a client gets for bytes that never become a request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from memory_service.serving import JOINED_BYTES_MAX, JoinedWrites, ServiceProtocol


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
