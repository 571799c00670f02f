"""What can be chosen about embeddings?

`EmbedderConfig` is what a deployment chooses (HINDSIGHT_EMBEDDING_*); `EmbeddingTunables` is the section [embedding] of
config/memory.toml, field by field, where each number's reason is written.  Nothing is read from anywhere here.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True, slots=True)
class EmbedderConfig:
    """Which model makes the vectors.  `None` means the provider's own default.

    `provider` is bundled, onnx, sentence-transformers, openai or hash (the deterministic twin without a model).
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
    next_api_key: str | None = None

    def stored(self) -> dict[str, object]:
        """What says which model it is, as Postgres keeps it: no secrets, nothing of this machine."""
        return {name: getattr(self, name) for name in STORED}

    def opening(self, stored: Mapping[str, object]) -> "EmbedderConfig":
        """The model that is stored there, opened from here.

        `api_key` goes only to the endpoint that it was configured for; another one gets `next_api_key`.
        """
        own = stored.get("provider") == self.provider and stored.get("base_url") == self.base_url
        return replace(
            self,
            api_key=self.api_key if own else self.next_api_key,
            **{name: stored.get(name) for name in STORED},  # type: ignore[arg-type]
        )

    def following(self, active: Mapping[str, object], once_active: Iterable[Mapping[str, object]]) -> "EmbedderConfig":
        """What to open at start: the active model when the environment names it or one that it replaced, else the environment's.

        So a service that restarts after `hindsight reembed` with its old environment serves on, and an environment that
        names a model which never served is refused later, instead of being ignored.
        """
        if self.stored() == dict(active) or any(self.stored() == dict(one) for one in once_active):
            return self.opening(active)
        return self


STORED = ("provider", "model", "revision", "base_url", "query_prefix", "passage_prefix", "dimensions")


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
        return self.workers or processors()


def processors() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
