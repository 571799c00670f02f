"""How much of the machine may embedding for the relay take while others wait for answers?

The texts go to the model in slices of at most one run, alike in size and a multiple of the processors in number, so that all are
busy to the end.  Threads that embed stand in the way of the next write at each of its steps, so during a burst of writes, which most
often is over in a moment, none begins; when it goes on for longer, half of the processors embed beside it, and what is
written is found no later than it would be anyway.  A single write is embedded at once.  What somebody waits for is never
held back; a write's own embedding does not come this way.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import numpy as np

from memory_service.models.ports import Embedder, Vector


class Pacing:
    """One for a relay, shared by the batches that it has under way."""

    def __init__(self, processors: int, slice_chars: int, calm_s: float, burst_s: float) -> None:
        """`calm_s` after the last write it is calm again; a burst is given way to for its first `burst_s`."""
        self._processors = processors
        self._all = processors + 1  # one is waiting, so that none stands still
        self._half = max(1, processors // 2)
        self._slice_chars = slice_chars
        self._calm_s = calm_s
        self._burst_s = burst_s
        self._first_write = self._last_write = -calm_s  # since it was calm
        self._running = 0
        self._left = asyncio.Event()

    def disturb(self) -> None:
        """Somebody writes."""
        now = time.monotonic()
        if now - self._last_write >= self._calm_s:
            self._first_write = now
        self._last_write = now

    async def embed(self, embedder: Embedder, texts: Sequence[str], *, awaited: bool = False) -> Vector:
        """One row a text; `awaited`: gives way to no burst.  Raises what the embedder raises; nothing of it goes on then."""
        order = sorted(range(len(texts)), key=lambda at: len(texts[at]))  # alike lengths need little padding

        async def one(part: Sequence[int]) -> Vector:
            async with self._place(awaited):
                return await embedder.embed_passages([texts[at] for at in part])

        parts = _slices(order, texts, self._slice_chars, self._processors)
        tasks = [asyncio.create_task(one(part)) for part in parts]
        try:
            vectors = np.concatenate(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
        back = np.empty(len(order), np.intp)
        back[order] = np.arange(len(order))
        return vectors[back]

    @asynccontextmanager
    async def _place(self, awaited: bool) -> AsyncIterator[None]:
        while self._running >= self._places(awaited):
            self._left.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._until_calmer()):
                    await self._left.wait()
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            self._left.set()

    def _until_calmer(self) -> float | None:
        """Seconds until it is calm, or no burst any more, should nobody write meanwhile; None when it is calm already."""
        now = time.monotonic()
        ends = (self._last_write + self._calm_s, self._first_write + self._burst_s)
        return min((end - now for end in ends if end > now), default=None)

    def _places(self, awaited: bool) -> int:
        now = time.monotonic()
        if now - self._last_write >= self._calm_s:
            return self._all
        burst = self._last_write > self._first_write and now - self._first_write < self._burst_s
        return 0 if burst and not awaited else self._half


def _slices(order: Sequence[int], texts: Sequence[str], chars: int, processors: int) -> list[list[int]]:
    """Consecutive places of `order`, each part of at most `chars` characters or a single text."""
    whole = sum(len(texts[at]) for at in order)
    rounds = -(-whole // (chars * processors)) or 1
    even = whole / (rounds * processors)
    parts: list[list[int]] = [[]]
    size = before = 0
    for at in order:
        length = len(texts[at])
        if parts[-1] and (size + length > chars or before + length / 2 > even * len(parts)):
            parts.append([])
            size = 0
        parts[-1].append(at)
        size += length
        before += length
    return parts
