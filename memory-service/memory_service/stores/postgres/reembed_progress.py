"""How far is the second collection of vectors?  One statement; jobs/reembed_state.py says what it means."""

from memory_service.stores.postgres.pool import Connection, fetch_one


async def vectors_wanted(connection: Connection, tenant: str | None) -> int:
    """Memories and active experiences of a tenant, or of all: whatever gets vectors."""
    row = await fetch_one(
        connection,
        """SELECT (SELECT count(*) FROM memory WHERE %(tenant)s::text IS NULL OR tenant = %(tenant)s)
                + (SELECT count(*) FROM experience
                   WHERE status = 'active' AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s))""",
        {"tenant": tenant},
    )
    return int(row[0]) if row else 0
