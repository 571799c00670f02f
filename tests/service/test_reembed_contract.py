"""The embedding model is changed while the service runs: nothing fails, nothing is lost, nothing erased comes back."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import numpy as np
import pytest
from fault_embedder import FaultyEmbedder
from service_running import Backends, World, found, indexed, new_user, serving, until, write, write_many
from typer.testing import CliRunner

from memory_service.__main__ import app
from memory_service.domain import MemoryFilter, utc_now
from memory_service.errors import HindsightError, SetupRefused
from memory_service.models.switching import SwitchingEmbedder
from memory_service.settings import Settings
from memory_service.stores.postgres import embedding_collections, outbox
from memory_service.stores.postgres.outbox import Worked

HERE = Path(__file__).parent
COMMAND_S = 120
QUICK = {
    "reembed": {"poll_s": 0.1, "repeat_s": 0.5, "silent_s": 3.0, "close_after_s": 1.0, "load_retry_s": 0.2},
    "relay": {"batch_rows_max": 16, "poll_s": 0.1, "lease_s": 2.0, "backoff_s": 0.1, "attempts_max": 3},
}


@pytest.fixture
def quick(tmp_path: Path, backends: Backends) -> Settings:
    """A world's settings with a config folder in which waiting is short and batches are small."""
    folder = tmp_path / "config"
    shutil.copytree(Settings().config_folder, folder)
    text = (folder / "memory.toml").read_text(encoding="utf-8")
    for section, changed in QUICK.items():
        head, body = text.split(f"\n[{section}]\n")
        for name, value in changed.items():
            body, count = re.subn(rf"(?m)^{name} = \S+", f"{name} = {value}", body, count=1)
            assert count == 1, name
        text = f"{head}\n[{section}]\n{body}"
    (folder / "memory.toml").write_text(text, encoding="utf-8")
    return backends.new_settings(config_dir=folder)


def environment(settings: Settings, **changed: str) -> dict[str, str]:
    values = {
        "DATABASE_URL": settings.database_url, "REDIS_URL": settings.redis_url, "QDRANT_URL": settings.qdrant_url,
        "QDRANT_COLLECTION": settings.qdrant_collection, "EMBEDDING_PROVIDER": "hash", "HOME": "/nonexistent",
        "CONFIG_DIR": str(settings.config_dir), **changed,
    }  # fmt: skip
    return {**os.environ, **{f"HINDSIGHT_{name}": value for name, value in values.items()}}


@dataclass(frozen=True)
class Ended:
    code: int
    said: str


async def hindsight(
    settings: Settings, *arguments: str, die: tuple[str, str, int] | None = None, apart: bool = False, **env: str
) -> Ended:
    """The command; in a process of its own when told to kill itself, or when it shall run `apart` from the service."""
    if die is None and not apart:
        done = await asyncio.to_thread(CliRunner().invoke, app, arguments, env=environment(settings, **env))
        refused = isinstance(done.exception, SetupRefused | HindsightError)
        return Ended(2 if refused else done.exit_code, " ".join(f"{done.output} {done.exception or ''}".split()))
    command = [sys.executable, "-m", "memory_service"]
    if die is not None:
        command = [sys.executable, str(HERE / "reembed_and_die.py"), die[0], die[1], str(die[2])]
    ended = await asyncio.to_thread(
        subprocess.run,
        [*command, *arguments],
        env=environment(settings, **env),
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
    )
    return Ended(ended.returncode, " ".join((ended.stdout + ended.stderr).split()))


async def to(settings: Settings, dimensions: int, **options: Any) -> Ended:
    return await hindsight(
        settings, "reembed", "--to", "-", "--provider", "hash", "--dimensions", str(dimensions), **options
    )


async def serves(world: World, dimensions: int) -> bool:
    return bool((await world.client.get("/ready")).json()["embedding"]["dimensions"] == dimensions)


async def collections(world: World) -> dict[str, str]:
    """role → collection, as Postgres has it."""
    return {r: c for c, r in await world.sql("SELECT collection, role FROM embedding_collection ORDER BY since")}


async def in_qdrant(world: World) -> set[str]:
    async with httpx.AsyncClient(trust_env=False, base_url=world.settings.qdrant_url) as client:
        names = (await client.get("/collections")).json()["result"]["collections"]
    return {n["name"] for n in names if n["name"].startswith(f"{world.settings.qdrant_collection}_")}


async def aliased(world: World) -> str:
    async with httpx.AsyncClient(trust_env=False, base_url=world.settings.qdrant_url) as client:
        aliases = (await client.get("/aliases")).json()["result"]["aliases"]
    return next(str(a["collection_name"]) for a in aliases if a["alias_name"] == world.settings.qdrant_collection)


async def memories_in(world: World, collection: str, user: str) -> set[str]:
    """Ids of a user's memories that a collection has vectors of."""
    body = {"filter": {"must": [{"key": "user_id", "match": {"value": user}}]}, "limit": 10_000, "with_payload": True}
    async with httpx.AsyncClient(trust_env=False, base_url=world.settings.qdrant_url) as client:
        answer = await client.post(f"/collections/{collection}/points/scroll", json=body)
    assert answer.status_code == 200, answer.text
    return {p["payload"]["memory_id"] for p in answer.json()["result"]["points"]}


@dataclass
class Load:
    """Writers, searchers and an eraser at work, and what came of it."""

    world: World
    user: str
    statuses: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    written: dict[str, str] = field(default_factory=dict)
    erased: set[str] = field(default_factory=set)
    stopping: bool = False

    def note(self, what: str, answer: httpx.Response, good: int) -> Any:
        self.statuses[f"{what} {answer.status_code}"] += 1
        if answer.status_code != good:
            self.wrong.append(f"{what}: {answer.status_code} {answer.text[:200]}")
            return None
        return answer.json() if answer.content else {}

    async def write(self, writer: int) -> None:
        number = 0
        while not self.stopping:
            number += 1
            body = {"user_id": self.user, "content": f"writer {writer} noted the item w{writer}n{number} of the load"}
            made = self.note(
                "write", await self.world.client.post("/v1/memories", json={**body, "infer": number % 5 == 0}), 201
            )
            if made is not None:
                self.written[made["memory"]["id"]] = body["content"]
            await asyncio.sleep(0.01)

    async def search(self, query: str) -> None:
        while not self.stopping:
            body = {"user_id": self.user, "query": query, "limit": 5}
            answer = self.note("search", await self.world.client.post("/v1/memories/search", json=body), 200)
            if answer is not None and answer["degraded"]:
                self.wrong.append(f"search degraded: {answer['degraded']}")
            if answer is not None and not answer["results"]:
                self.wrong.append("search found nothing")
            await asyncio.sleep(0.005)

    async def erase(self) -> None:
        while not self.stopping:
            await asyncio.sleep(0.05)
            left = [i for i in self.written if i not in self.erased]
            if len(left) > 20:
                self.erased.add(left[0])
                self.note("erase", await self.world.client.delete(f"/v1/memories/{left[0]}"), 204)

    async def change(self) -> None:
        """Every change is a new version, whose vector has to be of the new text."""
        number = 0
        while not self.stopping:
            await asyncio.sleep(0.05)
            left = [i for i in self.written if i not in self.erased]
            if len(left) > 20:
                number += 1
                text = f"changed for the {number}th time into c{number}x"
                answer = await self.world.client.patch(f"/v1/memories/{left[-10]}", json={"content": text})
                if self.note("change", answer, 200) is not None:
                    self.written[left[-10]] = text


@asynccontextmanager
async def under_load(world: World, user: str) -> AsyncIterator[Load]:
    load = Load(world, user)
    await write_many(world.client, user, [f"it was there before number {n}" for n in range(20)], wait=True)
    jobs = [
        load.write(1),
        load.write(2),
        load.search("before number"),
        load.search("item of the load"),
        load.erase(),
        load.change(),
    ]
    tasks = [asyncio.create_task(job) for job in jobs]
    try:
        yield load
    finally:
        load.stopping = True
        await asyncio.gather(*tasks)


async def nothing_is_missing(load: Load) -> None:
    """Everything that was acknowledged is found by its vector alone, with the text it has now; nothing erased is anywhere."""
    world, user = load.world, load.user
    await indexed(world.client, user)
    assert load.wrong == []
    left = {i: text for i, text in load.written.items() if i not in load.erased}
    active = (await collections(world))["active"]
    there = await memories_in(world, active, user)
    before = {str(i) for (i,) in await world.sql("SELECT id FROM memory WHERE user_id = %s", user)}
    assert there == before
    assert set(left) <= there
    for text in [*list(left.values())[:10], *list(left.values())[-10:]]:
        # Not the first: of several hundred such texts some differ little to this model, and `change` made some less important.
        assert text in await found(world.client, user, text, mode="vector", limit=3)

    async def gone() -> bool:
        second = (await collections(world)).get("kept")
        return second is None or not load.erased & await memories_in(world, second, user)

    await until(gone)
    assert not load.erased & there


async def test_the_model_changes_under_load_and_back_and_nothing_fails(quick: Settings, user: str) -> None:
    async with serving(quick) as world, serving(quick) as other:
        async with under_load(world, user) as load:
            done = await to(quick, 128, apart=True)
            assert done.code == 0, done.said
            assert await serves(world, 128)
            assert await serves(other, 128)
            await asyncio.sleep(0.3)
        assert load.erased
        assert min(load.statuses["write 201"], load.statuses["search 200"]) > 50, load.statuses
        await nothing_is_missing(load)
        roles = await collections(world)
        assert await aliased(world) == roles["active"]
        assert await in_qdrant(world) == {roles["active"], roles["kept"]}

        async with under_load(world, new_user()) as back:
            done = await hindsight(quick, "reembed", "--rollback", apart=True)
            assert done.code == 0, done.said
            assert await serves(world, 384)
        await nothing_is_missing(back)
        await nothing_is_missing(load)
        assert await collections(world) == {"active": roles["kept"], "kept": roles["active"]}
        assert await aliased(world) == roles["kept"]

        done = await hindsight(quick, "reembed", "--drop-old")
        assert done.code == 0, done.said
        assert await in_qdrant(world) == {roles["kept"]}
        await write(world.client, user, "after everything")
        assert await world.sql("SELECT count(*) FROM shadow_outbox") == [(0,)]
        nothing = await hindsight(quick, "reembed", "--drop-old")
        assert (nothing.code, "no old collection is kept" in nothing.said) == (2, True)
        nothing = await hindsight(quick, "reembed", "--rollback")
        assert (nothing.code, "nothing is kept" in nothing.said) == (2, True)


COLLECTIONS, OUTBOX = "memory_service.stores.postgres.embedding_collections", "memory_service.stores.postgres.outbox"
INDEX = "memory_service.stores.qdrant:VectorIndex"


@pytest.mark.slow
@pytest.mark.parametrize(
    "die",
    [
        (f"{COLLECTIONS}:begin", "after", 1),
        (f"{INDEX}.make", "before", 1),
        (f"{OUTBOX}:enqueue_page", "after", 1),
        (f"{COLLECTIONS}:set_enqueued", "before", 1),
        (f"{INDEX}.upsert", "after", 2),
        (f"{OUTBOX}:complete", "after", 3),
        (f"{COLLECTIONS}:set_role", "after", 1),
        (f"{COLLECTIONS}:switch", "before", 1),
        (f"{COLLECTIONS}:switch", "after", 1),
        (f"{INDEX}.serve", "before", 1),
        (f"{INDEX}.serve", "after", 1),
    ],
    ids=lambda die: f"{die[0].partition(':')[2]}-{die[1]}-{die[2]}",
)
async def test_a_run_that_is_killed_anywhere_is_taken_up_by_the_next_one(
    quick: Settings, user: str, die: tuple[str, str, int]
) -> None:
    async with serving(quick) as world:
        await write_many(world.client, user, [f"old {n}" for n in range(60)], wait=True)
        async with under_load(world, user) as load:
            killed = await to(quick, 128, die=die)
            assert killed.code == -9, killed.said
            await asyncio.sleep(0.2)
            done = await to(quick, 128)
            assert done.code == 0, done.said
            await until(lambda: serves(world, 128))
        await nothing_is_missing(load)
        roles = await collections(world)
        assert await aliased(world) == roles["active"]
        assert (await hindsight(quick, "reembed", "--drop-old")).code == 0


async def told(world: World) -> dict[str, Any]:
    """What /ready, /v1/stats and /metrics say of the change; the three agree."""
    world.runtime.operations._reembed._kept.clear()  # not as it was counted ten seconds ago
    ready = (await world.client.get("/ready")).json()["reembed"]
    world.runtime.operations._reembed._kept.clear()
    assert (await world.client.get("/v1/stats")).json()["reembed"] == ready
    text = (await world.client.get("/metrics")).text
    for state in ("building", "switching", "finished"):
        assert f'hindsight_reembed_state{{state="{state}"}} {float(ready["state"] == state)}' in text
    for what in ("done", "total"):
        assert f'hindsight_reembed_rows{{what="{what}"}} {float(ready[what])}' in text
    return ready  # type: ignore[no-any-return]


async def test_it_is_told_how_far_the_change_is_and_whether_one_can_go_back(quick: Settings, user: str) -> None:
    async with serving(quick) as world:
        assert (await world.client.get("/ready")).json()["reembed"] is None
        assert (await world.client.get("/v1/stats")).json()["reembed"] is None
        assert "reembed" not in (await world.client.get("/v1/stats", params={"user_id": user})).json()
        await write_many(world.client, user, [f"counted {n}" for n in range(60)], wait=True)
        assert (await to(quick, 128, die=(f"{INDEX}.upsert", "after", 2))).code == -9
        half = await told(world)
        assert (half["state"], half["running"], half["total"], half["failed"]) == ("building", False, 60, 0)
        assert 0 < half["done"] < 60
        assert (half["from"]["dimensions"], half["to"]["dimensions"]) == (384, 128)
        assert half["rollback"] == {"possible": False, "behind": 0}
        assert (await to(quick, 128, die=(f"{COLLECTIONS}:switch", "before", 1))).code == -9
        waiting = await told(world)
        assert (waiting["state"], waiting["done"], waiting["total"]) == ("switching", 60, 60)
        assert (await to(quick, 128)).code == 0
        await write(world.client, user, "written after the switch", wait=True)
        done = await told(world)
        assert (done["state"], done["done"], done["total"]) == ("finished", 61, 61)
        assert done["rollback"] == {"possible": True, "behind": 1}
        assert (await hindsight(quick, "reembed", "--drop-old")).code == 0
        dropped = await told(world)
        assert (dropped["state"], dropped["from"], dropped["to"]) == ("finished", done["from"], done["to"])
        assert dropped["rollback"] == {"possible": False, "behind": 0}


async def test_a_run_at_work_is_told_and_ready_does_not_wait_for_a_count(
    quick: Settings, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(quick) as world:
        async with world.runtime.postgres.alone() as slow, slow.transaction():
            await slow.execute("SELECT pg_current_xact_id()")
            running = asyncio.create_task(to(quick, 128))
            await until(lambda: _building(world), COMMAND_S)
            assert (await told(world))["running"] is True
        assert (await running).code == 0

        async def hangs(*_: Any) -> int:
            await asyncio.sleep(60)
            return 0

        monkeypatch.setattr("memory_service.jobs.reembed_state.vectors_wanted", hangs)
        world.runtime.operations._reembed._kept.clear()
        answer = await world.client.get("/ready", timeout=10)
        assert (answer.status_code, answer.json()["reembed"]) == (200, None)
        assert (await world.client.get("/metrics", timeout=10)).status_code == 200


async def test_a_wrong_model_changes_nothing(quick: Settings, user: str) -> None:
    async with serving(quick) as world:
        await write(world.client, user, "stays as it is", wait=True)
        before = await world.sql("SELECT * FROM embedding_collection")
        for arguments in (
            ("--to", "no-such-model", "--provider", "hash"),
            ("--to", "no-such-model", "--provider", "bundled"),
            ("--to", "no-such-model", "--provider", "nobody"),
            ("--to", "m", "--provider", "openai", "--base-url", "http://127.0.0.1:9/v1"),
            ("--to", "m", "--rollback"),
            ("--rollback", "--provider", "hash"),
            (),
        ):
            refused = await hindsight(quick, "reembed", *arguments)
            assert refused.code == 2, refused.said
            assert "Traceback" not in refused.said
        same = await to(quick, 384)
        assert (same.code, "serves already" in same.said) == (0, True)
        assert await world.sql("SELECT * FROM embedding_collection") == before
        assert await found(world.client, user, "stays", mode="vector") == ["stays as it is"]
        assert len(await in_qdrant(world)) == 1


async def test_a_change_that_is_not_finished_keeps_another_one_out_and_can_be_given_up(
    quick: Settings, user: str
) -> None:
    async with serving(quick) as world:
        await write_many(world.client, user, [f"one of many {n}" for n in range(60)], wait=True)
        assert (await to(quick, 128, die=(f"{INDEX}.upsert", "after", 2))).code == -9
        refused = await to(quick, 64)
        assert (refused.code, "--abandon" in refused.said) == (2, True)
        rebuilt = await hindsight(quick, "reindex", "--replace")
        assert (rebuilt.code, "--abandon" in rebuilt.said) == (2, True)
        given_up = await hindsight(quick, "reembed", "--abandon")
        assert given_up.code == 0, given_up.said
        assert len(await in_qdrant(world)) == 1
        assert await world.sql("SELECT count(*) FROM shadow_outbox") == [(0,)]
        assert set(await collections(world)) == {"active"}
        assert (await to(quick, 64)).code == 0
        refused = await to(quick, 32)
        assert (refused.code, "--drop-old" in refused.said) == (2, True)


async def test_what_is_erased_leaves_a_collection_that_nobody_works_on(quick: Settings, user: str) -> None:
    """The half-built one of a run that died, and the kept one; also for a whole user."""
    async with serving(quick) as world:
        ids = await write_many(world.client, user, [f"to be forgotten {n}" for n in range(60)], wait=True)
        condition = {"field": "db.engine", "operator": "eq", "value": "postgres"}
        taught = {"user_id": user, "conditions": [condition], "action": "Build the index concurrently"}
        lessons = [(await world.client.post("/v1/experiences", json={**taught, "conditions": [{**condition, "value": v}]})).json()
                   ["experience"]["id"] for v in ("postgres", "mysql")]  # fmt: skip
        ids += lessons
        assert (await to(quick, 128, die=(f"{COLLECTIONS}:set_role", "before", 1))).code == -9
        shadow = (await collections(world))["building"]
        assert await memories_in(world, shadow, user) == set(ids)
        await world.client.delete(f"/v1/memories/{ids[0]}")

        async def gone_from(collection: str, left: set[str]) -> bool:
            return await memories_in(world, collection, user) == left

        await until(lambda: gone_from(shadow, set(ids[1:])))
        assert (await to(quick, 128)).code == 0
        kept = (await collections(world))["kept"]
        await until(lambda: gone_from(kept, set(ids[1:])))
        assert (await world.client.delete(f"/v1/experiences/{lessons[0]}")).status_code == 204
        await until(lambda: gone_from(kept, set(ids[1:]) - {lessons[0]}))
        await world.client.delete(f"/v1/users/{user}")
        await until(lambda: gone_from(kept, set()))
        await until(lambda: gone_from(shadow, set()))
        assert await world.sql("SELECT count(*) FROM shadow_outbox WHERE user_id IS NOT NULL") == [(0,)]
        assert (await hindsight(quick, "reembed", "--rollback")).code == 0
        assert await memories_in(world, kept, user) == set()


async def test_a_service_that_starts_with_the_old_environment_serves_with_the_new_model(
    quick: Settings, user: str
) -> None:
    async with serving(quick) as world:
        await write(world.client, user, "found after the restart", wait=True)
        assert (await to(quick, 128)).code == 0
    for dimensions in (None, 128):  # the old environment, and the one that was brought up to date
        async with serving(quick.model_copy(update={"embedding_dimensions": dimensions})) as world:
            assert await serves(world, 128)
            assert await found(world.client, user, "after the restart", mode="vector") == ["found after the restart"]
    with pytest.raises(SetupRefused, match="hindsight reembed --to"):
        async with serving(quick.model_copy(update={"embedding_dimensions": 64})):
            pass
    assert (await hindsight(quick, "reembed", "--drop-old")).code == 0
    async with serving(quick) as world:
        assert await serves(world, 128)


async def test_a_service_that_cannot_load_the_model_stops_the_switch_and_serves_on(quick: Settings, user: str) -> None:
    async with serving(quick) as world:
        await write(world.client, user, "served all the time", wait=True)
        follower = world.runtime.follower
        real = follower._open_stored

        async def missing(_stored: Any) -> Any:
            raise SetupRefused("that package is not installed here")

        follower._open_stored = missing
        refused = await to(quick, 128)
        assert (refused.code, "that package is not installed here" in refused.said) == (2, True), refused.said
        assert await serves(world, 384)
        assert await found(world.client, user, "served", mode="vector") == ["served all the time"]
        follower._open_stored = real
        await asyncio.sleep(0.5)
        done = await to(quick, 128)
        assert done.code == 0, done.said
        assert await serves(world, 128)


async def test_a_worker_of_the_old_roles_can_take_nothing_out_of_the_outboxes(quick: Settings, user: str) -> None:
    """It held rows when the roles were exchanged; it has applied them to the collection that is now only kept."""
    async with serving(quick) as world:
        assert (await to(quick, 128, die=(f"{COLLECTIONS}:switch", "before", 1))).code == -9
        roles = await collections(world)
        world.runtime.relay.stop()
        await asyncio.sleep(0.3)
        one = UUID((await write(world.client, user, "held by the old one"))["id"])
        gone = UUID((await write(world.client, user, "erased while it was held"))["id"])
        postgres, worked = world.runtime.postgres, Worked(roles["active"])
        held = await postgres.transaction(lambda c: outbox.claim(c, worked, 10, 60.0))
        assert {row.memory_id for row in held} == {one, gone}
        await world.client.delete(f"/v1/memories/{gone}")
        await postgres.transaction(lambda c: embedding_collections.switch(c, roles["ready"], 200))
        assert await postgres.transaction(lambda c: outbox.complete(c, worked, held)) == []
        await postgres.transaction(lambda c: outbox.give_back(c, worked, held))
        assert await postgres.transaction(lambda c: outbox.claim(c, worked, 10, 60.0)) == []
        due = await postgres.transaction(lambda c: outbox.claim(c, Worked(roles["ready"]), 10, 60.0))
        assert {row.memory_id for row in due} == {one, gone}
        marked = dict(await world.sql("SELECT memory_id, user_id IS NOT NULL FROM shadow_outbox"))
        assert marked == {one: False} or marked == {one: False, gone: True}


async def test_a_transaction_that_began_before_the_second_collection_was_known_is_waited_for(
    quick: Settings, user: str
) -> None:
    async with serving(quick) as world:
        await write(world.client, user, "earlier", wait=True)
        async with world.runtime.postgres.alone() as slow, slow.transaction():
            # as a writer whose trigger ran before the second collection was known, and that has not committed
            await slow.execute("SELECT pg_current_xact_id()")
            running = asyncio.create_task(to(quick, 128))
            await until(lambda: _building(world), COMMAND_S)
            await asyncio.sleep(1.0)
            assert not await in_qdrant(world) - {(await collections(world))["active"]}
        done = await running
        assert done.code == 0, done.said


async def _building(world: World) -> bool:
    return "building" in await collections(world)


async def test_two_runs_at_once_are_refused(quick: Settings, user: str) -> None:
    async with serving(quick) as world:
        async with world.runtime.postgres.alone() as slow, slow.transaction():
            await slow.execute("SELECT pg_current_xact_id()")
            first = asyncio.create_task(to(quick, 128, apart=True))
            await until(lambda: _building(world), COMMAND_S)
            second = await to(quick, 128)
            assert (second.code, "another hindsight reembed is running" in second.said) == (2, True), second.said
        assert (await first).code == 0


async def test_a_lost_second_collection_is_begun_anew(quick: Settings, user: str) -> None:
    async with serving(quick) as world:
        ids = await write_many(world.client, user, [f"rebuilt {n}" for n in range(60)], wait=True)
        assert (await to(quick, 128, die=(f"{COLLECTIONS}:set_role", "before", 1))).code == -9
        shadow = (await collections(world))["building"]
        async with httpx.AsyncClient(trust_env=False, base_url=quick.qdrant_url) as client:
            assert (await client.delete(f"/collections/{shadow}")).status_code == 200
        assert (await to(quick, 128)).code == 0
        assert await memories_in(world, shadow, user) == set(ids)


async def test_a_request_that_embedded_before_the_switch_searches_the_collection_of_its_model(
    quick: Settings, user: str
) -> None:
    async with serving(quick) as world:
        await write(world.client, user, "in flight", wait=True)
        vector = await world.runtime.embedder.embed_query("in flight")
        old = world.runtime.index.collection
        assert (await to(quick, 128)).code == 0
        assert world.runtime.index.collection != old
        chosen = MemoryFilter("default", (user,), utc_now())
        for one in (vector, await world.runtime.embedder.embed_query("in flight")):
            hits = await world.runtime.index.search(one, chosen, 5)
            assert [round(h.cosine, 3) for h in hits.hits] == [1.0]


def test_a_vector_and_each_row_of_many_know_who_made_them() -> None:
    async def made() -> tuple[Any, Any]:
        embedder = SwitchingEmbedder(FaultyEmbedder(dimensions=64))
        rows = await embedder.embed_passages(["one", "two"])
        embedder.switch(FaultyEmbedder(dimensions=32))
        return rows, await embedder.embed_query("one")

    rows, query = asyncio.run(made())
    assert [row.fingerprint.dimensions for row in rows] == [64, 64]
    assert query.fingerprint.dimensions == 32
    assert type(np.asarray(rows[0])) is np.ndarray


async def test_a_poisonous_text_stops_the_switch_until_it_is_left_out(
    quick: Settings, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from memory_service import reembedding

    async with serving(quick) as world:
        await write_many(world.client, user, ["fine", "arsenic", "fine too"], wait=True)
        bad = FaultyEmbedder(dimensions=128)
        bad.poison = "arsenic"

        async def poisoned(*_: Any) -> Any:
            return bad

        monkeypatch.setattr(reembedding, "open_model", poisoned)
        wanted = reembedding.wanted_model(quick, "-", "hash", None, None, 128, None, None)
        with reembedding.bar() as progress:
            with pytest.raises(SetupRefused, match="1 could not be embedded"):
                await reembedding.reembed(quick, wanted, skip_failed=False, progress=progress)
            assert await serves(world, 384)
            await reembedding.reembed(quick, wanted, skip_failed=True, progress=progress)
        assert bad.faults >= 6
        assert await serves(world, 128)
        await indexed(world.client, user)  # the service's own model of that name takes it
        assert await found(world.client, user, "arsenic", mode="vector", limit=1) == ["arsenic"]
