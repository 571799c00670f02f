"""Which memories' and experiences' vectors must be made to match?  The outbox is level-triggered: a row says only that X changed.

Rows are claimed by a lease, not by a lock, so that no connection is held while texts are embedded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from memory_service.domain import IndexState
from memory_service.stores.postgres.pool import Connection, execute, fetch_all, fetch_one


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """A claimed row.  `seq` tells this change from a later one of the same memory; `user_id` is set for an erased one.

    `sweep`: whatever else the index holds of it must go.
    """

    memory_id: UUID
    tenant: str
    seq: int
    attempts: int
    user_id: str | None = None
    sweep: bool = False


async def claim(connection: Connection, limit: int, lease_s: float) -> list[OutboxRow]:
    """Take due rows that nobody works on.  Attempts are counted here, so a row that kills its worker is bounded too."""
    rows = await fetch_all(
        connection,
        """UPDATE index_outbox o SET leased_until = now() + %(lease)s, attempts = o.attempts + 1
           FROM (SELECT memory_id FROM index_outbox
                 WHERE state = 'pending' AND available_at <= now() AND (leased_until IS NULL OR leased_until < now())
                 ORDER BY available_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED) AS due
           WHERE o.memory_id = due.memory_id RETURNING o.memory_id, o.tenant, o.seq, o.attempts, o.user_id, o.sweep""",
        {"lease": timedelta(seconds=lease_s), "limit": limit},
    )
    return [OutboxRow(*row) for row in rows]


async def claim_one(connection: Connection, memory_id: UUID, lease_s: float) -> list[OutboxRow]:
    """Take this row out of turn; empty when it is done, given up, or somebody works on it."""
    rows = await fetch_all(
        connection,
        """UPDATE index_outbox o SET leased_until = now() + %(lease)s, attempts = o.attempts + 1
           WHERE o.memory_id = %(id)s AND state = 'pending' AND (leased_until IS NULL OR leased_until < now())
           RETURNING o.memory_id, o.tenant, o.seq, o.attempts, o.user_id, o.sweep""",
        {"id": memory_id, "lease": timedelta(seconds=lease_s)},
    )
    return [OutboxRow(*row) for row in rows]


async def complete(connection: Connection, rows: Sequence[OutboxRow]) -> list[UUID]:
    """Remove the rows that are still at the change that was applied; returns them.

    The others changed meanwhile (their lease is released, so they are taken again at once) or were taken over by
    another worker after the lease ran out.  In that case this worker may have overwritten newer vectors with older
    ones, so the memory is enqueued again: the truth is applied once more.
    """
    parameters = {
        "ids": [r.memory_id for r in rows],
        "seqs": [r.seq for r in rows],
        "tenants": [r.tenant for r in rows],
    }
    done = await fetch_all(
        connection,
        """DELETE FROM index_outbox o USING unnest(%(ids)s::uuid[], %(seqs)s::bigint[]) AS d(id, seq)
           WHERE o.memory_id = d.id AND o.seq = d.seq RETURNING o.memory_id""",
        parameters,
    )
    finished = [row[0] for row in done]
    left = [r for r in rows if r.memory_id not in set(finished)]
    if left:
        await execute(
            connection,
            """INSERT INTO index_outbox (memory_id, tenant)
               SELECT id, tenant FROM unnest(%(ids)s::uuid[], %(tenants)s::text[]) AS t(id, tenant)
               ON CONFLICT (memory_id) DO UPDATE SET leased_until = NULL""",
            {"ids": [r.memory_id for r in left], "tenants": [r.tenant for r in left]},
        )
    return finished


async def retry_later(connection: Connection, row: OutboxRow, delay_s: float, error: str, *, dead: bool) -> None:
    """This row itself could not be applied.  `dead`: it was the last attempt.

    One that changed meanwhile is another matter: it is only released, or it would wait for the lease to run out.
    """
    await execute(
        connection,
        """UPDATE index_outbox SET leased_until = NULL,
               available_at = CASE WHEN seq = %(seq)s THEN now() + %(delay)s ELSE available_at END,
               error = CASE WHEN seq = %(seq)s THEN %(error)s ELSE error END,
               state = CASE WHEN seq = %(seq)s AND %(dead)s THEN 'dead' ELSE 'pending' END
           WHERE memory_id = %(id)s""",
        {"id": row.memory_id, "seq": row.seq, "delay": timedelta(seconds=delay_s), "error": error[:500], "dead": dead},
    )


async def put_back(connection: Connection, rows: Sequence[OutboxRow], delay_s: float) -> None:
    """Not the rows' fault (Qdrant or the model is down): the attempt does not count.

    Rows that changed meanwhile are put back too, or they would wait for the lease to run out.
    """
    await execute(
        connection,
        """UPDATE index_outbox SET leased_until = NULL, attempts = greatest(attempts - 1, 0), available_at = now() + %(delay)s
           WHERE memory_id = ANY(%(ids)s)""",
        {"ids": [r.memory_id for r in rows], "delay": timedelta(seconds=delay_s)},
    )


async def state_of(connection: Connection, memory_id: UUID) -> IndexState:
    """indexed, pending, or failed when it was given up."""
    row = await fetch_one(connection, "SELECT state FROM index_outbox WHERE memory_id = %(id)s", {"id": memory_id})
    if row is None:
        return "indexed"
    return "failed" if row[0] == "dead" else "pending"


async def enqueue_page(connection: Connection, after: UUID | None, limit: int) -> tuple[UUID | None, int]:
    """Enqueue the next memories and active experiences by id, of all tenants (a rebuild); the last id taken and how many."""
    rows = await fetch_all(
        connection,
        """WITH page AS (SELECT id, tenant FROM ((SELECT id, tenant FROM memory
                              WHERE %(after)s::uuid IS NULL OR id > %(after)s ORDER BY id LIMIT %(limit)s)
                          UNION ALL (SELECT id, tenant FROM experience
                              WHERE status = 'active' AND (%(after)s::uuid IS NULL OR id > %(after)s) ORDER BY id LIMIT %(limit)s)
                          ) AS both_kinds ORDER BY id LIMIT %(limit)s),
                put AS (INSERT INTO index_outbox (memory_id, tenant) SELECT id, tenant FROM page
                        ON CONFLICT (memory_id) DO UPDATE
                        SET seq = nextval('index_outbox_seq'), state = 'pending', attempts = 0, available_at = now(), error = NULL)
           SELECT id FROM page ORDER BY id""",
        {"after": after, "limit": limit},
    )
    return (rows[-1][0] if rows else None), len(rows)


@dataclass(frozen=True, slots=True)
class Backlog:
    """How far the vectors are behind.  `oldest_s` is the age of the oldest pending row, 0 when there is none."""

    pending: int
    dead: int
    oldest_s: float


async def backlog(connection: Connection, tenant: str | None = None) -> Backlog:
    """Over all tenants, or one."""
    row = await fetch_one(
        connection,
        """SELECT count(*) FILTER (WHERE state = 'pending'), count(*) FILTER (WHERE state = 'dead'),
                  COALESCE(extract(epoch FROM now() - min(enqueued_at) FILTER (WHERE state = 'pending')), 0)::float8
           FROM index_outbox WHERE %(tenant)s::text IS NULL OR tenant = %(tenant)s""",
        {"tenant": tenant},
    )
    return Backlog(*row) if row else Backlog(0, 0, 0.0)
