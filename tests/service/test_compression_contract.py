"""Old memories become summaries: what is kept, what is found, and that nothing of an erased one stays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import httpx
import pytest
from service_running import (
    Backends,
    World,
    found,
    indexed,
    listed,
    new_user,
    new_word,
    problem_of,
    proxied,
    search,
    serving,
    until,
)

from memory_service.errors import StoreUnavailable
from memory_service.lifecycle.report import JobReport, JobRun
from tests.unit.models.language_server import language_server, saying

MARCH = datetime(2026, 3, 2, 9, tzinfo=UTC)
CITIES = ("Berlin", "Paris", "Berlin", "Oslo", "Berlin", "Paris", "Rome", "Berlin", "Paris", "Berlin")


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = MARCH

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture(scope="module")
async def aged(backends: Backends) -> AsyncIterator[tuple[World, Clock]]:
    clock = Clock()
    async with serving(backends.new_settings(), clock=clock) as world:
        yield world, clock


@pytest.fixture
def world(aged: tuple[World, Clock]) -> World:
    return aged[0]


@pytest.fixture
def clock(aged: tuple[World, Clock]) -> Clock:
    aged[1].now = MARCH
    return aged[1]


def weather_call(city: str, ms: int = 200, **fields: Any) -> dict[str, Any]:
    return {"tool": "weather_api", "arguments": {"city": city}, "status": "success", "duration_ms": ms, **fields}


async def write_weather(
    world: World, clock: Clock, user: str, cities: tuple[str, ...] = CITIES, **fields: Any
) -> list[str]:
    """One call a day from the clock's day on; their ids."""
    ids = []
    for city in cities:
        body = {
            "user_id": user, "content": f"Called the weather API for {city} on {clock.now:%d %B}", "infer": False,
            "event_type": "tool_result", "outcome": "success", "tool_calls": [weather_call(city, 190 + 20 * (len(ids) % 2))],
            **fields,
        }  # fmt: skip
        answer = await world.client.post("/v1/memories", json=body)
        assert answer.status_code == 201, answer.text
        ids.append(answer.json()["memory"]["id"])
        clock.now += timedelta(days=1)
    await indexed(world.client, user)
    return ids


async def job(world: World, name: str, *, dry_run: bool = False, tenant: str = "default") -> JobReport:
    """The job as the schedule runs it."""
    one = world.runtime.schedule._jobs[name]
    return await one.run(JobRun(tenant, world.runtime.clock(), dry_run, 100))


async def grown_cold(world: World, clock: Clock, user: str, days: int = 165) -> None:
    clock.now = MARCH + timedelta(days=days)
    await job(world, "decay")
    await indexed(world.client, user)


async def compressed(world: World, clock: Clock, user: str, **fields: Any) -> tuple[list[str], dict[str, Any]]:
    """Ten weather calls of March that went cold and became one: the ids of the ten, and the summary."""
    ids = await write_weather(world, clock, user, **fields)
    await grown_cold(world, clock, user)
    report = await job(world, "compress")
    assert report.done >= len(ids)
    return ids, await summary_of(world, ids[0])


async def read(world: World, memory_id: str) -> dict[str, Any]:
    answer = await world.client.get(f"/v1/memories/{memory_id}")
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


async def summary_of(world: World, source_id: str) -> dict[str, Any]:
    source = await read(world, source_id)
    assert source["state"] == "compressed", source
    return await read(world, source["superseded_by"])


async def sources_of(world: World, summary_id: str) -> set[str]:
    answer = await world.client.get(f"/v1/memories/{summary_id}/related", params={"limit": 100})
    return {
        i["memory"]["id"]
        for i in answer.json()["items"]
        if (i["relation_type"], i["direction"]) == ("compressed_into", "in")
    }


async def everywhere(world: World, text: str) -> list[str]:
    """Tables in which the text still stands."""
    tables = await world.sql(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' AND table_type = 'BASE TABLE'"
    )
    hits = []
    for (table,) in tables:
        ((count,),) = await world.sql(f'SELECT count(*) FROM "{table}" AS t WHERE t::text LIKE %s', f"%{text}%")
        hits += [table] if count else []
    return hits


async def vectorless(world: World, *ids: str) -> None:
    """Waits until the relay has removed the vectors of what was erased: no list tells that it has yet to."""

    async def done() -> bool:
        return await world.runtime.index.vectors_of([UUID(one) for one in ids]) == []

    await until(done)


async def nowhere(world: World, user: str) -> None:
    """Waits until nothing names the user; the outbox does until the relay has removed the vectors and copies."""

    async def done() -> bool:
        left = await everywhere(world, user)
        assert set(left) <= {"index_outbox"}
        return not left

    await until(done)


# The cycle.


async def test_ten_old_calls_become_one_memory_that_keeps_count_rate_duration_and_month(
    world: World, clock: Clock, user: str
) -> None:
    ids, summary = await compressed(world, clock, user)
    assert summary["summary"] == "weather_api called 10 times, 10 succeeded, 200 ms on average, March 2026."
    assert (summary["kind"], summary["event_type"], summary["state"], summary["outcome"]) == (
        "episodic",
        "tool_result",
        "active",
        "success",
    )
    assert summary["metadata"]["compressed"]["times"] == 10
    assert "Arguments: city: Berlin ×5, Paris ×3, Oslo, Rome" in summary["content"]
    assert await sources_of(world, summary["id"]) == set(ids)
    await indexed(world.client, user)
    assert await found(world.client, user, "how often was the weather API called?") == [summary["content"]]
    assert await found(world.client, user, "weather API Oslo", include_cold=True) == [summary["content"]]
    assert [m["id"] for m in await listed(world.client, user, include_cold=True)] == [summary["id"]]
    history = (await world.client.get(f"/v1/memories/{ids[0]}/history")).json()["items"]
    assert [(i["cause"], i["actor"]) for i in history][:2] == [("compress", "job:compress"), ("decay", "job:decay")]
    answer = await search(world.client, user, "weather", as_of=(MARCH + timedelta(days=20)).isoformat())
    assert [r["id"] for r in answer["results"]] == [summary["id"]]


async def test_it_is_chinese_when_the_sources_are(world: World, clock: Clock, user: str) -> None:
    ids = []
    for day, city in enumerate(("北京", "上海", "北京", "广州")):
        body = {"user_id": user, "content": f"调用天气接口查询{city}第{day}天的天气，返回成功", "infer": False, "event_type": "tool_result",
                "tool_calls": [weather_call(city)]}  # fmt: skip
        ids.append((await world.client.post("/v1/memories", json=body)).json()["memory"]["id"])
    await indexed(world.client, user)
    await grown_cold(world, clock, user)
    await job(world, "compress")
    summary = await summary_of(world, ids[0])
    assert summary["summary"] == "weather_api 调用 4 次，成功 4 次，平均 200 毫秒，2026年3月2日。"
    assert "参数：city: 北京 ×2, 上海, 广州" in summary["content"]


async def lonely(world: World, user: str, count: int) -> None:
    """Old memories that nothing is like: each by another tool."""
    for n in range(count):
        body = {"user_id": user, "content": f"tool {n} said something", "infer": False, "event_type": "tool_result",
                "tool_calls": [{"tool": f"tool_{n}", "arguments": {}, "status": "success"}]}  # fmt: skip
        assert (await world.client.post("/v1/memories", json=body)).status_code == 201


@pytest.mark.parametrize(("windows_max", "weeks"), [(5, 1), (1, 4)])
async def test_lonely_memories_do_not_keep_newer_ones_from_being_compressed(
    world: World, clock: Clock, user: str, monkeypatch: pytest.MonkeyPatch, windows_max: int, weeks: int
) -> None:
    """Eight that stay as they are, four read at once, and four that are alike behind them."""
    one = world.runtime.schedule._jobs["compress"].run.__self__  # type: ignore[attr-defined]
    few = one._numbers.model_copy(update={"candidates_max": 4, "windows_max": windows_max})
    monkeypatch.setattr(one, "_numbers", few)
    await lonely(world, user, 8)
    clock.now += timedelta(days=1)
    ids = await write_weather(world, clock, user, CITIES[:4])
    await grown_cold(world, clock, user, days=200)
    for _ in range(weeks):
        await job(world, "compress")
        clock.now += timedelta(days=7)
    assert {(await read(world, one_id))["state"] for one_id in ids} == {"compressed"}
    assert len({(await read(world, one_id))["superseded_by"] for one_id in ids}) == 1
    assert len(await listed(world.client, user, include_cold=True)) == 9


async def test_a_second_run_changes_nothing(world: World, clock: Clock, user: str) -> None:
    _, summary = await compressed(world, clock, user)
    await indexed(world.client, user)
    assert (await job(world, "compress")).done == 0
    assert {**await read(world, summary["id"]), "index": None} == {**summary, "index": None}


async def test_a_dry_run_says_what_and_why_and_changes_nothing(world: World, clock: Clock, user: str) -> None:
    ids = await write_weather(world, clock, user)
    await grown_cold(world, clock, user)
    report = await job(world, "compress", dry_run=True)
    mine = [i for i in report.items if i.user_id == user]
    assert {str(i.id) for i in mine} == set(ids)
    assert mine[0].why == "heat below 0.1 and untouched for 90 days; one of 10 alike"
    assert {(await read(world, i))["state"] for i in ids} == {"cold"}


async def test_the_route_tells_what_it_would_do_and_then_does_it(world: World, clock: Clock, user: str) -> None:
    ids = await write_weather(world, clock, user, CITIES[:4])
    await grown_cold(world, clock, user)
    for dry, state in ((True, "cold"), (False, "compressed")):
        answer = await world.client.post("/v1/maintenance/compress", params={"dry_run": dry})
        assert answer.status_code == 200, answer.text
        assert {i["id"] for i in answer.json()["items"] if i["user_id"] == user} == set(ids)
        assert {(await read(world, i))["state"] for i in ids} == {state}


async def test_what_is_warm_pinned_touched_ending_or_disputed_is_left_alone(
    world: World, clock: Clock, user: str
) -> None:
    ids = await write_weather(world, clock, user)
    await grown_cold(world, clock, user, days=100)  # heat .22: cold, but not yet to be compressed
    assert (await job(world, "compress", dry_run=True)).done == 0
    clock.now = MARCH + timedelta(days=170)
    assert (await world.client.post(f"/v1/memories/{ids[0]}/pin")).status_code == 200
    assert (await world.client.patch(f"/v1/memories/{ids[1]}", json={"tags": ["mine"]})).status_code == 200
    assert (
        await world.client.patch(f"/v1/memories/{ids[2]}", json={"expires_at": "2030-01-01T00:00:00Z"})
    ).status_code == 200
    await indexed(world.client, user)
    await job(world, "compress")
    assert {(await read(world, i))["state"] for i in ids[:3]} == {"cold"}
    assert {(await read(world, i))["state"] for i in ids[3:]} == {"compressed"}


async def test_users_are_never_mixed_and_tenants_neither(world: World, clock: Clock) -> None:
    one, other = new_user(), new_user()
    mine = await write_weather(world, clock, one, CITIES[:5])
    clock.now = MARCH
    theirs = await write_weather(world, clock, other, CITIES[:2])  # two alike are too few, with the five they would do
    await grown_cold(world, clock, one)
    await indexed(world.client, other)
    assert (await job(world, "compress", tenant="another")).done == 0
    await job(world, "compress")
    summary = await summary_of(world, mine[0])
    assert await sources_of(world, summary["id"]) == set(mine)
    assert {(await read(world, i))["state"] for i in theirs} == {"cold"}


async def test_what_grows_cold_later_joins_the_summary_of_that_time(world: World, clock: Clock, user: str) -> None:
    early = await write_weather(world, clock, user, CITIES[:4])
    late = await write_weather(world, clock, user, CITIES[4:6])
    await grown_cold(world, clock, user, days=156)
    await job(world, "compress")
    summary = await summary_of(world, early[0])
    await indexed(world.client, user)
    clock.now = MARCH + timedelta(days=163)
    await job(world, "compress")
    after = await summary_of(world, late[0])
    assert after["id"] == summary["id"]
    assert after["summary"].startswith("weather_api called 6 times")
    assert after["version"] > summary["version"]
    assert await sources_of(world, summary["id"]) == {*early, *late}


async def test_events_that_go_on_being_repeated_are_compressed_before_they_are_cold(
    world: World, clock: Clock, user: str
) -> None:
    ids = await write_weather(world, clock, user, CITIES[:6])
    failed = await write_weather(
        world,
        clock,
        user,
        CITIES[:2],
        outcome="failure",
        tool_calls=[weather_call("Rome", status="error", error="timeout")],
    )
    clock.now = MARCH + timedelta(days=9)
    assert (await job(world, "compress", dry_run=True)).done == 0  # some are younger than a week
    clock.now = MARCH + timedelta(days=20)
    report = await job(world, "compress")
    assert report.items[0].why == "the same event again and again, older than 7 days; one of 6 alike"
    assert {(await read(world, i))["state"] for i in ids} == {"compressed"}
    assert {(await read(world, i))["state"] for i in failed} == {"active"}


# Taking apart.


async def test_a_restored_source_is_back_and_the_summary_is_made_anew_without_it(
    world: World, clock: Clock, user: str
) -> None:
    ids, summary = await compressed(world, clock, user)
    answer = await world.client.post(f"/v1/memories/{ids[3]}/restore")
    assert answer.status_code == 200, answer.text
    back = answer.json()
    assert (back["state"], back["superseded_by"], back["heat"]) == ("active", None, 1.0)
    problem_of(await world.client.get(f"/v1/memories/{summary['id']}"), 404)
    after = await summary_of(world, ids[0])
    assert after["summary"].startswith("weather_api called 9 times, 9 succeeded")
    assert "Oslo" not in json.dumps(after, ensure_ascii=False)
    assert await sources_of(world, after["id"]) == set(ids) - {ids[3]}
    await indexed(world.client, user)
    assert set(await found(world.client, user, "weather API Oslo")) == {back["content"], after["content"]}
    clock.now += timedelta(days=10)
    await job(world, "compress")
    assert (await read(world, ids[3]))["state"] == "active"  # who fetched it wants it as it is


async def test_an_erased_source_leaves_no_word_in_summary_versions_vectors_or_answers(
    world: World, clock: Clock, user: str
) -> None:
    secret = new_word("flamingo")
    ids = await write_weather(world, clock, user, CITIES[:5])
    (told,) = await write_weather(
        world, clock, user, (secret,), tags=[secret], entities=[secret], metadata={"k": secret}
    )
    await grown_cold(world, clock, user)
    await job(world, "compress")
    summary = await summary_of(world, ids[0])
    assert secret in json.dumps(summary)
    assert (await world.client.delete(f"/v1/memories/{told}")).status_code == 204
    problem_of(await world.client.get(f"/v1/memories/{summary['id']}"), 404)
    after = await summary_of(world, ids[0])
    assert after["summary"].startswith("weather_api called 5 times")
    assert await everywhere(world, secret) == []
    await vectorless(world, told, summary["id"])
    assert await found(world.client, user, secret, mode="keyword") == []


async def test_a_summary_of_too_few_is_dropped_and_the_last_source_is_as_it_was(
    world: World, clock: Clock, user: str
) -> None:
    ids = await write_weather(world, clock, user, CITIES[:3])
    await grown_cold(world, clock, user)
    await job(world, "compress")
    for gone in ids[:2]:
        assert (await world.client.delete(f"/v1/memories/{gone}")).status_code == 204
    last = await read(world, ids[2])
    assert (last["state"], last["superseded_by"]) == ("cold", None)
    assert [m["id"] for m in await listed(world.client, user, include_cold=True)] == [ids[2]]


async def test_erasing_a_summary_erases_what_it_was_made_from(world: World, clock: Clock, user: str) -> None:
    ids, summary = await compressed(world, clock, user)
    await world.client.post(f"/v1/memories/{ids[0]}/restore")
    summary = await summary_of(world, ids[1])
    assert (await world.client.delete(f"/v1/memories/{summary['id']}")).status_code == 204
    for gone in ids[1:]:
        problem_of(await world.client.post(f"/v1/memories/{gone}/restore"), 410)
    assert (await read(world, ids[0]))["state"] == "active"
    assert (await job(world, "compress")).done == 0


async def test_an_erased_user_leaves_nothing(world: World, clock: Clock, user: str) -> None:
    await compressed(world, clock, user)
    answer = await world.client.delete(f"/v1/users/{user}")
    assert answer.json()["memories"] == 11
    await nowhere(world, user)


async def test_all_sources_erased_at_once_leave_no_summary(world: World, clock: Clock, user: str) -> None:
    ids, _ = await compressed(world, clock, user)
    answers = await asyncio.gather(*(world.client.delete(f"/v1/memories/{i}") for i in ids))
    assert {a.status_code for a in answers} == {204}
    assert await listed(world.client, user, include_cold=True) == []
    await nowhere(world, user)


async def test_erasing_and_compressing_at_once_leave_no_summary_of_the_erased(
    world: World, clock: Clock, user: str
) -> None:
    ids = await write_weather(world, clock, user)
    await grown_cold(world, clock, user)
    deleting = [world.client.delete(f"/v1/memories/{i}") for i in ids[:5]]
    _, *answers = await asyncio.gather(job(world, "compress"), *deleting)
    assert {a.status_code for a in answers} == {204}  # type: ignore[union-attr]
    await job(world, "compress")
    for memory in await listed(world.client, user, include_cold=True):
        assert not (await sources_of(world, memory["id"])) & set(ids[:5])
        if "compressed" in memory["metadata"]:
            assert memory["metadata"]["compressed"]["times"] == len(await sources_of(world, memory["id"]))


async def test_a_transaction_that_dies_while_erasing_leaves_source_and_summary_as_they_were(
    world: World, clock: Clock, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like a kill between the two: they are one transaction."""
    ids, summary = await compressed(world, clock, user)
    families = world.runtime.writer._erasing

    async def dies(*_: Any) -> None:
        raise StoreUnavailable("postgres")

    monkeypatch.setattr(families, "_remade", dies)
    assert (await world.client.delete(f"/v1/memories/{ids[0]}")).status_code == 503
    assert (await summary_of(world, ids[0]))["id"] == summary["id"]


async def test_a_summary_that_somebody_edited_is_not_overwritten_by_newcomers(
    world: World, clock: Clock, user: str
) -> None:
    early = await write_weather(world, clock, user, CITIES[:4])
    late = await write_weather(world, clock, user, CITIES[4:6])
    await grown_cold(world, clock, user, days=156)
    await job(world, "compress")
    summary = await summary_of(world, early[0])
    await world.client.patch(f"/v1/memories/{summary['id']}", json={"content": "my own words"})
    await indexed(world.client, user)
    clock.now = MARCH + timedelta(days=163)
    await job(world, "compress")
    assert (await read(world, summary["id"]))["content"] == "my own words"
    assert (await read(world, late[0]))["state"] == "cold"


# Failures.


async def test_without_qdrant_the_job_fails_and_nothing_is_half_done(backends: Backends, user: str) -> None:
    clock = Clock()
    async with (
        proxied(backends.urls.qdrant_url) as proxy,
        serving(backends.new_settings(qdrant_url=proxy.url), clock=clock) as world,
    ):
        ids = await write_weather(world, clock, user)
        await grown_cold(world, clock, user)
        await proxy.cut()
        with pytest.raises(StoreUnavailable):
            await job(world, "compress")
        assert proxy.refused > 0
        assert {(await read(world, i))["state"] for i in ids} == {"cold"}
        await proxy.heal()
        assert (await job(world, "compress")).done == len(ids)


@asynccontextmanager
async def talking_world(backends: Backends, text: dict[str, str]) -> AsyncIterator[tuple[World, Clock]]:
    clock = Clock()
    async with language_server(then=saying(text)) as endpoint:
        settings = backends.new_settings(llm_base_url=endpoint.url, llm_model="m")
        async with serving(settings, clock=clock) as world:
            yield world, clock


@pytest.mark.parametrize("honest", [True, False])
async def test_a_models_words_are_taken_only_when_they_keep_the_numbers(
    backends: Backends, user: str, honest: bool
) -> None:
    count = "10" if honest else "about a dozen"
    said = (
        f"In March 2026 weather_api was called {count} times, mostly for Berlin; all 10 succeeded, 200 ms on average."
    )
    if not honest:
        said = said.replace("all 10", "nearly all")
    async with talking_world(backends, {"summary": said, "content": said}) as (world, clock):
        _, summary = await compressed(world, clock, user)
        head = "weather_api called 10 times, 10 succeeded, 200 ms on average, March 2026."
        assert summary["summary"] == (said if honest else head)
        assert summary["content"].startswith(head)
        assert summary["metadata"]["compressed"]["by"] == ("model" if honest else "rules")


async def test_a_summary_that_is_moved_takes_its_sources_along(
    world: World, clock: Clock, backends: Backends, user: str
) -> None:
    ids, summary = await compressed(world, clock, user)
    exported = (await world.client.get("/v1/export", params={"user_id": user})).text
    async with serving(backends.new_settings(), clock=clock) as other:
        client: httpx.AsyncClient = other.client
        answer = await client.post("/v1/import", content=exported, headers={"content-type": "application/x-ndjson"})
        assert answer.json()["refused"] == []
        assert (await read(other, ids[0]))["superseded_by"] == summary["id"]
        assert (await client.delete(f"/v1/memories/{ids[0]}")).status_code == 204
        after = await summary_of(other, ids[1])
        assert after["summary"].startswith("weather_api called 9 times")


# Changing a source.


async def test_a_corrected_source_is_told_anew_and_its_old_text_lives_on_in_no_summary(
    world: World, clock: Clock, user: str
) -> None:
    secret = new_word("flamingo")
    (told,) = await write_weather(
        world, clock, user, ("Oslo",), content=f"Called the weather API for {secret} on 01 March", tags=[secret]
    )
    ids = await write_weather(world, clock, user, CITIES[:5])
    await grown_cold(world, clock, user)
    await job(world, "compress")
    summary = await summary_of(world, ids[0])
    assert secret in summary["content"]
    assert secret in summary["tags"]
    patch = {"content": "Called the weather API for Oslo", "summary": "Called it for Oslo", "tags": ["asked"]}
    answer = await world.client.patch(f"/v1/memories/{told}", json=patch)
    assert (answer.status_code, answer.json()["state"]) == (200, "compressed")
    problem_of(await world.client.get(f"/v1/memories/{summary['id']}"), 404)
    after = await summary_of(world, told)
    assert after["summary"].startswith("weather_api called 6 times")
    assert "asked" in after["tags"]
    assert await sources_of(world, after["id"]) == {*ids, told}
    # the source's own history tells what was changed; nothing else may
    assert set(await everywhere(world, secret)) == {"memory_version"}
    assert await world.sql(
        "SELECT count(*) FROM memory_version WHERE memory_id <> %s AND snapshot::text LIKE %s", told, f"%{secret}%"
    ) == [(0,)]
    await vectorless(world, summary["id"])
    assert await found(world.client, user, secret, mode="keyword", include_cold=True) == []

    before = await read(world, told)
    answer = await world.client.post(f"/v1/memories/{told}/rollback", json={"version": before["version"] - 1})
    assert answer.status_code == 200, answer.text
    assert secret in json.dumps(await summary_of(world, told))  # who brings it back has it back, in both
    problem_of(await world.client.get(f"/v1/memories/{after['id']}"), 404)
    assert (await world.client.delete(f"/v1/memories/{told}")).status_code == 204
    assert set(await everywhere(world, secret)) <= {"retrieval_log"}  # it was searched for above
    assert (await summary_of(world, ids[0]))["summary"].startswith("weather_api called 5 times")


async def test_a_change_that_the_summary_does_not_tell_leaves_it_as_it_is(
    world: World, clock: Clock, user: str
) -> None:
    ids, summary = await compressed(world, clock, user)
    assert (await world.client.patch(f"/v1/memories/{ids[0]}", json={"metadata": {"k": 1}})).status_code == 200
    assert (await world.client.patch(f"/v1/memories/{ids[1]}", json={"related_ids": [ids[2]]})).status_code == 200
    assert (await summary_of(world, ids[0]))["id"] == summary["id"]


async def test_a_source_that_is_given_an_end_leaves_the_summary_which_has_none(
    world: World, clock: Clock, user: str
) -> None:
    ids, summary = await compressed(world, clock, user)
    end = (clock.now + timedelta(days=1)).isoformat()
    answer = await world.client.patch(f"/v1/memories/{ids[3]}", json={"expires_at": end})
    assert (answer.status_code, answer.json()["state"], answer.json()["superseded_by"]) == (200, "cold", None)
    problem_of(await world.client.get(f"/v1/memories/{summary['id']}"), 404)
    after = await summary_of(world, ids[0])
    assert after["summary"].startswith("weather_api called 9 times")
    assert "Oslo" not in json.dumps(after)
    assert await sources_of(world, after["id"]) == set(ids) - {ids[3]}


async def test_sources_changed_erased_and_restored_at_once_leave_a_summary_of_what_is_left(
    world: World, clock: Clock, user: str
) -> None:
    ids, _ = await compressed(world, clock, user)
    client = world.client
    calls = [
        *(client.patch(f"/v1/memories/{i}", json={"content": f"Asked for the weather {n}"}) for n, i in enumerate(ids[:4])),
        *(client.delete(f"/v1/memories/{i}") for i in ids[4:6]),
        *(client.post(f"/v1/memories/{i}/restore") for i in ids[6:8]),
    ]  # fmt: skip
    answers = await asyncio.gather(*calls, job(world, "compress"))
    assert [a.status_code for a in answers[:-1]] == [200] * 4 + [204] * 2 + [200] * 2  # type: ignore[union-attr]
    after = await summary_of(world, ids[0])
    assert await sources_of(world, after["id"]) == {*ids[:4], *ids[8:]}
    assert after["metadata"]["compressed"]["memories"] == 6


async def test_a_source_that_an_import_replaces_is_told_anew_too(
    world: World, clock: Clock, backends: Backends, user: str
) -> None:
    secret = new_word("flamingo")
    told, *_ = await write_weather(world, clock, user, (secret, *CITIES[:4]), tool_calls=[weather_call("Oslo")])
    await grown_cold(world, clock, user)
    await job(world, "compress")
    old = await summary_of(world, told)
    assert secret in old["content"]
    ndjson = {"content-type": "application/x-ndjson"}
    async with serving(backends.new_settings(), clock=clock) as other:
        first = (await world.client.get("/v1/export", params={"user_id": user})).text
        assert (await other.client.post("/v1/import", content=first, headers=ndjson)).json()["refused"] == []
        patch = {"content": "Called the weather API", "summary": "Called it"}
        assert (await world.client.patch(f"/v1/memories/{told}", json=patch)).status_code == 200
        second = (await world.client.get("/v1/export", params={"user_id": user})).text
        assert (await other.client.post("/v1/import", content=second, headers=ndjson)).json()["refused"] == []
        problem_of(await other.client.get(f"/v1/memories/{old['id']}"), 404)
        assert set(await everywhere(other, secret)) <= {"memory_version"}
        assert (await read(other, told))["content"] == "Called the weather API"
