"""Does the way to Qdrant survive what servers do to connections?  Against a real server on a socket that misbehaves on purpose."""

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import uvloop
from scripted_server import serving

from memory_service.errors import SetupRefused, StoreUnavailable
from memory_service.stores import qdrant_http
from memory_service.stores.qdrant_http import QdrantHttp

RESULT = b'{"result": 7}'
OK = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(RESULT), RESULT)
CHUNKED = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n7\r\n"
    + RESULT[:7]
    + b"\r\n6\r\n"
    + RESULT[7:]
    + b"\r\n0\r\n\r\n"
)
LAST = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(RESULT), RESULT)
HALF = b"HTTP/1.1 200 OK\r\ncontent-length: 200\r\n\r\n" + RESULT
COOKIE = b"HTTP/1.1 200 OK\r\nset-cookie: a=b; Path=/\r\ncontent-length: %d\r\n\r\n%s" % (len(RESULT), RESULT)
METHODS = ("GET", "PUT", "POST", "PATCH", "DELETE")


@asynccontextmanager
async def calling(url: str, timeout_s: float = 5, **bounds: int) -> AsyncIterator[QdrantHttp]:
    http = QdrantHttp(url, "k", timeout_s, **bounds)
    try:
        yield http
    finally:
        await http.close()


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not true():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("answer", [OK, CHUNKED])
async def test_one_connection_serves_many_requests(answer: bytes) -> None:
    async with serving(lambda _number: answer) as (server, url), calling(url + "/base/") as http:
        for number in range(20):
            assert await http.call("POST", f"/x/{number}", {"a": 1}) == 7
    assert server.connections == 1
    head, _, body = server.requests[3].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /base/x/3 HTTP/1.1\r\n")
    assert b"api-key: k\r\n" in head
    assert b"content-type: application/json\r\n" in head
    assert body == b'{"a":1}'


async def test_requests_at_once_have_a_connection_each() -> None:
    async with serving(lambda _number: OK) as (server, url), calling(url) as http:
        assert await asyncio.gather(*(http.call("GET", "/") for _ in range(10))) == [7] * 10
    assert 1 < server.connections <= 10


async def test_a_connection_that_the_server_ended_is_not_used_again() -> None:
    async with serving(lambda _number: LAST, last=(LAST,)) as (server, url), calling(url) as http:
        assert [await http.call("GET", "/") for _ in range(3)] == [7] * 3
    assert server.connections == 3


@pytest.mark.parametrize("method", METHODS)
async def test_a_connection_that_turned_out_dead_is_made_once_more(method: str) -> None:
    async with serving(lambda number: None if number == 2 else OK) as (server, url), calling(url) as http:
        assert [await http.call(method, "/a"), await http.call(method, "/b")] == [7, 7]
    assert len(server.requests) == 3


@pytest.mark.parametrize("answer", [None, HALF, b"nonsense\r\n\r\n"])
@pytest.mark.parametrize("method", METHODS)
async def test_half_an_answer_is_no_answer_and_every_method_is_asked_twice(method: str, answer: bytes | None) -> None:
    async with serving(lambda _number: answer, last=(HALF,)) as (server, url), calling(url) as http:
        with pytest.raises(StoreUnavailable):
            await http.call(method, "/")
    assert len(server.requests) == 2


async def test_a_server_that_is_away_is_unavailable() -> None:
    async with serving(lambda _number: OK) as (_server, url):
        pass
    async with calling(url) as http:
        with pytest.raises(StoreUnavailable):
            await http.call("GET", "/")


async def test_after_a_time_out_the_late_answer_is_nobody_s() -> None:
    async with serving(lambda number: b"" if number == 1 else OK) as (server, url), calling(url, 0.3) as http:
        with pytest.raises(StoreUnavailable):
            await http.call("GET", "/first")
        assert await http.call("GET", "/second") == 7
    assert [request.split()[1] for request in server.requests] == [b"/first", b"/second"]  # a time-out is not repeated
    assert server.connections == 2


async def test_an_answer_that_trickles_is_bounded_by_the_whole_time() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
        for _ in range(100):
            if writer.is_closing():
                break
            writer.write(b" ")
            await asyncio.sleep(0.05)
        writer.close()

    listening = await asyncio.start_server(drip, "127.0.0.1", 0)
    async with calling(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", 0.5) as http:
        with pytest.raises(StoreUnavailable):
            async with asyncio.timeout(3):
                await http.call("GET", "/")
    listening.close()


async def test_a_cancelled_call_closes_its_connection() -> None:
    async with serving(lambda _number: b"") as (server, url), calling(url) as http:
        call = asyncio.create_task(http.call("GET", "/"))
        await until(lambda: len(server.requests) == 1)
        assert server.open == 1
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: server.open == 0)


async def test_names_outside_of_ascii_travel_percent_encoded_and_what_is_encoded_stays() -> None:
    async with serving(lambda _number: OK) as (server, url), calling(url) as http:
        await http.call("GET", "/collections/记忆 1%2F%41/../points?wait=true")
    assert server.requests[0].startswith(b"GET /collections/%E8%AE%B0%E5%BF%86%201%2F%41/../points?wait=true HTTP/1.1")


async def test_an_answer_that_is_too_long_is_given_up() -> None:
    long = b"HTTP/1.1 200 OK\r\ncontent-length: 10000000\r\n\r\n" + b"x" * 10_000_000
    async with serving(lambda _number: long) as (server, url), calling(url, answer_bytes_max=10_000) as http:
        with pytest.raises(StoreUnavailable):
            await http.call("GET", "/")
        await until(lambda: server.open == 0)
    assert len(server.requests) == 1


async def test_a_body_of_several_mebibytes_arrives_whole_and_without_a_warning() -> None:
    async with serving(lambda _number: OK) as (server, url), calling(url) as http:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert await http.call("PUT", "/points", {"a": "x" * 3_000_000}) == 7
    assert server.requests[0].endswith(b'\r\n\r\n{"a":"' + b"x" * 3_000_000 + b'"}')


async def test_more_requests_than_connections_wait_no_longer_than_the_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qdrant_http, "CONNECTIONS_MAX", 1)
    async with serving(lambda _number: b"") as (server, url), calling(url, 0.5) as http:
        async with asyncio.timeout(3):
            answers = await asyncio.gather(*(http.call("GET", "/") for _ in range(3)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 3
    assert len(server.requests) == 1


async def test_redirects_cookies_and_proxies_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    moved = b"HTTP/1.1 307 Moved\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n"
    async with serving(lambda number: COOKIE if number == 1 else moved) as (server, url), calling(url) as http:
        assert await http.call("GET", "/") == 7
        with pytest.raises(qdrant_http.PointRefused):
            await http.call("GET", "/")
    assert len(server.requests) == 2
    assert b"cookie" not in server.requests[1].lower()


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("127.0.0.1:6333", None),
        ("ftp://127.0.0.1", None),
        ("http://", None),
        ("http://127.0.0.1:port", None),
        ("http://127.0.0.1:6333", "two\r\nlines"),
        ("http://127.0.0.1:6333", "schlüssel"),
    ],
)
def test_an_impossible_address_or_key_is_refused_at_the_start(url: str, key: str | None) -> None:
    with pytest.raises(SetupRefused, match="HINDSIGHT_QDRANT_URL must be an address like"):
        QdrantHttp(url, key, 5)


async def test_after_closing_nothing_is_asked_and_nothing_is_left_open() -> None:
    async with serving(lambda _number: OK) as (server, url):
        http, unused = QdrantHttp(url, None, 5), QdrantHttp(url, None, 5)
        assert await http.call("GET", "/") == 7
        await http.close()
        await unused.close()
        for closed in (http, unused):
            with pytest.raises(StoreUnavailable):
                await closed.call("GET", "/")
        await until(lambda: server.open == 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del http, unused, closed
        gc.collect()


def test_the_loop_that_serves_is_uvloop_and_it_works_there_too() -> None:
    async def asked() -> list[int]:
        async with serving(lambda _number: OK) as (_server, url), calling(url) as http:
            return [await http.call("GET", "/") for _ in range(3)]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(asked()) == [7, 7, 7]
