"""In which order do hits come, and what is each score made of?"""

from datetime import timedelta
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from memory_service.lifecycle.heat import heat_at
from memory_service.recall.fusion import Candidates
from memory_service.recall.ranking import Ranked, rank_candidates
from memory_service.settings import load_settings, load_tunables
from tests.unit.recall.fact_factories import NOW, Known, columns, key

NUMBERS = load_tunables(load_settings())
RANK, HEAT = NUMBERS.rank, NUMBERS.heat


def facts(number: int, **fields: Any) -> Known:
    return Known(key(number), **fields)


def ranked(relevances: dict[int, float], known: list[Known], limit: int | None = None) -> list[Ranked]:
    relevance = np.array(list(relevances.values()))
    candidates = Candidates([key(n) for n in relevances], {}, relevance, relevance, np.zeros(len(relevance)))
    return rank_candidates(candidates, columns(known), NOW, RANK, HEAT, limit)


def order(found: list[Ranked]) -> list[int]:
    return [UUID(bytes=one.candidate.id).int for one in found]


def test_a_score_is_relevance_discounted_by_age_with_its_nudges() -> None:
    one = facts(
        1,
        occurred_at=NOW - timedelta(days=60),
        importance=0.9,
        confidence=0.2,
        heat=0.8,
        heat_at=NOW - timedelta(days=7),
    )
    (found,) = ranked({1: 0.7}, [one])
    fresh = 1 / (1 + 60 / RANK.freshness_days)
    nudges = {
        "importance": RANK.importance_nudge * 0.4,
        "confidence": RANK.confidence_nudge * -0.3,
        "heat": RANK.heat_nudge * (heat_at(0.8, one.heat_at, NOW, HEAT) - 0.5),
    }
    assert found.freshness == pytest.approx(fresh)
    assert found.nudges == pytest.approx(nudges)
    assert found.score == pytest.approx(
        0.7 * (RANK.relevance_weight + RANK.freshness_weight * fresh) + sum(nudges.values())
    )


def test_what_is_known_ages_more_slowly_than_what_happened_and_the_future_is_as_fresh_as_now() -> None:
    old = NOW - timedelta(days=300)
    known = [
        facts(1, occurred_at=old), facts(2, occurred_at=old, semantic=True), facts(3, occurred_at=NOW + timedelta(days=9))
    ]  # fmt: skip
    found = ranked({1: 0.5, 2: 0.5, 3: 0.5}, known)
    assert order(found) == [3, 2, 1]
    assert found[0].freshness == 1.0


def test_only_the_best_are_given_and_equal_ones_newer_first() -> None:
    known = [facts(n) for n in range(1, 7)]
    found = ranked({1: 0.5, 2: 0.9, 3: 0.5, 4: 0.5, 5: 0.1, 6: 0.2}, known, 3)
    assert order(found) == [2, 4, 3]
    assert order(ranked({1: 0.5, 2: 0.9, 9: 1.0}, known, 5)) == [2, 1]  # of 9 there are no facts
    assert ranked({}, [], 3) == []


def test_of_a_contradiction_the_newer_takes_the_place_of_the_older_also_from_behind_the_limit() -> None:
    conflict = UUID(int=77)
    known = [facts(1, conflict_id=conflict), facts(2), facts(3, conflict_id=conflict)]
    found = ranked({1: 0.9, 2: 0.5, 3: 0.1}, known, 2)
    assert order(found) == [3, 1]
    assert found[0].score == found[1].score
    assert found[0].nudges["conflict"] > 0


def test_scores_stay_between_0_and_1() -> None:
    high = facts(1, importance=1.0, confidence=1.0, heat=5.0)
    low = facts(2, importance=0.0, confidence=0.0, heat=0.0)
    found = ranked({1: 1.0, 2: 0.0}, [high, low])
    assert [one.score for one in found] == [1.0, 0.0]
