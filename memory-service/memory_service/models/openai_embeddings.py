"""How does an OpenAI-compatible `/v1/embeddings` endpoint serve as the embedder?

Requests, retries and the distrust of answers are here.  Nobody tells us the remote model's tokenizer, so tokens are
estimated from the number of bytes, on the safe side: chunks come out shorter than they need be, never too long.
"""

import asyncio
import base64
import binascii
import random
from collections.abc import Sequence

import httpx
import numpy as np
import orjson

from memory_service.errors import EmbedderUnavailable, SetupRefused, TextRefused
from memory_service.models.batching import PASSAGE, QUERY, EmbedderObserver, VectorCache, embed_through
from memory_service.models.embedding_settings import EmbedderConfig, EmbeddingTunables
from memory_service.models.ports import EmbeddingFingerprint, Vector
from memory_service.models.windows import WindowRule, windows

_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_REFUSES_A_FIELD = frozenset({400, 422})
_REFUSES_A_TEXT = frozenset({400, 413, 422})  # too long, or not to the endpoint's taste


class _Transient(Exception):
    """Worth another attempt, after `retry_after_s` when the server named a time."""

    def __init__(self, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class EmbeddingsEndpoint:
    """One endpoint and model: texts in, unit vectors out."""

    def __init__(self, config: EmbedderConfig, tunables: EmbeddingTunables) -> None:
        if not config.base_url or not config.model:
            raise SetupRefused(
                "HINDSIGHT_EMBEDDING_PROVIDER=openai needs HINDSIGHT_EMBEDDING_BASE_URL (for example "
                "http://127.0.0.1:11434/v1) and HINDSIGHT_EMBEDDING_MODEL."
            )
        self._path = config.base_url.rstrip("/") + "/embeddings"
        self._model = config.model
        self._dimensions = config.dimensions
        self._asks_dimensions = config.dimensions is not None
        self._tunables = tunables
        headers = {"content-type": "application/json"}
        if config.api_key:
            headers["authorization"] = f"Bearer {config.api_key}"
        try:
            self._client = httpx.AsyncClient(headers=headers, timeout=tunables.remote_timeout_s)
            httpx.URL(self._path)
        except (httpx.InvalidURL, ValueError) as error:
            raise SetupRefused(f"HINDSIGHT_EMBEDDING_BASE_URL is not a URL: {error}") from error

    async def dimensions(self) -> int:
        """As configured, else as the endpoint answers.  Raises SetupRefused when it does not."""
        if self._dimensions is None:
            try:
                (vector,) = await self.embed(["dimensions"])
            except EmbedderUnavailable as error:
                await self.close()
                raise SetupRefused(
                    f"{error.detail} at start, so the size of its vectors is not known. Start it, mend its settings "
                    "(HINDSIGHT_EMBEDDING_BASE_URL, _MODEL, _API_KEY), or set HINDSIGHT_EMBEDDING_DIMENSIONS."
                ) from error
            self._dimensions = len(vector)
        return self._dimensions

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """One request's worth of texts.  Raises EmbedderUnavailable."""
        reason = "was not asked"
        for attempt in range(self._tunables.remote_attempts_max):
            try:
                async with asyncio.timeout(self._tunables.remote_timeout_s):  # httpx's own does not bound a trickle
                    return await self._attempt(texts)
            except (_Transient, httpx.TransportError, TimeoutError) as error:
                reason = str(error) if isinstance(error, _Transient) else _named(error)
                asked = error.retry_after_s if isinstance(error, _Transient) else None
                if attempt + 1 < self._tunables.remote_attempts_max:
                    await asyncio.sleep(self._pause_s(attempt, asked))
        raise EmbedderUnavailable(f"The embedding endpoint {reason}", retry_after_s=self._tunables.remote_retry_max_s)

    def _pause_s(self, attempt: int, asked_s: float | None) -> float:
        """Full jitter (AWS Architecture Blog, 2015), so that many clients do not come back together."""
        longest = self._tunables.remote_retry_max_s
        drawn = random.uniform(0, min(longest, self._tunables.remote_retry_base_s * 2**attempt))  # noqa: S311 - no secret
        return min(longest, asked_s + drawn) if asked_s is not None else drawn

    async def _attempt(self, texts: Sequence[str]) -> list[Vector]:
        body: dict[str, object] = {"model": self._model, "input": list(texts), "encoding_format": "float"}
        asks_dimensions = self._asks_dimensions
        if asks_dimensions:
            body["dimensions"] = self._dimensions
        answer = await self._client.post(self._path, content=orjson.dumps(body))
        if asks_dimensions and answer.status_code in _REFUSES_A_FIELD:
            # vLLM and others refuse `dimensions` for models that can't be shortened, even when it is their size.
            self._asks_dimensions = False
            return await self._attempt(texts)
        if answer.status_code in _RETRIED:
            raise _Transient(f"answered {answer.status_code}", _retry_after_s(answer))
        if answer.status_code in _REFUSES_A_TEXT:
            raise TextRefused(f"The embedding endpoint answered {answer.status_code}")
        if not answer.is_success:
            raise EmbedderUnavailable(f"The embedding endpoint answered {answer.status_code}")
        return _vectors(answer.content, len(texts), self._dimensions)

    async def close(self) -> None:
        await self._client.aclose()


def _named(error: Exception) -> str:
    return (
        "did not answer in time" if isinstance(error, TimeoutError | httpx.TimeoutException) else "could not be reached"
    )


def _retry_after_s(answer: httpx.Response) -> float | None:
    """The header in its form of seconds; a date, which no embeddings server sends, counts as absent."""
    value = answer.headers.get("retry-after", "")
    return float(value) if value.isascii() and value.isdigit() else None


def _vectors(content: bytes, rows: int, dimensions: int | None) -> list[Vector]:
    """The answer's vectors in the order of the texts, scaled to unit length.  Raises EmbedderUnavailable on nonsense."""
    try:
        data = orjson.loads(content)["data"]
        ordered = sorted(data, key=lambda row: row["index"]) if all("index" in row for row in data) else data
        vectors = [_decoded(row["embedding"]) for row in ordered]
    except (ValueError, TypeError, KeyError, binascii.Error) as error:  # orjson's error is a ValueError
        raise EmbedderUnavailable("The embedding endpoint's answer could not be read") from error
    if len(vectors) != rows:
        raise EmbedderUnavailable(f"The embedding endpoint answered {len(vectors)} vectors for {rows} texts")
    for vector in vectors:
        if vector.ndim != 1 or len(vector) != (dimensions or len(vectors[0])) or not len(vector):
            raise EmbedderUnavailable(f"The embedding endpoint answered {vector.size} dimensions, not {dimensions}")
        length = float(np.linalg.norm(vector.astype(np.float64)))
        if not np.isfinite(length) or length == 0.0:
            raise EmbedderUnavailable("The embedding endpoint answered a vector that is zero or not finite")
        vector /= length
    return vectors


def _decoded(embedding: object) -> Vector:
    """A list of numbers, or base64 of little-endian float32, which some servers send whatever is asked."""
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding, validate=True), "<f4").astype(np.float32)
    with np.errstate(over="ignore"):  # too large for float32 is infinite, and that is looked for
        return np.array(embedding, np.float32)


class OpenAIEmbedder:
    """The Embedder port over an `EmbeddingsEndpoint`.  Build it with `open`."""

    def __init__(
        self,
        endpoint: EmbeddingsEndpoint,
        fingerprint: EmbeddingFingerprint,
        tunables: EmbeddingTunables,
        observer: EmbedderObserver | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._fingerprint = fingerprint
        self._observer = observer or EmbedderObserver()
        self._cache = VectorCache(fingerprint, tunables.cache_entries_max)
        self._rows = tunables.remote_batch_rows_max
        self._bytes_per_token = tunables.remote_bytes_per_token_min
        self._passage_requests = asyncio.Semaphore(tunables.remote_concurrent_requests_max)
        prefix = max(self.count_tokens(fingerprint.query_prefix), self.count_tokens(fingerprint.passage_prefix))
        self._rule = WindowRule.fitted(
            tunables.remote_window_tokens - prefix - tunables.chunk_margin_tokens,
            tunables.chunk_overlap_tokens,
            tunables.chunk_boundary_search_tokens,
        )

    @classmethod
    async def open(
        cls, config: EmbedderConfig, tunables: EmbeddingTunables, observer: EmbedderObserver | None = None
    ) -> "OpenAIEmbedder":
        """Asks the endpoint for one vector unless the dimensions are configured.  Raises SetupRefused."""
        endpoint = EmbeddingsEndpoint(config, tunables)
        fingerprint = EmbeddingFingerprint(
            config.model or "",
            config.revision or "",
            await endpoint.dimensions(),
            config.query_prefix or "",
            config.passage_prefix or "",
        )
        return cls(endpoint, fingerprint, tunables, observer)

    @property
    def fingerprint(self) -> EmbeddingFingerprint:
        return self._fingerprint

    def count_tokens(self, text: str) -> int:
        """An estimate, rather too high than too low; see the module's docstring."""
        return len(self._token_starts(text))

    def chunks(self, text: str) -> list[str]:
        return windows(text, self._token_starts(text), self._rule)

    def _token_starts(self, text: str) -> list[int]:
        starts: list[int] = []
        owed = self._bytes_per_token  # the first character begins a token
        for index, character in enumerate(text):
            owed += len(character.encode("utf-8", "surrogatepass"))
            while owed >= self._bytes_per_token:
                starts.append(index)
                owed -= self._bytes_per_token
        return starts

    async def embed_query(self, text: str) -> Vector:
        fitting = self.chunks(text)[0]
        (vector,) = await self._embed(QUERY, self._fingerprint.query_prefix, [fitting])
        return vector

    async def embed_passages(self, texts: Sequence[str]) -> Vector:
        if not texts:
            return np.empty((0, self._fingerprint.dimensions), np.float32)
        return np.stack(await self._embed(PASSAGE, self._fingerprint.passage_prefix, texts))

    async def _embed(self, role: str, prefix: str, texts: Sequence[str]) -> list[Vector]:
        prefixed = [(prefix + text).encode("utf-8", "replace").decode() for text in texts]
        ask = self._ask_query if role == QUERY else self._ask_passages
        return await embed_through(self._cache, self._observer, role, prefixed, ask)

    async def _ask_query(self, texts: Sequence[str]) -> list[Vector]:
        """Outside the bound for passages: a search does not wait for a reindex."""
        return await self._timed(QUERY, texts)

    async def _ask_passages(self, texts: Sequence[str]) -> list[Vector]:
        async def one(batch: Sequence[str]) -> list[Vector]:
            async with self._passage_requests:
                return await self._timed(PASSAGE, batch)

        tasks = [asyncio.create_task(one(texts[at : at + self._rows])) for at in range(0, len(texts), self._rows)]
        try:
            await asyncio.gather(*tasks)
        finally:  # the first failure ends the call, so the other requests are of no use
            for task in tasks:
                task.cancel()
        return [vector for task in tasks for vector in task.result()]

    async def _timed(self, role: str, texts: Sequence[str]) -> list[Vector]:
        started = asyncio.get_running_loop().time()
        vectors = await self._endpoint.embed(texts)
        self._observer.batch(role, len(texts), asyncio.get_running_loop().time() - started)
        return vectors

    async def close(self) -> None:
        await self._endpoint.close()
