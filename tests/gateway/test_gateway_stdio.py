"""Is stdout JSON-RPC only, is every line answered, and does the process end when it should?"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from typing import Any

import anyio
import pytest
from gateway_running import call, clean_environment, free_port, stdio_client
from gateway_stand_in import Silence, StandIn

from mcp_gateway.tools import ALL_TOOLS

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def start(service_url: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "mcp_gateway", "stdio"],
        env=clean_environment(HINDSIGHT_SERVICE_URL=service_url),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def request(number: int, tool: str, **arguments: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


def converse(service_url: str, *lines: bytes | dict[str, Any]) -> list[dict[str, Any]]:
    """Everything at once, then end of input: each line of stdout, parsed."""
    raw = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in (INITIALIZE, INITIALIZED, *lines)]
    with start(service_url) as process:
        stdout, _ = process.communicate(b"\n".join(raw) + b"\n", timeout=20)
    assert process.returncode == 0
    return [json.loads(line) for line in stdout.splitlines()]


def test_stdout_is_json_rpc_only_and_requests_before_the_end_of_input_are_answered(
    service: StandIn, service_url: str
) -> None:
    answers = converse(
        service_url,
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
        request(2, "memory_write", content="咖啡\u2028line"),
        request(3, "memory_search", query="x"),
        request(4, "nonsense"),
    )
    assert all(answer["jsonrpc"] == "2.0" for answer in answers)
    by_id = {answer["id"]: answer for answer in answers}
    assert set(by_id) == {0, 1, 2, 3, 4}
    assert [tool["name"] for tool in by_id[1]["result"]["tools"]] == [tool.name for tool in ALL_TOOLS]
    assert json.loads(by_id[2]["result"]["content"][0]["text"])["status"] == "created"
    assert "error" in by_id[4]
    assert service.only("POST", "/v1/memories").body["content"] == "咖啡\u2028line"


def test_a_line_that_is_not_json_is_answered_and_the_rest_goes_on(service: StandIn, service_url: str) -> None:
    answers = converse(service_url, b"hello", b"\xff\xfe", b"[1, 2]", {"jsonrpc": "2.0", "id": 9, "method": "ping"})
    assert [answer["error"]["code"] for answer in answers if answer.get("id") is None] == [-32700] * 3
    assert [answer["result"] for answer in answers if answer.get("id") == 9] == [{}]


def test_half_a_surrogate_pair_and_nul_are_refused_by_name(service: StandIn, service_url: str) -> None:
    template = json.dumps(request(5, "memory_write", content="TEXT")).encode()
    answers = converse(
        service_url,
        template.replace(b"TEXT", b"half \\ud800"),
        template.replace(b"TEXT", b"nul \\u0000").replace(b"5", b"6"),
    )
    for number in (5, 6):
        (answer,) = [answer for answer in answers if answer["id"] == number]
        assert answer["result"]["isError"] is True
        assert "'content' contains a NUL" in answer["result"]["content"][0]["text"]
    assert service.requests("POST", "/v1/memories") == []


def test_closing_stdin_ends_the_process_even_while_the_service_is_silent(service: StandIn, service_url: str) -> None:
    silence = Silence()
    service.misbehave("POST", ".*/search", silence)
    with start(service_url) as process:
        assert process.stdin is not None
        for line in (INITIALIZE, INITIALIZED, request(1, "memory_search", query="x")):
            process.stdin.write(json.dumps(line).encode() + b"\n")
        process.stdin.flush()
        assert silence.started.wait(10)
        closed_at = time.monotonic()
        process.stdin.close()
        process.wait(5)
        assert time.monotonic() - closed_at < 3
    assert silence.closed.wait(2)


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_at_once(ending: signal.Signals, service: StandIn, service_url: str) -> None:
    with start(service_url) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 0
        process.send_signal(ending)
        assert process.wait(3) == -ending


def test_initialize_answers_within_two_seconds_of_a_started_process_with_the_service_down() -> None:
    with start(f"http://127.0.0.1:{free_port()}") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'{"jsonrpc": "2.0", "id": 7, "method": "ping"}\n')
        process.stdin.flush()
        process.stdout.readline()  # importing is over
        started = time.monotonic()
        process.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["result"]["serverInfo"]["name"] == "hindsight"
        assert time.monotonic() - started < 2
        process.kill()


@pytest.mark.asyncio
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_cancelling_a_call_closes_the_request_to_the_service(
    mode: str, service: StandIn, service_url: str
) -> None:
    silence = Silence()
    service.misbehave("POST", ".*/search", silence)
    async with stdio_client(service_url, mode) as client:
        with anyio.move_on_after(1.0):
            await client.call_tool("memory_search", {"query": "x"})
        assert silence.started.is_set()
        assert await asyncio.to_thread(silence.closed.wait, 3)
        assert (await client.list_tools()).tools


@pytest.mark.asyncio
async def test_the_key_of_the_environment_is_sent(service: StandIn, service_url: str) -> None:
    service.keys = {"from-env": None}
    async with stdio_client(service_url, HINDSIGHT_API_KEY="from-env") as client:
        await call(client, "memory_search", {"query": "x"})
    seen = service.only("POST", "/v1/memories/search")
    assert seen.headers["authorization"] == "Bearer from-env"
    assert len(seen.headers["x-request-id"]) == 32


def test_a_bad_setting_is_one_clear_line_without_its_value() -> None:
    environment = clean_environment(HINDSIGHT_SERVICE_URL="postgres://user:secret@db", HINDSIGHT_GATEWAY_PORT="no")
    command = [sys.executable, "-m", "mcp_gateway", "stdio"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=20, check=False)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert "HINDSIGHT_SERVICE_URL: " in ended.stderr
    assert "HINDSIGHT_GATEWAY_PORT: " in ended.stderr
    assert "secret" not in ended.stderr
    assert "Traceback" not in ended.stderr
