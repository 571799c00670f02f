"""What has outlived its time?  Expired memories, kept answers, and logs and runs past their keeping.

Statements of one bounded transaction each; every one carries the tenant.
"""

from datetime import datetime
from uuid import UUID

from memory_service.stores.postgres.pool import Connection, execute, fetch_all, fetch_one

# What goes without leaving anything behind: {name: (table, what is old enough)}.
AGED = {
    "idempotency_keys": ("idempotency_key", "created_at < %(before)s"),
    "retrievals": ("retrieval_log", "at < %(before)s"),
    "task_runs": ("task_run", "started_at < %(before)s AND (finished_at IS NULL OR finished_at < %(before)s)"),
    # The newest of each job stays: it tells when the job last ran.
    "job_runs": (
        "job_run",
        """started_at < %(before)s AND EXISTS (SELECT 1 FROM job_run newer
           WHERE newer.tenant = job_run.tenant AND newer.job = job_run.job AND newer.started_at > job_run.started_at
             AND newer.outcome IS NOT NULL AND NOT newer.dry_run)""",
    ),
}


async def expired(
    connection: Connection, tenant: str, now: datetime, limit: int, *, lock: bool = False
) -> list[tuple[UUID, str, datetime]]:
    """Up to `limit` memories that are past their end: (id, user_id, expires_at).  Locked ones are held by nobody else."""
    rows = await fetch_all(
        connection,
        f"""SELECT id, user_id, expires_at FROM memory WHERE tenant = %(tenant)s AND expires_at <= %(now)s
            ORDER BY expires_at, id LIMIT %(limit)s {"FOR UPDATE SKIP LOCKED" if lock else ""}""",
        {"tenant": tenant, "now": now, "limit": limit},
    )
    return [(row[0], row[1], row[2]) for row in rows]


async def expired_count(connection: Connection, tenant: str, now: datetime) -> int:
    row = await fetch_one(
        connection,
        "SELECT count(*) FROM memory WHERE tenant = %(tenant)s AND expires_at <= %(now)s",
        {"tenant": tenant, "now": now},
    )
    return row[0] if row else 0


async def aged_count(connection: Connection, name: str, tenant: str, before: datetime) -> int:
    """How many rows of this kind are old enough."""
    table, old = AGED[name]
    row = await fetch_one(
        connection,
        f"SELECT count(*) FROM {table} WHERE tenant = %(tenant)s AND {old}",
        {"tenant": tenant, "before": before},
    )
    return row[0] if row else 0


async def delete_aged(connection: Connection, name: str, tenant: str, before: datetime, limit: int) -> int:
    """Remove up to `limit` of them; how many."""
    table, old = AGED[name]
    return await execute(
        connection,
        f"""DELETE FROM {table} WHERE ctid = ANY(ARRAY(
                SELECT ctid FROM {table} WHERE tenant = %(tenant)s AND {old} LIMIT %(limit)s FOR UPDATE SKIP LOCKED))""",
        {"tenant": tenant, "before": before, "limit": limit},
    )
