"""How do the lines of a file become rows?  Statements of one importing transaction; moving/service.py decides.

Ids must be free on the whole server, so this asks for them over all tenants; of another tenant's rows it tells only that
they are there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from memory_service.domain import Caller, Experience, Json
from memory_service.stores.postgres import experiences
from memory_service.stores.postgres.experiences import ExperienceTerms, experience_from_row, row_of
from memory_service.stores.postgres.pool import Connection, execute, fetch_all
from memory_service.stores.postgres.versions import OWNER


@dataclass(frozen=True, slots=True)
class OwnerRow:
    """`detail` is the kind of a memory, the status of an experience, the state of a conflict."""

    id: UUID
    what: str
    ours: bool
    user_id: str | None
    version: int
    detail: str


async def lock_ids(connection: Connection, keys: Sequence[int]) -> None:
    """Two imports of the same id, of whichever tenants, come one after the other.  `keys` are 64-bit numbers of the ids."""
    await execute(
        connection,
        "SELECT pg_advisory_xact_lock(k) FROM unnest(%(keys)s::bigint[]) AS k",
        {"keys": sorted(set(keys))},
    )


async def lock_memories(connection: Connection, tenant: str, ids: Sequence[UUID]) -> None:
    """These stay as they are until we commit: an erasure waits, so that nothing erased comes back."""
    await execute(
        connection,
        "SELECT 1 FROM memory WHERE tenant = %(t)s AND id = ANY(%(ids)s) ORDER BY id FOR UPDATE",
        {"t": tenant, "ids": list(ids)},
    )


async def owners(connection: Connection, tenant: str, ids: Sequence[UUID]) -> list[OwnerRow]:
    """Who has these ids, on the whole server."""
    one = """SELECT id, '{what}', tenant = %(t)s, CASE WHEN tenant = %(t)s THEN user_id END, {version},
                    CASE WHEN tenant = %(t)s THEN {detail} ELSE '' END FROM {table} WHERE id = ANY(%(ids)s)"""
    tables = (
        ("memory", "version", "kind", "memory"),
        ("experience", "version", "status", "experience"),
        ("conflict", "0", "state", "memory_conflict"),
    )
    union = " UNION ALL ".join(one.format(what=w, version=v, detail=d, table=t) for w, v, d, t in tables)
    return [OwnerRow(*row) for row in await fetch_all(connection, union, {"t": tenant, "ids": list(ids)})]


async def erased(connection: Connection, caller: Caller, ids: Sequence[UUID]) -> dict[UUID, bool]:
    """Those of `ids` that were erased on this server, and whether they were the caller's.

    To a bound key those of other users are like another tenant's; rows older than `owner` are anybody's of the tenant.
    """
    mine = OWNER.format(id="id", tenant="%(t)s", user="%(user)s")
    rows = await fetch_all(
        connection,
        f"""SELECT id, tenant = %(t)s AND (%(user)s::text IS NULL OR owner IS NULL OR owner = {mine})
            FROM erased WHERE id = ANY(%(ids)s)""",
        {"t": caller.tenant, "user": caller.user_id, "ids": list(ids)},
    )
    return {row[0]: row[1] for row in rows}


async def active_for(connection: Connection, tenant: str, hashes: Sequence[bytes]) -> list[Experience]:
    """The active lessons for these conditions; a hash covers the user."""
    rows = await fetch_all(
        connection,
        f"SELECT {experiences.SELECTED} FROM experience e WHERE e.tenant = %(t)s AND e.condition_hash = ANY(%(h)s) AND e.status = 'active'",
        {"t": tenant, "h": list(hashes)},
    )
    return [experience_from_row(row) for row in rows]


async def insert_experiences(connection: Connection, rows: Sequence[tuple[Experience, ExperienceTerms, int]]) -> None:
    """New lessons; the third value is the user's number of this change."""
    async with connection.cursor() as cursor:
        await cursor.executemany(experiences.INSERT, [row_of(*row) for row in rows])


async def add_versions(connection: Connection, tenant: str, rows: Sequence[Json]) -> set[tuple[UUID, int]]:
    """Replaced versions of memories: those that were not there yet.  A row is {id, version, user_id, at, …} of JSON values."""
    added = await fetch_all(
        connection,
        """INSERT INTO memory_version (memory_id, version, tenant, user_id, at, actor, cause, changes, snapshot)
           SELECT r.id, r.version, %(t)s, r.user_id, r.at, r.actor, r.cause, r.changes, r.snapshot
           FROM jsonb_to_recordset(%(rows)s) AS r(id uuid, version int, user_id text, at timestamptz, actor text, cause text,
                                                  changes jsonb, snapshot jsonb)
           ON CONFLICT DO NOTHING RETURNING memory_id, version""",
        {"t": tenant, "rows": Jsonb(list(rows))},
    )
    return {(row[0], row[1]) for row in added}


async def add_lesson_versions(connection: Connection, tenant: str, rows: Sequence[Json]) -> set[tuple[UUID, int]]:
    """Versions of experiences: those that were not there yet, or only as the placeholder that importing the lesson wrote."""
    added = await fetch_all(
        connection,
        """INSERT INTO experience_version AS v (experience_id, version, tenant, user_id, at, actor, cause, task_id, changes, snapshot)
           SELECT r.id, r.version, %(t)s, r.user_id, r.at, r.actor, r.cause, r.task_id, r.changes, r.snapshot
           FROM jsonb_to_recordset(%(rows)s) AS r(id uuid, version int, user_id text, at timestamptz, actor text, cause text,
                                                  task_id text, changes jsonb, snapshot jsonb)
           ON CONFLICT (experience_id, version) DO UPDATE
           SET at = excluded.at, actor = excluded.actor, cause = excluded.cause, task_id = excluded.task_id,
               changes = excluded.changes, snapshot = excluded.snapshot
           WHERE v.cause = 'imported' AND (v.at, v.actor, v.cause, v.task_id, v.changes, v.snapshot)
                 IS DISTINCT FROM (excluded.at, excluded.actor, excluded.cause, excluded.task_id, excluded.changes, excluded.snapshot)
           RETURNING experience_id, version""",
        {"t": tenant, "rows": Jsonb(list(rows))},
    )
    return {(row[0], row[1]) for row in added}


async def add_relations(
    connection: Connection, tenant: str, rows: Sequence[tuple[UUID, UUID, str, float, datetime]]
) -> set[tuple[UUID, UUID, str]]:
    """(source, target, type, weight, created_at): those that were not there yet."""
    added = await fetch_all(
        connection,
        """INSERT INTO memory_relations (source_id, target_id, relation_type, weight, tenant, created_at)
           SELECT s, d, k, w, %(t)s, c FROM unnest(%(s)s::uuid[], %(d)s::uuid[], %(k)s::text[], %(w)s::float8[],
                                                   %(c)s::timestamptz[]) AS x(s, d, k, w, c)
           ON CONFLICT DO NOTHING RETURNING source_id, target_id, relation_type""",
        {
            "t": tenant,
            "s": [row[0] for row in rows],
            "d": [row[1] for row in rows],
            "k": [row[2] for row in rows],
            "w": [row[3] for row in rows],
            "c": [row[4] for row in rows],
        },
    )
    return {(row[0], row[1], row[2]) for row in added}


async def add_conflicts(connection: Connection, tenant: str, rows: Sequence[Mapping[str, Any]]) -> set[UUID]:
    """Conflicts that were not there yet, and those that were open here and are resolved in the file."""
    added = await fetch_all(
        connection,
        """INSERT INTO memory_conflict AS c (id, tenant, user_id, old_id, new_id, reason, state, resolution, created_at,
                                             resolved_at, resolved_by, found_by)
           SELECT r.id, %(t)s, r.user_id, r.old_id, r.new_id, r.reason, r.state, r.resolution, r.created_at, r.resolved_at,
                  r.resolved_by, r.found_by
           FROM jsonb_to_recordset(%(rows)s) AS r(id uuid, user_id text, old_id uuid, new_id uuid, reason text, state text,
               resolution text, created_at timestamptz, resolved_at timestamptz, resolved_by text, found_by text)
           ON CONFLICT (id) DO UPDATE SET state = excluded.state, resolution = excluded.resolution,
               resolved_at = excluded.resolved_at, resolved_by = excluded.resolved_by
           WHERE c.tenant = %(t)s AND c.state = 'open' AND excluded.state = 'resolved' RETURNING id""",
        {"t": tenant, "rows": Jsonb(list(rows))},
    )
    return {row[0] for row in added}
