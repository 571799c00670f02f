"""Which ways lead to a memory?  Four lanes, run side by side with a deadline; the two that only list share a statement.

A lane that fails or is late is named, never turned into an empty result.  Lanes return scores by id; fusing and ranking
is the work of the pure modules beside this one.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import Generic, TypeVar
from uuid import UUID

from memory_service.domain import Lane, MemoryFilter
from memory_service.errors import ModelUnavailable, StoreUnavailable
from memory_service.models.ports import Embedder, Vector
from memory_service.recall.fusion import LaneScores, keyword_scores, listed_scores
from memory_service.settings import Rank, Search
from memory_service.stores.postgres import memories
from memory_service.stores.postgres.filters import SqlFilter
from memory_service.stores.postgres.memories import Important, Recent
from memory_service.stores.postgres.pool import Postgres
from memory_service.stores.qdrant import PointRefused, VectorHits, VectorIndex
from memory_service.terms import query_terms, spread_terms, tsquery_literal
from memory_service.vocabulary import Vocabulary
from memory_service.write.indexing import keyword_prefix

CORPUS_CACHE_S = 30.0
CORPUS_CACHED_MIN = 500  # smaller ones are counted each time: by an empty one's size keyword scores are near 0
CORPUS_CACHE_ENTRIES = 10_000
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LaneResult(Generic[T]):
    """What a lane brought, or None when it failed; and how long it took."""

    value: T | None
    took_ms: float


async def within(deadline_s: float, lane: Awaitable[T]) -> LaneResult[T]:
    """Run one lane.  A store or model that is down, or the deadline, makes it None."""
    started = monotonic()
    value: T | None = None
    try:
        async with asyncio.timeout(deadline_s):
            value = await lane
    except (TimeoutError, StoreUnavailable, ModelUnavailable, PointRefused):
        pass
    return LaneResult(value, 1000 * (monotonic() - started))


class Lanes:
    """The four lanes over the real stores."""

    def __init__(
        self,
        postgres: Postgres,
        index: VectorIndex,
        embedder: Embedder,
        vocabulary: Vocabulary,
        search: Search,
        rank: Rank,
    ) -> None:
        self._postgres = postgres
        self._index = index
        self._embedder = embedder
        self._vocabulary = vocabulary
        self._search = search
        self._rank = rank
        self._corpus: dict[tuple[str, tuple[str, ...]], tuple[float, tuple[int, float]]] = {}

    async def embed(self, query: str) -> Vector:
        """The query's vector; the embedder caches it."""
        return await self._embedder.embed_query(self._vocabulary.normalise(query))

    async def vector(
        self, vector: Vector, chosen: MemoryFilter, limit: int, ids: Sequence[UUID] | None = None
    ) -> VectorHits:
        """The nearest chunks' memories, not yet checked against Postgres."""
        return await self._index.search(vector, chosen, limit, ids)

    async def first_vector(
        self, query: str, chosen: MemoryFilter, embedded: asyncio.Event
    ) -> tuple[Vector, VectorHits]:
        """Embedding and the first fetch in one go, which is what the deadline bounds; `embedded` is set between the two."""
        vector = await self.embed(query)
        embedded.set()
        return vector, await self.vector(vector, chosen, self._search.vector_hits)

    async def matching(self, sql: SqlFilter) -> list[UUID]:
        """Ids that pass the filter, for filters that Qdrant can't evaluate."""
        return await self._postgres.read(lambda c: memories.matching_ids(c, sql, self._search.exact_ids_max))

    async def keyword(self, query: str, chosen: MemoryFilter, sql: SqlFilter) -> LaneScores:
        """BM25 over memories that share a term with the query."""
        terms = spread_terms(query_terms(query, self._vocabulary), self._search.keyword_terms_max)
        if not terms:
            return LaneScores((), (), ())
        prefixes = [keyword_prefix(chosen.tenant, user) for user in chosen.user_ids]
        each = [" | ".join(tsquery_literal([term], prefix) for prefix in prefixes) for term in terms]
        corpus = await self._corpus_size(chosen)
        search, per_term = self._search, self._search.keyword_per_term
        hits = await self._postgres.read(lambda c: memories.keyword_candidates(c, sql, each, per_term))
        expected = search.keyword_terms_expected
        return keyword_scores(hits, corpus, self._rank, per_term, search.keyword_scored, expected)

    async def reminders(self, chosen: MemoryFilter, sql: SqlFilter) -> tuple[LaneScores, LaneScores]:
        """The lanes `structured`, important memories of the last days, and `recent`, memories of the last hours."""
        search = self._search
        important = Important(
            chosen.now - timedelta(days=search.structured_days),
            search.structured_importance_min,
            search.structured_hits,
        )
        recent = Recent(chosen.now - timedelta(hours=search.recent_hours), search.recent_hits)
        found = await self._postgres.read(lambda c: memories.reminders_since(c, sql, important, recent))
        return (
            listed_scores(found[0], self._rank.structured_relevance),
            listed_scores(found[1], self._rank.recent_relevance),
        )

    async def _corpus_size(self, chosen: MemoryFilter) -> tuple[int, float]:
        """Size and average length of what this user has.  Of many memories it hardly moves, so it is kept a while."""
        key = (chosen.tenant, chosen.user_ids)
        kept = self._corpus.get(key)
        if kept is not None and kept[0] > monotonic():
            return kept[1]
        bound = self._search.exact_ids_max
        size = await self._postgres.read(lambda c: memories.corpus_size(c, chosen.tenant, chosen.user_ids, bound))
        if size[0] < CORPUS_CACHED_MIN:
            return size
        if len(self._corpus) >= CORPUS_CACHE_ENTRIES:
            self._corpus.clear()
        self._corpus[key] = (monotonic() + CORPUS_CACHE_S, size)
        return size


LANES: tuple[Lane, ...] = ("vector", "keyword", "structured", "recent")
