"""How relevant is a candidate, given what each lane says of it?  Pure.

Lanes are weighed by their scores, not by their ranks: equal-weight rank fusion loses wherever one lane is weak.  Keyword
scores are BM25 over the best that the query's terms could reach; cosine and keyword score together become a relevance by the
curves of calibration.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

import numpy as np

from memory_service.domain import Lane
from memory_service.recall.calibration import Reading
from memory_service.scripts import Script
from memory_service.settings import Rank
from memory_service.stores.postgres.memories import KeywordHits

# ts_rank of one term that occurs n times with the default weight is 0.1 × (1 + 1/4 + … + 1/n²) × 6/π² (tsrank.c): it tells
# n exactly for small n, which is what BM25 needs.  A weight above bound number n - 1 means more than n occurrences.
OCCURRENCES_MAX = 8
OCCURRENCE_BOUNDS = [
    0.1 / 1.64493406685 * (sum(1 / i**2 for i in range(1, n + 1)) + 1 / (n + 1) ** 2 / 2)
    for n in range(1, OCCURRENCES_MAX)
]


@dataclass(frozen=True, slots=True)
class LaneScore:
    """`rank` from 1; `score` 0..1, comparable within the lane; `raw` as the store gave it."""

    rank: int
    score: float
    raw: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """A memory that at least one lane found.

    `calibrated` 0..1 is how likely it answers, for thresholds.  `relevance` is what it is ranked by: the same evidence spread
    wider, and the plain keyword score where no vector lane answered.  `log_odds` is relevance before the logistic function, None
    without a vector lane; `signals` is what conversation.py added to it, by name.
    """

    id: UUID
    lanes: Mapping[Lane, LaneScore]
    relevance: float
    calibrated: float
    log_odds: float | None = None
    signals: Mapping[str, float] = field(default_factory=dict)

    @property
    def listed(self) -> float:
        """Its relevance as a reminder, by the lanes that only list; 0 when none of them has it."""
        return max((self.lanes[lane].score for lane in ("structured", "recent") if lane in self.lanes), default=0.0)


def vector_scores(
    cosines: Mapping[UUID, float], passages: Mapping[UUID, Script], reading: Reading
) -> dict[UUID, LaneScore]:
    """What the cosines alone mean."""
    return _ranked({i: (reading.relevance(passages.get(i), c, None), c) for i, c in cosines.items()})


def keyword_scores(
    hits: KeywordHits, corpus: tuple[int, float], rank: Rank, per_term: int, limit: int
) -> dict[UUID, LaneScore]:
    """BM25 (Robertson; Lucene's idf) of the best `limit` hits, over the best possible for this query.

    `corpus` is (number of memories, average number of terms).  A term that fewer than `per_term` hits have was fetched in
    full, so its document frequency is exact; that of a commoner one is estimated from its share of the hits.
    """
    if not hits.ids:
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
    best = float(idf.sum()) * (rank.bm25_k1 + 1) or 1.0
    top = np.argsort(-raw, kind="stable")[:limit]
    return _ranked({hits.ids[n]: (min(float(raw[n]) / best, 1.0), float(raw[n])) for n in top})


def listed_scores(ids: Sequence[UUID], relevance: float) -> dict[UUID, LaneScore]:
    """A lane that only lists: the same small relevance for each, in its order."""
    return {i: LaneScore(position, relevance, relevance) for position, i in enumerate(ids, 1)}


def fuse(
    lanes: Mapping[Lane, Mapping[UUID, LaneScore]],
    passages: Mapping[UUID, Script],
    reading: Reading,
    missing_cosine: float | None = None,
) -> list[Candidate]:
    """Candidates, the most relevant first.

    `missing_cosine` is that of candidates which the vector lane did not return; None when nobody knows theirs, because they
    are not indexed yet: then their words alone count.
    """
    candidates = []
    for memory_id in dict.fromkeys(_all_ids(lanes.values())):
        found = {lane: scores[memory_id] for lane, scores in lanes.items() if memory_id in scores}
        log_odds: float | None = None
        keyword = (found["keyword"].score if "keyword" in found else 0.0) if "keyword" in lanes else None
        if "vector" in lanes:
            cosine = found["vector"].raw if "vector" in found else missing_cosine
            script = passages.get(memory_id)
            odds = reading.rank_log_odds(script, cosine, keyword)
            log_odds, relevance, calibrated = odds, reading.spread(odds), reading.relevance(script, cosine, keyword)
        else:
            relevance, calibrated = keyword or 0.0, reading.relevance(None, None, keyword)
        one = Candidate(memory_id, found, relevance, calibrated, log_odds)
        candidates.append(replace(one, relevance=max(relevance, one.listed)))
    return sorted(candidates, key=lambda c: (-c.relevance, c.id))


def _ranked(scores: Mapping[UUID, tuple[float, float]]) -> dict[UUID, LaneScore]:
    ordered = sorted(scores.items(), key=lambda item: (-item[1][0], item[0]))
    return {i: LaneScore(position, score, raw) for position, (i, (score, raw)) in enumerate(ordered, 1)}


def _all_ids(lanes: Iterable[Mapping[UUID, LaneScore]]) -> Iterable[UUID]:
    for scores in lanes:
        yield from scores
