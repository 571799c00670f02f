"""Archive, restore, pin and feedback as pure decisions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from memory_service.errors import Conflict
from memory_service.lifecycle.ageing import archived, judged, pinned, restored, unpinned
from memory_service.lifecycle.heat import heat_at
from tests.unit.lifecycle.lifecycle_factories import HEAT, NOW, NUMBERS, a_memory

WEEK = timedelta(days=7)


def test_archiving_makes_a_new_version_that_is_cold_and_repeating_it_changes_nothing() -> None:
    memory = a_memory()
    cold = archived(memory, NOW + WEEK)
    assert (cold.state, cold.version, cold.updated_at) == ("cold", 2, NOW + WEEK)
    assert (cold.heat, cold.heat_at) == (memory.heat, memory.heat_at)
    assert archived(cold, NOW + 2 * WEEK) is cold


@pytest.mark.parametrize("state", ["superseded", "compressed"])
def test_what_is_out_of_use_for_another_reason_can_not_be_archived(state: Any) -> None:
    with pytest.raises(Conflict, match=state):
        archived(a_memory(state=state), NOW)


def test_a_restored_memory_is_as_warm_as_a_new_one() -> None:
    back = restored(a_memory(state="cold", heat=0.2), NOW + 10 * WEEK, HEAT)
    assert (back.state, back.version, back.heat, back.heat_at) == ("active", 2, HEAT.initial, NOW + 10 * WEEK)


def test_a_restored_memory_that_is_warmer_than_a_new_one_keeps_its_warmth() -> None:
    assert restored(a_memory(state="cold", heat=3.0), NOW, HEAT).heat == 3.0


def test_restoring_an_active_memory_changes_nothing_not_even_its_heat() -> None:
    memory = a_memory(heat=0.4)
    assert restored(memory, NOW + WEEK, HEAT) is memory


def test_a_superseded_memory_can_not_be_restored_and_a_compressed_one_is_free_again() -> None:
    with pytest.raises(Conflict, match="another one replaced it"):
        restored(a_memory(state="superseded", superseded_by=uuid4()), NOW, HEAT)
    back = restored(a_memory(state="compressed", superseded_by=uuid4(), heat=0.05), NOW, HEAT)
    assert (back.state, back.superseded_by, back.heat) == ("active", None, 1.0)


def test_a_pin_freezes_the_heat_of_that_moment_and_unpinning_lets_it_cool_from_then_on() -> None:
    held = pinned(a_memory(), NOW + WEEK, HEAT)
    assert held.heat == pytest.approx(0.9)
    much_later = NOW + 100 * WEEK
    assert heat_at(held.heat, held.heat_at, much_later, HEAT, pinned=True) == pytest.approx(0.9)
    free = unpinned(held, much_later)
    assert (free.pinned, free.version) == (False, 3)
    assert heat_at(free.heat, free.heat_at, much_later, HEAT) == pytest.approx(0.9)
    assert heat_at(free.heat, free.heat_at, much_later + WEEK, HEAT) == pytest.approx(0.81)
    assert pinned(held, much_later, HEAT) is held
    assert unpinned(free, much_later) is free


def test_success_adds_to_the_heat_that_is_left_and_makes_a_doubted_memory_surer() -> None:
    after = judged(a_memory(confidence=0.5), "success", NOW + WEEK, HEAT, NUMBERS)
    assert after.heat == pytest.approx(0.9 + 0.1)
    assert (after.heat_at, after.last_accessed_at) == (NOW + WEEK, NOW + WEEK)
    assert after.confidence == pytest.approx(0.55)
    assert after.version == 2


def test_what_only_moves_heat_makes_no_version() -> None:
    for outcome in ("success", "irrelevant"):
        assert judged(a_memory(), outcome, NOW, HEAT, NUMBERS).version == 1  # type: ignore[arg-type]


def test_failure_lowers_confidence_and_leaves_the_heat() -> None:
    after = judged(a_memory(confidence=0.8), "failure", NOW + WEEK, HEAT, NUMBERS)
    assert after.confidence == pytest.approx(0.6)
    assert after.heat == pytest.approx(0.9)
    assert after.version == 2


def test_irrelevant_cools_a_little_never_below_zero_and_does_not_touch_confidence() -> None:
    after = judged(a_memory(heat=0.02, confidence=0.7), "irrelevant", NOW, HEAT, NUMBERS)
    assert (after.heat, after.confidence, after.last_accessed_at) == (0.0, 0.7, None)


def test_outdated_costs_most_and_changes_no_state() -> None:
    after = judged(a_memory(), "outdated", NOW, HEAT, NUMBERS)
    assert (after.confidence, after.heat, after.state, after.valid_to) == (0.5, 0.5, "active", None)
    assert after.confidence < judged(a_memory(), "failure", NOW, HEAT, NUMBERS).confidence


def test_a_pinned_memory_does_not_cool_between_two_uses() -> None:
    held = a_memory(pinned=True)
    assert judged(held, "success", NOW + 50 * WEEK, HEAT, NUMBERS).heat == pytest.approx(1.1)


def test_confidence_stays_within_its_bounds_however_often_it_is_said() -> None:
    low = high = a_memory(confidence=0.5)
    for _ in range(300):
        low = judged(low, "outdated", NOW, HEAT, NUMBERS)
        high = judged(high, "success", NOW, HEAT, NUMBERS)
    assert 0 <= low.confidence < 0.001
    assert 0.999 < high.confidence <= 1
    assert high.version < 200  # steps too small to be seen make no versions
