"""What do the layers around the memory cost?  Working memory over raw Redis, MCP over REST, the start, the memory of the processes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import redis

from benchmarks.speed import ours
from benchmarks.speed.figures import Series
from benchmarks.speed.load import seconds_of, timed
from benchmarks.speed.peer import Mem0
from benchmarks.speed.rest import Line
from benchmarks.speed.searches import SEED, USER
from benchmarks.speed.stack import PARTS, Stack, rss_kib
from benchmarks.speed.texts import queries

IDLE_S = 5.0
_TASK = {
    "user_id": "worker",
    "task_goal": "Move the staging database to the new machine",
    "constraints": ["keep the port", "no downtime before noon"],
    "confirmed_facts": ["the old machine has 32 GB", "backups run at two"],
    "pending_items": ["copy the data", "switch the address"],
    "variables": {"host": "db-7", "attempt": 2},
}
_MCP_HEADERS = "accept: application/json, text/event-stream\r\nmcp-protocol-version: 2025-06-18\r\n"


def working_memory(stack: Stack, series: Series, count: int) -> None:
    """GET and PUT of one task over HTTP, and redis-py's GET and SET of the same JSON on the same server, taking turns call by call."""
    raw = redis.Redis.from_url(stack.redis_url())
    line, body = stack.line(), json.dumps(_TASK).encode()
    address = "/v1/working-memory/bench-task"
    line.raw("PUT", address, body)
    stored = line.raw("GET", f"{address}?user_id=worker")
    calls: dict[str, Callable[[], object]] = {
        "working_get.redis_ms": lambda: raw.get("bench:raw"),
        "working_set.redis_ms": lambda: raw.set("bench:raw", stored, ex=7200),
        "working_get.ours_ms": lambda: line.raw("GET", f"{address}?user_id=worker"),
        "working_set.ours_ms": lambda: line.raw("PUT", address, body),
    }
    raw.set("bench:raw", stored)
    _take_turns(series, calls, count)
    raw.delete("bench:raw")
    raw.close()
    line.close()


def mcp(stack: Stack, series: Series, count: int) -> None:
    """`memory_search` through the gateway, the same search over REST, and GET /health, taking turns call by call."""
    rest, gateway = stack.line(), Line(stack.gateway_port)
    [query] = queries(SEED, 1, 100, "through the gateway")
    search = json.dumps({"user_id": USER, "query": query, "limit": 5}).encode()
    call = {"name": "memory_search", "arguments": {"query": query, "user_id": USER, "top_k": 5}}
    message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).encode()
    answer = gateway.raw("POST", "/mcp", message, _MCP_HEADERS)
    if b'"isError":true' in answer or b"result" not in answer:
        raise RuntimeError(f"the tool call failed: {answer[:300]!r}")
    calls: dict[str, Callable[[], object]] = {
        "mcp.noop_ms": lambda: rest.raw("GET", "/health"),
        "mcp.rest_ms": lambda: rest.raw("POST", "/v1/memories/search", search),
        "mcp.tool_ms": lambda: gateway.raw("POST", "/mcp", message, _MCP_HEADERS),
    }
    _take_turns(series, calls, count)
    rest.close()
    gateway.close()


def start_and_memory(stack: Stack, peer_folder: Path | None, series: Series, tag: str) -> None:
    """Stop and start on data that is there: seconds to the first answered search, and resident memory after a quiet while."""
    [query] = queries(SEED, 1, 100, f"first {tag}")
    stack.stop()
    series.add("start.ours_s", stack.first_answer(USER, query))
    if peer_folder is not None:
        begun = time.perf_counter()
        with Mem0(peer_folder) as peer:
            answer = peer.ask("search", user=USER, texts=[query], clients=1)
            series.add("start.mem0_s", time.perf_counter() - begun)
            if answer["errors"]:
                raise RuntimeError(f"mem0: {answer['errors'][0]}")
            time.sleep(IDLE_S)
            series.add("rss.mem0_mib", peer.ask("rss")["kib"] / 1024)
    else:
        time.sleep(IDLE_S)
    timed(stack, ours.search(USER), [query])
    Line(stack.gateway_port).raw("GET", "/health")
    pids = stack.pids()
    for part in PARTS:
        series.add(f"rss.{part}_mib", rss_kib(pids[part]) / 1024)
    series.add("rss.ours_mib", sum(rss_kib(pids[part]) for part in PARTS) / 1024)


def _take_turns(series: Series, calls: dict[str, Callable[[], object]], count: int) -> None:
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(count + count // 10):
        for name, call in calls.items():
            took = seconds_of(call)
            if number >= count // 10:  # the first tenth warms up
                taken[name].append(took)
    for name, values in taken.items():
        series.times(name, values)
