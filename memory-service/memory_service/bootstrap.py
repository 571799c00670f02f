"""What runs, wired how?  The only place where clients and services are built.

App, worker, CLI and tests all open the same Runtime; tests hand in another clock or embedder here.
"""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, fields

from redis.asyncio import Redis

from memory_service.access import Access
from memory_service.domain import Clock, Json, Memory, utc_now
from memory_service.experience.active import ActiveLessons
from memory_service.experience.advice import Advice
from memory_service.experience.conditions_settings import ConditionLimits
from memory_service.experience.confidence_settings import ConfidenceSettings
from memory_service.experience.distill_rules import load_distill_rules
from memory_service.experience.review_rules import load_review_rules
from memory_service.experience.semantic import SemanticLessons
from memory_service.experience.service import Experiences
from memory_service.experience.settings import ExperienceNumbers
from memory_service.experience.store import LessonRules
from memory_service.jobs.relay import Relay
from memory_service.jobs.retrieval_log import RetrievalLog
from memory_service.lifecycle.erasure import Erasure
from memory_service.lifecycle.heat import heat_at
from memory_service.metrics import EMBED_BATCH, EMBED_CACHE
from memory_service.models.batching import EmbedderObserver
from memory_service.models.embedders import open_embedder
from memory_service.models.embedding_settings import EmbedderConfig, EmbeddingTunables
from memory_service.models.language import ChatModel, open_language_model
from memory_service.models.language_settings import LanguageNumbers, language_config
from memory_service.models.ports import Embedder
from memory_service.operations import Operations
from memory_service.recall.lanes import Lanes
from memory_service.recall.reader import MemoryReader
from memory_service.recall.service import Recall
from memory_service.settings import Calibration, Settings, Tunables, load_tunables
from memory_service.shapes import memory_json
from memory_service.stores.postgres.pool import Postgres
from memory_service.stores.qdrant import VectorIndex
from memory_service.stores.redis import WorkingStore, open_redis
from memory_service.vocabulary import Vocabulary, load_vocabulary
from memory_service.working.service import WorkingMemory
from memory_service.working.settings import Working
from memory_service.write.contrasts import load_contrasts
from memory_service.write.reading import ReadingNumbers, load_reading_terms
from memory_service.write.rules import load_summary_rules
from memory_service.write.service import MemoryWriter
from memory_service.write.similar import SimilarMemories

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Runtime:
    """Everything that a route or a command may use."""

    settings: Settings
    tunables: Tunables
    clock: Clock
    postgres: Postgres
    redis: Redis
    index: VectorIndex
    embedder: Embedder
    access: Access
    writer: MemoryWriter
    reader: MemoryReader
    recall: Recall
    working: WorkingMemory
    experiences: Experiences
    erasure: Erasure
    relay: Relay
    retrieval_log: RetrievalLog
    operations: Operations

    def shown(self, memory: Memory) -> Json:
        """The memory object of API.md, with its heat as of now."""
        heat = heat_at(memory.heat, memory.heat_at, self.clock(), self.tunables.heat, pinned=memory.pinned)
        return memory_json(memory, self.embedder.fingerprint.model, heat)


@asynccontextmanager
async def open_runtime(
    settings: Settings,
    *,
    clock: Clock = utc_now,
    embedder: Embedder | None = None,
    tunables: Tunables | None = None,
    progress: Callable[[str], None] = log.info,
) -> AsyncIterator[Runtime]:
    """Build everything, hand it out, close it.  Connects lazily: a store that is down does not keep the others from working."""
    numbers = tunables or load_tunables(settings)
    folder = settings.config_folder
    vocabulary = load_vocabulary(folder / "terms.toml", folder / "stop_words.toml")
    rules, contrasts = load_summary_rules(folder / "summarise.toml"), load_contrasts(folder / "contrasts.toml")
    async with AsyncExitStack() as stack:
        if embedder is None:
            embedder = await open_embedder(
                _embedder_config(settings), embedding_tunables(numbers), progress, _observer()
            )
            stack.push_async_callback(embedder.close)
        language = _language(settings, numbers, stack)
        terms = load_reading_terms(rules, numbers.section("reading", ReadingNumbers))
        reading = (language, terms) if language else None
        postgres = Postgres(settings.database_url, numbers.stores)
        await postgres.open()
        stack.push_async_callback(postgres.close)
        working_numbers = numbers.section("working", Working)
        redis = open_redis(settings.redis_url, numbers.stores.redis_timeout_s, working_numbers.redis_connections_max)
        stack.push_async_callback(redis.aclose)
        index = VectorIndex(
            settings.qdrant_url,
            settings.qdrant_collection,
            embedder.fingerprint,
            numbers.stores.qdrant_timeout_s,
            settings.qdrant_api_key,
        )
        stack.push_async_callback(index.close)
        tasks = WorkingStore(
            redis, ttl_seconds_max=working_numbers.ttl_seconds_max, once_seconds=numbers.limits.idempotency_hours * 3600
        )
        working = WorkingMemory(tasks, working_numbers, embedder.count_tokens, clock)
        relay = Relay(postgres, index, embedder, vocabulary, numbers.relay, working.erase_copies)
        retrieval_log = RetrievalLog(postgres, numbers.retrievals)
        lanes = Lanes(postgres, index, embedder, vocabulary, numbers.search, numbers.rank)
        similar = SimilarMemories(postgres, index, embedder, vocabulary, contrasts, numbers.write, clock)
        curve = calibration_of(numbers, embedder.fingerprint.model)
        experiences = _experiences(settings, numbers, vocabulary, clock, postgres, index, embedder, relay.nudge)
        yield Runtime(
            settings=settings,
            tunables=numbers,
            clock=clock,
            postgres=postgres,
            redis=redis,
            index=index,
            embedder=embedder,
            access=Access(postgres, numbers.limits, clock),
            writer=MemoryWriter(
                postgres, similar, vocabulary, rules, numbers, clock, relay.nudge, relay.apply_now, reading
            ),
            reader=MemoryReader(postgres, clock, numbers.heat),
            recall=Recall(postgres, lanes, curve, numbers, clock, retrieval_log.note),
            working=working,
            experiences=experiences,
            erasure=Erasure(postgres, working, relay.nudge),
            relay=relay,
            retrieval_log=retrieval_log,
            operations=Operations(postgres, redis, index, embedder, relay, retrieval_log),
        )


def embedding_tunables(numbers: Tunables) -> EmbeddingTunables:
    """[embedding] of memory.toml.  Raises SetupRefused naming a key that is missing or unknown."""
    return numbers.values("embedding", EmbeddingTunables, [f.name for f in fields(EmbeddingTunables)])


def calibration_of(numbers: Tunables, model: str) -> Calibration:
    """The curve of this model, or the default one."""
    return numbers.calibration.get(model) or numbers.calibration["default"]


def _experiences(
    settings: Settings,
    numbers: Tunables,
    vocabulary: Vocabulary,
    clock: Clock,
    postgres: Postgres,
    index: VectorIndex,
    embedder: Embedder,
    nudge: Callable[[], None],
) -> Experiences:
    rules = LessonRules(
        numbers.section("experience", ExperienceNumbers),
        numbers.section("experience_conditions", ConditionLimits),
        numbers.section("experience_confidence", ConfidenceSettings),
        vocabulary,
    )
    curve, deadline_s = calibration_of(numbers, embedder.fingerprint.model), numbers.search.lane_deadline_s
    active = ActiveLessons(postgres, rules.numbers, rules.limits, rules.confidence)
    meant = SemanticLessons(postgres, index, embedder, vocabulary, rules.numbers, numbers.rank, curve, deadline_s)
    folder = settings.config_folder
    distilling = load_distill_rules(folder / "distill.toml", load_review_rules(folder / "review.toml"), vocabulary)
    advice = Advice(postgres, active, meant, rules, numbers.rank)
    return Experiences(postgres, advice, meant, rules, distilling, clock, nudge)


def _language(settings: Settings, numbers: Tunables, stack: AsyncExitStack) -> ChatModel | None:
    """The configured language model, closed with the stack; None means that the deterministic twins do its work."""
    language = open_language_model(language_config(settings), numbers.section("language", LanguageNumbers))
    if language is not None:
        stack.push_async_callback(language.close)
    return language


def _embedder_config(settings: Settings) -> EmbedderConfig:
    return EmbedderConfig(
        provider=settings.embedding_provider,
        model=settings.embedding_model,
        revision=settings.embedding_revision,
        base_url=settings.embedding_base_url,
        api_key=settings.embedding_api_key,
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
