"""Which lessons came of a memory, who told them, and what has to move when one is made anew?

Statements only; lifecycle/families.py decides.  Lock order: memories, then `experiences.lock_user`.
"""

from collections.abc import Sequence
from uuid import UUID

from memory_service.domain import Experience
from memory_service.stores.postgres.experiences import SELECTED, experience_from_row
from memory_service.stores.postgres.pool import Connection, execute, fetch_all, fetch_one

# Insights have a rule of their own: they say what all of their sources say.
LEARNED = "e.rule IS NOT NULL AND e.origin <> 'insight'"


async def lock_sources(connection: Connection, tenant: str, ids: Sequence[UUID]) -> set[UUID]:
    """Those of these memories that are there; erasing them waits until we commit."""
    rows = await fetch_all(
        connection,
        "SELECT id FROM memory WHERE tenant = %(t)s AND id = ANY(%(ids)s) ORDER BY id FOR KEY SHARE",
        {"t": tenant, "ids": list(ids)},
    )
    return {row[0] for row in rows}


async def learned_from(connection: Connection, tenant: str, ids: Sequence[UUID]) -> list[Experience]:
    """Lessons in any status that were learned of these memories and of others."""
    rows = await fetch_all(
        connection,
        f"""SELECT {SELECTED} FROM experience e WHERE e.tenant = %(t)s AND e.source_memory_ids && %(ids)s::uuid[]
              AND e.source_memory_ids <> '{{}}' AND {LEARNED} ORDER BY e.id""",
        {"t": tenant, "ids": list(ids)},
    )
    return [experience_from_row(row) for row in rows]


# Their words are those of the first telling; when that names an erased memory, it was erased since.
QUOTING = f"""FROM experience e
    CROSS JOIN LATERAL (SELECT v.cause, v.snapshot -> 'source_memory_ids' AS sources FROM experience_version v
                        WHERE v.experience_id = e.id AND v.tenant = %(t)s ORDER BY v.version LIMIT 1) AS f
    CROSS JOIN LATERAL (SELECT array_agg(x.id) AS ids FROM erased x WHERE x.tenant = %(t)s AND x.id = ANY(ARRAY(
                        SELECT s::uuid FROM jsonb_array_elements_text(f.sources) AS s))) AS g
    WHERE e.tenant = %(t)s AND {LEARNED} AND f.cause <> 'source_erased' AND g.ids IS NOT NULL"""


async def quoting_erased(connection: Connection, tenant: str, limit: int) -> list[tuple[Experience, list[UUID]]]:
    """Up to `limit` lessons whose words came of memories that are erased, and which those were."""
    rows = await fetch_all(
        connection, f"SELECT {SELECTED}, g.ids {QUOTING} ORDER BY e.id LIMIT %(limit)s", {"t": tenant, "limit": limit}
    )
    return [(experience_from_row(row[:-1]), row[-1]) for row in rows]


async def quoting_erased_count(connection: Connection, tenant: str) -> int:
    row = await fetch_one(connection, f"SELECT count(*) {QUOTING}", {"t": tenant})
    return int(row[0]) if row else 0


async def tellings(connection: Connection, tenant: str, experience_id: UUID) -> list[tuple[str, list[UUID]]]:
    """(cause, sources then) of the oldest version and of those that reinforced the lesson, oldest first."""
    rows = await fetch_all(
        connection,
        """SELECT cause, ARRAY(SELECT s::uuid FROM jsonb_array_elements_text(snapshot -> 'source_memory_ids') AS s)
           FROM experience_version WHERE tenant = %(t)s AND experience_id = %(id)s
             AND (cause = 'reinforced' OR version = (SELECT min(version) FROM experience_version
                                                     WHERE tenant = %(t)s AND experience_id = %(id)s))
           ORDER BY version""",
        {"t": tenant, "id": experience_id},
    )
    return [(row[0], row[1]) for row in rows]


async def take_over(connection: Connection, tenant: str, old: UUID, new: UUID) -> list[UUID]:
    """Before `old` is erased: which tasks have spoken of it goes to `new` → the lessons that gave way to it."""
    await execute(
        connection,
        "UPDATE experience_feedback SET experience_id = %(new)s WHERE tenant = %(t)s AND experience_id = %(old)s",
        {"t": tenant, "old": old, "new": new},
    )
    rows = await fetch_all(
        connection,
        "SELECT id FROM experience WHERE tenant = %(t)s AND superseded_by = %(old)s",
        {"t": tenant, "old": old},
    )
    return [row[0] for row in rows]


async def point_to(connection: Connection, tenant: str, ids: Sequence[UUID], winner: UUID) -> None:
    """These gave way to `winner`."""
    await execute(
        connection,
        "UPDATE experience SET superseded_by = %(winner)s WHERE tenant = %(t)s AND id = ANY(%(ids)s)",
        {"t": tenant, "ids": list(ids), "winner": winner},
    )
