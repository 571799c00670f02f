"""Which memories leave normal search by themselves, as a pure decision."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from memory_service.lifecycle.cooling import cools_down
from tests.unit.lifecycle.lifecycle_factories import HEAT, NOW, a_memory

DAY = timedelta(days=1)


def test_a_new_memory_that_nobody_uses_cools_down_after_80_days() -> None:
    memory = a_memory()  # 0.9 ^ (80 / 7) = 0.29990
    assert not cools_down(memory, NOW + 79 * DAY, HEAT)
    assert cools_down(memory, NOW + 80 * DAY, HEAT)


@pytest.mark.parametrize(
    "fields",
    [{"pinned": True}, {"state": "cold"}, {"state": "superseded"}, {"state": "compressed"}, {"conflict_id": uuid4()},
     {"expires_at": NOW + DAY}],
)  # fmt: skip
def test_what_is_pinned_out_of_use_in_an_open_conflict_or_past_its_end_is_left_alone(fields: dict[str, Any]) -> None:
    assert not cools_down(a_memory(heat=0.01, **fields), NOW + 400 * DAY, HEAT)


def test_exactly_the_threshold_is_still_warm() -> None:
    assert not cools_down(a_memory(heat=HEAT.cold_below), NOW, HEAT)
    assert cools_down(a_memory(heat=HEAT.cold_below - 1e-9), NOW, HEAT)


def test_both_kinds_cool_alike() -> None:
    for kind in ("episodic", "semantic"):
        assert cools_down(a_memory(kind=kind), NOW + 81 * DAY, HEAT)
