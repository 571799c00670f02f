"""Does the product do what its README says in a person's first five minutes?  The real command, real stores, a real MCP client."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

UP_S, DOWN_S = 240, 60
EXECUTABLES = Path(sys.executable).parent


@dataclass(frozen=True)
class Stack:
    """A running stack, as `hindsight up` made it."""

    home: Path
    environment: dict[str, str]
    service: str
    gateway: str

    def hindsight(self, *arguments: str, timeout_s: float = DOWN_S) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "memory_service", *arguments]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )


def free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    home = tmp_path_factory.mktemp("home")
    service_port, gateway_port = free_ports(2)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HINDSIGHT_")}
    # The deterministic embedder: the bundled one has tests of its own and takes a download.
    environment = {**kept, "HINDSIGHT_HOME": str(home), "HINDSIGHT_EMBEDDING_PROVIDER": "hash"}
    made = Stack(home, environment, f"http://127.0.0.1:{service_port}", f"http://127.0.0.1:{gateway_port}/mcp")
    started = made.hindsight(
        "up", "--detach", "--port", str(service_port), "--gateway-port", str(gateway_port), timeout_s=UP_S
    )
    try:
        assert started.returncode == 0, started.stdout + started.stderr
        assert "curl" in started.stdout
        yield made
    finally:
        made.hindsight("down")


def test_what_was_written_is_found_and_seen_in_psql(stack: Stack) -> None:
    body = {"user_id": "ana", "content": "I prefer answers in Chinese. 回复请用中文。"}
    written = httpx.post(f"{stack.service}/v1/memories", params={"wait": "indexed"}, json=body, timeout=30)
    assert written.status_code == 201, written.text
    query = {"user_id": "ana", "query": "which language do answers have to be in? answers in Chinese"}
    found = httpx.post(f"{stack.service}/v1/memories/search", json=query, timeout=30).json()
    assert found["degraded"] == []
    assert found["results"][0]["content"] == body["content"]
    urls = dict(line.split("=", 1) for line in (stack.home / "stack.env").read_text().splitlines())
    with psycopg.connect(urls["HINDSIGHT_DATABASE_URL"]) as connection:
        rows = connection.execute("SELECT category, summary FROM semantic_memory WHERE user_id = 'ana'").fetchall()
    assert rows == [("preference", "I prefer answers in Chinese. 回复请用中文。")]


async def exchange(client: Client) -> list[str]:
    """Write with one tool, find with another, note in a task; the names of the tools."""

    async def call(name: str, **arguments: Any) -> str:
        answer = await client.call_tool(name, {"user_id": "bob", **arguments})
        text = "".join(block.text for block in answer.content)  # type: ignore[union-attr]
        assert not answer.is_error, text
        return text

    await call("memory_write", content="The deploy of billing failed with E1234 because the disk was full")
    await asyncio.sleep(0.5)
    assert "E1234" in await call("memory_search", query="why did billing fail with E1234")
    await call("task_note", task_id="t1", fact="the disk of billing is full", tool="df", status="success")
    listed = await client.list_tools()
    return sorted(tool.name for tool in listed.tools)


TOOLS = [
    "memory_delete",
    "memory_distill",
    "memory_query",
    "memory_search",
    "memory_update",
    "memory_write",
    "search_episodic_memory",
    "task_note",
]


async def test_an_mcp_client_over_http_writes_searches_and_takes_notes(stack: Stack) -> None:
    async with Client(stack.gateway) as client:
        assert set(TOOLS) <= set(await exchange(client))


async def test_an_mcp_client_over_stdio_does_the_same(stack: Stack) -> None:
    environment = {**stack.environment, "HINDSIGHT_SERVICE_URL": stack.service}
    parameters = StdioServerParameters(command=str(EXECUTABLES / "hindsight-mcp"), args=["stdio"], env=environment)
    async with Client(parameters) as client:
        assert set(TOOLS) <= set(await exchange(client))


def test_status_doctor_and_keys_work_beside_the_stack(stack: Stack) -> None:
    status = stack.hindsight("status")
    assert status.returncode == 0, status.stdout
    assert all(name in status.stdout for name in ("postgres", "redis", "qdrant", "service", "gateway"))
    doctor = stack.hindsight("doctor")
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    reindex = stack.hindsight("reindex")
    assert reindex.returncode == 0, reindex.stdout + reindex.stderr
    created = stack.hindsight("keys", "create", "--role", "reader", "--user", "ana")
    key = created.stdout.strip()
    try:
        headers = {"Authorization": f"Bearer {key}"}
        assert httpx.get(f"{stack.service}/v1/keys/self", headers=headers).json()["user_id"] == "ana"
    finally:
        key_id = next(
            line.split()[0] for line in stack.hindsight("keys", "list").stdout.splitlines() if " ana " in line
        )
        assert stack.hindsight("keys", "revoke", key_id).returncode == 0
