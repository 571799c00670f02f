"""How are memories tied to each other?  The graph in memory_relations.

A relation is a row (source, target, type) with a weight; both ends are memories of one tenant.  Statements only: who may
tie what is decided by lifecycle/relations.py, and what a memory's `related_ids` name becomes `related_to` rows here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from memory_service.domain import SHARED_USER, Caller, Memory
from memory_service.stores.postgres.memories import COLUMNS, SELECTED, memory_from_row
from memory_service.stores.postgres.pool import Connection, execute, fetch_all, fetch_one

RELATED_TO = "related_to"  # what `related_ids` of a memory become
Direction = Literal["out", "in"]


@dataclass(frozen=True, slots=True)
class Relation:
    """One row; `created_at` is when it was first said."""

    source_id: UUID
    target_id: UUID
    relation_type: str
    weight: float
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Related:
    """A relation seen from one of its ends: the memory at the other.  (created_at, place) is its position in the list."""

    memory: Memory
    relation_type: str
    direction: Direction
    weight: float
    created_at: datetime
    place: UUID


async def lock_ends(
    connection: Connection, caller: Caller, ids: Sequence[UUID], now: datetime, *, alone: bool = False
) -> dict[UUID, str]:
    """Those of `ids` that this caller may read and whose they are, kept from being erased until the transaction ends.

    `alone`: others who ask for them so wait, which makes counting their relations exact.
    """
    rows = await fetch_all(
        connection,
        f"""SELECT id, user_id FROM memory WHERE tenant = %(t)s AND id = ANY(%(ids)s)
             AND (%(user)s::text IS NULL OR user_id = %(user)s OR user_id = %(shared)s)
             AND (expires_at IS NULL OR expires_at > %(now)s)
           ORDER BY id {"FOR NO KEY UPDATE" if alone else "FOR KEY SHARE"}""",
        {"t": caller.tenant, "ids": list(ids), "user": caller.user_id, "shared": SHARED_USER, "now": now},
    )
    return {row[0]: row[1] for row in rows}


def may_be_tied(one: str, other: str) -> bool:
    """Memories of these two users: of the same one, or one of the common pool, since a relation shows either end's id."""
    return one == other or SHARED_USER in (one, other)


async def counts(connection: Connection, tenant: str, ids: Sequence[UUID], most: int) -> dict[UUID, int]:
    """How many relations each has, from it and to it; counted no further than `most`.

    What leads to a memory of the common pool counts for the other end only: everybody may point at it.
    """
    rows = await fetch_all(
        connection,
        """SELECT i, (SELECT count(*) FROM (
               SELECT 1 FROM memory_relations WHERE tenant = %(t)s AND source_id = i UNION ALL
               SELECT 1 FROM memory_relations WHERE tenant = %(t)s AND target_id = i
                  AND NOT EXISTS (SELECT 1 FROM memory m WHERE m.id = i AND m.tenant = %(t)s AND m.user_id = %(shared)s)
               LIMIT %(most)s) AS r)
           FROM unnest(%(ids)s::uuid[]) AS i""",
        {"t": tenant, "ids": sorted(set(ids)), "most": most, "shared": SHARED_USER},
    )
    return {row[0]: int(row[1]) for row in rows}


async def among(connection: Connection, tenant: str, ids: Sequence[UUID]) -> set[tuple[UUID, UUID, str]]:
    """The relations with both ends among `ids`."""
    rows = await fetch_all(
        connection,
        """SELECT source_id, target_id, relation_type FROM memory_relations
           WHERE tenant = %(t)s AND source_id = ANY(%(ids)s) AND target_id = ANY(%(ids)s)""",
        {"t": tenant, "ids": list(ids)},
    )
    return {(row[0], row[1], row[2]) for row in rows}


async def tie(
    connection: Connection, tenant: str, ends: tuple[UUID, UUID], relation_type: str, weight: float | None, at: datetime
) -> tuple[Relation, bool]:
    """Add the relation or set its weight (None leaves one that is there as it is); True when it is new."""
    row = await fetch_one(
        connection,
        """INSERT INTO memory_relations AS r (source_id, target_id, relation_type, weight, tenant, created_at)
           VALUES (%(source)s, %(target)s, %(type)s, COALESCE(%(weight)s::float8, 1.0), %(t)s, %(at)s)
           ON CONFLICT (source_id, target_id, relation_type)
           DO UPDATE SET weight = COALESCE(%(weight)s::float8, r.weight) WHERE r.tenant = %(t)s
           RETURNING weight, created_at, xmax = 0""",
        {"source": ends[0], "target": ends[1], "type": relation_type, "weight": weight, "t": tenant, "at": at},
    )
    assert row is not None
    return Relation(*ends, relation_type, row[0], row[1]), row[2]


async def untie(connection: Connection, tenant: str, source: UUID, target: UUID, relation_type: str) -> bool:
    """Remove the relation; False when there was none."""
    removed = await execute(
        connection,
        """DELETE FROM memory_relations
           WHERE tenant = %(t)s AND source_id = %(source)s AND target_id = %(target)s AND relation_type = %(type)s""",
        {"t": tenant, "source": source, "target": target, "type": relation_type},
    )
    return removed == 1


async def add_related(connection: Connection, tenant: str, pairs: Sequence[tuple[UUID, UUID]], at: datetime) -> None:
    """`related_to` rows for (source, target) pairs.  A target that was erased meanwhile is left out, as is the source itself."""
    await execute(
        connection,
        """INSERT INTO memory_relations (source_id, target_id, relation_type, tenant, created_at)
           SELECT p.source, m.id, %(type)s, %(t)s, %(at)s FROM unnest(%(sources)s::uuid[], %(targets)s::uuid[]) AS p(source, target)
           JOIN memory m ON m.id = p.target AND m.tenant = %(t)s WHERE p.source <> p.target ORDER BY m.id FOR KEY SHARE OF m
           ON CONFLICT DO NOTHING""",
        {"t": tenant, "sources": [s for s, _ in pairs], "targets": [t for _, t in pairs], "type": RELATED_TO, "at": at},
    )


async def follow_related(connection: Connection, before: Memory, after: Memory) -> None:
    """Make the `related_to` rows follow a change of `related_ids`; relations that were said by themselves stay."""
    if gone := set(before.related_ids) - set(after.related_ids):
        await execute(
            connection,
            """DELETE FROM memory_relations WHERE tenant = %(t)s AND source_id = %(id)s AND target_id = ANY(%(gone)s)
               AND relation_type = %(type)s""",
            {"t": after.tenant, "id": after.id, "gone": sorted(gone), "type": RELATED_TO},
        )
    if fresh := set(after.related_ids) - set(before.related_ids):
        await add_related(connection, after.tenant, [(after.id, one) for one in sorted(fresh)], after.updated_at)


async def related_page(
    connection: Connection,
    caller: Caller,
    memory_id: UUID,
    now: datetime,
    after: tuple[datetime, UUID] | None,
    limit: int,
) -> tuple[list[Related], int]:
    """Relations from and to a memory whose other end the caller may read, the latest first; and how many there are."""
    position = "WHERE (r.created_at, r.place) < (%(after_at)s, %(after_place)s)" if after else ""
    parameters = {
        "t": caller.tenant,
        "id": memory_id,
        "user": caller.user_id,
        "shared": SHARED_USER,
        "now": now,
        "limit": limit,
        "after_at": after[0] if after else None,
        "after_place": after[1] if after else None,
    }
    rows = await fetch_all(
        connection,
        f"""SELECT {SELECTED}, r.relation_type, r.direction, r.weight, r.created_at, r.place {RELATIONS_OF} {position}
            ORDER BY r.created_at DESC, r.place DESC LIMIT %(limit)s""",
        parameters,
    )
    total = await fetch_one(connection, f"SELECT count(*) {RELATIONS_OF}", parameters)
    found = [Related(memory_from_row(row), *row[len(COLUMNS) + 1 :]) for row in rows]
    return found, total[0] if total else 0


ENDS = """SELECT {other} AS other, relation_type, '{direction}' AS direction, weight, created_at,
                 md5(source_id::text || target_id::text || relation_type)::uuid AS place
          FROM memory_relations WHERE tenant = %(t)s AND {end} = %(id)s"""
RELATIONS_OF = f"""FROM ({ENDS.format(other="target_id", direction="out", end="source_id")}
    UNION ALL {ENDS.format(other="source_id", direction="in", end="target_id")}) AS r
    JOIN memory m ON m.id = r.other AND m.tenant = %(t)s
     AND (%(user)s::text IS NULL OR m.user_id = %(user)s OR m.user_id = %(shared)s)
     AND (m.expires_at IS NULL OR m.expires_at > %(now)s)"""
