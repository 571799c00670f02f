"""Who runs a job?  Advisory locks of a session: whoever's process dies frees them at once, whatever it was doing.

They are held on a connection of their own, since a pooled one would be lent to others meanwhile.
"""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from memory_service.stores.postgres.pool import Connection, Postgres, fetch_one


class Locks:
    """The locks of one session."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def take(self, name: str) -> bool:
        """Without waiting; False when another session holds it.  Raises a psycopg error when the session is lost."""
        row = await fetch_one(self._connection, "SELECT pg_try_advisory_lock(%(key)s)", {"key": lock_key(name)})
        return bool(row and row[0])

    async def give_back(self, name: str) -> None:
        """Closing the session does it too."""
        await self._connection.execute("SELECT pg_advisory_unlock(%(key)s)", {"key": lock_key(name)})


async def is_held(connection: Connection, name: str) -> bool:
    """Does any session hold this lock?  Takes nothing."""
    row = await fetch_one(
        connection,
        """SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
           WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
             AND (l.classid::bigint << 32 | l.objid::bigint) = %(key)s)""",
        {"key": lock_key(name)},
    )
    return bool(row and row[0])


@asynccontextmanager
async def session(postgres: Postgres) -> AsyncIterator[Locks]:
    """A session for locks.  Raises StoreUnavailable when Postgres is not reachable, now or when a lock is asked for."""
    async with postgres.alone() as connection:
        yield Locks(connection)


def lock_key(name: str) -> int:
    """A signed 64-bit number for a name."""
    return int.from_bytes(hashlib.blake2b(f"hindsight:{name}".encode(), digest_size=8).digest(), "big", signed=True)
