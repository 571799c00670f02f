"""Which advice did the agent take, did it help at once, and which memories did it use?  Pure.

Nobody tells, so it is read from what was called next.  A simple rule that errs on the side of "not used": a lesson that was
not used keeps its confidence, which costs nothing, while a wrong verdict teaches something false.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from memory_service.domain import Experience, Memory
from memory_service.experience.distill_rules import DistillRules
from memory_service.experience.trajectory import flat_arguments, leaves, text_of, words
from memory_service.tasks.calls import has_any
from memory_service.tasks.opposites import telling
from memory_service.tasks.settings import TaskNumbers
from memory_service.terms import query_terms
from memory_service.vocabulary import Vocabulary
from memory_service.working.items import Step


@dataclass(frozen=True, slots=True)
class Advised:
    """One answer of advice: the call that was planned, when, the experiences that were shown, and marks of the other hints."""

    tool: str
    arguments: Mapping[str, Any]
    at: datetime
    experience_ids: tuple[UUID, ...]
    marks: tuple[str, ...] = ()

    def to_line(self) -> bytes:
        """One line of JSON."""
        return orjson.dumps(
            {
                "tool": self.tool,
                "arguments": dict(self.arguments),
                "at": self.at.isoformat(),
                "experiences": [str(one) for one in self.experience_ids],
                "marks": self.marks,
            }
        )

    @classmethod
    def from_line(cls, line: bytes) -> "Advised":
        raw = orjson.loads(line)
        ids = tuple(UUID(one) for one in raw["experiences"])
        return cls(raw["tool"], raw["arguments"], datetime.fromisoformat(raw["at"]), ids, tuple(raw.get("marks", ())))


@dataclass(frozen=True, slots=True)
class Given:
    """Experiences that a context of this task showed, before any call was planned."""

    at: datetime
    experience_ids: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class JudgedBy:
    """`passing`: classes of errors that say nothing about a call; `asking_words` set no action apart (call, use, the …)."""

    rules: DistillRules
    passing: frozenset[str]
    asking_words: frozenset[str]

    @classmethod
    def of(cls, rules: DistillRules, numbers: TaskNumbers) -> "JudgedBy":
        return cls(rules, frozenset(numbers.passing_error_classes), frozenset(numbers.asking_words))

    def fails_by_itself(self, call: Step) -> bool:
        """Did it fail by what it was, not by the state of a network or service, of which no lesson can know?"""
        return call.status == "error" and self.rules.error_class(call.error or "") not in self.passing


def experiences_used(
    advised: Iterable[Advised],
    given: Iterable[Given],
    calls: Sequence[Step],
    lessons: Mapping[UUID, Experience],
    judged_by: JudgedBy,
) -> dict[UUID, bool]:
    """Experiences that a call followed → did it help at once?  False when a call that followed it failed.

    Of advice, the very next call; of what was given without a planned call, the first one that does what the lesson says.
    """
    used: dict[UUID, bool] = {}

    def note(experience_id: UUID, call: Step) -> None:
        used[experience_id] = used.get(experience_id, True) and not judged_by.fails_by_itself(call)

    for one in advised:
        after = next((call for call in calls if call.at is not None and call.at > one.at), None)
        for experience_id in one.experience_ids if after is not None else ():
            lesson = lessons.get(experience_id)
            if after is not None and lesson is not None and followed(lesson, one, after):
                note(experience_id, after)
    for told in given:
        later = [call for call in calls if call.at is not None and call.at > told.at]
        for experience_id in told.experience_ids:
            lesson = lessons.get(experience_id)
            done = (
                next((call for call in later if carried_out(lesson, call, judged_by.asking_words)), None)
                if lesson is not None
                else None
            )
            if done is not None:
                note(experience_id, done)
    return used


def followed(lesson: Experience, advised: Advised, after: Step) -> bool:
    """Does the call `after` follow the lesson?

    - Made as planned: yes when the lesson warns of nothing (it confirmed the plan); a warning was then ignored.
    - Same tool, other arguments: yes for a warning (the call was made differently than what it says to avoid); else when
      the lesson's action speaks of what is new in the arguments.
    - Another tool: yes when the action names it.
    """
    if after.tool != advised.tool:
        return _mentions(lesson.action, after.tool)
    if dict(after.arguments) == dict(advised.arguments):
        return not lesson.avoid
    return bool(lesson.avoid) or any(
        _mentions(lesson.action, new) for new in _new_words(advised.arguments, after.arguments)
    )


def carried_out(lesson: Experience, call: Step, asking_words: frozenset[str]) -> bool:
    """Does a call that nobody had planned do what the lesson says?

    It is a call that the lesson speaks of; it has something that sets the action apart from `avoid`, or is of the tool that the
    action names where the conditions speak of another one; and it has nothing that only `avoid` names.
    """
    said, meant = telling(lesson, asking_words), _tools_meant(lesson)
    named = _mentions(lesson.action, call.tool)
    if (call.tool not in meant and not named) or has_any(call, said.unwanted):
        return False
    return has_any(call, said.wanted) or (bool(meant) and call.tool not in meant)


def _tools_meant(lesson: Experience) -> frozenset[str]:
    """Tools that the conditions name as the one about to be called."""
    return frozenset(
        str(one["value"]) for one in lesson.conditions if one["field"] == "tool" and one["operator"] == "eq"
    )


def memories_used(
    given: Sequence[Memory], goal: str, calls: Sequence[Step], vocabulary: Vocabulary, terms_min: int
) -> list[UUID]:
    """Memories given at the start of which successful calls carried at least `terms_min` terms that the goal did not have."""
    asked = set(query_terms(goal, vocabulary))
    told = " ".join(leaf for call in calls if call.status == "success" for leaf in leaves(dict(call.arguments)))
    done = set(query_terms(told, vocabulary)) - asked
    return [m.id for m in given if len(set(query_terms(m.content, vocabulary)) & done) >= terms_min]


def _new_words(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Names and values that the call has and the plan had not."""
    old, new = flat_arguments(before), flat_arguments(after)
    changed = {name: value for name, value in new.items() if name not in old or old[name] != value}
    return [*(name for name in changed if name not in old), *(text_of(value) for value in changed.values())]


def _mentions(text: str, part: str) -> bool:
    """Whole words of `part` in a row in `text`."""
    wanted, there = words(part), words(text)
    return bool(wanted) and any(there[at : at + len(wanted)] == wanted for at in range(len(there) - len(wanted) + 1))
