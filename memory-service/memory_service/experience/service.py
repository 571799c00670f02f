"""What was learned from doing, and when does it apply again?

write, distill → one transaction that lines up with the user's other writers → nudge the relay.  Reviewing, distilling and
evaluating conditions are pure modules beside this one; long work happens in a thread, outside the transaction.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from memory_service.domain import SHARED_USER, Caller, Clock, Experience, Json
from memory_service.errors import Conflict, InvalidFields, NotFound, StaleVersion
from memory_service.experience import store
from memory_service.experience.advice import Advice
from memory_service.experience.baseline import Effort, baseline_of
from memory_service.experience.changes import after_use, patched, snapshot_of
from memory_service.experience.confidence import effective
from memory_service.experience.distill import distill
from memory_service.experience.distill_model import ModelDistiller, Told
from memory_service.experience.distill_rules import DistillRules
from memory_service.experience.drafts import (
    Distilled,
    ExperienceQuery,
    HistoryPage,
    Judged,
    NewLesson,
    QueryAnswer,
    Stored,
)
from memory_service.experience.lessons import Lesson, Rejected
from memory_service.experience.review import Review, review_trajectory
from memory_service.experience.semantic import SemanticLessons
from memory_service.experience.store import LessonRules
from memory_service.experience.succession import Changed, confidence_of
from memory_service.experience.trajectory import Trajectory, analysed
from memory_service.stores.postgres import efforts, erasing, experience_index, experiences, lesson_sources, retrievals
from memory_service.stores.postgres.experiences import ExperienceFilter
from memory_service.stores.postgres.pool import Connection, Postgres

T = TypeVar("T")
# Commits something of the caller's (the idempotent answer) together with the write.
Record = Callable[[Connection, Any], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class UsedFrom:
    """Where a judged lesson came from: the log of retrievals, once `flush` has written what this process holds of it."""

    flush: Callable[[], Awaitable[None]]
    days_max: float


class Experiences:
    """Writes, distils, finds and changes experiences."""

    def __init__(
        self,
        postgres: Postgres,
        advice: Advice,
        meant: SemanticLessons,
        rules: LessonRules,
        distilling: DistillRules,
        clock: Clock,
        nudge: Callable[[], None],
        used: UsedFrom,
        model: ModelDistiller | None = None,
    ) -> None:
        self._postgres = postgres
        self._advice = advice
        self._meant = meant
        self._rules = rules
        self._distilling = distilling
        self._clock = clock
        self._nudge = nudge
        self._used = used
        self._model = model

    @property
    def text_chars_max(self) -> int:
        """Of action, avoid and rationale each."""
        return self._rules.numbers.text_chars_max

    def effective_confidence(self, experience: Experience) -> float:
        held = confidence_of(experience)
        return effective(held.value, held.ledger, self._clock(), self._rules.confidence)

    async def write(self, caller: Caller, lesson: NewLesson, record: Record) -> Stored:
        """One lesson by hand.  Raises InvalidFields for bad conditions."""
        newcomer = store.made(caller, lesson, self._clock(), self._rules)
        await self._meant.embed_ahead([newcomer])

        async def work(connection: Connection) -> Stored:
            await erasing.admit(connection, caller.tenant, [lesson.user_id])
            seq = await experiences.lock_user(connection, caller.tenant, lesson.user_id)
            stored = await store.add(connection, caller, newcomer, seq, self._rules, learned=lesson.learned)
            await record(connection, stored)
            return stored

        return await self._written(work)

    async def distill(
        self,
        caller: Caller,
        user_id: str,
        run: Trajectory,
        record: Record,
        *,
        force: bool = False,
        agent_id: str | None = None,
        sources: tuple[UUID, ...] = (),
        learn: bool = True,
    ) -> Distilled:
        """Review one run and store its lessons.  `force`: read it as worth reviewing; `sources`: memories that tell of the run.

        Of a run whose memory was erased nothing is kept: `learn` is False, or a source is gone.  A run without steps says
        nothing about the usual effort and is not counted.  Raises InvalidFields for too long a run.
        """
        review, found, told = await self._reviewed(caller, user_id, run, force=force)
        now = self._clock()
        judged = _once([self._judged(caller, user_id, run, one, now, agent_id, sources) for one in found])
        await self._meant.embed_ahead([one for one in judged if isinstance(one, Experience)])

        async def work(connection: Connection) -> Distilled:
            await erasing.admit(connection, caller.tenant, [user_id])
            there = await lesson_sources.lock_sources(connection, caller.tenant, sources) if sources else set()
            erased = not (learn and there.issuperset(sources))
            seq = await experiences.lock_user(connection, caller.tenant, user_id)
            keep, effort = self._distilling.review.baseline.runs_max, asdict(review.effort)
            if run.steps:
                await efforts.add(connection, caller.tenant, user_id, run.task_type, effort, now, keep)
            stored = [await self._kept(connection, caller, one, seq) for one in judged if not erased]
            distilled = Distilled(review, tuple(stored), told.by, told.reason, erased)
            await record(connection, distilled)
            return distilled

        return await self._written(work)

    async def query(self, query: ExperienceQuery) -> QueryAnswer:
        """Raises InvalidFields for bad conditions, StoreUnavailable when Postgres is down."""
        return await self._advice.query(query)

    async def feedback(
        self, caller: Caller, experience_id: UUID, succeeded: bool, task_id: str | None, record: Record
    ) -> Experience:
        """`judge`, for whoever need not know whether it counted."""
        return (await self.judge(caller, experience_id, succeeded, task_id, record)).experience

    async def judge(
        self, caller: Caller, experience_id: UUID, succeeded: bool, task_id: str | None, record: Record
    ) -> Judged:
        """It was used, and the task went so.  Each task counts once; a second word of it changes nothing and is told.

        A key bound to a user may judge a lesson of the common pool that it can read, naming the task: so nobody moves what all
        rely on by repeating himself.  Raises NotFound, and InvalidFields for such a key without a task.
        """

        async def work(connection: Connection) -> Judged:
            before, seq = await self._locked(connection, caller, experience_id, shared=True)
            common = before.user_id == SHARED_USER
            if common and caller.user_id is not None and task_id is None:
                raise InvalidFields.of("task_id", "is needed to judge a lesson of the common pool")
            told = Judged(before, repeated=True)
            speaker = caller.user_id or before.user_id
            await erasing.admit(connection, caller.tenant, {speaker, before.user_id})
            if task_id is None or await experiences.spoken(
                connection, caller.tenant, speaker, task_id, before.id, succeeded
            ):
                after = after_use(before, succeeded, self._clock(), self._rules.confidence)
                cause = "feedback_success" if succeeded else "feedback_failure"
                shown = None if common else task_id  # a task of one user is no business of the others
                await store.put(connection, caller, Changed(before, after, cause), seq, self._rules, shown)
                since = self._clock() - timedelta(days=self._used.days_max)
                await retrievals.note_lesson_used(connection, caller.tenant, speaker, before.id, since)
                told = Judged(after)
            await record(connection, told)
            return told

        await self._used.flush()
        return await self._written(work)

    async def patch(
        self, caller: Caller, experience_id: UUID, changes: Mapping[str, Any], expected: int | None
    ) -> Experience:
        """Change what is named.  Raises NotFound, StaleVersion, InvalidFields, and Conflict when another lesson is active for the
        same conditions."""

        async def work(connection: Connection) -> Experience:
            before, seq = await self._locked(connection, caller, experience_id)
            if expected is not None and expected != before.version:
                raise StaleVersion(f"it is at version {before.version}")
            after = patched(before, changes, self._clock(), self._rules.limits, self._rules.confidence)
            if after == before:
                return before
            await self._check_place(connection, after)
            await store.put(connection, caller, Changed(before, after, "patched"), seq, self._rules)
            return after

        return await self._written(work)

    async def delete(self, caller: Caller, experience_id: UUID) -> Experience:
        """Erase it with its history and vector.  Raises NotFound."""

        async def work(connection: Connection) -> Experience:
            before, seq = await self._locked(connection, caller, experience_id)
            await experiences.erase(connection, caller.tenant, [before.id])
            keep = self._rules.numbers.gone_rows_max
            await experience_index.note_gone(connection, caller.tenant, before.user_id, [before.id], seq, keep)
            return before

        return await self._written(work)

    async def get(self, caller: Caller, experience_id: UUID) -> Experience:
        """Raises NotFound."""
        found = await self._postgres.read(lambda c: experiences.get(c, caller, experience_id))
        if found is None:
            raise NotFound
        return found

    async def page(
        self, chosen: ExperienceFilter, after: tuple[datetime, UUID] | None, limit: int
    ) -> tuple[list[Experience], int]:
        """Newest first, and how many there are in all."""
        return await self._postgres.read(lambda c: experiences.list_page(c, chosen, after, limit))

    async def history(self, caller: Caller, experience_id: UUID, below: int | None, limit: int) -> HistoryPage:
        """Newest version first, the present one included.  Raises NotFound."""
        await self.get(caller, experience_id)
        rows, total = await self._postgres.read(
            lambda c: experiences.history_page(c, caller.tenant, experience_id, below, limit)
        )
        return HistoryPage(rows, total)

    # What the verbs share.

    async def _written(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        result = await self._postgres.transaction(work)
        self._nudge()
        return result

    async def _locked(
        self, connection: Connection, caller: Caller, experience_id: UUID, *, shared: bool = False
    ) -> tuple[Experience, int]:
        """The experience as it stays until we commit, and the number of this change.  `shared`: also one of the common pool."""
        found = await experiences.get(connection, caller, experience_id, change=not shared)
        if found is not None:
            seq = await experiences.lock_user(connection, caller.tenant, found.user_id)
            found = await experiences.get(connection, caller, experience_id, change=not shared)
        if found is None:
            raise NotFound
        return found, seq

    async def _check_place(self, connection: Connection, after: Experience) -> None:
        """No second active lesson for the same conditions, no pattern too many."""
        if after.status != "active":
            return
        await store.check_patterns(connection, after, self._rules)
        known = await experiences.same_conditions(connection, after.tenant, after.user_id, after.condition_hash, 1)
        other = next((one for one in known if one.status == "active" and one.id != after.id), None)
        if other is not None:
            raise Conflict(f"experience {other.id} is active for the same conditions")

    async def _reviewed(
        self, caller: Caller, user_id: str, run: Trajectory, *, force: bool
    ) -> tuple[Review, Sequence[Lesson | Rejected], Told]:
        """The review, what was found, and what the language model had to do with it: it is asked when there is a lesson to expect."""
        rules = self._distilling
        numbers = rules.review.baseline
        read = analysed(run, rules.review.limits)
        past = await self._postgres.read(
            lambda c: efforts.newest(c, caller.tenant, user_id, run.task_type, numbers.runs_max)
        )
        baseline = baseline_of([Effort(**one) for one in past], numbers)  # type: ignore[arg-type]

        def reviewing() -> Review:
            review = review_trajectory(read, baseline, rules.review, rules.vocabulary)
            return replace(review, worth_reviewing=review.worth_reviewing or force)

        review = await asyncio.to_thread(reviewing)
        told = Told()
        if self._model is not None and review.worth_reviewing:
            told = await self._model.lessons_of(read, review)
        return review, await asyncio.to_thread(distill, read, review, rules, told.lessons), told

    def _judged(
        self,
        caller: Caller,
        user_id: str,
        run: Trajectory,
        found: Lesson | Rejected,
        now: datetime,
        agent_id: str | None,
        sources: tuple[UUID, ...],
    ) -> Experience | Stored:
        """The experience that a finding would be, or why it is none."""
        lesson = found.lesson if isinstance(found, Rejected) else found
        triples = [triple.as_json() for triple in lesson.conditions]
        draft = NewLesson(
            user_id=user_id,
            conditions=triples,
            action=lesson.action,
            origin=lesson.origin,
            start=lesson.confidence,
            avoid=lesson.avoid or None,
            rationale=lesson.rationale or None,
            task_type=run.task_type,
            agent_id=agent_id,
            tags=lesson.tags,
            source_memory_ids=sources,
            source_steps=lesson.source_steps,
            rule=lesson.rule,
            learned=True,
        )
        if isinstance(found, Rejected):
            return Stored("rejected", None, found.reason, _refused(draft))
        try:
            return store.made(caller, draft, now, self._rules)
        except InvalidFields as error:
            return Stored("rejected", None, str(error), _refused(draft))

    async def _kept(self, connection: Connection, caller: Caller, one: Experience | Stored, seq: int) -> Stored:
        if isinstance(one, Stored):
            return one
        try:
            return await store.add(connection, caller, one, seq, self._rules, learned=True)
        except InvalidFields as error:
            return Stored("rejected", None, str(error), {**snapshot_of(one), "id": None})


def _once(judged: Sequence[Experience | Stored]) -> list[Experience | Stored]:
    """One lesson per set of conditions: a second one of the same run would count as learned again."""
    first: dict[bytes, Experience] = {}
    told: list[Experience | Stored] = []
    for one in judged:
        if isinstance(one, Experience) and first.setdefault(one.condition_hash, one) is not one:
            same = first[one.condition_hash].rule
            reason = f"another lesson of this run ({same}) has the same conditions"
            told.append(Stored("rejected", None, reason, {**snapshot_of(one), "id": None}))
        else:
            told.append(one)
    return told


def _refused(draft: NewLesson) -> Json:
    """A finding that was not stored: it has no id."""
    return {
        "id": None,
        "user_id": draft.user_id,
        "task_type": draft.task_type,
        "conditions": list(draft.conditions),
        "action": draft.action,
        "avoid": draft.avoid,
        "rationale": draft.rationale,
        "origin": draft.origin,
        "confidence": draft.start,
        "tags": list(draft.tags),
        "source_steps": list(draft.source_steps),
        "rule": draft.rule,
    }
