"""Which facts and preferences contradict each other and wait for a person?

Statements over memory_conflict, and the memories that a new statement must be compared with before their vectors are there.
Run inside the caller's transaction; write/storing.py and write/resolving.py decide.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from psycopg.rows import TupleRow

from memory_service.domain import Caller, Memory
from memory_service.stores.postgres.memories import SELECTED, memory_from_row
from memory_service.stores.postgres.pool import Connection, execute, fetch_all, fetch_one

ConflictState = Literal["open", "resolved"]
Resolution = Literal["new", "old", "both", "merged"]
FoundBy = Literal["rules", "model"]
COLUMNS = (
    "id, tenant, user_id, old_id, new_id, reason, state, resolution, created_at, resolved_at, resolved_by, found_by"
)
MINE = "tenant = %(tenant)s AND (%(bound)s::text IS NULL OR user_id = %(bound)s)"


@dataclass(frozen=True, slots=True)
class Conflict:
    """A row of memory_conflict."""

    id: UUID
    tenant: str
    user_id: str
    old_id: UUID
    new_id: UUID
    reason: str
    state: ConflictState
    resolution: Resolution | None
    created_at: datetime
    resolved_at: datetime | None
    resolved_by: str | None
    found_by: FoundBy = "rules"


def _conflict(row: TupleRow) -> Conflict:
    return Conflict(*row)


async def insert(connection: Connection, conflict: Conflict) -> None:
    await execute(
        connection,
        """INSERT INTO memory_conflict (id, tenant, user_id, old_id, new_id, reason, state, created_at, found_by)
           VALUES (%(id)s, %(tenant)s, %(user)s, %(old)s, %(new)s, %(reason)s, %(state)s, %(at)s, %(by)s)""",
        {
            "id": conflict.id, "tenant": conflict.tenant, "user": conflict.user_id, "old": conflict.old_id,
            "new": conflict.new_id, "reason": conflict.reason, "state": conflict.state, "at": conflict.created_at,
            "by": conflict.found_by,
        },
    )  # fmt: skip


async def get(connection: Connection, caller: Caller, conflict_id: UUID, *, lock: bool = False) -> Conflict | None:
    """One that this caller may see."""
    row = await fetch_one(
        connection,
        f"SELECT {COLUMNS} FROM memory_conflict WHERE id = %(id)s AND {MINE} {'FOR UPDATE' if lock else ''}",
        {"id": conflict_id, "tenant": caller.tenant, "bound": caller.user_id},
    )
    return _conflict(row) if row else None


async def page(
    connection: Connection,
    caller: Caller,
    user_id: str | None,
    state: ConflictState | None,
    after: tuple[datetime, UUID] | None,
    limit: int,
) -> tuple[list[Conflict], int]:
    """Newest first, beginning after `after`; and how many there are in all."""
    where = (
        f"{MINE} AND (%(user)s::text IS NULL OR user_id = %(user)s) AND (%(state)s::text IS NULL OR state = %(state)s)"
    )
    parameters = {"tenant": caller.tenant, "bound": caller.user_id, "user": user_id, "state": state, "limit": limit}
    position = "AND (created_at, id) < (%(after_at)s, %(after_id)s)" if after else ""
    rows = await fetch_all(
        connection,
        f"SELECT {COLUMNS} FROM memory_conflict WHERE {where} {position} ORDER BY created_at DESC, id DESC LIMIT %(limit)s",
        parameters | ({"after_at": after[0], "after_id": after[1]} if after else {}),
    )
    total = await fetch_one(connection, f"SELECT count(*) FROM memory_conflict WHERE {where}", parameters)
    return [_conflict(row) for row in rows], total[0] if total else 0


async def resolve(
    connection: Connection, tenant: str, conflict_id: UUID, resolution: Resolution, at: datetime, by: str
) -> None:
    await execute(
        connection,
        """UPDATE memory_conflict SET state = 'resolved', resolution = %(resolution)s, resolved_at = %(at)s, resolved_by = %(by)s
           WHERE id = %(id)s AND tenant = %(tenant)s""",
        {"id": conflict_id, "tenant": tenant, "resolution": resolution, "at": at, "by": by},
    )


async def open_of(connection: Connection, tenant: str, memory_ids: Sequence[UUID], limit: int) -> list[Conflict]:
    """Open conflicts that any of these memories is part of, the newest first."""
    rows = await fetch_all(
        connection,
        f"""SELECT {COLUMNS} FROM memory_conflict WHERE tenant = %(tenant)s AND state = 'open'
              AND (old_id = ANY(%(ids)s) OR new_id = ANY(%(ids)s)) ORDER BY created_at DESC, id DESC LIMIT %(limit)s""",
        {"tenant": tenant, "ids": list(memory_ids), "limit": limit},
    )
    return [_conflict(row) for row in rows]


async def move(connection: Connection, conflict: Conflict) -> None:
    """An open conflict is about other memories, or for another reason, than it was."""
    await execute(
        connection,
        """UPDATE memory_conflict SET old_id = %(old)s, new_id = %(new)s, reason = %(reason)s
           WHERE id = %(id)s AND tenant = %(tenant)s AND state = 'open'""",
        {"id": conflict.id, "tenant": conflict.tenant, "old": conflict.old_id, "new": conflict.new_id,
         "reason": conflict.reason},
    )  # fmt: skip


async def join(connection: Connection, tenant: str, dispute: UUID, newest: UUID) -> None:
    """Who carries the conflict `dispute` carries `newest` from now on, which one of them has been drawn into.

    No version of theirs: nothing about them was said, and a dispute of many would write as many each time.
    """
    await execute(
        connection,
        "UPDATE memory SET conflict_id = %(newest)s WHERE tenant = %(tenant)s AND conflict_id = %(dispute)s",
        {"tenant": tenant, "dispute": dispute, "newest": newest},
    )


async def members(connection: Connection, tenant: str, dispute: UUID, limit: int) -> list[UUID]:
    """Memories that carry this conflict."""
    rows = await fetch_all(
        connection,
        """SELECT id FROM memory WHERE tenant = %(tenant)s AND conflict_id = %(dispute)s ORDER BY id DESC LIMIT %(limit)s""",
        {"tenant": tenant, "dispute": dispute, "limit": limit},
    )
    return [row[0] for row in rows]


async def carry(connection: Connection, tenant: str, carried: Mapping[UUID, UUID | None]) -> None:
    """Memories carry these conflicts, or none."""
    await execute(
        connection,
        """UPDATE memory m SET conflict_id = x.conflict FROM unnest(%(ids)s::uuid[], %(conflicts)s::uuid[]) AS x(id, conflict)
           WHERE m.tenant = %(tenant)s AND m.id = x.id AND m.conflict_id IS DISTINCT FROM x.conflict""",
        {"tenant": tenant, "ids": list(carried), "conflicts": list(carried.values())},
    )


async def unindexed_statements(
    connection: Connection,
    tenant: str,
    user_ids: Sequence[str],
    since: datetime,
    now: datetime,
    limit: int,
    fresh: datetime | None = None,
) -> list[Memory]:
    """Active semantic memories written since `since` whose vectors are not there yet, the newest first.

    Those written since `fresh` count too: their vectors may have come after somebody looked for them.
    """
    rows = await fetch_all(
        connection,
        f"""SELECT {SELECTED} FROM memory m WHERE m.tenant = %(tenant)s AND m.user_id = ANY(%(users)s) AND m.kind = 'semantic'
            AND m.created_at >= %(since)s AND m.state = 'active' AND (m.expires_at IS NULL OR m.expires_at > %(now)s)
            AND (m.created_at >= %(fresh)s OR EXISTS (SELECT 1 FROM index_outbox o WHERE o.memory_id = m.id))
            ORDER BY m.created_at DESC, m.id DESC LIMIT %(limit)s""",
        {"tenant": tenant, "users": list(user_ids), "since": since, "now": now, "limit": limit, "fresh": fresh},
    )
    return [memory_from_row(row) for row in rows]
