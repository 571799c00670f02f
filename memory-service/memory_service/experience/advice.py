"""Which lessons apply now?  Conditions first, meaning second, one per set of conditions.

Exact matches come first, then partial ones, then those found by meaning alone.  Without a state, `conditions` decide: a lesson
that consists of exactly the given triples is an exact match, one that has more is a partial one.

Scores, 0..1: exact = confidence now; partial = partial_weight × share of true triples × confidence; semantic = relevance.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from memory_service.domain import Experience
from memory_service.experience.active import ActiveLessons, Facts, UserLessons
from memory_service.experience.condition_index import Hit
from memory_service.experience.conditions import Condition, parse_conditions
from memory_service.experience.confidence import effective, strength_min
from memory_service.experience.drafts import Advised, ExperienceQuery, MatchWord, QueryAnswer
from memory_service.experience.matching import Evaluator, Match
from memory_service.experience.semantic import Meant, SemanticLessons
from memory_service.experience.store import LessonRules, canonical
from memory_service.experience.succession import confidence_of
from memory_service.recall.fusion import Candidate
from memory_service.settings import Rank
from memory_service.stores.postgres import experiences
from memory_service.stores.postgres.pool import Postgres

ORDER: Mapping[MatchWord, int] = {"exact": 0, "partial": 1, "semantic": 2}
NOTHING = Match(None, (), (), ())


@dataclass(frozen=True, slots=True)
class _Found:
    """A lesson that its conditions brought."""

    id: UUID
    match: MatchWord
    how: Match


@dataclass(frozen=True, slots=True)
class _Asked:
    """A query with its parsed conditions and its state as the lessons see it."""

    query: ExperienceQuery
    carried: tuple[Condition, ...]
    state: Mapping[str, Any] | None
    strength_min: float | None

    def accepts(self, facts: Facts) -> bool:
        """A lesson without a task type applies to tasks of every type."""
        wanted = self.query
        return (
            (wanted.task_type is None or facts.task_type in (None, wanted.task_type))
            and (not wanted.tags or not facts.tags.isdisjoint(wanted.tags))
            and canonical(self.carried) <= canonical(facts.conditions)
        )


class Advice:
    """Queries."""

    def __init__(
        self, postgres: Postgres, active: ActiveLessons, semantic: SemanticLessons, rules: LessonRules, rank: Rank
    ) -> None:
        self._postgres = postgres
        self._active = active
        self._semantic = semantic
        self._rules = rules
        self._rank = rank

    async def query(self, query: ExperienceQuery) -> QueryAnswer:
        """Raises InvalidFields for bad conditions, StoreUnavailable when Postgres is down."""
        asked = self._asked(query)
        found: list[_Found] = []
        if asked.state is not None or asked.carried:
            for user_id in query.user_ids:
                found += await self._active.search(
                    query.tenant, user_id, lambda lessons: _matching(lessons, asked, query.limit)
                )
        meant = Meant([], [])
        if query.semantic_query is not None:
            meant = await self._semantic.find(query.semantic_query, query.tenant, query.user_ids)
        results = await self._results(asked, found, meant.candidates)
        return QueryAnswer(_best(results, query.limit), meant.degraded)

    def _asked(self, query: ExperienceQuery) -> _Asked:
        carried = parse_conditions(query.conditions, self._rules.limits) if query.conditions is not None else ()
        state = query.state
        if state is not None and query.task_type is not None:
            state = {"task_type": query.task_type, **state}
        lowest = query.min_confidence
        least = None if lowest is None else strength_min(lowest, query.now, self._rules.confidence)
        return _Asked(query, carried, state, least)

    async def _results(self, asked: _Asked, found: Sequence[_Found], meant: Sequence[Candidate]) -> list[Advised]:
        """The rows as they are now, those that are still active and pass the filters."""
        by_id = {one.id: one for one in found}
        relevant = {candidate.id: candidate for candidate in meant}
        ids = list(dict.fromkeys((*by_id, *relevant)))
        if not ids:
            return []
        rows = await self._postgres.read(lambda c: experiences.get_active(c, asked.query.tenant, ids))
        evaluator = Evaluator(self._rules.limits)  # of its own, since threads must not share one

        def judged() -> list[Advised]:
            made = (self._result(asked, row, by_id.get(row.id), relevant.get(row.id), evaluator) for row in rows)
            return [one for one in made if one is not None]

        return await asyncio.to_thread(judged)

    def _result(
        self, asked: _Asked, row: Experience, found: _Found | None, meant: Candidate | None, evaluator: Evaluator
    ) -> Advised | None:
        if row.user_id not in asked.query.user_ids:
            return None
        held = confidence_of(row)
        now = effective(held.value, held.ledger, asked.query.now, self._rules.confidence)
        if asked.query.min_confidence is not None and round(now, 6) < asked.query.min_confidence:
            return None
        lanes: dict[str, float] = {name: round(score.score, 6) for name, score in meant.lanes.items()} if meant else {}
        if found is not None:
            return _told(Advised(row, found.match, self._score(found, now), now, lanes=lanes), found.how)
        if meant is None:
            return None
        conditions = parse_conditions(row.conditions, self._rules.limits)
        if not asked.accepts(Facts(row.task_type, frozenset(row.tags), conditions, 0.0)):
            return None
        how = NOTHING if asked.state is None else evaluator.match(conditions, asked.state)
        nudged = meant.relevance + self._rank.confidence_nudge * (now - 0.5)
        return _told(Advised(row, "semantic", max(0.0, min(1.0, nudged)), now, lanes=lanes), how)

    def _score(self, found: _Found, confidence: float) -> float:
        if found.match == "exact":
            return confidence
        true, unknown = len(found.how.matched), len(found.how.missing)
        return self._rules.numbers.partial_weight * true / (true + unknown) * confidence


def _matching(lessons: UserLessons, asked: _Asked, limit: int) -> list[_Found]:
    """The best `limit` exact and `limit` partial matches of one user."""

    def accept(experience_id: UUID) -> bool:
        return asked.accepts(lessons.facts[experience_id])

    if asked.state is None:
        return _carrying(lessons, asked, limit)
    hits = lessons.index.search(
        asked.state, exact_max=limit, partial_max=limit, accept=accept, strength_min=asked.strength_min
    )
    exact: tuple[tuple[MatchWord, Hit], ...] = tuple(("exact", hit) for hit in hits.exact)
    partial: tuple[tuple[MatchWord, Hit], ...] = tuple(("partial", hit) for hit in hits.partial)
    return [_Found(hit.id, word, hit.match) for word, hit in (*exact, *partial)]


def _carrying(lessons: UserLessons, asked: _Asked, limit: int) -> list[_Found]:
    """Without a state: lessons that carry the given triples; these are the matched ones, their others the missing."""
    wanted = canonical(asked.carried)
    kept = [(i, facts) for i, facts in lessons.facts.items() if asked.accepts(facts)]
    if asked.strength_min is not None:
        kept = [(i, facts) for i, facts in kept if facts.strength >= asked.strength_min]
    kept.sort(key=lambda one: (len(one[1].conditions), -one[1].strength, one[0]))
    found = []
    for experience_id, facts in kept[: 2 * limit]:
        given = tuple(c for c in facts.conditions if c.canonical in wanted)
        rest = tuple(c for c in facts.conditions if c.canonical not in wanted)
        word: MatchWord = "partial" if rest else "exact"
        found.append(_Found(experience_id, word, Match(word, given, rest, ())))  # type: ignore[arg-type]
    return found


def _told(result: Advised, how: Match) -> Advised:
    return replace(
        result,
        matched=tuple(c.as_json() for c in how.matched),
        missing=tuple(c.as_json() for c in how.missing),
        failed=tuple(c.as_json() for c in how.failed),
    )


def _best(results: Sequence[Advised], limit: int) -> list[Advised]:
    """Exact, partial, semantic (what the state contradicts last), the best score first; one per condition_hash."""
    ordered = sorted(results, key=lambda r: (ORDER[r.match], bool(r.failed), -r.score, -r.experience.id.int))
    once: dict[bytes, Advised] = {}
    for result in ordered:
        once.setdefault(result.experience.condition_hash, result)
    return list(once.values())[:limit]
