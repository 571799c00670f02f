"""Who makes Qdrant match Postgres?  The relay, the only writer of Qdrant.

Level-triggered: an outbox row says only that X, a memory or an experience, changed.  The relay re-reads X, embeds it without holding a
connection, writes or deletes its points, and removes the row only if X did not change meanwhile.  Any number of processes
may run one.  Safe to kill at any line: the lease runs out and somebody does it again.  A batch stays with the model and the
collection that it began with, also when another model is switched to meanwhile; the outbox then takes nothing back from it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from time import monotonic
from typing import TypeVar
from uuid import UUID

from memory_service.domain import Experience, Json, Memory
from memory_service.errors import EmbedderUnavailable, SetupRefused, StoreUnavailable
from memory_service.experience.indexing import lesson_passage
from memory_service.jobs.pacing import Pacing
from memory_service.metrics import RELAY_APPLIED, RELAY_FAILED, STORE_ERRORS
from memory_service.models.embedding_settings import processors
from memory_service.models.ports import Embedder
from memory_service.models.switching import pinned
from memory_service.settings import Relay as RelayNumbers
from memory_service.stores.postgres import embedding_collections, experiences, memories, outbox, pending_terms
from memory_service.stores.postgres.embedding_collections import EmbeddingCollection
from memory_service.stores.postgres.outbox import OutboxRow, Queue, Worked
from memory_service.stores.postgres.pool import Postgres
from memory_service.stores.qdrant import VectorIndex, mismatch, points_of, points_of_experience
from memory_service.vocabulary import Vocabulary
from memory_service.write.indexing import passage

log = logging.getLogger(__name__)
# (tenant, user_id, memory_id): remove what working memory copied from an erased memory.
EraseCopies = Callable[[str, str, str], Awaitable[object]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Space:
    """One model, its collection, and the outbox of that."""

    embedder: Embedder
    index: VectorIndex
    worked: Worked


@dataclass(frozen=True, slots=True)
class _Claimed:
    """A batch that is ours until its lease runs out.  `full`: there may be more at once."""

    space: _Space
    rows: Sequence[OutboxRow]
    full: bool


@dataclass(slots=True)
class RelayState:
    """What /ready and /v1/stats tell of this process's relay."""

    ready: bool = False
    refused: str | None = None
    last_error: str | None = None
    applied: int = 0
    claimed: int = 0
    stopping: bool = False
    nudged: asyncio.Event = field(default_factory=asyncio.Event)


class Relay:
    """`run` as one task per process; `nudge` after each commit; `drain` to work off what is due now."""

    def __init__(
        self,
        postgres: Postgres,
        index: VectorIndex,
        embedder: Embedder,
        vocabulary: Vocabulary,
        numbers: RelayNumbers,
        erase_copies: EraseCopies,
        config: Json | None = None,
        queue: Queue = "index_outbox",
    ) -> None:
        """`config`: how the model was opened, to be remembered when this deployment starts for the first time."""
        self._postgres = postgres
        self._index = index
        self._embedder = embedder
        self._vocabulary = vocabulary
        self._numbers = self.numbers = numbers
        self._erase_copies = erase_copies
        self._config = config or {}
        self._queue: Queue = queue
        self._pacing = Pacing(processors(), numbers.embed_slice_chars, numbers.calm_s, numbers.burst_s)
        self._awaited: set[asyncio.Task[None]] = set()  # the loop itself keeps no task alive
        self._settled = 0  # `state.applied` at the last quiet moment
        self.state = RelayState()

    def nudge(self) -> None:
        """Something was committed: look at once."""
        self._pacing.disturb()
        self.state.nudged.set()

    def stop(self) -> None:
        """End `run` after its batch: what it holds would otherwise wait for its lease to run out."""
        self.state.stopping = True
        self.state.nudged.set()

    async def run(self) -> None:
        """Apply what is due until stopped.  A store that is down is waited for; nothing here ends the process.

        While one batch is embedded, the next one may be claimed and read and the one before be written to Qdrant.
        """
        free, claimed_at = asyncio.Semaphore(self._numbers.batches_at_once), 0.0
        async with asyncio.TaskGroup() as under_way:
            while not self.state.stopping:
                await free.acquire()
                await asyncio.sleep(claimed_at + self._numbers.claim_gap_s - monotonic())
                if self.state.stopping:
                    return
                self.state.nudged.clear()
                claimed = await self._survived(self._claim())
                if claimed is not None and claimed.rows:
                    claimed_at = monotonic()
                    applying = under_way.create_task(self._survived(self._apply(claimed.space, claimed.rows)))
                    applying.add_done_callback(lambda _: free.release())
                else:
                    free.release()
                if not (claimed is not None and claimed.full) and not self.state.stopping:
                    await self._wait()

    async def _survived(self, work: Awaitable[T]) -> T | None:
        """Its result; None, after a pause, when it failed."""
        try:
            return await work
        except StoreUnavailable as error:
            STORE_ERRORS.labels(error.store).inc()
            self.state.last_error, self.state.ready = str(error), False
            await asyncio.sleep(self._numbers.backoff_s)
        except SetupRefused as error:
            self.state.refused = str(error)
        except Exception:
            log.exception("relay step failed")
            self.state.last_error = "internal error, see the log"
            await asyncio.sleep(self._numbers.backoff_s)
        return None

    async def step(self) -> bool:
        """One batch; True when there may be more at once.  Raises StoreUnavailable, SetupRefused."""
        claimed = await self._claim()
        if claimed.rows:
            await self._apply(claimed.space, claimed.rows)
        return claimed.full

    async def _claim(self) -> _Claimed:
        """What is due.  A claim that is made and not heard of waits for its lease to run out."""
        if not self.state.ready:
            await self.prepare()
        space, most = self._space(), self._numbers.batch_rows_max
        rows = await self._postgres.read(lambda c: outbox.claim(c, space.worked, most, self._numbers.lease_s))
        self.state.claimed = len(rows)
        return _Claimed(space, rows, full=len(rows) == most)

    async def apply_now(self, memory_id: UUID) -> None:
        """Somebody waits for this one: apply it past the queue, unless it is being applied already.

        Who gives up waiting does not end it: a claim that is dropped half done would wait for its lease to run out.
        """
        space = self._space()
        rows = await self._postgres.read(lambda c: outbox.claim_one(c, space.worked, memory_id, self._numbers.lease_s))
        if rows:
            applying = asyncio.create_task(self._survived(self._apply(space, rows, awaited=True)))
            self._awaited.add(applying)
            applying.add_done_callback(self._awaited.discard)
            await asyncio.shield(applying)

    def _space(self) -> _Space:
        embedder = pinned(self._embedder)
        index = self._index.of(embedder.fingerprint)
        return _Space(embedder, index, Worked(index.collection, self._queue))

    async def prepare(self) -> None:
        """The collection exists and is of the model in use.  A new one is filled from Postgres.

        That it has yet to be filled is committed before it is made.  Raises FingerprintMismatch, StoreUnavailable.
        """
        index = self._space().index
        try:
            active = (await self._postgres.read(embedding_collections.read)).active
        except StoreUnavailable:
            await index.missing()  # a wrong model must be refused all the same
            raise
        if active is not None and active.collection != index.collection:
            raise mismatch(active.collection, active.fingerprint, index.fingerprint)
        await index.missing(known_active=active is not None)
        there = await index.exists()
        if active is None:
            made = asdict(index.fingerprint)
            new = EmbeddingCollection(index.collection, "active", self._config, made, enqueued=there, served=True)
            await self._postgres.transaction(lambda c: embedding_collections.register(c, new))
        elif not there:
            await self._postgres.transaction(lambda c: embedding_collections.set_enqueued(c, index.collection, False))
        created = await index.ensure(known_active=active is not None)
        if created or not there or (active is not None and not active.enqueued):
            await self.enqueue_all()
            await self._postgres.transaction(lambda c: embedding_collections.set_enqueued(c, index.collection, True))
        self.state.ready, self.state.refused = True, None

    async def enqueue_all(self) -> int:
        """Every memory's and experience's vectors shall be made again (Qdrant's volume was lost, or a rebuild was asked for)."""
        after, total = None, 0
        while True:
            after, count = await self._postgres.transaction(
                lambda c, start=after: outbox.enqueue_page(c, self._queue, start, 10_000)  # type: ignore[misc]
            )
            total += count
            if count == 0:
                return total

    async def drain(self) -> None:
        """Work until nothing is due."""
        while await self.step():
            pass

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(self._numbers.poll_s):
                await self.state.nudged.wait()
        except TimeoutError:
            if self._settled != self.state.applied:
                self._settled = self.state.applied
                await self._survived(self._postgres.read(pending_terms.settle))

    async def _apply(self, space: _Space, rows: Sequence[OutboxRow], *, awaited: bool = False) -> None:
        """Apply a batch; when it fails for its contents, each row alone, so that one bad row holds up no other."""
        try:
            await self._apply_batch(space, rows, awaited)
        except (StoreUnavailable, EmbedderUnavailable) as error:
            await self._put_back(space, rows, error)
        except Exception as error:
            if len(rows) > 1:
                for row in rows:
                    await self._apply(space, [row], awaited=awaited)
            else:
                await self._give_up_or_retry(space, rows[0], error)

    async def _apply_batch(self, space: _Space, rows: Sequence[OutboxRow], awaited: bool) -> None:
        """Make the points of these memories match the rows as they are now."""
        found = await self._read([r.memory_id for r in rows])
        present = {m.id: m for m in found}
        gone = [r.memory_id for r in rows if r.memory_id not in present]
        swept = {r.memory_id for r in rows if r.sweep}
        changed = [m.id for m in found if m.version > 1 or m.id in swept]
        keep = await self._upsert(space, found, awaited)
        if gone or changed:
            await space.index.delete_chunks([*gone, *changed], keep)
        for row in rows:
            if row.user_id is not None and row.memory_id not in present:
                await self._erase_copies(row.tenant, row.user_id, str(row.memory_id))
        done = await self._postgres.read(lambda c: outbox.complete(c, space.worked, rows))
        left = [row for row in rows if row.memory_id not in set(done)]
        if left:
            await self._postgres.transaction(lambda c: outbox.give_back(c, space.worked, left))
            self.state.nudged.set()  # who changed them did so while nobody could claim them
        self.state.applied += len(done)
        RELAY_APPLIED.inc(len(done))

    async def _read(self, ids: Sequence[UUID]) -> list[Memory | Experience]:
        """What has points: memories, and of the rest the active experiences."""
        found: list[Memory | Experience] = []
        found += await self._postgres.read(lambda c: memories.get_any_tenant(c, ids))
        rest = [i for i in ids if i not in {m.id for m in found}]
        if rest:
            found += await self._postgres.read(lambda c: experiences.get_any_tenant(c, rest))
        return found

    async def _upsert(self, space: _Space, found: Sequence[Memory | Experience], awaited: bool) -> list[str]:
        """Embed and write the points; their ids."""
        long = sum(len(one.content) for one in found if isinstance(one, Memory)) > self._numbers.inline_chars_max
        pieces = await asyncio.to_thread(self._cut, space.embedder, found) if long else self._cut(space.embedder, found)
        texts = [text for _, chunks in pieces for text in chunks]
        if not texts:
            return []
        vectors = await self._pacing.embed(space.embedder, texts, awaited=awaited)
        points, start = [], 0
        for one, chunks in pieces:
            rows = vectors[start : start + len(chunks)]
            points += points_of(one, rows) if isinstance(one, Memory) else points_of_experience(one, rows)
            start += len(chunks)
        size = self._numbers.upsert_points_max
        for i in range(0, len(points), size):
            await space.index.upsert(points[i : i + size])
        return [point["id"] for point in points]

    def _cut(
        self, embedder: Embedder, found: Sequence[Memory | Experience]
    ) -> list[tuple[Memory | Experience, list[str]]]:
        """The chunks of each one's text.  Takes up to a second for a long text, which then happens in a thread."""
        words = self._vocabulary
        texts = [passage(one, words) if isinstance(one, Memory) else lesson_passage(one, words) for one in found]
        return [(one, embedder.chunks(text)) for one, text in zip(found, texts, strict=True)]

    async def _put_back(
        self, space: _Space, rows: Sequence[OutboxRow], error: StoreUnavailable | EmbedderUnavailable
    ) -> None:
        STORE_ERRORS.labels(error.store if isinstance(error, StoreUnavailable) else "embedder").inc()
        self.state.last_error = str(error)
        if isinstance(error, StoreUnavailable) and error.store == "qdrant":
            self.state.ready = False  # it may come back empty: look at the collection again
        await self._postgres.transaction(lambda c: outbox.put_back(c, space.worked, rows, self._numbers.backoff_s))

    async def _give_up_or_retry(self, space: _Space, row: OutboxRow, error: Exception) -> None:
        dead = row.attempts >= self._numbers.attempts_max
        delay = min(self._numbers.backoff_s * 2 ** (row.attempts - 1), self._numbers.backoff_s_max)
        text = f"{type(error).__name__}: {error}"
        log.warning(
            "memory %s could not be indexed (attempt %d%s): %s",
            row.memory_id,
            row.attempts,
            ", given up" if dead else "",
            text,
        )
        RELAY_FAILED.labels("dead" if dead else "retry").inc()
        await self._postgres.transaction(lambda c: outbox.retry_later(c, space.worked, row, delay, text, dead=dead))
        self.state.nudged.set()  # it may have changed meanwhile, and is due then
