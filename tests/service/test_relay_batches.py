"""Batches of the relay that are under way beside each other: does any wait in vain, get lost, or end half done?"""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from fault_embedder import FaultyEmbedder
from service_running import Backends, found, indexed, new_user, numbers, serving, until, write, write_many

from memory_service.settings import Settings

NEVER_S = 60.0  # nothing is found by polling here: whoever changes something must say so


def batches(settings: Settings, **changed: Any) -> Any:
    relay = {"poll_s": NEVER_S, "lease_s": NEVER_S, "batch_rows_max": 2, **changed}
    return numbers(settings, relay=relay, limits={"shutdown_s": 10.0})


async def test_the_next_batch_is_embedded_while_one_is_written_to_qdrant(
    backends: Backends, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, embedder = backends.new_settings(), FaultyEmbedder()
    async with serving(settings, tunables=batches(settings), embedder=embedder) as world:
        await write(world.client, user, "the collection is there")
        await indexed(world.client, user)
        index, original, gate, held = world.runtime.index, world.runtime.index.upsert, asyncio.Event(), 0

        async def slow(points: Any) -> None:
            nonlocal held
            held += 1
            if held == 1:
                await gate.wait()
            await original(points)

        monkeypatch.setattr(index, "upsert", slow)
        late = await write(world.client, user, "held at the gate")
        await until(lambda: _is(held == 1))
        others = await write_many(world.client, user, [f"passes by {n}" for n in range(6)])

        async def passed() -> bool:
            rows = await world.sql("SELECT memory_id FROM index_outbox")
            return rows == [(UUID(late["id"]),)]

        await until(passed)  # all the others, with the one place that is left
        assert await found(world.client, user, "passes by 5", mode="vector", limit=10) != []
        gate.set()
        await indexed(world.client, user)
        assert len(others) == 6


async def _is(value: bool) -> bool:
    return value


async def test_a_memory_that_changes_while_its_batch_is_under_way_is_applied_again_at_once(
    backends: Backends, user: str
) -> None:
    settings, embedder = backends.new_settings(), FaultyEmbedder()
    async with serving(settings, tunables=batches(settings), embedder=embedder) as world:
        await write(world.client, user, "the collection is there")
        await indexed(world.client, user)
        embedder.gate = gate = asyncio.Event()
        memory = await write(world.client, user, "the meeting is on Monday")
        await until(lambda: _is(embedder.faults > 0))
        changed = await world.client.patch(f"/v1/memories/{memory['id']}", json={"content": "the meeting is on Friday"})
        assert changed.status_code == 200
        await asyncio.sleep(0.2)  # the relay looks, finds the row leased and goes to sleep
        embedder.gate = None
        gate.set()
        await indexed(world.client, user)  # within WAIT_S, far below poll_s
        assert await found(world.client, user, "the meeting is on Friday", mode="vector", limit=1) == [
            "the meeting is on Friday"
        ]


async def test_a_service_that_stops_completes_what_is_under_way(backends: Backends) -> None:
    settings, embedder, user = backends.new_settings(), FaultyEmbedder(), new_user()
    async with serving(settings, tunables=batches(settings), embedder=embedder) as world:
        await write(world.client, user, "the collection is there")
        await indexed(world.client, user)
        embedder.slow_s = 1.0
        await write_many(world.client, user, ["one of four", "two of four", "three of four", "four of four"])
        await until(lambda: _is(embedder.faults >= 2))
    async with serving(settings, tunables=batches(settings)) as world:
        assert await world.sql("SELECT count(*) FROM index_outbox WHERE leased_until > now()") == [(0,)]
        await indexed(world.client, user)
