"""What goes into the prompt for this query and state?  A search and the lessons that match, graded and written as one block.

Finding is the search's and the lessons' work, choosing and writing that of injection.py; this module brings them together and
keeps the log.  What is found depends on Postgres alone when a lane is down: the lane is then named, and words decide.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Literal
from uuid import UUID

from memory_service.domain import MemoryFilter
from memory_service.metrics import LANES_DEGRADED
from memory_service.recall.injection import (
    CountTokens,
    Grade,
    Injection,
    InjectionNumbers,
    Lesson,
    Remembered,
    inject,
)
from memory_service.recall.service import Found, SearchAnswer, SearchRequest
from memory_service.stores.postgres.retrievals import Retrieval

What = Literal["memory", "experience"]
EXPERIENCE_LANE = "experience_"  # before the name of a lane of the lessons that failed


@dataclass(frozen=True, slots=True)
class ContextRequest:
    """`query` in natural language; `chosen` says whose memories and which.

    `state` is what the lessons' conditions are held against.  `memories_max` bounds how many memories are shown, None leaves
    it to the budget.  `task_id`: the log notes that this was retrieved for that task; it does not narrow the search.
    `learned_too`: also lessons that came of the memories found, as possibly relevant.
    """

    query: str
    chosen: MemoryFilter
    max_tokens: int
    task_type: str | None = None
    state: Mapping[str, Any] | None = None
    memories_max: int | None = None
    source: str = "context"
    task_id: str | None = None
    include_shared_lessons: bool = True
    learned_too: bool = False
    filters_given: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ContextItem:
    """`score` is the relevance that the grade follows from."""

    id: UUID
    grade: Grade
    score: float
    what: What


@dataclass(frozen=True, slots=True)
class ContextAnswer:
    """`tokens` counts `text`; both are empty when nothing is worth showing.  `degraded` names lanes that failed or were late."""

    text: str
    tokens: int
    items: list[ContextItem]
    retrieval_id: UUID
    degraded: list[str]


@dataclass(frozen=True, slots=True)
class LessonsFound:
    """Lessons that apply, the best match first, and the lanes that failed."""

    lessons: Sequence[Lesson]
    degraded: Sequence[str]


FindMemories = Callable[[SearchRequest], Awaitable[SearchAnswer]]
FindLessons = Callable[[ContextRequest], Awaitable[LessonsFound]]
FindLearned = Callable[[ContextRequest, Mapping[UUID, float]], Awaitable[Sequence[Lesson]]]  # of memories by relevance
Keep = Callable[[Retrieval], Awaitable[None]]


class Contexts:
    """Builds contexts."""

    def __init__(
        self,
        memories: FindMemories,
        lessons: FindLessons,
        learned: FindLearned,
        count_tokens: CountTokens,
        numbers: InjectionNumbers,
        note: Callable[[Retrieval], None],
        keep: Keep,
    ) -> None:
        self._memories = memories
        self._lessons = lessons
        self._learned = learned
        self._count_tokens = count_tokens
        self.numbers = numbers
        self._note = note
        self._keep = keep

    async def build(self, request: ContextRequest) -> ContextAnswer:
        """Raises StoreUnavailable only when Postgres is down."""
        started, numbers = monotonic(), self.numbers
        answer = await self._memories(SearchRequest(request.query, request.chosen, numbers.memory_candidates))
        lessons = await self._lessons(request)  # after the search: the query's vector is in the cache by then
        remembered = _relevant(answer.found, numbers.summary_min, request.memories_max)
        learned = await self._learned_from(remembered, request)
        fitting = [*lessons.lessons, *learned]
        injection = await asyncio.to_thread(
            inject,
            remembered,
            fitting,
            request.query,
            request.max_tokens,
            self._count_tokens,
            numbers,
            request.chosen.now,
        )
        missing = [EXPERIENCE_LANE + lane for lane in lessons.degraded]
        for lane in (*answer.degraded, *missing):
            LANES_DEGRADED.labels(lane).inc()
        told = _answer(injection, answer, [*answer.degraded, *missing], {one.id for one in fitting})
        await self._log(_retrieval(request, told, 1000 * (monotonic() - started)))
        return told

    async def _learned_from(self, remembered: Sequence[Remembered], request: ContextRequest) -> Sequence[Lesson]:
        """What runs like this taught, although it is not known yet whether it applies."""
        if not request.learned_too or not remembered:
            return ()
        return await self._learned(request, {one.id: one.relevance for one in remembered})

    async def _log(self, entry: Retrieval) -> None:
        """What was retrieved for a task is there before its answer: finishing the task looks for it."""
        if entry.task_id is not None:
            await self._keep(entry)
        else:
            self._note(entry)


def _relevant(found: Sequence[Found], least: float, most: int | None) -> list[Remembered]:
    """Memories worth showing; when only some may be, the best ranked, so that of equally relevant ones the fresh win."""
    kept = [one for one in found if one.ranked.candidate.calibrated >= least]
    return [
        Remembered(
            id=one.memory.id,
            kind=one.memory.kind,
            content=one.memory.content,
            summary=one.memory.summary,
            relevance=one.ranked.candidate.calibrated,
            occurred_at=one.memory.occurred_at,
        )
        for one in (kept if most is None else kept[:most])
    ]


def _answer(injection: Injection, found: SearchAnswer, degraded: list[str], lesson_ids: set[UUID]) -> ContextAnswer:
    items = [
        ContextItem(one.id, one.grade, one.score, "experience" if one.id in lesson_ids else "memory")
        for one in injection.items
    ]
    return ContextAnswer(injection.text, injection.tokens, items, found.retrieval_id, degraded)


def _retrieval(request: ContextRequest, answer: ContextAnswer, took_ms: float) -> Retrieval:
    return Retrieval(
        id=answer.retrieval_id,
        tenant=request.chosen.tenant,
        user_id=request.chosen.user_ids[0],
        at=request.chosen.now,
        source=request.source,
        query=request.query,
        filters=dict(request.filters_given),
        hits=[
            {"id": str(one.id), "score": round(one.score, 6), "grade": one.grade, "what": one.what}
            for one in answer.items
        ],
        degraded=list(answer.degraded),
        took_ms=round(took_ms, 3),
        injected_tokens=answer.tokens,
        task_id=request.task_id,
    )
