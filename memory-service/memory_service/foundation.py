"""What does everything stand on?  Clients of the stores, models, and the rule files, opened once.

`open_ground` is the first half of bootstrap: nothing here knows a feature.  It connects lazily.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from memory_service.domain import Clock
from memory_service.errors import StoreUnavailable
from memory_service.experience.conditions_settings import ConditionLimits
from memory_service.experience.confidence_settings import ConfidenceSettings
from memory_service.experience.distill_rules import DistillRules, load_distill_rules
from memory_service.experience.review_rules import load_review_rules
from memory_service.experience.settings import ExperienceNumbers
from memory_service.experience.store import LessonRules
from memory_service.metrics import EMBED_BATCH, EMBED_CACHE
from memory_service.models.batching import EmbedderObserver
from memory_service.models.embedders import open_embedder
from memory_service.models.embedding_settings import EmbedderConfig, EmbeddingTunables
from memory_service.models.language_settings import LanguageNumbers, language_config
from memory_service.models.ports import Embedder, EmbeddingFingerprint
from memory_service.models.switching import SwitchingEmbedder
from memory_service.recall.calibration import FollowingReadings, Readings, Relevance
from memory_service.recall.time_expressions import TimeRules, load_time_rules
from memory_service.recall.time_rules import TimeNumbers
from memory_service.settings import Settings, Tunables, load_tunables
from memory_service.stores.postgres import embedding_collections
from memory_service.stores.postgres.pool import Postgres
from memory_service.stores.qdrant import VectorIndex
from memory_service.stores.qdrant_collection import QdrantNumbers
from memory_service.stores.redis_client import Redis, open_redis
from memory_service.vocabulary import Vocabulary, load_vocabulary
from memory_service.working.settings import Working
from memory_service.write.contrasts import Contrasts, load_contrasts
from memory_service.write.rules import SummaryRules, load_summary_rules

if TYPE_CHECKING:
    from memory_service.models.language import ChatModel

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RuleFiles:
    """What the files of config/ say."""

    vocabulary: Vocabulary
    summary_rules: SummaryRules
    contrasts: Contrasts
    distill_rules: DistillRules
    lesson_rules: LessonRules
    time_rules: TimeRules


@dataclass(frozen=True, slots=True)
class Ground:
    """Clients, models and rules that several features share."""

    settings: Settings
    numbers: Tunables
    clock: Clock
    postgres: Postgres
    redis: Redis
    index: VectorIndex
    embedder: SwitchingEmbedder
    embedder_config: EmbedderConfig
    language: "ChatModel | None"
    vocabulary: Vocabulary
    summary_rules: SummaryRules
    contrasts: Contrasts
    distill_rules: DistillRules
    lesson_rules: LessonRules
    readings: Readings
    time_rules: TimeRules

    @property
    def folder(self) -> Path:
        """Where the rule files are."""
        return self.settings.config_folder


async def open_ground(
    stack: AsyncExitStack,
    settings: Settings,
    clock: Clock,
    embedder: Embedder | None,
    tunables: Tunables | None,
    progress: Callable[[str], None],
) -> Ground:
    """Everything is closed with the stack, but an embedder that was handed in."""
    numbers = tunables or load_tunables(settings)
    postgres = Postgres(settings.database_url, numbers.stores)
    await postgres.open()
    stack.push_async_callback(postgres.close)
    config = embedder_config(settings)
    # Side by side: most of opening a model happens outside Python.
    if embedder is None:
        following = await _following(config, postgres)
        opened, rules = await asyncio.gather(
            open_model(following, numbers, progress), asyncio.to_thread(_rule_files, settings.config_folder, numbers)
        )
        switching = SwitchingEmbedder(opened)
        stack.push_async_callback(switching.close)
    else:
        rules = _rule_files(settings.config_folder, numbers)
        switching = SwitchingEmbedder(embedder)
    language = _language_model(settings, numbers)
    if language is not None:
        stack.push_async_callback(language.close)
    connections = numbers.section("working", Working).redis_connections_max
    redis = open_redis(settings.redis_url, numbers.stores.redis_timeout_s, connections)
    stack.push_async_callback(redis.aclose)
    index = open_index(settings, numbers, switching.fingerprint)
    stack.push_async_callback(index.close)
    return Ground(
        settings=settings,
        numbers=numbers,
        clock=clock,
        postgres=postgres,
        redis=redis,
        index=index,
        embedder=switching,
        embedder_config=config,
        language=language,
        vocabulary=rules.vocabulary,
        summary_rules=rules.summary_rules,
        contrasts=rules.contrasts,
        distill_rules=rules.distill_rules,
        lesson_rules=rules.lesson_rules,
        readings=FollowingReadings.of_current(numbers.section("relevance", Relevance), switching),
        time_rules=rules.time_rules,
    )


def _rule_files(folder: Path, numbers: Tunables) -> RuleFiles:
    """Raises SetupRefused naming the file and the entry that is wrong."""
    vocabulary = load_vocabulary(folder / "terms.toml", folder / "stop_words.toml")
    return RuleFiles(
        vocabulary=vocabulary,
        summary_rules=load_summary_rules(folder / "summarise.toml"),
        contrasts=load_contrasts(folder / "contrasts.toml"),
        distill_rules=load_distill_rules(
            folder / "distill.toml", load_review_rules(folder / "review.toml"), vocabulary
        ),
        lesson_rules=lesson_rules(numbers, vocabulary),
        time_rules=load_time_rules(folder / "time_expressions.toml", numbers.section("time_hints", TimeNumbers)),
    )


def _language_model(settings: Settings, numbers: Tunables) -> "ChatModel | None":
    """None without an endpoint; its client, which is 80 ms to import, is left out then."""
    config, own = language_config(settings), numbers.section("language", LanguageNumbers)
    if config is None:
        return None
    from memory_service.models.language import open_language_model

    return open_language_model(config, own)


async def open_model(config: EmbedderConfig, numbers: Tunables, progress: Callable[[str], None]) -> Embedder:
    """An embedder that the caller closes.  Raises SetupRefused when it can't be had as configured."""
    return await open_embedder(config, embedding_tunables(numbers), progress, _observer())


def open_index(settings: Settings, numbers: Tunables, fingerprint: EmbeddingFingerprint) -> VectorIndex:
    return VectorIndex(
        settings.qdrant_url,
        settings.qdrant_collection,
        fingerprint,
        numbers.stores.qdrant_timeout_s,
        numbers.section("qdrant", QdrantNumbers),
        settings.qdrant_api_key,
    )


async def _following(config: EmbedderConfig, postgres: Postgres) -> EmbedderConfig:
    """The configured model, or the one that `hindsight reembed` has put in its place.  With Postgres down, the configured one."""
    try:
        known = await postgres.read(embedding_collections.read)
    except StoreUnavailable:
        return config
    if known.active is None:
        return config
    chosen = config.following(known.active.config, [row.config for row in known.rows if row.served])
    if chosen.stored() != config.stored():
        log.warning(
            "the environment names the embedding model %s, but hindsight reembed has replaced it by %s, which serves",
            config.model or config.provider,
            chosen.model or chosen.provider,
        )
    return chosen


def embedding_tunables(numbers: Tunables) -> EmbeddingTunables:
    """[embedding] of memory.toml.  Raises SetupRefused naming a key that is missing or unknown."""
    return numbers.values("embedding", EmbeddingTunables, [f.name for f in fields(EmbeddingTunables)])


def lesson_rules(numbers: Tunables, vocabulary: Vocabulary) -> LessonRules:
    return LessonRules(
        numbers.section("experience", ExperienceNumbers),
        numbers.section("experience_conditions", ConditionLimits),
        numbers.section("experience_confidence", ConfidenceSettings),
        vocabulary,
    )


def embedder_config(settings: Settings) -> EmbedderConfig:
    return EmbedderConfig(
        provider=settings.embedding_provider,
        model=settings.embedding_model,
        revision=settings.embedding_revision,
        base_url=settings.embedding_base_url,
        api_key=settings.embedding_api_key,
        next_api_key=settings.embedding_next_api_key,
        query_prefix=settings.embedding_query_prefix,
        passage_prefix=settings.embedding_passage_prefix,
        dimensions=settings.embedding_dimensions,
        model_dir=settings.models_folder,
        device=settings.embedding_device,
    )


def _observer() -> EmbedderObserver:
    """Metrics of the embedder."""

    def batch(role: str, rows: int, _seconds: float) -> None:
        EMBED_BATCH.labels(role).observe(rows)

    def cache(role: str, hits: int, misses: int) -> None:
        EMBED_CACHE.labels(role, "hit").inc(hits)
        EMBED_CACHE.labels(role, "miss").inc(misses)

    return EmbedderObserver(batch, cache)
