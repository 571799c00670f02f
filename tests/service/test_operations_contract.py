"""Health, readiness, metrics, figures, logs and the description of the service itself."""

# ruff: noqa: E501 - tables: one case reads best on one line

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from service_running import World, problem_of, search, write

from memory_service.logs import JsonLines

# The rows of API.md that exist so far, /v1/keys/self, by which the gateway learns whose key it holds, and the feedback that was given.
ROUTES = {
    ("POST", "/v1/memories"), ("GET", "/v1/memories"), ("POST", "/v1/memories/batch"), ("POST", "/v1/memories/search"),
    ("GET", "/v1/memories/{memory_id}"), ("PATCH", "/v1/memories/{memory_id}"), ("DELETE", "/v1/memories/{memory_id}"), ("DELETE", "/v1/users/{user_id}"),
    ("POST", "/v1/experiences"), ("GET", "/v1/experiences"), ("POST", "/v1/experiences/distill"), ("POST", "/v1/experiences/query"),
    ("GET", "/v1/experiences/{experience_id}"), ("PATCH", "/v1/experiences/{experience_id}"), ("DELETE", "/v1/experiences/{experience_id}"),
    ("POST", "/v1/experiences/{experience_id}/feedback"), ("GET", "/v1/experiences/{experience_id}/history"), ("GET", "/v1/experiences/{experience_id}/test-case"),
    ("PUT", "/v1/working-memory/{task_id}"), ("GET", "/v1/working-memory/{task_id}"), ("PATCH", "/v1/working-memory/{task_id}"), ("DELETE", "/v1/working-memory/{task_id}"),
    ("POST", "/v1/working-memory/{task_id}/steps"), ("GET", "/v1/working-memory/{task_id}/context"),
    ("GET", "/v1/memories/{memory_id}/history"), ("POST", "/v1/memories/{memory_id}/rollback"), ("POST", "/v1/memories/{memory_id}/archive"),
    ("POST", "/v1/memories/{memory_id}/restore"), ("POST", "/v1/memories/{memory_id}/pin"), ("POST", "/v1/memories/{memory_id}/unpin"),
    ("POST", "/v1/memories/{memory_id}/feedback"), ("GET", "/v1/memories/{memory_id}/feedback"), ("GET", "/v1/memories/{memory_id}/related"), ("POST", "/v1/relations"), ("DELETE", "/v1/relations"),
    ("POST", "/v1/context"), ("POST", "/v1/turns"), ("POST", "/v1/tasks"), ("POST", "/v1/tasks/{task_id}/advice"), ("POST", "/v1/tasks/{task_id}/finish"),
    ("GET", "/v1/conflicts"), ("POST", "/v1/conflicts/{conflict_id}/resolve"), ("GET", "/v1/retrievals"),
    ("GET", "/v1/export"), ("POST", "/v1/import"),
    ("POST", "/v1/maintenance/{job}"), ("GET", "/v1/maintenance"),
    ("GET", "/health"), ("GET", "/ready"), ("GET", "/metrics"), ("GET", "/v1/stats"), ("GET", "/v1/keys/self"),
}  # fmt: skip
METRICS = (
    "hindsight_request_seconds", "hindsight_lane_seconds", "hindsight_outbox_rows", "hindsight_outbox_oldest_seconds", "hindsight_embed_batch_texts",
    "hindsight_embed_cache_total", "hindsight_store_errors_total", "hindsight_relay_applied_total", "hindsight_lane_degraded_total",
)  # fmt: skip


def operations(page: dict[str, Any]) -> set[tuple[str, str]]:
    return {(method.upper(), path) for path, methods in page["paths"].items() for method in methods}


async def test_health_says_that_the_process_is_up(client: httpx.AsyncClient) -> None:
    answer = await client.get("/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


async def test_ready_tells_each_stores_state(client: httpx.AsyncClient) -> None:
    answer = await client.get("/ready")
    assert answer.status_code == 200
    body = answer.json()
    assert body["ready"] is True
    assert body["stores"] == {"postgres": "up", "redis": "up", "qdrant": "up"}
    assert {"pending", "dead"} <= set(body["index"])
    assert {"model", "revision", "dimensions"} <= set(body["embedding"])


async def test_stats_count_a_users_memories(client: httpx.AsyncClient, user: str) -> None:
    await write(client, user, "a", kind="semantic")
    await write(client, user, "b", kind="episodic")
    await write(client, user, "c", kind="episodic")
    body = (await client.get("/v1/stats", params={"user_id": user})).json()
    assert body["user_id"] == user
    assert {kind: counts["total"] for kind, counts in body["memories"].items()} == {"semantic": 1, "episodic": 2}
    assert {"pending", "dead", "oldest_s", "model"} == set(body["index"])
    whole = (await client.get("/v1/stats")).json()
    assert whole["user_id"] is None
    assert whole["memories"]["episodic"]["total"] >= 2


async def test_metrics_carry_what_an_operator_watches(client: httpx.AsyncClient, user: str) -> None:
    await write(client, user, "measured", wait=True)
    await search(client, user, "measured")
    answer = await client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    for name in METRICS:
        assert f"# TYPE {name.removesuffix('_total')}" in answer.text, name
    assert 'hindsight_request_seconds_count{method="POST",route="/v1/memories/search",status="200"}' in answer.text
    for lane in ("vector", "keyword", "structured", "recent"):
        assert f'hindsight_lane_seconds_count{{lane="{lane}"}}' in answer.text
    assert user not in answer.text


async def test_the_request_id_is_passed_through_or_made(client: httpx.AsyncClient) -> None:
    assert (await client.get("/health", headers={"X-Request-ID": "gateway-7"})).headers["x-request-id"] == "gateway-7"
    assert len((await client.get("/health")).headers["x-request-id"]) == 36
    refused = await client.get("/v1/memories", headers={"X-Request-ID": "of-an-error"})
    assert (refused.status_code, refused.headers["x-request-id"]) == (422, "of-an-error")
    for bad in (b"x" * 129, b"a\x7fb", "é".encode()):
        made = (await client.get("/health", headers=[(b"X-Request-ID", bad)])).headers["x-request-id"]
        assert len(made) == 36


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonLines())
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def lines() -> Iterator[list[str]]:
    handler, root = Lines(), logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield handler.lines
    root.removeHandler(handler)
    root.setLevel(before)


def of_requests(lines: list[str]) -> list[dict[str, Any]]:
    return [
        line
        for line in map(json.loads, lines)
        if line["logger"] == "memory_service.requests" and line["message"] == "request"
    ]


async def test_a_request_is_one_json_line_without_contents(keyed: World, user: str, lines: list[str]) -> None:
    key = await keyed.new_key("admin", tenant="lines")
    async with keyed.with_key(key) as client:
        memory = await write(
            client, user, "the secret word is abracadabra", wait=True, metadata={"password": "hunter2"}
        )
        await search(client, user, "abracadabra hunter2")
        await client.get("/v1/memories", params={"user_id": user}, headers={"X-Request-ID": "list-1"})
        await client.patch(f"/v1/memories/{memory['id']}", json={"content": "abracadabra again"})
        await client.post("/v1/memories", json={"user_id": user, "content": "abracadabra", "wrong": "hunter2"})
        key_id = str((await keyed.sql("SELECT id FROM api_key WHERE tenant = 'lines'"))[0][0])
    found = of_requests(lines)
    assert [(line["method"], line["route"], line["status"]) for line in found] == [
        ("POST", "/v1/memories", 201), ("POST", "/v1/memories/search", 200), ("GET", "/v1/memories", 200), ("PATCH", "/v1/memories/{memory_id}", 200), ("POST", "/v1/memories", 422),
    ]  # fmt: skip
    for line in found:
        assert {"at", "level", "request_id", "ms", "key_id"} <= set(line)
        assert line["key_id"] == key_id
    assert found[2]["request_id"] == "list-1"
    wrote, searched, listing, changed, _ = found
    assert [line["user_id"] for line in (wrote, searched, listing, changed)] == [user] * 4
    assert set(searched["lanes_ms"]) == {"vector", "keyword", "structured", "recent"}
    assert searched["ids"] == [memory["id"]] == wrote["ids"]
    for text in ("abracadabra", "hunter2", key):
        assert all(text not in line for line in lines)


async def test_an_error_inside_is_a_problem_without_its_text_and_its_frames_are_logged(
    world: World, user: str, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_arguments: Any) -> None:
        raise RuntimeError("secret content " + "abra" * 2)

    monkeypatch.setattr(type(world.runtime.reader), "page", broken)
    answer = await world.client.get("/v1/memories", params={"user_id": user})
    assert problem_of(answer, 500)["code"] == "internal"
    assert "abraabra" not in answer.text
    assert any("RuntimeError" in line for line in lines)
    assert all("abraabra" not in line for line in lines)


async def test_the_openapi_page_has_exactly_the_routes_of_the_contract(client: httpx.AsyncClient) -> None:
    answer = await client.get("/openapi.json")
    assert answer.status_code == 200
    assert operations(answer.json()) == ROUTES


async def test_every_schema_that_the_openapi_page_names_is_there(client: httpx.AsyncClient) -> None:
    page = (await client.get("/openapi.json")).json()
    text = json.dumps(page)
    names = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert names <= set(page["components"]["schemas"])
    assert {"WriteMemory", "WriteBatch", "PatchMemory", "SearchMemories"} <= names
    assert "x-model" not in text
    properties = page["components"]["schemas"]["WriteMemory"]["properties"]
    assert set(properties) == {
        "user_id", "content", "kind", "summary", "event_type", "category", "tags", "entities", "tool_calls", "outcome", "importance", "occurred_at", "agent_id", "session_id",
        "task_id", "related_ids", "metadata", "expires_at", "infer",
    }  # fmt: skip


async def test_head_answers_like_get_without_a_body(client: httpx.AsyncClient) -> None:
    answer = await client.head("/health")
    assert (answer.status_code, answer.content) == (200, b"")
