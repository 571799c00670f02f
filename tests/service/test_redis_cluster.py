"""Does everything that lives in Redis work on a Redis Cluster?  Three real nodes, the whole service in front of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from redis_cluster import running_cluster
from service_running import Backends, World, new_user, serving, until, write

USERS = 12  # enough that each node has some: all on one has a chance below 1 in 100,000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as url:
        yield url


@pytest.fixture
async def world(backends: Backends, cluster: str) -> AsyncIterator[World]:
    async with serving(backends.new_settings(redis_url=cluster)) as opened:
        yield opened


async def ok(awaited: Any, status: int = 200) -> Any:
    answer = await awaited
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


async def test_working_memory_of_users_on_every_node_is_written_read_and_erased(world: World) -> None:
    users = [new_user() for _ in range(USERS)]
    for user in users:
        body = {"user_id": user, "task_goal": f"goal of {user}", "confirmed_facts": ["one"]}
        headers = {"Idempotency-Key": f"key-{user}"}
        await ok(world.client.put("/v1/working-memory/task", json=body))
        patch = {"user_id": user, "confirmed_facts": ["two"], "variables": {"a": 1}}
        await ok(world.client.patch("/v1/working-memory/task", json=patch))
        step = {"user_id": user, "tool": "read", "status": "error", "error": "no such file"}
        for _ in range(2):  # the second is the first again
            await ok(world.client.post("/v1/working-memory/task/steps", json=step, headers=headers))
    for user in users:
        found = await ok(world.client.get("/v1/working-memory/task", params={"user_id": user}))
        assert found["task_goal"] == f"goal of {user}"
        assert [fact["fact"] for fact in found["confirmed_facts"]] == ["one", "two"]
        assert len(found["tool_call_history"]) == 1
    await ok(world.client.delete("/v1/working-memory/task", params={"user_id": users[0]}), 204)
    for user in users:
        await ok(world.client.delete(f"/v1/users/{user}"))
        gone = await world.client.get("/v1/working-memory/task", params={"user_id": user})
        assert gone.status_code == 404, gone.text
    left = [key async for key in world.runtime.redis.scan_iter(match="hs:*")]
    assert left == []


async def test_a_task_starts_is_advised_and_ends(world: World) -> None:
    user = new_user()
    started = await ok(world.client.post("/v1/tasks", json={"user_id": user, "goal": "deploy the shop"}), 201)
    task = started["task_id"]
    step = {"user_id": user, "tool": "deploy", "arguments": {"to": "eu"}, "status": "error", "error": "quota exceeded"}
    await ok(world.client.post(f"/v1/working-memory/{task}/steps", json=step))
    asked = {"user_id": user, "tool": "deploy", "arguments": {"to": "eu"}}
    advice = await ok(world.client.post(f"/v1/tasks/{task}/advice", json=asked))
    assert [hint["type"] for hint in advice["hints"]] == ["failed_before"]
    done = await ok(world.client.post(f"/v1/tasks/{task}/finish", json={"user_id": user, "outcome": "failure"}))
    assert done["episode"]["outcome"] == "failure"


async def test_dialogue_is_buffered_and_flushed(world: World) -> None:
    user = new_user()
    said = {"user_id": user, "session_id": "s", "messages": [{"role": "user", "content": "I prefer short answers."}]}
    first = await ok(world.client.post("/v1/turns", json=said))
    assert "preference" in first["triggers"]
    assert first["written"]
    plain = {**said, "messages": [{"role": "user", "content": "hm"}]}
    assert (await ok(world.client.post("/v1/turns", json=plain)))["buffered"] >= 1


async def test_the_copy_of_an_erased_memory_leaves_working_memory(world: World) -> None:
    user = new_user()
    memory = await write(world.client, user, "the door code is 4711", wait=True)
    started = await ok(world.client.post("/v1/tasks", json={"user_id": user, "goal": "what is the door code?"}), 201)
    task = started["task_id"]
    fact = {"user_id": user, "confirmed_facts": [{"fact": "the door code is 4711", "source": f"memory:{memory['id']}"}]}
    await ok(world.client.patch(f"/v1/working-memory/{task}", json=fact))
    await ok(world.client.delete(f"/v1/memories/{memory['id']}"), 204)

    async def forgotten() -> bool:
        found = await ok(world.client.get(f"/v1/working-memory/{task}", params={"user_id": user}))
        return "4711" not in str(found)

    assert await until(forgotten)


async def test_parallel_patches_on_one_task_lose_nothing(world: World) -> None:
    user = new_user()
    await ok(world.client.put("/v1/working-memory/task", json={"user_id": user, "task_goal": "g"}))
    patches = [
        world.client.patch("/v1/working-memory/task", json={"user_id": user, "confirmed_facts": [f"fact {n}"]})
        for n in range(20)
    ]
    assert {answer.status_code for answer in await asyncio.gather(*patches)} == {200}
    found = await ok(world.client.get("/v1/working-memory/task", params={"user_id": user}))
    assert {fact["fact"] for fact in found["confirmed_facts"]} == {f"fact {n}" for n in range(20)}


async def test_a_cluster_that_is_down_is_a_503_and_not_a_500(backends: Backends) -> None:
    async with serving(backends.new_settings(redis_url="redis+cluster://127.0.0.1:1/0")) as opened:
        answer = await opened.client.get("/v1/working-memory/task", params={"user_id": "u"})
        assert answer.status_code == 503, answer.text
        ready = await opened.client.get("/ready")
        assert ready.status_code == 503
        assert (await opened.client.get("/v1/memories", params={"user_id": "u"})).status_code == 200
