"""How do old memories become summaries?  The job `compress`: cold ones, then events that go on being repeated.

For each user: what waits, by nature and meaning into groups (compress.py) → the vectors come from the index, nothing is embedded →
words by the model or the rules → one transaction a group, in which every source is checked again under its lock.  Killed between
two groups the rest waits for the next run; a second run finds nothing more to do.  Users never meet.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID

from memory_service.domain import LIVE_STATES, Memory
from memory_service.lifecycle.compress import (
    Candidate,
    Group,
    GroupRules,
    alike_by_nature,
    first_window,
    groups_of,
    slices,
)
from memory_service.lifecycle.compress_rules import CompressNumbers, TextPatterns
from memory_service.lifecycle.families import keep
from memory_service.lifecycle.report import JobItem, JobReport, JobRun
from memory_service.lifecycle.summary_facts import facts_of
from memory_service.lifecycle.summary_model import SummaryModel, Worded
from memory_service.lifecycle.summary_text import head_line, rules_text, summary_memory
from memory_service.models.ports import Vector
from memory_service.scripts import is_chinese
from memory_service.settings import Heat
from memory_service.stores.postgres import changes, compression, memories
from memory_service.stores.postgres.compression import Asked, Row
from memory_service.stores.postgres.memories import IndexedText
from memory_service.stores.postgres.pool import Connection, Postgres
from memory_service.stores.qdrant import VectorIndex
from memory_service.terms import query_terms
from memory_service.vocabulary import Vocabulary
from memory_service.write.indexing import indexed_text

SECONDS_A_DAY = 86_400
WORDS_MAX = 40  # of the 200 characters that are read, in any language


@dataclass(frozen=True, slots=True)
class Midpoints:
    """The cosine from which this embedding model's pairs are more likely related than not, by script (docs/CALIBRATION.md)."""

    latin: float
    cjk: float


@dataclass(frozen=True, slots=True)
class Pass:
    """One way of looking for what can be compressed."""

    name: str
    asked: Asked
    rules: GroupRules


@dataclass(slots=True)
class Tally:
    """What a run has done so far."""

    items_max: int
    groups: int = 0
    sources: int = 0
    by_model: int = 0
    items: list[JobItem] = field(default_factory=list)

    def add(self, group: Group, merged: Sequence[Memory], why: str) -> None:
        self.groups += 1
        self.sources += len(merged)
        room = self.items_max - len(self.items)
        self.items += [JobItem(one.id, one.user_id, why) for one in merged[: max(room, 0)]]


class Compression:
    """`run` is the job.  Raises StoreUnavailable when Postgres or Qdrant is down; what was merged until then stays merged."""

    def __init__(
        self,
        postgres: Postgres,
        index: VectorIndex,
        vocabulary: Vocabulary,
        heat: Heat,
        numbers: CompressNumbers,
        patterns: TextPatterns,
        midpoints: Callable[[], Midpoints],
        nudge: Callable[[], None],
        model: SummaryModel | None = None,
    ) -> None:
        self._postgres = postgres
        self._index = index
        self._vocabulary = vocabulary
        self._heat = heat
        self._numbers = numbers
        self._patterns = patterns
        self._midpoints = midpoints
        self._nudge = nudge
        self._model = model

    async def run(self, run: JobRun) -> JobReport:
        """Done: memories that are in a summary now; counts: summaries written or added to."""
        tally = Tally(run.items_max)
        for one in self._passes(run):
            async for user_id in self._users(one.asked):
                if tally.groups >= self._numbers.groups_max:
                    break  # the next run goes on
                await self._user(run, one, user_id, tally)
        counts = {"memories": tally.sources, "summaries": tally.groups, "worded_by_model": tally.by_model}
        return JobReport(tally.sources, tally.items, counts)

    def _passes(self, run: JobRun) -> list[Pass]:
        numbers, heat = self._numbers, self._heat
        cold = Asked(
            tenant=run.tenant,
            now=run.now,
            state="cold",
            untouched_before=run.now - timedelta(days=numbers.untouched_days),
            heat_below=numbers.cold_heat_below,
            decay=heat.decay,
            decay_s=heat.decay_days * SECONDS_A_DAY,
            importance_below=2.0,  # above every importance
            exempt_types=(),
            content_chars_max=numbers.content_chars_max,
            events_only=False,
        )
        repeated = replace(
            cold,
            state="active",
            untouched_before=run.now - timedelta(days=numbers.repeated_days),
            heat_below=heat.initial,  # one that was used lately stays as it is
            importance_below=numbers.repeated_importance_below,
            exempt_types=numbers.repeated_exempt_types,
            events_only=True,
        )
        return [Pass("cold", cold, numbers.cold), Pass("repeated", repeated, numbers.repeated)]

    async def _users(self, asked: Asked) -> AsyncIterator[str]:
        after, size = "", self._numbers.users_page
        while True:
            page = await self._postgres.read(lambda c, after=after: compression.users_waiting(c, asked, after, size))  # type: ignore[misc]
            for user_id in page:
                yield user_id
            if len(page) < size:
                return
            after = page[-1]

    async def _user(self, run: JobRun, one: Pass, user_id: str, tally: Tally) -> None:
        """At most `windows_max` times `candidates_max` of a user in one run."""
        async for rows in self._windows(run, one, user_id):
            await self._window(run, one, user_id, rows, tally)

    async def _windows(self, run: JobRun, one: Pass, user_id: str) -> AsyncIterator[Sequence[Row]]:
        """What waits, oldest first, `candidates_max` at once.  Where there is more than one run reads, each week begins where the
        week before ended: those that nothing is like would otherwise be all that is ever read.
        """
        asked, size, most = one.asked, self._numbers.candidates_max, self._numbers.windows_max
        rows = await self._postgres.read(lambda c: compression.waiting(c, asked, user_id, size))
        if len(rows) == size:
            windows = -(-await self._postgres.read(lambda c: compression.waiting_count(c, asked, user_id)) // size)
            if windows > most:
                skip = first_window(run.now, windows, most) * size
                rows = await self._postgres.read(lambda c: compression.waiting(c, asked, user_id, size, skip=skip))
        for _ in range(most):
            if rows:
                yield rows
            # what was compressed meanwhile is no longer counted, so the place is told by the last row
            last = (rows[-1].occurred_at, rows[-1].id) if len(rows) == size else None
            if last is None:
                return
            rows = await self._postgres.read(lambda c, at=last: compression.waiting(c, asked, user_id, size, after=at))  # type: ignore[misc]

    async def _window(self, run: JobRun, one: Pass, user_id: str, rows: Sequence[Row], tally: Tally) -> None:
        async for group in self._groups(one, user_id, rows):
            if tally.groups >= self._numbers.groups_max:
                return
            read = await self._read(run.tenant, group)
            if read is None:
                continue
            sources, summary = read
            why = self._why(one, group, sources)
            if run.dry_run:
                tally.add(group, [m for m in sources if m.state != "compressed"], why)
                continue
            told = await self._worded(sources, tally)
            text = await asyncio.to_thread(self._made, sources, summary, told, run.now)
            merged = await self._postgres.transaction(
                lambda c, r=read, g=group, t=text: self._merge(c, run, one, g, r[0], r[1], t)  # type: ignore[misc]
            )
            if merged:
                tally.by_model += told is not None
                tally.add(group, merged, why)
                self._nudge()

    async def _groups(self, one: Pass, user_id: str, rows: Sequence[Row]) -> AsyncIterator[Group]:
        asked, numbers = one.asked, self._numbers
        span = timedelta(days=numbers.span_days_max)
        since, until = rows[0].occurred_at - span, rows[-1].occurred_at + span
        begun = await self._postgres.read(
            lambda c: compression.in_summaries(c, asked.tenant, user_id, since, until, numbers.candidates_max)
        )
        found = await asyncio.to_thread(lambda: [_candidate(row, self._vocabulary) for row in (*rows, *begun)])
        by_nature = alike_by_nature(found, one.rules)
        split = _split(by_nature.values())
        for ones in by_nature.values():
            whole = [c for c in ones if c.summary_id is None or c.summary_id not in split]
            for part in slices(whole, one.rules):
                if all(c.summary_id is not None for c in part) or len(part) < 2:
                    continue
                vectors = await self._vectors(part)
                midpoints = self._midpoints()
                midpoint = midpoints.cjk if part[0].chinese else midpoints.latin
                for group in await asyncio.to_thread(groups_of, part, vectors, midpoint, one.rules):
                    yield group

    async def _vectors(self, part: Sequence[Candidate]) -> dict[UUID, Vector]:
        """Vectors that are of the texts as they are now; a memory whose vector is not there yet waits for the next run."""
        versions, found = {one.id: one.version for one in part}, {}
        for start in range(0, len(part), self._numbers.vectors_page):
            ids = [one.id for one in part[start : start + self._numbers.vectors_page]]
            for stored in await self._index.vectors_of(ids):
                if versions[stored.memory_id] == stored.version:
                    found[stored.memory_id] = stored.vector
        return found

    async def _read(self, tenant: str, group: Group) -> tuple[list[Memory], Memory | None] | None:
        """The memories of a group, all that are in its summary already included, and the summary; None when some are gone."""
        new = [one.id for one in group.new]
        found = await self._postgres.read(lambda c: memories.get_many(c, tenant, new))
        if group.summary_id is None:
            return (found, None) if len(found) == len(new) else None
        head = await self._postgres.read(lambda c: memories.get_many(c, tenant, [group.summary_id]))  # type: ignore[list-item]
        old = await self._postgres.read(lambda c: compression.sources_of(c, tenant, [group.summary_id]))  # type: ignore[list-item]
        if not head or len(found) < len(new) or len(old) + len(found) > self._numbers.group_max:
            return None
        return [*old, *found], head[0]

    async def _worded(self, sources: Sequence[Memory], tally: Tally) -> Worded | None:
        if self._model is None or tally.by_model >= self._numbers.model_groups_max:
            return None
        facts = await asyncio.to_thread(facts_of, sources, self._numbers, self._patterns)
        return await self._model.worded(facts, sources)

    def _made(
        self, sources: Sequence[Memory], summary: Memory | None, told: Worded | None, now: datetime
    ) -> tuple[Memory, IndexedText]:
        """The summary as it will be, with its keyword terms.  Runs in a thread: a hundred sources take a few tens of ms."""
        facts = facts_of(sources, self._numbers, self._patterns)
        head, by = head_line(facts), "rules" if told is None else "model"
        content = (
            rules_text(facts) if told is None else f"{head}\n{told.content}"
        )  # what was counted stands first in either
        summary_line = head if told is None else told.summary
        made = summary_memory(sources, facts, summary_line, content, by, now, self._heat, self._numbers)
        if summary is not None:  # its own life goes on
            made = replace(
                made,
                id=summary.id,
                created_at=summary.created_at,
                state=summary.state,
                pinned=summary.pinned,
                heat=summary.heat,
                heat_at=summary.heat_at,
                last_accessed_at=summary.last_accessed_at,
                access_count=summary.access_count,
                related_ids=summary.related_ids,
                metadata={**summary.metadata, **made.metadata},
                written_by=summary.written_by,
                version=summary.version + 1,
            )
        return made, indexed_text(made, self._vocabulary)

    async def _merge(
        self,
        connection: Connection,
        run: JobRun,
        one: Pass,
        group: Group,
        sources: Sequence[Memory],
        summary: Memory | None,
        made: tuple[Memory, IndexedText],
    ) -> list[Memory]:
        """The new sources, compressed; none when anything changed since they were read."""
        after, text = made
        await compression.lock_user(connection, run.tenant, after.user_id)
        read = {m.id: m for m in (*sources, *((summary,) if summary else ()))}
        locked = {m.id: m for m in await memories.get_many(connection, run.tenant, list(read), lock=True)}
        if any(i not in locked or not _as_read(locked[i], m, run.now) for i, m in read.items()):
            return []
        if summary is None:
            await memories.insert(connection, after, text)
        else:
            await keep(connection, summary, after, "compress")
            await changes.save(connection, after, text)
        new = [locked[c.id] for c in group.new]
        for memory in new:
            gone = replace(
                memory, state="compressed", superseded_by=after.id, version=memory.version + 1, updated_at=run.now
            )
            await keep(connection, memory, gone, "compress")
            await changes.save_state(connection, gone)
        await compression.point_to(connection, run.tenant, [m.id for m in new], after.id, run.now)
        return new

    def _why(self, one: Pass, group: Group, sources: Sequence[Memory]) -> str:
        reason = (
            f"heat below {self._numbers.cold_heat_below:g} and untouched for {self._numbers.untouched_days:g} days"
            if one.name == "cold"
            else f"the same event again and again, older than {self._numbers.repeated_days:g} days"
        )
        into = "joins a summary of" if group.summary_id is not None else "one of"
        return f"{reason}; {into} {len(sources)} alike"


def _as_read(now_row: Memory, read: Memory, now: datetime) -> bool:
    """Nothing that matters changed between reading and locking."""
    same = now_row.version == read.version and now_row.state == read.state and now_row.heat_at == read.heat_at
    alive = now_row.state in (*LIVE_STATES, "compressed") and now_row.superseded_by == read.superseded_by
    free = now_row.pinned == read.pinned and now_row.conflict_id is None and not now_row.expired(now)
    return same and alive and free


def _candidate(row: Row, vocabulary: Vocabulary) -> Candidate:
    words = (
        () if row.tools else query_terms(row.head, vocabulary, WORDS_MAX)
    )  # calls of one tool are not compared by words
    return Candidate(
        id=row.id,
        version=row.version,
        kind=row.kind,
        event_type=row.event_type,
        category=row.category,
        outcome=row.outcome,
        tools=tuple(row.tools),
        chinese=is_chinese(row.head),
        occurred_at=row.occurred_at,
        words=frozenset(word for word in words if not any(sign.isdigit() for sign in word)),
        all_calls_worked=row.all_calls_worked,
        summary_id=row.summary_id,
    )


def _split(parts: Iterable[Sequence[Candidate]]) -> set[UUID]:
    """Summaries whose sources are not all alike by nature in this pass: nobody joins these."""
    seen: dict[UUID, int] = {}
    split: set[UUID] = set()
    for at, ones in enumerate(parts):
        for one in ones:
            if one.summary_id is not None and seen.setdefault(one.summary_id, at) != at:
                split.add(one.summary_id)
    return split
