"""Whose data is here?  All tenants that have rows, found by hopping over an index, not by reading tables."""

from memory_service.stores.postgres.pool import Connection, fetch_all

# Each has an index that begins with the tenant.
TABLES = ("memory", "experience", "retrieval_log", "task_run", "idempotency_key", "job_run")
HOPS = """
WITH RECURSIVE hop(tenant) AS (
    SELECT min(tenant) FROM {table}
    UNION ALL SELECT (SELECT min(t.tenant) FROM {table} t WHERE t.tenant > hop.tenant) FROM hop WHERE hop.tenant IS NOT NULL)
SELECT tenant FROM hop WHERE tenant IS NOT NULL
"""


async def every(connection: Connection) -> list[str]:
    """For scheduled jobs only, which serve all tenants: their names, sorted."""
    found: set[str] = set()
    for table in TABLES:
        found |= {row[0] for row in await fetch_all(connection, HOPS.format(table=table))}
    return sorted(found)
