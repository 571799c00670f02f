"""What does Hindsight ask of a model?  Three ports, because only these have several implementations.

Nothing here loads a model or does I/O; implementations live in the sibling modules, and `offline.py` holds the honest
deterministic twins that ship with the product.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class EmbeddingFingerprint:
    """What makes two vectors comparable: vectors made under different fingerprints must never share a collection."""

    model: str
    revision: str
    dimensions: int
    query_prefix: str
    passage_prefix: str


class Embedder(Protocol):
    """Turns text into unit-length vectors.  Every method may be called concurrently from one event loop."""

    @property
    def fingerprint(self) -> EmbeddingFingerprint: ...

    def count_tokens(self, text: str) -> int:
        """Tokens of `text` under this model's own tokenizer, without special tokens and without a prefix."""
        ...

    def chunks(self, text: str) -> list[str]:
        """Cut `text` into consecutive, overlapping pieces that each fit the model's window; at least one piece."""
        ...

    async def embed_query(self, text: str) -> Vector:
        """One query, cut to the window → float32 of shape (dimensions,), unit length.  Raises EmbedderUnavailable."""
        ...

    async def embed_passages(self, texts: Sequence[str]) -> Vector:
        """Texts that each fit the window → float32 (len(texts), dimensions), unit rows.  Raises EmbedderUnavailable, TextRefused."""
        ...

    async def close(self) -> None: ...


class LanguageModel(Protocol):
    """An OpenAI-compatible chat model that answers with JSON of a given schema."""

    async def complete_json(
        self, *, system: str, user: str, schema: dict[str, object], purpose: str
    ) -> dict[str, object]:
        """The answer, parsed from JSON.  Raises LanguageModelUnavailable or LanguageModelBadAnswer."""
        ...


class Reranker(Protocol):
    """Scores how well each passage answers the query."""

    async def rerank(self, query: str, passages: Sequence[str]) -> list[float]:
        """One score in 0..1 per passage, in order.  Raises RerankerUnavailable."""
        ...
