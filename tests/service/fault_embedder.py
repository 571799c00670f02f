"""An embedder that can be made to fail, hang or refuse single texts; otherwise the deterministic one that ships."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from memory_service.errors import EmbedderUnavailable
from memory_service.models.offline import HashEmbedder
from memory_service.models.ports import EmbeddingFingerprint, Vector
from memory_service.models.windows import WindowRule


class FaultyEmbedder:
    """`down`, `slow_s`, `poison` and `gate` are switched by the test; `faults` counts how often one struck."""

    def __init__(self, model: str | None = None, dimensions: int = 384) -> None:
        self._inner = HashEmbedder(dimensions, WindowRule(400, 48, 64))
        self._model = model
        self.down = False
        self.slow_s = 0.0
        self.poison: str | None = None
        self.gate: asyncio.Event | None = None
        self.faults = 0

    @property
    def fingerprint(self) -> EmbeddingFingerprint:
        made = self._inner.fingerprint
        return replace(made, model=self._model) if self._model else made

    def count_tokens(self, text: str) -> int:
        return self._inner.count_tokens(text)

    def chunks(self, text: str) -> list[str]:
        return self._inner.chunks(text)

    async def embed_query(self, text: str) -> Vector:
        await self._strike([text])
        return await self._inner.embed_query(text)

    async def embed_passages(self, texts: Sequence[str]) -> Vector:
        await self._strike(texts)
        return await self._inner.embed_passages(texts)

    async def close(self) -> None:
        await self._inner.close()

    async def _strike(self, texts: Sequence[str]) -> None:
        if self.down:
            self.faults += 1
            raise EmbedderUnavailable("the model is not there")
        if self.slow_s:
            self.faults += 1
            await asyncio.sleep(self.slow_s)
        if self.poison is not None and any(self.poison in text for text in texts):
            self.faults += 1
            raise ValueError("this text can't be embedded")
        if self.gate is not None:
            self.faults += 1
            await self.gate.wait()
