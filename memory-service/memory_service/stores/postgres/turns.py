"""Which buffered messages were written already?  Ids and positions only, committed together with what they became.

The session's buffer in Redis forgets a message after the commit.  When the process dies in between, or Redis is down, this
is what keeps the message from being written again, also when its memory was erased meanwhile.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from uuid import UUID

from psycopg.types.json import Jsonb

from memory_service.stores.postgres.pool import Connection, execute, fetch_all

# Start and end of the parts of a message that were written; None is all of it.
Cuts = tuple[tuple[int, int], ...] | None


async def note_written(
    connection: Connection, tenant: str, user_id: str, cuts: Mapping[UUID, Cuts], keep_seconds: int
) -> None:
    """These messages, or parts of them, are memories now; forget notes of buffers that have ended."""
    await execute(
        connection,
        "DELETE FROM turn_written WHERE tenant = %(t)s AND user_id = %(u)s AND written_at < now() - %(keep)s",
        {"t": tenant, "u": user_id, "keep": timedelta(seconds=keep_seconds)},
    )
    await execute(
        connection,
        """INSERT INTO turn_written (tenant, user_id, message_id, cuts)
           SELECT %(t)s, %(u)s, x.id, NULLIF(x.cuts, 'null'::jsonb)
           FROM unnest(%(ids)s::uuid[], %(cuts)s::jsonb[]) AS x(id, cuts)
           ON CONFLICT (tenant, user_id, message_id) DO UPDATE SET cuts = excluded.cuts""",
        {"t": tenant, "u": user_id, "ids": list(cuts), "cuts": [Jsonb(one) for one in cuts.values()]},
    )


async def written_of(connection: Connection, tenant: str, user_id: str, ids: Sequence[UUID]) -> dict[UUID, Cuts]:
    """Those of `ids` that were written, with which parts."""
    rows = await fetch_all(
        connection,
        """SELECT message_id, cuts FROM turn_written
           WHERE tenant = %(t)s AND user_id = %(u)s AND message_id = ANY(%(ids)s)""",
        {"t": tenant, "u": user_id, "ids": list(ids)},
    )
    return {row[0]: None if row[1] is None else tuple((start, end) for start, end in row[1]) for row in rows}
