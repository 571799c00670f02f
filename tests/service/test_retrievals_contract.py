"""The log of retrievals: what was asked, what came back, what was used, and what erasing leaves of it; `hindsight review`."""

# ruff: noqa: E501 - tables: one case reads best on one line

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import psycopg
import pytest
from click.testing import Result
from service_running import (
    Backends,
    World,
    new_user,
    numbers,
    problem_of,
    proxied,
    search,
    serving,
    until,
    write,
    write_many,
)
from test_relay_contract import environment
from typer.testing import CliRunner

from memory_service.__main__ import app as commands
from memory_service.domain import new_id
from memory_service.errors import SetupRefused
from memory_service.jobs.retrieval_log import RetrievalLog
from memory_service.settings import Settings
from memory_service.stores.postgres import retrievals
from memory_service.stores.postgres.retrievals import Retrieval

FIELDS = {
    "id", "user_id", "at", "source", "query", "filters", "hits", "hit_count", "degraded", "took_ms", "injected_tokens",
    "used_ids", "used", "task_id",
}  # fmt: skip


async def page(client: httpx.AsyncClient, user: str | None, **params: Any) -> dict[str, Any]:
    given = params if user is None else {"user_id": user, **params}
    answer = await client.get("/v1/retrievals", params=given)
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


async def asked(client: httpx.AsyncClient, user: str | None, **params: Any) -> list[str]:
    return [one["query"] for one in (await page(client, user, **params))["items"]]


async def use(client: httpx.AsyncClient, memory_id: str, retrieval_id: str) -> None:
    said = {"outcome": "success", "retrieval_id": retrieval_id}
    assert (await client.post(f"/v1/memories/{memory_id}/feedback", json=said)).status_code == 200


def entry(
    user: str, query: str, *hits: str, tenant: str = "default", at: datetime | None = None, **fields: Any
) -> Retrieval:
    """A search that another process has answered."""
    told = [{"id": one, "score": 0.5, "lanes": ["keyword"]} for one in hits]
    when = at or datetime.now(UTC)
    return Retrieval(**{
        "id": new_id(), "tenant": tenant, "user_id": user, "at": when, "source": "search", "query": query, "filters": {},
        "hits": told, "degraded": [], "took_ms": 1.0, **fields,
    })  # fmt: skip


def other_process(world: World) -> RetrievalLog:
    """The log of another replica of the service."""
    return RetrievalLog(world.runtime.postgres, world.runtime.tunables.retrievals, world.runtime.clock)


async def insert(world: World, *rows: Retrieval) -> None:
    await world.runtime.postgres.transaction(lambda c: retrievals.insert_many(c, rows))


# What is logged.


async def test_a_search_is_in_the_log_at_once_with_its_hits_and_lanes(client: httpx.AsyncClient, user: str) -> None:
    memory = await write(client, user, "the tide turns at noon 潮汐", wait=True)
    answer = await search(client, user, "tide 潮汐", filters={"importance": {"gte": 0.1}})
    told = await page(client, user)
    (one,) = told["items"]
    assert set(one) == FIELDS
    assert (told["total"], told["next_cursor"]) == (1, None)
    assert (one["id"], one["user_id"], one["source"]) == (answer["retrieval_id"], user, "search")
    assert (one["query"], one["filters"]) == ("tide 潮汐", {"importance": {"gte": 0.1}})
    (hit,) = one["hits"]
    assert hit == {"id": memory["id"], "score": answer["results"][0]["score"], "lanes": answer["results"][0]["lanes"]}
    assert (one["hit_count"], one["used"], one["used_ids"], one["injected_tokens"]) == (1, False, [], None)
    assert one["at"].endswith("Z")
    assert one["took_ms"] > 0


async def test_a_context_tells_its_tokens_and_a_task_start_its_task(client: httpx.AsyncClient, user: str) -> None:
    await write(client, user, "The harbour pilot boards at buoy seven.", wait=True)
    context = await client.post(
        "/v1/context", json={"user_id": user, "query": "The harbour pilot boards at buoy seven."}
    )
    assert context.json()["tokens"] > 0, context.text
    begun = await client.post("/v1/tasks", json={"user_id": user, "task_id": "港/7", "goal": "bring the pilot aboard"})
    assert begun.status_code == 201
    start, made = (await page(client, user))["items"]
    assert (made["source"], made["injected_tokens"]) == ("context", context.json()["tokens"])
    assert [hit["what"] for hit in made["hits"]] == ["memory"]
    assert (start["source"], start["task_id"]) == ("task_start", "港/7")
    assert start["id"] == begun.json()["context"]["retrieval_id"]


async def test_a_query_for_experiences_is_logged_by_its_words_and_field_names_never_by_the_states_values(
    world: World, client: httpx.AsyncClient, user: str
) -> None:
    condition = {"field": "db.engine", "operator": "eq", "value": "kraken-db"}
    written = await client.post(
        "/v1/experiences", json={"user_id": user, "conditions": [condition], "action": "use a pool"}
    )
    lesson = written.json()["experience"]["id"]
    state = {"db": {"engine": "kraken-db", "password": "hunter2"}, "goal": "count the rows", "empty": {}}
    body = {
        "user_id": user,
        "state": state,
        "conditions": [condition],
        "semantic_query": "pooling",
        "task_type": "sql",
        "limit": 1,
    }
    assert len((await client.post("/v1/experiences/query", json=body)).json()["results"]) == 1
    (one,) = (await page(client, user, source="experience"))["items"]
    assert (one["source"], one["query"]) == ("experience", "pooling")
    assert one["filters"] == {
        "state_fields": ["db.engine", "db.password", "goal", "empty"],
        "condition_fields": ["db.engine"],
        "task_type": "sql",
    }
    assert [(hit["id"], hit["match"], hit["what"]) for hit in one["hits"]] == [(lesson, "exact", "experience")]
    rows = await world.sql("SELECT r::text FROM retrieval_log r WHERE user_id = %s", user)
    assert "hunter2" not in rows[0][0]
    assert "kraken-db" not in rows[0][0]


async def test_names_of_a_states_fields_are_bounded(client: httpx.AsyncClient, user: str) -> None:
    state = {f"{'x' * 100}{n}": n for n in range(100)}
    assert (await client.post("/v1/experiences/query", json={"user_id": user, "state": state})).status_code == 200
    (one,) = (await page(client, user))["items"]
    assert one["query"] == ""
    assert one["filters"]["state_fields"] == ["x" * 64] * 32


async def test_contexts_and_advice_do_not_log_their_lessons_a_second_time(client: httpx.AsyncClient, user: str) -> None:
    await client.post("/v1/context", json={"user_id": user, "query": "once", "state": {"a": 1}})
    await client.post("/v1/tasks", json={"user_id": user, "task_id": "t", "goal": "once"})
    await client.post("/v1/tasks/t/advice", json={"user_id": user, "tool": "x"})
    assert [one["source"] for one in (await page(client, user))["items"]] == ["task_start", "context"]


async def test_what_was_used_is_told_and_can_be_asked_for(client: httpx.AsyncClient, user: str) -> None:
    memory = await write(client, user, "a useful gull")
    used, idle = await search(client, user, "gull"), await search(client, user, "gull")
    await use(client, memory["id"], used["retrieval_id"])
    (one,) = (await page(client, user, used="true"))["items"]
    assert (one["id"], one["used"], one["used_ids"]) == (used["retrieval_id"], True, [memory["id"]])
    (other,) = (await page(client, user, used="false"))["items"]
    assert (other["id"], other["used"]) == (idle["retrieval_id"], False)


async def test_feedback_on_an_experience_speaks_of_the_newest_retrieval_that_brought_it(
    world: World, client: httpx.AsyncClient, user: str
) -> None:
    condition = {"field": "sea", "operator": "eq", "value": "rough"}
    written = await client.post(
        "/v1/experiences", json={"user_id": user, "conditions": [condition], "action": "reef early"}
    )
    lesson, answers = written.json()["experience"]["id"], []
    other = {"user_id": user, "state": {"sea": "calm"}}
    for body in (
        {"user_id": user, "state": {"sea": "rough"}},
        {"user_id": user, "state": {"sea": "rough", "n": 2}},
        other,
    ):
        answer = await client.post("/v1/experiences/query", json=body)
        answers.append(len(answer.json()["results"]))
    assert answers == [1, 1, 0]
    for outcome in ("success", "failure"):
        said = await client.post(f"/v1/experiences/{lesson}/feedback", json={"outcome": outcome, "task_id": outcome})
        assert said.status_code == 200
    found = (await page(client, user))["items"]
    assert [one["used_ids"] for one in found] == [[], [lesson], []]
    await world.sql("UPDATE retrieval_log SET used_ids = '{}', at = at - interval '8 days' WHERE user_id = %s", user)
    await client.post(f"/v1/experiences/{lesson}/feedback", json={"outcome": "success"})
    assert await asked(client, user, used="true") == []
    await client.delete(f"/v1/experiences/{lesson}")
    assert (await client.post(f"/v1/experiences/{lesson}/feedback", json={"outcome": "success"})).status_code == 404


# Listing.


async def test_filters_narrow_by_source_and_time(world: World, client: httpx.AsyncClient, user: str) -> None:
    at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    sources = ("search", "context", "task_start", "experience")
    await insert(
        world, *(entry(user, f"q{n}", at=at + timedelta(hours=n), source=one) for n, one in enumerate(sources))
    )
    assert await asked(client, user) == ["q3", "q2", "q1", "q0"]
    assert await asked(client, user, source=["context", "search"]) == ["q1", "q0"]
    assert await asked(client, user, since="2026-03-01T13:00:00Z", until="2026-03-01T16:00:00+01:00") == ["q2", "q1"]
    assert (await page(client, user, source="context", limit=1))["total"] == 1


async def test_pages_lose_and_repeat_nothing_while_searches_go_on(
    world: World, client: httpx.AsyncClient, user: str
) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    old = [
        entry(user, f"old {n}", at=at + timedelta(seconds=n // 3)) for n in range(25)
    ]  # some asked in the same moment
    await insert(world, *old)
    seen, cursor, pages = [], None, 0
    while True:
        told = await page(client, user, limit=7, **({"cursor": cursor} if cursor else {}))
        seen += [one["id"] for one in told["items"]]
        pages += 1
        assert told["total"] == 24 + pages
        await search(client, user, f"newer {pages}")
        if (cursor := told["next_cursor"]) is None:
            break
    assert pages == 4
    assert seen == [str(one.id) for one in sorted(old, key=lambda one: (one.at, one.id), reverse=True)]


async def test_a_cursor_works_for_its_own_list_only(world: World, client: httpx.AsyncClient, user: str) -> None:
    await insert(world, *(entry(user, f"q{n}") for n in range(3)))
    cursor = (await page(client, user, limit=1))["next_cursor"]
    for params in (
        {"user_id": new_user()},
        {},
        {"user_id": user, "source": "search"},
        {"user_id": user, "used": "false"},
        {"user_id": user, "since": "2026-01-01"},
    ):
        problem_of(await client.get("/v1/retrievals", params={**params, "cursor": cursor}), 422, "cursor")
    assert len((await page(client, user, limit=2, cursor=cursor))["items"]) == 2


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"user_id": ""}, "user_id"), ({"user_id": "a\x00b"}, "user_id"), ({"user_id": "x" * 129}, "user_id"), ({"source": "panel"}, "source.0"),
        ({"since": "soon"}, "since"), ({"until": "2026-02-31"}, "until"), ({"used": "perhaps"}, "used"), ({"limit": "0"}, "limit"), ({"limit": "101"}, "limit"),
        ({"top_k": "x"}, "top_k"), ({"cursor": "x"}, "cursor"), ({"cursor": "a" * 513}, "cursor"), ({"query": "x"}, "query"), ({"task_id": "t"}, "task_id"),
    ],
    ids=str,
)  # fmt: skip
async def test_a_bad_parameter_is_named(client: httpx.AsyncClient, params: dict[str, str], field: str) -> None:
    problem_of(await client.get("/v1/retrievals", params=params), 422, field)


async def test_a_bound_key_sees_its_own_user_and_others_the_whole_tenant_but_no_other(keyed: World) -> None:
    mine, theirs, tenant = new_user("mine"), new_user("theirs"), new_user("tenant")
    await insert(keyed, entry(mine, "mine", tenant=tenant), entry(theirs, "theirs", tenant=tenant))
    await insert(keyed, entry(mine, "of another tenant", tenant=new_user("tenant")))
    async with (
        keyed.with_key(await keyed.new_key("reader", tenant=tenant)) as free,
        keyed.with_key(await keyed.new_key("admin", tenant=tenant, user_id=mine)) as bound,
    ):
        assert sorted(await asked(free, None)) == ["mine", "theirs"]
        assert await asked(free, theirs) == ["theirs"]
        assert await asked(bound, None) == await asked(bound, mine) == ["mine"]
        problem_of(await bound.get("/v1/retrievals", params={"user_id": theirs}), 403)


# Writing it.


async def test_an_entry_whose_commit_was_in_doubt_is_stored_and_counted_once_and_keeps_no_other_out(
    world: World, user: str
) -> None:
    memory, log = await write(world.client, user, "an auk"), other_process(world)
    first = entry(user, "auk", memory["id"])
    log.note(first)
    await log.flush()
    log.note(first)
    log.note(entry(user, "another auk"))
    await log.flush()
    assert sorted(await asked(world.client, user)) == ["another auk", "auk"]
    assert log.dropped == 0
    assert (await world.client.get(f"/v1/memories/{memory['id']}")).json()["access_count"] == 1


async def test_a_flush_waits_for_what_another_flush_has_in_hand(world: World, user: str) -> None:
    log = other_process(world)
    async with held_users(world, user) as release:
        log.note(entry(user, "on its way"))
        first = asyncio.create_task(log.flush())
        await asyncio.sleep(0.05)
        second = asyncio.create_task(log.flush())
        await asyncio.sleep(0.1)
        assert not second.done()
        release.set()
        await second
        assert await asked(world.client, user) == ["on its way"]
        await first


async def test_with_postgres_down_the_list_is_503_and_what_was_asked_comes_later(backends: Backends, user: str) -> None:
    settings = backends.new_settings()
    async with proxied(settings.database_url) as postgres:
        quick = numbers(settings, stores={"postgres_timeout_s": 0.5})
        async with serving(settings.model_copy(update={"database_url": postgres.url}), tunables=quick) as world:
            await search(world.client, user, "before")
            await page(world.client, user)
            await postgres.cut()
            world.runtime.retrieval_log.note(entry(user, "meanwhile"))
            answers = await asyncio.gather(
                *(world.client.get("/v1/retrievals", params={"user_id": user}) for _ in range(8))
            )
            for answer in answers:
                problem_of(answer, 503)
            assert postgres.refused > 0
            await postgres.heal()

            async def both() -> bool:
                answer = await world.client.get("/v1/retrievals", params={"user_id": user})
                return answer.status_code == 200 and answer.json()["total"] == 2

            await until(both)
            assert await asked(world.client, user) == ["meanwhile", "before"]


# Erasing.


async def test_an_erased_memory_leaves_others_rows_and_nothing_else_of_them_changes(world: World, user: str) -> None:
    client, reader = world.client, new_user("reader")
    shared = await write(client, "*shared", f"the common lighthouse {user}", wait=True)
    own = await write(client, reader, f"my lighthouse {user}", wait=True)
    answer = await search(client, reader, f"lighthouse {user}", include_shared=True, limit=2)
    assert {one["id"] for one in answer["results"]} == {shared["id"], own["id"]}
    for one in (shared, own):
        await use(client, one["id"], answer["retrieval_id"])
    before = (await page(client, reader))["items"][0]
    assert set(before["used_ids"]) == {shared["id"], own["id"]}
    assert (await client.delete(f"/v1/memories/{shared['id']}")).status_code == 204
    after = (await page(client, reader))["items"][0]
    assert after["hits"] == [hit for hit in before["hits"] if hit["id"] != shared["id"]] != []
    assert after["used_ids"] == [own["id"]]
    rest = {name for name in FIELDS if name not in ("hits", "used_ids")}
    assert {name: after[name] for name in rest} == {name: before[name] for name in rest}
    assert after["hit_count"] == 2


async def test_an_erased_experience_leaves_the_log_too(client: httpx.AsyncClient, user: str) -> None:
    condition = {"field": "sea", "operator": "eq", "value": "calm"}
    written = await client.post("/v1/experiences", json={"user_id": user, "conditions": [condition], "action": "row"})
    lesson = written.json()["experience"]["id"]
    await client.post("/v1/experiences/query", json={"user_id": user, "state": {"sea": "calm"}})
    assert [hit["id"] for hit in (await page(client, user))["items"][0]["hits"]] == [lesson]
    assert (await client.delete(f"/v1/experiences/{lesson}")).status_code == 204
    (one,) = (await page(client, user))["items"]
    assert (one["hits"], one["hit_count"]) == ([], 1)


async def test_erasing_a_user_removes_what_he_asked_and_no_more(world: World, user: str) -> None:
    client, friend = world.client, new_user("friend")
    ids = await write_many(client, user, ["one", "two"])
    await insert(world, entry(user, "erase me", *ids), entry(friend, "stays", ids[0]))
    gone = (await client.delete(f"/v1/users/{user}")).json()
    assert gone["retrievals"] == 1
    assert await asked(client, user) == []
    (one,) = (await page(client, friend))["items"]
    assert (one["query"], one["hits"]) == ("stays", [])
    assert (await client.delete(f"/v1/users/{user}")).json()["retrievals"] == 0


async def test_a_search_that_another_process_still_holds_does_not_bring_an_erased_memory_back(
    world: World, user: str
) -> None:
    gone, kept = await write(world.client, user, "gone"), await write(world.client, user, "kept")
    log = other_process(world)
    log.note(entry(user, "held back", gone["id"], kept["id"]))
    assert (await world.client.delete(f"/v1/memories/{gone['id']}")).status_code == 204
    await log.flush()
    (one,) = (await page(world.client, user))["items"]
    assert [hit["id"] for hit in one["hits"]] == [kept["id"]]
    assert one["hit_count"] == 2


async def test_a_search_that_another_process_still_holds_does_not_bring_an_erased_user_back(
    world: World, user: str
) -> None:
    log, friend = other_process(world), new_user("friend")
    log.note(entry(user, "my secret illness"))
    world.runtime.retrieval_log.note(entry(user, "held here"))
    log.note(entry(friend, "stays"))
    await world.client.delete(f"/v1/users/{user}")
    log.note(entry(user, "begun anew"))
    await log.flush()
    assert await asked(world.client, user) == ["begun anew"]
    assert await asked(world.client, friend) == ["stays"]
    assert not await world.sql("SELECT 1 FROM retrieval_forgotten r WHERE r::text LIKE %s", f"%{user}%")


async def test_marks_of_erased_users_go_after_some_days(world: World) -> None:
    first, second = new_user(), new_user()
    await world.client.delete(f"/v1/users/{first}")
    mark = retrievals.owner("default", first)
    assert len(await world.sql("SELECT 1 FROM retrieval_forgotten WHERE owner = %s", mark)) == 1
    await world.sql("UPDATE retrieval_forgotten SET at = at - interval '8 days' WHERE owner = %s", mark)
    await world.client.delete(f"/v1/users/{second}")
    assert await world.sql("SELECT 1 FROM retrieval_forgotten WHERE owner = %s", mark) == []


async def test_erasing_waits_for_a_log_that_is_being_written(world: World, user: str) -> None:
    """Between the look for what was erased and the commit of the rows nothing can be erased unseen."""
    memory = await write(world.client, user, "in between")
    row, looked, go = entry(user, "in between", memory["id"]), asyncio.Event(), asyncio.Event()

    async def slow(connection: psycopg.AsyncConnection[Any]) -> None:
        assert await retrievals.lock_owners(connection, {retrievals.owner("default", user)}) == {}
        assert await retrievals.lock_hits(connection, {UUID(memory["id"])}) == {UUID(memory["id"])}
        looked.set()
        await go.wait()
        await retrievals.insert_many(connection, [row])

    writing = asyncio.create_task(world.runtime.postgres.transaction(slow))
    await looked.wait()
    erasing = asyncio.create_task(world.client.delete(f"/v1/memories/{memory['id']}"))
    forgetting = asyncio.create_task(world.runtime.retrieval_log.forget_user("default", user))
    await asyncio.sleep(0.3)
    assert not erasing.done()
    assert not forgetting.done()
    go.set()
    await writing
    assert (await erasing).status_code == 204
    assert await forgetting == 1
    assert await asked(world.client, user) == []


@asynccontextmanager
async def held_users(world: World, user: str) -> AsyncIterator[asyncio.Event]:
    """Somebody else is erasing the user's searches until the event is set; a flush of them has to wait."""
    release, holding = asyncio.Event(), asyncio.Event()
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)

    async def hold(connection: psycopg.AsyncConnection[Any]) -> None:
        await retrievals.forget_user(connection, "default", user, long_ago, long_ago)
        holding.set()
        await release.wait()

    task = asyncio.create_task(world.runtime.postgres.transaction(hold))
    await holding.wait()
    try:
        yield release
    finally:
        release.set()
        await task


# The review.


async def reviewed(settings: Settings, *arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, commands, ["review", *arguments], env=environment(settings))


async def a_month(world: World, user: str) -> dict[str, str]:
    """Four weeks of searches: {name: memory id}."""
    contents = ["often and used", "often and never used", "never found by anyone", "seldom found"]
    ids = dict(zip(("used", "unused", "unseen", "seldom"), await write_many(world.client, user, contents), strict=True))
    await world.sql("UPDATE memory SET created_at = now() - interval '60 days' WHERE user_id = %s", user)
    await world.sql("UPDATE memory SET access_count = 6 WHERE user_id = %s AND id <> %s", user, UUID(ids["unseen"]))
    now = datetime.now(UTC)
    rows = [entry(user, "where is it?", ids["used"], ids["unused"], at=now - timedelta(days=3 * n)) for n in range(6)]
    rows[0] = entry(user, "where is it?", ids["used"], ids["unused"], ids["seldom"], at=now, degraded=["vector"])
    rows += [
        entry(user, query, at=now - timedelta(days=2))
        for query in ("the [red]moon[/red]\x1b[31m", "The [red]moon[/red]\x1b[31m")
    ]
    rows += [
        entry(user, "", at=now, source="experience", filters={"state_fields": ["db.engine"]}),
        entry(user, "too old", at=now - timedelta(days=40)),
    ]
    await insert(world, *rows)
    await world.sql(
        "UPDATE retrieval_log SET used_ids = ARRAY[%s]::uuid[] WHERE id = %s", UUID(ids["used"]), rows[1].id
    )
    return ids


async def test_the_review_shows_what_was_asked_in_vain_what_never_came_and_what_was_never_used(
    world: World, user: str
) -> None:
    ids = await a_month(world, user)
    told = await reviewed(world.settings, "--user", user)
    assert told.exit_code == 0, told.output
    assert "\x1b" not in told.output
    lines = told.output.splitlines()

    def below(title: str) -> str:
        """The table under this title."""
        start = next(n for n, line in enumerate(lines) if title in line)
        return "\n".join(lines[start:]).split("\n\n")[0] if lines[start].strip() else ""

    def row(text: str) -> list[str]:
        (found,) = [line.split() for line in lines if text in line]
        return found

    assert row("moon")[-2] == "2"  # whatever the case, and shown as text
    assert "[red]moon[/red]" in told.output
    assert row('state: ["db.engine"]')[-2] == "1"
    assert "too old" not in told.output
    assert row(ids["unseen"])[1] == user
    assert "never retrieved (1)" in told.output
    assert row(ids["unused"])[-2] == "6"
    assert ids["used"] not in told.output
    assert ids["seldom"] not in told.output
    assert row("vector")[1] == "1"
    assert row("search ")[1:] == ["8", "6", "(75", "%)", "1", "(12", "%)"]
    assert row("experience ")[1:] == ["1", "0", "(0", "%)", "0", "(0", "%)"]


async def test_the_review_as_json_holds_what_the_tables_show(world: World, user: str) -> None:
    ids = await a_month(world, user)
    told = await reviewed(world.settings, "--user", user, "--days", "30", "--json")
    assert told.exit_code == 0, told.output
    assert told.output.count("\n") == 1
    found = json.loads(told.output)
    assert (found["tenant"], found["user_id"]) == ("default", user)
    assert all(found[name].endswith("Z") for name in ("since", "until"))
    empty = {(one["query"].casefold(), one["times"]) for one in found["empty"]}
    assert empty == {("the [red]moon[/red]\x1b[31m", 2), ('state: ["db.engine"]', 1)}
    assert [one["id"] for one in found["never_retrieved"]] == [ids["unseen"]]
    assert found["never_retrieved_count"] == 1
    assert [(one["id"], one["times"], one["user_id"]) for one in found["never_used"]] == [(ids["unused"], 6, user)]
    assert [(one["lane"], one["times"]) for one in found["degraded"]] == [("vector", 1)]
    assert {"name": "search", "retrievals": 8, "with_hits": 6, "used": 1} in found["sources"]
    assert sum(one["retrievals"] for one in found["weeks"]) == 9
    assert all(len(one["name"]) == 10 for one in found["weeks"])


async def test_a_refused_review_prints_no_json(world: World) -> None:
    told = await reviewed(world.settings, "--days", "0", "--json")
    assert told.exit_code != 0
    assert "{" not in told.output


async def test_the_hit_rate_is_told_by_weeks_that_begin_on_monday_in_utc(world: World, user: str) -> None:
    now = datetime.now(UTC)
    monday = (now - timedelta(days=now.weekday() + 7)).replace(hour=0, minute=0, second=0, microsecond=0)
    memory = await write(world.client, user, "x")
    await insert(
        world,
        entry(user, "late on sunday", at=monday - timedelta(seconds=1)),
        entry(user, "on monday", memory["id"], at=monday),
        entry(user, "later", at=monday + timedelta(days=3)),
    )
    told = (await reviewed(world.settings, "--user", user, "--days", "30")).output.splitlines()
    weeks = {line.split()[0]: line.split()[1:4] for line in told if line.strip()[:2] == "20"}
    assert weeks[f"{monday:%Y-%m-%d}"] == ["2", "1", "(50"]
    assert weeks[f"{monday - timedelta(days=7):%Y-%m-%d}"] == ["1", "0", "(0"]


async def test_feedback_without_a_retrieval_and_a_task_count_as_use_too(world: World, user: str) -> None:
    memory = await write(world.client, user, "found and used")
    await insert(world, *(entry(user, "q", memory["id"]) for _ in range(5)))
    assert memory["id"] in (await reviewed(world.settings, "--user", user)).output
    await world.client.post(f"/v1/memories/{memory['id']}/feedback", json={"outcome": "irrelevant"})
    assert memory["id"] in (await reviewed(world.settings, "--user", user)).output
    await world.client.post(f"/v1/memories/{memory['id']}/feedback", json={"outcome": "success"})
    assert memory["id"] not in (await reviewed(world.settings, "--user", user)).output


async def test_the_review_keeps_to_its_user_and_tenant(world: World, user: str) -> None:
    await insert(
        world, entry(user, "mine-alone"), entry(new_user(), "somebody-elses"), entry(user, "elsewhere", tenant="t2")
    )
    mine = (await reviewed(world.settings, "--user", user)).output
    assert ("mine-alone" in mine, "somebody-elses" in mine, "elsewhere" in mine) == (True, False, False)
    other = (await reviewed(world.settings, "--tenant", "t2")).output
    assert ("mine-alone" in other, "elsewhere" in other) == (False, True)


async def test_a_review_of_nothing_says_so(world: World) -> None:
    told = await reviewed(world.settings, "--user", new_user())
    assert told.exit_code == 0
    for line in (
        "Hit rate by week: nothing was asked",
        "Queries that found nothing: none",
        "never used: none",
        "never retrieved: none",
    ):
        assert line in told.output


@pytest.mark.parametrize(
    "arguments", [("--days", "0"), ("--days", "367"), ("--days", "x"), ("--user", "a\ud800"), ("--tenant", "a\0")]
)
async def test_a_bad_option_is_refused(world: World, arguments: tuple[str, ...]) -> None:
    told = await reviewed(world.settings, *arguments)
    assert isinstance(told.exception, SetupRefused | SystemExit), told.exception  # said in a line, no traceback
    assert arguments[0] in f"{told.exception}{told.output}"


async def test_ids_are_shown_whole_whatever_stands_beside_them(world: World) -> None:
    user = new_user("x" * 110)
    memory = await write(world.client, user, "记忆" * 200)
    await insert(world, *(entry(user, "q" * 5000, memory["id"]) for _ in range(5)), entry(user, "q" * 5000))
    told = (await reviewed(world.settings, "--user", user)).output
    assert memory["id"] in told
    assert max(map(len, told.splitlines()[1:])) <= 100


async def test_an_erased_memory_does_not_turn_its_searches_into_empty_ones(world: World, user: str) -> None:
    memory = await write(world.client, user, "soon gone heron")
    await search(world.client, user, "heron")
    await world.client.delete(f"/v1/memories/{memory['id']}")
    assert (
        json.loads((await world.client.get("/v1/retrievals", params={"user_id": user})).text)["items"][0]["hits"] == []
    )
    assert "Queries that found nothing: none" in (await reviewed(world.settings, "--user", user)).output


def test_an_owner_can_not_be_read_from_a_mark() -> None:
    one, user = str(uuid4()), str(uuid4())
    assert len({retrievals.owner(one, user), retrievals.owner(user, one), retrievals.owner(one + user, "")}) == 3
    assert user.encode() not in retrievals.owner(one, user)
