"""Which lessons speak of the same thing as this text?  A vector lane and a keyword lane, fused as for memories.

A lane that fails is named.  Whether a lesson's conditions hold is not asked here.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from memory_service.domain import Experience, Key, Lane
from memory_service.experience.indexing import lesson_passage
from memory_service.experience.settings import ExperienceNumbers
from memory_service.models.ports import Embedder
from memory_service.recall.calibration import Reading, Readings
from memory_service.recall.fusion import Candidates, LaneScores, fuse, keyword_scores, vector_scores
from memory_service.recall.lanes import within
from memory_service.scripts import Script
from memory_service.settings import Rank
from memory_service.stores.postgres import experiences
from memory_service.stores.postgres.pool import Postgres
from memory_service.stores.qdrant import VectorIndex
from memory_service.terms import query_terms, spread_terms, tsquery_literal
from memory_service.vocabulary import Vocabulary
from memory_service.write.indexing import keyword_prefix


@dataclass(frozen=True, slots=True)
class Meant:
    """What the lanes brought, not yet checked against Postgres; None of a lane that failed.

    `lowest` is the cosine that a lesson has at most which the vector lane did not bring; None when it brought all.
    """

    reading: Reading
    cosines: Mapping[Key, float] | None
    keywords: LaneScores | None
    lowest: float | None
    degraded: list[str]

    @property
    def ids(self) -> list[UUID]:
        return [UUID(bytes=key) for key in dict.fromkeys((*(self.cosines or ()), *(self.keywords or ())))]

    def candidates(self, passages: Mapping[Key, Script]) -> Candidates:
        """Those of which the script is known."""
        lanes: dict[Lane, LaneScores] = {}
        if self.cosines is not None:
            known = {i: cosine for i, cosine in self.cosines.items() if i in passages}
            lanes["vector"] = vector_scores(known, passages, self.reading)
        if self.keywords is not None:
            lanes["keyword"] = self.keywords.among(passages)
        return fuse(lanes, passages, self.reading, self.lowest)


class SemanticLessons:
    def __init__(
        self,
        postgres: Postgres,
        index: VectorIndex,
        embedder: Embedder,
        vocabulary: Vocabulary,
        numbers: ExperienceNumbers,
        rank: Rank,
        readings: Readings,
        deadline_s: float,
    ) -> None:
        self._postgres = postgres
        self._index = index
        self._embedder = embedder
        self._vocabulary = vocabulary
        self._numbers = numbers
        self._rank = rank
        self._readings = readings
        self._deadline_s = deadline_s

    async def find(self, query: str, tenant: str, user_ids: tuple[str, ...]) -> Meant:
        """Both lanes side by side.  Raises StoreUnavailable when Postgres, which holds the lessons, is down."""
        vector, keyword = await asyncio.gather(
            within(self._deadline_s, self._vector(query, tenant, user_ids)),
            within(self._deadline_s, self._keyword(query, tenant, user_ids)),
        )
        degraded = [name for name, lane in (("vector", vector), ("keyword", keyword)) if lane.value is None]
        if len(degraded) == 2:
            await self._postgres.read(lambda c: experiences.corpus_size(c, tenant, (), 1))  # Postgres down: say so
        cosines = vector.value
        whole = cosines is None or len(cosines) < self._numbers.vector_hits
        lowest = None if whole or cosines is None else min(cosines.values())
        return Meant(self._readings.of_query(query), cosines, keyword.value, lowest, degraded)

    async def embed_ahead(self, lessons: Sequence[Experience]) -> None:
        """Make the vectors of lessons that are about to be stored: the relay then finds them in the embedder's cache.

        Without it a run of distillations gets seconds ahead of the relay, and a fresh lesson is found by its words only.
        """
        if lessons:
            await within(self._deadline_s, self._embed(lessons))

    async def _embed(self, lessons: Sequence[Experience]) -> bool:
        passages = [lesson_passage(lesson, self._vocabulary) for lesson in lessons]
        chunks = await asyncio.to_thread(lambda: [c for text in passages for c in self._embedder.chunks(text)])
        await self._embedder.embed_passages(chunks)
        return True

    async def _vector(self, query: str, tenant: str, user_ids: tuple[str, ...]) -> dict[Key, float]:
        vector = await self._embedder.embed_query(self._vocabulary.normalise(query))
        found = await self._index.search_experiences(vector, tenant, user_ids, self._numbers.vector_hits)
        return {hit.key: hit.cosine for hit in found}

    async def _keyword(self, query: str, tenant: str, user_ids: tuple[str, ...]) -> LaneScores:
        numbers = self._numbers
        terms = spread_terms(query_terms(query, self._vocabulary), numbers.keyword_terms_max)
        if not terms:
            return LaneScores((), (), ())
        prefixes = [keyword_prefix(tenant, user) for user in user_ids]
        each = [" | ".join(tsquery_literal([term], prefix) for prefix in prefixes) for term in terms]
        bound = numbers.cached_entries_max
        corpus = await self._postgres.read(lambda c: experiences.corpus_size(c, tenant, user_ids, bound))
        hits = await self._postgres.read(
            lambda c: experiences.keyword_candidates(c, tenant, user_ids, each, numbers.keyword_per_term)
        )
        return keyword_scores(hits, corpus, self._rank, numbers.keyword_per_term, numbers.keyword_hits)
