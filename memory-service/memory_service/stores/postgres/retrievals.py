"""What was searched for, and what came back?  The log of retrievals."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from memory_service.stores.postgres.pool import Connection


@dataclass(frozen=True, slots=True)
class Retrieval:
    """One row of retrieval_log; `hits` are {id, score, lanes} of a search, {id, score, grade, what} of a context, in the
    order returned.  `task_id`: the task that a context was made for."""

    id: UUID
    tenant: str
    user_id: str
    at: datetime
    source: str
    query: str
    filters: dict[str, Any]
    hits: list[dict[str, Any]]
    degraded: list[str]
    took_ms: float
    injected_tokens: int | None = None
    used_ids: list[UUID] = field(default_factory=list)
    task_id: str | None = None


async def insert_many(connection: Connection, rows: Sequence[Retrieval]) -> None:
    """Append to the log."""
    columns = "id, tenant, user_id, at, source, query, filters, hits, degraded, took_ms, injected_tokens, task_id"
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
                )
            )
