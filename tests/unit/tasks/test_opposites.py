"""Which of two lessons that tell the opposite is told."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from memory_service.domain import Experience
from memory_service.experience.confidence import started
from memory_service.experience.confidence_settings import ConfidenceSettings
from memory_service.experience.succession import with_confidence
from memory_service.settings import load_tunables
from memory_service.tasks.opposites import Strength, agreeing, contradict, telling
from tests.unit.tasks.task_factories import NOON, SETTINGS, advised, lesson, task_numbers

ASKING = frozenset(task_numbers().asking_words)
CONFIDENCE = load_tunables(SETTINGS).section("experience_confidence", ConfidenceSettings)
STRENGTH = Strength(NOON, CONFIDENCE)


def sure(action: str, avoid: str | None, given: float, days: float = 0, **fields: Any) -> Experience:
    made = lesson(action, avoid, **fields)
    at = NOON - timedelta(days=days)
    return replace(with_confidence(made, started("feedback", at, CONFIDENCE, given)), created_at=at)


def types(do: str, avoid: str) -> tuple[str, str]:
    return f'Call `send` with `type` = "{do}".', f'Calling `send` with `type` = "{avoid}".'


@pytest.mark.parametrize(
    ("one", "other", "opposite"),
    [
        (types("form", "json"), types("json", "form"), True),
        (types("form", "json"), types("json", "text"), True),  # what one says to do the other says to avoid
        (types("form", "json"), types("form", "text"), False),
        (types("form", "json"), types("form", "json"), False),
        (("use v2", "calling v1"), ("Use V1", "v2"), True),
        (("use v2", "v1"), ("use v2 with a key", "v2 without one"), False),
        (("use v2", None), ("use v1", "calling v2"), True),
        (("use v2", None), ("use v1", None), False),
        (("Call `q` with `c` written like `UnitPrice`.", "Calling `q` with `c` written like `unitprice`."),
         ("Call `q` with `c` written like `orderdate`.", "Calling `q` with `c` written like `OrderDate`."), True),
        (("Call `f` without `x`.", "Calling `f` with `x`."), ("Call `f` without `x`.", "Calling `f` with `x`."), False),
        (("先登录", "直接下单"), ("直接下单", "先登录"), True),
    ],
)  # fmt: skip
def test_two_lessons_are_opposite_when_one_says_to_do_what_the_other_says_to_avoid(
    one: tuple[str, str | None], other: tuple[str, str | None], opposite: bool
) -> None:
    left, right = (telling(lesson(*texts), ASKING) for texts in (one, other))
    assert contradict(left, right) is opposite
    assert contradict(right, left) is opposite


def test_lessons_about_different_tools_are_not_opposite() -> None:
    other = lesson(*types("json", "form"), conditions=({"field": "tool", "operator": "eq", "value": "post"},))
    assert not contradict(telling(lesson(*types("form", "json")), ASKING), telling(other, ASKING))


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_opposites_the_more_confident_is_told_and_of_equals_the_newer(order: int) -> None:
    weak, strong = sure(*types("form", "json"), 0.5), sure(*types("json", "form"), 0.7, days=1)
    found = [advised(weak), advised(strong)][::order]
    assert [one.experience for one in agreeing(found, (), frozenset(), STRENGTH, ASKING)] == [strong]
    newer, older = sure(*types("form", "json"), 0.5), sure(*types("json", "form"), 0.5, days=1e-6)
    found = [advised(newer), advised(older)][::order]
    assert [one.experience for one in agreeing(found, (), frozenset(), STRENGTH, ASKING)] == [newer]


def test_confidence_counts_as_it_is_now() -> None:
    faded, fresh = sure(*types("form", "json"), 0.8, days=720), sure(*types("json", "form"), 0.5)
    found = [advised(faded), advised(fresh)]
    assert [one.experience for one in agreeing(found, (), frozenset(), STRENGTH, ASKING)] == [fresh]


def test_a_lesson_that_this_task_was_told_silences_a_weaker_opposite_until_it_fails() -> None:
    weak, strong = sure(*types("form", "json"), 0.5), sure(*types("json", "form"), 0.7)
    assert agreeing([advised(weak)], [strong], frozenset(), STRENGTH, ASKING) == []
    assert len(agreeing([advised(strong)], [weak], frozenset(), STRENGTH, ASKING)) == 1
    failed = frozenset({strong.id})
    assert len(agreeing([advised(weak)], [strong], failed, STRENGTH, ASKING)) == 1
    assert agreeing([advised(strong)], [weak], failed, STRENGTH, ASKING) == []


def test_lessons_that_agree_all_stay_in_their_order() -> None:
    found = [advised(sure(*types("form", "json"), 0.5)), advised(sure(*types("form", "text"), 0.9)), advised(lesson())]
    assert agreeing(found, (), frozenset(), STRENGTH, ASKING) == found
