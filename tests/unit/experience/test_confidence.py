"""Where confidence starts, what moves it, how it fades, and which of two lessons wins."""

from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_service.experience import confidence as c
from memory_service.experience.confidence_settings import ConfidenceSettings
from tests.unit.experience.condition_factories import CONFIDENCE, NOW

DAY = timedelta(days=1)
HALF_LIFE = timedelta(days=CONFIDENCE.half_life_days)


def start(value: float = 0.8, at: datetime = NOW) -> c.Confidence:
    return c.started("success", at, CONFIDENCE, given=value)


def after(current: c.Confidence, at: datetime, settings: ConfidenceSettings = CONFIDENCE) -> float:
    return c.effective(current.value, current.ledger, at, settings)


def contender(number: int, value: float, *, at: datetime = NOW, created_at: datetime = NOW) -> c.Contender:
    return c.Contender(UUID(int=number), "do it", start(value, at), created_at)


@pytest.mark.parametrize(
    ("origin", "value"), [("success", 0.8), ("failure", 0.6), ("detour", 0.5), ("feedback", 0.9), ("insight", 0.5)]
)
def test_confidence_starts_by_how_it_was_learned(origin: Any, value: float) -> None:
    begun = c.started(origin, NOW, CONFIDENCE)
    assert begun.value == value
    assert begun.ledger == (c.LedgerEntry(NOW, "started", value),)


def test_a_persons_number_wins_and_may_be_certain() -> None:
    begun = c.started("failure", NOW, CONFIDENCE, given=1)
    assert (begun.value, begun.ledger[0].cause) == (1.0, "given")


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_a_number_outside_0_to_1_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        c.started("success", NOW, CONFIDENCE, given=value)
    with pytest.raises(ValueError, match="between 0 and 1"):
        c.given(start(), value, NOW, CONFIDENCE)


def test_success_moves_up_and_failure_moves_down_further() -> None:
    up, down = c.used(start(0.5), True, NOW, CONFIDENCE), c.used(start(0.5), False, NOW, CONFIDENCE)
    assert up.ledger[-1].cause == "used_success"
    assert down.ledger[-1].cause == "used_failure"
    assert 0 < up.value - 0.5 < 0.5 - down.value


def test_steps_get_smaller_and_never_reach_certainty() -> None:
    current, steps = start(0.5), []
    for _ in range(100):
        moved = c.used(current, True, NOW, CONFIDENCE)
        steps.append(moved.value - current.value)
        current = moved
    assert all(later < earlier for earlier, later in pairwise(steps[:20]))
    assert 0.98 < current.value <= CONFIDENCE.confidence_max
    for _ in range(100):
        current = c.used(current, False, NOW, CONFIDENCE)
    assert CONFIDENCE.confidence_min <= current.value < 0.02


def test_success_never_lowers_what_a_person_set_to_certain() -> None:
    assert c.used(start(1.0), True, NOW, CONFIDENCE).value == 1.0
    assert c.used(start(0.0), False, NOW, CONFIDENCE).value == 0.0
    assert c.used(start(1.0), False, NOW, CONFIDENCE).value < 1.0


def test_learning_the_same_again_is_weaker_evidence_than_using_it() -> None:
    again, used = c.reinforced(start(0.5), NOW, CONFIDENCE), c.used(start(0.5), True, NOW, CONFIDENCE)
    assert 0.5 < again.value < used.value
    assert again.ledger[-1].cause == "reinforced"


def test_half_of_what_is_above_the_floor_is_gone_after_the_half_life() -> None:
    assert after(start(0.8), NOW + HALF_LIFE) == pytest.approx(0.5)
    assert after(start(0.8), NOW + 40 * HALF_LIFE) == pytest.approx(CONFIDENCE.faded_min)


def test_a_low_confidence_does_not_fade_and_a_clock_behind_fades_nothing() -> None:
    assert after(start(0.1), NOW + 9 * HALF_LIFE) == 0.1
    assert after(start(0.8), NOW - 9 * DAY) == 0.8
    assert c.effective(0.8, (), NOW, CONFIDENCE) == 0.8


def test_a_change_books_what_has_faded_before_it_moves() -> None:
    changed = c.used(start(0.8), True, NOW + HALF_LIFE, CONFIDENCE)
    assert [entry.cause for entry in changed.ledger] == ["given", "faded", "used_success"]
    assert changed.ledger[1].delta == pytest.approx(-0.3)
    assert after(changed, NOW + HALF_LIFE) == changed.value


EVENTS = st.lists(
    st.tuples(st.sampled_from(("success", "failure", "reinforced", "given")), st.floats(0, 1), st.integers(-5, 400)),
    max_size=40,
)


@given(st.floats(0, 1), EVENTS, st.integers(2, 12))
def test_the_ledger_adds_up_stays_ordered_and_bounded(
    first: float, events: list[tuple[str, float, int]], most: int
) -> None:
    settings = CONFIDENCE.model_copy(update={"ledger_entries_max": most})
    current, now = start(first), NOW
    for what, value, days in events:
        now += days * DAY
        if what == "given":
            current = c.given(current, value, now, settings)
        elif what == "reinforced":
            current = c.reinforced(current, now, settings)
        else:
            current = c.used(current, what == "success", now, settings)
        assert 0 <= current.value <= 1
        assert sum(entry.delta for entry in current.ledger) == pytest.approx(current.value, abs=1e-5)
        assert len(current.ledger) <= most
        times = [entry.at for entry in current.ledger]
        assert times == sorted(times)


@given(st.floats(0, 1), st.integers(0, 5000), st.integers(0, 5000))
def test_time_alone_never_raises_confidence(value: float, one: int, more: int) -> None:
    current = start(value)
    assert after(current, NOW + (one + more) * DAY) <= after(current, NOW + one * DAY) <= current.value


@given(*[st.tuples(st.integers(0, 1000), st.integers(0, 2000))] * 2, st.integers(0, 4000))
def test_strength_sorts_like_effective_confidence_at_every_later_moment(
    one: tuple[int, int], other: tuple[int, int], later: int
) -> None:
    now = NOW + (2000 + later) * DAY
    faded = [c.effective(v / 1000, start(v / 1000, NOW + d * DAY).ledger, now, CONFIDENCE) for v, d in (one, other)]
    strong = [c.strength(v / 1000, NOW + d * DAY, CONFIDENCE) for v, d in (one, other)]
    if abs(faded[0] - faded[1]) > 1e-9:
        assert (faded[0] > faded[1]) == (strong[0] > strong[1])


def test_strength_min_keeps_what_is_confident_enough_now() -> None:
    now = NOW + 100 * DAY
    for value in (0.05, 0.2, 0.3, 0.5, 0.8, 1.0):
        for least in (0.01, 0.1, 0.25, 0.4, 0.6):
            enough = c.effective(value, start(value).ledger, now, CONFIDENCE) >= least
            assert (c.strength(value, NOW, CONFIDENCE) >= c.strength_min(least, now, CONFIDENCE)) == enough
    assert c.strength(0.8, now, CONFIDENCE) >= c.strength_min(0.8, now, CONFIDENCE)


def test_the_more_confident_lesson_wins() -> None:
    older, newer = contender(1, 0.9), contender(2, 0.5, created_at=NOW + DAY)
    assert c.winner(older, newer, NOW, CONFIDENCE) is older
    assert c.winner(newer, older, NOW, CONFIDENCE) is older


def test_between_equally_confident_lessons_the_newer_wins() -> None:
    older, newer = contender(1, 0.8), contender(2, 0.8, created_at=NOW + DAY)
    assert c.winner(older, newer, NOW, CONFIDENCE) is newer
    assert c.winner(newer, older, NOW, CONFIDENCE) is newer


def test_a_confident_lesson_that_has_faded_loses_to_a_fresh_one() -> None:
    faded, fresh = contender(1, 0.9, at=NOW - 2 * HALF_LIFE), contender(2, 0.6)
    assert c.winner(faded, fresh, NOW, CONFIDENCE) is fresh


@given(*[st.tuples(st.integers(1, 9), st.sampled_from((0.5, 0.8)), st.integers(0, 2))] * 2)
def test_the_winner_does_not_depend_on_who_asks_first(
    one: tuple[int, float, int], other: tuple[int, float, int]
) -> None:
    a, b = (contender(n, v, created_at=NOW + d * DAY) for n, v, d in (one, other))
    assert c.winner(a, b, NOW, CONFIDENCE) == c.winner(b, a, NOW, CONFIDENCE) or a.id == b.id


def test_spelling_alone_does_not_make_another_action() -> None:
    assert c.same_action("Retry  with\nbackoff", "retry with ｂackoff")
    assert not c.same_action("retry", "do not retry")
