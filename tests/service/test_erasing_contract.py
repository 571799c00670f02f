"""DELETE /v1/users/{user_id} while others write: it ends, nothing from before is left, nothing is acknowledged and lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any
from uuid import UUID

import httpx
import pytest
from service_running import Backends, World, listed, new_user, problem_of, serving, until, write, write_many

from memory_service.stores.postgres import changes, erasing, experiences
from memory_service.stores.session_buffer import SessionKey

STEPS = [
    {"tool": "http_get", "arguments": {"n": 1}, "status": "error", "error": "410 Gone"},
    {"tool": "http_get", "arguments": {"n": 2}, "status": "success", "result": {"n": 2}},
]
WET = [{"field": "weather", "operator": "eq", "value": "wet"}]


async def erased(world: World, user: str) -> dict[str, Any]:
    answer = await world.client.delete(f"/v1/users/{user}")
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


async def rows_of(world: World, user: str) -> dict[str, int]:
    """Every table that says whose a row is, as psql would show it."""
    tables = await world.sql(
        """SELECT table_name FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)
           WHERE column_name = 'user_id' AND table_schema = 'public' AND table_type = 'BASE TABLE'"""
    )
    assert len(tables) > 10
    counted = {t: (await world.sql(f"SELECT count(*) FROM {t} WHERE user_id = %s", user))[0][0] for (t,) in tables}
    return {table: rows for table, rows in counted.items() if rows}


async def points_of(world: World, user: str) -> int:
    async with httpx.AsyncClient(trust_env=False) as qdrant:
        answer = await qdrant.post(
            f"{world.settings.qdrant_url}/collections/{world.settings.qdrant_collection}/points/count",
            json={"exact": True, "filter": {"must": [{"key": "user_id", "match": {"value": user}}]}},
        )
    return int(answer.json()["result"]["count"])


async def redis_keys(world: World, user: str) -> list[bytes]:
    return [key async for key in world.runtime.redis.scan_iter(f"*{user}*")]


async def nothing_of(world: World, user: str, *texts: str) -> None:
    await world.runtime.retrieval_log.flush()

    async def told() -> bool:
        """The relay has removed the vectors, which a busy one does after the answer; its rows are ids."""
        return "index_outbox" not in await rows_of(world, user)

    await until(told, 30)
    assert await rows_of(world, user) == {}
    assert await redis_keys(world, user) == []
    for text in texts:
        for table in ("memory", "memory_version", "experience", "task_run", "retrieval_log"):
            rows = await world.sql(f"SELECT count(*) FROM {table} t WHERE t::text LIKE %s", f"%{text}%")
            assert rows == [(0,)], table
        answers = "SELECT count(*) FROM idempotency_key WHERE position(convert_to(%s, 'UTF8') IN response) > 0"
        assert await world.sql(answers, text) == [(0,)]


@asynccontextmanager
async def halfway(
    monkeypatch: pytest.MonkeyPatch, world: World, user: str
) -> AsyncIterator[asyncio.Task[dict[str, Any]]]:
    """An erasure that stands still behind its gate, Redis done and Postgres begun."""
    reached, go_on = asyncio.Event(), asyncio.Event()
    real = changes.attached_to_user

    async def waits(*args: Any) -> Any:
        reached.set()
        await go_on.wait()
        return await real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(changes, "attached_to_user", waits)
        task = asyncio.create_task(erased(world, user))
        await asyncio.wait_for(reached.wait(), 20)
        try:
            yield task
        finally:
            go_on.set()
            await task


def stopping(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *, after: bool = False
) -> tuple[asyncio.Event, asyncio.Event]:
    """Its first call says so and waits before, or after, the real work: (reached, go_on)."""
    reached, go_on, real = asyncio.Event(), asyncio.Event(), getattr(owner, name)

    async def stops(*args: Any, **kwargs: Any) -> Any:
        result = await real(*args, **kwargs) if after else None
        reached.set()
        await go_on.wait()
        return result if after else await real(*args, **kwargs)

    monkeypatch.setattr(owner, name, stops)
    return reached, go_on


# While others write.


@pytest.mark.parametrize("infer", [False, True])
@pytest.mark.parametrize("writers", [1, 2, 8])
async def test_it_ends_while_others_write_and_loses_nothing_that_was_acknowledged_behind_its_gate(
    world: World, user: str, monkeypatch: pytest.MonkeyPatch, writers: int, infer: bool
) -> None:
    loop, numbers, stop = asyncio.get_running_loop(), count(), asyncio.Event()
    shut_at, chunks = [float("inf")], [0]
    close, some = erasing.close, changes.ids_of_user

    async def shut(*args: Any) -> None:
        await close(*args)
        shut_at[0] = loop.time()

    async def counted(*args: Any) -> list[UUID]:
        chunks[0] += 1
        return await some(*args)

    monkeypatch.setattr(erasing, "close", shut)
    monkeypatch.setattr(changes, "ids_of_user", counted)
    kept: list[tuple[float, str]] = []
    refused = [0]

    async def writer() -> None:
        while not stop.is_set():
            began = loop.time()
            text = f"Fact {next(numbers)} of {user}: the port of the staging server is {next(numbers)}."
            answer = await world.client.post("/v1/memories", json={"user_id": user, "content": text, "infer": infer})
            if answer.status_code == 503:
                assert problem_of(answer, 503)["code"] == "user_being_erased"
                assert int(answer.headers["retry-after"]) >= 1
                refused[0] += 1
                await asyncio.sleep(0.01)
            else:
                assert answer.status_code in (200, 201), answer.text
                kept.append((began, answer.json()["memory"]["id"]))

    async def talker() -> None:
        for n in count():
            if stop.is_set():
                return
            said = [{"role": "user", "content": f"I prefer the {n}th colour of {user}."}]
            await world.client.post("/v1/turns", json={"user_id": user, "session_id": "s", "messages": said})
            path = f"/v1/working-memory/w{n % 3}"
            await world.client.put(path, json={"user_id": user, "task_goal": f"goal {n}"})
            await world.client.post(f"{path}/steps", json={"user_id": user, **STEPS[n % 2]})
            await world.client.post("/v1/tasks", json={"user_id": user, "goal": "g", "task_id": f"t{n}"})
            await world.client.post(f"/v1/tasks/t{n}/finish", json={"user_id": user, "outcome": "success"})
            await asyncio.sleep(0.01)

    await write_many(world.client, user, [f"old {n}" for n in range(20)])
    tasks = [asyncio.create_task(writer()) for _ in range(writers)] + [asyncio.create_task(talker())]
    try:
        await until(lambda: _true(len(kept) >= 10))
        sent_at = loop.time()
        async with asyncio.timeout(15):  # before, it never ended; in peace it takes some 0.2 s
            counts = await erased(world, user)
        answered_at = loop.time()
        await until(lambda: _true(sum(at > answered_at for at, _ in kept) >= 10))
    finally:
        stop.set()
        await asyncio.gather(*tasks)
    assert counts["memories"] >= 30
    assert chunks[0] <= 3  # looks for memories: how many come meanwhile has no influence
    there = {row[0] for row in await world.sql("SELECT id FROM memory WHERE user_id = %s", user)}
    assert {one for at, one in kept if at > shut_at[0]} <= {str(one) for one in there}
    ended_before = [one for at, one in kept[:10] if at < sent_at]
    assert len(ended_before) == 10
    assert not {UUID(one) for one in ended_before} & there
    for text in ("old 3", *ended_before[:2]):
        assert await world.sql("SELECT 1 FROM memory WHERE user_id = %s AND content = %s", user, text) == []
    await erased(world, user)
    await nothing_of(world, user, user)
    assert await points_of(world, user) == 0


async def _true(value: bool) -> bool:
    return value


async def test_two_at_once_both_end(world: World, user: str) -> None:
    await write_many(world.client, user, [f"old {n}" for n in range(20)])
    first, second = await asyncio.gather(erased(world, user), erased(world, user))
    assert first["memories"] + second["memories"] == 20
    await nothing_of(world, user)


# Behind the gate.


async def test_what_would_be_new_is_refused_while_it_runs_and_done_when_sent_again(
    world: World, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, memory = world.client, await write(world.client, user, "the old text")
    learned = await client.post("/v1/experiences", json={"user_id": user, "conditions": WET, "action": "old advice"})
    lesson = learned.json()["experience"]["id"]
    new, fresh = {"user_id": user, "infer": False}, new_user()
    line = json.dumps({"content": "imported", "kind": "semantic"})
    talk = {"user_id": user, "session_id": "s", "messages": [{"role": "user", "content": "I prefer tea."}]}
    run = {"goal": "g", "outcome": "success", "steps": STEPS}
    writes: dict[str, Callable[[], Awaitable[httpx.Response]]] = {
        "plain": lambda: client.post("/v1/memories", json={**new, "content": "plain"}),
        "once": lambda: client.post("/v1/memories", json={**new, "content": "once"}, headers={"Idempotency-Key": fresh}),
        "inferred": lambda: client.post("/v1/memories", json={**new, "content": "I live in Rome.", "infer": True}),
        "the same text": lambda: client.post("/v1/memories", json={**new, "content": "the old text"}),
        "batch": lambda: client.post("/v1/memories/batch", json={"memories": [{**new, "content": "of a batch"}]}),
        "turn": lambda: client.post("/v1/turns", json=talk),
        "task": lambda: client.post("/v1/tasks", json={"user_id": user, "goal": "g", "task_id": "t"}),
        "lesson": lambda: client.post("/v1/experiences", json={"user_id": user, "conditions": WET, "action": "a"}),
        "distill": lambda: client.post("/v1/experiences/distill", json={"user_id": user, "trajectory": run}),
        "import": lambda: client.post("/v1/import", params={"user_id": user}, content=line),
    }  # fmt: skip
    async with halfway(monkeypatch, world, user) as erasure:
        for name, send in writes.items():
            answer = await send()
            assert answer.status_code == 503, (name, answer.text)
            assert problem_of(answer, 503)["code"] == "user_being_erased", name
            assert int(answer.headers["retry-after"]) >= 1
        said = await client.post(f"/v1/memories/{memory['id']}/feedback", json={"outcome": "success"})
        assert problem_of(said, 503)["code"] == "user_being_erased"
        said = await client.post(f"/v1/experiences/{lesson}/feedback", json={"outcome": "success"})
        assert problem_of(said, 503)["code"] == "user_being_erased"
        others = [write(client, fresh, "of somebody else"), client.get("/v1/memories", params={"user_id": user})]
        await asyncio.wait_for(asyncio.gather(*others), 10)  # nobody waits
        # Working memory and dialogue that waits are only in Redis, where all from before is gone already.
        await client.put("/v1/working-memory/new", json={"user_id": user, "task_goal": "a new goal"})
        waits = [{"role": "user", "content": "And the next one?"}]
        told = await client.post("/v1/turns", json={"user_id": user, "session_id": "new", "messages": waits})
        assert told.json()["buffered"] == 1
    assert (await erasure)["memories"] == 1
    assert set(await rows_of(world, user)) == set()
    assert (await client.get("/v1/working-memory/new", params={"user_id": user})).json()["task_goal"] == "a new goal"
    for name, send in writes.items():
        answer = await send()
        assert answer.status_code in (200, 201), (name, answer.text)
    texts = {one["content"] for one in await listed(client, user)}
    assert {"plain", "once", "I live in Rome.", "the old text", "of a batch", "I prefer tea.", "imported"} <= texts
    flushed = await world.runtime.turns.end_task(_local(), user, "none")
    assert flushed == []
    key = SessionKey("default", user, "new")
    assert len(await world.runtime.turns._buffer.append(key, "r" * 32, "r" * 32) or []) == 1  # it still waits
    await erased(world, user)
    await erased(world, fresh)
    await nothing_of(world, user, user)


def _local() -> Any:
    from memory_service.access import LOCAL

    return LOCAL


# What is under way when it begins, and goes on when it is over.


async def test_a_turn_that_is_being_read_meanwhile_writes_nothing_of_what_waited(
    world: World, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = f"marzipan-{user}"
    body = {"user_id": user, "session_id": "s"}
    waiting = [{"role": "user", "content": f"Where is {secret}?"}]
    await world.client.post("/v1/turns", json={**body, "messages": waiting})
    reached, go_on = stopping(monkeypatch, world.runtime.turns, "_read")
    talk = [{"role": "user", "content": f"I prefer {secret}."}]
    turn = asyncio.create_task(world.client.post("/v1/turns", json={**body, "messages": talk}))
    await asyncio.wait_for(reached.wait(), 10)
    await erased(world, user)
    monkeypatch.undo()
    fresh = [{"role": "user", "content": "A new question?"}, {"role": "assistant", "content": "A new answer."}]
    await world.client.post("/v1/turns", json={**body, "messages": fresh})
    go_on.set()
    assert problem_of(await turn, 503)["code"] == "user_being_erased"
    assert await listed(world.client, user) == []
    assert await world.sql("SELECT count(*) FROM memory m WHERE m::text LIKE %s", f"%{secret}%") == [(0,)]
    left = await world.runtime.turns._buffer.append(SessionKey("default", user, "s"), "r" * 32, "r" * 32) or []
    assert len(left) == 2  # the late one has taken none of the new session's messages for its own
    assert all(secret.encode() not in one.payload for one in left)
    await erased(world, user)
    await nothing_of(world, user, secret)


async def test_a_turn_that_is_over_tells_a_task_that_began_since_nothing(
    world: World, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, task = f"marzipan-{user}", "/v1/working-memory/t"
    await world.client.put(task, json={"user_id": user, "task_goal": "g"})
    reached, go_on = stopping(monkeypatch, world.runtime.turns, "_settled", after=True)
    talk = [{"role": "user", "content": f"I prefer {secret}."}]
    body = {"user_id": user, "session_id": "s", "task_id": "t", "messages": talk}
    turn = asyncio.create_task(world.client.post("/v1/turns", json=body))
    await asyncio.wait_for(reached.wait(), 10)
    await erased(world, user)
    await world.client.put(task, json={"user_id": user, "task_goal": "g"})
    go_on.set()
    assert (await turn).json()["written"] != []
    again = (await world.client.get(task, params={"user_id": user})).json()
    assert again["task_goal"] == "g"
    assert secret not in json.dumps(again)
    await erased(world, user)
    await nothing_of(world, user, secret)


@pytest.mark.parametrize("step", ["_review", "_judge", "_mark_used", "_ended", "_make_row"])
async def test_a_task_that_is_being_finished_meanwhile_leaves_nothing(
    world: World, user: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    secret = f"marzipan-{user}"
    if step == "_make_row":
        await world.client.put("/v1/working-memory/t", json={"user_id": user, "task_goal": f"Wake {secret}"})
    else:
        await write(world.client, user, f"{secret} sleeps in the cellar")
        await world.client.post("/v1/tasks", json={"user_id": user, "goal": f"Wake {secret}", "task_id": "t"})
    for one in STEPS:
        await world.client.post("/v1/working-memory/t/steps", json={"user_id": user, **one, "reason": secret})
    reached, go_on = stopping(monkeypatch, world.runtime.finishing, step)
    ending = {"user_id": user, "outcome": "success", "result": secret}
    finish = asyncio.create_task(
        world.client.post("/v1/tasks/t/finish", json=ending, headers={"Idempotency-Key": user})
    )
    await asyncio.wait_for(reached.wait(), 10)
    await erased(world, user)
    monkeypatch.undo()
    go_on.set()
    assert (await finish).status_code in (404, 409, 503), (await finish).text
    await nothing_of(world, user, secret)


async def test_a_task_that_is_being_taken_up_meanwhile_leaves_nothing(
    world: World, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = f"marzipan-{user}"
    body = {"user_id": user, "goal": f"Wake {secret}", "task_id": "t"}
    await world.client.post("/v1/tasks", json=body)
    reached, go_on = stopping(monkeypatch, world.runtime.tasks, "_context", after=True)
    start = asyncio.create_task(world.client.post("/v1/tasks", json={**body, "resume": True}))
    await asyncio.wait_for(reached.wait(), 10)
    await erased(world, user)
    monkeypatch.undo()
    go_on.set()
    assert problem_of(await start, 503)["code"] == "user_being_erased"
    await nothing_of(world, user, secret)


async def test_a_search_that_is_logged_later_and_an_import_that_goes_on_leave_nothing(
    world: World, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = f"marzipan-{user}"
    size = world.runtime.imports.numbers.import_slice_lines
    lines = [{"content": f"{secret} {n}", "kind": "semantic"} for n in range(size + 5)]
    content = "\n".join(map(json.dumps, lines))
    real, reached, go_on = world.runtime.imports.take, asyncio.Event(), asyncio.Event()

    async def stops(*args: Any) -> Any:
        told = await real(*args)
        reached.set()
        await go_on.wait()
        return told

    monkeypatch.setattr(world.runtime.imports, "take", stops)
    taking = asyncio.create_task(world.client.post("/v1/import", params={"user_id": user}, content=content))
    await asyncio.wait_for(reached.wait(), 60)
    search = {"user_id": user, "query": secret}
    assert (await world.client.post("/v1/memories/search", json=search)).json()["results"] != []
    assert (await erased(world, user))["memories"] == size
    go_on.set()
    assert problem_of(await taking, 503)["code"] == "user_being_erased"
    await nothing_of(world, user, secret)


async def test_a_lesson_being_distilled_and_a_write_being_read_meanwhile_are_new(
    world: World, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They carry nothing but what their own request said, which nobody had been told is kept."""
    reached, go_on = stopping(monkeypatch, world.runtime.writer, "_prepare")
    body = {"user_id": user, "content": "I live in Rome.", "infer": True}
    writing = asyncio.create_task(world.client.post("/v1/memories", json=body))
    await asyncio.wait_for(reached.wait(), 10)
    await erased(world, user)
    monkeypatch.undo()
    go_on.set()
    assert (await writing).status_code == 201
    assert [one["content"] for one in await listed(world.client, user)] == ["I live in Rome."]
    await erased(world, user)


# Bounds.


async def test_it_waits_for_writes_that_commit_and_gives_up_in_time(backends: Backends, user: str) -> None:
    settings = backends.new_settings()
    async with serving(settings) as world:
        world.runtime.erasure._numbers = world.runtime.erasure._numbers.model_copy(update={"gate_wait_s": 0.3})
        await write(world.client, user, "stays")

        async def hangs(connection: Any) -> httpx.Response:
            await erasing.admit(connection, "default", [user])
            return await world.client.delete(f"/v1/users/{user}")

        refused = await world.runtime.postgres.transaction(hangs)
        assert problem_of(refused, 503)["code"] == "user_being_erased"
        assert len(await listed(world.client, user)) == 1
        assert (await erased(world, user))["memories"] == 1


async def test_an_erasure_whose_process_lost_its_session_keeps_nobody_out(
    backends: Backends, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(backends.new_settings()) as world:
        await write_many(world.client, user, ["a", "b"])

        async def dies(connection: Any, *_: Any) -> Any:
            raise ConnectionResetError

        with monkeypatch.context() as patch:
            patch.setattr(experiences, "ids_of_user", dies)
            with pytest.raises(ConnectionResetError):
                await world.runtime.erasure.erase_user(_local(), user)
        await write(world.client, user, "c")
        assert await erased(world, user) | {"memories": 1} == await erased(world, user) | {"memories": 1}
        await nothing_of(world, user)


async def test_memories_that_others_replace_while_they_are_erased_do_not_end_it_early(
    world: World, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first look finds one that somebody has just erased, and there are more."""
    ids = await write_many(world.client, user, ["a", "b", "c"])
    real, looks = changes.ids_of_user, count()

    async def looking(connection: Any, *args: Any) -> list[UUID]:
        if next(looks) == 0:
            await world.client.delete(f"/v1/memories/{ids[0]}")
            return [UUID(ids[0])]
        return await real(connection, *args)

    monkeypatch.setattr(changes, "ids_of_user", looking)
    assert (await erased(world, user))["memories"] == 2
    await nothing_of(world, user)
