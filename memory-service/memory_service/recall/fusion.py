"""How relevant is a candidate, given what each lane says of it?  Pure.

Lanes are weighed by their scores, not by their ranks: equal-weight rank fusion loses wherever one lane is weak.  Keyword
scores are BM25 over the best that the query's terms could reach; cosine and keyword score together become a relevance by the
curves of calibration.py.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import numpy as np

from memory_service.domain import Key, Lane
from memory_service.recall.calibration import Reading, Vector, logistics
from memory_service.scripts import Script
from memory_service.settings import Rank
from memory_service.stores.postgres.keyword_hits import KeywordHits

T = TypeVar("T")

# ts_rank of one term that occurs n times with the default weight is 0.1 × (1 + 1/4 + … + 1/n²) × 6/π² (tsrank.c): it tells
# n exactly for small n, which is what BM25 needs.  A weight above bound number n - 1 means more than n occurrences.
OCCURRENCES_MAX = 8
OCCURRENCE_BOUNDS = [
    0.1 / 1.64493406685 * (sum(1 / i**2 for i in range(1, n + 1)) + 1 / (n + 1) ** 2 / 2)
    for n in range(1, OCCURRENCES_MAX)
]


LISTING: tuple[Lane, ...] = ("structured", "recent")  # lanes that say that there is something, not how well it answers


class LaneScore(NamedTuple):
    """`rank` from 1; `score` 0..1, comparable within the lane; `raw` as the store gave it."""

    rank: int
    score: float
    raw: float


class LaneScores(Mapping[Key, LaneScore]):
    """What one lane says of each memory that it found, the best first.  Columns: most of it is never shown to anybody."""

    def __init__(self, ids: Sequence[Key], scores: Sequence[float], raw: Sequence[float]) -> None:
        self._places = {memory_id: place for place, memory_id in enumerate(ids)}
        self._scores = scores
        self._raw = raw

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._places)

    def __contains__(self, memory_id: object) -> bool:
        return memory_id in self._places

    def __getitem__(self, memory_id: Key) -> LaneScore:
        place = self._places[memory_id]
        return LaneScore(place + 1, self._scores[place], self._raw[place])

    def among(self, ids: Container[Key], best: int = 0) -> "LaneScores":
        """The same of these memories and of the `best` first only; ranks stay."""
        kept = LaneScores((), self._scores, self._raw)
        kept._places = {i: place for i, place in self._places.items() if place < best or i in ids}
        return kept

    def scores_of(self, ids: Sequence[Key]) -> list[float]:
        """The score of each, 0 of those that the lane did not find."""
        return self._column(self._scores, ids, 0.0)

    def raw_of(self, ids: Sequence[Key], missing: float | None) -> list[float | None]:
        return self._column(self._raw, ids, missing)

    def _column(self, values: Sequence[float], ids: Sequence[Key], missing: T) -> list[float | T]:
        places = self._places
        return [missing if (place := places.get(i)) is None else values[place] for i in ids]


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


@dataclass(frozen=True, slots=True)
class Candidates:
    """Candidates as columns, in no order: what is known of `ids[n]` is number n of each.  Iterating makes the objects.

    `listed` is the relevance as a reminder, by the lanes that only list; 0 where none of them has it.  `log_odds` is None without
    a vector lane; `signals` has those of whom there are some.
    """

    ids: Sequence[Key]
    lanes: Mapping[Lane, LaneScores]
    relevance: Vector
    calibrated: Vector
    listed: Vector
    log_odds: Vector | None = None
    signals: Mapping[Key, Mapping[str, float]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Candidate]:
        return map(self.one, range(len(self.ids)))

    def one(self, n: int) -> Candidate:
        memory_id = self.ids[n]
        return Candidate(
            memory_id,
            {lane: scores[memory_id] for lane, scores in self.lanes.items() if memory_id in scores},
            float(self.relevance[n]),
            float(self.calibrated[n]),
            None if self.log_odds is None else float(self.log_odds[n]),
            self.signals.get(memory_id, NO_SIGNALS),
        )


def vector_scores(cosines: Mapping[Key, float], passages: Mapping[Key, Script], reading: Reading) -> LaneScores:
    """What the cosines alone mean."""
    _, odds = reading.all_log_odds([passages.get(i) for i in cosines], list(cosines.values()), None)
    best_first = sorted(
        zip((-logistics(odds)).tolist(), cosines.keys(), cosines.values(), strict=True), key=itemgetter(0, 1)
    )
    return LaneScores([i for _, i, _ in best_first], [-s for s, _, _ in best_first], [c for _, _, c in best_first])


def keyword_scores(
    hits: KeywordHits,
    corpus: tuple[int, float],
    rank: Rank,
    per_term: int,
    limit: int,
    terms_expected: int | None = None,
) -> LaneScores:
    """BM25 (Robertson; Lucene's idf) of the best `limit` hits, over the best possible for this query.

    Of a long query no memory has every word.  Best possible is therefore to have the `terms_expected` rarest of its terms;
    None: all of them.

    `corpus` is (number of memories, average number of terms).  A term that fewer than `per_term` hits have was fetched in
    full, so its document frequency is exact; that of a commoner one is estimated from its share of the hits.
    """
    if not len(hits.ids):
        return LaneScores((), (), ())
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
    return LaneScores([hits.ids[n] for n in top.tolist()], np.minimum(raw[top] / best, 1.0).tolist(), raw[top].tolist())


def listed_scores(ids: Sequence[Key], relevance: float) -> LaneScores:
    """A lane that only lists: the same small relevance for each, in its order."""
    same = [relevance] * len(ids)
    return LaneScores(ids, same, same)


def fuse(
    lanes: Mapping[Lane, LaneScores],
    passages: Mapping[Key, Script],
    reading: Reading,
    missing_cosine: float | None = None,
) -> Candidates:
    """Everything that a lane found, with its relevance.

    `missing_cosine` is that of candidates which the vector lane did not return; None when nobody knows theirs, because they
    are not indexed yet: then their words alone count.
    """
    ids = list(dict.fromkeys(chain.from_iterable(lanes.values())))
    keywords = lanes["keyword"].scores_of(ids) if "keyword" in lanes else None
    odds: Vector | None = None
    if "vector" in lanes:
        cosines = lanes["vector"].raw_of(ids, missing_cosine)
        odds, plain = reading.all_log_odds([passages.get(i) for i in ids], cosines, keywords)
        relevance = reading.spreads(odds)
    else:
        _, plain = reading.all_log_odds([None] * len(ids), [None] * len(ids), keywords)
        relevance = np.zeros(len(ids)) if keywords is None else np.array(keywords)
    listed = np.zeros(len(ids))
    for lane in LISTING:
        if lane in lanes:
            listed = np.maximum(listed, lanes[lane].scores_of(ids))
    return Candidates(ids, lanes, np.maximum(relevance, listed), logistics(plain), listed, odds)
