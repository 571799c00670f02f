"""Does the benchmark of the task loop measure what it says?  A handful of its tasks against a real service, and its own honesty."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from service_running import World as Service
from service_running import new_user

from benchmarks.loop import report
from benchmarks.loop.agent import Hint, NoMemory, Run, Step, work
from benchmarks.loop.memory import LoopMemory
from benchmarks.loop.reader import agreement, read
from benchmarks.loop.run import RESULTS, TOOLS, passes
from benchmarks.loop.subgoals import varied
from benchmarks.loop.tasks import Task, all_tasks
from benchmarks.loop.world import Call, World

DOCS = Path(__file__).parents[2] / "docs" / "BENCHMARKS.md"


def calls_of(run: Run) -> list[tuple[Call, str, str]]:
    return [(step.call, step.error, step.result) for step in run.steps]


async def off(tasks: Sequence[Task]) -> list[Run]:
    return await passes(tasks, lambda _task: NoMemory())


class Told(NoMemory):
    """Gives the same hint before every call."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def advise(self, call: Call) -> Sequence[Hint]:
        return [Hint(self._text, "lesson")]


def lesson(do: str, avoid: str) -> str:
    return f"(confidence 0.50) do {json.dumps(do)} · avoid {json.dumps(avoid)}"


async def test_the_world_and_the_agent_are_deterministic():
    first, second = await off(all_tasks("test")), await off(all_tasks("test"))
    assert [calls_of(run) for run in first] == [calls_of(run) for run in second]
    assert len(first) >= 50
    assert sum(len(run.steps) >= 20 for run in first) >= 10


def test_train_and_test_tasks_share_kinds_and_no_call_but_the_plain_waits():
    train, test = all_tasks("train"), all_tasks("test")
    assert {kind for task in test for kind in task.kinds} <= {kind for task in train for kind in task.kinds}

    def calls(tasks: Sequence[Task]) -> set[str]:
        plans = (plan for task in tasks for subgoal in task.subgoals for plan in subgoal.plans)
        return {
            json.dumps([c.tool, dict(c.arguments)])
            for plan in plans
            for c in plan.calls
            if c.tool not in ("wait", "login")
        }

    assert calls(train) & calls(test) == set()
    assert {task.goal for task in train} & {task.goal for task in test} == set()


async def test_lessons_of_other_tasks_save_steps_and_make_no_task_worse(world: Service):
    user, count = new_user(), world.runtime.embedder.count_tokens
    await passes(all_tasks("train", 1), lambda _task: LoopMemory(world.client, user, count, learn=True))
    test = all_tasks("test", 1)
    without = await off(test)
    with_memory = await passes(test, lambda _task: LoopMemory(world.client, user, count, learn=False))
    pairs = [report.Pair(*pair) for pair in zip(without, with_memory, strict=True)]
    whole = report.figures(pairs)["all"]
    assert whole["steps"]["on"] < whole["steps"]["off"]
    assert whole["failed_retries"]["on"] < whole["failed_retries"]["off"]
    assert whole["made_worse"] == []
    assert all(run.tokens > 0 for run in with_memory)


async def test_a_memory_that_says_nothing_changes_nothing():
    tasks = all_tasks("test", 2)
    told = await passes(tasks, lambda _task: Told(""))
    assert [calls_of(run) for run in told] == [calls_of(run) for run in await off(tasks)]


async def test_wrong_advice_makes_a_task_worse_and_is_counted():
    [task] = [task for task in all_tasks("test") if "web_export" in task.kinds][:1]
    wrong = Told(lesson('Call `read_table` with `delimiter` = ";".', 'Calling `read_table` with `delimiter` = ",".'))
    pair = report.Pair(await work(task, World(TOOLS), NoMemory()), await work(task, World(TOOLS), wrong))
    assert len(pair.on.steps) > len(pair.off.steps)
    assert report.figures([pair])["all"]["made_worse"] == [task.id]


@pytest.mark.parametrize(
    ("do", "avoid", "chosen"),
    [
        ("Call `list` with `limit` at most 100.", "Calling `list` with a larger `limit`.", 100),
        ("调用 `list` 时让 `limit` 不超过 100。", "不要用更大的 `limit` 调用 `list`。", 100),
        ("Call `list` with `limit` as a string.", "", "all"),
        ("Change the approach.", "", 500),
    ],
)
def test_the_reader_orders_plans_by_what_a_lesson_names(do: str, avoid: str, chosen: object):
    plans = varied("list", {}, "limit", (500, 250, 100, "all"))
    said = read(lesson(do, avoid))
    assert max(plans, key=lambda plan: agreement(plan, said, None)).calls[0].arguments["limit"] == chosen


def test_a_task_that_failed_with_memory_only_is_worse_and_the_other_way_round_is_not():
    [task] = all_tasks("test", 1)[:1]
    steps = [Step(Call("x", {}), "", "", 0)]
    done, broken = Run(task, steps=steps * 9, succeeded=True), Run(task, steps=steps, succeeded=False)
    assert report.Pair(done, broken).worse
    assert not report.Pair(broken, done).worse


def test_the_table_in_the_docs_is_the_one_that_was_measured():
    measured = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert "\n".join(report.table(measured["figures"])) in DOCS.read_text(encoding="utf-8")
