"""Which calls that were made before tell about a planned one?  Pure.

This task's own failures, and what memories of earlier runs tell.  Many runs that met the same are one line with a count, and what
a lesson beside it says already is left out.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from memory_service.domain import Json
from memory_service.experience.trajectory import flat_arguments, words
from memory_service.stores.postgres.tasks import ToolUse
from memory_service.tasks.calls import PlannedCall, has_any, similarity
from memory_service.tasks.opposites import Telling
from memory_service.tasks.settings import TaskNumbers
from memory_service.working.items import FailedAttempt, Step

# `status` of a memory's tool call is free text; these are what agents write.
FAILED, WORKED = frozenset({"error", "failure", "failed", "timeout"}), frozenset({"success", "ok", "succeeded"})
_RUN_DATA = re.compile(r"\S*[\d/\\]\S*|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Met:
    """Calls that were met and are alike: how alike the planned one, how often, the most telling of them and what tells of it.

    `here`: in this task.  `noted`: the agent's own words about a failure, instead of a call.
    """

    likeness: float
    count: int
    call: Step
    at: datetime | None
    source: str
    here: bool = False
    noted: str = ""


@dataclass(frozen=True, slots=True)
class Said:
    """A lesson in the same answer: what sets its action and its `avoid` apart, the arguments that it speaks of, and all its words."""

    telling: Telling
    named: frozenset[str]
    words: frozenset[str]


def own_failures(
    planned: PlannedCall, calls: Sequence[Step], noted: Sequence[FailedAttempt], task_id: str, numbers: TaskNumbers
) -> list[Met]:
    """This task's failed calls of the same tool, the most alike first, then failures that the agent noted in words.

    Calls that failed and then worked with the same arguments are no warning any more.
    """
    failures: dict[str, list[Step]] = {}
    for call in calls:
        if call.tool != planned.tool:
            continue
        key = _key(dict(call.arguments))
        if call.status == "error":
            failures.setdefault(key, []).append(call)
        else:
            failures.pop(key, None)
    met = [
        Met(similarity(planned.arguments, same[-1].arguments, numbers), len(same), same[-1], same[-1].at, task_id, True)
        for same in failures.values()
    ]
    known = {call.at for call in calls}
    in_words = [
        Met(0.0, 1, Step(planned.tool, "error", {}, error=one.error or one.reason), one.at, task_id, True, one.action)
        for one in reversed(noted)
        if one.at not in known and _names(one.action, planned.tool)
    ]
    return [*_merged(_near(met, numbers), _error_form), *in_words][: numbers.hints_per_type_max]


def past_uses(planned: PlannedCall, uses: Sequence[ToolUse], numbers: TaskNumbers) -> tuple[list[Met], list[Met]]:
    """What memories tell of similar calls of this tool: those that failed and those that worked, the most alike, then the newest.

    Failures with the same kind of error are one, and so are successes that differ in what is different in every run.
    """
    failed, worked = (_near(_met(planned, uses, statuses, numbers), numbers) for statuses in (FAILED, WORKED))
    usual = Counter((name, _key(value)) for one in worked for name, value in flat_arguments(one.call.arguments).items())

    def kind(one: Met) -> str:
        """Its values that occur in several calls, or in the plan: the others are data of one run."""
        plan = flat_arguments(planned.arguments)
        values = flat_arguments(one.call.arguments).items()
        return _key({n: v for n, v in values if usual[n, _key(v)] > 1 or (n in plan and plan[n] == v)})

    most, cases = numbers.hints_per_type_max, _merged(worked, kind)
    if cases and cases[0].likeness == 1.0:  # the very call worked: others like it add nothing
        cases = cases[:1]
    return _merged(failed, _error_form)[:most], cases[:most]


def uncovered(met: Iterable[Met], planned: PlannedCall, said: Sequence[Said], numbers: TaskNumbers) -> list[Met]:
    """Without what a lesson in the same answer tells: the failure that it comes of, the success that shows it.

    What failed in this very task with these very arguments is always told, and so is a success that the lesson would not expect.
    """

    def covered(one: Met) -> bool:
        if one.here and (one.noted or one.likeness == 1.0):
            return False
        if one.call.status == "error":
            return any(_covers_failure(lesson, one, numbers) for lesson in said)
        return any(_covers_success(lesson, one, planned) for lesson in said)

    return [one for one in met if not covered(one)]


def _covers_failure(said: Said, one: Met, numbers: TaskNumbers) -> bool:
    """Does the lesson say to avoid what this call has, or tell of the same error?"""
    if has_any(one.call, said.telling.unwanted):
        return True
    error = set(words(_error_form(one)))
    return bool(error) and len(error & said.words) / len(error) >= numbers.covered_error_share


def _covers_success(said: Said, one: Met, planned: PlannedCall) -> bool:
    """Does the call differ from the plan in what the lesson speaks of, and have nothing that it warns of?"""
    plan, done = flat_arguments(planned.arguments), flat_arguments(one.call.arguments)
    changed = {name for name, value in done.items() if name not in plan or plan[name] != value}
    if has_any(one.call, said.telling.unwanted):
        return False
    return bool(changed & said.named) or has_any(one.call, said.telling.wanted)


def _near(met: Iterable[Met], numbers: TaskNumbers) -> list[Met]:
    near = [one for one in met if one.likeness >= numbers.similar_min]
    near.sort(key=lambda one: (-one.likeness, -(one.at.timestamp() if one.at else 0.0)))
    return near


def _merged(ordered: Sequence[Met], kind: Callable[[Met], str]) -> list[Met]:
    """One of each kind, the first, with the count of all; one with exactly the planned arguments stands for itself."""
    merged: dict[tuple[bool, str], Met] = {}
    for one in ordered:
        key = (one.likeness == 1.0, kind(one))
        first = merged.get(key)
        merged[key] = (
            one if first is None else replace(first, count=first.count + one.count, at=_later(first.at, one.at))
        )
    return list(merged.values())


def _met(planned: PlannedCall, uses: Sequence[ToolUse], statuses: frozenset[str], numbers: TaskNumbers) -> list[Met]:
    """Calls that ended so, equal ones as one; `uses` are newest first."""
    newest: dict[str, tuple[Json, ToolUse]] = {}
    counts: Counter[str] = Counter()
    for use in uses:
        for raw in use.calls:
            if str(raw.get("status", "")).casefold() in statuses:
                key = _key(raw.get("arguments"))
                counts[key] += 1
                newest.setdefault(key, (raw, use))
    return [
        Met(
            similarity(planned.arguments, raw.get("arguments"), numbers),
            counts[key],
            _step(raw, failed=statuses is FAILED),
            use.occurred_at,
            str(use.memory_id),
        )
        for key, (raw, use) in newest.items()
    ]


def _step(raw: Mapping[str, Any], *, failed: bool) -> Step:
    """A memory's tool call; arguments that are no object are one nameless argument."""
    arguments = raw.get("arguments")
    named = arguments if isinstance(arguments, Mapping) else {} if arguments is None else {"": arguments}
    tool = str(raw.get("tool", ""))
    return Step(tool, "error", named, error=raw.get("error")) if failed else Step(tool, "success", named)


def _error_form(one: Met) -> str:
    """The error without what belongs to one run: numbers, paths, signs."""
    return " ".join(words(_RUN_DATA.sub(" ", one.call.error or "")))


def _later(one: datetime | None, other: datetime | None) -> datetime | None:
    return max(filter(None, (one, other)), default=None)


def _key(value: Any) -> str:
    """Equal for equal JSON, whatever the order of its names."""
    return json.dumps(value, sort_keys=True)


def _names(action: str, tool: str) -> bool:
    """Does a failure in the agent's words begin with this tool's name?"""
    head, _, _ = action.strip().partition(" ")
    return head.strip("`\"'():,").casefold() == tool.casefold()
