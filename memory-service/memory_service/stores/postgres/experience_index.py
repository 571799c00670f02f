"""What does an index in memory read of a user's experiences, and what can be asked of Postgres while it is not there yet?

`experience_change.counter` says whether anything changed, `changed_seq` what; single erasures are told by experience_gone, all
others by `rebuilt`.  Statements only; experience/active.py decides.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from memory_service.domain import Json
from memory_service.stores.postgres.pool import Connection, execute, fetch_all, fetch_one

READ = """e.id, e.changed_seq, e.status = 'active', e.conditions::text, e.confidence,
          e.confidence_ledger -> -1 ->> 'at', e.created_at, e.task_type, e.tags"""


@dataclass(frozen=True, slots=True)
class IndexedRow:
    """What an index in memory knows of an experience.

    `conditions` is JSON text and `settled_at` RFC 3339 text, when its confidence was last written: thousands of rows are read
    at once, and decoding them on the event loop would hold it up.
    """

    id: UUID
    changed_seq: int
    active: bool
    conditions: str
    confidence: float
    settled_at: str | None
    created_at: datetime
    task_type: str | None
    tags: list[str]


async def change_of(connection: Connection, tenant: str, user_id: str) -> tuple[int, int] | None:
    """(counter, rebuilt) of the user; None when there never was an experience, or all were erased."""
    row = await fetch_one(
        connection,
        "SELECT counter, rebuilt FROM experience_change WHERE tenant = %(t)s AND user_id = %(u)s",
        {"t": tenant, "u": user_id},
    )
    return (row[0], row[1]) if row else None


async def changed_page(
    connection: Connection, tenant: str, user_id: str, since: int | None, after: tuple[int, UUID] | None, limit: int
) -> list[IndexedRow]:
    """Rows changed after `since`, in any status, in the order of their changes beginning after `after`; with None all active ones."""
    condition = "e.status = 'active'" if since is None else "e.changed_seq > %(since)s"
    position = "AND (e.changed_seq, e.id) > (%(after_seq)s, %(after_id)s)" if after else ""
    rows = await fetch_all(
        connection,
        f"""SELECT {READ} FROM experience e WHERE e.tenant = %(t)s AND e.user_id = %(u)s AND {condition} {position}
            ORDER BY e.changed_seq, e.id LIMIT %(limit)s""",
        {
            "t": tenant,
            "u": user_id,
            "since": since,
            "after_seq": after[0] if after else None,
            "after_id": after[1] if after else None,
            "limit": limit,
        },
    )
    return [IndexedRow(*row) for row in rows]


async def gone_since(connection: Connection, tenant: str, user_id: str, since: int) -> list[UUID]:
    """Ids erased one by one after `since`; what was erased together is told by `rebuilt`."""
    rows = await fetch_all(
        connection,
        """SELECT experience_id FROM experience_gone
           WHERE tenant = %(t)s AND user_id = %(u)s AND changed_seq > %(since)s""",
        {"t": tenant, "u": user_id, "since": since},
    )
    return [row[0] for row in rows]


async def carrying_any(
    connection: Connection, tenant: str, user_ids: Sequence[str], sets: Sequence[Sequence[Json]], each: int, most: int
) -> list[IndexedRow]:
    """Active experiences with all triples of one of the sets, at most `each` for every set and `most` in all: by the GIN index."""
    names = {f"c_{i}": Jsonb(list(triples)) for i, triples in enumerate(sets)}
    one = """(SELECT e.id FROM experience e WHERE e.conditions @> %({n})s AND e.tenant = %(t)s
              AND e.user_id = ANY(%(users)s) AND e.status = 'active' LIMIT %(each)s)"""
    union = " UNION ".join(one.format(n=name) for name in names)
    parameters: dict[str, Any] = {**names, "t": tenant, "users": list(user_ids), "each": each, "most": most}
    sql = f"SELECT {READ} FROM experience e WHERE e.id IN ({union}) LIMIT %(most)s"
    rows = await (await connection.execute(sql, parameters, prepare=False)).fetchall()
    return [IndexedRow(*row) for row in rows]


async def note_gone(
    connection: Connection, tenant: str, user_id: str, ids: Sequence[UUID], seq: int, keep: int
) -> None:
    """Tell indexes in memory of single erasures.  Only the newest `keep` stay; whoever is behind those builds anew."""
    parameters = {"t": tenant, "u": user_id, "ids": list(ids), "seq": seq, "keep": keep}
    await execute(
        connection,
        """INSERT INTO experience_gone (tenant, user_id, changed_seq, experience_id)
           SELECT %(t)s, %(u)s, %(seq)s, id FROM unnest(%(ids)s::uuid[]) AS x(id)""",
        parameters,
    )
    await execute(
        connection,
        """WITH dropped AS (
               DELETE FROM experience_gone WHERE tenant = %(t)s AND user_id = %(u)s AND changed_seq <= (
                   SELECT changed_seq FROM experience_gone WHERE tenant = %(t)s AND user_id = %(u)s
                   ORDER BY changed_seq DESC OFFSET %(keep)s LIMIT 1)
               RETURNING changed_seq)
           UPDATE experience_change SET rebuilt = GREATEST(rebuilt, (SELECT max(changed_seq) FROM dropped))
           WHERE tenant = %(t)s AND user_id = %(u)s AND EXISTS (SELECT FROM dropped)""",
        parameters,
    )
