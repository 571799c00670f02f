"""Do two lessons tell the opposite, and which of them is told?  Pure.

Succession decides between lessons for equal conditions.  Lessons of different conditions can contradict each other too: "with
JSON use a form" and "with a form use JSON" hold one after the other, and an agent that is told both goes round in circles.
Of such a pair the more confident is told, then the newer; one that failed in this very task gives way to any other.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from memory_service.domain import Experience
from memory_service.experience.confidence import Contender, winner
from memory_service.experience.confidence_settings import ConfidenceSettings
from memory_service.experience.drafts import Advised
from memory_service.experience.succession import confidence_of
from memory_service.experience.trajectory import words

_NAMED = re.compile(r"(written like )?(?:`([^`]+)`|\"([^\"]+)\"|“([^”]+)”)")
_RUNS = ((re.compile(r"[A-Z]+"), "A"), (re.compile(r"[a-z]+"), "a"), (re.compile(r"\d+"), "9"))


@dataclass(frozen=True, slots=True)
class Telling:
    """What sets apart what a lesson says to do (`wanted`) and to avoid (`unwanted`), of calls of these tools."""

    tools: frozenset[str]
    wanted: frozenset[str]
    unwanted: frozenset[str]


def telling(lesson: Experience, asking_words: frozenset[str]) -> Telling:
    """By what the texts put in quotes; by their words where they quote nothing.

    Names of arguments that the conditions speak of, and `asking_words` (call, use …), set nothing apart.
    """
    fields = {str(one["field"]).rpartition(".")[2] for one in lesson.conditions}
    tools = frozenset(
        str(one["value"]) for one in lesson.conditions if one["field"] == "tool" and one["operator"] == "eq"
    )
    do, avoid = _named(lesson.action), _named(lesson.avoid or "")
    if not do or not avoid:
        do, avoid = (frozenset(words(text)) - asking_words for text in (lesson.action, lesson.avoid or ""))
    return Telling(tools, do - avoid - fields, avoid - do - fields)


def contradict(one: Telling, other: Telling) -> bool:
    """Is what the one says to do what the other says to avoid?"""
    return one.tools == other.tools and (_within(one.wanted, other.unwanted) or _within(other.wanted, one.unwanted))


@dataclass(frozen=True, slots=True)
class Strength:
    """Which of two lessons counts, now."""

    now: datetime
    settings: ConfidenceSettings

    def stronger(self, one: Experience, other: Experience) -> Experience:
        won = winner(_contender(one), _contender(other), self.now, self.settings)
        return one if won.id == one.id else other


def agreeing(
    found: Sequence[Advised],
    told: Sequence[Experience],
    failed: frozenset[UUID],
    strength: Strength,
    asking_words: frozenset[str],
) -> list[Advised]:
    """`found` in its order, without those that contradict a stronger one: of `found`, or of what this task was `told` before.

    `failed`: lessons that were followed in this task, by a call that failed.
    """
    lessons = {one.id: one for one in (*told, *(one.experience for one in found))}
    tellings = {one.id: telling(one, asking_words) for one in lessons.values()}

    def beaten_by(one: Experience, other: Experience) -> bool:
        if one.id == other.id or not contradict(tellings[one.id], tellings[other.id]):
            return False
        if (one.id in failed) != (other.id in failed):
            return one.id in failed
        return strength.stronger(one, other) is other

    return [one for one in found if not any(beaten_by(one.experience, other) for other in lessons.values())]


def _within(part: frozenset[str], whole: frozenset[str]) -> bool:
    return bool(part) and part <= whole


def _named(text: str) -> frozenset[str]:
    """What a text quotes; of an example ("written like …") its form, since another lesson has another example."""
    found = ((match.group(1), next(filter(None, match.groups()[1:]))) for match in _NAMED.finditer(text))
    return frozenset(_form(value) if like else value for like, value in found)


def _form(example: str) -> str:
    for pattern, sign in _RUNS:
        example = pattern.sub(sign, example)
    return f"like {example}"


def _contender(lesson: Experience) -> Contender:
    return Contender(lesson.id, lesson.action, confidence_of(lesson), lesson.created_at)
