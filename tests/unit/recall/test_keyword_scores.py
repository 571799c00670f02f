"""What a keyword score is measured against."""

import math
from uuid import UUID

import pytest

from memory_service.recall.fusion import LaneScore, keyword_scores
from memory_service.settings import load_settings, load_tunables
from memory_service.stores.postgres.keyword_hits import KeywordHits

RANK = load_tunables(load_settings()).rank
ONCE = 0.0607927  # ts_rank of a term that occurs once
CORPUS = (1_000, 10.0)


def scores(*memories: list[bool], expected: int | None = None, limit: int = 10) -> list[LaneScore]:
    """Of memories that have these of the query's terms once each."""
    hits = KeywordHits(
        [UUID(int=n) for n in range(1, len(memories) + 1)],
        [10] * len(memories),
        [tuple(ONCE if has else 0.0 for has in one) for one in memories],
    )
    return list(keyword_scores(hits, CORPUS, RANK, 150, limit, expected).values())


def test_a_memory_with_so_many_terms_as_can_be_expected_has_all_of_the_score() -> None:
    half = [True] * 8 + [False] * 8
    (all_expected,), (some_expected,) = scores(half), scores(half, expected=8)
    assert all_expected.score == pytest.approx(some_expected.score * sum_of_idf(half, 8) / sum_of_idf(half, 16))
    assert some_expected.score > all_expected.score
    assert some_expected.raw == all_expected.raw


def sum_of_idf(terms: list[bool], rarest: int) -> float:
    """Of 1,000 memories one has these terms, nobody the others."""
    weights = sorted((math.log1p(999.5 / 1.5) if has else math.log1p(1000.5 / 0.5) for has in terms), reverse=True)
    return sum(weights[:rarest])


def test_a_query_of_few_terms_is_measured_against_all_of_them() -> None:
    one = [True, True, False]
    assert scores(one, expected=8) == scores(one)


def test_no_score_is_above_1() -> None:
    (one,) = scores([True] * 24, expected=2)
    assert one.score == 1.0


def test_of_the_scored_only_the_best_are_kept() -> None:
    told = scores([True, True], [True, False], [False, True], limit=1)
    assert [one.rank for one in told] == [1]
