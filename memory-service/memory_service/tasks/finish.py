"""How does a task end, once, whoever says so and whatever dies on the way?

Each step below is one transaction that notes in the task's row that it is done; a step that finds its note there rolls back.
So a finish that is repeated, or sent twice at once, or whose process was killed between any two steps, does the rest and no
step twice:

1. `closing`: the run as it is now (steps, outcome, advice) is kept in the row; the first finish decides the outcome.
2. Buffered dialogue of the task is written (which notes its own progress).
3. The episode, with its id in the row.
4. Each experience that was advised or given at the start, and used: its confidence, with its id in the row.
5. Review, lessons, the run's effort and the answer; the row is finished and `closing` is dropped.
6. Redis: the working memory's end is fixed.  Killed before this, the next start or finish of the task sees the finished row.

The first answer stays the answer.  A second finish with another outcome or new feedback is refused (409): two agents that
disagree must learn of it.  Models are asked outside of transactions.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID
from weakref import WeakValueDictionary

from memory_service.domain import Caller, Clock, Json, Memory, new_id
from memory_service.errors import Conflict, NotFound, StoreUnavailable, TaskFinished
from memory_service.experience.baseline import Effort, baseline_of
from memory_service.experience.drafts import Distilled
from memory_service.experience.review import Review, review_trajectory
from memory_service.experience.trajectory import analysed
from memory_service.scripts import is_chinese
from memory_service.stores.postgres import efforts, erasing, experiences, memories
from memory_service.stores.postgres import tasks as task_rows
from memory_service.stores.postgres.pool import Connection, Postgres
from memory_service.stores.postgres.tasks import TaskRun
from memory_service.stores.redis import TaskKey
from memory_service.stores.redis_runs import LiveRun, RunStore
from memory_service.tasks.closing import Closing, Ending, closing_of, masked_feedback
from memory_service.tasks.episode import episode_of, outcome_of
from memory_service.tasks.ports import DistillRun, EndTask, JudgeExperience, MarkUsed, Record, WriteMemory
from memory_service.tasks.service import TaskRules
from memory_service.tasks.used import Advised, Given, JudgedBy, experiences_used, memories_used
from memory_service.working import codec
from memory_service.working.checks import checked_id
from memory_service.working.items import WorkingState

T = TypeVar("T")
FEEDBACK_MARK = "feedback_mark"  # kept with the answer, never shown
ATTEMPTS_MAX = (
    5  # of reading row and working memory as one: each attempt is lost only to a start or finish that got through
)
Shape = Callable[[Memory | None, Review, Distilled], Json]


class _DoneAlready(Exception):
    """Another finish has done this step: roll back."""


@dataclass(frozen=True, slots=True)
class Finished:
    """`answer` is the reply; `ids` are the memories and experiences that it tells of."""

    answer: Json
    ids: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class Doing:
    """What finishing does through other features."""

    write_memory: WriteMemory
    distill: DistillRun
    judge: JudgeExperience
    end_task: EndTask
    mark_used: MarkUsed


class Finishing:
    """The caller's right to act for the user was checked before.  Raises StoreUnavailable with Postgres or Redis down."""

    def __init__(self, postgres: Postgres, runs: RunStore, rules: TaskRules, clock: Clock, doing: Doing) -> None:
        self._postgres = postgres
        self._runs = runs
        self._rules = rules
        self._clock = clock
        self._doing = doing
        self._queues: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def finish(
        self, caller: Caller, user_id: str, task_id: str, ending: Ending, shape: Shape, record: Record
    ) -> Finished:
        """End the task, or say again what the first finish answered.  Raises NotFound for a task that never was, Conflict for
        another outcome than the first one's."""
        key = TaskKey(caller.tenant, user_id, checked_id("task_id", task_id))
        queue = self._queues.setdefault(
            key.task, asyncio.Lock()
        )  # spares doing it twice; the row's notes are what counts
        try:
            async with asyncio.timeout(self._rules.numbers.finish_wait_s):
                await queue.acquire()
        except TimeoutError:
            raise StoreUnavailable("postgres", "another finish of this task takes long; try again") from None
        try:
            return await self._in_turn(caller, key, ending, shape, record)
        finally:
            queue.release()

    async def _in_turn(self, caller: Caller, key: TaskKey, ending: Ending, shape: Shape, record: Record) -> Finished:
        run, live = await self._run(key)
        if run.outcome is not None and run.outcome != ending.outcome:
            raise TaskFinished(f"this task was finished with the outcome {run.outcome} already")
        if run.finished:
            self._refuse_new_feedback(run, ending)
            finished = _told(run)
            await self._postgres.transaction(lambda c: record(c, finished))
        else:
            closing = await self._closing(key, run, live, ending)
            finished = await self._finished(caller, run, closing, shape, record)
        await self._runs.close(key, run.run_id, self._rules.numbers.finished_ttl_seconds * 1000)
        return finished

    def _refuse_new_feedback(self, run: TaskRun, ending: Ending) -> None:
        """Raises TaskFinished when this finish brings feedback that the first one had not: it would be lost silently."""
        mark = feedback_mark(masked_feedback(ending, self._rules.distilling))
        if mark is not None and mark != (run.answer or {}).get(FEEDBACK_MARK, mark):
            raise TaskFinished("this task was finished already, without this feedback, so nothing was learned from it")

    # Which run is it?

    async def _run(self, key: TaskKey) -> tuple[TaskRun, LiveRun | None]:
        """The row of the run that is to be finished, and its working memory where it lives.

        A task made by hand (PUT /v1/working-memory), or one whose start was cut off, has no row yet and gets one here.
        """
        for _attempt in range(ATTEMPTS_MAX):
            began = self._clock()
            row = await self._postgres.read(lambda c: task_rows.get(c, key.tenant, key.user_id, key.task_id))
            live = await self._runs.read(key)
            if live is None:
                if row is None:
                    raise NotFound
                return row, None
            if row is not None and (live.run == row.run_id or live.finished):
                return row, live
            run_id = await self._runs.adopt(key, row.run_id if row and not row.finished else new_id())
            if run_id is not None and (row is None or row.run_id != run_id):
                await self._make_row(key, run_id, codec.decode(live.state), row, began)
        raise Conflict("the task is being started anew; try again")

    async def _make_row(
        self, key: TaskKey, run_id: UUID, state: WorkingState, before: TaskRun | None, read_at: datetime
    ) -> None:
        """Began when the first thing was noted in it, as far as that is known.  `state` was read after `read_at`."""
        times = [call.at for call in state.tool_call_history if call.at]
        times += [fact.at for fact in state.confirmed_facts if fact.at]
        made = TaskRun(
            key.tenant, key.user_id, key.task_id, run_id, state.agent_id, None, state.task_goal or key.task_id,
            state.task_type, min([*times, self._clock()]),
        )  # fmt: skip
        instead_of = before.run_id if before else None

        async def work(connection: Connection) -> None:
            await erasing.admit(connection, key.tenant, [key.user_id], read_at)
            await task_rows.begin(connection, made, instead_of)

        await self._postgres.transaction(work)

    async def _closing(self, key: TaskKey, run: TaskRun, live: LiveRun | None, ending: Ending) -> Closing:
        """The run as the first finish found it."""
        if run.closing is not None:
            return Closing.from_json(run.closing)

        def taken() -> Closing:
            state = codec.decode(live.state) if live else None
            advised = [Advised.from_line(line) for line in live.advised] if live else []
            return closing_of(run, state, advised, ending, self._clock(), self._rules.distilling)

        closing = await asyncio.to_thread(taken)
        kept = closing.to_json()
        if await self._postgres.transaction(lambda c: task_rows.begin_closing(c, run, ending.outcome, kept)):
            return closing
        now = await self._again(run)
        if now.outcome != ending.outcome:
            raise TaskFinished(f"this task was finished with the outcome {now.outcome} already")
        return Closing.from_json(now.closing) if now.closing is not None else closing

    async def _again(self, run: TaskRun) -> TaskRun:
        """The row as it is now.  Raises Conflict when it is of another run."""
        now = await self._postgres.read(lambda c: task_rows.get(c, run.tenant, run.user_id, run.task_id))
        if now is None or now.run_id != run.run_id:
            raise Conflict("the task was started anew while it was being finished")
        return now

    # The steps.

    async def _finished(self, caller: Caller, run: TaskRun, closing: Closing, shape: Shape, record: Record) -> Finished:
        await self._doing.end_task(caller, run.user_id, run.task_id)
        review = await self._review(run, closing)
        episode = await self._episode(caller, run, closing, review)
        await self._judge(caller, run, closing)
        await self._mark_used(caller, run, closing)
        return await self._ended(caller, run, closing, episode, shape, record)

    async def _review(self, run: TaskRun, closing: Closing) -> Review:
        """As the distillation will see it, for the episode's outcome."""
        rules = self._rules.distilling
        numbers = rules.review.baseline
        past = await self._postgres.read(
            lambda c: efforts.newest(c, run.tenant, run.user_id, closing.task_type, numbers.runs_max)
        )
        baseline = baseline_of([Effort(**one) for one in past], numbers)  # type: ignore[arg-type]
        read = analysed(closing.trajectory(), rules.review.limits)
        return await asyncio.to_thread(review_trajectory, read, baseline, rules.review, rules.vocabulary)

    async def _episode(self, caller: Caller, run: TaskRun, closing: Closing, review: Review) -> Memory | None:
        """The run's episode, written now or before; None when it was erased meanwhile."""
        now = await self._again(run)
        if now.episode_id is None and not now.finished:
            outcome = outcome_of(closing, review, self._rules.distilling.review.score.worth_reviewing_min)
            draft = episode_of(run, closing, review, outcome, self._rules.numbers)

            async def noted(connection: Connection, written: Any) -> None:
                await _once(task_rows.note_episode(connection, run, written.memory.id))

            try:
                return (await self._doing.write_memory(caller, draft, noted)).memory
            except _DoneAlready:
                now = await self._again(run)
        if now.episode_id is None:
            return None
        episode_id = now.episode_id
        found = await self._postgres.read(lambda c: memories.get_many(c, run.tenant, [episode_id]))
        return found[0] if found else None

    async def _judge(self, caller: Caller, run: TaskRun, closing: Closing) -> None:
        """Move the confidence of what was advised or given at the start, and used.

        A lesson that a failing call had followed failed, whatever became of the task; of the others an aborted task says nothing.
        """
        most = self._rules.numbers.contexts_marked_max
        contexts = await self._postgres.read(lambda c: task_rows.retrieved_for(c, run, "experience", most))
        given = [Given(one.at, one.ids) for one in reversed(contexts)]
        shown = [one.experience_ids for one in closing.advised] + [one.experience_ids for one in given]
        ids = list(dict.fromkeys(one for held in shown for one in held))
        if not ids or not closing.calls:
            return
        rows = await self._postgres.read(lambda c: experiences.get_active(c, run.tenant, ids))
        known = {row.id: row for row in rows if caller.may_act_for(row.user_id)}
        judged_by = JudgedBy.of(self._rules.distilling, self._rules.numbers)
        used = await asyncio.to_thread(experiences_used, closing.advised, given, closing.calls, known, judged_by)
        for experience_id, helped in used.items():
            if helped and closing.outcome == "aborted":
                continue

            async def noted(connection: Connection, _after: Any, used: UUID = experience_id) -> None:
                await _once(task_rows.note_judged(connection, run, used))

            succeeded = helped and closing.outcome == "success"
            try:
                await self._doing.judge(caller, experience_id, succeeded, run.task_id, noted)
            except (_DoneAlready, NotFound):
                continue

    async def _mark_used(self, caller: Caller, run: TaskRun, closing: Closing) -> None:
        """Memories of the first injection that a successful task shows to have been used."""
        if closing.outcome != "success" or not closing.calls:
            return
        numbers, vocabulary = self._rules.numbers, self._rules.distilling.vocabulary
        most = numbers.contexts_marked_max
        contexts = await self._postgres.read(lambda c: task_rows.retrieved_for(c, run, "memory", most))
        ids = sorted({held for one in contexts for held in one.ids})
        if not ids:
            return
        given = await self._postgres.read(lambda c: memories.get_many(c, run.tenant, ids))
        used = await asyncio.to_thread(
            memories_used, given, closing.goal, closing.calls, vocabulary, numbers.used_terms_min
        )
        for one in contexts:
            if told := [held for held in one.ids if held in used]:
                await self._doing.mark_used(
                    run.tenant, run.user_id, told, retrieval_id=one.id, task_id=str(run.run_id), since=closing.at
                )

    async def _ended(
        self, caller: Caller, run: TaskRun, closing: Closing, episode: Memory | None, shape: Shape, record: Record
    ) -> Finished:
        """Lessons and answer in one transaction."""
        told: list[Finished] = []

        async def noted(connection: Connection, distilled: Distilled) -> None:
            answer = shape(None if distilled.erased else episode, distilled.review, distilled)
            answer = _unquoted(answer) if distilled.erased else _with_reason(answer, closing)
            finished = Finished(answer, _ids(answer))
            kept = {**answer, FEEDBACK_MARK: feedback_mark(closing.feedback)}
            await _once(task_rows.end(connection, run, kept, closing.at))
            await record(connection, finished)
            told.append(finished)

        sources = (episode.id,) if episode else ()
        try:
            await self._doing.distill(
                caller, run.user_id, closing.trajectory(), noted, agent_id=run.agent_id, sources=sources,
                learn=episode is not None,  # else it was erased meanwhile, and with it what the run says
            )  # fmt: skip
        except _DoneAlready:
            finished = _told(await self._again(run))
            await self._postgres.transaction(lambda c: record(c, finished))
            return finished
        return told[-1]


async def _once(noted: Awaitable[bool]) -> None:
    if not await noted:
        raise _DoneAlready


def _unquoted(answer: Json) -> Json:
    """What may be said of a run whose episode is erased: the figures."""
    return {**answer, "review": {**answer["review"], "reasons": []}}


def _with_reason(answer: Json, closing: Closing) -> Json:
    """A review without steps must say why it has none."""
    if not closing.expired:
        return answer
    reason = (
        "步骤记录在任务结束前已过期，无法回顾。"
        if is_chinese(closing.goal)
        else "The steps had expired before the task was finished, so there was nothing to review."
    )
    return {**answer, "review": {**answer["review"], "reasons": [reason]}}


def _told(run: TaskRun) -> Finished:
    """What the first finish answered."""
    assert run.answer is not None
    answer = {name: value for name, value in run.answer.items() if name != FEEDBACK_MARK}
    return Finished(answer, _ids(answer))


def feedback_mark(feedback: str | None) -> str | None:
    """What tells the first finish's feedback from another, without its text."""
    return hashlib.sha256(feedback.encode()).hexdigest() if feedback else None


def _ids(answer: Json) -> tuple[UUID, ...]:
    texts: Sequence[str] = [one["id"] for one in (answer["episode"], *answer["experiences"]) if one and one["id"]]
    return tuple(UUID(text) for text in texts)
