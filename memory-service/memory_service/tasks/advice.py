"""What should an agent know before this call?  Pure: what was found goes in, the hints come out in order.

First what this task itself has tried and failed with, then what earlier runs failed and worked with, then the experiences
whose conditions hold.  Weak hits are left out: with little known it is better to say so than to send an agent astray.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memory_service.domain import Json
from memory_service.experience.drafts import Advised
from memory_service.stores.postgres.tasks import ToolUse
from memory_service.tasks.calls import similarity
from memory_service.tasks.settings import TaskNumbers
from memory_service.tasks.wording import (
    HintType,
    Words,
    block,
    call_text,
    condition_text,
    lesson_line,
    shown,
    times,
    with_error,
)
from memory_service.working.items import FailedAttempt, Step

CountTokens = Callable[[str], int]
# `status` of a memory's tool call is free text; these are what agents write.
FAILED, WORKED = frozenset({"error", "failure", "failed", "timeout"}), frozenset({"success", "ok", "succeeded"})
TASK_FIELDS = frozenset({"goal_terms", "task_type"})
CALL_FIELDS = frozenset({"tool", "arguments", "last_error", "last_error_class", "last_error_tool"})


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """The call that the agent is about to make."""

    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Hint:
    """`source_id` is the task, the memory or the experience that it stands on; `confidence` only an experience has."""

    type: HintType
    text: str
    source_id: str
    confidence: float | None = None


@dataclass(frozen=True, slots=True)
class Advice:
    """`text` is the block for the prompt, with exactly these hints."""

    hints: tuple[Hint, ...]
    text: str


@dataclass(frozen=True, slots=True)
class _Met:
    """Equal calls that were met: how alike the planned one, how often, the newest of them and what tells of it."""

    likeness: float
    count: int
    call: Step
    at: datetime | None
    source: str


def own_failures(
    planned: PlannedCall,
    calls: Sequence[Step],
    noted: Sequence[FailedAttempt],
    task_id: str,
    words: Words,
    numbers: TaskNumbers,
) -> list[Hint]:
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
        _Met(_likeness(planned, same[-1].arguments, numbers), len(same), same[-1], same[-1].at, task_id)
        for same in failures.values()
    ]
    hints = [
        Hint("failed_before", _told(one, words.failed_here, words.failed_here_alike, words, numbers), task_id)
        for one in _best(met, numbers)
    ]
    known = {call.at for call in calls}
    for failure in reversed(noted):
        if failure.at not in known and _names(failure.action, planned.tool) and len(hints) < numbers.hints_per_type_max:
            said = words.noted_failure.format(call=shown(failure.action, numbers.hint_text_chars_max))
            error = failure.error or failure.reason
            hints.append(Hint("failed_before", with_error(said, error, words, numbers.hint_text_chars_max), task_id))
    return hints


def past_uses(planned: PlannedCall, uses: Sequence[ToolUse], words: Words, numbers: TaskNumbers) -> list[Hint]:
    """What memories tell of similar calls of this tool: failures first, then what worked; the most alike, then the newest."""
    failed = [
        Hint("failed_before", _told(one, words.failed_earlier, words.failed_earlier_alike, words, numbers), one.source)
        for one in _best(_met(planned, uses, FAILED, numbers), numbers)
    ]
    worked = [
        Hint("worked_before", _told(one, words.worked_earlier, words.worked_earlier_alike, words, numbers), one.source)
        for one in _best(_met(planned, uses, WORKED, numbers), numbers)
    ]
    return [*failed, *worked]


def _met(planned: PlannedCall, uses: Sequence[ToolUse], statuses: frozenset[str], numbers: TaskNumbers) -> list[_Met]:
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
        _Met(
            _likeness(planned, raw.get("arguments"), numbers),
            counts[key],
            _step(raw, failed=statuses is FAILED),
            use.occurred_at,
            str(use.memory_id),
        )
        for key, (raw, use) in newest.items()
    ]


def experience_hints(found: Sequence[Advised], words: Words, numbers: TaskNumbers) -> list[Hint]:
    """Those that hold, and those that may hold when they are strong: said to be uncertain, and after the others.

    A lesson about this very call comes before one about the task as a whole.  What was learned of whole runs like this one is
    left out: it speaks of no call, and the first injection has told it.
    """
    strong = [one for one in found if _strong(one, numbers)]
    strong.sort(key=lambda one: (one.match != "exact", not _about_call(one), -one.score, -one.experience.id.int))
    return [_experience_hint(one, words, numbers) for one in strong[: numbers.experiences_max]]


def advise(
    planned: PlannedCall, hints: Sequence[Hint], words: Words, count_tokens: CountTokens, numbers: TaskNumbers
) -> Advice:
    """As many of `hints`, in order, as fit into the budget; the first is always told."""
    chars, kept = numbers.hint_text_chars_max, list[Hint]()
    whole = _block(planned, hints, words, chars)
    if count_tokens(whole) <= numbers.advice_tokens_max:
        return Advice(tuple(hints), whole)
    for hint in hints:
        longer = [*kept, hint]
        if kept and count_tokens(_block(planned, longer, words, chars)) > numbers.advice_tokens_max:
            continue
        kept = longer
    return Advice(tuple(kept), _block(planned, kept, words, chars))


def _block(planned: PlannedCall, hints: Sequence[Hint], words: Words, chars: int) -> str:
    return block(planned.tool, [(hint.type, hint.source_id, hint.text) for hint in hints], words, chars)


def _strong(one: Advised, numbers: TaskNumbers) -> bool:
    if one.confidence < numbers.confidence_min or one.failed:
        return False
    if one.experience.rule is not None and _fields(one) <= TASK_FIELDS:
        return False
    return one.match == "exact" or (one.match == "partial" and one.score >= numbers.partial_score_min)


def _about_call(one: Advised) -> bool:
    return bool(_fields(one) & CALL_FIELDS)


def _fields(one: Advised) -> frozenset[str]:
    """What the conditions speak of: `arguments` for `arguments.url`."""
    return frozenset(str(triple["field"]).partition(".")[0] for triple in one.experience.conditions)


def _experience_hint(one: Advised, words: Words, numbers: TaskNumbers) -> Hint:
    lesson = one.experience
    unknown = condition_text(one.missing, words) if one.match == "partial" else ""
    text = lesson_line(
        lesson.action,
        lesson.avoid,
        lesson.rationale,
        condition_text(lesson.conditions, words),
        unknown,
        one.confidence,
        words,
        numbers.hint_text_chars_max,
    )
    return Hint("experience", text, str(lesson.id), round(one.confidence, 6))


def _likeness(planned: PlannedCall, arguments: Any, numbers: TaskNumbers) -> float:
    return similarity(planned.arguments, arguments, numbers)


def _best(met: Sequence[_Met], numbers: TaskNumbers) -> list[_Met]:
    near = [one for one in met if one.likeness >= numbers.similar_min]
    near.sort(key=lambda one: (-one.likeness, -(one.at.timestamp() if one.at else 0.0)))
    return near[: numbers.hints_per_type_max]


def _told(one: _Met, same: str, alike: str, words: Words, numbers: TaskNumbers) -> str:
    chars = numbers.hint_text_chars_max
    said = (same if one.likeness == 1.0 else alike).format(
        times=times(one.count, words),
        date=one.at.date().isoformat() if one.at else "?",
        call=shown(call_text(one.call.tool, one.call.arguments), chars),
    )
    return with_error(said, one.call.error, words, chars)


def _step(raw: Mapping[str, Any], *, failed: bool) -> Step:
    """A memory's tool call; arguments that are no object are one nameless argument."""
    arguments = raw.get("arguments")
    named = arguments if isinstance(arguments, Mapping) else {} if arguments is None else {"": arguments}
    return Step(str(raw.get("tool", "")), "success", named, error=raw.get("error") if failed else None)


def _key(arguments: Any) -> str:
    """Equal for equal arguments, whatever their order."""
    return json.dumps(arguments, sort_keys=True)


def _names(action: str, tool: str) -> bool:
    """Does a failure in the agent's words begin with this tool's name?"""
    head, _, _ = action.strip().partition(" ")
    return head.strip("`\"'():,").casefold() == tool.casefold()
