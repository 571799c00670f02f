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

from memory_service.domain import Experience, Json
from memory_service.experience.active import ActiveLessons, Facts, UserLessons
from memory_service.experience.condition_index import Hit
from memory_service.experience.conditions import Condition, parse_conditions
from memory_service.experience.confidence import effective, strength_min
from memory_service.experience.drafts import Advised, ExperienceQuery, MatchWord, QueryAnswer
from memory_service.experience.indexing import text_of_lesson
from memory_service.experience.matching import Evaluator, Match
from memory_service.experience.query_distill import QueryDistiller
from memory_service.experience.semantic import Meant, SemanticLessons
from memory_service.experience.store import LessonRules, canonical
from memory_service.experience.succession import confidence_of
from memory_service.recall.fusion import Candidate
from memory_service.recall.lanes import within
from memory_service.scripts import script_of
from memory_service.settings import Rank
from memory_service.stores.postgres import experience_index, experiences
from memory_service.stores.postgres.experience_index import IndexedRow
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
        self,
        postgres: Postgres,
        active: ActiveLessons,
        semantic: SemanticLessons,
        rules: LessonRules,
        rank: Rank,
        distiller: QueryDistiller | None = None,
    ) -> None:
        self._postgres = postgres
        self._active = active
        self._semantic = semantic
        self._rules = rules
        self._rank = rank
        self._distiller = distiller  # makes a query of a state that comes without one; None: meaning is not asked then

    async def query(self, query: ExperienceQuery) -> QueryAnswer:
        """Raises InvalidFields for bad conditions, StoreUnavailable when Postgres is down."""
        asked = self._asked(query)
        found, degraded = await self._by_conditions(asked)
        meant, looked_for = None, query.semantic_query
        if looked_for is None and query.state is not None and self._distiller is not None:
            looked_for = await self._distiller.query_of(query.state)
        if looked_for is not None:
            meant = await self._semantic.find(looked_for, query.tenant, query.user_ids)
        results = await self._results(asked, found, meant)
        return QueryAnswer(_best(results, query.limit), [*degraded, *(meant.degraded if meant else [])])

    async def _by_conditions(self, asked: _Asked) -> tuple[list[_Found], list[str]]:
        """By each user's index in memory.  Where one is still being read, by Postgres's, which knows equality only: degraded."""
        found: list[_Found] = []
        query, unread = asked.query, []
        if asked.state is None and not asked.carried:
            return [], []
        for user_id in query.user_ids:
            matches = await self._active.search(
                query.tenant, user_id, lambda lessons: _matching(lessons, asked, query.limit)
            )
            found += matches or ()
            unread += [user_id] if matches is None else []
        if not unread:
            return found, []
        rows: dict[UUID, IndexedRow] = {}
        await within(self._rules.numbers.unloaded_deadline_s, self._carrying_any(asked, unread, rows))
        if rows:
            some = await asyncio.to_thread(self._active.of_rows, list(rows.values()))
            found += await asyncio.to_thread(_matching, some, asked, query.limit)
        return found, ["conditions"]

    async def _carrying_any(self, asked: _Asked, user_ids: Sequence[str], found: dict[UUID, IndexedRow]) -> None:
        """Into `found`, a few fields of the state at a time: what is there by the deadline counts."""
        numbers, tenant = self._rules.numbers, asked.query.tenant
        each, most = numbers.unloaded_lessons_max, numbers.unloaded_rows_max
        if asked.carried:
            sets: list[list[Json]] = [[c.as_json() for c in asked.carried]]
        else:
            sets = [[triple] for triple in equalities(asked.state or {}, numbers.unloaded_fields_max)]
        size = numbers.unloaded_fields_at_once
        for some in (sets[first : first + size] for first in range(0, len(sets), size)):
            rows = await self._postgres.read(
                lambda c, some=some: experience_index.carrying_any(c, tenant, user_ids, some, each, most - len(found))  # type: ignore[misc]
            )
            found.update((row.id, row) for row in rows)
            if len(found) >= most:
                return

    def _asked(self, query: ExperienceQuery) -> _Asked:
        carried = parse_conditions(query.conditions, self._rules.limits) if query.conditions is not None else ()
        state = query.state
        if state is not None and query.task_type is not None:
            state = {"task_type": query.task_type, **state}
        lowest = query.min_confidence
        least = None if lowest is None else strength_min(lowest, query.now, self._rules.confidence)
        return _Asked(query, carried, state, least)

    async def _results(self, asked: _Asked, found: Sequence[_Found], meant: Meant | None) -> list[Advised]:
        """The rows as they are now, those that are still active and pass the filters."""
        by_id = {one.id: one for one in found}
        ids = list(dict.fromkeys((*by_id, *(meant.ids if meant else ()))))
        if not ids:
            return []
        rows = await self._postgres.read(lambda c: experiences.get_active(c, asked.query.tenant, ids))
        evaluator = Evaluator(self._rules.limits)  # of its own, since threads must not share one

        def judged() -> list[Advised]:
            scripts = {row.id.bytes: script_of(text_of_lesson(row)) for row in rows}
            relevant = {one.id: one for one in meant.candidates(scripts)} if meant else {}
            made = (self._result(asked, row, by_id.get(row.id), relevant.get(row.id.bytes), evaluator) for row in rows)
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
        relevance = meant.calibrated if meant else 0.0
        if found is not None:
            score = self._score(found, now)
            return _told(Advised(row, found.match, score, now, lanes=lanes, relevance=relevance), found.how)
        if meant is None or (
            asked.query.semantic_query is None and relevance < self._rules.numbers.derived_relevance_min
        ):
            return None
        conditions = parse_conditions(row.conditions, self._rules.limits)
        if not asked.accepts(Facts(row.task_type, frozenset(row.tags), conditions, 0.0)):
            return None
        how = NOTHING if asked.state is None else evaluator.match(conditions, asked.state)
        nudged = meant.relevance + self._rank.confidence_nudge * (now - 0.5)
        score = max(0.0, min(1.0, nudged))
        return _told(Advised(row, "semantic", score, now, lanes=lanes, relevance=relevance), how)

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


def equalities(state: Mapping[str, Any], most: int) -> list[Json]:
    """`eq` triples that the state makes true: its scalars by dotted path, level by level, at most `most`."""
    triples: list[Json] = []
    level: list[tuple[str, Mapping[str, Any]]] = [("", state)]
    while level and len(triples) < most:
        below: list[tuple[str, Mapping[str, Any]]] = []
        for prefix, values in level:
            for name, value in values.items():
                if isinstance(value, Mapping):
                    below.append((f"{prefix}{name}.", value))
                elif isinstance(value, str | bool | int | float):
                    triples.append({"field": f"{prefix}{name}", "operator": "eq", "value": value})
        level = below
    return triples[:most]


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
