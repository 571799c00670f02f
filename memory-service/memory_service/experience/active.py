"""Which conditions does a user have at this moment?  ConditionIndexes in memory, as fresh as Postgres at each query.

A counter per user (table experience_change) says whether anything changed since the index was read; then only the changed
rows are read.  Any process may write: the counter is Postgres's.  At most so many users and entries are kept; who is left out
is read again when asked for.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

import orjson

from memory_service.domain import Json
from memory_service.errors import InvalidFields
from memory_service.experience.condition_index import ConditionIndex, Entry
from memory_service.experience.conditions import Condition, parse_conditions
from memory_service.experience.conditions_settings import ConditionLimits
from memory_service.experience.confidence import strength
from memory_service.experience.confidence_settings import ConfidenceSettings
from memory_service.experience.matching import Evaluator
from memory_service.experience.settings import ExperienceNumbers
from memory_service.stores.postgres import experiences
from memory_service.stores.postgres.experiences import IndexedRow
from memory_service.stores.postgres.pool import Postgres

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Facts:
    """What a filter may ask of an active experience without reading its row."""

    task_type: str | None
    tags: frozenset[str]
    conditions: tuple[Condition, ...]
    strength: float


@dataclass(slots=True)
class UserLessons:
    """The index of one user.  For whoever holds `lock`, in one thread at a time."""

    index: ConditionIndex
    evaluator: Evaluator
    facts: dict[UUID, Facts] = field(default_factory=dict)
    counter: int | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class ActiveLessons:
    """`search` runs a function over a user's fresh index."""

    def __init__(
        self, postgres: Postgres, numbers: ExperienceNumbers, limits: ConditionLimits, settings: ConfidenceSettings
    ) -> None:
        self._postgres = postgres
        self._numbers = numbers
        self._limits = limits
        self._settings = settings
        self._users: OrderedDict[tuple[str, str], UserLessons] = OrderedDict()

    async def search(self, tenant: str, user_id: str, work: Callable[[UserLessons], T]) -> T:
        """`work` over the user's active lessons as committed now; in a thread when they are many."""
        lessons = self._users.get((tenant, user_id)) or self._empty()
        self._users[tenant, user_id] = lessons
        self._users.move_to_end((tenant, user_id))
        async with lessons.lock:
            await self._refresh(lessons, tenant, user_id)
            result = await self._run(len(lessons.facts), lambda: work(lessons))
        self._forget_some()
        return result

    async def _run(self, size: int, work: Callable[[], T]) -> T:
        return await asyncio.to_thread(work) if size > self._numbers.inline_entries_max else work()

    async def _refresh(self, lessons: UserLessons, tenant: str, user_id: str) -> None:
        change = await self._postgres.read(lambda c: experiences.change_of(c, tenant, user_id))
        counter, rebuilt = change or (None, 0)
        if counter == lessons.counter:
            return
        since = lessons.counter if lessons.counter is not None and counter and rebuilt <= lessons.counter else None
        rows: Sequence[IndexedRow] = ()
        if counter is not None:
            rows = await self._postgres.read(lambda c: experiences.changed_since(c, tenant, user_id, since))
        # Until all rows are in, the index is of no moment: a failure half-way leads to reading everything again.
        lessons.counter = None
        if since is None:
            fresh = self._empty()
            lessons.index, lessons.evaluator, lessons.facts = fresh.index, fresh.evaluator, fresh.facts
        await self._run(len(rows), lambda: self._apply(lessons, rows))
        lessons.counter = counter

    def _apply(self, lessons: UserLessons, rows: Sequence[IndexedRow]) -> None:
        known: dict[bytes, Condition] = {}
        for row in rows:
            if not row.active:
                lessons.index.remove(row.id)
                lessons.facts.pop(row.id, None)
                continue
            try:
                conditions = tuple(self._condition(triple, known) for triple in row.conditions)
            except InvalidFields:  # stored under looser limits: it can be listed and found by meaning, not matched
                continue
            held = strength(row.confidence, row.settled_at, self._settings)
            facts = Facts(row.task_type, frozenset(row.tags), conditions, held)
            lessons.index.add(Entry(row.id, conditions, facts.strength, row.created_at))
            lessons.facts[row.id] = facts

    def _condition(self, triple: Json, known: dict[bytes, Condition]) -> Condition:
        """A stored triple, parsed once however many lessons have it: parsing is two thirds of reading an index."""
        canonical = orjson.dumps([triple["field"], triple["operator"], triple["value"]], option=orjson.OPT_SORT_KEYS)
        if canonical not in known:
            known[canonical] = parse_conditions([triple], self._limits)[0]
        return known[canonical]

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
