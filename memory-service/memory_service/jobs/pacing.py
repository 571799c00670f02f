"""How much of the machine may embedding for the relay take while others wait for answers?

The texts go to the model in slices of about one run.  While nobody writes there are as many under way as keep all processors
busy; for a moment after each write only half of them, or two processors that embed would stand in the way of the next
write at each of its steps (measured with 2 of them: 8 ms a write, of which 5 were waiting for a processor).  Everything is
embedded all the same, a little later.  It never holds back a write's own embedding, which does not come this way.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import numpy as np

from memory_service.models.ports import Embedder, Vector


class Pacing:
    """One for a relay, shared by the batches that it has under way."""

    def __init__(self, processors: int, slice_chars: int, calm_s: float) -> None:
        self._all = processors + 1  # one is waiting, so that none stands still
        self._half = max(1, processors // 2)
        self._slice_chars = slice_chars
        self._calm_s = calm_s
        self._disturbed_at = -calm_s
        self._running = 0
        self._left = asyncio.Event()

    def disturb(self) -> None:
        """Somebody writes."""
        self._disturbed_at = time.monotonic()

    async def embed(self, embedder: Embedder, texts: Sequence[str]) -> Vector:
        """One row a text.  Raises what the embedder raises; nothing of it goes on then."""
        order = sorted(range(len(texts)), key=lambda at: len(texts[at]))  # alike lengths need little padding

        async def one(part: Sequence[int]) -> Vector:
            async with self._place():
                return await embedder.embed_passages([texts[at] for at in part])

        parts = _slices(order, texts, self._slice_chars)
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
    async def _place(self) -> AsyncIterator[None]:
        while self._running >= (self._half if time.monotonic() - self._disturbed_at < self._calm_s else self._all):
            self._left.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._calm_s):  # it may be calm by then
                    await self._left.wait()
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            self._left.set()


def _slices(order: Sequence[int], texts: Sequence[str], chars: int) -> list[list[int]]:
    """Consecutive places of `order`, each part of at most `chars` characters or a single text."""
    parts: list[list[int]] = [[]]
    size = 0
    for at in order:
        if parts[-1] and size + len(texts[at]) > chars:
            parts.append([])
            size = 0
        parts[-1].append(at)
        size += len(texts[at])
    return parts
