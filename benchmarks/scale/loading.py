"""How does a store get a million memories in minutes?  COPY into Postgres and large upserts into Qdrant, rows as the service makes them.

The service's own functions make the rows (`row_of`), the keyword terms (`terms.py`) and the points (`points_of`); only the outbox
is left out, since what it would cause is done here.  Not a way to load real data: `hindsight import` is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import psycopg

from benchmarks.scale.corpus import TENANT, Batch, Corpus
from memory_service.domain import Memory
from memory_service.stores.postgres.memories import INSERTED, IndexedText, row_of
from memory_service.stores.qdrant import VectorIndex, points_of
from memory_service.terms import keyword_terms
from memory_service.vocabulary import Vocabulary
from memory_service.write.duplicates import content_hash
from memory_service.write.indexing import indexed_text, keyword_prefix, keyword_text

BATCH_ROWS = 10_000
UPSERT_POINTS = 1_000
CHECKED = 20  # memories of each batch whose terms are compared with the service's own


@dataclass(frozen=True)
class Loaded:
    """Seconds that each part of a load took."""

    rows: int
    making_s: float
    postgres_s: float
    qdrant_s: float
    vacuum_s: float


class Loader:
    """Brings a store to a state; what is there already stays."""

    def __init__(self, corpus: Corpus, vocabulary: Vocabulary, database_url: str, index: VectorIndex) -> None:
        self._corpus = corpus
        self._vocabulary = vocabulary
        self._database_url = database_url
        self._index = index
        self._terms_of = cache(lambda word: keyword_terms(word, vocabulary))

    def present(self) -> dict[tuple[str, str], int]:
        """Memories of each (user_id, session_id)."""
        with psycopg.connect(self._database_url) as connection:
            rows = connection.execute("SELECT user_id, session_id, count(*) FROM memory GROUP BY 1, 2").fetchall()
        return {(user_id, session): count for user_id, session, count in rows}

    async def grow(self, want: dict[str, int], say: Callable[[str], None]) -> Loaded:
        """Postgres first, then Qdrant; then VACUUM ANALYZE, which autovacuum does sooner or later."""
        await self._index.ensure()
        have = self.present()
        making = postgres = qdrant = 0.0
        rows, total = 0, sum(want.values()) - sum(have.values())
        batches = self._corpus.batches(set(have), want, BATCH_ROWS)
        started = time.monotonic()
        while (batch := next(batches, None)) is not None:
            texts = [self._indexed(memory) for memory in batch.memories]
            assert texts[:CHECKED] == [indexed_text(memory, self._vocabulary) for memory in batch.memories[:CHECKED]]
            made = time.monotonic()
            self._copy(batch.memories, texts)
            copied = time.monotonic()
            await self._upsert(batch)
            done = time.monotonic()
            making, postgres, qdrant = making + made - started, postgres + copied - made, qdrant + done - copied
            rows, started = rows + len(batch.memories), done
            if rows % (5 * BATCH_ROWS) == 0 or rows == total:
                say(
                    f"{rows:,} of {total:,} rows: made {making:.0f} s, Postgres {postgres:.0f} s, Qdrant {qdrant:.0f} s"
                )
        vacuumed = self._vacuum()
        return Loaded(rows, round(making, 1), round(postgres, 1), round(qdrant, 1), round(vacuumed, 1))

    def _indexed(self, memory: Memory) -> IndexedText:
        """As write/indexing.indexed_text, whose checks this corpus does not need: its words are plain and do not affect each other."""
        terms = [term for word in keyword_text(memory).split() for term in self._terms_of(word)]
        prefix, positions = keyword_prefix(TENANT, memory.user_id), dict[str, list[int]]()
        for at, term in enumerate(terms, start=1):
            positions.setdefault(term, []).append(at)
        literal = " ".join(f"'{prefix}{term}':{','.join(map(str, at))}" for term, at in positions.items())
        return IndexedText(content_hash(memory.content), literal, len(terms))

    def _copy(self, memories: Sequence[Memory], texts: Sequence[IndexedText]) -> None:
        with psycopg.connect(self._database_url) as connection, connection.cursor() as cursor:
            for kind in ("episodic", "semantic"):
                with cursor.copy(f"COPY {kind}_memory ({', '.join(INSERTED)}) FROM STDIN") as copy:
                    for memory, text in zip(memories, texts, strict=True):
                        if memory.kind == kind:
                            row = row_of(memory, text)
                            copy.write_row([row[name] for name in INSERTED])

    async def _upsert(self, batch: Batch) -> None:
        for start in range(0, len(batch.memories), UPSERT_POINTS):
            some = range(start, min(start + UPSERT_POINTS, len(batch.memories)))
            await self._index.upsert(
                [point for at in some for point in points_of(batch.memories[at], batch.vectors[at : at + 1])]
            )

    def _vacuum(self) -> float:
        started = time.monotonic()
        with psycopg.connect(self._database_url, autocommit=True) as connection:
            connection.execute("VACUUM (ANALYZE) memory")
            connection.execute("CHECKPOINT")
        return time.monotonic() - started
