"""Does the client know whether a request left, and is nothing sent twice that may not be?  On sockets that misbehave on purpose."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop
from gateway_running import free_port
from scripted_server import serving

from mcp_gateway.client import Caller, ServiceClient
from mcp_gateway.errors import NotSent, Refused, Unanswered
from mcp_gateway.settings import GatewaySettings

OK = b'HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n{"a":1}'
CALLER = Caller("r-1")


@asynccontextmanager
async def asking(service_url: str, **settings: Any) -> AsyncIterator[ServiceClient]:
    client = ServiceClient(GatewaySettings(service_url=service_url, **settings))
    try:
        yield client
    finally:
        await client.aclose()


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not true():
            await asyncio.sleep(0.01)


async def change(client: ServiceClient, method: str) -> Any:
    return await client.change(CALLER, method, "/v1/memories/x")


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "POST"])
async def test_a_change_on_a_kept_connection_that_turned_out_dead_is_sent_once(method: str) -> None:
    async with serving(lambda number: None if number == 2 else OK) as (server, url), asking(url) as client:
        assert await change(client, method) == {"a": 1}
        with pytest.raises(Unanswered) as told:
            await change(client, method)
        assert not told.value.timed_out
    assert (server.connections, len(server.requests)) == (1, 2)


async def test_a_read_on_a_kept_connection_that_turned_out_dead_is_sent_again_once() -> None:
    async with serving(lambda number: OK if number == 1 else None) as (server, url), asking(url) as client:
        await client.read(CALLER, "GET", "/v1/stats")
        with pytest.raises(Unanswered):
            await client.read(CALLER, "GET", "/v1/stats")
    assert len(server.requests) == 3


async def test_what_finds_no_free_connection_in_time_was_not_sent() -> None:
    bounds = {"gateway_upstream_connections_max": 1, "gateway_upstream_timeout_seconds": 0.5}
    async with serving(lambda _number: b"") as (server, url), asking(url, **bounds) as client:
        answers = await asyncio.gather(*(change(client, "POST") for _ in range(3)), return_exceptions=True)
    # All run out of time at once: the second may still get the connection that the first one leaves, but then it was sent.
    sent = [answer for answer in answers if not isinstance(answer, NotSent)]
    assert len(sent) == len(server.requests) < len(answers)
    assert all(isinstance(answer, Unanswered) and answer.timed_out for answer in sent)


async def test_a_connection_that_nobody_takes_was_not_sent() -> None:
    with socket.socket() as deaf, socket.socket() as first, socket.socket() as second:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for waiting in (first, second):  # the queue is full: the kernel answers no further SYN
            waiting.setblocking(False)
            waiting.connect_ex(deaf.getsockname())
        async with asking(f"http://127.0.0.1:{deaf.getsockname()[1]}", gateway_connect_timeout_seconds=0.3) as client:
            async with asyncio.timeout(2):
                with pytest.raises(NotSent):
                    await change(client, "POST")


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-host.invalid"])
async def test_a_server_that_is_away_got_nothing(host: str) -> None:
    async with asking(f"http://{host}:{free_port()}") as client:
        for method in ("POST", "GET"):
            with pytest.raises(NotSent):
                await change(client, method)


async def test_a_cancelled_call_closes_its_connection() -> None:
    async with serving(lambda _number: b"") as (server, url), asking(url) as client:
        call = asyncio.create_task(change(client, "POST"))
        await until(lambda: len(server.requests) == 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: server.open == 0)


@pytest.mark.parametrize("key", [b"Bearer hs_key", "Bearer Schlüssel 记".encode(), b"Basic  a==", b"x"])
async def test_the_bytes_of_the_callers_key_pass_untouched(key: bytes) -> None:
    async with serving(lambda _number: OK) as (server, url), asking(url) as client:
        await client.read(Caller("r-7", key), "GET", "/v1/stats")
    assert b"authorization: " + key + b"\r\n" in server.requests[0]
    assert b"x-request-id: r-7\r\n" in server.requests[0]


@pytest.mark.parametrize("key", [b"Bearer \xff", b"Bearer a\r\nx-more: b", b"Bearer a\0"])
async def test_a_key_that_no_header_can_carry_is_nobodys(key: bytes) -> None:
    async with serving(lambda _number: OK) as (server, url), asking(url) as client:
        with pytest.raises(Refused) as told:
            await client.read(Caller("r-7", key), "GET", "/v1/stats")
    assert told.value.status == 401
    assert server.requests == []


async def test_an_address_with_a_name_and_password_still_sends_the_callers_key() -> None:
    async with serving(lambda _number: OK) as (server, url), asking(url.replace("//", "//a:b@")) as client:
        await client.read(Caller("r-7", b"Bearer k"), "GET", "/v1/stats")
    assert b"authorization: Bearer k\r\n" in server.requests[0]


async def test_paths_and_parameters_arrive_as_they_were_encoded() -> None:
    async with serving(lambda _number: OK) as (server, url), asking(url + "/base") as client:
        path = "/v1/tasks/%2F%41%2E%2E"
        await client.read(CALLER, "GET", path, params={"user_id": "a&b=c+d é"})
    assert server.requests[0].startswith(b"GET /base/v1/tasks/%2F%41%2E%2E?user_id=a%26b%3Dc%2Bd+%C3%A9 HTTP/1.1\r\n")


async def test_redirects_cookies_and_proxies_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    cookie = OK.replace(b"\r\n", b"\r\nset-cookie: a=b; Path=/\r\n", 1)
    moved = b"HTTP/1.1 307 Moved\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n"
    async with serving(lambda number: cookie if number == 1 else moved) as (server, url), asking(url) as client:
        await client.read(CALLER, "GET", "/")
        with pytest.raises(Refused):
            await client.read(CALLER, "GET", "/")
    assert len(server.requests) == 2
    assert b"cookie" not in server.requests[1].lower()


async def test_a_body_of_several_mebibytes_arrives_whole_and_without_a_warning() -> None:
    async with serving(lambda _number: OK) as (server, url), asking(url) as client:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            await client.write(CALLER, "/v1/memories", {"content": "x" * 3_000_000})
    assert server.requests[0].endswith(b'{"content":"' + b"x" * 3_000_000 + b'"}')


def test_it_works_in_uvloop_and_leaves_nothing_open() -> None:
    async def asked() -> Any:
        async with serving(lambda _number: OK) as (_server, url), asking(url) as client:
            return [await client.read(CALLER, "GET", "/") for _ in range(3)]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            assert runner.run(asked()) == [{"a": 1}] * 3
        gc.collect()
