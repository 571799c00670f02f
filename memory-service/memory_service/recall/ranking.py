"""In which order are the hits given?  Pure.

score = relevance × (relevance_weight + freshness_weight × freshness) as the base: time discounts what is relevant, it does
not make anything relevant (DECISIONS 18).  Importance, confidence and heat nudge it, which decides between equals.  Scores
stay in 0..1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from memory_service.lifecycle.heat import heat_at
from memory_service.recall.fusion import Candidate
from memory_service.settings import Heat, Rank
from memory_service.stores.postgres.memories import RankFacts


@dataclass(frozen=True, slots=True)
class Ranked:
    """One hit with its final score and, for `explain`, what it is made of."""

    candidate: Candidate
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
    return sorted(ranked, key=lambda r: (-r.score, -r.candidate.id.int))


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
    return Ranked(candidate, min(max(base + sum(nudges.values()), 0.0), 1.0), fresh, nudges)
