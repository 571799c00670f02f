"""What should the vector index hold?  Every memory, in any state, and every active experience, at the version of its row."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from memory_service.stores.postgres.pool import Connection, execute, fetch_all, fetch_one

OutboxState = Literal["pending", "dead"]
EXPECTED = """
((SELECT id, user_id, version FROM memory WHERE tenant = %(tenant)s AND {which} {order})
 UNION ALL (SELECT id, user_id, version FROM experience WHERE tenant = %(tenant)s AND status = 'active' AND {which} {order}))
"""


@dataclass(frozen=True, slots=True)
class Expected:
    """One that should have vectors, made from this version."""

    id: UUID
    user_id: str
    version: int


async def page(connection: Connection, tenant: str, after: UUID | None, limit: int) -> list[Expected]:
    """The next `limit` by id."""
    union = EXPECTED.format(which="(%(after)s::uuid IS NULL OR id > %(after)s)", order="ORDER BY id LIMIT %(limit)s")
    rows = await fetch_all(
        connection,
        f"SELECT id, user_id, version FROM {union} AS both_kinds ORDER BY id LIMIT %(limit)s",
        {"tenant": tenant, "after": after, "limit": limit},
    )
    return [Expected(*row) for row in rows]


async def among(connection: Connection, tenant: str, ids: Sequence[UUID]) -> dict[UUID, Expected]:
    """Those of `ids` that should have vectors."""
    rows = await fetch_all(
        connection, EXPECTED.format(which="id = ANY(%(ids)s)", order=""), {"tenant": tenant, "ids": list(ids)}
    )
    return {row[0]: Expected(*row) for row in rows}


async def count(connection: Connection, tenant: str) -> int:
    row = await fetch_one(
        connection,
        """SELECT (SELECT count(*) FROM memory WHERE tenant = %(tenant)s)
                + (SELECT count(*) FROM experience WHERE tenant = %(tenant)s AND status = 'active')""",
        {"tenant": tenant},
    )
    return row[0] if row else 0


async def waiting(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, OutboxState]:
    """Those of `ids` that the relay still has to look at (pending), or has given up (dead)."""
    rows = await fetch_all(
        connection, "SELECT memory_id, state FROM index_outbox WHERE memory_id = ANY(%(ids)s)", {"ids": list(ids)}
    )
    return dict(rows)


async def enqueue_again(connection: Connection, tenant: str, ids: Sequence[UUID]) -> None:
    """The relay shall make the vectors of these anew and remove whatever else the index holds of them."""
    await execute(
        connection,
        """INSERT INTO index_outbox (memory_id, tenant, sweep) SELECT id, %(tenant)s, true FROM unnest(%(ids)s::uuid[]) AS t(id)
           ON CONFLICT (memory_id) DO UPDATE SET sweep = true,
               seq = nextval('index_outbox_seq'), state = 'pending', attempts = 0, available_at = now(), error = NULL""",
        {"tenant": tenant, "ids": sorted(ids)},
    )
