"""What should the agent be told?  Has the lanes run (gathering.py), fuses, checks every hit against Postgres, ranks and hydrates.

Vectors may lag behind Postgres or outlive a memory: a hit counts only at the version that Postgres has now.  When that
leaves too few, more vectors are fetched.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from uuid import UUID

from memory_service.domain import Clock, Key, Memory, MemoryFilter, new_id
from memory_service.metrics import LANES, LANES_DEGRADED
from memory_service.recall.calibration import Readings
from memory_service.recall.conversation import Asked, Links, links_of, with_signals
from memory_service.recall.fusion import Candidates, fuse, vector_scores
from memory_service.recall.gathering import Gathered, Gathering, Mode
from memory_service.recall.lanes import Lanes
from memory_service.recall.ranking import Ranked, rank_candidates
from memory_service.recall.reader import as_believed
from memory_service.recall.time_expressions import TimeRules, time_hints
from memory_service.scripts import script_of
from memory_service.settings import Tunables
from memory_service.stores.postgres import memories
from memory_service.stores.postgres.filters import SqlFilter
from memory_service.stores.postgres.pool import Postgres
from memory_service.stores.postgres.rank_facts import NOTHING_KNOWN, Beside, RankFacts, turns_beside
from memory_service.stores.postgres.retrievals import Retrieval
from memory_service.stores.qdrant import VectorHits


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
        self._gathering = Gathering(postgres, lanes, tunables)
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
        gathered = await self._gathering.run(request.query, request.mode, request.chosen, sql)
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

    async def _ranked(self, request: SearchRequest, sql: SqlFilter, gathered: Gathered) -> list[Ranked]:
        """Fuse and rank; fetch more vectors while too many of them turn out stale or filtered."""
        search, limit, asked = self._numbers.search, request.limit, self._numbers.search.vector_hits
        for round_number in range(search.vector_rounds_max + 1):
            ids = gathered.ids(search.keyword_hits)
            facts = await self._gathering.facts(gathered, sql, ids)
            live = _live_cosines(gathered.hits, facts)
            exhausted = gathered.vector is None or gathered.hits is None or gathered.hits.points < asked
            if exhausted or len(live) >= limit or round_number == search.vector_rounds_max:
                break
            asked *= search.vector_growth
            last = round_number == search.vector_rounds_max - 1
            if not await self._gathering.more(gathered, request.chosen, sql, asked, exact=last):
                break
        lowest = None if exhausted else min(live.values(), default=None)
        beside, others = await self._beside(sql, facts, ids) if gathered.hits is not None else ([], NOTHING_KNOWN)
        facts = facts.with_others(others)
        candidates = self._fused(request, gathered, facts, links_of(beside), live, lowest)
        numbers = self._numbers
        return rank_candidates(candidates, facts, request.chosen.now, numbers.rank, numbers.heat, limit)

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
        gathered: Gathered,
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
