"""How do concurrent requests share runs of a model?

`MicroBatcher` hands waiting rows to worker threads: at once while a worker is free, so an idle service adds no latency;
together while all are busy, so a busy one wastes no run.  Requests take turns: one with hundreds of rows keeps all workers
busy and holds up nobody for longer than a run.  `VectorCache` remembers vectors.  Neither knows a model.
"""

import asyncio
import hashlib
import os
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np

from memory_service.errors import EmbedderUnavailable
from memory_service.models.ports import EmbeddingFingerprint, Vector

QUERY, PASSAGE = "query", "passage"

Encode = Callable[[Sequence[str]], Vector]


def _ignore(*_: object) -> None:
    return None


@dataclass(frozen=True, slots=True)
class EmbedderObserver:
    """Called on the event loop with what metrics need; `role` is query or passage."""

    batch: Callable[[str, int, float], None] = _ignore
    """role, rows, seconds"""
    cache: Callable[[str, int, int], None] = _ignore
    """role, hits, misses"""


@dataclass(frozen=True, slots=True)
class BatchBounds:
    """Of one lane.  `rows` and `cost` bound one run (cost as `cost_of` counts it), `waiting_rows` the queue."""

    workers: int
    rows: int
    cost: int
    waiting_rows: int
    nice: int = 0


@dataclass(frozen=True, slots=True)
class _Row:
    text: str
    cost: int
    vector: asyncio.Future[Vector]


class MicroBatcher:
    """One lane of work for `encode`, which runs in threads and gives one row per text, in order."""

    def __init__(
        self, role: str, encode: Encode, cost_of: Callable[[str], int], bounds: BatchBounds, observer: EmbedderObserver
    ) -> None:
        self._role = role
        self._encode = encode
        self._cost_of = cost_of
        self._bounds = bounds
        self._observer = observer
        self._waiting: deque[deque[_Row]] = deque()  # requests in the order of their turns, none empty
        self._free = bounds.workers
        self._closed = False
        self._threads = ThreadPoolExecutor(
            bounds.workers, f"embed-{role}", initializer=_lower_priority, initargs=(bounds.nice,)
        )

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """One vector per text.  Raises EmbedderUnavailable when closed, when the queue is full, when the model fails.

        A request with more rows than the queue takes is fed in slices, so any number of rows may be asked for.
        """
        order = sorted(range(len(texts)), key=lambda at: self._cost_of(texts[at]))  # alike lengths need little padding
        vectors: dict[int, Vector] = {}
        at_once = min(self._bounds.waiting_rows, 2 * self._bounds.rows * self._bounds.workers)
        for start in range(0, len(order), at_once):
            part = order[start : start + at_once]
            vectors.update(zip(part, await self._embed_slice([texts[at] for at in part]), strict=True))
        return [vectors[at] for at in range(len(texts))]

    async def _embed_slice(self, texts: Sequence[str]) -> list[Vector]:
        if self._closed:
            raise EmbedderUnavailable("The embedding model was shut down")
        if sum(map(len, self._waiting)) + len(texts) > self._bounds.waiting_rows:
            raise EmbedderUnavailable("Too many texts are waiting for the embedding model", retry_after_s=1.0)
        loop = asyncio.get_running_loop()
        rows = [_Row(text, self._cost_of(text), loop.create_future()) for text in texts]
        if rows:
            self._waiting.append(deque(rows))
        self._dispatch(loop)
        try:
            return list(await asyncio.gather(*(row.vector for row in rows)))
        finally:  # cancelled, or one failed: the others' outcome is nobody's any more
            for row in rows:
                row.vector.cancel()

    def _dispatch(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._free and (rows := self._next_batch()):
            self._free -= 1
            run = loop.run_in_executor(self._threads, self._encode, [row.text for row in rows])
            run.add_done_callback(partial(self._finish, rows, time.perf_counter()))

    def _next_batch(self) -> list[_Row]:
        """Rows that somebody still waits for, within the bounds; one row may exceed the cost alone.

        They are of the request whose turn it is, then of those behind it.  One that is not through goes to the end of the line.
        """
        rows: list[_Row] = []
        cost = 0
        served: deque[_Row] | None = None
        while self._waiting and len(rows) < self._bounds.rows:
            request = self._waiting[0]
            row = request[0]
            if not row.vector.done():
                if rows and cost + row.cost > self._bounds.cost:
                    break
                rows.append(row)
                cost += row.cost
                served = request
            request.popleft()
            if not request:
                self._waiting.popleft()
        if self._waiting and self._waiting[0] is served:
            self._waiting.rotate(-1)
        return rows

    def _finish(self, rows: list[_Row], started: float, run: asyncio.Future[Vector]) -> None:
        self._free += 1
        error = asyncio.CancelledError() if run.cancelled() else run.exception()
        if error is None:
            self._observer.batch(self._role, len(rows), time.perf_counter() - started)
            for row, vector in zip(rows, run.result(), strict=True):
                if not row.vector.done():
                    row.vector.set_result(vector)
        else:
            self._fail(rows, error)
        if not self._closed:
            self._dispatch(run.get_loop())

    def _fail(self, rows: Sequence[_Row], cause: BaseException) -> None:
        for row in rows:
            if not row.vector.done():
                unavailable = EmbedderUnavailable("The embedding model failed on this text")
                unavailable.__cause__ = cause
                row.vector.set_exception(unavailable)

    async def close(self) -> None:
        """Refuse what waits, let what runs finish."""
        self._closed = True
        self._fail(
            [row for request in self._waiting for row in request],
            EmbedderUnavailable("The embedding model was shut down"),
        )
        self._waiting.clear()
        await asyncio.to_thread(self._threads.shutdown)


def _lower_priority(nice: int) -> None:
    """Linux only, where niceness belongs to a thread; elsewhere it belongs to the process, which must stay as it is."""
    if nice and sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)


class VectorCache:
    """The most recently used vectors by model, role and exact text.  Texts are kept as digests: they may be long."""

    def __init__(self, fingerprint: EmbeddingFingerprint, entries_max: int) -> None:
        self._salt = hashlib.blake2b(repr(fingerprint).encode(), digest_size=16).digest()
        self._entries_max = entries_max
        self._vectors: OrderedDict[bytes, Vector] = OrderedDict()

    def __len__(self) -> int:
        return len(self._vectors)

    def key(self, role: str, text: str) -> bytes:
        return hashlib.blake2b(
            text.encode("utf-8", "surrogatepass"), digest_size=24, salt=self._salt, person=role.encode()
        ).digest()

    def get(self, key: bytes) -> Vector | None:
        vector = self._vectors.get(key)
        if vector is not None:
            self._vectors.move_to_end(key)
        return vector

    def put(self, key: bytes, vector: Vector) -> Vector:
        """The vector as it is kept: read-only."""
        kept = np.array(vector, np.float32)  # a copy: a row of a batch would keep the whole batch alive
        kept.flags.writeable = False
        self._vectors[key] = kept
        self._vectors.move_to_end(key)
        while len(self._vectors) > self._entries_max:
            self._vectors.popitem(last=False)
        return kept


async def embed_through(
    cache: VectorCache,
    observer: EmbedderObserver,
    role: str,
    texts: Sequence[str],
    embed: Callable[[list[str]], Awaitable[Sequence[Vector]]],
) -> list[Vector]:
    """The vectors of `texts`, of which only unknown ones, each once, are given to `embed`."""
    keys = [cache.key(role, text) for text in texts]
    known = {key: vector for key in keys if (vector := cache.get(key)) is not None}
    unknown = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
    observer.cache(role, len(keys) - len(unknown), len(unknown))
    if unknown:
        for key, vector in zip(unknown, await embed(list(unknown.values())), strict=True):
            known[key] = cache.put(key, vector)
    return [known[key] for key in keys]
