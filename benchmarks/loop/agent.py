"""How does a model that knows nothing of the traps work through a task, with and without advice?

Per subgoal it has ways to try, the default first.  It reads errors, remembers within the task which variation worked for a tool,
and with memory asks for advice before each attempt and prefers what the advice names.  The same agent runs in both modes;
it must not know the world, and nothing in it names a tool or a trap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from benchmarks.loop.reader import about, agreement, read, read_error
from benchmarks.loop.subgoals import Plan, Subgoal
from benchmarks.loop.tasks import Task
from benchmarks.loop.world import CALL_S, Call, ToolFailed, World

FAILURES_MAX = 25  # failed calls after which a task is given up
RECONSIDER_MAX = 2  # other plans that advice may bring up before one is tried


@dataclass(frozen=True, slots=True)
class Hint:
    text: str
    source_id: str


@dataclass(frozen=True, slots=True)
class Step:
    """`mine` is the number of the subgoal it was done for."""

    call: Call
    error: str
    result: str
    mine: int


class Memory(Protocol):
    """What the agent can ask.  `tokens` counts all that was put in front of it."""

    tokens: int

    async def start(self, task: Task) -> None: ...

    async def advise(self, call: Call) -> Sequence[Hint]: ...

    async def note(self, step: Step) -> None: ...

    async def finish(self, succeeded: bool) -> None: ...


class NoMemory:
    tokens = 0

    async def start(self, task: Task) -> None: ...

    async def advise(self, call: Call) -> Sequence[Hint]:
        return ()

    async def note(self, step: Step) -> None: ...

    async def finish(self, succeeded: bool) -> None: ...


@dataclass(slots=True)
class Run:
    """What one task took.  An attempt is one try of a subgoal; a retry is every attempt after its first."""

    task: Task
    steps: list[Step] = field(default_factory=list)
    attempts: int = 0
    retries: int = 0
    failed_retries: int = 0
    succeeded: bool = False
    tokens: int = 0
    advised: list[str] = field(default_factory=list)

    @property
    def failures(self) -> int:
        return sum(bool(step.error) for step in self.steps)


async def work(task: Task, world: World, memory: Memory) -> Run:
    """Do a task.  It succeeds when every subgoal was reached."""
    agent = _Agent(Run(task), world, memory)
    await memory.start(task)
    reached = 0
    for number, subgoal in enumerate(task.subgoals):
        if not await agent.reach(number, subgoal):
            break
        reached += 1
    agent.run.succeeded = reached == len(task.subgoals)
    await memory.finish(agent.run.succeeded)
    agent.run.tokens = memory.tokens
    return agent.run


@dataclass(slots=True)
class _Agent:
    run: Run
    world: World
    memory: Memory
    worked: dict[tuple[str, ...], str] = field(
        default_factory=dict
    )  # kind of call → variation that worked last in this task

    async def reach(self, number: int, subgoal: Subgoal) -> bool:
        left = list(subgoal.plans)
        hints: dict[str, Hint] = {}
        failed: list[tuple[Plan, str]] = []
        while left and self.run.failures < FAILURES_MAX:
            plan = await self._chosen(subgoal, left, hints, failed)
            left.remove(plan)
            error = await self._tried(number, plan)
            self.run.attempts += 1
            self.run.retries += bool(failed)
            self.run.failed_retries += bool(failed and error)
            if not error:
                self.worked[_kind_of(subgoal.plans[0])] = plan.variation
                return True
            failed.append((plan, error))
        return False

    async def _chosen(
        self, subgoal: Subgoal, left: Sequence[Plan], hints: dict[str, Hint], failed: Sequence[tuple[Plan, str]]
    ) -> Plan:
        """The plan to try: the best by what is known; each time advice brings up another one, that one is asked about too."""
        before = self.worked.get(_kind_of(subgoal.plans[0]), "")
        best = _best(left, before, tuple(hints.values()), failed)
        for _ in range(1 + RECONSIDER_MAX):
            for hint in await self.memory.advise(best.calls[-1]):
                hints[hint.text] = hint
            asked, best = best, _best(left, before, tuple(hints.values()), failed)
            if best == asked:
                break
        return best

    async def _tried(self, number: int, plan: Plan) -> str:
        """The error that ended the plan, "" when it worked."""
        for call in plan.calls:
            try:
                step = Step(call, "", self.world.call(call), number)
            except ToolFailed as failure:
                step = Step(call, str(failure), "", number)
            self.run.steps.append(step)
            await self.memory.note(step)
            if step.error:
                return step.error
        return ""


def _best(left: Sequence[Plan], before: str, hints: Sequence[Hint], failed: Sequence[tuple[Plan, str]]) -> Plan:
    """The plan that agrees most with the hints, the last error and what worked before; the first of equals."""
    last, error = failed[-1] if failed else (None, "")

    def score(plan: Plan) -> float:
        tool = plan.calls[-1].tool
        said = [one for hint in hints if about(hint.text, tool) for one in read(hint.text)]
        named = 0.0 if last is None else read_error(error, last, plan)
        return agreement(plan, said, last) + named + (plan.variation == before)

    return max(left, key=score)


def _kind_of(default: Plan) -> tuple[str, ...]:
    """What makes two calls the same kind of thing within a task: the tool and the folders of its arguments."""
    call = default.calls[-1]
    texts = [value for value in call.arguments.values() if isinstance(value, str)]
    return (call.tool, *(text.rpartition("/")[0] for text in texts if "/" in text))


def step_json(step: Step) -> Mapping[str, object]:
    """A step as the service takes it."""
    told = {"error": step.error} if step.error else {"result": step.result}
    status = "error" if step.error else "success"
    return {
        "tool": step.call.tool,
        "arguments": dict(step.call.arguments),
        "status": status,
        "duration_ms": CALL_S * 1000,
        **told,
    }
