"""What can be chosen about embeddings?

`EmbedderConfig` is what a deployment chooses (HINDSIGHT_EMBEDDING_*); `EmbeddingTunables` is the section [embedding] of
config/memory.toml, field by field, where each number's reason is written.  Nothing is read from anywhere here.
"""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class EmbedderConfig:
    """Which model makes the vectors.  `None` means the provider's own default.

    `provider` is bundled, sentence-transformers, openai or hash (the deterministic twin without a model).
    """

    provider: str = "bundled"
    model: str | None = None
    revision: str | None = None
    base_url: str | None = None
    api_key: str | None = None
    query_prefix: str | None = None
    passage_prefix: str | None = None
    dimensions: int | None = None
    model_dir: Path = Path("~/.hindsight/models")
    device: str | None = None


@dataclass(frozen=True, slots=True)
class EmbeddingTunables:
    """The section [embedding] of config/memory.toml."""

    workers: int
    passage_workers_nice: int
    batch_rows_max: int
    batch_tokens_max: int
    batch_length_ratio_max: float
    queue_rows_max: int
    cache_entries_max: int
    chunk_overlap_tokens: int
    chunk_boundary_search_tokens: int
    chunk_margin_tokens: int
    download_timeout_s: float
    build_lock_timeout_s: float
    remote_timeout_s: float
    remote_attempts_max: int
    remote_retry_base_s: float
    remote_retry_max_s: float
    remote_batch_rows_max: int
    remote_concurrent_requests_max: int
    remote_window_tokens: int
    remote_bytes_per_token_min: float
    hash_dimensions: int
    hash_window_words: int

    def worker_count(self) -> int:
        """`workers`, or the processors that this process may use when it is 0."""
        if self.workers:
            return self.workers
        if hasattr(os, "sched_getaffinity"):  # not on macOS
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1
