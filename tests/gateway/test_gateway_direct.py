"""Does the short way say what the SDK's transport says, byte by byte? And does a slow answer keep its connection?"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from gateway_running import gateway_thread
from gateway_stand_in import Silence, StandIn, problem

from mcp_gateway import http_transport
from mcp_gateway.client import Caller
from mcp_gateway.direct import METHODS, Direct, read_plain
from mcp_gateway.http_transport import create_app
from mcp_gateway.server import Asked, open_gateway
from mcp_gateway.settings import GatewaySettings
from mcp_gateway.tools import ALL_TOOLS

pytestmark = pytest.mark.asyncio

VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STANDARD = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
MEMORY = "01890a5d-ac96-774b-bcce-b302099a8057"
TEXT = 'Zeile\n\t"quoted" \\ \x7f \u2028 Grüße 记忆 🧠 \x01'


def request(method: str, params: Any = None, **members: Any) -> bytes:
    given = {} if params is None else {"params": params}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, **given, **members}).encode()


def called(tool: str, arguments: Any = None, **params: Any) -> bytes:
    given = {} if arguments is None else {"arguments": arguments}
    return request("tools/call", {"name": tool, **given, **params})


SEARCH = {"query": "x", "user_id": "ana"}
DEEP = "[" * 400 + "]" * 400
# Name → body of what takes the short way.
SHORT = {
    "success": called("memory_search", SEARCH),
    "success of the other search": called("search_episodic_memory", {"task_description": "x"}),
    "a tool error": called("memory_search", SEARCH | {"wrong": 1}),
    "a missing argument": called("memory_search"),
    "arguments of wrong types": called("memory_search", {"query": 7, "top_k": "many"}),
    "an id that is not there": called("memory_delete", {"id": MEMORY}),
    "null for an argument": called("memory_search", SEARCH | {"tags": None}),
    "null for the arguments": b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"memory_search","arguments":null}}',
    "a list for the arguments": called("memory_search", ["x"]),
    "a string for the arguments": called("memory_search", "x"),
    "an unknown tool": called("memory_guess", SEARCH),
    "a tool without a name": request("tools/call", {"arguments": SEARCH}),
    "a number for a name": request("tools/call", {"name": 7, "arguments": SEARCH}),
    "a call without params": request("tools/call"),
    "null for the params": b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":null}',
    "an unknown member of the params": called("memory_search", SEARCH, task={"ttl": 5}),
    "a progress token": called("memory_search", SEARCH, _meta={"progressToken": "p-1"}),
    "a number for a progress token": called("memory_search", SEARCH, _meta={"progressToken": 3, "other/thing": [1]}),
    "a bool for a progress token": called("memory_search", SEARCH, _meta={"progressToken": True}),
    "a fraction for a progress token": called("memory_search", SEARCH, _meta={"progressToken": 1.5}),
    "null for a progress token": called("memory_search", SEARCH, _meta={"progressToken": None}),
    "a list for _meta": called("memory_search", SEARCH, _meta=[]),
    "null for _meta": called("memory_search", SEARCH, _meta=None),
    "a string for an id": request("tools/call", {"name": "memory_search", "arguments": SEARCH}, id="ä\n7"),
    "a negative id": request("ping", id=-7),
    "an id of 70 bits": request("ping", id=2**70),
    "NUL": called("memory_search", {"query": "a\0b", "user_id": "ana"}),
    "half a surrogate pair": called("memory_search", {"query": "a\ud800b", "user_id": "ana"}),
    "a whole surrogate pair": called("memory_search", {"query": "a\ud83e\udde0b", "user_id": "ana"}),
    "an integer of 70 bits": called("memory_search", SEARCH | {"top_k": 2**70}),
    "not a number": called("memory_write", {"content": "x", "importance": float("nan")}),
    "a doubled member": b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping","method":"tools/list"}',
    "a long text": called("memory_search", {"query": "x" * 2_000_000, "user_id": "ana"}),
    "ping": request("ping"),
    "ping with params": request("ping", {"a": 1}),
    "tools": request("tools/list"),
    "tools from a cursor": request("tools/list", {"cursor": "x"}),
    "tools from a number": request("tools/list", {"cursor": 7}),
    "resources": request("resources/list", {}),
    "templates": request("resources/templates/list"),
    "prompts": request("prompts/list"),
    "a resource": request("resources/read", {"uri": "memory://stats"}),
    "a resource that is not there": request("resources/read", {"uri": f"memory://memories/{MEMORY}"}),
    "no resource": request("resources/read", {"uri": "file:///etc/passwd"}),
    "a prompt": request("prompts/get", {"name": "recall_before_task", "arguments": {"task": TEXT}}),
    "an unknown prompt": request("prompts/get", {"name": "guess"}),
}
# Name → body and headers of what the SDK judges.
LONG = {
    "bad JSON": (b'{"jsonrpc": "2.0", "id": 1,', {}),
    "no body": (b"", {}),
    "not UTF-8": (b'{"jsonrpc":"2.0","id":1,"method":"ping\xff"}', {}),
    "a batch": (b"[" + SHORT["ping"] + b"]", {}),
    "an empty batch": (b"[]", {}),
    "a string": (b'"ping"', {}),
    "an unknown method": (request("tools/guess"), {}),
    "no method": (b'{"jsonrpc":"2.0","id":1}', {}),
    "a number for a method": (request(7), {}),  # type: ignore[arg-type]
    "no version of JSON-RPC": (b'{"id":1,"method":"ping"}', {}),
    "another JSON-RPC": (request("ping", jsonrpc="1.0"), {}),
    "a list for the params": (request("tools/list", [1]), {}),
    "an unknown member": (request("ping", other=1), {}),
    "null for an id": (request("ping", id=None), {}),
    "a bool for an id": (request("ping", id=True), {}),
    "a fraction for an id": (request("ping", id=1.5), {}),
    "a list for an id": (request("ping", id=[1]), {}),
    "a notification": (b'{"jsonrpc":"2.0","method":"notifications/initialized"}', {}),
    "an answer": (b'{"jsonrpc":"2.0","id":1,"result":{}}', {}),
    "deep nesting": (called("memory_search", SEARCH).replace(b'"x"', DEEP.encode()), {}),
    "no accepted type": (SHORT["ping"], {"accept": ""}),
    "only JSON accepted": (SHORT["ping"], {"accept": "application/json"}),
    "only events accepted": (SHORT["ping"], {"accept": "text/event-stream"}),
    "another content": (SHORT["ping"], {"content-type": "text/plain"}),
    "content that only looks like JSON": (SHORT["ping"], {"content-type": "application/jsonp"}),
    "an unknown version": (SHORT["ping"], {"mcp-protocol-version": "1999-01-01"}),
    "the 2026 protocol without its envelope": (SHORT["ping"], {"mcp-protocol-version": "2026-07-28"}),
    "a body that is too long": (called("memory_search", {"query": "x" * 5_000_000}), {}),
}


class Ways:
    """Sends the same twice: as it comes, and past the short way."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._url = url
        self._monkeypatch = monkeypatch
        self.taken: list[Asked | None] = []

    def _note(self, body: bytes, caller: Caller, session_id: str | None) -> Asked | None:
        self.taken.append(read_plain(body, caller, session_id))
        return self.taken[-1]

    async def post(self, body: bytes, headers: dict[str, str], *, short: bool) -> httpx.Response:
        way = self._note if short else lambda *_: None
        self._monkeypatch.setattr(http_transport, "read_plain", way)
        async with httpx.AsyncClient(trust_env=False, timeout=20) as client:
            return await client.post(self._url, content=body, headers=STANDARD | headers)

    async def both(self, body: bytes, headers: dict[str, str]) -> tuple[httpx.Response, httpx.Response]:
        """Short first."""
        return await self.post(body, headers, short=True), await self.post(body, headers, short=False)

    def took_the_short_one(self) -> bool:
        return self.taken[-1:] != [None] and bool(self.taken)


@pytest.fixture(scope="module")
def direct_url(service_url: str) -> Iterator[str]:
    with gateway_thread(service_url, ALL_TOOLS) as url:
        yield url


@pytest.fixture
def ways(direct_url: str, monkeypatch: pytest.MonkeyPatch) -> Ways:
    return Ways(direct_url, monkeypatch)


def message(response: httpx.Response) -> bytes:
    """The one JSON-RPC message, out of its frame."""
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        (data,) = [line for line in response.content.split(b"\r\n") if line.startswith(b"data: ")]
        return data.removeprefix(b"data: ")
    return response.content


async def told(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """What was logged about the last request, without what is never the same. The answer may be here before its line."""
    lines: list[dict[str, Any]] = []
    async with asyncio.timeout(5):
        while not lines:
            await asyncio.sleep(0.001)
            lines = [record.fields for record in caplog.records if record.name == "mcp_gateway.requests"]  # type: ignore[attr-defined]
    caplog.clear()
    return [{k: v for k, v in line.items() if k not in ("request_id", "duration_ms")} for line in lines]


@pytest.mark.parametrize("version", VERSIONS)
async def test_both_ways_answer_alike_in_every_version(
    version: str, ways: Ways, service: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    service.add_memory(TEXT)
    service.misbehave("POST", "/v1/experiences/query", problem(503, "store_down", "Redis is away", retry_after="7"))
    down = {"the service in trouble": called("memory_query", {"state": {"situation": "x"}})}
    for name, body in (SHORT | down).items():
        with caplog.at_level(logging.INFO, "mcp_gateway"):
            short = await ways.post(body, {"mcp-protocol-version": version}, short=True)
            logged = await told(caplog)
            long = await ways.post(body, {"mcp-protocol-version": version}, short=False)
            assert logged == await told(caplog), name
        assert ways.took_the_short_one(), name
        assert short.headers["content-type"] == "application/json", name
        assert short.headers["content-length"] == str(len(short.content)), name
        assert long.headers["content-type"].startswith("text/event-stream"), name
        assert (short.status_code, message(short)) == (long.status_code, message(long)), name


async def test_a_request_without_a_version_is_answered_alike(ways: Ways, service: StandIn) -> None:
    for name, body in SHORT.items():
        short, long = await ways.both(body, {})
        assert ways.took_the_short_one(), name
        assert message(short) == message(long), name


@pytest.mark.parametrize("name", LONG)
async def test_what_is_unusual_is_left_to_the_sdk(name: str, ways: Ways, service: StandIn) -> None:
    body, headers = LONG[name]
    short, long = await ways.both(body, headers)
    assert not ways.took_the_short_one()
    assert (short.status_code, message(short)) == (long.status_code, message(long))
    assert service.requests("POST", ".*") == []


@pytest.mark.parametrize(
    "headers",
    [
        {"accept": "*/*"},
        {"accept": "text/event-stream;q=0.5, application/json; charset=utf-8"},
        {"content-type": "application/json; charset=utf-8"},
    ],
)
async def test_other_spellings_of_the_headers_take_the_short_way(
    headers: dict[str, str], ways: Ways, service: StandIn
) -> None:
    short, long = await ways.both(SHORT["success"], headers)
    assert ways.took_the_short_one()
    assert message(short) == message(long)


async def test_every_listed_method_is_one_that_the_server_has(ways: Ways, service: StandIn) -> None:
    for method in sorted(METHODS):
        answer = await ways.post(request(method, {}), {}, short=True)
        assert answer.json().get("error", {}).get("code") != -32601, method


@pytest.mark.parametrize("short", [True, False])
async def test_a_cancelled_call_is_answered_as_cancelled(short: bool, ways: Ways, service: StandIn) -> None:
    silence = Silence()
    service.misbehave("POST", ".*/search", silence)
    session = {"mcp-session-id": "s-1"}
    asking = asyncio.create_task(ways.post(called("memory_search", SEARCH), session, short=short))
    assert await asyncio.to_thread(silence.started.wait, 5)
    cancel = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}'
    assert (await ways.post(cancel, session, short=short)).status_code == 202
    answer = await asking
    # Both as events: on JSON the SDK's client would break if it is being closed just then.
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert json.loads(message(answer))["error"] == {"code": -32800, "message": "Request cancelled"}
    assert await asyncio.to_thread(silence.closed.wait, 5)


async def test_a_slow_answer_becomes_an_event_stream_that_is_kept_awake(service: StandIn, service_url: str) -> None:
    service.misbehave("POST", ".*/search", Silence(seconds=1.0))
    with gateway_thread(service_url, ALL_TOOLS, gateway_quiet_seconds=0.2) as url:
        async with (
            httpx.AsyncClient(trust_env=False, timeout=0.8) as client,  # between two reads
            client.stream("POST", url, content=called("memory_search", SEARCH), headers=STANDARD) as response,
        ):
            assert response.headers["content-type"] == "text/event-stream"
            assert response.headers["x-request-id"]
            whole = (await response.aread()).decode()
    pings, _, event = whole.partition("event: message\r\n")
    assert pings.count(": ping\r\n\r\n") >= 3
    answer = json.loads(event.removeprefix("data: "))
    assert answer["result"]["isError"]
    assert "connection" in answer["result"]["content"][0]["text"]


@pytest.mark.parametrize("quiet_seconds", [15.0, 0.1])
async def test_a_client_that_leaves_takes_its_call_along(
    quiet_seconds: float, service: StandIn, service_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    silence = Silence()
    service.misbehave("POST", ".*/search", silence)
    with (
        caplog.at_level(logging.INFO, "mcp_gateway"),
        gateway_thread(service_url, ALL_TOOLS, gateway_quiet_seconds=quiet_seconds) as url,
    ):
        async with httpx.AsyncClient(trust_env=False) as client:
            asking = asyncio.create_task(client.post(url, content=called("memory_search", SEARCH), headers=STANDARD))
            assert await asyncio.to_thread(silence.started.wait, 5)
            await asyncio.sleep(0.4)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        assert await asyncio.to_thread(silence.closed.wait, 5)
    assert [line["status"] for line in await told(caplog)] == ["cancelled"]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("also_ended", [False, True])
async def test_who_ends_a_call_whose_client_left_is_still_heard(also_ended: bool) -> None:
    class Waiting:
        async def answer_call(self, *_: Any) -> dict[str, Any]:
            try:
                await asyncio.sleep(10)
            finally:
                if also_ended:
                    answering.cancel()
            return {}

    async def gone() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def refuse(message: Any) -> None:
        raise AssertionError(message)

    plain = Asked(1, "tools/call", {"name": "memory_search"}, Caller("r-1"), "http")
    direct = Direct(None, Waiting(), quiet_seconds=15)  # type: ignore[arg-type]
    answering = asyncio.create_task(direct.answer(plain, "2025-06-18", {}, gone, refuse))
    await asyncio.wait({answering}, timeout=5)
    assert answering.done()
    assert answering.cancelled() == also_ended
    assert bool(answering.cancelling()) == also_ended


async def test_an_answer_leaves_before_its_line_is_written(
    service: StandIn, service_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": called("memory_search", SEARCH)}

    async def send(message: Any) -> None:
        sent.append((message["type"], len(lines())))

    def lines() -> list[logging.LogRecord]:
        return [record for record in caplog.records if record.name == "mcp_gateway.requests"]

    sent: list[tuple[str, int]] = []
    headers = [(name.encode(), value.encode()) for name, value in (STANDARD | {"host": "localhost"}).items()]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": headers}
    async with open_gateway(GatewaySettings(service_url=service_url)) as gateway:
        with caplog.at_level(logging.INFO, "mcp_gateway"):
            await create_app(gateway)(scope, receive, send)
            assert sent == [("http.response.start", 0), ("http.response.body", 0)]
            assert len(await told(caplog)) == 1
