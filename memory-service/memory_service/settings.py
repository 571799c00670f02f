"""Where is everything, and which numbers apply?

`Settings` are places and secrets, from HINDSIGHT_* environment variables.  `Tunables` are numbers, from
config/memory.toml, which is the only place where they have values.  Nothing here opens a connection.
"""

import os
import tomllib
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from memory_service.errors import SetupRefused

PACKAGE = Path(__file__).parent


class Section(BaseModel):
    """A table of memory.toml: every key is required and no other key is allowed, so a typo is found at start."""

    model_config = ConfigDict(frozen=True, extra="forbid")


T = TypeVar("T", bound=Section)
V = TypeVar("V")


class Limits(Section):
    body_bytes_max: int
    content_bytes_max: int
    json_depth_max: int
    batch_items_max: int
    page_items_default: int
    page_items_max: int
    search_items_default: int
    tags_max: int
    list_items_max: int
    relations_max: int
    metadata_bytes_max: int
    filter_conditions_max: int
    wait_indexed_s_max: float
    requests_per_minute: int
    idempotency_hours: int
    idempotency_lease_s: float
    auth_cache_s: float
    shutdown_s: float
    schema_wait_s: float


class Search(Section):
    lane_deadline_s: float
    vector_hits: int
    vector_rounds_max: int
    vector_growth: int
    exact_ids_max: int
    keyword_per_term: int
    keyword_hits: int
    keyword_terms_max: int
    keyword_terms_expected: int
    keyword_scored: int
    script_chars: int
    structured_days: float
    structured_importance_min: float
    structured_hits: int
    recent_hours: float
    recent_hits: int
    query_cache_entries: int


class Rank(Section):
    relevance_weight: float
    freshness_weight: float
    freshness_days: float
    freshness_days_semantic: float
    structured_relevance: float
    recent_relevance: float
    importance_nudge: float
    confidence_nudge: float
    heat_nudge: float
    bm25_k1: float
    bm25_b: float


class Signals(Section):
    """[signals]: log-odds; `before`, `answered` and `after` are shares of what the turn beside is worth."""

    turns_max: int
    tail_chars: int
    asks_told_bytes_max: int
    before: float
    answered: float
    after: float
    asks: float
    speaker: float
    assistant: float
    time: float


class Heat(Section):
    initial: float
    use_gain: float
    decay: float
    decay_days: float
    cold_below: float


class Write(Section):
    duplicate_cosine: float
    duplicate_candidates: int
    similar_deadline_s: float
    default_importance: float
    default_confidence: float
    summary_chars_max: int
    inline_chars_max: int
    shared_rows_max: int
    shared_chars_max: int
    shared_waiting_max: int


class Relay(Section):
    batch_rows_max: int
    poll_s: float
    lease_s: float
    attempts_max: int
    backoff_s: float
    backoff_s_max: float
    upsert_points_max: int
    inline_chars_max: int
    batches_at_once: int
    embed_slice_chars: int
    calm_s: float
    burst_s: float
    claim_gap_s: float


class Retrievals(Section):
    queue_max: int
    flush_s: float
    flush_rows_max: int
    forgotten_days: float
    state_fields_max: int
    state_field_chars_max: int
    lesson_used_days: float


class Stores(Section):
    postgres_pool_min: int
    postgres_pool_max: int
    postgres_timeout_s: float
    redis_timeout_s: float
    qdrant_timeout_s: float


class Tunables(BaseModel):
    """The whole of memory.toml.  Sections owned by a feature are read by that feature with `section()`."""

    model_config = ConfigDict(frozen=True, extra="allow")

    limits: Limits
    search: Search
    rank: Rank
    signals: Signals
    heat: Heat
    write: Write
    relay: Relay
    retrievals: Retrievals
    stores: Stores

    def section(self, name: str, model: type[T]) -> T:
        """A further table of memory.toml, validated as `model`.  Raises SetupRefused naming the bad key."""
        raw = (self.model_extra or {}).get(name)
        try:
            return model.model_validate(raw)
        except ValidationError as error:
            raise SetupRefused(f"config/memory.toml, [{name}]: {_first(error)}") from None

    def values(self, name: str, make: Callable[..., V], keys: list[str]) -> V:
        """A further table, handed to `make` by name.  Raises SetupRefused when its keys are not exactly `keys`."""
        raw = (self.model_extra or {}).get(name) or {}
        for key in sorted(set(raw) ^ set(keys)):
            raise SetupRefused(f"config/memory.toml, [{name}]: {key} is {'unknown' if key in raw else 'missing'}")
        return make(**raw)


class Settings(BaseSettings):
    """Every environment variable of memory-service (prefix HINDSIGHT_)."""

    model_config = SettingsConfigDict(env_prefix="HINDSIGHT_", extra="ignore", env_ignore_empty=True)

    home: Path = Path("~/.hindsight")
    database_url: str = "postgresql://hindsight@127.0.0.1:5432/hindsight"
    redis_url: str = "redis://127.0.0.1:6379/0"
    qdrant_url: str = "http://127.0.0.1:6333"
    qdrant_api_key: str | None = None
    qdrant_collection: str = "hindsight"
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=1, le=65535)
    api_key: str | None = None
    config_dir: Path | None = None
    model_dir: Path | None = None
    jobs: bool = True
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"

    embedding_provider: Literal["bundled", "onnx", "sentence-transformers", "openai", "hash"] = "bundled"
    embedding_model: str | None = None
    embedding_revision: str | None = None
    embedding_base_url: str | None = None
    embedding_api_key: str | None = None
    embedding_next_api_key: str | None = None
    embedding_query_prefix: str | None = None
    embedding_passage_prefix: str | None = None
    embedding_dimensions: int | None = None
    embedding_device: str | None = None

    llm_base_url: str | None = None
    llm_model: str | None = None
    llm_api_key: str | None = None

    @cached_property
    def config_folder(self) -> Path:
        """HINDSIGHT_CONFIG_DIR, else the folder inside an installed wheel, else the checkout's config/."""
        candidates = [self.config_dir] if self.config_dir else [PACKAGE / "_config", PACKAGE.parent.parent / "config"]
        for folder in candidates:
            if (folder / "memory.toml").is_file():
                return folder
        raise SetupRefused(
            f"no memory.toml in {' or '.join(map(str, candidates))}; set HINDSIGHT_CONFIG_DIR to the config folder"
        )

    @cached_property
    def models_folder(self) -> Path:
        return (self.model_dir or self.home / "models").expanduser()


def load_settings(env_file: Path | None = None) -> Settings:
    """Settings from the environment, and from `env_file` for what the environment leaves out.  Raises SetupRefused."""
    try:
        return Settings(_env_file=env_file)
    except ValidationError as error:
        raise SetupRefused(f"environment: HINDSIGHT_{_first(error).upper()}") from None


def stack_env_file() -> Path | None:
    """The URLs that a running local stack leaves behind, for commands typed beside it; None when there is none."""
    path = Path(os.environ.get("HINDSIGHT_HOME", "~/.hindsight")).expanduser() / "stack.env"
    return path if path.is_file() else None


def tables_of(path: Path) -> dict[str, Any]:
    """A TOML file of config/.  Raises SetupRefused naming the file and what is wrong with it."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        raise SetupRefused(f"{path}: can't be read as UTF-8 text ({type(problem).__name__}).") from problem
    except tomllib.TOMLDecodeError as problem:
        raise SetupRefused(f"{path}: not valid TOML: {problem}") from problem


def read_section(path: Path, model: type[T]) -> T:
    """A whole file as one checked model.  Raises SetupRefused naming the file and every entry that is wrong."""
    try:
        return model.model_validate(tables_of(path))
    except ValidationError as problem:
        entries = "; ".join(f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in problem.errors())
        raise SetupRefused(f"{path}: {entries}.") from problem


def load_tunables(settings: Settings) -> Tunables:
    """memory.toml, checked.  Raises SetupRefused naming the bad key."""
    path = settings.config_folder / "memory.toml"
    try:
        return Tunables.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SetupRefused(f"{path}: {error}") from None
    except ValidationError as error:
        raise SetupRefused(f"{path}: {_first(error)}") from None


def _first(error: ValidationError) -> str:
    """The first complaint as `place: message`, without the value, which may be a secret."""
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
