"""Which advice did the agent take, and which memories did it use?  Pure.

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
from memory_service.experience.trajectory import flat_arguments, leaves, text_of, words
from memory_service.terms import query_terms
from memory_service.vocabulary import Vocabulary
from memory_service.working.items import Step


@dataclass(frozen=True, slots=True)
class Advised:
    """One answer of advice: the call that was planned, when, and the experiences that were shown."""

    tool: str
    arguments: Mapping[str, Any]
    at: datetime
    experience_ids: tuple[UUID, ...]

    def to_line(self) -> bytes:
        """One line of JSON."""
        return orjson.dumps(
            {
                "tool": self.tool,
                "arguments": dict(self.arguments),
                "at": self.at.isoformat(),
                "experiences": [str(one) for one in self.experience_ids],
            }
        )

    @classmethod
    def from_line(cls, line: bytes) -> "Advised":
        raw = orjson.loads(line)
        ids = tuple(UUID(one) for one in raw["experiences"])
        return cls(raw["tool"], raw["arguments"], datetime.fromisoformat(raw["at"]), ids)


def experiences_used(
    advised: Iterable[Advised], calls: Sequence[Step], lessons: Mapping[UUID, Experience]
) -> list[UUID]:
    """Advised experiences that the next call after some advice followed, each once, in the order of advice."""
    used: dict[UUID, None] = {}
    for one in advised:
        after = next((call for call in calls if call.at is not None and call.at > one.at), None)
        if after is None:
            continue
        for experience_id in one.experience_ids:
            lesson = lessons.get(experience_id)
            if lesson is not None and followed(lesson, one, after):
                used.setdefault(experience_id)
    return list(used)


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
