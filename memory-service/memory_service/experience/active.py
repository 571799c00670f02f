"""Which conditions does a user have at this moment?  ConditionIndexes in memory, as fresh as Postgres at each query.

A counter per user (table experience_change) says whether anything changed since the index was read; then only the changed
rows are read.  Any process may write: the counter is Postgres's.  Rows are read in slices by one task per user, and whoever asks
waits for it a bounded time.  At most so many users and entries are kept; who is left out is read again when asked for.
"""

import asyncio
import gc
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

import orjson

from memory_service.errors import InvalidFields
from memory_service.experience.condition_index import ConditionIndex, Entry
from memory_service.experience.conditions import Condition, stored_condition
from memory_service.experience.conditions_settings import ConditionLimits
from memory_service.experience.confidence import strength
from memory_service.experience.confidence_settings import ConfidenceSettings
from memory_service.experience.matching import Evaluator
from memory_service.experience.settings import ExperienceNumbers
from memory_service.stores.postgres import experience_index
from memory_service.stores.postgres.experience_index import IndexedRow
from memory_service.stores.postgres.pool import Postgres
from memory_service.timestamps import parse_time

T = TypeVar("T")
NOTHING_THERE = 0  # counter of a user without experiences; real ones begin at 1


@dataclass(frozen=True, slots=True)
class Facts:
    """What a filter may ask of an active experience without reading its row."""

    task_type: str | None
    tags: frozenset[str]
    conditions: tuple[Condition, ...]
    strength: float


@dataclass(slots=True)
class UserLessons:
    """The index of one user.  For whoever holds `lock`, in one thread at a time.

    `counter` is the change that it is fresh as of, None while it is being changed or when it was never read.
    """

    index: ConditionIndex
    evaluator: Evaluator
    facts: dict[UUID, Facts] = field(default_factory=dict)
    counter: int | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    reading: asyncio.Task[None] | None = None

    def fresh_as_of(self, counter: int) -> bool:
        """Of a user that was erased only "nothing" is fresh."""
        return self.counter is not None and (
            self.counter == counter if counter == NOTHING_THERE else self.counter >= counter
        )


class ActiveLessons:
    """`search` runs a function over a user's fresh index.  Close it at shutdown."""

    def __init__(
        self, postgres: Postgres, numbers: ExperienceNumbers, limits: ConditionLimits, settings: ConfidenceSettings
    ) -> None:
        self._postgres = postgres
        self._numbers = numbers
        self._limits = limits
        self._settings = settings
        self._users: OrderedDict[tuple[str, str], UserLessons] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self.whole_reads = 0  # how often all rows of a user were read; tests look at it

    async def search(self, tenant: str, user_id: str, work: Callable[[UserLessons], T]) -> T | None:
        """`work` over the user's active lessons as committed now; in a thread when they are many.

        None when there is more to read than `load_wait_s` suffices for: the reading goes on for the next one who asks.
        Raises StoreUnavailable.
        """
        lessons = self._of(tenant, user_id)
        counter, _ = await self._change(tenant, user_id)
        ends = asyncio.get_running_loop().time() + self._numbers.load_wait_s
        while True:
            if not await self._taken(lessons, ends):
                return None
            try:
                if lessons.fresh_as_of(counter):
                    result = await self._run(len(lessons.facts), lambda: work(lessons))
                    break
            finally:
                lessons.lock.release()
            reading = self._reading(lessons, tenant, user_id)
            left = ends - asyncio.get_running_loop().time()
            done, _ = await asyncio.wait({reading}, timeout=max(0.0, left))
            if not done:
                return None
            reading.result()
        self._forget_some()
        return result

    async def _taken(self, lessons: UserLessons, ends: float) -> bool:
        """Take the lock; False when it was held past `ends` by a reading.  Other searches are short and waited for."""
        try:
            async with asyncio.timeout_at(ends):
                return await lessons.lock.acquire()
        except TimeoutError:
            return lessons.counter is not None and await lessons.lock.acquire()

    def of_rows(self, rows: Sequence[IndexedRow]) -> UserLessons:
        """A passing index of a few rows, for one question."""
        lessons = self._empty()
        self._apply(lessons, rows, {})
        return lessons

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _of(self, tenant: str, user_id: str) -> UserLessons:
        lessons = self._users.get((tenant, user_id)) or self._empty()
        self._users[tenant, user_id] = lessons
        self._users.move_to_end((tenant, user_id))
        return lessons

    async def _run(self, size: int, work: Callable[[], T]) -> T:
        return await asyncio.to_thread(work) if size > self._numbers.inline_entries_max else work()

    # Reading.

    async def _change(self, tenant: str, user_id: str) -> tuple[int, int]:
        found = await self._postgres.read(lambda c: experience_index.change_of(c, tenant, user_id))
        return found or (NOTHING_THERE, NOTHING_THERE)

    def _reading(self, lessons: UserLessons, tenant: str, user_id: str) -> asyncio.Task[None]:
        """The one task that brings this index up to date; it outlives whoever asked first."""
        if lessons.reading is None or lessons.reading.done():
            lessons.reading = task = asyncio.create_task(self._read(lessons, tenant, user_id))
            self._tasks.add(task)
            task.add_done_callback(self._ended)
        return lessons.reading

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever still waits gets it; a failure that nobody waited for is met again by the next

    async def _read(self, lessons: UserLessons, tenant: str, user_id: str) -> None:
        """The changed rows into the index, or all rows into a new one that then takes its place."""
        counter, rebuilt = await self._change(tenant, user_id)
        since = lessons.counter
        if since is not None and rebuilt <= since <= counter and counter != NOTHING_THERE:
            async with lessons.lock:
                lessons.counter = None  # a failure half-way leads to reading everything
                await self._read_into(lessons, tenant, user_id, since)
                gone = await self._postgres.read(lambda c: experience_index.gone_since(c, tenant, user_id, since))
                for experience_id in gone:
                    self._drop(lessons, experience_id)
                lessons.counter = counter
            return
        fresh = self._empty()
        if counter != NOTHING_THERE:
            self.whole_reads += 1
            await self._read_into(fresh, tenant, user_id, None)
        async with lessons.lock:
            lessons.index, lessons.evaluator, lessons.facts = fresh.index, fresh.evaluator, fresh.facts
            lessons.counter = counter

    async def _read_into(self, lessons: UserLessons, tenant: str, user_id: str, since: int | None) -> None:
        """In slices, so that neither the event loop nor a connection is held for long.

        In the order of changes: a row that changes meanwhile comes once more, later, or after `counter` with the next reading.
        """
        after: tuple[int, UUID] | None = None
        known: dict[bytes, Condition] = {}
        size, unfrozen = self._numbers.load_slice_rows, 0
        while True:
            rows = await self._postgres.read(
                lambda c, after=after: experience_index.changed_page(c, tenant, user_id, since, after, size)  # type: ignore[misc]
            )
            if len(rows) > self._numbers.load_inline_rows:
                await asyncio.to_thread(self._apply, lessons, rows, known)
            else:
                self._apply(lessons, rows, known)
            unfrozen += len(rows)
            if unfrozen >= self._numbers.load_freeze_rows:
                await asyncio.to_thread(_freeze)
                unfrozen = 0
            if len(rows) < size:
                return
            after = (rows[-1].changed_seq, rows[-1].id)

    def _apply(self, lessons: UserLessons, rows: Sequence[IndexedRow], known: dict[bytes, Condition]) -> None:
        for row in rows:
            if not row.active:
                self._drop(lessons, row.id)
                continue
            try:
                conditions = tuple(stored_condition(one, self._limits, known) for one in orjson.loads(row.conditions))
                settled_at = parse_time(row.settled_at) if row.settled_at else row.created_at
            except (InvalidFields, ValueError):  # changed by hand to what can't be: it can be listed, not matched
                self._drop(lessons, row.id)
                continue
            held = strength(row.confidence, settled_at, self._settings)
            facts = Facts(row.task_type, frozenset(row.tags), conditions, held)
            lessons.index.add(Entry(row.id, conditions, facts.strength, row.created_at))
            lessons.facts[row.id] = facts

    def _drop(self, lessons: UserLessons, experience_id: UUID) -> None:
        lessons.index.remove(experience_id)
        lessons.facts.pop(experience_id, None)

    def _empty(self) -> UserLessons:
        evaluator = Evaluator(self._limits)
        return UserLessons(ConditionIndex(evaluator), evaluator)

    def _forget_some(self) -> None:
        """Drop the least recently asked users; the one asked last always stays, and one in use is dropped from here only."""
        total = sum(len(lessons.facts) for lessons in self._users.values())
        while len(self._users) > 1 and (
            len(self._users) > self._numbers.cached_users_max or total > self._numbers.cached_entries_max
        ):
            _, dropped = self._users.popitem(last=False)
            total -= len(dropped.facts)


def _freeze() -> None:
    """Whatever is in memory now is looked through for cycles no more.  Indexes have none: dropped ones go by their counts.

    The price is that garbage cycles of this moment stay; the young ones, nearly all, are collected before.
    """
    gc.collect(1)
    gc.freeze()
