"""Is there a memory that says the same in other words?

Embeds each text once (the vectors stay in the embedder's cache, where the relay finds them), asks Qdrant for the nearest
memories of the user in one call, and lets duplicates.same_meaning decide.  With Qdrant or the model down the answer is no:
a write must not depend on them.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from memory_service.domain import LIVE_STATES, Caller, Clock, Memory, MemoryFilter
from memory_service.errors import ModelUnavailable, StoreUnavailable
from memory_service.models.ports import Embedder
from memory_service.settings import Write
from memory_service.stores.postgres import memories
from memory_service.stores.postgres.pool import Postgres
from memory_service.stores.qdrant import PointRefused, VectorHit, VectorIndex
from memory_service.vocabulary import Vocabulary
from memory_service.write.contrasts import Contrasts
from memory_service.write.duplicates import same_meaning
from memory_service.write.indexing import passage


@dataclass(frozen=True, slots=True)
class Match:
    """An older memory that means the same, and its cosine."""

    memory_id: UUID
    cosine: float


class SimilarMemories:
    """`find` before each write that infers."""

    def __init__(
        self,
        postgres: Postgres,
        index: VectorIndex,
        embedder: Embedder,
        vocabulary: Vocabulary,
        contrasts: Contrasts,
        numbers: Write,
        clock: Clock,
    ) -> None:
        self._postgres = postgres
        self._index = index
        self._embedder = embedder
        self._vocabulary = vocabulary
        self._contrasts = contrasts
        self._numbers = numbers
        self._clock = clock

    async def find(self, caller: Caller, new: Sequence[Memory]) -> dict[UUID, Match]:
        """The match of each new memory that has one, by the new memory's id.

        A text of several chunks is not compared: one chunk does not speak for the whole.
        """
        long = sum(len(m.content) for m in new) > self._numbers.inline_chars_max
        chunks = await asyncio.to_thread(self._cut, new) if long else self._cut(new)
        single = [m for m in new if len(chunks[m.id]) == 1]
        if not single:
            return {}
        try:
            vectors = await self._embedder.embed_passages([chunks[m.id][0] for m in single])
            asked = [(vector, self._filter(caller, m)) for vector, m in zip(vectors, single, strict=True)]
            nearest = await self._index.search_many(asked, self._numbers.duplicate_candidates)
        except (StoreUnavailable, ModelUnavailable, PointRefused):
            return {}
        close = [[h for h in hits if h.cosine > self._numbers.duplicate_cosine] for hits in nearest]
        ids = {h.memory_id for hits in close for h in hits}
        if not ids:
            return {}
        rows = await self._postgres.read(lambda c: memories.get_many(c, caller.tenant, sorted(ids)))
        known = {row.id: row for row in rows}
        found = {m.id: self._same(m, hits, known) for m, hits in zip(single, close, strict=True)}
        return {memory_id: match for memory_id, match in found.items() if match is not None}

    def _cut(self, new: Sequence[Memory]) -> dict[UUID, list[str]]:
        return {m.id: self._embedder.chunks(passage(m, self._vocabulary)) for m in new}

    def _filter(self, caller: Caller, memory: Memory) -> MemoryFilter:
        return MemoryFilter(caller.tenant, (memory.user_id,), self._clock(), kinds=(memory.kind,), states=LIVE_STATES)

    def _same(self, memory: Memory, hits: Sequence[VectorHit], known: dict[UUID, Memory]) -> Match | None:
        """The nearest hit that is the user's own, up to date, and differs in nothing that matters."""
        for hit in sorted(hits, key=lambda h: -h.cosine):
            row = known.get(hit.memory_id)
            if row is None or row.user_id != memory.user_id or row.version != hit.version:
                continue
            if same_meaning(memory.content, row.content, hit.cosine, self._numbers.duplicate_cosine, self._contrasts):
                return Match(row.id, hit.cosine)
        return None
