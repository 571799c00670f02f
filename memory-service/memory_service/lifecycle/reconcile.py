"""Does the vector index hold what Postgres says, and nothing else?  The job `reconcile`.

Both are read page by page, each way; what looks wrong is looked at again, closer, and told to the relay through the outbox.
The relay re-reads Postgres, so a repair that was not needed (somebody wrote meanwhile) does no harm, and nothing here deletes.
A point is read before its row is looked for: rows are committed before their points exist, so a new one never looks orphaned.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from memory_service.lifecycle.differences import REPAIRED, judge
from memory_service.lifecycle.report import JobItem, JobReport, JobRun
from memory_service.settings import Section
from memory_service.stores.postgres import indexed
from memory_service.stores.postgres.pool import Postgres
from memory_service.stores.qdrant import VectorIndex, point_id
from memory_service.stores.qdrant_points import StoredPoint, StoredPoints


class ReconcileNumbers(Section):
    """[reconcile] of memory.toml."""

    page_rows: int


@dataclass(slots=True)
class _Tally:
    """What one run has found so far.  `stored`: the collection that was in use when it began; `seen`: judged already, so that
    nothing is told twice."""

    stored: StoredPoints
    counts: Counter[str] = field(default_factory=Counter)
    items: list[JobItem] = field(default_factory=list)
    seen: set[UUID] = field(default_factory=set)


class Reconcile:
    """`prepare` (the relay's) makes a collection that was lost and enqueues everything."""

    def __init__(
        self,
        postgres: Postgres,
        index: VectorIndex,
        numbers: ReconcileNumbers,
        prepare: Callable[[], Awaitable[None]],
        nudge: Callable[[], None],
    ) -> None:
        self._postgres = postgres
        self._index = index
        self._page_rows = numbers.page_rows
        self._prepare = prepare
        self._nudge = nudge

    async def tenants(self) -> list[str]:
        """Whose points there are: an older Postgres that was restored may not know them any more.  Raises StoreUnavailable."""
        return await self._index.stored.tenants() if await self._index.exists() else []

    async def run(self, run: JobRun) -> JobReport:
        """Done: memories and lessons whose vectors are repaired.  Raises StoreUnavailable, FingerprintMismatch."""
        tally = _Tally(self._index.stored)
        lost = not await self._index.exists()
        if not run.dry_run:
            await self._prepare()
        if not lost or not run.dry_run:
            await self._points(run, tally)
        await self._rows(run, tally, lost=lost)
        self._nudge()
        counts = {
            name: tally.counts[name] for name in ("memories_and_lessons", "points", *REPAIRED, "waiting", "unreadable")
        }
        done = sum(tally.counts[name] for name in REPAIRED)
        if lost:
            counts["collection_lost"] = 1
            done = tally.counts["memories_and_lessons"]
        return JobReport(done, tally.items, counts)

    async def _points(self, run: JobRun, tally: _Tally) -> None:
        """From the index to Postgres: orphans and other versions."""
        offset: str | None = None
        while True:
            points, offset = await tally.stored.page(run.tenant, offset, self._page_rows)
            tally.counts["points"] += len(points)
            tally.counts["unreadable"] += sum(point.memory_id is None for point in points)
            versions = {(p.memory_id, p.version) for p in points if p.memory_id is not None}
            ids = list({one for one, _ in versions})
            rows = await self._postgres.read(lambda c, ids=ids: indexed.among(c, run.tenant, ids))  # type: ignore[misc]
            doubtful = {one for one, version in versions if one not in rows or rows[one].version != version}
            await self._look_closer(run, tally, doubtful)
            if offset is None:
                return

    async def _rows(self, run: JobRun, tally: _Tally, *, lost: bool) -> None:
        """From Postgres to the index: what has no vector, or not all of them."""
        after: UUID | None = None
        while True:
            rows = await self._postgres.read(
                lambda c, after=after: indexed.page(c, run.tenant, after, self._page_rows)  # type: ignore[misc]
            )
            if not rows:
                return
            after = rows[-1].id
            tally.counts["memories_and_lessons"] += len(rows)
            if lost:
                room = run.items_max - len(tally.items)
                tally.items += [JobItem(r.id, r.user_id, "the collection is lost") for r in rows[:room]]
            else:
                await self._look_closer(run, tally, await self._lacking(tally.stored, [row.id for row in rows]))

    async def _lacking(self, stored: StoredPoints, ids: Sequence[UUID]) -> set[UUID]:
        """Those whose first chunk, or a further one that the first one tells of, is not there."""
        first = await stored.with_ids(ids)
        others = {
            point_id(one, chunk): one
            for one in ids
            if (point := first.get(str(one))) is not None
            for chunk in range(1, point.chunks or 1)
        }
        lacking, keys = {one for one in ids if str(one) not in first}, list(others)
        for start in range(0, len(keys), self._page_rows):
            page = keys[start : start + self._page_rows]
            found = await stored.with_ids(page)
            lacking |= {others[key] for key in page if str(key) not in found}
        return lacking

    async def _look_closer(self, run: JobRun, tally: _Tally, doubtful: set[UUID]) -> None:
        """All points of these, then their rows: what is still wrong is told and repaired."""
        ids = sorted(doubtful - tally.seen)
        if not ids:
            return
        tally.seen.update(ids)
        by_memory: dict[UUID, list[StoredPoint]] = {one: [] for one in ids}
        for point in await tally.stored.of(run.tenant, ids, self._page_rows):
            if point.memory_id is not None:
                by_memory.setdefault(point.memory_id, []).append(point)
        outbox = await self._postgres.read(lambda c: indexed.waiting(c, ids))
        rows = await self._postgres.read(lambda c: indexed.among(c, run.tenant, ids))
        wrong = []
        for one in ids:
            found = judge(rows.get(one), by_memory[one], outbox.get(one))
            if found is None:
                continue
            tally.counts[found.kind] += 1
            if found.kind in REPAIRED:
                wrong.append(one)
                if len(tally.items) < run.items_max:
                    tally.items.append(JobItem(one, found.user_id, found.why))
        if wrong and not run.dry_run:
            await self._postgres.transaction(lambda c: indexed.enqueue_again(c, run.tenant, wrong))
            self._nudge()
