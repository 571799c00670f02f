"""How is the embedding model exchanged while requests are running?

`SwitchingEmbedder` is the Embedder port over whichever model serves now.  Its vectors know the fingerprint of the model that
made them, so a request that embedded with the old model also searches the old model's collection (stores/qdrant.py), at
whatever moment the switch comes.  It opens and closes nothing.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from memory_service.models.ports import Embedder, EmbeddingFingerprint, Vector


class MadeVector(np.ndarray[Any, np.dtype[np.float32]]):
    """A vector, or rows of vectors, with the fingerprint of the model that made them; parts keep it."""

    fingerprint: EmbeddingFingerprint | None = None

    def __array_finalize__(self, source: npt.NDArray[Any] | None, /) -> None:
        self.fingerprint = getattr(source, "fingerprint", None)


def fingerprint_of(vector: Vector) -> EmbeddingFingerprint | None:
    """Which model made this; None for a plain array."""
    return vector.fingerprint if isinstance(vector, MadeVector) else None


class SwitchingEmbedder:
    """The Embedder port.  See `ports.Embedder` for what the methods promise."""

    def __init__(self, first: Embedder) -> None:
        self.now = first

    def switch(self, to: Embedder) -> Embedder:
        """`to` serves from now on.  Returns the one before, which requests may still be using for a while."""
        before, self.now = self.now, to
        return before

    @property
    def fingerprint(self) -> EmbeddingFingerprint:
        return self.now.fingerprint

    def count_tokens(self, text: str) -> int:
        return self.now.count_tokens(text)

    def chunks(self, text: str) -> list[str]:
        return self.now.chunks(text)

    async def embed_query(self, text: str) -> Vector:
        model = self.now
        return _made(await model.embed_query(text), model.fingerprint)

    async def embed_passages(self, texts: Sequence[str]) -> Vector:
        model = self.now
        return _made(await model.embed_passages(texts), model.fingerprint)

    async def close(self) -> None:
        await self.now.close()


def pinned(embedder: Embedder) -> Embedder:
    """The model that serves now, for work that must stay with one: cutting, embedding and storing belong together."""
    return embedder.now if isinstance(embedder, SwitchingEmbedder) else embedder


def _made(vectors: Vector, fingerprint: EmbeddingFingerprint) -> Vector:
    marked = vectors.view(MadeVector)
    marked.fingerprint = fingerprint
    return marked
