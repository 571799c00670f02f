"""What does a user have, as lines of a file?  One snapshot, read in pages through server-side cursors.

Memories past `expires_at` are gone, and what refers to them with them.  The tenant is in no line.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from memory_service.domain import SHARED_USER, Json
from memory_service.stores.postgres.experiences import COLUMNS as EXPERIENCE_COLUMNS
from memory_service.stores.postgres.memories import COLUMNS as MEMORY_COLUMNS
from memory_service.stores.postgres.pool import Connection, Postgres, fetch_one

MEMORY_FIELDS = tuple(name for name in MEMORY_COLUMNS if name != "tenant")
EXPERIENCE_FIELDS = tuple(name for name in EXPERIENCE_COLUMNS if name not in ("tenant", "condition_hash"))
VERSION_FIELDS = ("id", "version", "user_id", "at", "actor", "cause", "changes", "snapshot")
LESSON_VERSION_FIELDS = (*VERSION_FIELDS, "task_id")
RELATION_FIELDS = ("source_id", "target_id", "relation_type", "weight", "created_at", "user_id")
CONFLICT_FIELDS = (
    "id", "user_id", "old_id", "new_id", "reason", "state", "resolution", "created_at", "resolved_at", "resolved_by",
    "found_by",
)  # fmt: skip

LIVE = "{m}.tenant = %(t)s AND ({m}.expires_at IS NULL OR {m}.expires_at > %(now)s)"
MINE = "{m}.tenant = %(t)s AND {m}.user_id = %(u)s"
BOTH_LIVE = """EXISTS (SELECT 1 FROM memory a WHERE a.id = {one} AND {a})
            AND EXISTS (SELECT 1 FROM memory b WHERE b.id = {other} AND {b})"""


def _both_live(one: str, other: str) -> str:
    return BOTH_LIVE.format(one=one, other=other, a=LIVE.format(m="a"), b=LIVE.format(m="b"))


# type of the lines → (fields, from and where, order): first what others refer to.
SECTIONS: dict[str, tuple[Sequence[str], str, str]] = {
    "memory": (
        [f"m.{name}" for name in MEMORY_FIELDS],
        f"memory m WHERE {MINE.format(m='m')} AND {LIVE.format(m='m')}",
        "m.created_at, m.id",
    ),
    "experience": (
        [f"e.{name}" for name in EXPERIENCE_FIELDS],
        f"experience e WHERE {MINE.format(m='e')}",
        "e.created_at, e.id",
    ),
    "version": (
        [f"v.{'memory_id' if name == 'id' else name}" for name in VERSION_FIELDS],
        f"memory_version v JOIN memory m ON m.id = v.memory_id WHERE {MINE.format(m='v')} AND {LIVE.format(m='m')}",
        "v.memory_id, v.version",
    ),
    "experience_version": (
        [f"v.{'experience_id' if name == 'id' else name}" for name in LESSON_VERSION_FIELDS],
        f"experience_version v WHERE {MINE.format(m='v')}",
        "v.experience_id, v.version",
    ),
    "relation": (
        ["r.source_id", "r.target_id", "r.relation_type", "r.weight", "r.created_at", "m.user_id"],
        f"""memory_relations r JOIN memory m ON m.id = r.source_id JOIN memory o ON o.id = r.target_id
            WHERE r.tenant = %(t)s AND {MINE.format(m="m")} AND {LIVE.format(m="m")} AND {LIVE.format(m="o")}
              AND o.user_id IN (%(u)s, '{SHARED_USER}')""",
        "r.source_id, r.target_id, r.relation_type",
    ),
    "conflict": (
        [f"c.{name}" for name in CONFLICT_FIELDS],
        f"memory_conflict c WHERE {MINE.format(m='c')} AND {_both_live('c.old_id', 'c.new_id')}",
        "c.created_at, c.id",
    ),
}
NAMES: dict[str, Sequence[str]] = {
    "memory": MEMORY_FIELDS,
    "experience": EXPERIENCE_FIELDS,
    "version": VERSION_FIELDS,
    "experience_version": LESSON_VERSION_FIELDS,
    "relation": RELATION_FIELDS,
    "conflict": CONFLICT_FIELDS,
}


@asynccontextmanager
async def snapshot(postgres: Postgres) -> AsyncIterator[Connection]:
    """A connection that sees one moment and can't write.  Whoever holds it must bound how long."""
    async with postgres.connection() as connection:
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield connection
        await connection.execute("COMMIT")  # after an error the pool rolls back


async def counts(connection: Connection, tenant: str, user_id: str, now: datetime) -> dict[str, int]:
    """How many lines of each type there will be."""
    found = {}
    for name, (_, source, _) in SECTIONS.items():
        row = await fetch_one(connection, f"SELECT count(*) FROM {source}", _parameters(tenant, user_id, now))
        found[name] = int(row[0]) if row else 0
    return found


async def pages(
    connection: Connection, tenant: str, user_id: str, now: datetime, page_rows: int
) -> AsyncIterator[list[Json]]:
    """All lines in order, `page_rows` at a time, each `{type, …}`."""
    for section, (fields, source, order) in SECTIONS.items():
        names = NAMES[section]
        async with connection.cursor(name=f"export_{section}") as cursor:
            sql = f"SELECT {', '.join(fields)} FROM {source} ORDER BY {order}"
            await cursor.execute(sql, _parameters(tenant, user_id, now))
            while rows := await cursor.fetchmany(page_rows):
                yield [{"type": section, **dict(zip(names, row, strict=True))} for row in rows]


def _parameters(tenant: str, user_id: str, now: datetime) -> dict[str, Any]:
    return {"t": tenant, "u": user_id, "now": now}
