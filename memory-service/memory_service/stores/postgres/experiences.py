"""How are experiences read and written in Postgres?

Statements only; experience/service.py decides.  Every writer first calls `lock_user`, which lines the writers of one user
up: whatever it reads afterwards stays true until it commits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from memory_service.domain import SHARED_USER, Caller, Experience, ExperienceStatus, Json
from memory_service.stores.postgres import retrievals
from memory_service.stores.postgres.keyword_hits import KeywordHits, packed
from memory_service.stores.postgres.pool import Connection, execute, fetch_all, fetch_one

COLUMNS = (
    "id", "tenant", "user_id", "conditions", "condition_hash", "action", "origin", "confidence", "confidence_ledger",
    "created_at", "updated_at", "agent_id", "task_type", "avoid", "rationale", "tags", "source_memory_ids", "source_steps",
    "rule", "status", "superseded_by", "use_count", "success_count", "failure_count", "version",
)  # fmt: skip
STORED = (*COLUMNS, "search_terms", "term_count", "changed_seq")
SELECTED = ", ".join(f"e.{name}" for name in COLUMNS)
CASTS = {"search_terms": "::tsvector"}
TUPLES = ("conditions", "confidence_ledger", "tags", "source_memory_ids", "source_steps")
FIXED = ("id", "tenant", "user_id", "created_at")
INSERT = f"""INSERT INTO experience ({", ".join(STORED)})
VALUES ({", ".join(f"%({name})s{CASTS.get(name, '')}" for name in STORED)})"""
UPDATE = f"""UPDATE experience SET {", ".join(f"{n} = %({n})s{CASTS.get(n, '')}" for n in STORED if n not in FIXED)}
WHERE id = %(id)s AND tenant = %(tenant)s"""


@dataclass(frozen=True, slots=True)
class ExperienceTerms:
    """What the keyword index knows of a lesson's text."""

    search_terms: str
    term_count: int


@dataclass(frozen=True, slots=True)
class ExperienceFilter:
    """Which experiences a list shows."""

    tenant: str
    user_ids: tuple[str, ...]
    statuses: tuple[ExperienceStatus, ...] = ("active",)
    task_type: str | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExperienceVersion:
    """One row of the history."""

    version: int
    at: datetime
    actor: str
    cause: str
    task_id: str | None
    changes: Json
    snapshot: Json


def experience_from_row(row: TupleRow) -> Experience:
    values = dict(zip(COLUMNS, row, strict=True))
    values["condition_hash"] = bytes(values["condition_hash"])
    for name in TUPLES:
        values[name] = tuple(values[name])
    return Experience(**values)


def row_of(experience: Experience, terms: ExperienceTerms, changed_seq: int) -> dict[str, Any]:
    row = {name: getattr(experience, name) for name in COLUMNS}
    for name in ("conditions", "confidence_ledger"):
        row[name] = Jsonb(list(row[name]))
    for name in ("tags", "source_memory_ids", "source_steps"):
        row[name] = list(row[name])
    return {**row, "search_terms": terms.search_terms, "term_count": terms.term_count, "changed_seq": changed_seq}


async def lock_user(connection: Connection, tenant: str, user_id: str, *, rebuild: bool = False) -> int:
    """Become the one writer of this user's experiences until the transaction ends; the number of this change.

    `rebuild`: rows will be erased, which an index in memory can't see from the rows that are left.
    """
    parameters = {"t": tenant, "u": user_id, "rebuild": rebuild}
    await execute(
        connection,
        """INSERT INTO experience_change AS c (tenant, user_id, counter, rebuilt) VALUES (%(t)s, %(u)s, 0, -1)
           ON CONFLICT (tenant, user_id) DO UPDATE SET counter = c.counter""",
        parameters,
    )
    row = await fetch_one(
        connection,
        """UPDATE experience_change c SET counter = n.value,
               rebuilt = CASE WHEN %(rebuild)s OR c.rebuilt < 0 THEN n.value ELSE c.rebuilt END
           FROM (SELECT nextval('experience_change_seq') AS value) AS n
           WHERE c.tenant = %(t)s AND c.user_id = %(u)s RETURNING c.counter""",
        parameters,
    )
    assert row is not None
    return int(row[0])


async def insert(connection: Connection, experience: Experience, terms: ExperienceTerms, changed_seq: int) -> None:
    await execute(connection, INSERT, row_of(experience, terms, changed_seq))


async def save(connection: Connection, experience: Experience, terms: ExperienceTerms, changed_seq: int) -> None:
    await execute(connection, UPDATE, row_of(experience, terms, changed_seq))


async def keep_version(
    connection: Connection,
    experience: Experience,
    snapshot: Json,
    changes: Mapping[str, Any],
    *,
    actor: str,
    cause: str,
    task_id: str | None = None,
) -> None:
    """The version that has just come to be.  `changes` is {field: {from, to}}."""
    await execute(
        connection,
        """INSERT INTO experience_version (experience_id, version, tenant, user_id, at, actor, cause, task_id, changes, snapshot)
           VALUES (%(id)s, %(version)s, %(tenant)s, %(user)s, %(at)s, %(actor)s, %(cause)s, %(task)s, %(changes)s, %(snapshot)s)""",
        {
            "id": experience.id,
            "version": experience.version,
            "tenant": experience.tenant,
            "user": experience.user_id,
            "at": experience.updated_at,
            "actor": actor,
            "cause": cause,
            "task": task_id,
            "changes": Jsonb(dict(changes)),
            "snapshot": Jsonb(snapshot),
        },
    )


async def history_page(
    connection: Connection, tenant: str, experience_id: UUID, below: int | None, limit: int
) -> tuple[list[ExperienceVersion], int]:
    """Newest version first, beginning under `below`; and how many there are in all."""
    parameters = {"t": tenant, "id": experience_id, "below": below, "limit": limit}
    rows = await fetch_all(
        connection,
        """SELECT version, at, actor, cause, task_id, changes, snapshot FROM experience_version
           WHERE tenant = %(t)s AND experience_id = %(id)s AND (%(below)s::int IS NULL OR version < %(below)s)
           ORDER BY version DESC LIMIT %(limit)s""",
        parameters,
    )
    total = await fetch_one(
        connection,
        "SELECT count(*) FROM experience_version WHERE tenant = %(t)s AND experience_id = %(id)s",
        parameters,
    )
    return [ExperienceVersion(*row) for row in rows], total[0] if total else 0


async def same_conditions(
    connection: Connection, tenant: str, user_id: str, condition_hash: bytes, limit: int
) -> list[Experience]:
    """Lessons for the same conditions, the active one first, then the newest changed."""
    rows = await fetch_all(
        connection,
        f"""SELECT {SELECTED} FROM experience e WHERE e.tenant = %(t)s AND e.user_id = %(u)s AND e.condition_hash = %(h)s
            ORDER BY e.status <> 'active', e.updated_at DESC LIMIT %(limit)s""",
        {"t": tenant, "u": user_id, "h": condition_hash, "limit": limit},
    )
    return [experience_from_row(row) for row in rows]


async def get(
    connection: Connection, caller: Caller, experience_id: UUID, *, change: bool = False
) -> Experience | None:
    """One experience that this caller may see, or with `change` may change; None when there is none."""
    row = await fetch_one(
        connection,
        f"""SELECT {SELECTED} FROM experience e WHERE e.id = %(id)s AND e.tenant = %(tenant)s
            AND (%(user)s::text IS NULL OR e.user_id = %(user)s OR e.user_id = %(shared)s)""",
        {
            "id": experience_id,
            "tenant": caller.tenant,
            "user": caller.user_id,
            "shared": None if change else SHARED_USER,
        },
    )
    return experience_from_row(row) if row else None


async def get_active(connection: Connection, tenant: str, ids: Sequence[UUID]) -> list[Experience]:
    """Those of `ids` that are active, in any order."""
    rows = await fetch_all(
        connection,
        f"SELECT {SELECTED} FROM experience e WHERE e.tenant = %(t)s AND e.id = ANY(%(ids)s) AND e.status = 'active'",
        {"t": tenant, "ids": list(ids)},
    )
    return [experience_from_row(row) for row in rows]


async def learned_from(
    connection: Connection, tenant: str, user_ids: Sequence[str], memory_ids: Sequence[UUID], limit: int
) -> list[Experience]:
    """Active experiences of these users that came of any of these memories, the most confident first."""
    rows = await fetch_all(
        connection,
        f"""SELECT {SELECTED} FROM experience e
            WHERE e.tenant = %(t)s AND e.source_memory_ids && %(ids)s AND e.source_memory_ids <> '{{}}'
              AND e.user_id = ANY(%(users)s) AND e.status = 'active'
            ORDER BY e.confidence DESC, e.id DESC LIMIT %(limit)s""",
        {"t": tenant, "ids": list(memory_ids), "users": list(user_ids), "limit": limit},
    )
    return [experience_from_row(row) for row in rows]


async def get_any_tenant(connection: Connection, ids: Sequence[UUID]) -> list[Experience]:
    """For the relay only, which serves all tenants: active experiences by id."""
    rows = await fetch_all(
        connection,
        f"SELECT {SELECTED} FROM experience e WHERE e.id = ANY(%(ids)s) AND e.status = 'active'",
        {"ids": list(ids)},
    )
    return [experience_from_row(row) for row in rows]


async def list_page(
    connection: Connection, chosen: ExperienceFilter, after: tuple[datetime, UUID] | None, limit: int
) -> tuple[list[Experience], int]:
    """Newest first by (created_at, id), beginning after `after`; and how many there are in all."""
    where = """e.tenant = %(t)s AND e.user_id = ANY(%(users)s) AND e.status = ANY(%(statuses)s)
               AND (%(task_type)s::text IS NULL OR e.task_type = %(task_type)s)
               AND (%(tags)s::text[] IS NULL OR e.tags && %(tags)s::text[])"""
    position = "AND (e.created_at, e.id) < (%(after_at)s, %(after_id)s)" if after else ""
    parameters = {
        "t": chosen.tenant,
        "users": list(chosen.user_ids),
        "statuses": list(chosen.statuses),
        "task_type": chosen.task_type,
        "tags": list(chosen.tags) or None,
        "after_at": after[0] if after else None,
        "after_id": after[1] if after else None,
        "limit": limit,
    }
    rows = await fetch_all(
        connection,
        f"SELECT {SELECTED} FROM experience e WHERE {where} {position} ORDER BY e.created_at DESC, e.id DESC LIMIT %(limit)s",
        parameters,
    )
    total = await fetch_one(connection, f"SELECT count(*) FROM experience e WHERE {where}", parameters)
    return [experience_from_row(row) for row in rows], total[0] if total else 0


async def patterns_of_user(connection: Connection, tenant: str, user_id: str) -> set[str]:
    """Distinct patterns of `matches` among the user's active experiences."""
    rows = await fetch_all(
        connection,
        """SELECT DISTINCT c ->> 'value' FROM experience e CROSS JOIN LATERAL jsonb_array_elements(e.conditions) AS c
           WHERE e.tenant = %(t)s AND e.user_id = %(u)s AND e.status = 'active'
             AND e.conditions @> '[{"operator": "matches"}]' AND c ->> 'operator' = 'matches'""",
        {"t": tenant, "u": user_id},
    )
    return {row[0] for row in rows}


async def keyword_candidates(
    connection: Connection, tenant: str, user_ids: Sequence[str], terms: Sequence[str], per_term: int
) -> KeywordHits:
    """Active lessons with any of the terms (one tsquery each): at most `per_term` for each and for all together."""
    names = {f"q_{i}": term for i, term in enumerate(terms)}
    parameters: dict[str, Any] = {**names, "q_all": " & ".join(f"({term})" for term in terms), "per_term": per_term}
    parameters |= {"t": tenant, "users": list(user_ids)}
    one = """(SELECT e.id, e.term_count, e.search_terms FROM experience e WHERE e.search_terms @@ %({q})s::tsquery
              AND e.tenant = %(t)s AND e.user_id = ANY(%(users)s) AND e.status = 'active' LIMIT %(per_term)s)"""
    asked = [*names, "q_all"] if len(names) > 1 else list(names)
    union = " UNION ALL ".join(one.format(q=name) for name in asked)
    candidates = f"SELECT DISTINCT ON (id) * FROM ({union}) AS u ORDER BY id"
    cursor = await connection.execute(packed(candidates, list(names)), parameters, prepare=False, binary=True)
    return KeywordHits.unpacked(await cursor.fetchone(), len(names))


async def corpus_size(connection: Connection, tenant: str, user_ids: Sequence[str], bound: int) -> tuple[int, float]:
    """Number of active lessons (counted to `bound`) and their average number of terms, for BM25."""
    row = await fetch_one(
        connection,
        """SELECT count(*), COALESCE(avg(term_count), 1)::float8 FROM (SELECT term_count FROM experience
           WHERE tenant = %(t)s AND user_id = ANY(%(users)s) AND status = 'active' LIMIT %(bound)s) AS c""",
        {"t": tenant, "users": list(user_ids), "bound": bound},
    )
    return (row[0], max(1.0, row[1])) if row else (0, 1.0)


# Erasing.


async def ids_of_user(connection: Connection, tenant: str, user_id: str, limit: int) -> list[UUID]:
    """Up to `limit` ids of a user's experiences, in any status."""
    rows = await fetch_all(
        connection,
        "SELECT id FROM experience WHERE tenant = %(t)s AND user_id = %(u)s LIMIT %(limit)s",
        {"t": tenant, "u": user_id, "limit": limit},
    )
    return [row[0] for row in rows]


# Feedback.


async def spoken(
    connection: Connection, tenant: str, user_id: str, task_id: str, experience_id: UUID, succeeded: bool
) -> bool:
    """Note that this task speaks about the experience; False when it has already."""
    added = await execute(
        connection,
        """INSERT INTO experience_feedback (tenant, user_id, task_id, experience_id, outcome, at)
           VALUES (%(t)s, %(u)s, %(task)s, %(id)s, %(outcome)s, now()) ON CONFLICT DO NOTHING""",
        {
            "t": tenant,
            "u": user_id,
            "task": task_id,
            "id": experience_id,
            "outcome": "success" if succeeded else "failure",
        },
    )
    return added > 0


async def erase(connection: Connection, tenant: str, ids: Sequence[UUID]) -> int:
    """Remove experiences and their versions for good, remember that their ids are spent, and tell the relay."""
    found = await fetch_all(
        connection,
        "DELETE FROM experience WHERE tenant = %(t)s AND id = ANY(%(ids)s) RETURNING id",
        {"t": tenant, "ids": list(ids)},
    )
    parameters = {"t": tenant, "ids": [row[0] for row in found]}
    if not found:
        return 0
    for statement in (
        "INSERT INTO erased (tenant, id) SELECT %(t)s, id FROM unnest(%(ids)s::uuid[]) AS x(id) ON CONFLICT DO NOTHING",
        "DELETE FROM experience_version WHERE tenant = %(t)s AND experience_id = ANY(%(ids)s)",
        "DELETE FROM experience_feedback WHERE tenant = %(t)s AND experience_id = ANY(%(ids)s)",
        "UPDATE experience SET superseded_by = NULL WHERE tenant = %(t)s AND superseded_by = ANY(%(ids)s)",
        "UPDATE idempotency_key SET status = 410, response = NULL WHERE tenant = %(t)s AND memory_ids && %(ids)s::uuid[]",
        """INSERT INTO index_outbox (memory_id, tenant) SELECT id, %(t)s FROM unnest(%(ids)s::uuid[]) AS x(id)
           ON CONFLICT (memory_id) DO UPDATE
           SET seq = nextval('index_outbox_seq'), state = 'pending', attempts = 0, available_at = now(), error = NULL""",
    ):
        await execute(connection, statement, parameters)
    await retrievals.forget_ids(connection, tenant, parameters["ids"])
    return len(found)
