"""How relevant is a candidate, given what each lane says of it?  Pure.

Lanes are weighed by their scores, not by their ranks: equal-weight rank fusion loses wherever one lane is weak.  Keyword
scores are BM25 over the best that the query's terms could reach; cosine and keyword score together become a relevance by the
curves of calibration.py.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from memory_service.domain import Key, Lane
from memory_service.recall.calibration import Reading, logistics
from memory_service.scripts import Script
from memory_service.settings import Rank
from memory_service.stores.postgres.keyword_hits import KeywordHits

# ts_rank of one term that occurs n times with the default weight is 0.1 × (1 + 1/4 + … + 1/n²) × 6/π² (tsrank.c): it tells
# n exactly for small n, which is what BM25 needs.  A weight above bound number n - 1 means more than n occurrences.
OCCURRENCES_MAX = 8
OCCURRENCE_BOUNDS = [
    0.1 / 1.64493406685 * (sum(1 / i**2 for i in range(1, n + 1)) + 1 / (n + 1) ** 2 / 2)
    for n in range(1, OCCURRENCES_MAX)
]


class LaneScore(NamedTuple):
    """`rank` from 1; `score` 0..1, comparable within the lane; `raw` as the store gave it."""

    rank: int
    score: float
    raw: float


NO_SIGNALS: Mapping[str, float] = MappingProxyType({})


class Candidate(NamedTuple):
    """A memory that at least one lane found.

    `calibrated` 0..1 is how likely it answers, for thresholds.  `relevance` is what it is ranked by: the same evidence spread
    wider, and the plain keyword score where no vector lane answered.  `log_odds` is relevance before the logistic function, None
    without a vector lane; `signals` is what conversation.py added to it, by name.
    """

    id: Key
    lanes: Mapping[Lane, LaneScore]
    relevance: float
    calibrated: float
    log_odds: float | None = None
    signals: Mapping[str, float] = NO_SIGNALS

    @property
    def listed(self) -> float:
        """Its relevance as a reminder, by the lanes that only list; 0 when none of them has it."""
        return _listed(self.lanes)


def vector_scores(
    cosines: Mapping[Key, float], passages: Mapping[Key, Script], reading: Reading
) -> dict[Key, LaneScore]:
    """What the cosines alone mean."""
    _, odds = reading.all_log_odds([passages.get(i) for i in cosines], list(cosines.values()), None)
    return _ranked({i: (score, c) for (i, c), score in zip(cosines.items(), logistics(odds).tolist(), strict=True)})


def keyword_scores(
    hits: KeywordHits,
    corpus: tuple[int, float],
    rank: Rank,
    per_term: int,
    limit: int,
    terms_expected: int | None = None,
) -> dict[Key, LaneScore]:
    """BM25 (Robertson; Lucene's idf) of the best `limit` hits, over the best possible for this query.

    Of a long query no memory has every word.  Best possible is therefore to have the `terms_expected` rarest of its terms;
    None: all of them.

    `corpus` is (number of memories, average number of terms).  A term that fewer than `per_term` hits have was fetched in
    full, so its document frequency is exact; that of a commoner one is estimated from its share of the hits.
    """
    if not len(hits.ids):
        return {}
    weights = np.asarray(hits.weights, dtype=np.float64)
    count = max(corpus[0], len(hits.ids))
    found = (weights > 0).sum(axis=0)
    found = np.where(found < per_term, found, np.maximum(found, count * found / len(hits.ids)))
    idf = np.log1p((count - found + 0.5) / (found + 0.5))
    lengths = np.asarray(hits.lengths, dtype=np.float64) / corpus[1]
    norm = rank.bm25_k1 * (1 - rank.bm25_b + rank.bm25_b * lengths)[:, None]
    times = np.where(weights > 0, 1 + np.searchsorted(OCCURRENCE_BOUNDS, weights), 0)
    raw = (idf * times * (rank.bm25_k1 + 1) / (times + norm)).sum(axis=1)
    best = float(np.sort(idf)[::-1][:terms_expected].sum()) * (rank.bm25_k1 + 1) or 1.0
    top = np.argsort(-raw, kind="stable")[:limit]  # hits come in the order of their ids, so equal ones stay in it
    scored = zip(top.tolist(), np.minimum(raw[top] / best, 1.0).tolist(), raw[top].tolist(), strict=True)
    return {hits.ids[n]: LaneScore(place, score, own) for place, (n, score, own) in enumerate(scored, 1)}


def listed_scores(ids: Sequence[Key], relevance: float) -> dict[Key, LaneScore]:
    """A lane that only lists: the same small relevance for each, in its order."""
    return {i: LaneScore(position, relevance, relevance) for position, i in enumerate(ids, 1)}


def fuse(
    lanes: Mapping[Lane, Mapping[Key, LaneScore]],
    passages: Mapping[Key, Script],
    reading: Reading,
    missing_cosine: float | None = None,
) -> list[Candidate]:
    """Candidates, the most relevant first.

    `missing_cosine` is that of candidates which the vector lane did not return; None when nobody knows theirs, because they
    are not indexed yet: then their words alone count.
    """
    found = _by_memory(lanes)
    keywords = (
        [one["keyword"].score if "keyword" in one else 0.0 for one in found.values()] if "keyword" in lanes else None
    )
    odds: list[float | None] = [None] * len(found)
    if "vector" in lanes:
        cosines = [one["vector"].raw if "vector" in one else missing_cosine for one in found.values()]
        ranking, plain = reading.all_log_odds([passages.get(i) for i in found], cosines, keywords)
        odds, relevances = ranking.tolist(), logistics(ranking / reading.temperature).tolist()
        calibrated = logistics(plain).tolist()
    else:
        relevances = [0.0] * len(found) if keywords is None else keywords
        unknown: list[float | None] = [None] * len(found)
        calibrated = [reading.relevance(None, None, one) for one in (unknown if keywords is None else keywords)]
    candidates = [
        Candidate(i, one, max(relevance, _listed(one)), sure, log_odds)
        for (i, one), relevance, sure, log_odds in zip(found.items(), relevances, calibrated, odds, strict=True)
    ]
    return sorted(candidates, key=lambda c: (-c.relevance, c.id))


def _ranked(scores: Mapping[Key, tuple[float, float]]) -> dict[Key, LaneScore]:
    ordered = sorted(scores.items(), key=lambda item: (-item[1][0], item[0]))
    return {i: LaneScore(position, score, raw) for position, (i, (score, raw)) in enumerate(ordered, 1)}


def _by_memory(lanes: Mapping[Lane, Mapping[Key, LaneScore]]) -> dict[Key, dict[Lane, LaneScore]]:
    """The lanes' scores of each memory."""
    found: dict[Key, dict[Lane, LaneScore]] = {}
    for lane, scores in lanes.items():
        for memory_id, score in scores.items():
            found.setdefault(memory_id, {})[lane] = score
    return found


def _listed(lanes: Mapping[Lane, LaneScore]) -> float:
    structured, recent = lanes.get("structured"), lanes.get("recent")
    return max(structured.score if structured else 0.0, recent.score if recent else 0.0)
