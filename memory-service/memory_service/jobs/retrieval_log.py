"""Who remembers what was asked, without making the asking wait?

Searches hand their log entry over; a background task writes entries and access times in batches.  The queue is bounded:
under overload the log loses entries (counted), never a search its time.
"""

import asyncio
import logging
from collections import Counter, deque
from contextlib import suppress
from datetime import datetime
from uuid import UUID

from memory_service.errors import StoreUnavailable
from memory_service.settings import Retrievals
from memory_service.stores.postgres import memories, retrievals
from memory_service.stores.postgres.pool import Connection, Postgres
from memory_service.stores.postgres.retrievals import Retrieval

log = logging.getLogger(__name__)


class RetrievalLog:
    """`note` from anywhere on the loop; `keep` to wait for the row; `run` as one task; `flush` at shutdown."""

    def __init__(self, postgres: Postgres, numbers: Retrievals) -> None:
        self._postgres = postgres
        self._numbers = numbers
        self._queue: deque[Retrieval] = deque()
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
        """Write everything that waits; keeps it for later when Postgres is down."""
        while self._queue:
            rows = [self._queue.popleft() for _ in range(min(len(self._queue), self._numbers.flush_rows_max))]
            try:
                await self._postgres.transaction(lambda c, rows=rows: _write(c, rows))  # type: ignore[misc]
            except StoreUnavailable:
                self._queue.extendleft(reversed(rows))
                return
            except Exception:  # one bad entry must not end the log for all others
                log.exception("%d retrievals could not be logged", len(rows))
                self.dropped += len(rows)


async def _write(connection: Connection, rows: list[Retrieval]) -> None:
    await retrievals.insert_many(connection, rows)
    hits: Counter[UUID] = Counter(
        UUID(hit["id"]) for row in rows for hit in row.hits if hit.get("what") != "experience"
    )
    if hits:
        latest: datetime = max(row.at for row in rows)
        await memories.touch(connection, dict(hits), latest)
