"""Who may write for a user who is being erased?  Nobody, and afterwards nobody who began before.

A user's gate is an advisory lock.  Whoever brings something new of a user into Postgres passes it first (`admit`): a shared
lock until its transaction ends, which never waits.  The erasure holds it alone for as long as its session lives (`close`): it
begins when the transactions that have passed are over, no other can begin, and whoever kills the process opens the gate.

When it is over, `retrieval_forgotten` tells when that was.  What was begun before may hold in its hands what is erased now
(dialogue out of a buffer, a task's run): it names its beginning to `admit`, and is refused.  Statements only.
"""

import hashlib
from collections.abc import Collection
from datetime import datetime

import psycopg

from memory_service.errors import UserBeingErased
from memory_service.stores.postgres import retrievals
from memory_service.stores.postgres.pool import Connection, execute, fetch_one


async def close(connection: Connection, tenant: str, user_id: str, wait_s: float) -> None:
    """Shut the gate for this session; the session's own transactions pass.  Raises UserBeingErased after `wait_s`.

    Who waits here is in front of all who come to `admit` later, so writers can't keep an erasure from beginning.
    """
    timeout = "SELECT set_config('lock_timeout', %(ms)s, false)"
    await execute(connection, timeout, {"ms": str(int(wait_s * 1000))})
    try:
        await execute(connection, "SELECT pg_advisory_lock(%(key)s)", {"key": gate_of(tenant, user_id)})
    except psycopg.errors.LockNotAvailable:
        raise UserBeingErased("another erasure of this user, or a long write, is under way; try again") from None
    await execute(connection, timeout, {"ms": "0"})


async def admit(connection: Connection, tenant: str, user_ids: Collection[str], since: datetime | None = None) -> None:
    """Before anything of these users is written in this transaction.  Raises UserBeingErased.

    `since`: when that began which reads what the user has; refused when an erasure has ended since.
    """
    row = await fetch_one(
        connection,
        "SELECT bool_and(pg_try_advisory_xact_lock_shared(key)) FROM unnest(%(keys)s::bigint[]) AS key",
        {"keys": sorted({gate_of(tenant, user_id) for user_id in user_ids})},
    )
    if row is not None and row[0] is False:
        raise UserBeingErased
    if since is None:
        return
    # A statement of its own: it sees the erasure that ended before we had the lock.
    owners = [retrievals.owner(tenant, user_id) for user_id in user_ids]
    late = await fetch_one(
        connection,
        "SELECT 1 FROM retrieval_forgotten WHERE tenant = %(t)s AND owner = ANY(%(owners)s) AND at >= %(since)s LIMIT 1",
        {"t": tenant, "owners": owners, "since": since},
    )
    if late is not None:
        raise UserBeingErased


async def vectors_wait(connection: Connection, tenant: str, user_id: str) -> bool:
    """Does the relay still have to remove vectors of this user's erased memories?"""
    row = await fetch_one(
        connection,
        """SELECT EXISTS (SELECT FROM index_outbox WHERE tenant = %(t)s AND user_id = %(u)s AND state = 'pending')""",
        {"t": tenant, "u": user_id},
    )
    return bool(row and row[0])


def gate_of(tenant: str, user_id: str) -> int:
    """The lock's key.  Two users that share one, once in 2^64, would only wait for each other."""
    return int.from_bytes(hashlib.sha256(f"erasing\0{tenant}\0{user_id}".encode()).digest()[:8], signed=True)
