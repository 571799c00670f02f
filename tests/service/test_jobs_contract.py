"""Maintenance jobs: when they run, who runs them, what they tell, and what becomes of memories."""

# ruff: noqa: E501 - tables: one case reads best on one line

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from service_running import (
    Backends,
    World,
    found,
    indexed,
    new_user,
    numbers,
    problem_of,
    serving,
    until,
    write,
    write_many,
)
from test_relay_contract import environment
from typer.testing import CliRunner

from memory_service.__main__ import app as commands
from memory_service.errors import StoreUnavailable
from memory_service.jobs.job import Job, JobNumbers
from memory_service.jobs.schedule import Schedule
from memory_service.jobs.timing import parse_timing
from memory_service.lifecycle.report import JobItem, JobReport, JobRun
from memory_service.stores.postgres.locks import lock_key

DAY = timedelta(days=1)


class FakeClock:
    """Time that the test moves."""

    def __init__(self, now: datetime | None = None) -> None:
        self.now = now or datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.now

    def move(self, **ahead: float) -> None:
        self.now += timedelta(**ahead)


@asynccontextmanager
async def aged_world(backends: Backends, **changed: Any) -> AsyncIterator[tuple[World, FakeClock]]:
    """A service whose clock the test moves."""
    clock, settings = FakeClock(), backends.new_settings()
    async with serving(settings, clock=clock, tunables=numbers(settings, **changed)) as world:
        yield world, clock


async def run_job(client: httpx.AsyncClient, job: str, *, dry_run: bool = False) -> dict[str, Any]:
    answer = await client.post(f"/v1/maintenance/{job}", params={"dry_run": "true"} if dry_run else None)
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


async def states(world: World, ids: list[str]) -> list[tuple[str, int]]:
    rows = await world.sql("SELECT id, state, version FROM memory WHERE id = ANY(%s)", [UUID(i) for i in ids])
    by_id = {str(row[0]): (row[1], row[2]) for row in rows}
    return [by_id[i] for i in ids]


def made_up(world: World, clock: FakeClock, *jobs: Job, **changed: Any) -> Schedule:
    """A schedule of jobs of the test's own, over the world's database."""
    own = world.runtime.tunables.section("jobs", JobNumbers).model_copy(update=changed)
    return Schedule(world.runtime.postgres, jobs, own, clock)


def counting(name: str = "counted", schedule: str = "hourly :07", **fault: Any) -> tuple[Job, list[JobRun]]:
    """A job that remembers its runs; `raises` or `waits`."""
    seen: list[JobRun] = []

    async def work(run: JobRun) -> JobReport:
        seen.append(run)
        if "waits" in fault:
            await asyncio.sleep(fault["waits"])
        if "raises" in fault:
            raise fault["raises"]
        return JobReport(1, [JobItem(uuid4(), "ana", "because")], {"looked_at": 1})

    return Job(name, parse_timing(schedule), "count", work), seen


# --- decay


async def test_a_dry_run_of_decay_tells_what_and_why_and_changes_nothing(backends: Backends, user: str) -> None:
    async with aged_world(backends) as (world, clock):
        old = await write_many(world.client, user, [f"an old thing {i}" for i in range(3)], wait=True)
        clock.move(days=84)
        new = await write(world.client, user, "a new thing")
        before = await world.sql("SELECT * FROM memory ORDER BY id")
        answer = await run_job(world.client, "decay", dry_run=True)
        assert (answer["job"], answer["dry_run"], answer["outcome"], answer["done"]) == ("decay", True, "success", 3)
        assert answer["summary"] == "would archive 3: heat 0.28 is below 0.3"
        assert {i["id"] for i in answer["items"]} == set(old)
        assert {(i["user_id"], i["why"]) for i in answer["items"]} == {(user, "heat 0.28 is below 0.3")}
        assert await world.sql("SELECT * FROM memory ORDER BY id") == before
        assert await world.sql("SELECT count(*) FROM memory_version") == [(0,)]
        assert new["id"] not in str(answer)


async def test_decay_archives_what_has_cooled_and_its_vectors_leave_every_search(backends: Backends, user: str) -> None:
    async with aged_world(backends) as (world, clock):
        client = world.client
        (cold,) = await write_many(client, user, ["the lighthouse keeper is called Runa"], wait=True)
        pinned, used = await write_many(client, user, ["the lighthouse is pinned", "the lighthouse is used"])
        await client.post(f"/v1/memories/{pinned}/pin")
        clock.move(days=70)
        await client.post(f"/v1/memories/{used}/feedback", json={"outcome": "success"})
        clock.move(days=14)
        answer = await run_job(client, "decay")
        assert (answer["done"], answer["summary"]) == (1, "archived 1: heat 0.28 is below 0.3")
        assert await states(world, [cold, pinned, used]) == [("cold", 2), ("active", 2), ("active", 1)]
        history = (await client.get(f"/v1/memories/{cold}/history")).json()["items"]
        assert (history[0]["cause"], history[0]["actor"]) == ("decay", "job:decay")
        assert history[0]["changes"]["state"] == {"from": "active", "to": "cold"}
        await indexed(client, user)
        assert "the lighthouse keeper is called Runa" not in await found(
            client, user, "lighthouse keeper Runa", limit=10
        )
        assert "the lighthouse keeper is called Runa" in await found(
            client, user, "lighthouse keeper Runa", limit=10, include_cold=True
        )
        again = await run_job(client, "decay")
        assert (again["done"], again["summary"]) == (0, "nothing to archive")
        back = (await client.post(f"/v1/memories/{cold}/restore")).json()
        assert (back["state"], back["heat"]) == ("active", 1.0)


async def test_decay_leaves_both_sides_of_an_open_conflict_until_somebody_decides(
    backends: Backends, user: str
) -> None:
    async with aged_world(backends) as (world, clock):
        for name in ("Rex", "Bello"):
            said = {"user_id": user, "content": f"My dog is called {name}.", "kind": "semantic"}
            answer = (await world.client.post("/v1/memories", json=said)).json()
        assert answer["status"] == "conflict"
        clock.move(days=200)
        assert (await run_job(world.client, "decay"))["done"] == 0
        resolved = await world.client.post(f"/v1/conflicts/{answer['conflict_id']}/resolve", json={"keep": "both"})
        assert resolved.status_code == 200
        assert (await run_job(world.client, "decay"))["done"] == 2


async def test_decay_finds_exactly_what_the_formula_says_whatever_the_heat_and_its_time(
    backends: Backends, user: str
) -> None:
    async with aged_world(backends) as (world, clock):
        ids = await write_many(world.client, user, [f"thing number {i}" for i in range(300)])
        heat = world.runtime.tunables.heat
        await world.sql(
            """UPDATE memory SET heat = CASE WHEN r < 0.3 THEN 1.0 WHEN r < 0.35 THEN 0 ELSE power(10, r * 4 - 3) END, heat_at = %s::timestamptz - random() * interval '250 days'
               FROM (SELECT id AS one, random() AS r FROM memory) AS x WHERE id = x.one""",
            clock.now,
        )
        rows = await world.sql("SELECT id, heat, heat_at FROM memory")
        expected = {
            str(one)
            for one, value, at in rows
            if value * heat.decay ** ((clock.now - at) / timedelta(days=heat.decay_days)) < heat.cold_below
        }
        assert 30 < len(expected) < 270
        assert (await run_job(world.client, "decay", dry_run=True))["done"] == len(expected)
        answer = await run_job(world.client, "decay")
        assert answer["done"] == len(expected)
        assert len(answer["items"]) == min(len(expected), 100)
        cold = {str(row[0]) for row in await world.sql("SELECT id FROM memory WHERE state = 'cold'")}
        assert cold == expected
        assert len(ids) == 300


async def test_decay_is_found_by_an_index_and_does_not_read_the_table(backends: Backends, user: str) -> None:
    async with aged_world(backends) as (world, _clock):
        await write_many(world.client, user, [f"thing number {i}" for i in range(300)])
        await world.sql("ANALYZE memory")
        plan = await world.sql(
            """EXPLAIN SELECT id FROM memory WHERE tenant = 'default' AND state = 'active' AND NOT pinned AND conflict_id IS NULL
               AND floor(ln(greatest(heat, 1e-6)) * 10)::integer = 0 AND heat_at <= now() - interval '80 days'"""
        )
        assert "memory_tenant_floor_heat_at_idx" in str(plan), plan


# --- purge


async def test_purge_erases_what_has_expired_for_good_and_trims_what_is_old(backends: Backends, user: str) -> None:
    async with aged_world(backends) as (world, clock):
        client = world.client
        ends = (clock.now + DAY).isoformat()
        goes = await write(client, user, "the door code is 4711", wait=True, expires_at=ends)
        await client.patch(f"/v1/memories/{goes['id']}", json={"category": "codes"})
        stays = await write(client, user, "the door is green", wait=True)
        keyed = await client.post(
            "/v1/memories",
            json={"user_id": user, "content": "kept answer", "infer": False},
            headers={"Idempotency-Key": "k1"},
        )
        assert keyed.status_code == 201
        await found(client, user, "door")
        await world.runtime.retrieval_log.flush()
        clock.move(days=2)
        planned = await run_job(client, "purge", dry_run=True)
        assert planned["counts"] == {
            "memories": 1,
            "lessons": 0,
            "idempotency_keys": 1,
            "retrievals": 0,
            "task_runs": 0,
            "job_runs": 0,
        }
        assert [i["id"] for i in planned["items"]] == [goes["id"]]
        assert planned["items"][0]["why"].startswith("expired 20")
        assert await world.sql("SELECT count(*) FROM memory WHERE id = %s", UUID(goes["id"])) == [(1,)]
        clock.move(minutes=1)
        done = await run_job(client, "purge")
        assert done["counts"] == planned["counts"]
        for table, column in (("memory", "id"), ("memory_version", "memory_id")):
            assert await world.sql(f"SELECT count(*) FROM {table} WHERE {column} = %s", UUID(goes["id"])) == [(0,)]
        assert await world.sql("SELECT count(*) FROM erased WHERE id = %s", UUID(goes["id"])) == [(1,)]
        assert await world.sql("SELECT count(*) FROM idempotency_key") == [(0,)]
        assert (await client.post(f"/v1/memories/{goes['id']}/restore")).status_code == 410
        await until(lambda: point_gone(world, goes["id"]))
        assert (await client.get(f"/v1/memories/{stays['id']}")).status_code == 200
        clock.move(days=200)
        later = await run_job(client, "purge")
        assert later["counts"]["retrievals"] == 1
        assert later["counts"]["job_runs"] == 1  # the dry run; the newest one that counts stays


async def point_gone(world: World, memory_id: str) -> bool:
    return memory_id not in await points(world)


# --- reindex and reconcile


async def qdrant(world: World, method: str, path: str, body: Any = None) -> Any:
    async with httpx.AsyncClient(base_url=world.settings.qdrant_url) as client:
        answer = await client.request(method, f"/collections/{world.settings.qdrant_collection}{path}", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()["result"]


async def points(world: World) -> dict[str, dict[str, Any]]:
    """{point id: payload}."""
    page = await qdrant(world, "POST", "/points/scroll", {"limit": 10_000, "with_payload": True})
    return {p["id"]: p["payload"] for p in page["points"]}


async def settled(world: World) -> None:
    """Until the relay has nothing left to do."""

    async def done() -> bool:
        return await world.sql("SELECT 1 FROM index_outbox WHERE state = 'pending' LIMIT 1") == []

    await until(done)


async def reconciled(world: World, **expected: int) -> dict[str, Any]:
    """A dry run and a run tell the same; what they found is mended afterwards."""
    planned = await run_job(world.client, "reconcile", dry_run=True)
    answer = await run_job(world.client, "reconcile")
    kinds = {k: v for k, v in answer["counts"].items() if v and k not in ("memories_and_lessons", "points")}
    assert kinds == expected, answer
    assert {i["id"]: i["why"] for i in planned["items"]} == {i["id"]: i["why"] for i in answer["items"]}
    await settled(world)
    after = await run_job(world.client, "reconcile")
    assert (after["done"], after["summary"]) == (0, "nothing to repair"), after
    return answer


@pytest.fixture
async def index_world(backends: Backends) -> AsyncIterator[World]:
    async with serving(backends.new_settings()) as world:
        user = new_user()
        await write_many(world.client, user, [f"a memory of the sea, number {i}" for i in range(12)], wait=True)
        lesson = {
            "user_id": user,
            "conditions": [{"field": "sea", "operator": "eq", "value": "rough"}],
            "action": "stay ashore",
        }
        assert (await world.client.post("/v1/experiences", json=lesson)).status_code == 201
        await settled(world)
        yield world


async def test_an_index_that_agrees_needs_no_repair_and_stats_say_so(index_world: World) -> None:
    assert (await index_world.client.get("/v1/stats")).json()["reconcile"] is None
    answer = await reconciled(index_world)
    assert answer["counts"]["memories_and_lessons"] == answer["counts"]["points"] == 13
    stats = (await index_world.client.get("/v1/stats")).json()["reconcile"]
    assert (stats["outcome"], stats["repaired"], stats["missing"], stats["points"]) == ("success", 0, 0, 13)


async def test_a_point_that_is_gone_is_made_again(index_world: World) -> None:
    before = await points(index_world)
    lost = sorted(before)[3:6]
    await qdrant(index_world, "POST", "/points/delete?wait=true", {"points": lost})
    answer = await reconciled(index_world, missing=3)
    assert {i["why"] for i in answer["items"]} == {"no vector"}
    assert await points(index_world) == before


async def test_a_point_of_nothing_that_is_stored_is_removed(index_world: World) -> None:
    before = await points(index_world)
    payload = next(p for p in before.values() if p["kind"] == "episodic")
    orphan = str(uuid4())
    stranger = {"id": orphan, "vector": [0.1] * 384, "payload": {**payload, "memory_id": orphan}}
    await qdrant(index_world, "PUT", "/points?wait=true", {"points": [stranger]})
    answer = await reconciled(index_world, orphaned=1)
    assert [(i["id"], i["user_id"]) for i in answer["items"]] == [(orphan, payload["user_id"])]
    assert await points(index_world) == before


@pytest.mark.parametrize("shift", [-1, 3])
async def test_a_vector_of_another_version_is_made_anew(index_world: World, shift: int) -> None:
    before = await points(index_world)
    one = sorted(before)[0]
    await qdrant(index_world, "POST", "/points/payload?wait=true", {"points": [one], "payload": {"version": 1 + shift}})
    answer = await reconciled(index_world, stale=1)
    assert f"vector of version {1 + shift}, stored is version 1" == answer["items"][0]["why"]
    assert await points(index_world) == before


async def test_a_point_without_the_scope_that_searches_narrow_by_is_made_anew(index_world: World) -> None:
    """A service of an older version wrote it while the collection was brought to this one."""
    before = await points(index_world)
    one = sorted(before)[0]
    await qdrant(index_world, "POST", "/points/payload/delete?wait=true", {"points": [one], "keys": ["scope"]})
    await reconciled(index_world, stale=1)
    assert await points(index_world) == before


async def test_a_lost_chunk_of_a_long_memory_is_made_again_and_a_surplus_one_removed(
    index_world: World, user: str
) -> None:
    memory = await write(index_world.client, user, " ".join(f"word{i}" for i in range(1500)), wait=True)
    await settled(index_world)
    before = await points(index_world)
    chunks = {key: p for key, p in before.items() if p["memory_id"] == memory["id"]}
    assert len(chunks) > 2
    last = next(key for key, p in chunks.items() if p["chunk"] == len(chunks) - 1)
    await qdrant(index_world, "POST", "/points/delete?wait=true", {"points": [last]})
    answer = await reconciled(index_world, incomplete=1)
    assert answer["items"][0]["why"] == f"{len(chunks) - 1} of {len(chunks)} vectors"
    assert await points(index_world) == before
    surplus = {"id": str(uuid4()), "vector": [0.1] * 384, "payload": {**chunks[last], "version": 2}}
    await qdrant(index_world, "PUT", "/points?wait=true", {"points": [surplus]})
    await reconciled(index_world, stale=1)
    assert await points(index_world) == before


async def test_a_lost_collection_is_made_again_from_postgres(index_world: World) -> None:
    before = await points(index_world)
    async with httpx.AsyncClient(base_url=index_world.settings.qdrant_url) as client:
        assert (await client.delete(f"/collections/{index_world.runtime.index.collection}")).status_code == 200
    planned = await run_job(index_world.client, "reconcile", dry_run=True)
    assert (planned["done"], planned["items"][0]["why"]) == (13, "the collection is lost")
    answer = await run_job(index_world.client, "reconcile")
    assert (answer["done"], answer["counts"]["collection_lost"]) == (13, 1)
    await settled(index_world)
    assert await points(index_world) == before
    assert (await run_job(index_world.client, "reconcile"))["done"] == 0


async def test_a_postgres_restored_from_an_older_backup_heals(index_world: World) -> None:
    """What the backup does not know yet is an orphan, what it knows as older was made from a future version."""
    backup = await points(index_world)
    ids = sorted(key for key, p in backup.items() if p["kind"] != "experience")
    tables = ("memory", "memory_version", "experience", "experience_version", "index_outbox", "erased")
    for table in tables:
        await index_world.sql(f"CREATE TABLE backup_{table} AS SELECT * FROM {table}")
    client = index_world.client
    for one in ids[:3]:
        assert (
            await client.patch(f"/v1/memories/{one}", json={"content": f"changed after the backup: {one}"})
        ).status_code == 200
    assert (await client.delete(f"/v1/memories/{ids[5]}")).status_code == 204
    await write_many(client, new_user(), ["written after the backup", "and this"], wait=True)
    await settled(index_world)
    for table in reversed(tables):
        await index_world.sql(f"DELETE FROM {table}")
    for table in tables:
        await index_world.sql(f"INSERT INTO {table} SELECT * FROM backup_{table}")
    await reconciled(index_world, orphaned=2, stale=3, missing=1)
    assert await points(index_world) == backup


async def test_what_the_relay_had_given_up_is_tried_again(index_world: World) -> None:
    one = sorted(await points(index_world))[0]
    await qdrant(index_world, "POST", "/points/delete?wait=true", {"points": [one]})
    await index_world.sql(
        "INSERT INTO index_outbox (memory_id, tenant, state, attempts, error) VALUES (%s, 'default', 'dead', 8, 'x')",
        UUID(one),
    )
    answer = await reconciled(index_world, given_up=1)
    assert answer["items"][0]["why"] == "no vector; indexing it was given up after failures"


async def test_reconcile_beside_writers_and_erasers_harms_nothing(index_world: World, user: str) -> None:
    stop = asyncio.Event()

    async def traffic(number: int) -> int:
        rounds = 0
        while not stop.is_set():
            memory = await write(index_world.client, user, f"traffic {number} {rounds}")
            await index_world.client.patch(
                f"/v1/memories/{memory['id']}", json={"content": f"changed {number} {rounds}"}
            )
            if rounds % 3 == 0:
                await index_world.client.delete(f"/v1/memories/{memory['id']}")
            rounds += 1
        return rounds

    running = [asyncio.create_task(traffic(n)) for n in range(3)]
    for _ in range(6):
        assert (await run_job(index_world.client, "reconcile"))["outcome"] == "success"
    stop.set()
    assert min(await asyncio.gather(*running)) > 0
    await settled(index_world)
    stored = await index_world.sql(
        "SELECT id, version FROM memory UNION ALL SELECT id, version FROM experience WHERE status = 'active'"
    )
    assert {(p["memory_id"], p["version"]) for p in (await points(index_world)).values()} == {
        (str(i), v) for i, v in stored
    }
    assert (await run_job(index_world.client, "reconcile"))["done"] == 0


async def test_reconcile_without_qdrant_is_a_failure_that_is_told(backends: Backends) -> None:
    settings = backends.new_settings(qdrant_url="http://127.0.0.1:9")
    async with serving(settings) as world:
        problem_of(await world.client.post("/v1/maintenance/reconcile"), 503)
        (run,) = (await world.client.get("/v1/maintenance")).json()["items"]
        assert (run["outcome"], run["error"]) == ("failure", "qdrant is not reachable")
        assert "127.0.0.1" not in str(run)


async def test_reindex_makes_all_vectors_of_the_tenant_anew(index_world: World) -> None:
    before = await points(index_world)
    assert (await run_job(index_world.client, "reindex", dry_run=True))["done"] == 13
    some = sorted(before)[:4]
    await qdrant(index_world, "POST", "/points/delete?wait=true", {"points": some})
    assert (await run_job(index_world.client, "reindex"))["done"] == 13
    await settled(index_world)
    assert await points(index_world) == before


# --- who may, and what is seen


@pytest.mark.parametrize("job", ["decay", "purge", "reconcile", "reindex"])
@pytest.mark.parametrize("key", [{"role": "reader"}, {"role": "writer"}, {"role": "admin", "user_id": "ana"}])
async def test_only_an_admin_of_the_tenant_may_run_a_job(keyed: World, job: str, key: dict[str, Any]) -> None:
    async with keyed.with_key(await keyed.new_key(tenant="guarded", **key)) as client:
        for params in ({}, {"dry_run": "true"}):
            problem_of(await client.post(f"/v1/maintenance/{job}", params=params), 403)
        if "user_id" in key:
            problem_of(await client.get("/v1/maintenance"), 403)


async def test_an_unknown_job_is_named_like_every_other_mistake(client: httpx.AsyncClient) -> None:
    for name in ("sweep", "DECAY", "decay%00", "%ED%A0%80", "a" * 500):
        answer = await client.post(f"/v1/maintenance/{name}")
        assert answer.status_code in (404, 422)
    body = problem_of(await client.post("/v1/maintenance/sweep"), 404)
    assert "decay" in body["detail"]
    assert "reconcile" in body["detail"]
    problem_of(await client.get("/v1/maintenance", params={"job": "sweep"}), 404)
    problem_of(await client.post("/v1/maintenance/decay", params={"dryrun": "true"}), 422, "dryrun")
    problem_of(await client.post("/v1/maintenance/decay", params={"dry_run": "perhaps"}), 422, "dry_run")
    problem_of(await client.post("/v1/maintenance/decay", json={"dry_run": True}), 422, "dry_run")
    problem_of(await client.get("/v1/maintenance", params={"cursor": "forged"}), 422, "cursor")


async def test_a_run_touches_and_tells_of_the_callers_tenant_only(keyed: World) -> None:
    mine, theirs = f"mine-{uuid4().hex[:6]}", f"theirs-{uuid4().hex[:6]}"
    async with (
        keyed.with_key(await keyed.new_key("admin", tenant=mine)) as me,
        keyed.with_key(await keyed.new_key("admin", tenant=theirs)) as them,
    ):
        ids = {}
        for name, client in (("me", me), ("them", them)):
            ids[name] = await write_many(client, "ana", ["cold as ice", "gone tomorrow"], wait=True)
            await keyed.sql("UPDATE memory SET heat = 0.01 WHERE id = %s", UUID(ids[name][0]))
            await keyed.sql(
                "UPDATE memory SET expires_at = now() - interval '1 hour' WHERE id = %s", UUID(ids[name][1])
            )
        await settled(keyed)
        theirs_before = await keyed.sql("SELECT * FROM memory WHERE tenant = %s ORDER BY id", theirs)
        for job in ("decay", "purge", "reconcile", "reindex"):
            if job == "reconcile":
                await settled(keyed)
                await qdrant(keyed, "POST", "/points/delete?wait=true", {"points": [ids["me"][0], ids["them"][0]]})
            for dry_run in (True, False):
                answer = await run_job(me, job, dry_run=dry_run)
                assert answer["done"] >= 1, answer
                assert not any(one in str(answer) for one in ids["them"])
        assert await keyed.sql("SELECT * FROM memory WHERE tenant = %s ORDER BY id", theirs) == theirs_before
        await settled(keyed)
        assert ids["them"][0] not in await points(keyed)
        assert (await them.get("/v1/maintenance")).json()["items"] == []
        assert (await me.get("/v1/maintenance")).json()["total"] == 8


async def test_the_last_runs_are_listed_newest_first_in_pages(backends: Backends) -> None:
    async with aged_world(backends) as (world, clock):
        for job in ("decay", "purge", "decay", "reindex", "decay"):
            clock.move(minutes=1)
            await run_job(world.client, job)
        body = (await world.client.get("/v1/maintenance")).json()
        assert [r["job"] for r in body["items"]] == ["decay", "reindex", "decay", "purge", "decay"]
        table = {one["name"]: one for one in body["jobs"]}
        assert table["reconcile"]["schedule"] == "daily 03:00"
        assert table["reconcile"]["next_at"].endswith("T03:00:00Z")
        assert table["reindex"]["schedule"] is table["reindex"]["next_at"] is None
        assert table["decay"]["last_run"]["id"] == body["items"][0]["id"]
        seen, cursor = [], None
        while True:
            page = (
                await world.client.get("/v1/maintenance", params={"limit": 2, **({"cursor": cursor} if cursor else {})})
            ).json()
            seen += page["items"]
            if (cursor := page["next_cursor"]) is None:
                break
        assert seen == body["items"]
        only = (await world.client.get("/v1/maintenance", params={"job": "decay"})).json()
        assert (only["total"], {r["job"] for r in only["items"]}) == (3, {"decay"})
        run = body["items"][0]
        assert (run["started_by"], run["outcome"], run["dry_run"], run["error"]) == ("request", "success", False, None)
        assert run["duration_ms"] >= 0


async def test_a_repeated_key_runs_a_job_once(backends: Backends, user: str) -> None:
    async with aged_world(backends) as (world, clock):
        await write(world.client, user, "soon cold")
        clock.move(days=90)
        answers = [
            await world.client.post("/v1/maintenance/decay", headers={"Idempotency-Key": "night-1"}) for _ in range(2)
        ]
        assert answers[0].json() == answers[1].json()
        assert answers[0].json()["done"] == 1
        assert await world.sql("SELECT count(*) FROM job_run") == [(1,)]
        other = await world.client.post(
            "/v1/maintenance/decay", params={"dry_run": "true"}, headers={"Idempotency-Key": "night-1"}
        )
        problem_of(other, 422)


# --- the schedule


async def test_of_two_processes_on_one_database_one_runs_a_due_job_once(backends: Backends, user: str) -> None:
    clock, settings = FakeClock(), backends.new_settings()
    async with serving(settings, clock=clock) as one, serving(settings, clock=clock) as other:
        await write(one.client, user, "something")
        (job_a, runs_a), (job_b, runs_b) = counting(waits=0.2), counting(waits=0.2)
        schedules = [made_up(one, clock, job_a), made_up(other, clock, job_b)]
        for expected in (1, 2, 3):
            ran = await asyncio.gather(*(s.tick() for s in schedules), *(s.tick() for s in schedules))
            assert sum(map(len, ran)) == 1
            assert len(runs_a) + len(runs_b) == expected
            assert [len(names) for names in await asyncio.gather(*(s.tick() for s in schedules))] == [0, 0]
            clock.move(hours=1)
        whole = await one.sql("SELECT outcome, done, due_at FROM job_run WHERE tenant IS NULL ORDER BY started_at")
        assert [(row[0], row[1]) for row in whole] == [("success", 1)] * 3
        assert len({row[2] for row in whole}) == 3


async def test_a_holder_that_is_killed_frees_the_job_at_once(backends: Backends, user: str) -> None:
    async with aged_world(backends) as (world, clock):
        await write(world.client, user, "something")
        job, runs = counting()
        schedule = made_up(world, clock, job)
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLD, world.settings.database_url, str(lock_key(job.name))], stdout=subprocess.PIPE
        )
        try:
            assert holder.stdout is not None
            assert await asyncio.to_thread(holder.stdout.readline) == b"held\n"
            assert await schedule.tick() == []
            holder.send_signal(signal.SIGKILL)
            holder.wait(10)
            began = time.monotonic()

            async def taken_over() -> bool:
                return await schedule.tick() == ["counted"]

            await until(taken_over)
            assert time.monotonic() - began < 2
            assert len(runs) == 1
        finally:
            holder.kill()
            holder.wait(10)


HOLD = """
import sys, time, psycopg
connection = psycopg.connect(sys.argv[1], autocommit=True)
assert connection.execute("SELECT pg_try_advisory_lock(%s)", (int(sys.argv[2]),)).fetchone()[0]
print("held", flush=True)
time.sleep(60)
"""


async def test_missed_runs_are_made_up_for_with_one(backends: Backends, user: str) -> None:
    async with aged_world(backends) as (world, clock):
        await write(world.client, user, "something")
        job, runs = counting()
        schedule = made_up(world, clock, job)
        assert await schedule.tick() == ["counted"]
        clock.move(days=10)
        assert [await schedule.tick() for _ in range(5)] == [["counted"], [], [], [], []]
        assert len(runs) == 2
        assert {run.tenant for run in runs} == {"default"}


async def test_a_run_that_died_with_its_process_is_taken_over_once_at_once_and_then_pauses(
    backends: Backends, user: str
) -> None:
    async with aged_world(backends) as (world, clock):
        await write(world.client, user, "something")
        job, runs = counting(waits=30)
        for expected in (1, 2):  # the second one takes the first one's place without waiting
            dying = asyncio.create_task(made_up(world, clock, job).tick())
            await until(lambda n=expected: asyncio.sleep(0, len(runs) == n))
            dying.cancel()
            await asyncio.gather(dying, return_exceptions=True)
        calm, calm_runs = counting()
        schedule = made_up(world, clock, calm)
        assert await schedule.tick() == []  # two died: the job itself may be what kills its process
        clock.move(minutes=16)
        assert await schedule.tick() == ["counted"]
        assert len(calm_runs) == 1
        rows = await world.sql("SELECT outcome, error FROM job_run WHERE tenant IS NULL ORDER BY started_at, id")
        assert rows == [("failure", "interrupted: its process ended while it ran")] * 2 + [("success", None)]


async def test_a_failing_job_is_told_without_secrets_and_holds_up_no_other(backends: Backends, user: str) -> None:
    async with aged_world(backends) as (world, clock):
        await write(world.client, user, "something")
        bad, bad_runs = counting("bad", raises=RuntimeError("postgresql://root:hunter2@db/ SELECT 1"))
        down, _ = counting("down", raises=StoreUnavailable("qdrant"))
        slow, _ = counting("slow", waits=60)
        good, good_runs = counting("good")
        schedule = made_up(world, clock, bad, down, slow, good, run_s_max=0.3)
        assert sorted(await schedule.tick()) == ["bad", "down", "good", "slow"]
        assert len(good_runs) == 1
        rows = await world.sql("SELECT job, outcome, error FROM job_run WHERE tenant IS NULL ORDER BY job")
        assert rows == [
            ("bad", "failure", "internal error (RuntimeError), see the log"), ("down", "failure", "qdrant is not reachable"), ("good", "success", None), ("slow", "failure", "the job took longer than 0.3 s"),
        ]  # fmt: skip
        told = (await world.client.get("/v1/maintenance")).json()["items"]
        assert {(r["job"], r["outcome"]) for r in told} == {
            ("bad", "failure"),
            ("down", "failure"),
            ("good", "success"),
            ("slow", "failure"),
        }
        assert "hunter2" not in str(told)
        for _ in range(5):  # tried again after a pause, three times in all
            clock.now = min(
                clock.now + timedelta(minutes=15),
                parse_timing("hourly :07").following(clock.now) - timedelta(seconds=1),
            )
            await schedule.tick()
        assert len(bad_runs) <= 3
        assert len(good_runs) == 1


async def test_one_tenants_failure_does_not_keep_a_job_from_the_others(keyed: World) -> None:
    tenants = [f"{letter}-{uuid4().hex[:6]}" for letter in "abc"]
    for tenant in tenants:
        async with keyed.with_key(await keyed.new_key("admin", tenant=tenant)) as client:
            await write(client, "ana", "something")
    seen = []

    async def work(run: JobRun) -> JobReport:
        seen.append(run.tenant)
        if run.tenant == tenants[1]:
            raise RuntimeError("no")
        return JobReport(1)

    name = f"picky-{uuid4().hex[:6]}"
    assert await made_up(keyed, FakeClock(), Job(name, parse_timing("daily 00:00"), "do", work)).tick() == [name]
    assert set(tenants) <= set(seen)
    parts = await keyed.sql(
        "SELECT tenant, outcome FROM job_run WHERE job = %s AND tenant = ANY(%s) ORDER BY tenant", name, tenants
    )
    assert [p[1] for p in parts] == ["success", "failure", "success"]
    assert await keyed.sql("SELECT outcome FROM job_run WHERE job = %s AND tenant IS NULL", name) == [("failure",)]


async def test_a_run_by_hand_beside_another_one_is_told_so(backends: Backends, user: str) -> None:
    async with aged_world(backends) as (world, clock):
        await write(world.client, user, "something")
        runs, go_on = [], asyncio.Event()

        async def work(run: JobRun) -> JobReport:
            runs.append(run.tenant)
            if run.tenant == "default":
                await go_on.wait()
            return JobReport(1)

        schedule = made_up(world, clock, Job("counted", parse_timing("hourly :07"), "count", work))
        running = asyncio.create_task(schedule.run_now("counted", "default", dry_run=False, started_by="request"))
        await until(lambda: asyncio.sleep(0, bool(runs)))
        with pytest.raises(Exception, match="running already"):
            await schedule.run_now("counted", "default", dry_run=False, started_by="request")
        await schedule.run_now("counted", "another", dry_run=False, started_by="request")
        assert await schedule.tick() == ["counted"]  # the schedule leaves a tenant to who works on it
        go_on.set()
        await running
        assert runs == ["default", "another", "another"]


async def test_the_history_stays_small_however_often_a_job_runs(backends: Backends, user: str) -> None:
    async with aged_world(backends) as (world, clock):
        await write(world.client, user, "something")

        async def idle(_run: JobRun) -> JobReport:
            return JobReport(0, counts={"looked_at": 5})

        schedule = made_up(world, clock, Job("idle", parse_timing("hourly :07"), "do", idle), runs_kept_max=10)
        for _ in range(30):
            assert await schedule.tick() == ["idle"]
            clock.move(hours=1)
        assert await world.sql("SELECT tenant, count(*) FROM job_run GROUP BY tenant ORDER BY tenant") == [
            ("default", 1),
            (None, 10),
        ]
        for _ in range(30):
            await schedule.run_now("idle", "default", dry_run=True, started_by="request")
        assert (await world.sql("SELECT count(*) FROM job_run WHERE tenant = 'default'"))[0][0] <= 11


async def test_a_running_service_runs_what_is_due_and_metrics_tell(backends: Backends, user: str) -> None:
    settings = backends.new_settings(jobs=True)
    shipped = numbers(settings)
    jobs = {**(shipped.model_extra or {})["jobs"], "poll_s": 0.1}
    quick = type(shipped).model_validate({**shipped.model_dump(), "jobs": jobs})
    async with serving(settings, tunables=quick) as world:
        memory = await write(world.client, user, "something")
        await world.sql("UPDATE memory SET heat = 0.01")
        await until(lambda: ended(world, {"decay", "purge", "reconcile"}))
        assert await states(world, [memory["id"]]) == [("cold", 2)] or await world.sql(
            "SELECT 1 FROM job_run WHERE job = 'decay' AND tenant IS NULL AND done = 0"
        )

        async def measured() -> bool:  # a moment after the row of the run
            text = (await world.client.get("/metrics")).text
            return all(one in text for one in (
                'hindsight_job_runs_total{job="purge",outcome="success"}',
                'hindsight_job_last_success_timestamp_seconds{job="reconcile"}',
                'hindsight_job_seconds_count{job="decay"}',
            ))  # fmt: skip

        await until(measured)


async def ended(world: World, names: set[str]) -> bool:
    rows = await world.sql("SELECT DISTINCT job FROM job_run WHERE tenant IS NULL AND outcome = 'success'")
    return names <= {row[0] for row in rows}


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/St_Johns"])
async def test_schedules_and_ages_are_utc_wherever_the_machine_stands(
    backends: Backends, user: str, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        clock, settings = FakeClock(datetime(2026, 10, 31, 2, 59, tzinfo=UTC)), backends.new_settings()
        async with serving(settings, clock=clock) as world:
            await write(world.client, user, "something")
            job, runs = counting("nightly", "daily 03:00")
            schedule = made_up(world, clock, job)
            await schedule.tick()  # never ran
            for _minute in range(60 * 48 // 20):  # over the night in which St. John's sets its clocks back
                clock.move(minutes=20)
                await schedule.tick()
            assert [str(r[0].astimezone(UTC)) for r in await world.sql("SELECT due_at FROM job_run WHERE tenant IS NULL ORDER BY due_at")] == [
                "2026-10-30 03:00:00+00:00", "2026-10-31 03:00:00+00:00", "2026-11-01 03:00:00+00:00",
            ]  # fmt: skip
            assert all(run.now.utcoffset() == timedelta(0) for run in runs)
            clock.now = datetime(2027, 1, 19, 3, 30, tzinfo=UTC)
            assert (await run_job(world.client, "decay"))["done"] == 1
            (run,) = (await world.client.get("/v1/maintenance", params={"job": "decay"})).json()["items"]
            assert run["started_at"] == "2027-01-19T03:30:00Z"
    finally:
        monkeypatch.undo()
        time.tzset()


async def test_a_run_by_hand_that_died_is_closed_by_the_next_scheduled_one(backends: Backends, user: str) -> None:
    async with aged_world(backends) as (world, clock):
        await write(world.client, user, "something")
        job, runs = counting(waits=30)
        dying = asyncio.create_task(
            made_up(world, clock, job).run_now("counted", "default", dry_run=False, started_by="request")
        )
        await until(lambda: asyncio.sleep(0, bool(runs)))
        dying.cancel()
        await asyncio.gather(dying, return_exceptions=True)
        (run,) = (await world.client.get("/v1/maintenance")).json()["items"]
        assert (run["finished_at"], run["outcome"]) == (None, None)
        clock.move(seconds=1)
        calm, _ = counting()
        assert await made_up(world, clock, calm).tick() == ["counted"]
        newest, oldest = (await world.client.get("/v1/maintenance")).json()["items"]
        assert (newest["outcome"], oldest["outcome"]) == ("success", "failure")
        assert oldest["error"].startswith("interrupted")


# --- the command


async def test_the_command_runs_a_job_for_all_tenants_or_one_and_names_what_it_would_do(
    backends: Backends, user: str
) -> None:
    settings = backends.new_settings()

    async def run(*arguments: str) -> Any:
        return await asyncio.to_thread(CliRunner().invoke, commands, ["job", *arguments], env=environment(settings))

    async with serving(settings) as world:
        memory = await write(world.client, user, "something")
        await world.sql("UPDATE memory SET heat = 0.2")
        planned = await run("decay", "--dry-run")
        assert planned.exit_code == 0, planned.output
        assert "decay, tenant default: would archive 1: heat 0.20 is below 0.3" in planned.output
        assert f"  {memory['id']}  {user}  heat 0.20 is below 0.3" in planned.output
        assert await states(world, [memory["id"]]) == [("active", 1)]
        assert "nothing to archive" in (await run("decay", "--tenant", "nobody")).output
        assert "archived 1" in (await run("decay")).output
        assert await states(world, [memory["id"]]) == [("cold", 2)]
        unknown = await run("sweep")
        assert unknown.exit_code != 0
