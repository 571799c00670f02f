"""Are several services on the same stores one service to their users?  Two of them, over one database, Redis and collection.

What one process remembers (indexes of conditions, keys, sizes) must never be staler than the contract allows.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from service_running import Backends, World, found, indexed, new_user, serving, until, write_many

from memory_service.access import key_hash
from memory_service.migrating import migrate


@pytest.fixture(scope="module")
async def pair(backends: Backends) -> AsyncIterator[tuple[World, World]]:
    settings = backends.new_settings()
    async with serving(settings) as one, serving(settings) as other:
        yield one, other


async def post(world: World, path: str, **body: Any) -> Any:
    answer = await world.client.post(path, json=body)
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


async def test_both_may_start_on_an_empty_qdrant_at_the_same_time(backends: Backends) -> None:
    settings = backends.new_settings()

    async def start() -> str:
        async with serving(settings) as world:
            return world.runtime.index.collection

    names = await asyncio.gather(*(start() for _ in range(4)))
    assert len(set(names)) == 1


async def test_processes_that_migrate_at_the_same_time_all_succeed(backends: Backends) -> None:
    name = f"migrating_{uuid4().hex[:8]}"
    with psycopg.connect(backends.urls.database_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")  # type: ignore[call-overload]
    environment = {**os.environ, "HINDSIGHT_DATABASE_URL": backends.database_url(name)}
    command = [sys.executable, "-m", "memory_service", "migrate"]
    started = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for _ in "abc"
    ]
    said = [await asyncio.to_thread(process.communicate, timeout=120) for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], said


async def test_an_address_of_several_hosts_is_understood_by_migrations_and_service(backends: Backends) -> None:
    """libpq's form: the first host that answers as a primary is taken.  The first here refuses connections."""
    settings = backends.new_settings()
    port = urlsplit(settings.database_url).port
    several = settings.database_url.replace(f"@127.0.0.1:{port}/", f"@127.0.0.1:1,127.0.0.1:{port}/")
    followed = settings.model_copy(update={"database_url": f"{several}?target_session_attrs=read-write"})
    migrate(followed, say=lambda _line: None)
    async with serving(followed) as world:
        user = new_user()
        await write_many(world.client, user, ["written through the second host"], wait=True)
        assert await found(world.client, user, "written") == ["written through the second host"]


async def test_what_one_wrote_the_other_finds(pair: tuple[World, World]) -> None:
    one, other = pair
    user = new_user()
    await write_many(one.client, user, ["the gate opens at seven"])
    await indexed(other.client, user)
    assert await found(other.client, user, "gate") == ["the gate opens at seven"]


async def test_equal_writes_through_both_become_one_memory(pair: tuple[World, World]) -> None:
    user = new_user()
    body = {"user_id": user, "content": "the same text", "infer": False}
    answers = await asyncio.gather(*(pair[n % 2].client.post("/v1/memories", json=body) for n in range(30)))
    said = Counter(answer.json()["status"] for answer in answers)
    assert said == {"created": 1, "duplicate": 29}


async def test_both_relays_share_the_work_and_each_memory_has_one_vector(pair: tuple[World, World]) -> None:
    one, other = pair
    user = new_user()
    await until(lambda: _nothing_waits(one))  # what the tests before wrote is counted too
    before = await one.runtime.index.count()
    await asyncio.gather(
        *(
            write_many(world.client, user, [f"line {n} of {name}" for n in range(150)])
            for name, world in zip("ab", pair, strict=True)
        )
    )
    await until(lambda: _nothing_waits(one))
    assert await other.runtime.index.count() == before + 300


async def _nothing_waits(world: World) -> bool:
    return await world.sql("SELECT count(*) FROM index_outbox") == [(0,)]


async def test_one_idempotency_key_sent_to_both_is_one_write(pair: tuple[World, World]) -> None:
    user = new_user()
    body, headers = {"user_id": user, "content": "once", "infer": False}, {"Idempotency-Key": f"k-{user}"}
    answers = await asyncio.gather(*(world.client.post("/v1/memories", json=body, headers=headers) for world in pair))
    ids = {answer.json()["memory"]["id"] for answer in answers if answer.status_code == 201}
    assert len(ids) == 1
    assert {answer.status_code for answer in answers} <= {201, 409}  # 409: the first is still running, ask again


async def test_a_lesson_that_one_learned_the_other_matches_at_once_and_forgets_at_once(
    pair: tuple[World, World],
) -> None:
    one, other = pair
    user = new_user()
    asked = {"user_id": user, "state": {"tool": "tar"}, "include_shared": False}
    assert (await post(other, "/v1/experiences/query", **asked))["results"] == []  # its index is read now, and empty
    conditions = [{"field": "tool", "operator": "eq", "value": "tar"}]
    learned = await post(one, "/v1/experiences", user_id=user, conditions=conditions, action="Use -xzf.")
    results = (await post(other, "/v1/experiences/query", **asked))["results"]
    assert [result["id"] for result in results] == [learned["experience"]["id"]]
    gone = await one.client.delete(f"/v1/experiences/{learned['experience']['id']}")
    assert gone.status_code == 204
    assert (await post(other, "/v1/experiences/query", **asked))["results"] == []


async def test_patches_of_one_task_through_both_lose_nothing(pair: tuple[World, World]) -> None:
    user = new_user()
    await pair[0].client.put("/v1/working-memory/t", json={"user_id": user, "task_goal": "g"})
    patches = [
        pair[n % 2].client.patch("/v1/working-memory/t", json={"user_id": user, "confirmed_facts": [f"fact {n}"]})
        for n in range(30)
    ]
    assert {answer.status_code for answer in await asyncio.gather(*patches)} == {200}
    state = (await pair[1].client.get("/v1/working-memory/t", params={"user_id": user})).json()
    assert {fact["fact"] for fact in state["confirmed_facts"]} == {f"fact {n}" for n in range(30)}


async def test_of_two_starts_of_one_task_one_wins(pair: tuple[World, World]) -> None:
    user, task = new_user(), f"task-{uuid4().hex[:8]}"
    body = {"user_id": user, "goal": "g", "task_id": task}
    answers = await asyncio.gather(*(pair[n % 2].client.post("/v1/tasks", json=body) for n in range(6)))
    assert Counter(answer.status_code for answer in answers) == {201: 1, 409: 5}


async def test_what_one_erased_the_other_no_longer_answers(pair: tuple[World, World]) -> None:
    one, other = pair
    user = new_user()
    await write_many(one.client, user, ["to be forgotten", "also to be forgotten"], wait=True)
    assert len(await found(other.client, user, "forgotten")) == 2
    await one.client.delete(f"/v1/users/{user}")
    assert await found(other.client, user, "forgotten") == []


async def test_a_job_that_is_asked_of_both_runs_in_one(pair: tuple[World, World]) -> None:
    answers = await asyncio.gather(*(world.client.post("/v1/maintenance/decay") for world in pair))
    assert {answer.status_code for answer in answers} <= {200, 202, 409}
    assert any(answer.status_code in (200, 202) for answer in answers)


async def test_a_revoked_key_is_refused_by_both_within_the_cache_time(backends: Backends) -> None:
    settings = backends.new_settings()
    async with serving(settings) as one, serving(settings) as other:
        kept, key = await one.new_key("admin"), await one.new_key("writer")
        for world in (one, other):
            world.runtime.access._any = None
            assert (await world.with_key(key).get("/v1/memories", params={"user_id": "u"})).status_code == 200
        await one.sql("UPDATE api_key SET revoked_at = now() WHERE key_hash = %s", key_hash(key))

        async def refused() -> bool:
            asked = [await w.with_key(key).get("/v1/memories", params={"user_id": "u"}) for w in (one, other)]
            return [answer.status_code for answer in asked] == [401, 401]

        await until(refused, one.runtime.tunables.limits.auth_cache_s + 2)
        assert (await other.with_key(kept).get("/v1/memories", params={"user_id": "u"})).status_code == 200
