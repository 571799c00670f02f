"""Which tasks are there?  Composed of subgoals from a fixed seed; train and test tasks share kinds of traps, never values.

A third of a task's subgoals hold a trap, about a fifth look like one and are none, the rest is plain work.  Traps go round, so that the
train tasks meet each kind.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from benchmarks.loop import subgoals_apis, subgoals_files, subgoals_tables
from benchmarks.loop.subgoals import Kind, Split, Subgoal, Values

SEED = 20260611
FAMILIES: Mapping[str, Any] = {"files": subgoals_files, "apis": subgoals_apis, "tables": subgoals_tables}
TASK_TYPES = {"files": "file_handling", "apis": "api_calls", "tables": "data_query"}
SHORT, LONG = 9, 18  # subgoals
TRAIN_TASKS, TEST_TASKS, LONG_EVERY = 10, 20, 4  # per family; every fourth is long
CHINESE_EVERY = 5
_GOALS: Mapping[Split, tuple[str, ...]] = {
    "train": ("Please get this done for {person}: {todo}.", "{person} needs the following before noon: {todo}."),
    "test": ("Work through this list: {todo}. Report to {person}.", "For the audit of {person}, {todo}."),
}
_GOALS_CHINESE: Mapping[Split, str] = {
    "train": "请为{person}完成：{todo}。",
    "test": "按顺序处理以下事项：{todo}。完成后告诉{person}。",
}


@dataclass(frozen=True, slots=True)
class Task:
    """`kinds` name the subgoals' kinds, one each."""

    id: str
    family: str
    task_type: str
    goal: str
    subgoals: tuple[Subgoal, ...]
    kinds: tuple[str, ...]


def all_tasks(split: Split, per_family: int | None = None) -> list[Task]:
    """The same list in every process."""
    wanted = per_family or (TRAIN_TASKS if split == "train" else TEST_TASKS)
    return [task for family in FAMILIES for task in _family(split, family, wanted)]


def _family(split: Split, family: str, wanted: int) -> list[Task]:
    kinds = FAMILIES[family]
    traps = _rounds(kinds.TRAPS)
    tasks = []
    for number in range(wanted):
        chance = random.Random(f"{SEED} {split} {family} {number}")
        values = Values(split, chance)
        size = LONG if number % LONG_EVERY == LONG_EVERY - 1 else SHORT
        chosen: list[Kind] = [next(traps) for _ in range(size // 3)]
        chosen += [chance.choice(kinds.LOOK_ALIKES) for _ in range(size // 6 + 1)]
        chosen += [chance.choice(kinds.PLAIN) for _ in range(size - len(chosen))]
        chance.shuffle(chosen)
        subgoals = tuple(kind(values) for kind in chosen)
        name, goal = f"{split}-{family}-{number:02}", _goal(split, number, values, subgoals)
        tasks.append(Task(name, family, TASK_TYPES[family], goal, subgoals, tuple(kind.__name__ for kind in chosen)))
    return tasks


def _rounds(kinds: tuple[Kind, ...]) -> Iterator[Kind]:
    for at in count():
        yield kinds[at % len(kinds)]


def _goal(split: Split, number: int, values: Values, subgoals: tuple[Subgoal, ...]) -> str:
    if number % CHINESE_EVERY == CHINESE_EVERY - 1:
        return _GOALS_CHINESE[split].format(person=values.of("person"), todo="；".join(s.chinese for s in subgoals))
    template = _GOALS[split][number % len(_GOALS[split])]
    return template.format(person=values.of("person"), todo="; ".join(s.english for s in subgoals))
