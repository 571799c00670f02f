"""Who remembers what was asked, without making the asking wait?

Searches hand their log entry over; a background task writes entries and access times in batches.  The queue is bounded:
under overload the log loses entries (counted), never a search its time.  What was erased meanwhile is left out.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from memory_service.domain import Clock
from memory_service.errors import StoreUnavailable
from memory_service.settings import Retrievals
from memory_service.stores.postgres import memories, retrievals
from memory_service.stores.postgres.pool import Connection, Postgres
from memory_service.stores.postgres.retrievals import Retrieval

log = logging.getLogger(__name__)


class RetrievalLog:
    """`note` from anywhere on the loop; `keep` to wait for the row; `run` as one task; `flush` at shutdown."""

    def __init__(self, postgres: Postgres, numbers: Retrievals, clock: Clock) -> None:
        self._postgres = postgres
        self._numbers = numbers
        self._clock = clock
        self._queue: deque[Retrieval] = deque()
        self._writing: asyncio.Task[bool] | None = None
        self._stopped = asyncio.Event()
        self.dropped = 0

    def note(self, entry: Retrieval) -> None:
        """Remember one retrieval soon."""
        if len(self._queue) >= self._numbers.queue_max:
            self.dropped += 1
        else:
            self._queue.append(entry)

    async def keep(self, entry: Retrieval) -> None:
        """Remember one retrieval before anything that builds on it goes on; later when Postgres is down just now."""
        try:
            await self._postgres.transaction(lambda c: _write(c, [entry]))
        except StoreUnavailable:
            self.note(entry)

    async def run(self) -> None:
        """Write what was noted, every flush_s, until stopped."""
        while not self._stopped.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self._numbers.flush_s):
                    await self._stopped.wait()
            await self.flush()

    def stop(self) -> None:
        """End `run` after a last flush."""
        self._stopped.set()

    async def flush(self) -> None:
        """Everything noted so far is written when this returns, also what another flush had in hand; it is kept for later when
        Postgres is down.  All who wait share one attempt."""
        earlier = self._writing
        if earlier is not None and not earlier.done():
            await asyncio.wait([earlier])
            if earlier.cancelled() or not earlier.result():
                return
        if self._queue and (self._writing is None or self._writing.done()):
            self._writing = asyncio.create_task(self._write_queue())
        if self._writing is not None:
            await asyncio.wait([self._writing])

    async def _write_queue(self) -> bool:
        """False when Postgres is down."""
        while self._queue:
            rows = [self._queue.popleft() for _ in range(min(len(self._queue), self._numbers.flush_rows_max))]
            try:
                await self._postgres.transaction(lambda c, rows=rows: _write(c, rows))  # type: ignore[misc]
            except StoreUnavailable:
                self._queue.extendleft(reversed(rows))
                return False
            except Exception:  # one bad entry must not end the log for all others
                log.exception("%d retrievals could not be logged", len(rows))
                self.dropped += len(rows)
        return True

    async def forget_user(self, tenant: str, user_id: str) -> int:
        """Remove what a user asked, here and in what any process still holds → how many rows there were.

        Raises StoreUnavailable.
        """
        now = self._clock()
        before = now - timedelta(days=self._numbers.forgotten_days)
        gone = await self._postgres.transaction(lambda c: retrievals.forget_user(c, tenant, user_id, now, before))
        held = [one for one in self._queue if (one.tenant, one.user_id) != (tenant, user_id) or one.at > now]
        self._queue.clear()
        self._queue.extend(held)
        return gone


async def _write(connection: Connection, entries: Sequence[Retrieval]) -> None:
    """Those that are not there yet, without erased users and erased hits."""
    known = await retrievals.stored(connection, [one.id for one in entries])
    owners = {retrievals.owner(one.tenant, one.user_id) for one in entries}
    forgotten = await retrievals.lock_owners(connection, owners)
    rows = [one for one in entries if one.id not in known and not _is_forgotten(one, forgotten)]
    present = await retrievals.lock_hits(connection, {UUID(hit["id"]) for row in rows for hit in row.hits})
    await retrievals.insert_many(connection, [_of_present(row, present) for row in rows])
    hits: Counter[UUID] = Counter(
        UUID(hit["id"]) for row in rows for hit in row.hits if hit.get("what") != "experience"
    )
    if hits:
        latest: datetime = max(row.at for row in rows)
        await memories.touch(connection, dict(hits), latest)


def _is_forgotten(entry: Retrieval, forgotten: dict[bytes, datetime]) -> bool:
    until = forgotten.get(retrievals.owner(entry.tenant, entry.user_id))
    return until is not None and entry.at <= until


def _of_present(entry: Retrieval, present: set[UUID]) -> Retrieval:
    kept = [hit for hit in entry.hits if UUID(hit["id"]) in present]
    return replace(entry, hits=kept, hit_count=len(entry.hits))
