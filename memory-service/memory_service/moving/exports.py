"""How does everything of a user leave this server?  As JSON lines of one moment, streamed.

A producer reads pages inside one read-only snapshot and hands them over through a short queue.  A client that does not take
them is given up after a while, so that it can't keep a pooled connection; its file then lacks the end line.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import asdict

from memory_service.domain import Caller, Clock, Json
from memory_service.errors import RateLimited
from memory_service.models.ports import Embedder
from memory_service.moving.lines import FORMAT, FORMAT_VERSION, counted
from memory_service.moving.settings import MovingNumbers
from memory_service.shapes import to_json
from memory_service.stores.postgres import exports
from memory_service.stores.postgres.pool import Postgres

BUSY_RETRY_S = 5.0


class Exports:
    """`open` an export and iterate over what it returns."""

    def __init__(self, postgres: Postgres, numbers: MovingNumbers, embedder: Embedder, clock: Clock) -> None:
        self._postgres = postgres
        self._numbers = numbers
        self._embedder = embedder
        self._clock = clock
        self._running = 0

    async def open(self, caller: Caller, user_id: str) -> AsyncIterator[bytes]:
        """Pieces of the file.  Raises, before the first, StoreUnavailable, and RateLimited while too many exports run."""
        if self._running >= self._numbers.exports_at_once_max:
            raise RateLimited(
                f"at most {self._numbers.exports_at_once_max} exports at once", retry_after_s=BUSY_RETRY_S
            )
        queue: asyncio.Queue[bytes] = asyncio.Queue(self._numbers.export_queue_pages)
        self._running += 1
        task = asyncio.create_task(self._produce(caller.tenant, user_id, queue))
        task.add_done_callback(self._ended)
        try:
            first = await _next(queue, task)
        except BaseException:
            task.cancel()
            raise
        return _pieces(first, queue, task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running -= 1
        if not task.cancelled():
            task.exception()  # told to whoever reads; when nobody does, there is nothing to log twice

    async def _produce(self, tenant: str, user_id: str, queue: asyncio.Queue[bytes]) -> None:
        """Raises TimeoutError when the reader stalls or the whole takes too long."""
        now = self._clock()
        async with asyncio.timeout(self._numbers.export_s_max), exports.snapshot(self._postgres) as connection:
            counts = await exports.counts(connection, tenant, user_id, now)
            await self._put(queue, [self._header(user_id, counts)])
            async for page in exports.pages(connection, tenant, user_id, now, self._numbers.export_page_rows):
                await self._put(queue, page)
        await self._put(queue, [{"type": "end", "lines": counted(counts)}])

    def _header(self, user_id: str, counts: dict[str, int]) -> Json:
        return {
            "type": "header",
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "exported_at": self._clock(),
            "user_id": user_id,
            "model": asdict(self._embedder.fingerprint),
            "counts": counts,
        }

    async def _put(self, queue: asyncio.Queue[bytes], lines: list[Json]) -> None:
        piece = await asyncio.to_thread(_encoded, lines)  # a page of long texts takes tens of milliseconds
        async with asyncio.timeout(self._numbers.export_stall_s):
            await queue.put(piece)


def _encoded(lines: list[Json]) -> bytes:
    return b"".join(to_json(line) + b"\n" for line in lines)


async def _pieces(first: bytes | None, queue: asyncio.Queue[bytes], task: asyncio.Task[None]) -> AsyncIterator[bytes]:
    try:
        piece = first
        while piece is not None:
            yield piece
            piece = await _next(queue, task)
    finally:
        task.cancel()


async def _next(queue: asyncio.Queue[bytes], task: asyncio.Task[None]) -> bytes | None:
    """The next piece; None after the last.  Raises what the producer raised."""
    getting = asyncio.create_task(queue.get())
    try:
        await asyncio.wait({getting, task}, return_when=asyncio.FIRST_COMPLETED)
        if getting.done():
            return getting.result()
    finally:
        getting.cancel()
    if not queue.empty():
        return queue.get_nowait()
    await task
    return None
