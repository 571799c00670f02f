"""Was this request answered before?  The answer is committed together with what it answers.

A claim is a short lease that the running request renews, so that a request whose process died is taken over soon.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from memory_service.stores.postgres.pool import Connection, execute, fetch_one


@dataclass(frozen=True, slots=True)
class Ticket:
    """One claim of one Idempotency-Key: `finish` must name it, so that a taken-over claim can't answer any more."""

    tenant: str
    caller: str
    key: str
    claim: UUID


@dataclass(frozen=True, slots=True)
class Earlier:
    """What is known of this key already; `status` is None while the first request runs."""

    same_request: bool
    status: int | None
    response: bytes | None


async def claim(
    connection: Connection, ticket: Ticket, request_hash: bytes, lease_s: float, keep_hours: int
) -> Earlier | None:
    """None when the caller now owns the key and must do the work; otherwise what happened before.

    An expired claim without an answer, or an answer older than `keep_hours`, is taken over.
    """
    taken = await fetch_one(
        connection,
        """INSERT INTO idempotency_key AS k (tenant, caller, key, request_hash, claim, leased_until, created_at)
           VALUES (%(tenant)s, %(caller)s, %(key)s, %(hash)s, %(claim)s, now() + %(lease)s, now())
           ON CONFLICT (tenant, caller, key) DO UPDATE
           SET request_hash = excluded.request_hash, claim = excluded.claim, leased_until = excluded.leased_until,
               created_at = excluded.created_at, status = NULL, response = NULL, memory_ids = '{}'
           WHERE k.created_at < now() - %(keep)s
              OR (k.status IS NULL AND k.leased_until < now() AND k.request_hash = excluded.request_hash)
           RETURNING 1""",
        {
            **_key(ticket),
            "hash": request_hash,
            "claim": ticket.claim,
            "lease": timedelta(seconds=lease_s),
            "keep": timedelta(hours=keep_hours),
        },
    )
    if taken:
        return None
    row = await fetch_one(
        connection,
        f"SELECT request_hash = %(hash)s, status, response FROM idempotency_key WHERE {MATCH}",
        {**_key(ticket), "hash": request_hash},
    )
    return Earlier(*row) if row else Earlier(same_request=True, status=None, response=None)


async def renew(connection: Connection, ticket: Ticket, lease_s: float) -> None:
    """The request still runs."""
    await execute(
        connection,
        f"UPDATE idempotency_key SET leased_until = now() + %(lease)s WHERE {MATCH} AND claim = %(claim)s AND status IS NULL",
        {**_key(ticket), "claim": ticket.claim, "lease": timedelta(seconds=lease_s)},
    )


async def finish(connection: Connection, ticket: Ticket, status: int, response: bytes, memory_ids: list[UUID]) -> bool:
    """Keep the answer; call it in the transaction of the write.  False: someone took the key over, so roll back."""
    touched = await execute(
        connection,
        f"""UPDATE idempotency_key SET status = %(status)s, response = %(response)s, memory_ids = %(ids)s
            WHERE {MATCH} AND claim = %(claim)s AND status IS NULL""",
        {**_key(ticket), "claim": ticket.claim, "status": status, "response": response, "ids": memory_ids},
    )
    return touched == 1


async def release(connection: Connection, ticket: Ticket) -> None:
    """The request failed and wrote nothing: the key is free again."""
    await execute(
        connection,
        f"DELETE FROM idempotency_key WHERE {MATCH} AND claim = %(claim)s AND status IS NULL",
        {**_key(ticket), "claim": ticket.claim},
    )


async def purge(connection: Connection, keep_hours: int) -> int:
    """Forget answers older than `keep_hours`."""
    return await execute(
        connection,
        "DELETE FROM idempotency_key WHERE created_at < now() - %(keep)s",
        {"keep": timedelta(hours=keep_hours)},
    )


MATCH = "tenant = %(tenant)s AND caller = %(caller)s AND key = %(key)s"


def _key(ticket: Ticket) -> dict[str, Any]:
    return {"tenant": ticket.tenant, "caller": ticket.caller, "key": ticket.key}
