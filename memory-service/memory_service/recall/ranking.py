"""In which order are the hits given?  Pure.

score = relevance × (relevance_weight + freshness_weight × freshness) as the base: time discounts what is relevant, it does
not make anything relevant (DECISIONS 18).  Importance, confidence and heat nudge it, which decides between equals.  Scores
stay in 0..1.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from heapq import nlargest
from uuid import UUID

import numpy as np
import numpy.typing as npt

from memory_service.domain import Key
from memory_service.lifecycle.heat import heats_at
from memory_service.recall.calibration import Vector
from memory_service.recall.fusion import Candidate, Candidates
from memory_service.settings import Heat, Rank
from memory_service.stores.postgres.rank_facts import RankFacts, microseconds

DAY_S = 86_400.0
Rows = npt.NDArray[np.void]


@dataclass(frozen=True, slots=True)
class Ranked:
    """One hit with its final score and, for `explain`, what it is made of.  `score` is `total`, cut to 0..1."""

    candidate: Candidate
    total: float
    score: float
    freshness: float
    nudges: Mapping[str, float]


def rank_candidates(
    candidates: Candidates,
    facts: RankFacts,
    now: datetime,
    numbers: Rank,
    heat: Heat,
    limit: int | None = None,
) -> list[Ranked]:
    """The best `limit` of those candidates of which there are facts; equal scores in the order of ids, the newer first."""
    places = {i: n for n, i in enumerate(candidates.ids) if i in facts.places}
    if not places:
        return []
    known = facts.numbers[[facts.places[i] for i in places]]
    fresh = _freshness(known, now, numbers)
    nudges = {
        "importance": numbers.importance_nudge * (known["importance"] - 0.5),
        "confidence": numbers.confidence_nudge * (known["confidence"] - 0.5),
        "heat": numbers.heat_nudge * (_warmth(known, now, heat) - 0.5),
    }
    relevance = candidates.relevance[list(places.values())]
    total = relevance * (numbers.relevance_weight + numbers.freshness_weight * fresh) + sum(nudges.values())
    conflicts = {i: conflict for i, conflict in zip(facts.ids, facts.conflicts, strict=True) if conflict is not None}
    wanted = len(places) if conflicts or limit is None else limit
    order = nlargest(wanted, zip(total.tolist(), places, range(len(places)), strict=True))

    def ranked(whole: float, i: Key, n: int) -> Ranked:
        own = {name: float(values[n]) for name, values in nudges.items()}
        return Ranked(candidates.one(places[i]), whole, min(max(whole, 0.0), 1.0), float(fresh[n]), own)

    best = [ranked(*one) for one in order]
    return (_newer_leads(best, conflicts) if conflicts else best)[:limit]


def _freshness(known: Rows, now: datetime, numbers: Rank) -> Vector:
    """1 / (1 + age / days); what lies in the future is as fresh as now."""
    days = np.where(known["semantic"], numbers.freshness_days_semantic, numbers.freshness_days)
    fresh: Vector = 1.0 / (1.0 + np.maximum(_seconds_since(known["occurred_at"], now) / DAY_S, 0.0) / days)
    return fresh


def _warmth(known: Rows, now: datetime, heat: Heat) -> Vector:
    """Heat at `now`, at most 1."""
    cooled_s = np.where(known["pinned"], 0.0, _seconds_since(known["heat_at"], now))
    return np.minimum(heats_at(known["heat"], cooled_s, heat), 1.0)


def _seconds_since(moments: npt.NDArray[np.int64], now: datetime) -> Vector:
    seconds: Vector = (microseconds(now) - moments) / 1e6
    return seconds


def _newer_leads(ranked: list[Ranked], conflicts: Mapping[Key, UUID]) -> list[Ranked]:
    """Of two that contradict each other the newer comes first until a person decides: it gets the older one's place.

    Ids are UUIDv7, so the greater one is the newer.
    """
    best: dict[UUID, Ranked] = {}
    for one in list(ranked):
        conflict = conflicts.get(one.candidate.id)
        if conflict is None:
            continue
        above = best.setdefault(conflict, one)
        if above is not one and one.candidate.id > above.candidate.id:
            nudges = {**one.nudges, "conflict": above.score - one.score}
            ranked = [r for r in ranked if r is not one]
            best[conflict] = replace(one, score=above.score, nudges=nudges)  # the third is measured by who leads now
            ranked.insert(ranked.index(above), best[conflict])
    return ranked
