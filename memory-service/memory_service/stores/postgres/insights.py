"""Which episodes are there to learn from, and which insights are known?  Statements only; lifecycle/reviewing.py decides."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from psycopg.types.json import Jsonb

from memory_service.domain import Json, Memory
from memory_service.stores.postgres.memories import SELECTED, memory_from_row
from memory_service.stores.postgres.pool import Connection, fetch_all, fetch_one

# What was made of others would be counted twice; what is no longer believed teaches nothing.
EPISODES = """o.tenant = %(t)s AND o.tool_calls <> '[]' AND o.occurred_at >= %(since)s AND o.state <> 'superseded'
    AND o.source_memory_ids = '{}' AND (o.expires_at IS NULL OR o.expires_at > %(now)s)"""


@dataclass(frozen=True, slots=True)
class EpisodeRow:
    """Of its text only the beginning, which tells the language."""

    id: UUID
    occurred_at: datetime
    tool_calls: list[Json]
    task_type: str | None
    head: str


async def users_with_failures(
    connection: Connection, tenant: str, since: datetime, now: datetime, least: int, after: str, limit: int
) -> list[str]:
    """Users with at least `least` episodes in which a call failed, in the order of their ids."""
    rows = await fetch_all(
        connection,
        f"""SELECT o.user_id FROM episodic_memory o WHERE {EPISODES} AND o.user_id > %(after)s
              AND o.tool_calls @> '[{{"status": "error"}}]'
            GROUP BY o.user_id HAVING count(*) >= %(least)s ORDER BY o.user_id LIMIT %(limit)s""",
        {"t": tenant, "since": since, "now": now, "least": least, "after": after, "limit": limit},
    )
    return [row[0] for row in rows]


async def episodes(
    connection: Connection, tenant: str, user_id: str, since: datetime, now: datetime, limit: int
) -> list[EpisodeRow]:
    """The newest episodes with tool calls."""
    rows = await fetch_all(
        connection,
        f"""SELECT o.id, o.occurred_at, o.tool_calls, o.metadata ->> 'task_type', left(o.summary, 200)
            FROM episodic_memory o WHERE {EPISODES} AND o.user_id = %(u)s ORDER BY o.occurred_at DESC LIMIT %(limit)s""",
        {"t": tenant, "u": user_id, "since": since, "now": now, "limit": limit},
    )
    return [EpisodeRow(*row) for row in rows]


async def known_fact(connection: Connection, tenant: str, user_id: str, key: str) -> Memory | None:
    """The memory that tells this finding, in any state."""
    row = await fetch_one(
        connection,
        f"""SELECT {SELECTED} FROM memory m WHERE m.tenant = %(t)s AND m.user_id = %(u)s AND m.metadata @> %(insight)s
            ORDER BY m.created_at DESC LIMIT 1""",
        {"t": tenant, "u": user_id, "insight": Jsonb({"insight": {"key": key}})},
    )
    return memory_from_row(row) if row else None


async def edited(connection: Connection, memory_id: UUID) -> bool:
    """Did somebody change it by hand?"""
    row = await fetch_one(
        connection,
        "SELECT 1 FROM memory_version WHERE memory_id = %(id)s AND cause IN ('update', 'rollback') LIMIT 1",
        {"id": memory_id},
    )
    return row is not None


async def taken(connection: Connection, tenant: str, ids: Sequence[UUID]) -> bool:
    """Is one of these ids in use or spent?"""
    row = await fetch_one(
        connection,
        """SELECT 1 WHERE EXISTS (SELECT FROM erased WHERE id = ANY(%(ids)s))
           OR EXISTS (SELECT FROM memory WHERE id = ANY(%(ids)s) AND tenant = %(t)s)
           OR EXISTS (SELECT FROM experience WHERE id = ANY(%(ids)s) AND tenant = %(t)s)""",
        {"t": tenant, "ids": list(ids)},
    )
    return row is not None
