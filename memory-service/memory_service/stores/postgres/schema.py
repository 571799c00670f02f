"""Is the database at the version that this code was written for?"""

from memory_service.stores.postgres.pool import Connection, fetch_one

# The newest file under migrations/versions; a test compares the two.
REVISION = "0006"


async def revision(connection: Connection) -> str | None:
    """The database's revision, None when it was never migrated."""
    row = await fetch_one(connection, "SELECT to_regclass('alembic_version') IS NOT NULL")
    if not row or not row[0]:
        return None
    found = await fetch_one(connection, "SELECT version_num FROM alembic_version")
    return str(found[0]) if found else None
