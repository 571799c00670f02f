"""How do we talk to Postgres?  One pool, short transactions, and errors named after facts.

Connections are in autocommit mode: a read is one round trip, a write opens its transaction explicitly.  The database
works in UTC.  Nothing here knows a table.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

import orjson
import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg.types.json import set_json_dumps, set_json_loads
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from memory_service.domain import Key
from memory_service.errors import StoreUnavailable
from memory_service.settings import Stores

Connection = AsyncConnection[TupleRow]
T = TypeVar("T")

set_json_loads(orjson.loads)
set_json_dumps(orjson.dumps)

# The pool doubles its pause between attempts until then: with its default of 300 s a service would stay down for as long
# again as Postgres was.  After it the next request that wants a connection begins anew.
RECONNECT_S = 1.0
SESSION = {
    "timezone": "UTC",
    "random_page_cost": 1.1,  # the data is in memory or on an SSD: 4 makes Postgres scan tables that it has an index for
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",  # a plan made while a table was empty reads all of it when it is full; it still may, for want of an index
    "statement_timeout": 60_000,
    "idle_in_transaction_session_timeout": 60_000,
}
KEEPALIVES = {"tcp_keepalives_idle": 30, "tcp_keepalives_interval": 10, "tcp_keepalives_count": 3}
# What a lost, refused or restarting server looks like; anything else is our own mistake and must be seen.
UNREACHABLE = (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout, PoolClosed)


def sqlalchemy_url(database_url: str) -> str:
    """The same address for SQLAlchemy, which wants the driver in the scheme."""
    parts = urlsplit(database_url)
    return urlunsplit(parts._replace(scheme="postgresql+psycopg"))


class Postgres:
    """The pool.  `connection()` for reads, `transaction()` for writes."""

    def __init__(self, url: str, numbers: Stores) -> None:
        self._url = url
        self._connect_timeout_s = max(1, int(numbers.postgres_timeout_s))
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            url,
            min_size=numbers.postgres_pool_min,
            max_size=numbers.postgres_pool_max,
            timeout=numbers.postgres_timeout_s,
            reconnect_timeout=RECONNECT_S,
            kwargs={
                "autocommit": True,
                "options": " ".join(f"-c {name}={value}" for name, value in SESSION.items()),
                "connect_timeout": max(1, int(numbers.postgres_timeout_s)),
                "application_name": "hindsight",
            },
            open=False,
        )

    async def open(self) -> None:
        """Start connecting.  Does not wait: a service whose Postgres is down still serves working memory."""
        await self._pool.open(wait=False)

    async def close(self) -> None:
        await self._pool.close()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A pooled connection in autocommit mode.  Raises StoreUnavailable when the server can't be reached."""
        try:
            async with self._pool.connection() as connection:
                yield connection
        except UNREACHABLE as error:
            raise StoreUnavailable("postgres") from error

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[Connection]:
        """A connection outside the pool, for what lives as long as its session.  Raises StoreUnavailable.

        The server notices within a minute when the machine at this end is gone, and at once when the process is.
        """
        options = " ".join(f"-c {name}={value}" for name, value in {**SESSION, **KEEPALIVES}.items())
        try:
            async with await AsyncConnection.connect(
                self._url,
                autocommit=True,
                options=options,
                connect_timeout=self._connect_timeout_s,
                application_name="hindsight-job",
            ) as connection:
                yield connection
        except UNREACHABLE as error:
            raise StoreUnavailable("postgres") from error

    async def read(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run reads; once more when the connection turned out to be a dead one left by a restarted server."""
        try:
            async with self._pool.connection() as connection:
                return await work(connection)
        except UNREACHABLE as error:
            if not await self._recovered(error):
                raise StoreUnavailable("postgres") from error
        async with self.connection() as connection:
            return await work(connection)

    async def transaction(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run `work` in one transaction and commit it.

        `work` runs again when the connection broke before the commit was sent, so it must have no effect outside the
        transaction.  A break during the commit leaves the outcome unknown and raises StoreUnavailable.
        """
        committing = False
        try:
            async with self._pool.connection() as connection, connection.transaction():
                result = await work(connection)
                committing = True
            return result
        except UNREACHABLE as error:
            if committing or not await self._recovered(error):
                raise StoreUnavailable("postgres") from error
        async with self.connection() as connection, connection.transaction():
            return await work(connection)

    async def _recovered(self, error: BaseException) -> bool:
        """Was it only a stale connection?  Replaces the broken ones of the pool."""
        if isinstance(error, PoolTimeout | PoolClosed | psycopg.errors.QueryCanceled):
            return False
        try:
            await self._pool.check()
        except UNREACHABLE:
            return False
        return True


def uuid_array(ids: Iterable[UUID | Key]) -> str:
    """The text of a uuid[], for `%(ids)s::uuid[]`: the driver takes ten times as long for a list of them."""
    return "{" + ",".join([one.hex() if isinstance(one, bytes) else one.hex for one in ids]) + "}"


async def fetch_all(connection: Connection, sql: str, parameters: dict[str, Any] | None = None) -> list[TupleRow]:
    """All rows of one statement."""
    cursor = await connection.execute(sql, parameters, binary=True)
    return await cursor.fetchall()


async def fetch_one(connection: Connection, sql: str, parameters: dict[str, Any] | None = None) -> TupleRow | None:
    """The first row of one statement."""
    cursor = await connection.execute(sql, parameters, binary=True)
    return await cursor.fetchone()


async def execute(connection: Connection, sql: str, parameters: dict[str, Any] | None = None) -> int:
    """Run one statement; how many rows it touched."""
    cursor = await connection.execute(sql, parameters)
    return cursor.rowcount
