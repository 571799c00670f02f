"""Does the HTTP endpoint keep its door, pass keys and ids on, cancel, log, and end in time?"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import time
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx
import pytest
from gateway_running import GatewayProcess, call, call_error, gateway_process, gateway_thread, http_client
from gateway_stand_in import Silence, StandIn

from mcp_gateway.logs import JsonLines
from mcp_gateway.settings import GatewaySettings
from mcp_gateway.tools import ALL_TOOLS

pytestmark = pytest.mark.asyncio

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
STANDARD = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


async def initialize(url: str, **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.post(url, json=INITIALIZE, headers=STANDARD | headers)


async def test_health_answers_without_touching_the_service(gateway: GatewayProcess, service: StandIn) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        response = await client.get(gateway.url.replace("/mcp", "/health"), headers={"host": "anything"})
    assert (response.status_code, response.json()) == (200, {"status": "ok"})
    assert service.seen == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:8080"}, 200),
        ({"host": "[::1]:8080"}, 200),
        ({"host": "evil.example"}, 421),
        ({"host": "localhost.evil.example:8080"}, 421),
        ({"origin": "http://localhost:3000"}, 200),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
    ],
)
async def test_hosts_and_origins_are_checked_also_when_every_address_is_bound(
    headers: dict[str, str], status: int, service: StandIn, service_url: str
) -> None:
    with gateway_thread(service_url, ALL_TOOLS, gateway_host="0.0.0.0") as url:
        assert (await initialize(url, **headers)).status_code == status
    if status != 200:
        assert service.seen == []  # a foreign page can't even make the gateway ask the service


async def test_hosts_and_origins_are_settings(service: StandIn, service_url: str) -> None:
    chosen = {"allowed_hosts": "memory.example, localhost:*,127.0.0.1", "allowed_origins": "https://app.example"}
    with gateway_thread(service_url, ALL_TOOLS, gateway_host="0.0.0.0", **chosen) as url:
        for headers, status in [
            ({"host": "memory.example"}, 200),
            ({"host": "memory.example:443"}, 200),
            ({"host": "other.example"}, 421),
            ({"origin": "https://app.example"}, 200),
            ({"origin": "http://localhost:3000"}, 403),
        ]:
            assert (await initialize(url, **headers)).status_code == status, headers


@pytest.mark.parametrize("name", ["allowed_hosts", "allowed_origins"])
async def test_a_wildcard_that_would_switch_the_check_off_is_refused(name: str) -> None:
    for value in ("*", "*:*", "http://*"):
        with pytest.raises(ValueError, match="switch the check off"):
            GatewaySettings(**{name: value})  # type: ignore[arg-type]


async def test_a_needed_key_is_asked_for_with_401(gateway: GatewayProcess, service: StandIn) -> None:
    service.keys = {"good": None}
    missing = await initialize(gateway.url)
    assert (missing.status_code, missing.headers["www-authenticate"]) == (401, "Bearer")
    assert "Authorization: Bearer KEY" in missing.json()["error"]["message"]
    wrong = await initialize(gateway.url, authorization="Bearer bad")
    assert (wrong.status_code, wrong.headers["www-authenticate"]) == (401, 'Bearer error="invalid_token"')
    assert (await initialize(gateway.url, authorization="Bearer good")).status_code == 200
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(gateway.url, headers=STANDARD)).status_code == 401


async def test_a_needed_key_is_asked_for_also_by_a_service_without_keys_self(
    gateway: GatewayProcess, service: StandIn
) -> None:
    service.has_key_self = False
    assert (await initialize(gateway.url)).status_code == 200
    service.keys = {"good": None}
    assert (await initialize(gateway.url)).status_code == 401
    assert (await initialize(gateway.url, authorization="Bearer good")).status_code == 200


async def test_the_answer_about_a_key_is_remembered_for_a_moment(service: StandIn, service_url: str) -> None:
    with gateway_thread(service_url, ALL_TOOLS, gateway_access_cache_seconds=0.5) as url:
        await asyncio.gather(*(initialize(url) for _ in range(5)))
        assert len(service.requests("GET", "/v1/keys/self")) == 1
        await asyncio.sleep(0.6)
        service.keys = {"good": None}
        assert (await initialize(url)).status_code == 401


async def test_the_callers_key_and_request_id_reach_the_service(gateway: GatewayProcess, service: StandIn) -> None:
    service.keys = {"key-é": None, "good": None}
    async with http_client(gateway.url, authorization="Bearer good", **{"x-request-id": "trace-7"}) as client:
        await call(client, "memory_search", {"query": "x"})
    seen = service.only("POST", "/v1/memories/search")
    assert (seen.headers["authorization"], seen.headers["x-request-id"]) == ("Bearer good", "trace-7")


async def test_the_gateways_own_key_is_never_lent_to_http_callers(service: StandIn, service_url: str) -> None:
    service.keys = {"own": None}
    with gateway_thread(service_url, ALL_TOOLS, api_key="own") as url:
        assert (await initialize(url)).status_code == 401


@pytest.mark.parametrize("given", ["", "a b", "x" * 200, "\"'<>"])
async def test_a_request_id_that_could_forge_a_log_line_is_replaced(
    given: str, gateway: GatewayProcess, service: StandIn
) -> None:
    used = (await initialize(gateway.url, **{"x-request-id": given})).headers["x-request-id"]
    assert used != given
    assert len(used) == 32


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_cancelling_a_call_closes_the_request_to_the_service(
    mode: str, service: StandIn, service_url: str
) -> None:
    silence = Silence()
    service.misbehave("POST", ".*/search", silence)
    with gateway_thread(service_url, ALL_TOOLS) as url:
        async with http_client(url, mode) as client:
            with anyio.move_on_after(1.0):
                await client.call_tool("memory_search", {"query": "x"})
            assert silence.started.is_set()
            assert await asyncio.to_thread(silence.closed.wait, 3)
            # The connection to the gateway is still good.
            assert (await client.list_tools()).tools


async def test_a_vanished_client_closes_the_request_to_the_service(service: StandIn, service_url: str) -> None:
    silence = Silence()
    service.misbehave("POST", ".*/search", silence)
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    message |= {"params": {"name": "memory_search", "arguments": {"query": "x"}}}
    with gateway_thread(service_url, ALL_TOOLS) as url:
        with pytest.raises(httpx.ReadTimeout):
            async with httpx.AsyncClient(trust_env=False, timeout=0.5) as client:
                await client.post(url, json=message, headers=STANDARD)
        assert await asyncio.to_thread(silence.closed.wait, 3)


async def test_nobody_can_cancel_the_call_of_another_session(service: StandIn, service_url: str) -> None:
    silence = Silence(seconds=2)
    service.misbehave("POST", ".*/search", silence)
    with gateway_thread(service_url, ALL_TOOLS) as url:
        async with http_client(url, "legacy") as client, anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "memory_search", {"query": "x"})
            await asyncio.to_thread(silence.started.wait, 3)
            async with httpx.AsyncClient(trust_env=False) as stranger:
                for session in ({}, {"mcp-session-id": "guess"}):
                    for number in range(10):
                        cancel = {
                            "jsonrpc": "2.0",
                            "method": "notifications/cancelled",
                            "params": {"requestId": number},
                        }
                        await stranger.post(url, json=cancel, headers=STANDARD | session)
            assert not silence.closed.wait(0.3)
            group.cancel_scope.cancel()


async def hang(gateway: GatewayProcess, mode: str) -> None:
    """A tool call that the service does not answer; in legacy mode with a listening GET stream beside it."""
    async with http_client(gateway.url, mode) as client:
        await client.call_tool("memory_search", {"query": "x"})


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_process_within_five_seconds_with_open_streams(
    ending: signal.Signals, mode: str, service: StandIn, service_url: str, tmp_path: Path
) -> None:
    silence = Silence()
    service.misbehave("POST", ".*/search", silence)
    with gateway_process(service_url, tmp_path / "log") as gateway:
        async with (
            httpx.AsyncClient(trust_env=False) as client,
            client.stream("GET", gateway.url, headers=STANDARD) as stream,
        ):
            assert stream.headers["content-type"].startswith("text/event-stream")
            calling = asyncio.create_task(hang(gateway, mode))
            assert await asyncio.to_thread(silence.started.wait, 5)
            started = time.monotonic()
            gateway.process.send_signal(ending)
            await asyncio.to_thread(gateway.process.wait, 6)
            took = time.monotonic() - started
            assert silence.closed.wait(2)
            calling.cancel()
            await asyncio.gather(calling, return_exceptions=True)
        assert took < 5
        assert not [line for line in gateway.log_lines() if line["level"] == "critical"]


async def test_one_line_is_logged_per_request_without_contents_or_keys(
    service: StandIn, service_url: str, tmp_path: Path
) -> None:
    service.keys = {"very-secret-key": None}
    with gateway_process(service_url, tmp_path / "log") as gateway:
        async with http_client(
            gateway.url, authorization="Bearer very-secret-key", **{"x-request-id": "r-9"}
        ) as client:
            await call(client, "memory_write", {"content": "private words", "metadata": {"private": "words"}})
            await call_error(client, "memory_search", {"query": "private words", "private": 1})
        await initialize(gateway.url)
        gateway.process.terminate()
        await asyncio.to_thread(gateway.process.wait, 6)
        text = gateway.log.read_text()
        lines = [line for line in gateway.log_lines() if line["logger"] == "mcp_gateway.requests"]
    assert "private" not in text
    assert "secret" not in text
    calls = [line for line in lines if line.get("method") == "tools/call"]
    assert [(line["tool"], line["status"]) for line in calls] == [
        ("memory_write", "ok"),
        ("memory_search", "tool_error"),
    ]
    assert {line["request_id"] for line in calls} == {"r-9"}
    assert all(line["duration_ms"] >= 0 for line in calls)
    assert lines[-1]["status"] == "http 401"


async def test_half_a_surrogate_pair_does_not_cost_its_log_line() -> None:
    record = logging.LogRecord("library", logging.WARNING, "", 0, "odd %s: ä", ("\ud800",), None)
    line = json.loads(JsonLines().format(record))
    assert (line["message"], line["level"]) == ("odd \\ud800: ä", "warning")
    assert datetime.fromisoformat(line["at"]).timestamp() == pytest.approx(record.created, abs=0.001)


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"{", 400), (b"[]", 400), (b"\xff", 400), (b'{"jsonrpc": "2.0"}', 400), (b"x" * (5 * 1024 * 1024), 413)],
)
async def test_a_broken_body_is_refused(body: bytes, status: int, gateway: GatewayProcess, service: StandIn) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (await client.post(gateway.url, content=body, headers=STANDARD)).status_code == status


@pytest.mark.parametrize(("encoding", "status"), [("gzip", 415), ("identity, BR", 415), ("identity", 200), ("", 200)])
async def test_a_body_in_an_encoding_that_is_not_read_is_415(
    encoding: str, status: int, gateway: GatewayProcess, service: StandIn
) -> None:
    response = await initialize(gateway.url, **{"content-encoding": encoding})
    assert response.status_code == status
    assert response.headers.get("accept-encoding") == ("identity" if status == 415 else None)


def sent_raw(url: str, sent: bytes, *, half_close: bool = False) -> bytes:
    """All that comes back until the gateway closes."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=10) as connection:
        connection.sendall(sent)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        got = b""
        while part := connection.recv(65_536):
            got += part
    return got


def called_raw(query: str, *lines: str) -> bytes:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    message |= {"params": {"name": "memory_search", "arguments": {"query": query}}}
    body = json.dumps(message)
    headers = [f"{name}: {value}" for name, value in STANDARD.items()]
    head = ["POST /mcp HTTP/1.1", "Host: localhost", *headers, f"Content-Length: {len(body)}", *lines, "", ""]
    return "\r\n".join(head).encode() + body.encode()


@pytest.mark.parametrize("offer", ["h2c", "websocket", "foo"])
async def test_a_request_that_offers_an_upgrade_is_read_as_if_it_did_not(
    offer: str, gateway: GatewayProcess, service: StandIn
) -> None:
    lines = (f"Upgrade: {offer}", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABk")
    sent = called_raw("one", *lines) + called_raw("two", *lines) + called_raw("three", "Connection: close")
    got = await asyncio.to_thread(sent_raw, gateway.url, sent)
    assert got.count(b"HTTP/1.1 200 OK") == got.count(b"HTTP/1.1") == got.count(b'"isError":false') == 3
    assert [seen.body["query"] for seen in service.requests("POST", "/v1/memories/search")] == ["one", "two", "three"]


async def test_a_tunnel_is_refused(gateway: GatewayProcess) -> None:
    got = await asyncio.to_thread(sent_raw, gateway.url, b"CONNECT x:80 HTTP/1.1\r\nHost: x:80\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 400 ")


async def test_who_half_closes_behind_a_call_is_answered(service: StandIn, service_url: str) -> None:
    service.misbehave("POST", ".*/search", Silence(seconds=0.4))
    with gateway_thread(service_url, ALL_TOOLS) as url:
        for query in ("slow", "quick"):
            got = await asyncio.to_thread(sent_raw, url, called_raw(query), half_close=True)
            assert got.startswith(b"HTTP/1.1 200 OK"), query
            assert b'"id":1' in got


async def test_head_of_health_has_no_body_and_keeps_the_connection(gateway: GatewayProcess) -> None:
    asked = b"HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n" * 2 + b"GET /health HTTP/1.0\r\n\r\n"
    first, second, last = (await asyncio.to_thread(sent_raw, gateway.url, asked)).split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert first.endswith(b"\r\n\r\n")
    assert second.endswith(b"\r\n\r\n")
    assert last.endswith(b'{"status":"ok"}')


async def test_a_deeply_nested_body_is_refused(gateway: GatewayProcess, service: StandIn) -> None:
    arguments = b'{"content": "x", "metadata": ' + b'{"d": ' * 3000 + b"1" + b"}" * 3001
    body = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "memory_write", "arguments": '
    async with httpx.AsyncClient(trust_env=False) as client:
        response = await client.post(gateway.url, content=body + arguments + b"}}", headers=STANDARD)
    assert response.status_code in (200, 400)
    assert "nested" in response.text or "Parse error" in response.text
    assert service.requests("POST", "/v1/memories") == []


async def test_many_clients_at_once_all_get_their_own_answers(gateway: GatewayProcess, service: StandIn) -> None:
    """The SDK's issue 3494: a POST's event stream that ends before its answer. It must not happen here."""

    async def one(number: int) -> Any:
        async with http_client(gateway.url, "legacy" if number % 2 else "auto") as client:
            return await call(client, "memory_write", {"content": f"text {number}"})

    answers = await asyncio.gather(*(one(number) for number in range(30)))
    assert [answer["summary"] for answer in answers] == [f"text {number}" for number in range(30)]


async def test_a_taken_port_is_a_clear_message(gateway: GatewayProcess, tmp_path: Path, service_url: str) -> None:
    port = gateway.url.split(":")[2].split("/")[0]
    process = await asyncio.create_subprocess_exec(
        *gateway.process.args,  # type: ignore[misc]
        env={"HINDSIGHT_GATEWAY_PORT": port, "HINDSIGHT_SERVICE_URL": service_url},
        stderr=asyncio.subprocess.PIPE,
    )
    _, stderr = await asyncio.wait_for(process.communicate(), 10)
    assert process.returncode != 0
    assert "address already in use" in " ".join(json.loads(line)["message"] for line in stderr.splitlines())
