"""How relevant is a candidate, given what each lane says of it?  Pure.

Lanes are weighed by their scores, not by their ranks: equal-weight rank fusion loses wherever one lane is weak
(DESIGN, "Retrieval facts").  Every lane's score is first brought to 0..1: cosines by a logistic curve calibrated per
embedding model, keyword scores as BM25 over the best that the query's terms could reach.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from memory_service.domain import Lane
from memory_service.settings import Calibration, Rank
from memory_service.stores.postgres.memories import KeywordHit

# ts_rank of one term that occurs n times with the default weight is 0.1 × (1 + 1/4 + … + 1/n²) × 6/π² (tsrank.c): it tells
# n exactly for small n, which is what BM25 needs.
TS_RANK_UNIT = 0.1 / 1.64493406685
OCCURRENCES_MAX = 8


@dataclass(frozen=True, slots=True)
class LaneScore:
    """`rank` from 1; `score` 0..1, comparable within the lane; `raw` as the store gave it."""

    rank: int
    score: float
    raw: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """A memory that at least one lane found, and the relevance 0..1 that follows."""

    id: UUID
    lanes: Mapping[Lane, LaneScore]
    relevance: float


def vector_scores(cosines: Mapping[UUID, float], curve: Calibration) -> dict[UUID, LaneScore]:
    """relevance = 1 / (1 + exp(-slope × (cosine - midpoint)))."""
    scores = {
        i: (1.0 / (1.0 + math.exp(-curve.slope * (cosine - curve.midpoint))), cosine) for i, cosine in cosines.items()
    }
    return _ranked(scores)


def keyword_scores(
    hits: Sequence[KeywordHit], corpus: tuple[int, float], rank: Rank, complete: bool
) -> dict[UUID, LaneScore]:
    """BM25 (Robertson; Lucene's idf) of each hit over the best possible for this query.

    `corpus` is (number of memories, average number of terms).  With `complete` the hits are all memories that have any
    of the terms, so document frequencies are exact; otherwise they are estimated from the hits.
    """
    if not hits:
        return {}
    count = max(corpus[0], len(hits))
    scale = 1.0 if complete else count / len(hits)
    terms = len(hits[0].weights)
    found = [sum(1 for hit in hits if hit.weights[t] > 0) * scale for t in range(terms)]
    idf = [math.log(1 + (count - n + 0.5) / (n + 0.5)) if n <= count else 0.0 for n in found]
    best = sum(idf) * (rank.bm25_k1 + 1) or 1.0
    scores = {}
    for hit in hits:
        norm = rank.bm25_k1 * (1 - rank.bm25_b + rank.bm25_b * hit.term_count / corpus[1])
        frequencies = [_occurrences(weight) for weight in hit.weights]
        raw = sum(i * f * (rank.bm25_k1 + 1) / (f + norm) for i, f in zip(idf, frequencies, strict=True) if f)
        scores[hit.id] = (min(raw / best, 1.0), raw)
    return _ranked(scores)


def listed_scores(ids: Sequence[UUID], relevance: float) -> dict[UUID, LaneScore]:
    """A lane that only lists: the same small relevance for each, in its order."""
    return {i: LaneScore(position, relevance, relevance) for position, i in enumerate(ids, 1)}


def fuse(lanes: Mapping[Lane, Mapping[UUID, LaneScore]], rank: Rank, missing_vector: float) -> list[Candidate]:
    """Candidates with their relevance, the most relevant first.

    Relevance is the weighted mean of vector and keyword score over those of the two lanes that answered.  A candidate
    that the vector lane did not return has at most the score of the last one that it did, `missing_vector`.
    """
    weights = {"vector": rank.vector_weight, "keyword": rank.keyword_weight}
    answered = {lane: weight for lane, weight in weights.items() if lane in lanes}
    total = sum(answered.values()) or 1.0
    absent = {"vector": missing_vector, "keyword": 0.0}
    candidates = []
    for memory_id in dict.fromkeys(_all_ids(lanes.values())):
        found = {lane: scores[memory_id] for lane, scores in lanes.items() if memory_id in scores}
        relevance = (
            sum(
                weight * (found[lane].score if lane in found else absent[lane])
                for lane, weight in answered.items()
            )
            / total
        )
        listed = max((found[lane].score for lane in ("structured", "recent") if lane in found), default=0.0)
        candidates.append(Candidate(memory_id, found, max(relevance, listed)))
    return sorted(candidates, key=lambda c: (-c.relevance, c.id))


def _occurrences(weight: float) -> int:
    """How often a term occurs, from its ts_rank; counted to OCCURRENCES_MAX, beyond which BM25 hardly moves."""
    if weight <= 0:
        return 0
    total, n = 0.0, 0
    while n < OCCURRENCES_MAX and total + TS_RANK_UNIT / (n + 1) ** 2 / 2 < weight:
        n += 1
        total += TS_RANK_UNIT / n**2
    return max(n, 1)


def _ranked(scores: Mapping[UUID, tuple[float, float]]) -> dict[UUID, LaneScore]:
    ordered = sorted(scores.items(), key=lambda item: (-item[1][0], item[0]))
    return {i: LaneScore(position, score, raw) for position, (i, (score, raw)) in enumerate(ordered, 1)}


def _all_ids(lanes: Iterable[Mapping[UUID, LaneScore]]) -> Iterable[UUID]:
    for scores in lanes:
        yield from scores
