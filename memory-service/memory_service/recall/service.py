"""What should the agent be told?  Runs the lanes, fuses, checks every hit against Postgres, ranks and hydrates.

Vectors may lag behind Postgres or outlive a memory: a hit counts only at the version that Postgres has now.  When that
leaves too few, more vectors are fetched.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice, zip_longest
from time import monotonic
from typing import Literal
from uuid import UUID

from memory_service.domain import Clock, Key, Lane, Memory, MemoryFilter, new_id
from memory_service.metrics import LANES, LANES_DEGRADED
from memory_service.models.ports import Vector
from memory_service.recall.calibration import Readings
from memory_service.recall.conversation import Asked, Links, links_of, with_signals
from memory_service.recall.fusion import Candidates, LaneScores, fuse, vector_scores
from memory_service.recall.lanes import LaneResult, Lanes, within
from memory_service.recall.ranking import Ranked, rank_candidates
from memory_service.recall.reader import as_believed
from memory_service.recall.time_expressions import TimeRules, time_hints
from memory_service.scripts import script_of
from memory_service.settings import Tunables
from memory_service.stores.postgres import memories
from memory_service.stores.postgres.filters import SqlFilter
from memory_service.stores.postgres.pool import Postgres
from memory_service.stores.postgres.rank_facts import NOTHING_KNOWN, Beside, RankFacts, rank_facts, turns_beside
from memory_service.stores.postgres.retrievals import Retrieval
from memory_service.stores.qdrant import VectorHits

Mode = Literal["hybrid", "vector", "keyword"]


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search as the API understood it.  `chosen.now` is when it is asked."""

    query: str
    chosen: MemoryFilter
    limit: int
    mode: Mode = "hybrid"
    min_score: float | None = None
    rerank: bool = False
    filters_given: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Found:
    """One hit: the memory as it is now and how it was ranked."""

    memory: Memory
    ranked: Ranked


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """`degraded` names lanes that failed or were late; `lane_ms` is how long each took."""

    retrieval_id: UUID
    found: list[Found]
    degraded: list[str]
    took_ms: float
    lane_ms: Mapping[str, float]


@dataclass(slots=True)
class _Gathered:
    """What the lanes of one search brought so far."""

    scores: dict[Lane, LaneScores]
    degraded: list[str]
    lane_ms: dict[str, float]
    vector: Vector | None = None
    hits: VectorHits | None = None


class Recall:
    """Searches long-term memory."""

    def __init__(
        self,
        postgres: Postgres,
        lanes: Lanes,
        readings: Readings,
        time_rules: TimeRules,
        tunables: Tunables,
        clock: Clock,
        note: Callable[[Retrieval], None],
    ) -> None:
        self._postgres = postgres
        self._lanes = lanes
        self._readings = readings
        self._time_rules = time_rules
        self._numbers = tunables
        self._clock = clock
        self._note = note

    async def search(self, request: SearchRequest) -> SearchAnswer:
        """The best `limit` memories, noted in the log.  Raises StoreUnavailable only when Postgres, which holds the texts, is down."""
        answer = await self.find(request)
        self._note(_retrieval(request, answer))
        return answer

    async def find(self, request: SearchRequest) -> SearchAnswer:
        """The same for a caller that keeps its own log."""
        started, retrieval_id = monotonic(), new_id()
        sql = self._sql(request.chosen)
        gathered = await self._gather(request, sql)
        ranked = await self._ranked(request, sql, gathered)
        if request.min_score is not None:
            ranked = [r for r in ranked if r.score >= request.min_score]
        found = await self._hydrate(request.chosen, ranked)
        if request.rerank:
            gathered.degraded.append("rerank")  # no reranker is configured
        took_ms = 1000 * (monotonic() - started)
        for lane, lane_ms in gathered.lane_ms.items():
            LANES.labels(lane).observe(lane_ms / 1000)
        for lane in gathered.degraded:
            LANES_DEGRADED.labels(lane).inc()
        return SearchAnswer(retrieval_id, found, gathered.degraded, round(took_ms, 3), gathered.lane_ms)

    def _sql(self, chosen: MemoryFilter) -> SqlFilter:
        heat = self._numbers.heat
        return SqlFilter(chosen, heat.decay, heat.decay_days * 86_400)

    async def _gather(self, request: SearchRequest, sql: SqlFilter) -> _Gathered:
        """Run the lanes of the mode side by side."""
        chosen, deadline = request.chosen, self._numbers.search.lane_deadline_s
        running: dict[Lane, asyncio.Task[LaneResult]] = {}  # type: ignore[type-arg]
        reminders: asyncio.Task[LaneResult[tuple[LaneScores, LaneScores]]] | None = None
        async with asyncio.TaskGroup() as group:
            if request.mode != "keyword":
                running["vector"] = group.create_task(within(deadline, self._lanes.first_vector(request.query, chosen)))
            if request.mode != "vector":
                running["keyword"] = group.create_task(
                    within(deadline, self._lanes.keyword(request.query, chosen, sql))
                )
            if request.mode == "hybrid":
                reminders = group.create_task(within(deadline, self._lanes.reminders(chosen, sql)))
        results = {lane: task.result() for lane, task in running.items()}
        if reminders is not None:
            results |= _both(reminders.result())
        gathered = _Gathered(
            scores={lane: r.value for lane, r in results.items() if r.value is not None and lane != "vector"},
            degraded=[lane for lane, r in results.items() if r.value is None],
            lane_ms={lane: round(r.took_ms, 3) for lane, r in results.items()},
        )
        if "vector" in results and results["vector"].value is not None:
            gathered.vector, gathered.hits = results["vector"].value
        if results and len(gathered.degraded) == len(results):
            await self._postgres.read(lambda c: memories.corpus_size(c, chosen.tenant, (), 1))  # Postgres down: say so
        return gathered

    async def _ranked(self, request: SearchRequest, sql: SqlFilter, gathered: _Gathered) -> list[Ranked]:
        """Fuse and rank; fetch more vectors while too many of them turn out stale or filtered."""
        search, limit, asked = self._numbers.search, request.limit, self._numbers.search.vector_hits
        for round_number in range(search.vector_rounds_max + 1):
            ids = self._ids(gathered)
            facts = await self._facts(sql, ids)
            live = _live_cosines(gathered.hits, facts)
            exhausted = gathered.vector is None or gathered.hits is None or gathered.hits.points < asked
            if exhausted or len(live) >= limit or round_number == search.vector_rounds_max:
                break
            asked *= search.vector_growth
            last = round_number == search.vector_rounds_max - 1
            if not await self._fetch_more(request.chosen, sql, gathered, asked, exact=last):
                break
        lowest = None if exhausted else min(live.values(), default=None)
        beside, others = await self._beside(sql, facts, ids) if gathered.hits is not None else ([], NOTHING_KNOWN)
        facts = facts.with_others(others)
        candidates = self._fused(request, gathered, facts, links_of(beside), live, lowest)
        numbers = self._numbers
        return rank_candidates(candidates, facts, request.chosen.now, numbers.rank, numbers.heat, limit)

    async def _fetch_more(
        self, chosen: MemoryFilter, sql: SqlFilter, gathered: _Gathered, limit: int, *, exact: bool
    ) -> bool:
        """A larger fetch; in the last round only among ids that pass the filter.  False when the lane failed now."""
        assert gathered.vector is not None
        ids = await self._lanes.matching(sql) if exact else None
        if ids is not None and not ids:
            return False
        more = await within(
            self._numbers.search.lane_deadline_s, self._lanes.vector(gathered.vector, chosen, limit, ids)
        )
        gathered.lane_ms["vector"] = round(gathered.lane_ms["vector"] + more.took_ms, 3)
        if more.value is None:
            gathered.degraded.append("vector")
            return False
        gathered.hits = more.value
        return True

    def _ids(self, gathered: _Gathered) -> list[Key]:
        """Every candidate, the best of each lane first."""
        lists: list[list[Key]] = [[hit.key for hit in gathered.hits.hits]] if gathered.hits else []
        lists += [list(islice(scores, self._numbers.search.keyword_hits)) for scores in gathered.scores.values()]
        ids = dict.fromkeys(chain.from_iterable(zip_longest(*lists)))
        ids.pop(None, None)
        return list(ids)

    async def _facts(self, sql: SqlFilter, ids: Sequence[Key]) -> RankFacts:
        if not ids:
            return NOTHING_KNOWN
        head, tail = self._numbers.search.script_chars, self._numbers.signals.tail_chars
        return await self._postgres.read(lambda c: rank_facts(c, ids, sql, head, tail))

    async def _beside(self, sql: SqlFilter, facts: RankFacts, ids: Sequence[Key]) -> tuple[list[Beside], RankFacts]:
        """The turns beside the best turns of these."""
        turns = facts.turns(ids, self._numbers.signals.turns_max)
        if not turns:
            return [], NOTHING_KNOWN
        head, tail = self._numbers.search.script_chars, self._numbers.signals.tail_chars
        return await self._postgres.read(lambda c: turns_beside(c, turns, sql, head, tail))

    def _fused(
        self,
        request: SearchRequest,
        gathered: _Gathered,
        facts: RankFacts,
        links: Links,
        live: Mapping[Key, float],
        lowest: float | None,
    ) -> Candidates:
        reading = self._readings.of_query(request.query)
        passages = {i: script_of(head) for i, head in zip(facts.ids, facts.heads, strict=True)}
        best = self._numbers.search.keyword_hits
        scores = {lane: found.among(live, best) for lane, found in gathered.scores.items()}
        if gathered.hits is not None:
            scores = {"vector": vector_scores(live, passages, reading), **scores}
        candidates = fuse(scores, passages, reading, lowest)
        asked = Asked.of(request.query, time_hints(request.query, request.chosen.now, self._time_rules))
        floor = min(live.values(), default=None) if lowest is None else lowest
        return with_signals(candidates, facts, passages, links, asked, reading, floor, self._numbers.signals)

    async def _hydrate(self, chosen: MemoryFilter, ranked: Sequence[Ranked]) -> list[Found]:
        """Texts of the final hits; one that was erased or changed out of the filter meanwhile is left out."""
        if not ranked:
            return []
        sql = self._sql(replace(chosen, now=self._clock()))
        ids = [UUID(bytes=r.candidate.id) for r in ranked]
        rows = await self._postgres.read(lambda c: memories.get_many(c, chosen.tenant, ids, sql))
        by_id = {row.id.bytes: row for row in await as_believed(self._postgres, chosen, rows)}
        return [Found(by_id[r.candidate.id], r) for r in ranked if r.candidate.id in by_id]


def _both(reminders: LaneResult[tuple[LaneScores, LaneScores]]) -> dict[Lane, LaneResult[LaneScores]]:
    """The two lanes that one statement brought."""
    structured, recent = reminders.value or (None, None)
    return {
        "structured": LaneResult(structured, reminders.took_ms),
        "recent": LaneResult(recent, reminders.took_ms),
    }


def _live_cosines(hits: VectorHits | None, facts: RankFacts) -> dict[Key, float]:
    """Cosines of vectors that were made from the version that Postgres has now."""
    if hits is None:
        return {}
    versions = dict(zip(facts.ids, facts.numbers["version"].tolist(), strict=True))
    return {hit.key: hit.cosine for hit in hits.hits if versions.get(hit.key) == hit.version}


def _retrieval(request: SearchRequest, answer: SearchAnswer) -> Retrieval:
    return Retrieval(
        id=answer.retrieval_id,
        tenant=request.chosen.tenant,
        user_id=request.chosen.user_ids[0],
        at=request.chosen.now,
        source="search",
        query=request.query,
        filters=dict(request.filters_given),
        hits=[
            {"id": str(f.memory.id), "score": round(f.ranked.score, 6), "lanes": list(f.ranked.candidate.lanes)}
            for f in answer.found
        ],
        degraded=list(answer.degraded),
        took_ms=answer.took_ms,
    )
