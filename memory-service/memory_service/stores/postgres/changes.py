"""How does a stored memory change, and how is it erased?  Each change keeps the version it replaces.

Statements only; write/service.py decides what changes.  Run inside one transaction with the row locked.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from memory_service.domain import Json, Memory
from memory_service.stores.postgres import retrievals, tasks
from memory_service.stores.postgres.memories import CASTS, COLUMNS, DERIVED, IndexedText, row_of
from memory_service.stores.postgres.pool import Connection, execute, fetch_all
from memory_service.stores.postgres.versions import OWNER

CHANGEABLE = tuple(name for name in COLUMNS if name not in ("id", "tenant", "kind", "user_id", "created_at"))
UPDATE = f"""
UPDATE memory SET {", ".join(f"{name} = %({name})s{CASTS.get(name, '')}" for name in (*CHANGEABLE, *DERIVED))}
WHERE id = %(id)s AND kind = %(kind)s AND tenant = %(tenant)s
"""


# What may change without a change of the text, so that nothing has to be read anew.
STATE_COLUMNS = (
    "state", "pinned", "heat", "heat_at", "confidence", "superseded_by", "valid_from", "valid_to", "related_ids",
    "conflict_id", "version", "updated_at", "last_accessed_at",
)  # fmt: skip
UPDATE_STATE = f"""
UPDATE memory SET {", ".join(f"{name} = %({name})s" for name in STATE_COLUMNS)}
WHERE id = %(id)s AND kind = %(kind)s AND tenant = %(tenant)s
"""


# `<> '{}'` repeats the predicate of the partial indexes: without it every erasure reads the whole table (550 ms at 100,000 rows
# instead of 0.1).
UNLINK_MEMORIES = """
UPDATE memory m SET related_ids = ARRAY(SELECT r FROM unnest(m.related_ids) AS r WHERE r <> ALL(%(ids)s::uuid[])),
    source_memory_ids = ARRAY(SELECT s FROM unnest(m.source_memory_ids) AS s WHERE s <> ALL(%(ids)s::uuid[]))
WHERE m.tenant = %(t)s AND ((m.related_ids <> '{}' AND m.related_ids && %(ids)s::uuid[])
                         OR (m.source_memory_ids <> '{}' AND m.source_memory_ids && %(ids)s::uuid[]))
"""
# Who carried a conflict of these carries the newest that is left to it.
UNLINK_CONFLICTS = """
UPDATE memory m SET conflict_id = (
    SELECT c.id FROM memory_conflict c WHERE c.tenant = %(t)s AND c.state = 'open' AND (c.old_id = m.id OR c.new_id = m.id)
      AND c.old_id <> ALL(%(ids)s::uuid[]) AND c.new_id <> ALL(%(ids)s::uuid[]) ORDER BY c.created_at DESC, c.id DESC LIMIT 1)
WHERE m.tenant = %(t)s AND m.conflict_id = ANY(ARRAY(
    SELECT id FROM memory_conflict WHERE tenant = %(t)s AND (old_id = ANY(%(ids)s::uuid[]) OR new_id = ANY(%(ids)s::uuid[]))))
"""
UNLINK_EXPERIENCES = """
UPDATE experience SET source_memory_ids = ARRAY(SELECT s FROM unnest(source_memory_ids) AS s WHERE s <> ALL(%(ids)s::uuid[]))
WHERE tenant = %(t)s AND source_memory_ids <> '{}' AND source_memory_ids && %(ids)s::uuid[]
"""


async def save_state(connection: Connection, memory: Memory) -> None:
    """Write what does not depend on the text, and tell the relay: vectors carry state and version."""
    row = {name: getattr(memory, name) for name in (*STATE_COLUMNS, "id", "kind", "tenant")}
    await execute(connection, UPDATE_STATE, {**row, "related_ids": list(memory.related_ids)})
    await enqueue(connection, memory.tenant, [memory.id])


async def save(connection: Connection, memory: Memory, text: IndexedText) -> None:
    """Write the whole row as it is now and tell the relay."""
    await connection.execute(UPDATE, row_of(memory, text))
    await enqueue(connection, memory.tenant, [memory.id])


async def keep_version(
    connection: Connection,
    replaced: Memory,
    snapshot: Json,
    changes: Mapping[str, Any],
    *,
    actor: str,
    cause: str,
    at: datetime,
) -> None:
    """Keep what the memory was before a change.  `changes` is {field: {from, to}}."""
    await execute(
        connection,
        """INSERT INTO memory_version (memory_id, version, tenant, user_id, at, actor, cause, changes, snapshot)
           VALUES (%(id)s, %(version)s, %(tenant)s, %(user)s, %(at)s, %(actor)s, %(cause)s, %(changes)s, %(snapshot)s)
           ON CONFLICT (memory_id, version) DO NOTHING""",
        {
            "id": replaced.id,
            "version": replaced.version,
            "tenant": replaced.tenant,
            "user": replaced.user_id,
            "at": at,
            "actor": actor,
            "cause": cause,
            "changes": Jsonb(dict(changes)),
            "snapshot": Jsonb(snapshot),
        },
    )


async def enqueue(connection: Connection, tenant: str, ids: Sequence[UUID]) -> None:
    """These memories changed or are gone: the relay shall look.  A row that waits already is renewed."""
    await execute(
        connection,
        """INSERT INTO index_outbox (memory_id, tenant) SELECT id, %(tenant)s FROM unnest(%(ids)s::uuid[]) AS t(id)
           ON CONFLICT (memory_id) DO UPDATE
           SET seq = nextval('index_outbox_seq'), state = 'pending', attempts = 0, available_at = now(), error = NULL""",
        {"tenant": tenant, "ids": list(ids)},
    )


async def erase(connection: Connection, tenant: str, ids: Sequence[UUID]) -> int:
    """Remove memories, their versions, relations and log entries for good and remember that their ids are spent.

    What others derived from them (conflicts, pointers) is unlinked.  Returns how many rows there were.
    """
    found = await fetch_all(
        connection,
        "DELETE FROM memory WHERE tenant = %(t)s AND id = ANY(%(ids)s) RETURNING id, user_id",
        {"t": tenant, "ids": list(ids)},
    )
    gone = [row[0] for row in found]
    if not gone:
        return 0
    parameters = {"t": tenant, "ids": gone, "users": [row[1] for row in found]}
    for statement in (
        f"""INSERT INTO erased (tenant, id, owner) SELECT %(t)s, id, {OWNER.format(id="id", tenant="%(t)s", user="user_id")}
            FROM unnest(%(ids)s::uuid[], %(users)s::text[]) AS x(id, user_id) ON CONFLICT DO NOTHING""",
        "DELETE FROM memory_version WHERE tenant = %(t)s AND memory_id = ANY(%(ids)s)",
        "DELETE FROM memory_feedback WHERE tenant = %(t)s AND memory_id = ANY(%(ids)s)",
        "DELETE FROM memory_relations WHERE tenant = %(t)s AND (source_id = ANY(%(ids)s) OR target_id = ANY(%(ids)s))",
        UNLINK_CONFLICTS,
        """UPDATE memory SET superseded_by = NULL WHERE tenant = %(t)s AND superseded_by = ANY(%(ids)s)""",
        UNLINK_MEMORIES,
        UNLINK_EXPERIENCES,
        "DELETE FROM memory_conflict WHERE tenant = %(t)s AND (old_id = ANY(%(ids)s) OR new_id = ANY(%(ids)s))",
        # The answers kept for retries hold the text too; a retry must neither show it nor write it again.
        "UPDATE idempotency_key SET status = 410, response = NULL WHERE tenant = %(t)s AND memory_ids && %(ids)s::uuid[]",
        # The relay removes the vectors and the copies in working memory.
        """INSERT INTO index_outbox (memory_id, tenant, user_id)
           SELECT id, %(t)s, user_id FROM unnest(%(ids)s::uuid[], %(users)s::text[]) AS x(id, user_id)
           ON CONFLICT (memory_id) DO UPDATE SET user_id = excluded.user_id,
               seq = nextval('index_outbox_seq'), state = 'pending', attempts = 0, available_at = now(), error = NULL""",
    ):
        await execute(connection, statement, parameters)
    await tasks.forget_episodes(connection, tenant, gone)
    await retrievals.forget_ids(connection, tenant, gone)
    return len(gone)


async def ids_of_user(connection: Connection, tenant: str, user_id: str, limit: int) -> list[UUID]:
    """Up to `limit` ids of a user's memories, in any state."""
    rows = await fetch_all(
        connection,
        "SELECT id FROM memory WHERE tenant = %(t)s AND user_id = %(u)s LIMIT %(limit)s",
        {"t": tenant, "u": user_id, "limit": limit},
    )
    return [row[0] for row in rows]


async def attached_to_user(connection: Connection, tenant: str, user_id: str) -> dict[str, int]:
    """What goes with a user's memories when they are erased: {table: rows}."""
    parameters = {"t": tenant, "u": user_id}
    counted = {}
    for name, table in (("versions", "memory_version"), ("conflicts", "memory_conflict")):
        statement = f"SELECT count(*) FROM {table} WHERE tenant = %(t)s AND user_id = %(u)s"
        rows = await fetch_all(connection, statement, parameters)
        counted[name] = int(rows[0][0])
    return counted


async def erase_user_rest(connection: Connection, tenant: str, user_id: str) -> None:
    """What is left of a user besides memories, experiences and what was searched for.

    Answers kept for retries lose their text with what they told of.
    """
    parameters = {"t": tenant, "u": user_id}
    where = "WHERE tenant = %(t)s AND user_id = %(u)s"
    for table in (
        "run_effort", "memory_feedback", "turn_written", "experience_change", "experience_gone", "experience_feedback",
        "memory_version", "memory_conflict",
    ):  # fmt: skip
        await execute(connection, f"DELETE FROM {table} {where}", parameters)
