"""Qdrant follows Postgres: poison, races, leases, lost volumes and changed models."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import httpx
import pytest
from fault_embedder import FaultyEmbedder
from service_running import (
    Backends,
    World,
    found,
    indexed,
    listed,
    new_user,
    numbers,
    serving,
    until,
    write,
    write_many,
)
from typer.testing import CliRunner

from memory_service.errors import SetupRefused
from memory_service.settings import Settings

QUICK: dict[str, Any] = {"backoff_s": 0.02, "backoff_s_max": 0.05, "poll_s": 0.1, "attempts_max": 3, "lease_s": 1.0}


def quick(settings: Settings, **changed: Any) -> Any:
    return numbers(settings, relay={**QUICK, **changed}, limits={"wait_indexed_s_max": 2.0})


async def qdrant(world: World, method: str, path: str, body: Any = None) -> Any:
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.request(method, f"{world.settings.qdrant_url}{path}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]


async def points(world: World, user: str) -> list[dict[str, Any]]:
    """Payloads of a user's points, asked directly."""
    chosen = {"must": [{"key": "user_id", "match": {"value": user}}]}
    path = f"/collections/{world.settings.qdrant_collection}/points/scroll"
    return [
        p["payload"]
        for p in (await qdrant(world, "POST", path, {"filter": chosen, "limit": 1000, "with_payload": True}))["points"]
    ]


async def test_a_poison_row_becomes_a_dead_letter_and_holds_up_no_other(backends: Backends, user: str) -> None:
    settings, embedder = backends.new_settings(), FaultyEmbedder()
    embedder.poison = "arsenic"
    async with serving(settings, tunables=quick(settings), embedder=embedder) as world:
        ids = await write_many(world.client, user, ["fine one", "arsenic", "fine two"])
        for _ in range(2):
            await write_many(world.client, user, [f"later {new_user()}"])

        async def dead() -> bool:
            return (await world.client.get("/v1/stats")).json()["index"] | {"model": 0} == {
                "pending": 0,
                "dead": 1,
                "oldest_s": 0.0,
                "model": 0,
            }

        await until(dead)
        assert embedder.faults >= 3
        ready = (await world.client.get("/ready")).json()
        assert (ready["index"]["dead"], ready["index"]["pending"]) == (1, 0)
        assert 'hindsight_outbox_rows{state="dead"} 1.0' in (await world.client.get("/metrics")).text
        states = {m["content"]: m["index"]["state"] for m in await listed(world.client, user)}
        assert states.pop("arsenic") == "failed"
        assert set(states.values()) == {"indexed"}
        ((attempts, error),) = await world.sql(
            "SELECT attempts, error FROM index_outbox WHERE memory_id = %s", UUID(ids[1])
        )
        assert attempts == 3
        assert "ValueError" in error
        assert await found(world.client, user, "arsenic", mode="keyword") == ["arsenic"]
        await world.client.patch(f"/v1/memories/{ids[1]}", json={"content": "no longer harmful"})
        await indexed(world.client, user)
        assert (await world.client.get("/v1/stats")).json()["index"]["dead"] == 0


async def test_a_point_that_qdrant_refuses_is_a_poison_row_too(
    world: World, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from memory_service.stores.qdrant import PointRefused

    index, original, struck = world.runtime.index, world.runtime.index.upsert, 0

    async def refusing(batch: Any) -> None:
        nonlocal struck
        if any(p["payload"].get("category") == "refused" for p in batch):
            struck += 1
            raise PointRefused("qdrant answered 400")
        await original(batch)

    monkeypatch.setattr(index, "upsert", refusing)
    good, bad = (
        await write(world.client, user, "welcome"),
        await write(world.client, user, "unwelcome", category="refused"),
    )

    async def tried() -> bool:
        rows = await world.sql("SELECT error FROM index_outbox WHERE memory_id = %s AND attempts >= 1", UUID(bad["id"]))
        return bool(rows and rows[0][0])

    async def the_other_is_indexed() -> bool:
        there = (await world.client.get(f"/v1/memories/{good['id']}")).json()
        return bool(there["index"]["state"] == "indexed")

    await until(tried)
    await until(the_other_is_indexed)  # in a batch of its own it may end after the refused one
    assert struck >= 1
    await world.client.delete(f"/v1/memories/{bad['id']}")


async def test_two_relays_at_once_apply_every_row(backends: Backends, user: str) -> None:
    settings = backends.new_settings()
    async with (
        serving(settings, tunables=quick(settings, batch_rows_max=7)) as one,
        serving(settings, tunables=quick(settings, batch_rows_max=5)) as two,
    ):
        for start in range(0, 200, 50):
            await asyncio.gather(
                write_many(one.client, user, [f"one {start + n}" for n in range(25)]),
                write_many(two.client, user, [f"two {start + n}" for n in range(25)]),
            )
        await indexed(one.client, user)
        assert len(await points(one, user)) == 200

        async def counted() -> bool:  # a relay counts what it applied after Postgres has heard of it
            applied = [w.runtime.relay.state.applied for w in (one, two)]
            return sum(applied) >= 200 and min(applied) > 0

        await until(counted)


async def test_a_row_that_changes_while_it_is_embedded_is_applied_again(backends: Backends, user: str) -> None:
    settings, embedder = backends.new_settings(), FaultyEmbedder()
    async with serving(settings, tunables=quick(settings), embedder=embedder) as world:
        embedder.gate = asyncio.Event()
        memory = await write(world.client, user, "before the change")

        async def embedding() -> bool:
            return embedder.faults > 0

        await until(embedding)
        await world.client.patch(f"/v1/memories/{memory['id']}", json={"content": "after the change"})
        erased = await write(world.client, user, "erased while it waits")
        await world.client.delete(f"/v1/memories/{erased['id']}")
        embedder.gate.set()
        await indexed(world.client, user)

        async def settled() -> bool:
            return [(p["memory_id"], p["version"]) for p in await points(world, user)] == [(memory["id"], 2)]

        await until(settled)
        assert await found(world.client, user, "after", mode="vector") == ["after the change"]


async def test_a_shrunk_memory_leaves_no_old_chunks(backends: Backends, user: str) -> None:
    settings = backends.new_settings()
    async with serving(settings, tunables=quick(settings)) as world:
        memory = await write(world.client, user, " ".join(f"word{n}" for n in range(2_000)), wait=True)
        assert len(await points(world, user)) > 4
        await world.client.patch(f"/v1/memories/{memory['id']}", json={"content": "short now"})
        await indexed(world.client, user)
        assert [p["version"] for p in await points(world, user)] == [2]


async def test_a_row_of_a_dead_worker_is_taken_after_its_lease(backends: Backends, user: str) -> None:
    settings = backends.new_settings()
    async with serving(settings, tunables=quick(settings)) as world:
        memory = await write(world.client, user, "left behind", wait=True)
        await world.sql(
            "INSERT INTO index_outbox (memory_id, tenant, attempts, leased_until) VALUES (%s, 'default', 1, now() + interval '2 s')",
            UUID(memory["id"]),
        )
        world.runtime.relay.nudge()
        await asyncio.sleep(0.3)
        assert len(await world.sql("SELECT 1 FROM index_outbox")) == 1
        await indexed(world.client, user)


async def test_a_lost_qdrant_volume_is_refilled_from_postgres_while_running_and_at_start(
    backends: Backends, user: str
) -> None:
    settings = backends.new_settings()
    async with serving(settings, tunables=quick(settings)) as world:
        await write_many(world.client, user, [f"kept {n}" for n in range(30)], wait=True)
        await qdrant(world, "DELETE", f"/collections/{world.runtime.index.collection}")
        await write(world.client, user, "after the loss")  # makes the relay look

        async def refilled() -> bool:
            try:
                return len(await points(world, user)) == 31
            except AssertionError:
                return False

        await until(refilled)
        await qdrant(world, "DELETE", f"/collections/{world.runtime.index.collection}")
    async with serving(settings, tunables=quick(settings)) as world:
        await until(refilled)
        assert len(await found(world.client, user, "kept", mode="vector", limit=50)) == 31


@pytest.mark.parametrize(
    "other",
    [FaultyEmbedder(model="another-model"), FaultyEmbedder(dimensions=128)],
    ids=["same dimension", "other dimension"],
)
async def test_vectors_of_another_model_stop_the_start_with_the_command_to_run(
    backends: Backends, user: str, other: FaultyEmbedder
) -> None:
    settings = backends.new_settings()
    async with serving(settings, tunables=quick(settings), embedder=FaultyEmbedder()) as world:
        await write(world.client, user, "of the first model", wait=True)
    with pytest.raises(SetupRefused, match="hindsight reindex --replace") as refused:
        async with serving(settings, tunables=quick(settings), embedder=other):
            pass
    assert "hindsight/feature-hashing" in str(refused.value)
    async with serving(settings, tunables=quick(settings), embedder=FaultyEmbedder()) as world:
        assert await found(world.client, user, "first model", mode="vector") == ["of the first model"]


def environment(settings: Settings, **changed: str) -> dict[str, str]:
    """The settings as the environment of a command."""
    values = {"DATABASE_URL": settings.database_url, "REDIS_URL": settings.redis_url, "QDRANT_URL": settings.qdrant_url,
              "QDRANT_COLLECTION": settings.qdrant_collection, "EMBEDDING_PROVIDER": "hash", "HOME": "/nonexistent", **changed}  # fmt: skip
    return {f"HINDSIGHT_{name}": value for name, value in values.items()}


async def test_reindex_rebuilds_with_another_model(backends: Backends, user: str) -> None:
    from memory_service.__main__ import app

    settings = backends.new_settings()
    async with serving(settings, tunables=quick(settings)) as world:
        await write_many(world.client, user, [f"rebuilt {n}" for n in range(40)], wait=True)

    async def run(*arguments: str, **changed: str) -> Any:
        return await asyncio.to_thread(
            CliRunner().invoke, app, ["reindex", *arguments], env=environment(settings, **changed)
        )

    refused = await run(EMBEDDING_DIMENSIONS="128")
    assert refused.exit_code != 0
    assert "hindsight reindex --replace" in str(refused.exception)
    done = await run("--replace", EMBEDDING_DIMENSIONS="128")
    assert done.exit_code == 0, done.output
    assert "40 memories, 40 vectors" in done.output
    changed = settings.model_copy(update={"embedding_dimensions": 128})
    async with serving(changed, tunables=quick(changed)) as world:
        assert len(await found(world.client, user, "rebuilt", mode="vector", limit=50)) == 40
        assert (await world.client.get("/ready")).json()["embedding"]["dimensions"] == 128
    again = await run(EMBEDDING_DIMENSIONS="128")
    assert (again.exit_code, "40 memories, 40 vectors" in again.output) == (0, True)


async def test_an_erased_memory_takes_its_copies_in_working_memory_along(client: httpx.AsyncClient, user: str) -> None:
    memory = await write(client, user, "copied fact", wait=True)
    facts = [{"fact": "copied fact", "source": f"memory:{memory['id']}"}, {"fact": "own fact"}]
    await client.put("/v1/working-memory/t", json={"user_id": user, "confirmed_facts": facts})
    await client.delete(f"/v1/memories/{memory['id']}")

    async def gone() -> bool:
        state = (await client.get("/v1/working-memory/t", params={"user_id": user})).json()
        return [f["fact"] for f in state["confirmed_facts"]] == ["own fact"]

    await until(gone)


async def test_a_write_that_waits_is_indexed_past_a_long_queue(backends: Backends) -> None:
    async with serving(backends.new_settings()) as world:
        user, other = new_user(), new_user("bulk")
        await world.sql("UPDATE index_outbox SET available_at = now() + interval '1 hour'")
        await write_many(world.client, other, [f"bulk line {n}" for n in range(500)])
        answer = await world.client.post(
            "/v1/memories",
            params={"wait": "indexed"},
            json={"user_id": user, "content": "somebody waits for this", "infer": False},
        )
        assert answer.json()["memory"]["index"]["state"] == "indexed"


async def test_keyword_entries_are_sorted_in_when_nobody_writes_any_more(backends: Backends, user: str) -> None:
    """Else every look for a term reads the list of all that was written lately."""
    for poll_s, left in ((60.0, True), (0.1, False)):
        settings = backends.new_settings()
        async with serving(settings, tunables=quick(settings, poll_s=poll_s)) as world:
            await write_many(world.client, user, [f"thing number {i}" for i in range(50)], wait=True)
            await asyncio.sleep(1.5)
            pages = await world.sql("SELECT gin_clean_pending_list('episodic_memory_terms')")
            assert (pages[0][0] > 0) is left
            assert await found(world.client, user, "number 7")
