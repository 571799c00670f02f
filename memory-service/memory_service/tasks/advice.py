"""What should an agent know before this call?  Pure: what was found goes in, the hints come out in order.

First what this task itself has tried and failed with, then what earlier runs failed and worked with, then the experiences
whose conditions hold.  Weak hits are left out: with little known it is better to say so than to send an agent astray.  An agent
asks before every call, so each thing is said once: what a lesson covers is not told as a case too, and what this task was told
in full comes in a few words.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2s
from uuid import UUID

from memory_service.domain import Experience
from memory_service.experience.confidence_settings import ConfidenceSettings
from memory_service.experience.drafts import Advised
from memory_service.experience.trajectory import words as words_of
from memory_service.tasks.calls import PlannedCall
from memory_service.tasks.earlier import Met, Said, uncovered
from memory_service.tasks.opposites import Strength, agreeing, telling
from memory_service.tasks.settings import TaskNumbers
from memory_service.tasks.wording import (
    HintType,
    Words,
    block,
    call_text,
    condition_text,
    dated,
    lesson_again,
    lesson_line,
    shown,
    times,
    with_error,
)

CountTokens = Callable[[str], int]
TASK_FIELDS = frozenset({"goal", "goal_terms", "task_type"})
CALL_FIELDS = frozenset({"tool", "arguments", "last_error", "last_error_class", "last_error_tool"})
MARK_BYTES = 6  # of a hint's text: two of one task's hundreds are never taken for each other


@dataclass(frozen=True, slots=True)
class Hint:
    """`source_id` is the task, the memory or the experience that it stands on; `confidence` only an experience has.

    `mark` knows the hint again, however it is worded.
    """

    type: HintType
    text: str
    source_id: str
    confidence: float | None = None
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Advice:
    """`text` is the block for the prompt, with exactly these hints."""

    hints: tuple[Hint, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Before:
    """What this task was told before: marks of hints, the experiences about this tool, and which of these failed it at once."""

    marks: frozenset[str] = frozenset()
    lessons: Sequence[Experience] = ()
    failed: frozenset[UUID] = frozenset()


@dataclass(frozen=True, slots=True)
class Found:
    """What was found for a planned call: own failures, then failures and successes of earlier runs; experiences."""

    own: Sequence[Met]
    failed: Sequence[Met]
    worked: Sequence[Met]
    experiences: Sequence[Advised]


@dataclass(frozen=True, slots=True)
class Manner:
    """How it is told: in these words, within these numbers."""

    words: Words
    numbers: TaskNumbers
    confidence: ConfidenceSettings
    now: datetime


def hints_for(planned: PlannedCall, found: Found, before: Before, how: Manner) -> list[Hint]:
    """The hints in the order in which they are told."""
    numbers, asking = how.numbers, frozenset(how.numbers.asking_words)
    agreed = agreeing(found.experiences, before.lessons, before.failed, Strength(how.now, how.confidence), asking)
    lessons = applicable(agreed, numbers)
    said = [_said(one.experience, asking) for one in lessons if one.match == "exact"]
    failed = uncovered([*found.own, *found.failed], planned, said, numbers)[: numbers.hints_per_type_max]
    worked = uncovered(found.worked, planned, said, numbers)
    hints = [_earlier_hint(one, before, how) for one in (*failed, *worked)]
    return hints + [_experience_hint(one, before, how) for one in lessons]


def applicable(found: Iterable[Advised], numbers: TaskNumbers) -> list[Advised]:
    """Those that hold, and those that may hold when they are strong: said to be uncertain, and after the others.

    A lesson about this very call comes before one about the task as a whole.  What was learned of whole runs like this one is
    left out: it speaks of no call, and the first injection has told it.
    """
    strong = [one for one in found if _strong(one, numbers)]
    strong.sort(key=lambda one: (one.match != "exact", not _about_call(one), -one.score, -one.experience.id.int))
    return strong[: numbers.experiences_max]


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
    return block(planned.tool, [(hint.type, hint.text) for hint in hints], words, chars)


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


def _said(lesson: Experience, asking_words: frozenset[str]) -> Said:
    fields = (str(one["field"]).partition(".") for one in lesson.conditions)
    named = frozenset(rest for head, _, rest in fields if head == "arguments" and rest in lesson.action)
    texts: Mapping[str, None] = dict.fromkeys(filter(None, (lesson.action, lesson.avoid, lesson.rationale)))
    return Said(telling(lesson, asking_words), named, frozenset(word for text in texts for word in words_of(text)))


def _experience_hint(one: Advised, before: Before, how: Manner) -> Hint:
    lesson, chars = one.experience, how.numbers.hint_text_chars_max
    mark = str(lesson.id)
    if mark in before.marks and one.match == "exact":
        text = lesson_again(lesson.action, lesson.avoid, how.words, chars)
    else:
        unknown = condition_text(one.missing, how.words) if one.match == "partial" else ""
        text = lesson_line(lesson.action, lesson.avoid, lesson.rationale, unknown, one.confidence, how.words, chars)
    return Hint("experience", text, str(lesson.id), round(one.confidence, 6), mark)


def _earlier_hint(one: Met, before: Before, how: Manner) -> Hint:
    kind: HintType = "failed_before" if one.call.status == "error" else "worked_before"
    whole = _told(one, kind, how)
    mark = blake2s(f"{kind}\0{one.source}\0{whole}".encode(), digest_size=MARK_BYTES).hexdigest()
    if mark not in before.marks:
        return Hint(kind, whole, one.source, mark=mark)
    again = how.words.failed_told if kind == "failed_before" else how.words.worked_told
    call = one.noted or call_text(one.call.tool, one.call.arguments)
    text = again.format(call=shown(call, how.numbers.repeated_text_chars_max))
    return Hint(kind, text if len(text) < len(whole) else whole, one.source, mark=mark)


def _told(one: Met, kind: HintType, how: Manner) -> str:
    words, chars = how.words, how.numbers.hint_text_chars_max
    if one.noted:
        said = words.noted_failure.format(call=shown(one.noted, chars))
        return with_error(said, one.call.error, words, chars)
    same, alike = {
        (True, "failed_before"): (words.failed_here, words.failed_here_alike),
        (False, "failed_before"): (words.failed_earlier, words.failed_earlier_alike),
    }.get((one.here, kind), (words.worked_earlier, words.worked_earlier_alike))
    said = (same if one.likeness == 1.0 else alike).format(
        times=times(one.count, words),
        date=dated(one.at, words),
        call=shown(call_text(one.call.tool, one.call.arguments), chars),
    )
    return with_error(said, one.call.error, words, chars)
