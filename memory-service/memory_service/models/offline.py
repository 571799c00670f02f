"""What stands in for a model where there is none?

`HashEmbedder` compares spelling, not meaning: texts that share words, parts of words or Chinese characters are near each
other, and a paraphrase without a shared word is not found.  It is deterministic on every machine, needs no download, and
says what it is in its fingerprint, so its vectors can never be taken for a model's.
"""

import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from memory_service.models.ports import EmbeddingFingerprint, Vector
from memory_service.models.windows import WindowRule, windows

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
_UNIT = re.compile(rf"[{_CJK}]|[^\W{_CJK}]+|[^\w\s]")
_CJK_RUN = re.compile(rf"[{_CJK}]+")
_WORD = re.compile(rf"[^\W{_CJK}]+")
_GRAM = 4
_WORD_WEIGHT, _GRAM_WEIGHT = 1.0, 0.35
"""A whole shared word says more than a shared part; several parts together ("deploy", "deployment") add up to a word."""
HASH_MODEL = "hindsight/feature-hashing"
_REVISION = "1"
"""Raise it when the features or weights change: old vectors are then refused instead of compared."""


class HashEmbedder:
    """The Embedder port by feature hashing (Weinberger et al. 2009): a signed count per hashed feature, unit length."""

    def __init__(self, dimensions: int, rule: WindowRule) -> None:
        self._fingerprint = EmbeddingFingerprint(HASH_MODEL, _REVISION, dimensions, "", "")
        self._rule = rule

    @property
    def fingerprint(self) -> EmbeddingFingerprint:
        return self._fingerprint

    def count_tokens(self, text: str) -> int:
        """Words, Chinese, Japanese and Korean characters, and punctuation marks."""
        return sum(1 for _ in _UNIT.finditer(text))

    def chunks(self, text: str) -> list[str]:
        return windows(text, [match.start() for match in _UNIT.finditer(text)], self._rule)

    async def embed_query(self, text: str) -> Vector:
        return self._vector(text)

    async def embed_passages(self, texts: Sequence[str]) -> Vector:
        if not texts:
            return np.empty((0, self._fingerprint.dimensions), np.float32)
        return np.stack([self._vector(text) for text in texts])

    async def close(self) -> None:
        return None

    def _vector(self, text: str) -> Vector:
        vector = np.zeros(self._fingerprint.dimensions, np.float32)
        for (feature, weight), count in Counter(_features(text)).items():
            digest = zlib.crc32(feature.encode("utf-8", "surrogatepass"))
            sign = 1.0 if digest & 1 else -1.0
            vector[(digest >> 1) % len(vector)] += sign * weight * np.sqrt(count)
        length = float(np.linalg.norm(vector))
        if length == 0.0:  # no feature at all, or features that cancelled out
            vector[0] = length = 1.0
        return np.asarray(vector / length, np.float32)


def _features(text: str) -> Iterator[tuple[str, float]]:
    folded = unicodedata.normalize("NFKC", text).casefold()
    for match in _WORD.finditer(folded):
        word = match.group()
        yield f"w:{word}", _WORD_WEIGHT
        marked = f"<{word}>"
        for start in range(len(marked) - _GRAM + 1):
            yield f"g:{marked[start : start + _GRAM]}", _GRAM_WEIGHT
    for match in _CJK_RUN.finditer(folded):
        run = match.group()
        for start in range(len(run)):
            yield f"c:{run[start]}", _GRAM_WEIGHT
            if start + 1 < len(run):  # pairs of characters are the words of Chinese search
                yield f"w:{run[start : start + 2]}", _WORD_WEIGHT
