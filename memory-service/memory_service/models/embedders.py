"""Which embedder does this deployment use?  The only place that knows all of them."""

import asyncio
from collections.abc import Callable

from memory_service.errors import SetupRefused
from memory_service.models.batching import EmbedderObserver
from memory_service.models.bundled import MODEL, PASSAGE_PREFIX, QUERY_PREFIX, BundledModel
from memory_service.models.e5_build import ensure_built
from memory_service.models.embedding_settings import EmbedderConfig, EmbeddingTunables
from memory_service.models.hub import HubModel
from memory_service.models.local import LocalEmbedder
from memory_service.models.offline import HASH_MODEL, HashEmbedder
from memory_service.models.onnx_folder import OnnxFolderModel
from memory_service.models.ports import Embedder
from memory_service.models.windows import WindowRule

Progress = Callable[[str], None]

_TORCH_WORKERS = 1  # torch runs one batch on all processors; a second batch beside it slows both down


async def open_embedder(
    config: EmbedderConfig, tunables: EmbeddingTunables, progress: Progress, observer: EmbedderObserver | None = None
) -> Embedder:
    """A ready embedder, which the caller closes; `progress` is called from any thread with a line for a person.

    Raises SetupRefused when it can't be had as configured; the message says what to do.
    """
    match config.provider:
        case "bundled":
            return await asyncio.to_thread(_bundled, config, tunables, progress, observer)
        case "sentence-transformers":
            return await asyncio.to_thread(_hub, config, tunables, progress, observer)
        case "onnx":
            return await asyncio.to_thread(_onnx, config, tunables, progress, observer)
        case "openai":
            # It brings httpx, 80 ms to import, which the others need not.
            from memory_service.models.openai_embeddings import OpenAIEmbedder

            return await OpenAIEmbedder.open(config, tunables, observer)
        case "hash":
            return _hash(config, tunables)
        case unknown:
            raise SetupRefused(
                f"HINDSIGHT_EMBEDDING_PROVIDER={unknown} is not known. Use bundled, onnx, sentence-transformers, openai, "
                "or hash (no model: compares spelling only)."
            )


def _bundled(
    config: EmbedderConfig, tunables: EmbeddingTunables, progress: Progress, observer: EmbedderObserver | None
) -> Embedder:
    if config.model not in (None, MODEL) or config.dimensions not in (None, BundledModel.dimensions):
        raise SetupRefused(
            f"HINDSIGHT_EMBEDDING_PROVIDER=bundled runs {MODEL} with {BundledModel.dimensions} dimensions only. Unset "
            "HINDSIGHT_EMBEDDING_MODEL and HINDSIGHT_EMBEDDING_DIMENSIONS, or set "
            "HINDSIGHT_EMBEDDING_PROVIDER=sentence-transformers."
        )
    built = ensure_built(
        config.model_dir,
        progress,
        download_timeout_s=tunables.download_timeout_s,
        lock_timeout_s=tunables.build_lock_timeout_s,
    )
    query = QUERY_PREFIX if config.query_prefix is None else config.query_prefix
    passage = PASSAGE_PREFIX if config.passage_prefix is None else config.passage_prefix
    model = BundledModel(built, tunables, query, passage)
    return LocalEmbedder(model, tunables, tunables.worker_count(), observer)


def _hub(
    config: EmbedderConfig, tunables: EmbeddingTunables, progress: Progress, observer: EmbedderObserver | None
) -> Embedder:
    progress("loading the embedding model with sentence-transformers")
    model = HubModel(config, tunables)
    progress(f"embedding model {model.fingerprint.model} is ready")
    return LocalEmbedder(model, tunables, _TORCH_WORKERS, observer)


def _onnx(
    config: EmbedderConfig, tunables: EmbeddingTunables, progress: Progress, observer: EmbedderObserver | None
) -> Embedder:
    return LocalEmbedder(OnnxFolderModel(config, tunables, progress), tunables, tunables.worker_count(), observer)


def _hash(config: EmbedderConfig, tunables: EmbeddingTunables) -> Embedder:
    if config.model not in (None, HASH_MODEL):
        raise SetupRefused(f"the provider hash knows no model {config.model}: unset it, or name another provider")
    rule = WindowRule.fitted(
        tunables.hash_window_words, tunables.chunk_overlap_tokens, tunables.chunk_boundary_search_tokens
    )
    return HashEmbedder(config.dimensions or tunables.hash_dimensions, rule)
