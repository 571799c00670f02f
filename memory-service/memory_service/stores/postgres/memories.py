"""How are memories read and written in Postgres?

Prepared text statements over the partitioned table `memory` (episodic_memory and semantic_memory); each takes a
connection, so that the caller decides what is one transaction.  Every statement carries the tenant.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from memory_service.domain import SHARED_USER, Caller, Entity, Key, Memory
from memory_service.stores.postgres.filters import INDEX_STATE, SqlFilter
from memory_service.stores.postgres.keyword_hits import KeywordHits, packed
from memory_service.stores.postgres.pool import Connection, execute, fetch_all, fetch_one

COLUMNS = (
    "id", "tenant", "kind", "user_id", "content", "summary", "created_at", "updated_at", "occurred_at", "agent_id",
    "session_id", "task_id", "event_type", "category", "tags", "entities", "tool_calls", "outcome", "importance",
    "confidence", "heat", "heat_at", "state", "pinned", "superseded_by", "valid_from", "valid_to", "related_ids",
    "source_memory_ids", "metadata", "version", "conflict_id", "expires_at", "last_accessed_at", "access_count", "written_by",
)  # fmt: skip
DERIVED = ("content_hash", "search_terms", "term_count")
INSERTED = (*COLUMNS, *DERIVED)
SELECTED = ", ".join(f"m.{name}" for name in COLUMNS) + f", {INDEX_STATE}"
CASTS = {"search_terms": "::tsvector"}

INSERT = {
    kind: f"""
WITH written AS (
    INSERT INTO {kind}_memory ({", ".join(INSERTED)})
    VALUES ({", ".join(f"%({name})s{CASTS.get(name, '')}" for name in INSERTED)})
    RETURNING id, tenant)
INSERT INTO index_outbox (memory_id, tenant) SELECT id, tenant FROM written
"""
    for kind in ("episodic", "semantic")
}


@dataclass(frozen=True, slots=True)
class IndexedText:
    """What the keyword index and the duplicate check know of a memory's text."""

    content_hash: bytes
    search_terms: str
    term_count: int


@dataclass(frozen=True, slots=True)
class Important:
    """Memories of at least this importance that happened since then."""

    since: datetime
    least: float
    limit: int


@dataclass(frozen=True, slots=True)
class Recent:
    """What happened since then."""

    since: datetime
    limit: int


def memory_from_row(row: TupleRow) -> Memory:
    """A Memory from the columns of SELECTED."""
    values = dict(zip(COLUMNS, row, strict=False))
    values["entities"] = tuple(Entity(e["name"], e.get("type", "other")) for e in values["entities"])
    for name in ("tags", "tool_calls", "related_ids", "source_memory_ids"):
        values[name] = tuple(values[name])
    return Memory(**values, index_state=row[len(COLUMNS)])


def row_of(memory: Memory, text: IndexedText) -> dict[str, Any]:
    """The parameters of INSERT."""
    row = {name: getattr(memory, name) for name in COLUMNS}
    row["entities"] = Jsonb([{"name": e.name, "type": e.type} for e in memory.entities])
    row["tool_calls"] = Jsonb(list(memory.tool_calls))
    row["metadata"] = Jsonb(dict(memory.metadata))
    for name in ("tags", "related_ids", "source_memory_ids"):
        row[name] = list(row[name])
    row["heat_at"] = memory.heat_at or memory.created_at
    return {**row, "content_hash": text.content_hash, "search_terms": text.search_terms, "term_count": text.term_count}


async def insert(connection: Connection, memory: Memory, text: IndexedText) -> None:
    """The memory and its outbox row, in one statement."""
    await connection.execute(INSERT[memory.kind], row_of(memory, text))


async def insert_many(connection: Connection, rows: Sequence[tuple[Memory, IndexedText]]) -> None:
    """Many memories: one COPY per kind and one statement for their outbox rows."""
    for kind in ("episodic", "semantic"):
        chosen = [row_of(memory, text) for memory, text in rows if memory.kind == kind]
        if not chosen:
            continue
        async with (
            connection.cursor() as cursor,
            cursor.copy(f"COPY {kind}_memory ({', '.join(INSERTED)}) FROM STDIN") as copy,
        ):
            for row in chosen:
                await copy.write_row([row[name] for name in INSERTED])
    await execute(
        connection,
        "INSERT INTO index_outbox (memory_id, tenant) SELECT id, tenant FROM unnest(%(ids)s::uuid[], %(tenants)s::text[]) AS t(id, tenant)",
        {"ids": [memory.id for memory, _ in rows], "tenants": [memory.tenant for memory, _ in rows]},
    )


async def lock_texts(connection: Connection, keys: Sequence[int]) -> None:
    """Hold the transaction's place in line for these texts: two equal writes at once become one memory.

    `keys` are sorted 64-bit hashes; the order is the same for everyone, so that writers can't deadlock.
    """
    await connection.execute(
        "SELECT pg_advisory_xact_lock(k) FROM unnest(%(keys)s::bigint[]) AS k", {"keys": sorted(set(keys))}
    )


async def find_same_text(
    connection: Connection, tenant: str, pairs: Sequence[tuple[str, bytes]], now: datetime
) -> list[Memory]:
    """Live memories whose normalised text has one of these hashes, locked; `pairs` are (user_id, content_hash)."""
    rows = await fetch_all(
        connection,
        f"""SELECT {SELECTED} FROM unnest(%(users)s::text[], %(hashes)s::bytea[]) AS t(user_id, hash)
            JOIN memory m ON m.tenant = %(tenant)s AND m.user_id = t.user_id AND m.content_hash = t.hash
            WHERE m.state IN ('active', 'cold') AND (m.expires_at IS NULL OR m.expires_at > %(now)s)
            ORDER BY m.id FOR UPDATE OF m""",
        {"users": [u for u, _ in pairs], "hashes": [h for _, h in pairs], "tenant": tenant, "now": now},
    )
    return [memory_from_row(row) for row in rows]


async def get(
    connection: Connection, caller: Caller, memory_id: UUID, now: datetime, *, lock: bool = False
) -> Memory | None:
    """One memory that this caller may see; None when there is none."""
    shared = None if lock else SHARED_USER  # everybody may read the common pool, but only its keepers may change it
    row = await fetch_one(
        connection,
        f"""SELECT {SELECTED} FROM memory m WHERE m.id = %(id)s AND m.tenant = %(tenant)s
            AND (%(user)s::text IS NULL OR m.user_id = %(user)s OR m.user_id = %(shared)s)
            AND (m.expires_at IS NULL OR m.expires_at > %(now)s)
            {"FOR UPDATE OF m" if lock else ""}""",
        {"id": memory_id, "tenant": caller.tenant, "user": caller.user_id, "shared": shared, "now": now},
    )
    return memory_from_row(row) if row else None


async def get_many(
    connection: Connection, tenant: str, ids: Sequence[UUID], chosen: SqlFilter | None = None, *, lock: bool = False
) -> list[Memory]:
    """Memories by id; those that `chosen` excludes are left out.  Locked in the order of ids, against deadlocks."""
    where = f"AND {chosen.sql_checked}" if chosen else ""
    parameters = {**(chosen.parameters if chosen else {}), "ids": list(ids), "tenant": tenant}
    tail = "ORDER BY m.id FOR UPDATE OF m" if lock else ""
    sql = f"SELECT {SELECTED} FROM memory m WHERE m.id = ANY(%(ids)s) AND m.tenant = %(tenant)s {where} {tail}"
    return [memory_from_row(row) for row in await fetch_all(connection, sql, parameters)]


async def matching_ids(connection: Connection, chosen: SqlFilter, limit: int) -> list[UUID]:
    """Ids that pass the filter, newest first, at most `limit`."""
    rows = await fetch_all(
        connection,
        f"SELECT m.id FROM memory m WHERE {chosen.sql} ORDER BY m.occurred_at DESC LIMIT %(limit)s",
        {**chosen.parameters, "limit": limit},
    )
    return [row[0] for row in rows]


async def keyword_candidates(
    connection: Connection, chosen: SqlFilter, terms: Sequence[str], per_term: int
) -> KeywordHits:
    """Memories with any of the terms (one tsquery each): at most `per_term` for each term and for all of them together.

    So a rare term finds all that have it, however common the others are.  One plan serves any number of terms: a branch for
    each would be planned each time, which takes longer than running it (2.8 ms against 0.4 for six terms and 44 memories).
    """
    names = [f"q_{i}" for i in range(len(terms))]
    everything = " & ".join(f"({term})" for term in terms)
    parameters = {**chosen.parameters, "q_all": everything, "per_term": per_term}
    parameters |= dict(zip(names, terms, strict=True))
    asked = ", ".join(f"%({name})s::tsquery" for name in ([*names, "q_all"] if len(names) > 1 else names))
    candidates = f"""SELECT DISTINCT ON (k.id) k.* FROM unnest(ARRAY[{asked}]) AS t(query) CROSS JOIN LATERAL (
        SELECT m.id, m.term_count, m.search_terms FROM memory m
        WHERE m.search_terms @@ t.query AND {chosen.sql_checked} LIMIT %(per_term)s) AS k ORDER BY k.id"""
    return KeywordHits.unpacked(await fetch_one(connection, packed(candidates, names), parameters), len(names))


async def corpus_size(connection: Connection, tenant: str, user_ids: Sequence[str], bound: int) -> tuple[int, float]:
    """Number of a user's memories (counted to `bound`) and their average number of terms, for BM25."""
    row = await fetch_one(
        connection,
        """SELECT count(*), COALESCE(avg(term_count), 1)::float8 FROM (
               SELECT term_count FROM memory WHERE tenant = %(tenant)s AND user_id = ANY(%(users)s) LIMIT %(bound)s) AS c""",
        {"tenant": tenant, "users": list(user_ids), "bound": bound},
    )
    return (row[0], max(1.0, row[1])) if row else (0, 1.0)


async def reminders_since(
    connection: Connection, chosen: SqlFilter, important: Important, recent: Recent
) -> tuple[list[Key], list[Key]]:
    """Ids of important memories, the most important first, and of recent ones, newest first; by one statement.

    The importance is a constant of it, so that a plan knows that the index of important memories will do.
    """
    row = await fetch_one(
        connection,
        f"""SELECT
            ARRAY(SELECT uuid_send(m.id) FROM memory m WHERE {chosen.sql} AND m.importance >= {float(important.least)!r}
                  AND m.occurred_at >= %(important_since)s AND m.occurred_at <= %(now)s
                  ORDER BY m.importance DESC, m.occurred_at DESC LIMIT %(important_limit)s),
            ARRAY(SELECT uuid_send(m.id) FROM memory m WHERE {chosen.sql}
                  AND m.occurred_at >= %(recent_since)s AND m.occurred_at <= %(now)s
                  ORDER BY m.occurred_at DESC LIMIT %(recent_limit)s)""",
        {
            **chosen.parameters,
            "important_since": important.since,
            "important_limit": important.limit,
            "recent_since": recent.since,
            "recent_limit": recent.limit,
        },
    )
    return (row[0], row[1]) if row else ([], [])


async def list_page(
    connection: Connection, chosen: SqlFilter, after: tuple[datetime, UUID] | None, limit: int
) -> tuple[list[Memory], int]:
    """Newest first by (created_at, id), beginning after `after`; and how many there are in all."""
    position = "AND (m.created_at, m.id) < (%(after_at)s, %(after_id)s)" if after else ""
    parameters: dict[str, Any] = {**chosen.parameters, "limit": limit}
    if after:
        parameters |= {"after_at": after[0], "after_id": after[1]}
    rows = await fetch_all(
        connection,
        f"SELECT {SELECTED} FROM memory m WHERE {chosen.sql} {position} ORDER BY m.created_at DESC, m.id DESC LIMIT %(limit)s",
        parameters,
    )
    total = await fetch_one(connection, f"SELECT count(*) FROM memory m WHERE {chosen.sql}", chosen.parameters)
    return [memory_from_row(row) for row in rows], total[0] if total else 0


async def touch(connection: Connection, hits: dict[UUID, int], at: datetime) -> None:
    """Renew the access time of what searches returned; `hits` counts how often."""
    await execute(
        connection,
        """UPDATE memory m SET last_accessed_at = greatest(m.last_accessed_at, %(at)s), access_count = m.access_count + h.times
           FROM unnest(%(ids)s::uuid[], %(times)s::int[]) AS h(id, times) WHERE m.id = h.id""",
        {"at": at, "ids": sorted(hits), "times": [hits[i] for i in sorted(hits)]},
    )


async def get_any_tenant(connection: Connection, ids: Sequence[UUID]) -> list[Memory]:
    """For the relay only, which serves all tenants: memories by id, expired ones too."""
    return [
        memory_from_row(row)
        for row in await fetch_all(
            connection, f"SELECT {SELECTED} FROM memory m WHERE m.id = ANY(%(ids)s)", {"ids": list(ids)}
        )
    ]
