"""How does a route answer?  JSON bytes, and the first answer again for a repeated Idempotency-Key."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID, uuid4

from fastapi import Request, Response

from memory_service.api.dependencies import note
from memory_service.bootstrap import Runtime
from memory_service.domain import Caller, Json
from memory_service.errors import Gone, IdempotencyMismatch, InvalidFields, RequestInProgress, StoreUnavailable
from memory_service.shapes import to_json
from memory_service.stores.postgres import idempotency
from memory_service.stores.postgres.idempotency import Ticket
from memory_service.stores.postgres.pool import Connection
from memory_service.write.service import Record, no_record

T = TypeVar("T")
KEY_CHARS_MAX = 255
LOGGED_IDS_MAX = 100


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply before it is bytes.  `memory_ids`: whose texts it carries, so that erasing them erases the kept reply."""

    status: int
    body: Json
    memory_ids: tuple[UUID, ...] = ()


def reply(body: Any, status: int = 200) -> Response:
    return Response(to_json(body), status, media_type="application/json")


async def once(
    request: Request,
    runtime: Runtime,
    caller: Caller,
    work: Callable[[Record], Awaitable[T]],
    answer: Callable[[T], Answer],
) -> Response:
    """Run `work` and answer; with an Idempotency-Key, at most once per key.

    The reply is committed in the transaction of the write.  While the first request runs, its lease is renewed; when its
    process died, the next request with the key does the work.
    """
    key = request.headers.get("idempotency-key")
    if key is None:
        return _told(request, answer(await work(no_record)))
    ticket = Ticket(caller.tenant, caller.key_id or "local", checked_key(key), uuid4())
    if (earlier := await _claim(request, runtime, ticket)) is not None:
        return earlier

    async def record(connection: Connection, result: T) -> None:
        shown = answer(result)
        if not await idempotency.finish(connection, ticket, shown.status, to_json(shown.body), list(shown.memory_ids)):
            raise RequestInProgress(retry_after_s=1)

    try:
        async with _renewing(runtime, ticket):
            return _told(request, answer(await work(record)))
    except BaseException:
        with suppress(StoreUnavailable):
            await asyncio.shield(runtime.postgres.read(lambda c: idempotency.release(c, ticket)))
        raise


def _told(request: Request, shown: Answer) -> Response:
    note(request, ids=[str(one) for one in shown.memory_ids[:LOGGED_IDS_MAX]])
    return reply(shown.body, shown.status)


async def _claim(request: Request, runtime: Runtime, ticket: Ticket) -> Response | None:
    """None when the work is ours; the earlier reply otherwise."""
    limits = runtime.tunables.limits
    digest = hashlib.sha256(
        b"\0".join(
            (
                request.method.encode(),
                str(request.url.path).encode("utf-8", "replace"),
                request.url.query.encode(),
                request.state.raw_body,
            )
        )
    ).digest()
    earlier = await runtime.postgres.transaction(
        lambda c: idempotency.claim(c, ticket, digest, limits.idempotency_lease_s, limits.idempotency_hours)
    )
    if earlier is None:
        return None
    if not earlier.same_request:
        raise IdempotencyMismatch
    if earlier.status is None:
        raise RequestInProgress(retry_after_s=1)
    if earlier.response is None:
        raise Gone("what this request wrote was erased")
    return Response(bytes(earlier.response), earlier.status, {"Idempotency-Replayed": "true"}, "application/json")


@asynccontextmanager
async def _renewing(runtime: Runtime, ticket: Ticket) -> Any:
    """Keep the lease while the work runs."""
    lease_s = runtime.tunables.limits.idempotency_lease_s

    async def renew() -> None:
        while True:
            await asyncio.sleep(lease_s / 3)
            with suppress(StoreUnavailable):
                await runtime.postgres.read(lambda c: idempotency.renew(c, ticket, lease_s))

    task = asyncio.create_task(renew())
    try:
        yield
    finally:
        task.cancel()


def checked_key(key: str) -> str:
    """The Idempotency-Key.  Raises InvalidFields for one that could not be kept."""
    if not 1 <= len(key) <= KEY_CHARS_MAX or not key.isascii() or not key.isprintable():
        raise InvalidFields.of("Idempotency-Key", f"must be 1 to {KEY_CHARS_MAX} printable ASCII characters")
    return key
