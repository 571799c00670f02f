"""What HTTP itself asks of the service: HEAD, upgrades, half-closed and lost connections, encodings; over real sockets."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import uvicorn
from service_running import World, listed, problem_of, until, write

from memory_service.wire import ServiceProtocol

# GET routes that answer 200 to a caller without further ado.
GETS = ("/health", "/ready", "/metrics", "/openapi.json", "/v1/stats", "/v1/keys/self", "/v1/maintenance")


@asynccontextmanager
async def listening(world: World) -> AsyncIterator[int]:
    """The port of a socket in front of the world, speaking as `hindsight serve` does."""
    settings: dict[str, Any] = {"lifespan": "off", "log_config": None, "ws": "none", "access_log": False}
    server = uvicorn.Server(uvicorn.Config(world.app, port=0, http=ServiceProtocol, **settings))
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    running = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await running


async def exchanged(port: int, sent: bytes, *, half_close: bool = False) -> bytes:
    """All that comes back until the service closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    if half_close:
        writer.write_eof()
    got = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return got


def posted(path: str, body: bytes, *headers: str, declared: int | None = None) -> bytes:
    length = f"Content-Length: {len(body) if declared is None else declared}"
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", length, *headers, "", ""]
    return "\r\n".join(lines).encode() + body


@pytest.fixture
def records() -> Iterator[list[logging.LogRecord]]:
    """What was logged by whomever."""
    found: list[logging.LogRecord] = []
    handler = logging.Handler(logging.INFO)
    handler.emit = found.append  # type: ignore[method-assign]
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield found
    root.removeHandler(handler)
    root.setLevel(before)


def requests_in(records: list[logging.LogRecord]) -> list[tuple[str, str, int]]:
    """Method, route and status of each request's line."""
    facts: list[dict[str, Any]] = [
        r.facts
        for r in records
        if r.name == "memory_service.requests" and r.getMessage() == "request"  # type: ignore[attr-defined]
    ]
    return [(one["method"], one["route"], one["status"]) for one in facts]


async def counted(client: httpx.AsyncClient, method: str, route: str, status: int) -> float:
    name = f'hindsight_request_seconds_count{{method="{method}",route="{route}",status="{status}"}} '
    lines = (await client.get("/metrics")).text.splitlines()
    return next((float(line.removeprefix(name)) for line in lines if line.startswith(name)), 0.0)


@pytest.mark.parametrize("path", GETS)
async def test_head_is_answered_like_get_without_a_body_and_the_connection_goes_on(
    world: World, path: str, records: list[logging.LogRecord]
) -> None:
    before = await counted(world.client, "HEAD", path, 200)
    async with listening(world) as port:
        asked = f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        got = await exchanged(port, asked * 2 + b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    *heads, last = got.split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert [part.partition(b"\r\n\r\n")[2] for part in heads] == [b"", b""]
    assert last.endswith(b'\r\n\r\n{"status":"ok"}')
    assert all(b"content-length: 0\r\n" not in part and b"content-length: " in part for part in heads)
    assert [one for one in requests_in(records) if one[0] == "HEAD"] == [("HEAD", path, 200)] * 2
    assert await counted(world.client, "HEAD", path, 200) == before + 2
    assert not [r for r in records if r.levelno >= logging.WARNING]


async def test_head_of_what_streams_of_what_is_not_there_and_of_what_takes_no_get(
    world: World, user: str, records: list[logging.LogRecord]
) -> None:
    memory = await write(world.client, user, "told by its head")
    asked = (f"/v1/export?user_id={user}", f"/v1/memories/{memory['id']}", "/v1/memories/x", "/nowhere", "/v1/turns")
    async with listening(world) as port:
        for path, status in zip(asked, (200, 200, 404, 404, 405), strict=True):
            sent = f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            head, _, body = (await exchanged(port, sent.encode())).partition(b"\r\n\r\n")
            assert (head.split()[1], body) == (str(status).encode(), b""), path
            assert requests_in(records)[-1][::2] == ("HEAD", status)
    assert not [r for r in records if r.levelno >= logging.WARNING]


async def test_a_write_that_offers_an_upgrade_is_a_write(world: World, user: str) -> None:
    body = json.dumps({"user_id": user, "content": "h", "infer": False}).encode()
    offer = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA")
    search = json.dumps({"user_id": user, "query": "h", "mode": "keyword"}).encode()
    async with listening(world) as port:
        got = await exchanged(
            port, posted("/v1/memories", body, *offer) + posted("/v1/memories/search", search, "Connection: close")
        )
    assert [part.split()[0] for part in got.split(b"HTTP/1.1 ")[1:]] == [b"201", b"200"]
    assert [one["content"] for one in await listed(world.client, user)] == ["h"]


async def test_a_client_that_disconnects_within_its_request_is_no_error_of_ours(
    world: World, user: str, records: list[logging.LogRecord]
) -> None:
    routes = ("/v1/memories", "/v1/memories/batch", "/v1/import", "/v1/turns")
    before = [await counted(world.client, "POST", route, 499) for route in routes]
    async with listening(world) as port:
        for route in routes:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(posted(route, b'{"user_id":', declared=1000))
            await asyncio.sleep(0.05)
            writer.transport.abort()

        async def told() -> bool:
            return len([one for one in requests_in(records) if one[2] == 499]) == len(routes)

        await until(told)
    assert [one for one in requests_in(records) if one[2] == 499] == [("POST", route, 499) for route in routes]
    assert [await counted(world.client, "POST", route, 499) for route in routes] == [n + 1 for n in before]
    assert not [r for r in records if r.levelno >= logging.WARNING or r.exc_info]
    assert await listed(world.client, user) == []


async def test_who_half_closes_behind_a_write_is_answered(world: World, user: str) -> None:
    bodies = [json.dumps({"user_id": user, "content": f"half {n}", "infer": n % 2 == 0}).encode() for n in range(4)]
    async with listening(world) as port:
        got = await exchanged(port, b"".join(posted("/v1/memories", one) for one in bodies), half_close=True)
        assert got.count(b"HTTP/1.1 201 Created") == 4
        long = "x" * 200_000  # more than one packet, so that its end and ours come apart
        body = json.dumps({"user_id": user, "content": long, "infer": False}).encode()
        assert (await exchanged(port, posted("/v1/memories", body), half_close=True)).startswith(b"HTTP/1.1 201 ")
        asked = f"GET /v1/export?user_id={user} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        assert long.encode() in (await exchanged(port, asked, half_close=True)).replace(b"\r\n", b"")
    assert len(await listed(world.client, user)) == 5


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "br", "identity, gzip", "x"])
async def test_a_body_in_an_encoding_that_is_not_read_is_415(
    client: httpx.AsyncClient, user: str, encoding: str
) -> None:
    packed = gzip.compress(json.dumps({"user_id": user, "content": "packed", "infer": False}).encode())
    for path in ("/v1/memories", "/v1/memories/batch", "/v1/memories/search", "/v1/import", "/v1/turns"):
        answer = await client.post(path, content=packed, headers={"Content-Encoding": encoding})
        told = problem_of(answer, 415)
        assert (told["code"], answer.headers["accept-encoding"]) == ("unsupported_encoding", "identity")
        assert "Content-Encoding" in told["detail"]
    assert await listed(client, user) == []


@pytest.mark.parametrize("encoding", ["identity", "Identity", "", " , identity"])
async def test_a_body_as_it_is_may_say_so(client: httpx.AsyncClient, user: str, encoding: str) -> None:
    body = {"user_id": user, "content": "plain", "infer": False}
    assert (await client.post("/v1/memories", json=body, headers={"Content-Encoding": encoding})).status_code == 201


async def test_the_openapi_page_tells_of_415_where_a_body_is_read(client: httpx.AsyncClient) -> None:
    page = (await client.get("/openapi.json")).json()
    operations = [one for methods in page["paths"].values() for one in methods.values()]
    assert all(("415" in one["responses"]) == ("requestBody" in one) for one in operations)
