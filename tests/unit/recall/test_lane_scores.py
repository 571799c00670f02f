"""What a lane says of the memories that it found, and which of them count."""

import pytest

from memory_service.recall.fusion import LaneScore, LaneScores
from tests.unit.recall.fact_factories import key

LANE = LaneScores([key(1), key(2), key(3)], [0.9, 0.5, 0.4], [9.0, 5.0, 4.0])


def test_a_lane_tells_rank_score_and_raw_value_of_what_it_found_the_best_first() -> None:
    assert list(LANE) == [key(1), key(2), key(3)]
    assert LANE[key(2)] == LaneScore(2, 0.5, 5.0)
    with pytest.raises(KeyError):
        LANE[key(4)]


def test_the_best_count_and_behind_them_those_that_another_lane_has_and_all_keep_their_ranks() -> None:
    counting = LANE.among({key(3)}, best=1)
    assert dict(counting) == {key(1): LaneScore(1, 0.9, 9.0), key(3): LaneScore(3, 0.4, 4.0)}
    assert dict(LANE.among({key(2), key(7)})) == {key(2): LANE[key(2)]}


def test_who_was_not_found_has_no_score_and_the_raw_value_that_is_given_for_them() -> None:
    asked = [key(3), key(4), key(1)]
    assert LANE.scores_of(asked) == [0.4, 0.0, 0.9]
    assert LANE.raw_of(asked, None) == [4.0, None, 9.0]
