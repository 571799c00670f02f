"""In which order are the hits given?  Pure.

score = relevance × (relevance_weight + freshness_weight × freshness) as the base: time discounts what is relevant, it does
not make anything relevant (DECISIONS 18).  Importance, confidence and heat nudge it, which decides between equals.  Scores
stay in 0..1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from memory_service.lifecycle.heat import heat_at
from memory_service.recall.fusion import Candidate
from memory_service.settings import Heat, Rank
from memory_service.stores.postgres.memories import RankFacts


@dataclass(frozen=True, slots=True)
class Ranked:
    """One hit with its final score and, for `explain`, what it is made of.  `score` is `total`, cut to 0..1."""

    candidate: Candidate
    total: float
    score: float
    freshness: float
    nudges: Mapping[str, float]


def freshness(occurred_at: datetime, now: datetime, days: float) -> float:
    """1 / (1 + age / days); what lies in the future is as fresh as now."""
    return 1.0 / (1.0 + max((now - occurred_at) / timedelta(days=1), 0.0) / days)


def rank_candidates(
    candidates: Sequence[Candidate], facts: Mapping[UUID, RankFacts], now: datetime, numbers: Rank, heat: Heat
) -> list[Ranked]:
    """Those candidates of which there are facts, best first; equal scores in the order of ids, the newer first."""
    ranked = [_rank(c, facts[c.id], now, numbers, heat) for c in candidates if c.id in facts]
    ranked.sort(key=lambda r: (-r.total, -r.candidate.id.int))
    return _newer_leads(ranked, facts)


def _newer_leads(ranked: list[Ranked], facts: Mapping[UUID, RankFacts]) -> list[Ranked]:
    """Of two that contradict each other the newer comes first until a person decides: it gets the older one's place.

    Ids are UUIDv7, so the greater one is the newer.
    """
    best: dict[UUID, Ranked] = {}
    for one in list(ranked):
        conflict = facts[one.candidate.id].conflict_id
        if conflict is None:
            continue
        above = best.setdefault(conflict, one)
        if above is not one and one.candidate.id.int > above.candidate.id.int:
            nudges = {**one.nudges, "conflict": above.score - one.score}
            ranked = [r for r in ranked if r is not one]
            ranked.insert(ranked.index(above), replace(one, score=above.score, nudges=nudges))
    return ranked


def _rank(candidate: Candidate, facts: RankFacts, now: datetime, numbers: Rank, heat: Heat) -> Ranked:
    days = numbers.freshness_days if facts.kind == "episodic" else numbers.freshness_days_semantic
    fresh = freshness(facts.occurred_at, now, days)
    warmth = min(heat_at(facts.heat, facts.heat_at, now, heat, pinned=facts.pinned), 1.0)
    nudges = {
        "importance": numbers.importance_nudge * (facts.importance - 0.5),
        "confidence": numbers.confidence_nudge * (facts.confidence - 0.5),
        "heat": numbers.heat_nudge * (warmth - 0.5),
    }
    base = candidate.relevance * (numbers.relevance_weight + numbers.freshness_weight * fresh)
    total = base + sum(nudges.values())
    return Ranked(candidate, total, min(max(total, 0.0), 1.0), fresh, nudges)
