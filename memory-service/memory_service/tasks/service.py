"""How does a running task begin, and what is its agent told before a call?

start → working memory in Redis, unless one lives under that id → context → the task's row in Postgres → answer.
advice → working memory → this task's failures, and at the same time what earlier runs and experiences say → hints.

Killed at any line of `start`: before Redis nothing was done.  Between Redis and Postgres the task lives, nobody was told, and
its row is missing: the same start with the same Idempotency-Key goes on where the first one ended, any other start answers
409 and `resume` takes the task up (and writes the row), and a finish writes the row as well.  After the commit everything is
there.  A start without a task_id that is cut off leaves a working memory that nobody knows; it expires.
Finishing is finish.py's.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from memory_service.domain import SHARED_USER, Caller, Clock, Json, new_id
from memory_service.errors import HindsightError, InvalidFields, NotFound, StoreUnavailable, TaskExists, TooLarge
from memory_service.experience.confidence_settings import ConfidenceSettings
from memory_service.experience.distill_rules import DistillRules
from memory_service.experience.drafts import ExperienceQuery, QueryAnswer
from memory_service.experience.lessons import query_text, state_of
from memory_service.experience.trajectory import text_of
from memory_service.stores.postgres import erasing
from memory_service.stores.postgres import experiences as experience_rows
from memory_service.stores.postgres import tasks as task_rows
from memory_service.stores.postgres.pool import Connection, Postgres
from memory_service.stores.postgres.tasks import TaskRun, ToolUse
from memory_service.stores.redis import REVISION_CHARS, TaskKey
from memory_service.stores.redis_runs import RunStore
from memory_service.tasks.advice import Advice, Before, CountTokens, Found, Hint, Manner, advise, hints_for
from memory_service.tasks.calls import PlannedCall, calls_of, cut_arguments, run_steps
from memory_service.tasks.closing import plain_arguments
from memory_service.tasks.earlier import own_failures, past_uses
from memory_service.tasks.ports import AskExperiences, BuildContext, FirstContext, FirstQuestion, ReadTask, Record
from memory_service.tasks.settings import TaskNumbers
from memory_service.tasks.used import Advised, JudgedBy, experiences_used
from memory_service.tasks.wording import words_for
from memory_service.working import codec
from memory_service.working.checks import checked_id
from memory_service.working.commits import TaskMemory
from memory_service.working.items import Patch, WorkingState
from memory_service.working.settings import Working
from memory_service.working.state import apply_patch

log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task to begin.  `run_id` names this very start: repeated, it takes up what the first attempt left."""

    user_id: str
    goal: str
    task_id: str
    run_id: UUID = field(default_factory=new_id)
    task_type: str | None = None
    constraints: tuple[str, ...] = ()
    agent_id: str | None = None
    session_id: str | None = None
    state: Mapping[str, Any] = field(default_factory=dict)
    max_tokens: int | None = None
    resume: bool = False


@dataclass(frozen=True, slots=True)
class Started:
    """`resumed`: it lived already."""

    task_id: str
    memory: TaskMemory
    context: FirstContext
    resumed: bool

    def to_json(self) -> Json:
        return {"task_id": self.task_id, "working_memory": self.memory.to_json(), "context": self.context.to_json()}


@dataclass(frozen=True, slots=True)
class Advising:
    """The hints, the block for the prompt, and which sources could not be asked."""

    hints: tuple[Hint, ...]
    text: str
    degraded: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TaskRules:
    """What the task loop goes by: numbers of its own and of its neighbours."""

    numbers: TaskNumbers
    working: Working
    distilling: DistillRules
    confidence: ConfidenceSettings
    context_tokens_default: int
    context_tokens_max: int


class Tasks:
    """Start and advice.  The caller's right to act for the user was checked before.  Raises StoreUnavailable with Redis down."""

    def __init__(
        self,
        postgres: Postgres,
        runs: RunStore,
        rules: TaskRules,
        clock: Clock,
        count_tokens: CountTokens,
        read_task: ReadTask,
        build_context: BuildContext,
        ask_experiences: AskExperiences,
    ) -> None:
        self._postgres = postgres
        self._runs = runs
        self._rules = rules
        self._clock = clock
        self._count_tokens = count_tokens
        self._read_task = read_task
        self._build_context = build_context
        self._ask_experiences = ask_experiences

    async def start(self, caller: Caller, new: NewTask, record: Record) -> Started:
        """Begin a task, or with `resume` take up the one that lives.  Raises TaskExists, InvalidFields, TooLarge."""
        most = self._rules.context_tokens_max
        if new.max_tokens is not None and new.max_tokens > most:
            raise InvalidFields.of("max_tokens", f"must be at most {most}")
        key = TaskKey(caller.tenant, new.user_id, checked_id("task_id", new.task_id))
        began = self._clock()
        row = await self._postgres.read(lambda c: _row_unless_erased(c, key))
        memory, run_id, resumed = await self._begun(caller, key, new, row)
        context = await self._context(caller, new, memory)
        started = Started(new.task_id, memory, context, resumed)
        goal = memory.state.task_goal or new.goal
        run = TaskRun(
            caller.tenant, new.user_id, new.task_id, run_id, memory.state.agent_id, new.session_id, goal,
            memory.state.task_type, began,
        )  # fmt: skip

        async def work(connection: Any) -> None:
            await erasing.admit(connection, caller.tenant, [new.user_id], began)
            await task_rows.begin(connection, run, row.run_id if row else None)
            await record(connection, started)

        await self._postgres.transaction(work)
        return started

    async def advice(
        self, caller: Caller, user_id: str, task_id: str, planned: PlannedCall, state: Mapping[str, Any] | None
    ) -> Advising:
        """What is known before this call.  Raises NotFound for a task that neither lives nor has a row."""
        key = TaskKey(caller.tenant, user_id, checked_id("task_id", task_id))
        task = await self._known_task(caller, key)
        asked_at = self._clock()
        before, ((uses, experiences), degraded) = await asyncio.gather(
            self._told_before(key, task, planned), self._long_term(caller, key, task, planned, state)
        )
        advice = await asyncio.to_thread(self._decide, task, planned, uses, experiences, before)
        if advice.hints and caller.may_write:  # a reader only looks: what it sees moves no confidence
            chars = self._rules.distilling.review.limits.text_chars_max
            kept = plain_arguments(planned.arguments, chars, self._rules.distilling)
            shown = tuple(UUID(hint.source_id) for hint in advice.hints if hint.type == "experience")
            marks = tuple(hint.mark for hint in advice.hints if hint.type != "experience")
            line = Advised(planned.tool, kept, asked_at, shown, marks).to_line()
            await self._runs.note_advised(key, line, self._rules.numbers.advised_bytes_max)
        return Advising(advice.hints, advice.text, degraded)

    # Steps of a start.

    async def _row(self, key: TaskKey) -> TaskRun | None:
        return await self._postgres.read(lambda c: task_rows.get(c, key.tenant, key.user_id, key.task_id))

    async def _begun(
        self, caller: Caller, key: TaskKey, new: NewTask, row: TaskRun | None
    ) -> tuple[TaskMemory, UUID, bool]:
        """The working memory, the run it belongs to, and whether it lived already."""
        working = self._rules.working
        plain = {"task_goal": new.goal, "task_type": new.task_type, "agent_id": new.agent_id}
        state = apply_patch(
            WorkingState(new.task_id, new.user_id),
            Patch(fields=plain, constraints=new.constraints),
            self._clock(),
            working,
        )
        raw = codec.encode(state)
        if len(raw) > working.state_bytes_max:
            raise TooLarge(f"the working memory of one task holds at most {working.state_bytes_max} bytes")
        ttl_ms, over = working.ttl_seconds_default * 1000, row.run_id if row and row.finished else None
        begun = await self._runs.start(key, new.run_id, raw, secrets.token_hex(REVISION_CHARS // 2), ttl_ms, over)
        if begun == "ok":
            return TaskMemory(raw, self._clock() + timedelta(milliseconds=ttl_ms)), new.run_id, False
        if begun == "taken" and not new.resume:
            raise TaskExists("a live task of that id exists already; finish it, or send resume: true to go on with it")
        run_id = await self._runs.adopt(key, new.run_id)
        if run_id is None:  # it expired this very moment
            raise TaskExists("the task of that id is just expiring; try again")
        memory = await self._read_task(caller, key.user_id, key.task_id)
        return memory, run_id, begun == "taken"

    async def _context(self, caller: Caller, new: NewTask, memory: TaskMemory) -> FirstContext:
        """The first injection; what fails on the way is named and never keeps a task from starting."""
        rules, state = self._rules.distilling, memory.state
        goal = (state.task_goal or new.goal)[: rules.review.limits.text_chars_max]
        calls = calls_of(state)
        past = run_steps(calls)
        before = state_of(rules, goal=goal, task_type=state.task_type, tool="", arguments={}, past=past)
        known = {name: value for name, value in before.items() if name not in ("tool", "arguments")}
        failed = next((call for call in reversed(past) if call.failed), None)
        query = query_text(
            rules, goal=goal, step=_told(new.state), error=failed.error if failed else "", tool=state.task_type or ""
        )
        question = FirstQuestion(
            tenant=caller.tenant,
            user_ids=_users(new.user_id),
            task_id=new.task_id,
            query=query,
            task_type=state.task_type,
            state={**known, **new.state},
            max_tokens=new.max_tokens or self._rules.context_tokens_default,
        )
        try:
            async with asyncio.timeout(self._rules.numbers.context_deadline_s):
                return await self._build_context(question)
        except (HindsightError, TimeoutError) as error:
            log.warning("no context for a task that starts: %s", type(error).__name__)
            return FirstContext("", 0, (), None, ("context",))

    # Steps of advice.

    async def _known_task(self, caller: Caller, key: TaskKey) -> WorkingState:
        """The live task; one that expired is known by its goal and type only."""
        try:
            return (await self._read_task(caller, key.user_id, key.task_id)).state
        except NotFound:
            row = await self._row(key)
        if row is None:
            raise NotFound
        return WorkingState(key.task_id, key.user_id, row.agent_id, row.goal, row.task_type)

    async def _long_term(
        self, caller: Caller, key: TaskKey, task: WorkingState, planned: PlannedCall, state: Mapping[str, Any] | None
    ) -> tuple[tuple[list[ToolUse], QueryAnswer], tuple[str, ...]]:
        """Earlier uses of the tool and the experiences that may hold; a source that fails or is late is named."""
        now, numbers, users = self._clock(), self._rules.numbers, _users(key.user_id)
        rules = self._rules.distilling
        goal = (task.task_goal or "")[: rules.review.limits.text_chars_max]
        before = await asyncio.to_thread(
            state_of, rules, goal=goal, task_type=task.task_type, tool=planned.tool,
            arguments=planned.arguments, past=run_steps(calls_of(task)),
        )  # fmt: skip
        query = ExperienceQuery(
            tenant=key.tenant, user_ids=users, now=now, limit=numbers.experiences_asked, task_type=task.task_type,
            state={**before, **(state or {})},
        )  # fmt: skip
        uses, experiences = await asyncio.gather(
            self._in_time(
                self._postgres.read(
                    lambda c: task_rows.tool_uses(
                        c, key.tenant, users, planned.tool, now, numbers.past_memories_max, numbers.past_calls_max
                    )
                )
            ),
            self._in_time(self._ask_experiences(query)),
        )
        degraded = [name for name, found in (("memories", uses), ("experiences", experiences)) if found is None]
        degraded += experiences.degraded if experiences else []
        return (uses or [], experiences or QueryAnswer([], [])), tuple(degraded)

    async def _in_time(self, question: Awaitable[T]) -> T | None:
        """None when the store is down or late: this task's own failures are told all the same."""
        try:
            async with asyncio.timeout(self._rules.numbers.advice_deadline_s):
                return await question
        except (StoreUnavailable, TimeoutError):
            return None

    async def _told_before(self, key: TaskKey, task: WorkingState, planned: PlannedCall) -> Before:
        """What advice of this task has said; without Postgres only that it did."""
        numbers, rules = self._rules.numbers, self._rules.distilling
        lines = [Advised.from_line(line) for line in await self._runs.advised(key)]
        marks = frozenset(mark for line in lines for mark in (*line.marks, *map(str, line.experience_ids)))
        about = [line for line in lines if line.tool == planned.tool]
        ids = list(dict.fromkeys(one for line in reversed(about) for one in line.experience_ids))
        ids = ids[: numbers.told_lessons_max]
        if not ids:
            return Before(marks)
        rows = await self._in_time(self._postgres.read(lambda c: experience_rows.get_active(c, key.tenant, ids)))
        lessons = {row.id: row for row in rows or () if row.user_id in _users(key.user_id)}
        used = experiences_used(about, (), calls_of(task), lessons, JudgedBy.of(rules, numbers))
        failed = frozenset(one for one, helped in used.items() if not helped)
        return Before(marks, tuple(lessons.values()), failed)

    def _decide(
        self, task: WorkingState, planned: PlannedCall, uses: list[ToolUse], experiences: QueryAnswer, before: Before
    ) -> Advice:
        """Pure and, with many calls, slow enough for a thread."""
        numbers, rules = self._rules.numbers, self._rules.distilling
        words = words_for(task.task_goal or "")
        chars = rules.review.limits.text_chars_max
        masked = PlannedCall(planned.tool, plain_arguments(planned.arguments, chars, rules))  # as episodes keep them
        plain = PlannedCall(planned.tool, cut_arguments(planned.arguments, chars))
        own = own_failures(plain, calls_of(task), task.failed_attempts, task.task_id, numbers)
        found = Found(own, *past_uses(masked, uses, numbers), experiences.results)
        manner = Manner(words, numbers, self._rules.confidence, self._clock())
        return advise(plain, hints_for(plain, found, before, manner), words, self._count_tokens, numbers)


async def _row_unless_erased(connection: Connection, key: TaskKey) -> TaskRun | None:
    """Asked before anything is done, so that a start that is refused leaves no task behind that is in its way later."""
    await erasing.admit(connection, key.tenant, [key.user_id])
    return await task_rows.get(connection, key.tenant, key.user_id, key.task_id)


def _users(user_id: str) -> tuple[str, ...]:
    """The user and the common pool."""
    return (user_id,) if user_id == SHARED_USER else (user_id, SHARED_USER)


def _told(state: Mapping[str, Any]) -> str:
    """A caller's state as words of a query."""
    return text_of(dict(state)) if state else ""
