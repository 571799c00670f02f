"""Which memories' and experiences' vectors must be made to match?  The outbox is level-triggered: a row says only that X changed.

Rows are claimed by a lease, not by a lock, so that no connection is held while texts are embedded.  A worker says for which
collection it works: while the embedding model is changed there are two, each with an outbox, and they exchange them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal
from uuid import UUID

from memory_service.domain import IndexState
from memory_service.stores.postgres.pool import Connection, execute, fetch_all, fetch_one

Queue = Literal["index_outbox", "shadow_outbox"]


@dataclass(frozen=True, slots=True)
class Worked:
    """An outbox, and the collection that its rows are applied to.  Rows are given out only while the two belong together."""

    collection: str
    queue: Queue = "index_outbox"

    @property
    def parameters(self) -> dict[str, object]:
        return {"collection": self.collection, "active": self.queue == "index_outbox"}


# The active collection works with index_outbox, a second one with shadow_outbox.
BELONGS = """EXISTS (SELECT 1 FROM embedding_collection e WHERE e.collection = %(collection)s AND e.role <> 'dropped'
             AND (e.role = 'active') = %(active)s)"""


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


async def claim(connection: Connection, worked: Worked, limit: int, lease_s: float) -> list[OutboxRow]:
    """Take due rows that nobody works on.  Attempts are counted here, so a row that kills its worker is bounded too."""
    rows = await fetch_all(
        connection,
        f"""UPDATE {worked.queue} o SET leased_until = now() + %(lease)s, attempts = o.attempts + 1
           FROM (SELECT memory_id FROM {worked.queue}
                 WHERE state = 'pending' AND available_at <= now() AND (leased_until IS NULL OR leased_until < now()) AND {BELONGS}
                 ORDER BY available_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED) AS due
           WHERE o.memory_id = due.memory_id RETURNING o.memory_id, o.tenant, o.seq, o.attempts, o.user_id, o.sweep""",
        {"lease": timedelta(seconds=lease_s), "limit": limit, **worked.parameters},
    )
    return [OutboxRow(*row) for row in rows]


async def claim_one(connection: Connection, worked: Worked, memory_id: UUID, lease_s: float) -> list[OutboxRow]:
    """Take this row out of turn; empty when it is done, given up, or somebody works on it."""
    rows = await fetch_all(
        connection,
        f"""UPDATE {worked.queue} o SET leased_until = now() + %(lease)s, attempts = o.attempts + 1
           WHERE o.memory_id = %(id)s AND state = 'pending' AND (leased_until IS NULL OR leased_until < now()) AND {BELONGS}
           RETURNING o.memory_id, o.tenant, o.seq, o.attempts, o.user_id, o.sweep""",
        {"id": memory_id, "lease": timedelta(seconds=lease_s), **worked.parameters},
    )
    return [OutboxRow(*row) for row in rows]


async def claim_erased(connection: Connection, worked: Worked, limit: int, lease_s: float) -> list[OutboxRow]:
    """Take rows of what was erased and is gone: to apply these no model is needed."""
    rows = await fetch_all(
        connection,
        f"""UPDATE {worked.queue} o SET leased_until = now() + %(lease)s, attempts = o.attempts + 1
           FROM (SELECT memory_id FROM {worked.queue} q
                 WHERE user_id IS NOT NULL AND state = 'pending' AND available_at <= now()
                   AND (leased_until IS NULL OR leased_until < now()) AND {BELONGS}
                   AND NOT EXISTS (SELECT 1 FROM memory m WHERE m.id = q.memory_id)
                   AND NOT EXISTS (SELECT 1 FROM experience x WHERE x.id = q.memory_id)
                 ORDER BY available_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED) AS due
           WHERE o.memory_id = due.memory_id RETURNING o.memory_id, o.tenant, o.seq, o.attempts, o.user_id, o.sweep""",
        {"lease": timedelta(seconds=lease_s), "limit": limit, **worked.parameters},
    )
    return [OutboxRow(*row) for row in rows]


async def complete(connection: Connection, worked: Worked, rows: Sequence[OutboxRow]) -> list[UUID]:
    """Remove the rows that are still at the change that was applied; returns them.  The others go to `give_back`.

    A row that somebody changes at this moment is one of the others: it is not waited for, so no writer can be in a deadlock with us.
    """
    done = await fetch_all(
        connection,
        f"""DELETE FROM {worked.queue} WHERE memory_id IN (
                SELECT o.memory_id FROM {worked.queue} o JOIN unnest(%(ids)s::uuid[], %(seqs)s::bigint[]) AS d(id, seq)
                ON o.memory_id = d.id AND o.seq = d.seq WHERE {BELONGS} FOR UPDATE OF o SKIP LOCKED)
            RETURNING memory_id""",
        {"ids": [r.memory_id for r in rows], "seqs": [r.seq for r in rows], **worked.parameters},
    )
    return [row[0] for row in done]


async def give_back(connection: Connection, worked: Worked, rows: Sequence[OutboxRow]) -> None:
    """Rows that were applied but not removed.

    They changed meanwhile (their lease is released, so they are taken again at once) or were taken over by another
    worker after the lease ran out.  In that case this worker may have overwritten newer vectors with older ones, so the
    memory is enqueued again: the truth is applied once more, in the outbox that its collection has by now, where one that
    is gone is marked as erased (by an empty user: nothing but its vectors is left to remove).
    """
    parameters = {
        "ids": sorted(r.memory_id for r in rows),
        "tenants": [r.tenant for r in sorted(rows, key=lambda r: r.memory_id)],
        "collection": worked.collection,
    }
    for queue, active in (("index_outbox", True), ("shadow_outbox", False)):
        again = "leased_until = NULL"
        if queue != worked.queue:
            again += ", user_id = excluded.user_id, seq = excluded.seq, state = 'pending', attempts = 0"
        await execute(
            connection,
            f"""INSERT INTO {queue} (memory_id, tenant, user_id)
               SELECT id, tenant, CASE WHEN %(exchanged)s AND NOT EXISTS (SELECT 1 FROM memory m WHERE m.id = t.id)
                                        AND NOT EXISTS (SELECT 1 FROM experience x WHERE x.id = t.id) THEN '' END
               FROM unnest(%(ids)s::uuid[], %(tenants)s::text[]) AS t(id, tenant) WHERE {BELONGS}
               ON CONFLICT (memory_id) DO UPDATE SET {again}""",
            {**parameters, "active": active, "exchanged": queue != worked.queue},
        )


async def retry_later(
    connection: Connection, worked: Worked, row: OutboxRow, delay_s: float, error: str, *, dead: bool
) -> None:
    """This row itself could not be applied.  `dead`: it was the last attempt.

    One that changed meanwhile is another matter: it is only released, or it would wait for the lease to run out.
    """
    await execute(
        connection,
        f"""UPDATE {worked.queue} SET leased_until = NULL,
               available_at = CASE WHEN seq = %(seq)s THEN now() + %(delay)s ELSE available_at END,
               error = CASE WHEN seq = %(seq)s THEN %(error)s ELSE error END,
               state = CASE WHEN seq = %(seq)s AND %(dead)s THEN 'dead' ELSE 'pending' END
           WHERE memory_id = %(id)s""",
        {"id": row.memory_id, "seq": row.seq, "delay": timedelta(seconds=delay_s), "error": error[:500], "dead": dead},
    )


async def put_back(connection: Connection, worked: Worked, rows: Sequence[OutboxRow], delay_s: float) -> None:
    """Not the rows' fault (Qdrant or the model is down): the attempt does not count.

    Rows that changed meanwhile are put back too, or they would wait for the lease to run out.
    """
    await execute(
        connection,
        f"""UPDATE {worked.queue} SET leased_until = NULL, attempts = greatest(attempts - 1, 0), available_at = now() + %(delay)s
           WHERE memory_id = ANY(%(ids)s)""",
        {"ids": [r.memory_id for r in rows], "delay": timedelta(seconds=delay_s)},
    )


async def state_of(connection: Connection, memory_id: UUID) -> IndexState:
    """indexed, pending, or failed when it was given up."""
    row = await fetch_one(connection, "SELECT state FROM index_outbox WHERE memory_id = %(id)s", {"id": memory_id})
    if row is None:
        return "indexed"
    return "failed" if row[0] == "dead" else "pending"


async def enqueue_page(
    connection: Connection, queue: Queue, after: UUID | None, limit: int, lock_timeout_ms: int = 0
) -> tuple[UUID | None, int]:
    """Enqueue the next memories and active experiences by id, of all tenants (a rebuild); the last id taken and how many.

    `lock_timeout_ms`: give up when writers hold rows for longer (0: wait), before Postgres sees a deadlock and ends one of them.
    """
    if lock_timeout_ms:
        await execute(connection, "SELECT set_config('lock_timeout', %(ms)s, true)", {"ms": f"{lock_timeout_ms}ms"})
    rows = await fetch_all(
        connection,
        f"""WITH page AS (SELECT id, tenant FROM ((SELECT id, tenant FROM memory
                              WHERE %(after)s::uuid IS NULL OR id > %(after)s ORDER BY id LIMIT %(limit)s)
                          UNION ALL (SELECT id, tenant FROM experience
                              WHERE status = 'active' AND (%(after)s::uuid IS NULL OR id > %(after)s) ORDER BY id LIMIT %(limit)s)
                          ) AS both_kinds ORDER BY id LIMIT %(limit)s),
                put AS (INSERT INTO {queue} (memory_id, tenant) SELECT id, tenant FROM page
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


async def held(connection: Connection, queue: Queue) -> int:
    """Pending rows that failed and wait for another attempt, or that somebody has a lease on."""
    row = await fetch_one(
        connection,
        f"SELECT count(*) FROM {queue} WHERE state = 'pending' AND (error IS NOT NULL OR leased_until > now())",
    )
    return int(row[0]) if row else 0


async def try_again(connection: Connection, queue: Queue) -> int:
    """What was given up becomes due once more; how many that are."""
    return await execute(
        connection,
        f"UPDATE {queue} SET state = 'pending', attempts = 0, available_at = now(), error = NULL WHERE state = 'dead'",
    )


async def backlog(connection: Connection, tenant: str | None = None, queue: Queue = "index_outbox") -> Backlog:
    """Over all tenants, or one."""
    row = await fetch_one(
        connection,
        f"""SELECT count(*) FILTER (WHERE state = 'pending'), count(*) FILTER (WHERE state = 'dead'),
                  COALESCE(extract(epoch FROM now() - min(enqueued_at) FILTER (WHERE state = 'pending')), 0)::float8
           FROM {queue} WHERE %(tenant)s::text IS NULL OR tenant = %(tenant)s""",
        {"tenant": tenant},
    )
    return Backlog(*row) if row else Backlog(0, 0, 0.0)
