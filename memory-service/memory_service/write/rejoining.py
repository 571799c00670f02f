"""Who is set against whom when a memory in the middle of a dispute is erased?

A was against B and B against C; without B nobody would be asked about A and C.  Runs inside the transaction of the erasure, once
the memory and its conflicts are gone; of its text nothing is kept.  The rules alone say whether two are against each other.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from itertools import pairwise
from uuid import UUID

from memory_service.stores.postgres import conflicts, memories
from memory_service.stores.postgres.conflicts import Conflict
from memory_service.stores.postgres.pool import Connection
from memory_service.write.contradictions import Contradictions
from memory_service.write.disputes import Pair, set_against


def torn_apart(torn: Sequence[Conflict], gone: Collection[UUID]) -> list[tuple[UUID, UUID]]:
    """Pure: memories that were against the same erased one, each beside the next newer; `torn` were the open conflicts of `gone`."""
    pairs: dict[tuple[UUID, UUID], None] = {}
    for lost in gone:
        sides = {one for conflict in torn for one in (conflict.old_id, conflict.new_id) if _about(conflict, lost)}
        pairs |= dict.fromkeys(pairwise(sorted(sides - {*gone}, key=lambda one: one.int)))
    return list(pairs)


def _about(conflict: Conflict, memory_id: UUID) -> bool:
    return memory_id in (conflict.old_id, conflict.new_id)


async def rejoin(
    contradictions: Contradictions,
    connection: Connection,
    tenant: str,
    torn: Sequence[Conflict],
    gone: Collection[UUID],
    now: datetime,
) -> None:
    """Raise what is left to ask."""
    pairs = torn_apart(torn, gone)
    for older, newer in pairs:
        rows = {m.id: m for m in await memories.get_many(connection, tenant, [older, newer], lock=True)}
        if any(one not in rows or rows[one].state != "active" for one in (older, newer)):
            continue
        left = await conflicts.open_of(connection, tenant, [older], contradictions.numbers.dispute_max)
        reason = contradictions.reason_between(rows[newer], rows[older])
        raised = set_against(Pair(older, newer), rows, reason, now)
        if raised is None or any(_about(one, newer) for one in left):
            continue
        await conflicts.insert(connection, raised)
        for dispute in {row.conflict_id for row in rows.values()} - {None}:
            await conflicts.join(connection, tenant, dispute, raised.id)  # type: ignore[arg-type]
        await conflicts.carry(connection, tenant, {older: raised.id, newer: raised.id})
