"""Is a memory that is asked for by id read by its id, however much its owner has?

Statements are prepared once for all users, so the planner does not know how many ids there are nor how large the owner is, and
an index that begins with the owner looks narrow to it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from service_running import World, new_user, write_many

from memory_service.domain import MemoryFilter, new_id
from memory_service.stores.postgres import feedback, memories
from memory_service.stores.postgres.feedback import Warmth
from memory_service.stores.postgres.filters import SqlFilter
from memory_service.stores.postgres.pool import Connection
from memory_service.stores.postgres.rank_facts import rank_facts

NOW = datetime(2026, 12, 1, tzinfo=UTC)
CHOSEN = MemoryFilter(tenant="default", user_ids=("somebody",), now=NOW, states=("active",))
ID = new_id()


class _Asked(Exception):
    """The statement that would have been run."""


class _Listening:
    """A connection that only tells what it is asked."""

    async def execute(self, sql: str, _parameters: Mapping[str, Any], **_options: Any) -> None:
        raise _Asked(sql)


async def asked(work: Callable[[Connection], Awaitable[object]]) -> str:
    """The first statement of `work`, with numbered parameters."""
    with pytest.raises(_Asked) as told:
        await work(cast(Connection, _Listening()))
    names: dict[str, int] = {}
    return re.sub(r"%\((\w+)\)s", lambda m: f"${names.setdefault(m[1], len(names) + 1)}", str(told.value))


BY_ID: dict[str, Callable[[Connection], Awaitable[object]]] = {
    "candidates": lambda c: rank_facts(c, [ID.bytes], SqlFilter(CHOSEN), 400, 200),
    "hits": lambda c: memories.get_many(c, "default", [ID], SqlFilter(CHOSEN)),
    "used": lambda c: feedback.mark_used(c, "default", "somebody", [ID], "task", NOW, Warmth(0.1, 0.9, 604_800.0)),
}


async def plan_of(world: World, work: Callable[[Connection], Awaitable[object]]) -> str:
    """As the service's own sessions make it, without the values."""
    statement = f"EXPLAIN (GENERIC_PLAN) {await asked(work)}"
    cursor = await world.runtime.postgres.read(lambda c: c.execute(statement))  # type: ignore[arg-type]
    return "\n".join(row[0] for row in await cursor.fetchall())


@pytest.mark.parametrize("statement", BY_ID)
async def test_memories_asked_for_by_id_are_not_looked_for_among_all_of_their_owner(
    world: World, statement: str
) -> None:
    user = new_user()
    await write_many(world.client, user, [f"thing number {i}" for i in range(300)], wait=True)
    await world.sql("ANALYZE memory")
    plan = await plan_of(world, BY_ID[statement])
    conditions = re.findall(r"Index Cond: (.*)", plan)
    assert sum("id = ANY" in one for one in conditions) == 2, plan  # episodic and semantic memories
    assert not any("user_id" in one for one in conditions), plan


async def test_a_plan_made_while_nothing_waits_for_its_vector_serves_when_much_does(world: World) -> None:
    """It is kept for a minute or more, and would look through all that waits, for each hit."""
    await write_many(world.client, new_user(), ["one"], wait=True)
    await world.sql("VACUUM ANALYZE index_outbox")
    plan = await plan_of(world, BY_ID["hits"])
    assert "index_outbox_pkey" in plan, plan
    assert "Seq Scan" not in plan, plan
