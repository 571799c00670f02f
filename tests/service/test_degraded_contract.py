"""One store or model down: the others go on, and the answer says what is missing."""

# ruff: noqa: E501 - tables: one case reads best on one line

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fault_embedder import FaultyEmbedder
from service_running import (
    Backends,
    Proxy,
    World,
    found,
    indexed,
    numbers,
    problem_of,
    proxied,
    search,
    serving,
    until,
    write,
)

from memory_service.recall import gathering


@dataclass
class Frail:
    """A service whose every store is behind a cable that can be pulled."""

    world: World
    postgres: Proxy
    redis: Proxy
    qdrant: Proxy
    embedder: FaultyEmbedder

    @property
    def client(self) -> httpx.AsyncClient:
        return self.world.client

    async def mend(self) -> None:
        self.embedder.down, self.embedder.slow_s = False, 0.0
        for proxy in (self.postgres, self.redis, self.qdrant):
            await proxy.heal()

        async def ready() -> bool:
            return (await self.client.get("/ready")).status_code == 200

        await until(ready)


@pytest.fixture(scope="module")
async def opened(backends: Backends) -> AsyncIterator[Frail]:
    settings, embedder = backends.new_settings(), FaultyEmbedder()
    async with (
        proxied(settings.database_url) as postgres,
        proxied(settings.redis_url) as redis,
        proxied(settings.qdrant_url) as qdrant,
    ):
        cabled = settings.model_copy(
            update={"database_url": postgres.url, "redis_url": redis.url, "qdrant_url": qdrant.url}
        )
        quick = numbers(
            settings, relay={"backoff_s": 0.05, "poll_s": 0.1}, limits={"wait_indexed_s_max": 0.3, "auth_cache_s": 0.2},
            search={"lane_deadline_s": 0.5}, stores={"postgres_timeout_s": 1.0, "redis_timeout_s": 0.5, "qdrant_timeout_s": 1.0},
        )  # fmt: skip
        async with serving(cabled, tunables=quick, embedder=embedder) as world:
            yield Frail(world, postgres, redis, qdrant, embedder)
            await postgres.heal()


@pytest.fixture
async def frail(opened: Frail) -> AsyncIterator[Frail]:
    await opened.mend()
    yield opened
    await opened.mend()


async def test_with_qdrant_down_keyword_search_answers_and_the_relay_catches_up(frail: Frail, user: str) -> None:
    await write(frail.client, user, "the first penguin", wait=True)
    await frail.qdrant.cut()
    late = await write(frail.client, user, "the second penguin", wait=True)
    assert late["index"]["state"] == "pending"
    answer = await search(frail.client, user, "penguin")
    assert answer["degraded"] == ["vector"]
    assert {r["content"] for r in answer["results"]} == {"the first penguin", "the second penguin"}
    assert all("vector" not in r["lanes"] for r in answer["results"])
    only_vectors = await search(frail.client, user, "penguin", mode="vector")
    assert (only_vectors["results"], only_vectors["degraded"]) == ([], ["vector"])
    assert (await frail.client.get("/ready")).json()["stores"] == {"postgres": "up", "redis": "up", "qdrant": "down"}
    inferred = await frail.client.post("/v1/memories", json={"user_id": user, "content": "the third penguin"})
    assert inferred.status_code == 201
    assert frail.qdrant.refused > 0
    await frail.mend()
    await indexed(frail.client, user)
    assert len(await found(frail.client, user, "penguin", mode="vector")) == 3


async def test_a_write_that_waits_answers_in_time_while_qdrant_is_frozen(backends: Backends, user: str) -> None:
    """A paused process accepts connections and answers nothing, so every question to it lasts until its own deadline."""
    settings = backends.new_settings()
    async with proxied(settings.qdrant_url) as qdrant:
        quick = numbers(settings, limits={"wait_indexed_s_max": 1.5}, write={"similar_deadline_s": 1.0})
        async with serving(settings.model_copy(update={"qdrant_url": qdrant.url}), tunables=quick) as world:
            await write(world.client, user, "a penguin before the frost", wait=True)
            await qdrant.freeze()
            for infer in (True, False):
                started = time.monotonic()
                body = {"user_id": user, "content": f"a penguin in the frost {infer}", "infer": infer}
                answer = await world.client.post("/v1/memories", params={"wait": "indexed"}, json=body)
                took = time.monotonic() - started
                assert (answer.status_code, answer.json()["memory"]["index"]["state"]) == (201, "pending")
                assert took < 2.2, took  # 1.5 s in all, on a busy machine
            assert qdrant.held > 0
            await qdrant.heal()
            await indexed(world.client, user)
            assert len(await found(world.client, user, "penguin", mode="vector")) == 3


async def test_with_the_embedder_failing_keyword_search_answers(frail: Frail, user: str) -> None:
    await write(frail.client, user, "a puffin on the rock", wait=True)
    frail.embedder.down = True
    answer = await search(frail.client, user, "puffin")
    assert answer["degraded"] == ["vector"]
    assert [r["content"] for r in answer["results"]] == ["a puffin on the rock"]
    assert (
        await frail.client.post("/v1/memories", json={"user_id": user, "content": "another puffin"})
    ).status_code == 201
    assert frail.embedder.faults > 0
    await frail.mend()
    await indexed(frail.client, user)
    assert len(await found(frail.client, user, "puffin", mode="vector")) == 2


async def test_a_lane_beyond_its_deadline_is_named_and_the_answer_comes_in_time(frail: Frail, user: str) -> None:
    await write(frail.client, user, "a slow sloth", wait=True)
    frail.embedder.slow_s, started = 5.0, time.monotonic()
    answer = await search(frail.client, user, "sloth in time")
    assert answer["degraded"] == ["vector"]
    assert [r["content"] for r in answer["results"]] == ["a slow sloth"]
    assert time.monotonic() - started < 2.0


async def test_with_redis_down_long_term_memory_is_unaffected(frail: Frail, user: str) -> None:
    await frail.redis.cut()
    memory = await write(frail.client, user, "a stork without redis")
    await indexed(frail.client, user)  # not by ?wait=indexed, which waits 0.3 s here
    answer = await search(frail.client, user, "stork")
    assert (answer["degraded"], len(answer["results"])) == ([], 1)
    assert (await frail.client.patch(f"/v1/memories/{memory['id']}", json={"category": "birds"})).status_code == 200
    assert (await frail.client.delete(f"/v1/memories/{memory['id']}")).status_code == 204
    problem_of(await frail.client.put("/v1/working-memory/t", json={"user_id": user, "task_goal": "x"}), 503)
    not_ready = await frail.client.get("/ready")
    assert (not_ready.status_code, not_ready.json()["stores"]["redis"]) == (503, "down")
    assert frail.redis.refused > 0


async def test_with_postgres_down_memories_are_503_and_working_memory_answers(frail: Frail, user: str) -> None:
    memory = await write(frail.client, user, "a swan in postgres", wait=True)
    await frail.client.put("/v1/working-memory/t", json={"user_id": user, "task_goal": "carry on"})
    await frail.postgres.cut()
    path = f"/v1/memories/{memory['id']}"
    client, fields = frail.client, {"user_id": user, "content": "no"}
    answers = await asyncio.gather(
        client.get(path), client.get("/v1/memories", params={"user_id": user}), client.delete(path), client.patch(path, json={"category": "x"}),
        client.post("/v1/memories", json=fields), client.post("/v1/memories", json=fields, headers={"Idempotency-Key": user}), client.get("/v1/stats"),
        client.post("/v1/memories/search", json={"user_id": user, "query": "swan"}), client.post("/v1/memories/batch", json={"memories": [fields]}),
        client.delete(f"/v1/users/{user}"),
    )  # fmt: skip
    for answer in answers:
        assert problem_of(answer, 503)["code"] == "store_unavailable"
        assert int(answer.headers["retry-after"]) >= 1
    started = time.monotonic()
    for _ in range(5):
        alive = await frail.client.get("/v1/working-memory/t", params={"user_id": user})
        assert (alive.status_code, alive.json()["task_goal"]) == (200, "carry on")
    assert time.monotonic() - started < 3.0  # it does not wait for Postgres each time
    assert (await frail.client.get("/health")).status_code == 200
    assert (await frail.client.get("/metrics")).status_code == 200
    assert (await frail.client.get("/ready")).status_code == 503
    assert frail.postgres.refused > 0
    await frail.mend()
    assert (await frail.client.get(path)).json()["content"] == "a swan in postgres"


async def test_a_known_key_works_on_while_postgres_is_down(backends: Backends, user: str) -> None:
    settings = backends.new_settings()
    async with proxied(settings.database_url) as postgres:
        quick = numbers(settings, limits={"auth_cache_s": 0.2}, stores={"postgres_timeout_s": 1.0})
        async with serving(settings.model_copy(update={"database_url": postgres.url}), tunables=quick) as world:
            key = await world.new_key("writer")
            async with world.with_key(key) as client, world.with_key("hs_unknown") as stranger:
                await client.put("/v1/working-memory/t", json={"user_id": user, "task_goal": "carry on"})
                await postgres.cut()
                started = time.monotonic()
                for _ in range(4):
                    answer = await client.get("/v1/working-memory/t", params={"user_id": user})
                    assert answer.status_code == 200, answer.text
                assert time.monotonic() - started < 4.0
                problem_of(await stranger.get("/v1/working-memory/t", params={"user_id": user}), 503)
                await postgres.heal()


async def test_what_is_read_while_a_question_is_embedded_answers_as_what_is_read_afterwards(
    backends: Backends, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Facts of what other lanes found are read early, each once; what was erased meanwhile is not shown."""
    asked: list[set[bytes]] = []
    read = gathering.rank_facts

    async def noted(connection: Any, ids: Sequence[bytes], *others: Any) -> Any:
        asked.append({*ids})
        return await read(connection, ids, *others)

    async def read_early() -> bool:
        return len(asked) == 1

    settings, embedder = backends.new_settings(), FaultyEmbedder()
    patient = numbers(settings, search={"lane_deadline_s": 15.0})
    async with serving(settings, tunables=patient, embedder=embedder) as world:

        async def answer() -> list[Any]:
            shown = await search(world.client, user, "when does the harbour open", explain=True)
            assert shown["degraded"] == []
            return [
                (r["id"], r["lanes"], r["score_details"]["lanes"], r["score_details"]["signals"])
                for r in shown["results"]
            ]

        texts = [
            "the harbour opens at six",
            "the harbour master is Ana",
            "boats leave the harbour at noon",
            "no such thing",
        ]
        old = {"occurred_at": "2020-01-01T00:00:00Z"}  # neither important nor recent: only words or vectors find them
        stored = [await write(world.client, user, text, wait=True, **old) for text in texts]
        monkeypatch.setattr(gathering, "rank_facts", noted)
        at_once = await answer()
        assert [len(ids) for ids in asked] == [4]
        asked.clear()
        embedder.gate = asyncio.Event()
        late = asyncio.create_task(answer())
        await until(read_early)
        embedder.gate.set()
        assert await late == at_once
        assert [len(ids) for ids in asked] == [3, 1]
        assert not asked[0] & asked[1]
        asked.clear()
        embedder.gate = asyncio.Event()
        late = asyncio.create_task(answer())
        await until(read_early)
        gone = stored[1]["id"]
        assert (await world.client.delete(f"/v1/memories/{gone}")).status_code == 204
        embedder.gate.set()
        assert {one[0] for one in await late} == {one[0] for one in at_once} - {gone}
