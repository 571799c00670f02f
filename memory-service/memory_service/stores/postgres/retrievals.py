"""What was searched for, what came back, and was it used?  The log of retrievals.

Statements only.  Whatever is written here was asked a moment ago, so users and memories that were erased meanwhile are
looked for first: `lock_owners` and `lock_hits` make an erasure either wait for us or be seen.
"""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from memory_service.domain import Json
from memory_service.stores.postgres.pool import Connection, execute, fetch_all, fetch_one

RetrievalSource = Literal["search", "context", "task_start", "experience"]
COLUMNS = "id, tenant, user_id, at, source, query, filters, hits, degraded, took_ms, injected_tokens, used_ids, task_id, hit_count"


@dataclass(frozen=True, slots=True)
class Retrieval:
    """One row of retrieval_log; `hits` are {id, score, lanes} of a search, {id, score, grade, what} of a context and
    {id, score, match, lanes, what} of a query for experiences, in the order returned.

    `at`: when it was asked.  `task_id`: the task that a context was made for.  `hit_count`: how many hits there were when it
    was answered, None until it is stored.
    """

    id: UUID
    tenant: str
    user_id: str
    at: datetime
    source: str
    query: str
    filters: Json
    hits: list[Json]
    degraded: list[str]
    took_ms: float
    injected_tokens: int | None = None
    used_ids: list[UUID] = field(default_factory=list)
    task_id: str | None = None
    hit_count: int | None = None


@dataclass(frozen=True, slots=True)
class RetrievalFilter:
    """Which retrievals.  `user_id` None: those of every user of the tenant.  `since` inclusive, `until` exclusive."""

    tenant: str
    user_id: str | None = None
    sources: tuple[RetrievalSource, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    used: bool | None = None


async def insert_many(connection: Connection, rows: Sequence[Retrieval]) -> None:
    """Append to the log."""
    columns = (
        "id, tenant, user_id, at, source, query, filters, hits, degraded, took_ms, injected_tokens, task_id, hit_count"
    )
    async with connection.cursor() as cursor, cursor.copy(f"COPY retrieval_log ({columns}) FROM STDIN") as copy:
        for r in rows:
            await copy.write_row(
                (
                    r.id,
                    r.tenant,
                    r.user_id,
                    r.at,
                    r.source,
                    r.query,
                    Jsonb(r.filters),
                    Jsonb(r.hits),
                    r.degraded,
                    r.took_ms,
                    r.injected_tokens,
                    r.task_id,
                    len(r.hits) if r.hit_count is None else r.hit_count,
                )
            )


async def stored(connection: Connection, ids: Sequence[UUID]) -> set[UUID]:
    """Which of these are in the log already: of a commit whose outcome was not known."""
    rows = await fetch_all(connection, "SELECT id FROM retrieval_log WHERE id = ANY(%(ids)s)", {"ids": list(ids)})
    return {row[0] for row in rows}


async def page(
    connection: Connection, chosen: RetrievalFilter, after: tuple[datetime, UUID] | None, limit: int
) -> tuple[list[Retrieval], int]:
    """Newest first, beginning after `after`; and how many there are in all."""
    where, parameters = _where(chosen)
    position = "AND (at, id) < (%(after_at)s, %(after_id)s)" if after else ""
    rows = await fetch_all(
        connection,
        f"SELECT {COLUMNS} FROM retrieval_log WHERE {where} {position} ORDER BY at DESC, id DESC LIMIT %(limit)s",
        {**parameters, "limit": limit} | ({"after_at": after[0], "after_id": after[1]} if after else {}),
    )
    total = await fetch_one(connection, f"SELECT count(*) FROM retrieval_log WHERE {where}", parameters)
    return [_retrieval(row) for row in rows], total[0] if total else 0


def _where(chosen: RetrievalFilter) -> tuple[str, dict[str, Any]]:
    parts = {
        "tenant": ("tenant = %(tenant)s", chosen.tenant),
        "user": ("user_id = %(user)s", chosen.user_id),
        "sources": ("source = ANY(%(sources)s)", list(chosen.sources) or None),
        "since": ("at >= %(since)s", chosen.since),
        "until": ("at < %(until)s", chosen.until),
        "used": ("(used_ids <> '{}') = %(used)s", chosen.used),
    }
    given = {name: part for name, part in parts.items() if part[1] is not None}
    return " AND ".join(sql for sql, _ in given.values()), {name: value for name, (_, value) in given.items()}


def _retrieval(row: TupleRow) -> Retrieval:
    return Retrieval(*row)


async def note_lesson_used(
    connection: Connection, tenant: str, user_id: str, experience_id: UUID, since: datetime
) -> None:
    """The user's newest retrieval since then that brought this experience is what it was used from; none is fine."""
    await execute(
        connection,
        """UPDATE retrieval_log SET used_ids = used_ids || %(id)s::uuid
           WHERE id = (SELECT id FROM retrieval_log WHERE tenant = %(t)s AND user_id = %(u)s AND at >= %(since)s
                       AND jsonb_path_query_array(hits, '$[*].id') ? %(text)s ORDER BY at DESC, id DESC LIMIT 1)
             AND tenant = %(t)s AND %(id)s::uuid <> ALL(used_ids)""",
        {"t": tenant, "u": user_id, "id": experience_id, "text": str(experience_id), "since": since},
    )


# Erasing.


async def forget_ids(connection: Connection, tenant: str, ids: Sequence[UUID]) -> None:
    """Take erased memories or experiences out of what others were told; the rest of their rows stays."""
    await execute(
        connection,
        """UPDATE retrieval_log r SET
               hits = COALESCE((SELECT jsonb_agg(x.hit ORDER BY x.place) FROM jsonb_array_elements(r.hits)
                                WITH ORDINALITY AS x(hit, place) WHERE x.hit ->> 'id' <> ALL(%(texts)s)), '[]'),
               used_ids = ARRAY(SELECT u FROM unnest(r.used_ids) AS u WHERE u <> ALL(%(ids)s::uuid[]))
           WHERE r.tenant = %(t)s AND jsonb_path_query_array(r.hits, '$[*].id') ?| %(texts)s""",
        {"t": tenant, "ids": list(ids), "texts": [str(one) for one in ids]},
    )


async def forget_user(connection: Connection, tenant: str, user_id: str, at: datetime, marks_before: datetime) -> int:
    """Remove a user's rows, and remember that what he asked until `at` must not be written any more → how many there were.

    Marks from before `marks_before` go: nobody holds anything so old.
    """
    mark = owner(tenant, user_id)
    parameters = {"t": tenant, "u": user_id, "owner": mark, "at": at, "before": marks_before}
    await execute(connection, "SELECT pg_advisory_xact_lock(%(key)s)", {"key": _lock_key(mark)})
    for statement in (
        """INSERT INTO retrieval_forgotten (tenant, owner, at) VALUES (%(t)s, %(owner)s, %(at)s)
           ON CONFLICT (tenant, owner) DO UPDATE SET at = greatest(retrieval_forgotten.at, excluded.at)""",
        "DELETE FROM retrieval_forgotten WHERE tenant = %(t)s AND at < %(before)s",
    ):
        await execute(connection, statement, parameters)
    return await execute(connection, "DELETE FROM retrieval_log WHERE tenant = %(t)s AND user_id = %(u)s", parameters)


async def lock_owners(connection: Connection, owners: Collection[bytes]) -> dict[bytes, datetime]:
    """Until when what these users asked must not be written; only those who were erased.  Erasing them now waits for us."""
    keys = sorted(map(_lock_key, owners))
    await execute(
        connection,
        "SELECT pg_advisory_xact_lock_shared(key) FROM unnest(%(keys)s::bigint[]) AS key",
        {"keys": keys},
    )
    rows = await fetch_all(  # the owner is made from the tenant, so this asks of no tenant but theirs
        connection, "SELECT owner, at FROM retrieval_forgotten WHERE owner = ANY(%(owners)s)", {"owners": list(owners)}
    )
    return {bytes(row[0]): row[1] for row in rows}


async def lock_hits(connection: Connection, ids: Collection[UUID]) -> set[UUID]:
    """Those of these memories and experiences that exist; erasing them waits for us.  In the order of ids, against deadlocks."""
    found: set[UUID] = set()
    for table in ("memory", "experience"):
        rows = await fetch_all(
            connection,
            f"SELECT id FROM {table} WHERE id = ANY(%(ids)s) ORDER BY id FOR KEY SHARE",
            {"ids": list(ids)},
        )
        found |= {row[0] for row in rows}
    return found


def owner(tenant: str, user_id: str) -> bytes:
    """A user, unreadable."""
    return hashlib.sha256(f"retrievals\0{tenant}\0{user_id}".encode()).digest()


def _lock_key(mark: bytes) -> int:
    return int.from_bytes(mark[:8], signed=True)
