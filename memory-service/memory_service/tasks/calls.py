"""Which calls has a task made, and how alike are two calls?  Pure.

Working memory keeps the whole of the last steps and less of older calls; here they are one list, oldest first.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memory_service.experience.trajectory import Step as RunStep
from memory_service.experience.trajectory import flat_arguments, text_of, words
from memory_service.tasks.settings import TaskNumbers
from memory_service.working.items import Step, WorkingState

UNEQUAL_MAX = 0.99  # the same words in another order are no equal arguments


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """The call that the agent is about to make."""

    tool: str
    arguments: Mapping[str, Any]


def calls_of(state: WorkingState) -> tuple[Step, ...]:
    """Every call that is remembered, oldest first, with all that is known of it.

    A call and a recent step are the same when tool, time and arguments are.
    """
    told: dict[tuple[Any, ...], list[Step]] = defaultdict(list)
    for step in state.recent_steps:
        if isinstance(step, Step):
            told[step.tool, step.at].append(step)
    errors: dict[datetime | None, str | None] = {f.at: f.error for f in state.failed_attempts if f.error and f.at}
    found: list[Step] = []
    for call in state.tool_call_history:
        whole = next((s for s in told[call.tool, call.at] if dict(s.arguments) == dict(call.arguments)), None)
        if whole is not None:
            told[call.tool, call.at].remove(whole)
            found.append(whole)
            continue
        status = call.status or "success"
        error = errors.get(call.at) if status == "error" else None
        found.append(Step(call.tool, status, call.arguments, error=error, duration_ms=call.duration_ms, at=call.at))
    found += [step for steps in told.values() for step in steps]
    return tuple(sorted(found, key=lambda step: step.at.timestamp() if step.at else 0.0))


def run_steps(calls: Sequence[Step]) -> tuple[RunStep, ...]:
    """The same for review, distillation and conditions."""
    return tuple(
        RunStep(
            tool=call.tool,
            arguments=call.arguments,
            status=call.status,
            result=text_of(call.result),
            error=call.error or "",
            reason=call.reason or "",
            duration_ms=call.duration_ms,
        )
        for call in calls
    )


def similarity(one: Any, other: Any, numbers: TaskNumbers) -> float:
    """0..1; 1 for equal arguments.  The weighted mean over the argument names of both calls; our own formula.

    A name that both have earns `shared_name_share`, and the rest by how alike its values are; one that only one of them has
    earns nothing, with the weight `lone_name_weight`.  Arguments that are no object (a memory may hold a text or a list) are
    one nameless argument.
    """
    left, right = _named(one), _named(other)
    if _same(left, right):
        return 1.0
    names = left.keys() | right.keys()
    shared = left.keys() & right.keys()
    share = numbers.shared_name_share
    alike = sum(
        share + (1 - share) * _value_likeness(left[name], right[name], numbers.compared_chars_max) for name in shared
    )
    return min(UNEQUAL_MAX, alike / (len(shared) + numbers.lone_name_weight * len(names - shared)))


def _named(arguments: Any) -> Mapping[str, Any]:
    if isinstance(arguments, Mapping):
        return flat_arguments(arguments)
    return {} if arguments is None else {"": arguments}


def _value_likeness(one: Any, other: Any, chars_max: int) -> float:
    """Equal 1; two numbers 0.5 (a page, an offset, a limit); else the share of words that both have (Jaccard)."""
    if _same(one, other):
        return 1.0
    if _is_number(one) and _is_number(other):
        return 0.5
    left, right = (set(words(text_of(value)[:chars_max])) for value in (one, other))
    union = left | right
    return len(left & right) / len(union) if union else 0.0


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON: True is not 1."""
    return bool(one == other) and json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def has_any(call: Step, parts: frozenset[str]) -> bool:
    """Has a call one of these: a whole value or name, the beginning of a value such as a host or a folder, a word of a value?"""
    values = [text_of(value) for value in flat_arguments(call.arguments).values()]
    there = {*flat_arguments(call.arguments), *values}
    told = {word for value in values for word in words(value)}
    return any(
        part in there or part.casefold() in told or ("/" in part and any(v.startswith(part) for v in values))
        for part in parts
    )


def cut_arguments(arguments: Mapping[str, Any], chars_max: int) -> dict[str, Any]:
    """The arguments with long texts cut, for what is kept and shown; other values stay as they are."""
    return {name: _cut(value, chars_max) for name, value in arguments.items()}


def _cut(value: Any, chars_max: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= chars_max else value[: chars_max - 1] + "…"
    if isinstance(value, Mapping):
        return cut_arguments(value, chars_max)
    if isinstance(value, list | tuple):
        return [_cut(inner, chars_max) for inner in value]
    return value
