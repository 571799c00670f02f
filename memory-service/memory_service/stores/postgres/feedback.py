"""How did memories serve?  What callers said, what finished tasks confirmed, and the heat that comes of it.

Statements only; what an outcome does to heat and confidence is decided by lifecycle/ageing.py.  The one formula here is
heat's (lifecycle/heat.py), because uses of many memories at once are counted where they are stored.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from psycopg.types.json import Jsonb

from memory_service.domain import SHARED_USER, Caller, FeedbackOutcome, Memory, new_id
from memory_service.stores.postgres.pool import Connection, execute, fetch_all, fetch_one


@dataclass(frozen=True, slots=True)
class Said:
    """One row of memory_feedback."""

    tenant: str
    user_id: str
    memory_id: UUID
    at: datetime
    actor: str
    outcome: FeedbackOutcome
    note: str | None = None
    retrieval_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Given:
    """Feedback as it was given.  `occasion` names the finished task that confirmed a use; nobody said it in words then."""

    id: UUID
    user_id: str
    at: datetime
    actor: str
    outcome: FeedbackOutcome
    note: str | None
    retrieval_id: UUID | None
    occasion: str | None


@dataclass(frozen=True, slots=True)
class Warmth:
    """Heat's formula for SQL: `gain` for a use, × `decay` per `decay_s` seconds."""

    gain: float
    decay: float
    decay_s: float


async def insert(connection: Connection, said: Said) -> None:
    await execute(
        connection,
        """INSERT INTO memory_feedback (id, tenant, user_id, memory_id, at, actor, outcome, note, retrieval_id)
           VALUES (%(id)s, %(t)s, %(u)s, %(memory)s, %(at)s, %(actor)s, %(outcome)s, %(note)s, %(retrieval)s)""",
        {
            "id": new_id(),
            "t": said.tenant,
            "u": said.user_id,
            "memory": said.memory_id,
            "at": said.at,
            "actor": said.actor,
            "outcome": said.outcome,
            "note": said.note,
            "retrieval": said.retrieval_id,
        },
    )


async def page(
    connection: Connection, caller: Caller, memory_id: UUID, after: tuple[datetime, UUID] | None, limit: int
) -> tuple[list[Given], int]:
    """What was said of a memory, newest first; and how much there is.

    Of a memory of the common pool a bound key sees what was said for its own user and for all, never for another user.
    """
    where = """tenant = %(t)s AND memory_id = %(id)s
               AND (%(user)s::text IS NULL OR user_id = ANY(ARRAY[%(user)s::text, %(shared)s]))"""
    parameters = {"t": caller.tenant, "id": memory_id, "user": caller.user_id, "shared": SHARED_USER, "limit": limit}
    position = "AND (at, id) < (%(after_at)s, %(after_id)s)" if after else ""
    rows = await fetch_all(
        connection,
        f"""SELECT id, user_id, at, actor, outcome, note, retrieval_id, occasion FROM memory_feedback
            WHERE {where} {position} ORDER BY at DESC, id DESC LIMIT %(limit)s""",
        parameters | ({"after_at": after[0], "after_id": after[1]} if after else {}),
    )
    total = await fetch_one(connection, f"SELECT count(*) FROM memory_feedback WHERE {where}", parameters)
    return [Given(*row) for row in rows], int(total[0]) if total else 0


async def save_heat(connection: Connection, memory: Memory) -> None:
    """Heat, its time and the access time of a locked row; no version, nothing for the relay."""
    await execute(
        connection,
        """UPDATE memory SET heat = %(heat)s, heat_at = %(at)s, last_accessed_at = %(accessed)s
           WHERE id = %(id)s AND kind = %(kind)s AND tenant = %(t)s""",
        {
            "heat": memory.heat,
            "at": memory.heat_at,
            "accessed": memory.last_accessed_at,
            "id": memory.id,
            "kind": memory.kind,
            "t": memory.tenant,
        },
    )


async def retrieval_of(
    connection: Connection, tenant: str, retrieval_id: UUID, memory_id: UUID
) -> tuple[str, bool] | None:
    """Whose search it was and whether it brought this memory; None when it is not in the log."""
    row = await fetch_one(
        connection,
        "SELECT user_id, hits @> %(hit)s FROM retrieval_log WHERE id = %(id)s AND tenant = %(t)s",
        {"id": retrieval_id, "t": tenant, "hit": Jsonb([{"id": str(memory_id)}])},
    )
    return (row[0], row[1]) if row else None


async def note_used(connection: Connection, tenant: str, user_id: str, retrieval_id: UUID, ids: Sequence[UUID]) -> None:
    """What this search brought was used; ids that are there already are not repeated, ids that it did not bring are left out."""
    await execute(
        connection,
        """UPDATE retrieval_log r SET used_ids = r.used_ids || ARRAY(
               SELECT i FROM unnest(%(ids)s::uuid[]) AS i
               WHERE i <> ALL(r.used_ids) AND r.hits @> jsonb_build_array(jsonb_build_object('id', i::text)))
           WHERE r.id = %(id)s AND r.tenant = %(t)s AND r.user_id = %(u)s""",
        {"ids": list(dict.fromkeys(ids)), "id": retrieval_id, "t": tenant, "u": user_id},
    )


async def mark_used(
    connection: Connection, tenant: str, user_id: str, ids: Sequence[UUID], occasion: str, at: datetime, warmth: Warmth
) -> list[UUID]:
    """Count one use of each of the user's memories (or the common pool's) for this occasion; those that it was new for.

    A second call with the same occasion counts nothing.  Rows are locked in the order of ids, against deadlocks.
    """
    parameters = {"t": tenant, "users": [user_id, SHARED_USER], "u": user_id, "at": at, "occasion": occasion}
    present = await fetch_all(
        connection,
        """SELECT id FROM memory WHERE tenant = %(t)s AND (user_id = ANY(%(users)s)) IS TRUE AND id = ANY(%(ids)s)
           ORDER BY id FOR NO KEY UPDATE""",
        {**parameters, "ids": list(ids)},
    )
    locked = [row[0] for row in present]
    fresh = await fetch_all(
        connection,
        """INSERT INTO memory_feedback (id, tenant, user_id, memory_id, at, actor, outcome, occasion)
           SELECT n.id, %(t)s, %(u)s, n.memory, %(at)s, 'task', 'success', %(occasion)s
           FROM unnest(%(new)s::uuid[], %(ids)s::uuid[]) AS n(id, memory)
           ON CONFLICT (tenant, user_id, memory_id, occasion) WHERE occasion IS NOT NULL DO NOTHING RETURNING memory_id""",
        {**parameters, "ids": locked, "new": [new_id() for _ in locked]},
    )
    counted = [row[0] for row in fresh]
    await execute(
        connection,
        """UPDATE memory SET last_accessed_at = greatest(last_accessed_at, %(at)s), heat_at = greatest(heat_at, %(at)s),
               heat = %(gain)s + CASE WHEN pinned THEN heat ELSE heat * power(%(decay)s,
                   extract(epoch FROM greatest(%(at)s - heat_at, interval '0'))::float8 / %(decay_s)s) END
           WHERE tenant = %(t)s AND id = ANY(%(ids)s)""",
        {**parameters, "ids": counted, "gain": warmth.gain, "decay": warmth.decay, "decay_s": warmth.decay_s},
    )
    return counted
