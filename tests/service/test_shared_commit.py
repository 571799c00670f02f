"""Do writes that come together become durable together, and does each keep its own answer?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import httpx
import psycopg
import pytest
from service_running import World, listed, new_user, write

from memory_service.domain import Caller
from memory_service.stores.postgres import keeping
from memory_service.stores.postgres.keeping import NewMemory
from memory_service.stores.postgres.pool import Connection
from memory_service.write.drafts import Draft, Written
from memory_service.write.duplicates import content_hash
from memory_service.write.indexing import lock_key

REAL = keeping.keep_new


async def post(client: httpx.AsyncClient, user: str, content: str, **fields: Any) -> httpx.Response:
    return await client.post("/v1/memories", json={"user_id": user, "content": content, "infer": False, **fields})


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The texts of each shared transaction, in order."""
    groups: list[list[str]] = []

    async def noted(connection: Connection, new: Sequence[NewMemory], now: datetime) -> set[UUID]:
        groups.append([one.memory.content for one in new])
        return await REAL(connection, new, now)

    monkeypatch.setattr(keeping, "keep_new", noted)
    return groups


async def test_writes_of_several_users_share_transactions_and_each_gets_its_own_memory(
    client: httpx.AsyncClient, shared: list[list[str]]
) -> None:
    users = [new_user() for _ in range(40)]
    answers = await asyncio.gather(*(post(client, user, f"{user} keeps bees") for user in users))

    assert [answer.status_code for answer in answers] == [201] * 40
    for user, answer in zip(users, answers, strict=True):
        memory = answer.json()["memory"]
        assert (memory["user_id"], memory["content"]) == (user, f"{user} keeps bees")
        assert [one["id"] for one in await listed(client, user)] == [memory["id"]]
    assert sorted(text for group in shared for text in group) == sorted(f"{user} keeps bees" for user in users)
    assert len(shared) <= 20


async def test_a_lone_write_is_kept_exactly_as_it_reads(
    client: httpx.AsyncClient, user: str, shared: list[list[str]]
) -> None:
    given: dict[str, Any] = {
        "content": 'Größe "7" \\ 尺寸 🙂\n\ttab \u2028 line',
        "summary": "sizes",
        "kind": "semantic",
        "category": "fact",
        "event_type": "note",
        "tags": ["a b", 'q"uote', "{brace}", "逗号,", "NULL"],
        "entities": [{"name": "Größe", "type": "measure"}],
        "tool_calls": [{"tool": "ruler", "arguments": {"x": [1, 2.5, None]}, "status": "success"}],
        "outcome": "success",
        "importance": 0.1,
        "occurred_at": "2024-02-29T23:59:59.123456+05:30",
        "expires_at": "2199-01-01T00:00:00Z",
        "agent_id": "agent",
        "session_id": "session",
        "task_id": "task",
        "metadata": {"big": 9_223_372_036_854_775_807, "small": 1e-300, "third": 1 / 3, "none": None, "deep": {"é": ["\u007f"]}},
    }  # fmt: skip
    answer = await client.post("/v1/memories", json={"user_id": user, "infer": False, **given})
    assert answer.status_code == 201, answer.text
    told = answer.json()["memory"]
    stored = (await client.get(f"/v1/memories/{told['id']}")).json()
    for one in (told, stored):
        one.pop("index"), one.pop("heat")
    assert stored == told
    assert stored["occurred_at"] == "2024-02-29T18:29:59.123456Z"
    assert stored["tool_calls"][0] == given["tool_calls"][0]
    same = ("content", "summary", "tags", "entities", "importance", "metadata", "agent_id", "session_id", "task_id")
    assert {name: stored[name] for name in same} == {name: given[name] for name in same}
    assert shared == [[given["content"]]]


async def test_equal_texts_at_once_become_one_memory(
    client: httpx.AsyncClient, user: str, shared: list[list[str]]
) -> None:
    answers = await asyncio.gather(*(post(client, user, " the  same  THING"[: 16 + n % 2]) for n in range(12)))

    bodies = [answer.json() for answer in answers]
    assert sorted(body["status"] for body in bodies) == ["created", "created", *["duplicate"] * 10]
    assert len(await listed(client, user)) == 2
    assert {body["memory"]["id"] for body in bodies} == {one["id"] for one in await listed(client, user)}
    assert all(len(set(group)) == len(group) for group in shared)


async def test_equal_texts_of_two_tenants_are_two_memories(keyed: World, user: str) -> None:
    keys = [await keyed.new_key(tenant=new_user("tenant")) for _ in range(2)]
    clients = [keyed.with_key(key) for key in keys]
    answers = await asyncio.gather(*(post(client, user, "one text, two owners") for client in clients))

    assert [answer.status_code for answer in answers] == [201, 201]
    own = [answer.json()["memory"]["id"] for answer in answers]
    assert len(set(own)) == 2
    for client, mine, other in zip(clients, own, reversed(own), strict=True):
        assert (await client.get(f"/v1/memories/{mine}")).status_code == 200
        assert (await client.get(f"/v1/memories/{other}")).status_code == 404


async def test_a_text_that_postgres_refuses_takes_nobody_with_it(
    world: World, client: httpx.AsyncClient, user: str, shared: list[list[str]]
) -> None:
    """The API lets no NUL through; a feature that makes texts of its own might."""
    writer, caller = world.runtime.writer, Caller("default", "admin")
    drafts = [Draft(user, text, infer=False) for text in ("good one", "bad \0 one", "good two", "good three")]
    results = await asyncio.gather(*(writer.write(caller, draft) for draft in drafts), return_exceptions=True)

    assert [isinstance(one, Written) for one in results] == [True, False, True, True]
    assert isinstance(results[1], psycopg.DataError)
    assert sorted(one["content"] for one in await listed(client, user)) == ["good one", "good three", "good two"]
    assert any("bad \0 one" in group and len(group) > 1 for group in shared)


async def test_a_cancelled_request_leaves_the_others_theirs(
    client: httpx.AsyncClient, user: str, shared: list[list[str]]
) -> None:
    tasks = [asyncio.create_task(post(client, user, f"part {n}")) for n in range(12)]
    while not shared:
        await asyncio.sleep(0)
    for doomed in tasks[::3]:
        doomed.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)

    kept = [one for one in results if isinstance(one, httpx.Response)]
    assert len(kept) >= 8
    assert [one.status_code for one in kept] == [201] * len(kept)
    assert {one.json()["memory"]["content"] for one in kept} <= {one["content"] for one in await listed(client, user)}
    assert (await post(client, user, "afterwards")).status_code == 201


async def test_a_commit_whose_answer_is_lost_is_found_out_and_not_made_twice(
    monkeypatch: pytest.MonkeyPatch, client: httpx.AsyncClient, user: str
) -> None:
    calls = 0

    async def lost_once(connection: Connection, new: Sequence[NewMemory], now: datetime) -> set[UUID]:
        nonlocal calls
        calls += 1
        kept = await REAL(connection, new, now)
        if calls == 1:
            raise psycopg.OperationalError("the connection is lost")
        return kept

    monkeypatch.setattr(keeping, "keep_new", lost_once)
    answer = await post(client, user, "said once, heard once")

    assert (calls, answer.status_code, answer.json()["status"]) == (2, 201, "created")
    assert [one["id"] for one in await listed(client, user)] == [answer.json()["memory"]["id"]]


async def test_of_writes_whose_answer_is_lost_each_is_made_once_whatever_became_of_it_since(
    monkeypatch: pytest.MonkeyPatch, client: httpx.AsyncClient, user: str
) -> None:
    """The first time, half of them were kept, and one of those is superseded by the time of the second."""
    lost: list[UUID] = []

    async def half_lost(connection: Connection, new: Sequence[NewMemory], now: datetime) -> set[UUID]:
        if lost or len(new) < 4:
            return await REAL(connection, new, now)
        lost.extend(await REAL(connection, new[: len(new) // 2], now))
        await connection.execute("UPDATE memory SET state = 'superseded' WHERE id = %s", (lost[0],))
        raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(keeping, "keep_new", half_lost)
    answers = await asyncio.gather(*(post(client, user, f"thing {n}") for n in range(12)))

    assert len(lost) >= 2
    assert [(one.status_code, one.json()["status"]) for one in answers] == [(201, "created")] * 12
    ids = {one.json()["memory"]["id"] for one in answers}
    assert len(ids) == 12
    assert {one["id"] for one in await listed(client, user)} == ids - {str(lost[0])}


async def test_a_text_that_somebody_is_writing_holds_up_no_other(world: World, user: str) -> None:
    client = world.client
    lock = lock_key("default", user, content_hash("a slow text"))
    async with await psycopg.AsyncConnection.connect(world.settings.database_url) as other:
        await other.execute("SELECT pg_advisory_xact_lock(%s)", (lock,))
        slow = asyncio.create_task(post(client, user, "a slow text"))
        await asyncio.sleep(0.1)
        begun = time.monotonic()
        quick = await asyncio.gather(*(post(client, user, f"a quick text {n}") for n in range(5)))
        assert [one.status_code for one in quick] == [201] * 5
        assert time.monotonic() - begun < 5
        assert not slow.done()
    assert (await slow).status_code == 201


async def test_a_known_text_is_merged_as_before(client: httpx.AsyncClient, user: str) -> None:
    first = await write(client, user, "the cellar is dry", tags=["house"])
    answer = (await post(client, user, "The cellar is DRY", tags=["winter"])).json()

    assert (answer["status"], answer["duplicate_of"]) == ("duplicate", first["id"])
    assert answer["memory"]["tags"] == ["house", "winter"]


async def test_every_column_of_a_memory_is_stored(world: World) -> None:
    """The function in the database names the columns that it stores: a new one must be added there too."""
    ((source,),) = await world.sql("SELECT prosrc FROM pg_proc WHERE proname = 'hindsight_keep_new'")
    listed_columns = source.split("INSERT INTO memory (")[1].split(")")[0].replace("\n", " ").split(",")
    there = await world.sql(
        "SELECT column_name FROM information_schema.columns WHERE table_name = 'memory' AND is_generated = 'NEVER'"
    )
    assert sorted(name.strip() for name in listed_columns) == sorted(name for (name,) in there)
