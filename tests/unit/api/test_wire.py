"""What a client gets for bytes that never become a request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from memory_service.serving import ProblemProtocol


async def nothing(_scope: Any, _receive: Any, _send: Any) -> None:
    raise AssertionError("this must not reach the app")


@asynccontextmanager
async def listening() -> AsyncIterator[int]:
    """A port that speaks as `hindsight serve` does."""
    server = uvicorn.Server(uvicorn.Config(nothing, port=0, lifespan="off", log_config=None, http=ProblemProtocol))
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
