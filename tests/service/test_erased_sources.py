"""What a lesson quotes goes with the memory that it was learned from: rows, versions, vectors, kept answers, imports."""

# ruff: noqa: E501 - tables: one case reads best on one line

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from service_running import Backends, World, new_user, new_word, serving, until

from memory_service.domain import utc_now
from memory_service.stores.postgres import changes

MADE_ANEW = "Another run taught the same; the one that told why was erased."


def calls(secret: str) -> list[dict[str, Any]]:
    """A run that is cured: what the failed call was told is quoted in the lesson's reason."""
    address = {"url": "/api/v1/orders"}
    return [
        {"tool": "http_get", "arguments": {**address, "format": "xml"}, "status": "error", "error": f"415 Unsupported format, {secret}: use json"},
        {"tool": "http_get", "arguments": {**address, "format": "json"}, "status": "success", "result": "[]"},
    ]  # fmt: skip


async def task(client: httpx.AsyncClient, user: str, secret: str, **headers: str) -> tuple[str, dict[str, Any]]:
    """A whole task → (id of its episode, its lesson that quotes the secret)."""
    name = f"t-{uuid4().hex[:8]}"
    goal = {"user_id": user, "goal": "Fetch the orders of the shop", "task_id": name, "task_type": "fetch"}
    assert (await client.post("/v1/tasks", json=goal)).status_code == 201
    for call in calls(secret):
        answer = await client.post(f"/v1/working-memory/{name}/steps", json={"user_id": user, **call})
        assert answer.status_code == 200, answer.text
    ended = await client.post(f"/v1/tasks/{name}/finish", json={"user_id": user, "outcome": "success"}, headers=headers)
    assert ended.status_code == 200, ended.text
    ids = {one["id"] for one in ended.json()["experiences"]}
    (lesson,) = [one for one in await lessons(client, user) if one["id"] in ids]
    return ended.json()["episode"]["id"], lesson


async def lessons(client: httpx.AsyncClient, user: str, **params: Any) -> list[dict[str, Any]]:
    answer = await client.get("/v1/experiences", params={"user_id": user, "include_shared": False, **params})
    assert answer.status_code == 200, answer.text
    return answer.json()["items"]  # type: ignore[no-any-return]


async def everywhere(world: World, text: str) -> set[str]:
    """Tables in which the text still stands."""
    tables = await world.sql(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' AND table_type = 'BASE TABLE'"
    )
    hits = set()
    for (table,) in tables:
        ((count,),) = await world.sql(f'SELECT count(*) FROM "{table}" AS t WHERE t::text LIKE %s', f"%{text}%")
        hits |= {table} if count else set()
    return hits


async def points(world: World, experience_id: str) -> int:
    body = {"filter": {"must": [{"key": "memory_id", "match": {"value": experience_id}}]}, "exact": True}
    path = f"{world.settings.qdrant_url}/collections/{world.settings.qdrant_collection}/points/count"
    async with httpx.AsyncClient(trust_env=False) as direct:
        return int((await direct.post(path, json=body)).json()["result"]["count"])


async def test_a_lesson_of_one_episode_goes_with_it_from_rows_versions_kept_answers_and_vectors(
    world: World, user: str
) -> None:
    client, secret = world.client, new_word("heron")
    episode, lesson = await task(client, user, secret, **{"Idempotency-Key": f"end-{user}"})
    assert secret in lesson["rationale"]
    assert lesson["source_memory_ids"] == [episode]
    await client.post(f"/v1/experiences/{lesson['id']}/feedback", json={"outcome": "success", "task_id": "later"})
    await client.post("/v1/experiences/query", json={"user_id": user, "semantic_query": "format of orders"})
    await until(lambda: _there(world, lesson["id"], 1))
    assert {"memory", "experience", "experience_version"} <= await everywhere(world, secret)
    assert (await client.delete(f"/v1/memories/{episode}")).status_code == 204
    assert await lessons(client, user, status=["active", "superseded", "retired"]) == []
    assert (await client.get(f"/v1/experiences/{lesson['id']}")).status_code == 404
    assert await everywhere(world, secret) == set()
    assert (await client.get("/v1/retrievals", params={"user_id": user, "source": "experience"})).json()["items"][0][
        "hits"
    ] == []
    await until(lambda: _there(world, lesson["id"], 0))
    state = {"tool": "http_get", "arguments": {"format": "xml"}, "task_type": "fetch"}
    answer = await client.post("/v1/experiences/query", json={"user_id": user, "state": state})
    assert answer.json()["results"] == []


async def _there(world: World, experience_id: str, count: int) -> bool:
    return await points(world, experience_id) == count


async def test_a_lesson_that_another_run_taught_too_stays_without_the_quotation_under_a_new_id(
    world: World, user: str
) -> None:
    client, secret, other = world.client, new_word("stork"), new_word("crane")
    first, lesson = await task(client, user, secret)
    second, again = await task(client, user, other)
    assert again["id"] == lesson["id"]
    assert again["source_memory_ids"] == [first, second]
    patched = await client.patch(f"/v1/experiences/{lesson['id']}", json={"tags": [secret[:5]]})
    assert patched.status_code == 200
    assert (await client.delete(f"/v1/memories/{first}")).status_code == 204
    (after,) = await lessons(client, user)
    assert after["id"] != lesson["id"]
    told = {name: after[name] for name in ("conditions", "action", "avoid", "rationale", "source_memory_ids", "status")}
    assert told == {
        "conditions": lesson["conditions"], "action": lesson["action"], "avoid": None, "rationale": MADE_ANEW,
        "source_memory_ids": [second], "status": "active",
    }  # fmt: skip
    assert after["confidence"] == again["confidence"]
    assert await everywhere(world, secret) == set()
    history = (await client.get(f"/v1/experiences/{after['id']}/history")).json()["items"]
    assert [(one["version"], one["cause"], one["actor"]) for one in history] == [(1, "source_erased", "erasure")]
    assert (await client.get(f"/v1/experiences/{lesson['id']}")).status_code == 404
    state = {"tool": "http_get", "arguments": {"format": "xml"}, "task_type": "fetch"}
    found = (await client.post("/v1/experiences/query", json={"user_id": user, "state": state})).json()["results"]
    assert [one["id"] for one in found] == [after["id"]]
    await until(lambda: _there(world, lesson["id"], 0))
    await until(lambda: _there(world, after["id"], 1))
    assert (await client.delete(f"/v1/memories/{second}")).status_code == 204  # now nobody says it any more
    assert await lessons(client, user) == []


async def test_a_lesson_keeps_its_words_when_only_a_later_source_is_erased(world: World, user: str) -> None:
    client, secret, other = world.client, new_word("stork"), new_word("crane")
    first, lesson = await task(client, user, secret)
    second, _ = await task(client, user, other)
    assert (await client.delete(f"/v1/memories/{second}")).status_code == 204
    (after,) = await lessons(client, user)
    assert (after["id"], after["rationale"], after["source_memory_ids"]) == (lesson["id"], lesson["rationale"], [first])
    assert await everywhere(world, other) == set()


async def test_a_lesson_that_somebody_gave_without_a_memory_outlives_the_episode_that_told_it_first(
    client: httpx.AsyncClient, user: str
) -> None:
    secret = new_word("stork")
    episode, lesson = await task(client, user, secret)
    by_hand = {"user_id": user, "task_type": "fetch", "conditions": lesson["conditions"], "action": lesson["action"]}
    assert (await client.post("/v1/experiences", json=by_hand)).json()["status"] == "reinforced"
    await client.delete(f"/v1/memories/{episode}")
    (after,) = await lessons(client, user)
    assert (after["action"], after["rationale"], after["source_memory_ids"]) == (lesson["action"], MADE_ANEW, [])


async def test_a_lesson_by_hand_is_its_writers_words_and_only_loses_the_source(
    client: httpx.AsyncClient, user: str
) -> None:
    made = await client.post("/v1/memories", json={"user_id": user, "content": "the pool was full", "infer": False})
    source = made.json()["memory"]["id"]
    condition = {"field": "db", "operator": "eq", "value": "postgres"}
    body = {"user_id": user, "conditions": [condition], "action": "use a pool", "rationale": "it was full", "source_memory_ids": [source]}  # fmt: skip
    written = (await client.post("/v1/experiences", json=body)).json()["experience"]
    await client.delete(f"/v1/memories/{source}")
    (after,) = await lessons(client, user)
    assert (after["id"], after["rationale"], after["source_memory_ids"]) == (written["id"], "it was full", [])


async def test_an_expired_episode_takes_its_lesson_along_when_it_is_purged(world: World, user: str) -> None:
    client, secret = world.client, new_word("heron")
    episode, _ = await task(client, user, secret)
    ends = (utc_now() + timedelta(seconds=0.5)).isoformat()
    assert (await client.patch(f"/v1/memories/{episode}", json={"expires_at": ends})).status_code == 200
    await asyncio.sleep(0.6)
    assert (await client.post("/v1/maintenance/purge")).json()["counts"]["memories"] >= 1
    assert await everywhere(world, secret) == set()


async def test_a_purge_mends_what_an_earlier_version_left_of_erased_episodes(world: World, user: str) -> None:
    client, secret, other = world.client, new_word("heron"), new_word("crane")
    alone, dropped = await task(client, user, secret)
    shared_by = new_user()
    first, kept = await task(client, shared_by, other)
    await task(client, shared_by, "something else")
    for one in (alone, first):  # what DELETE did before: the source is unlinked, the quotation stays
        await world.runtime.postgres.transaction(lambda c, i=one: changes.erase(c, "default", [UUID(i)]))  # type: ignore[misc]
    assert {"experience", "experience_version"} <= await everywhere(world, secret)
    planned = (await client.post("/v1/maintenance/purge", params={"dry_run": True})).json()["counts"]["lessons"]
    assert planned == 2
    assert (await client.post("/v1/maintenance/purge")).json()["counts"]["lessons"] == 2
    assert await everywhere(world, secret) | await everywhere(world, other) == set()
    assert (await client.get(f"/v1/experiences/{dropped['id']}")).status_code == 404
    (after,) = await lessons(client, shared_by)
    assert (after["rationale"], after["action"]) == (MADE_ANEW, kept["action"])
    assert (await client.post("/v1/maintenance/purge")).json()["counts"]["lessons"] == 0


async def test_an_episode_erased_while_its_task_is_finished_leaves_no_lesson(
    world: World, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the episode and the lessons, which are two transactions."""
    client, secret = world.client, new_word("heron")
    finishing = world.runtime.finishing
    original, erased = finishing._judge, list[str]()

    async def erasing(caller: Any, run: Any, closing: Any) -> None:
        await original(caller, run, closing)
        rows = await world.sql("SELECT id FROM memory WHERE user_id = %s", user)
        for (one,) in rows:
            erased.append(str(one))
            assert (await client.delete(f"/v1/memories/{one}")).status_code == 204

    monkeypatch.setattr(finishing, "_judge", erasing)
    body = {"user_id": user, "goal": "Fetch the orders of the shop", "task_id": "t", "task_type": "fetch"}
    assert (await client.post("/v1/tasks", json=body)).status_code == 201
    for call in calls(secret):
        await client.post("/v1/working-memory/t/steps", json={"user_id": user, **call})
    ended = await client.post("/v1/tasks/t/finish", json={"user_id": user, "outcome": "success"})
    assert ended.status_code == 200, ended.text
    assert len(erased) == 1
    assert ended.json()["experiences"] == []
    assert await lessons(client, user) == []
    assert await everywhere(world, secret) == set()


async def test_a_file_does_not_bring_back_a_lesson_whose_source_was_erased_here(
    backends: Backends, client: httpx.AsyncClient, user: str
) -> None:
    secret = new_word("heron")
    episode, lesson = await task(client, user, secret)
    lines = (await client.get("/v1/export", params={"user_id": user})).text
    assert secret in lines
    async with serving(backends.new_settings()) as world:
        memory = [one for one in lines.splitlines() if '"experience"' not in one]
        assert (await world.client.post("/v1/import", content="\n".join(memory))).status_code == 200
        assert (await world.client.delete(f"/v1/memories/{episode}")).status_code == 204
        told = (await world.client.post("/v1/import", content=lines)).json()
        assert (lesson["id"], "gone") in [(one["id"], one["code"]) for one in told["refused"]]
        assert await everywhere(world, secret) == set()


@pytest.mark.parametrize("together", [2, 6])
async def test_episodes_erased_at_the_same_time_as_lessons_are_learned_leave_nothing_behind(
    world: World, user: str, together: int
) -> None:
    client, secrets = world.client, [new_word("ibis") for _ in range(together)]

    async def come_and_go(secret: str) -> None:
        name = f"t-{uuid4().hex[:8]}"
        goal = {"user_id": user, "goal": "Fetch the orders of the shop", "task_id": name, "task_type": "fetch"}
        assert (await client.post("/v1/tasks", json=goal)).status_code == 201
        for call in calls(secret):
            await client.post(f"/v1/working-memory/{name}/steps", json={"user_id": user, **call})
        ended = await client.post(f"/v1/tasks/{name}/finish", json={"user_id": user, "outcome": "success"})
        assert ended.status_code == 200, ended.text
        assert (await client.delete(f"/v1/memories/{ended.json()['episode']['id']}")).status_code in (204, 404)

    await asyncio.gather(*(come_and_go(secret) for secret in secrets))
    for secret in secrets:
        assert await everywhere(world, secret) == set()
    assert await lessons(client, user, status=["active", "superseded", "retired"]) == []
