"""Is there a memory that says the same in other words?

Embeds each text once (the vectors stay in the embedder's cache, where the relay finds them), asks Qdrant for the nearest
memories of the user in one call, and lets duplicates.same_meaning decide.  With Qdrant or the model down, or Qdrant late, the
answer is no: a write must not depend on them.
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


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A memory as Postgres has it and how near it is; None when its vector is not there yet."""

    memory: Memory
    cosine: float | None = None


@dataclass(frozen=True, slots=True)
class Near:
    """What is close to one new memory: the one that means the same, and neighbours, nearest first."""

    match: Match | None
    neighbours: tuple[Neighbour, ...]


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
        neighbours: int,
    ) -> None:
        self._postgres = postgres
        self._index = index
        self._embedder = embedder
        self._vocabulary = vocabulary
        self._contrasts = contrasts
        self._numbers = numbers
        self._clock = clock
        self._neighbours = neighbours

    async def find(self, caller: Caller, new: Sequence[Memory]) -> dict[UUID, Near]:
        """What is close to each new memory, by the new memory's id.  Neighbours are looked for beside semantic ones only.

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
            limit = max(self._numbers.duplicate_candidates, self._neighbours)
            async with asyncio.timeout(self._numbers.similar_deadline_s):
                nearest = await self._index.search_many(asked, limit)
        except (StoreUnavailable, ModelUnavailable, PointRefused, TimeoutError):
            return {}
        kept = [
            [h for h in hits if m.kind == "semantic" or h.cosine > self._numbers.duplicate_cosine]
            for m, hits in zip(single, nearest, strict=True)
        ]
        ids = {h.memory_id for hits in kept for h in hits}
        if not ids:
            return {}
        rows = await self._postgres.read(lambda c: memories.get_many(c, caller.tenant, sorted(ids)))
        known = {row.id: row for row in rows}
        return {m.id: self._near(m, hits, known) for m, hits in zip(single, kept, strict=True) if hits}

    def _near(self, memory: Memory, hits: Sequence[VectorHit], known: dict[UUID, Memory]) -> Near:
        ordered = sorted(hits, key=lambda h: -h.cosine)
        close = [h for h in ordered if h.cosine > self._numbers.duplicate_cosine]
        neighbours = tuple(Neighbour(known[h.memory_id], h.cosine) for h in ordered if h.memory_id in known)
        return Near(self._same(memory, close, known), neighbours if memory.kind == "semantic" else ())

    def _cut(self, new: Sequence[Memory]) -> dict[UUID, list[str]]:
        return {m.id: self._embedder.chunks(passage(m, self._vocabulary)) for m in new}

    def _filter(self, caller: Caller, memory: Memory) -> MemoryFilter:
        return MemoryFilter(caller.tenant, (memory.user_id,), self._clock(), kinds=(memory.kind,), states=LIVE_STATES)

    def _same(self, memory: Memory, hits: Sequence[VectorHit], known: dict[UUID, Memory]) -> Match | None:
        """The nearest hit that is the user's own, up to date, and differs in nothing that matters.  `hits` nearest first."""
        for hit in hits:
            row = known.get(hit.memory_id)
            if row is None or row.user_id != memory.user_id or row.version != hit.version or not memory.may_be_of(row):
                continue
            if same_meaning(memory.content, row.content, hit.cosine, self._numbers.duplicate_cosine, self._contrasts):
                return Match(row.id, hit.cosine)
        return None
