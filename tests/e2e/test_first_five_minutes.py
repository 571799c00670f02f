"""Does the product do what its README says in a person's first five minutes?  The real command, real stores, a real MCP client."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from stack_running import Stack

EXECUTABLES = Path(sys.executable).parent


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


@dataclass(frozen=True)
class Tools:
    """One user's tools over MCP."""

    client: Client
    user_id: str

    async def text(self, name: str, **arguments: Any) -> str:
        answer = await self.client.call_tool(name, {"user_id": self.user_id, **arguments})
        text = "".join(block.text for block in answer.content)  # type: ignore[union-attr]
        assert not answer.is_error, text
        return text

    async def __call__(self, name: str, **arguments: Any) -> Any:
        return json.loads(await self.text(name, **arguments))

    async def rate(self, id: str, outcome: str) -> Any:
        answer = await self.client.call_tool("memory_feedback", {"id": id, "outcome": outcome})
        assert not answer.is_error, answer.content
        return json.loads(answer.content[0].text)  # type: ignore[union-attr]


async def write_and_find(call: Tools) -> None:
    await call("memory_write", content="The deploy of billing failed with E1234 because the disk was full")
    await asyncio.sleep(0.5)
    assert "E1234" in await call.text("memory_search", query="why did billing fail with E1234")


async def run_task_loop(call: Tools) -> None:
    """A task that takes a detour; the next of its kind is told so, before the same mistake."""
    wrong, right = {"url": "/orders", "format": "xml"}, {"url": "/orders", "format": "json"}
    first = await call("task_start", goal="list all orders of the shop", task_type="shop", state={"shop": "open"})
    task_id = first["task_id"]
    assert (await call("task_advice", task_id=task_id, tool="http_get", arguments=wrong))["hints"] == []
    await call("task_note", task_id=task_id, tool="http_get", arguments=wrong, error="415 use format=json")
    again = await call("task_advice", task_id=task_id, tool="http_get", arguments=wrong)
    assert "failed_before" in [hint["type"] for hint in again["hints"]]
    await call("task_note", task_id=task_id, tool="http_get", arguments=right, result="[1, 2]", fact="two orders")
    uri = f"memory://working/{task_id}?user_id={call.user_id}"
    assert "two orders" in (await call.client.read_resource(uri)).contents[0].text  # type: ignore[union-attr]
    finished = await call("task_finish", task_id=task_id, outcome="success", result="two orders")
    assert finished["review"]["failed_calls"] == 1
    assert {one["status"] for one in finished["experiences"]} == {"created"}
    repeated = await call("task_finish", task_id=task_id, outcome="success", result="two orders")
    assert repeated["episode"]["id"] == finished["episode"]["id"]

    await asyncio.sleep(0.5)
    second = await call("task_start", goal="list all orders of the shop of May", task_type="shop", task_id="may/2")
    told = [item["id"] for item in second["context"]["items"] if item["what"] == "experience"]
    assert set(told) & {one["id"] for one in finished["experiences"]}, second
    assert "415" in second["context"]["text"]
    warned = await call("task_advice", task_id="may/2", tool="http_get", arguments=wrong)
    lessons = [hint for hint in warned["hints"] if hint["type"] == "experience"]
    assert {hint["source_id"] for hint in lessons} <= {one["id"] for one in finished["experiences"]}
    assert "json" in lessons[0]["text"]
    rated = await call.rate(lessons[0]["source_id"], "success")
    assert rated == await call.rate(lessons[0]["source_id"], "success")  # counts once
    assert (await call.rate(finished["episode"]["id"], "success"))["status"] == "recorded"
    await call("task_finish", task_id="may/2", outcome="aborted")


TOOLS = [
    "memory_delete",
    "memory_distill",
    "memory_feedback",
    "memory_query",
    "memory_search",
    "memory_update",
    "memory_write",
    "search_episodic_memory",
    "task_advice",
    "task_finish",
    "task_note",
    "task_start",
]


@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_an_mcp_client_writes_searches_and_runs_a_whole_task(transport: str, stack: Stack) -> None:
    environment = {**stack.environment, "HINDSIGHT_SERVICE_URL": stack.service}
    command = str(EXECUTABLES / "hindsight-mcp")
    parameters = StdioServerParameters(command=command, args=["stdio"], env=environment)
    async with Client(stack.gateway if transport == "http" else parameters) as client:
        assert sorted(tool.name for tool in (await client.list_tools()).tools) == TOOLS
        call = Tools(client, f"bob-{transport}")
        await write_and_find(call)
        await run_task_loop(call)


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
