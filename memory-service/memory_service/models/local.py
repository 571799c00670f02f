"""How does a model that runs in this process serve many requests?

`LocalEmbedder` is the Embedder port over any `LocalModel`: two lanes of threads (queries do not wait behind passages),
batches, cache and chunks.  It knows no model format.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from memory_service.models.batching import (
    PASSAGE,
    QUERY,
    BatchBounds,
    EmbedderObserver,
    MicroBatcher,
    VectorCache,
    embed_through,
)
from memory_service.models.embedding_settings import EmbeddingTunables
from memory_service.models.ports import EmbeddingFingerprint, Vector
from memory_service.models.windows import WindowRule, windows

_BYTES_PER_TOKEN = 3
"""Only to fill a batch about right before it is tokenised: English has 4, Chinese 4 to 5; the model packs exactly."""

_SPECIAL_TOKENS = 2
"""One before and one after the text, in every encoder of the BERT family."""


class LocalModel(Protocol):
    """What a model must offer.  Methods block and are called from several threads at once."""

    @property
    def fingerprint(self) -> EmbeddingFingerprint: ...

    @property
    def window_tokens(self) -> int:
        """Tokens that fit, special ones included."""
        ...

    def token_starts(self, text: str) -> Sequence[int]:
        """Index of the first character of each token, ascending, without special tokens."""
        ...

    def count_tokens(self, text: str) -> int: ...

    def encode(self, texts: Sequence[str]) -> Vector:
        """Prefixed texts, cut to the window → float32 (len(texts), dimensions), unit rows."""
        ...


class LocalEmbedder:
    """The Embedder port.  See `ports.Embedder` for what the methods promise."""

    def __init__(
        self,
        model: LocalModel,
        tunables: EmbeddingTunables,
        workers: int,
        observer: EmbedderObserver | None = None,
    ) -> None:
        self._model = model
        self._observer = observer or EmbedderObserver()
        self._cache = VectorCache(model.fingerprint, tunables.cache_entries_max)
        self._lanes = {
            role: MicroBatcher(role, model.encode, _estimated_tokens, bounds, self._observer)
            for role, bounds in (
                (QUERY, _bounds(tunables, workers, 0)),
                (PASSAGE, _bounds(tunables, workers, tunables.passage_workers_nice)),
            )
        }
        prefix = len(model.token_starts(model.fingerprint.passage_prefix))
        self._rule = WindowRule.fitted(
            model.window_tokens - _SPECIAL_TOKENS - prefix - tunables.chunk_margin_tokens,
            tunables.chunk_overlap_tokens,
            tunables.chunk_boundary_search_tokens,
        )

    @property
    def fingerprint(self) -> EmbeddingFingerprint:
        return self._model.fingerprint

    def count_tokens(self, text: str) -> int:
        return self._model.count_tokens(text)

    def chunks(self, text: str) -> list[str]:
        if text.isascii() and len(text) < self._rule.budget:  # no token is shorter than one ASCII character
            return [text]
        return windows(text, self._model.token_starts(text), self._rule)

    async def embed_query(self, text: str) -> Vector:
        (vector,) = await self._embed(QUERY, self.fingerprint.query_prefix, [text])
        return vector

    async def embed_passages(self, texts: Sequence[str]) -> Vector:
        if not texts:
            return np.empty((0, self.fingerprint.dimensions), np.float32)
        return np.stack(await self._embed(PASSAGE, self.fingerprint.passage_prefix, texts))

    async def _embed(self, role: str, prefix: str, texts: Sequence[str]) -> list[Vector]:
        prefixed = [_encodable(prefix + text) for text in texts]
        return await embed_through(self._cache, self._observer, role, prefixed, self._lanes[role].embed)

    async def close(self) -> None:
        await asyncio.gather(*(lane.close() for lane in self._lanes.values()))


def _bounds(tunables: EmbeddingTunables, workers: int, nice: int) -> BatchBounds:
    return BatchBounds(
        workers=workers,
        rows=tunables.batch_rows_max,
        cost=tunables.batch_tokens_max,
        waiting_rows=tunables.queue_rows_max,
        nice=nice,
    )


def _estimated_tokens(text: str) -> int:
    return len(text.encode()) // _BYTES_PER_TOKEN + 1


def _encodable(text: str) -> str:
    """Lone surrogates replaced: they have no UTF-8, and one such text must not fail the batch that it shares."""
    return text.encode("utf-8", "replace").decode()
