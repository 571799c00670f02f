"""In which order are the hits given?  Pure.

score = relevance × (relevance_weight + freshness_weight × freshness) as the base: time discounts what is relevant, it does
not make anything relevant (DECISIONS 18).  Importance, confidence and heat nudge it, which decides between equals.  Scores
stay in 0..1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

import numpy as np

from memory_service.domain import Key
from memory_service.lifecycle.heat import heat_at
from memory_service.recall.calibration import Vector
from memory_service.recall.fusion import Candidate
from memory_service.settings import Heat, Rank
from memory_service.stores.postgres.memories import RankFacts

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Ranked:
    """One hit with its final score and, for `explain`, what it is made of.  `score` is `total`, cut to 0..1."""

    candidate: Candidate
    total: float
    score: float
    freshness: float
    nudges: Mapping[str, float]


def rank_candidates(
    candidates: Sequence[Candidate],
    facts: Mapping[Key, RankFacts],
    now: datetime,
    numbers: Rank,
    heat: Heat,
    limit: int | None = None,
) -> list[Ranked]:
    """The best `limit` of those candidates of which there are facts; equal scores in the order of ids, the newer first."""
    known = [(one, own) for one in candidates if (own := facts.get(one.id)) is not None]
    if not known:
        return []
    fresh = _freshness([own for _, own in known], now, numbers)
    nudges = {
        "importance": numbers.importance_nudge * (np.array([own.importance for _, own in known]) - 0.5),
        "confidence": numbers.confidence_nudge * (np.array([own.confidence for _, own in known]) - 0.5),
        "heat": numbers.heat_nudge * (_warmth([own for _, own in known], now, heat) - 0.5),
    }
    relevance = np.array([one.relevance for one, _ in known])
    total = relevance * (numbers.relevance_weight + numbers.freshness_weight * fresh) + sum(nudges.values())
    newest_first = sorted(range(len(known)), key=lambda n: known[n][0].id, reverse=True)
    order = sorted(newest_first, key=lambda n: -total[n])
    contradicted = any(own.conflict_id is not None for _, own in known)

    def ranked(n: int) -> Ranked:
        whole, own = float(total[n]), {name: float(values[n]) for name, values in nudges.items()}
        return Ranked(known[n][0], whole, min(max(whole, 0.0), 1.0), float(fresh[n]), own)

    best = [ranked(n) for n in (order if contradicted else order[:limit])]
    return (_newer_leads(best, facts) if contradicted else best)[:limit]


def _freshness(facts: Sequence[RankFacts], now: datetime, numbers: Rank) -> Vector:
    """1 / (1 + age / days); what lies in the future is as fresh as now."""
    days = np.array(
        [numbers.freshness_days if one.kind == "episodic" else numbers.freshness_days_semantic for one in facts]
    )
    age_days = np.array([(now - one.occurred_at).total_seconds() for one in facts]) / DAY_S
    fresh: Vector = 1.0 / (1.0 + np.maximum(age_days, 0.0) / days)
    return fresh


def _warmth(facts: Sequence[RankFacts], now: datetime, heat: Heat) -> Vector:
    """Heat at `now`, at most 1."""
    return np.minimum([heat_at(one.heat, one.heat_at, now, heat, pinned=one.pinned) for one in facts], 1.0)


def _newer_leads(ranked: list[Ranked], facts: Mapping[Key, RankFacts]) -> list[Ranked]:
    """Of two that contradict each other the newer comes first until a person decides: it gets the older one's place.

    Ids are UUIDv7, so the greater one is the newer.
    """
    best: dict[UUID, Ranked] = {}
    for one in list(ranked):
        conflict = facts[one.candidate.id].conflict_id
        if conflict is None:
            continue
        above = best.setdefault(conflict, one)
        if above is not one and one.candidate.id > above.candidate.id:
            nudges = {**one.nudges, "conflict": above.score - one.score}
            ranked = [r for r in ranked if r is not one]
            best[conflict] = replace(one, score=above.score, nudges=nudges)  # the third is measured by who leads now
            ranked.insert(ranked.index(above), best[conflict])
    return ranked
