"""What runs, wired how?  The only place where services are built.

App, worker, CLI and tests all open the same Runtime; tests hand in another clock or embedder here.
"""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from memory_service.access import Access
from memory_service.domain import Clock, Json, Memory, utc_now
from memory_service.experience.active import ActiveLessons
from memory_service.experience.advice import Advice
from memory_service.experience.distill_model import ModelDistiller, load_distill_terms
from memory_service.experience.distill_model_settings import DistillModelNumbers
from memory_service.experience.for_context import lessons_for_context, lessons_learned
from memory_service.experience.noted import AskLessons, noted_queries
from memory_service.experience.query_distill import QueryDistiller, load_query_prompt
from memory_service.experience.semantic import SemanticLessons
from memory_service.experience.service import Experiences, UsedFrom
from memory_service.foundation import Ground, open_ground, open_model
from memory_service.jobs.following import ModelFollower, ReembedNumbers
from memory_service.jobs.job import Job, JobNumbers
from memory_service.jobs.reembed_state import ReembedState
from memory_service.jobs.relay import EraseCopies, Relay
from memory_service.jobs.retrieval_log import RetrievalLog
from memory_service.jobs.schedule import Schedule
from memory_service.lifecycle.compress_rules import CompressNumbers, load_text_patterns
from memory_service.lifecycle.compressing import Compression, Midpoints
from memory_service.lifecycle.cooling import Cooling, CoolingNumbers
from memory_service.lifecycle.erasure import Erasure, ErasureNumbers
from memory_service.lifecycle.families import Disputes, Families
from memory_service.lifecycle.heat import heat_at
from memory_service.lifecycle.insight_model import InsightModel
from memory_service.lifecycle.insight_rules import InsightNumbers
from memory_service.lifecycle.judging import Judging
from memory_service.lifecycle.purge import Purge, PurgeNumbers
from memory_service.lifecycle.reconcile import Reconcile, ReconcileNumbers
from memory_service.lifecycle.reindexing import Reindexing
from memory_service.lifecycle.relations import Relations
from memory_service.lifecycle.reviewing import Reviewing
from memory_service.lifecycle.service import Lifecycle
from memory_service.lifecycle.summary_model import SummaryModel
from memory_service.models.ports import Embedder, LanguageModel
from memory_service.moving.exports import Exports
from memory_service.moving.seeds import memory_seeds
from memory_service.moving.service import Imports
from memory_service.moving.settings import MovingNumbers
from memory_service.operations import Operations
from memory_service.recall.calibration import Relevance, pair_script_of, relevance
from memory_service.recall.context import Contexts
from memory_service.recall.injection import InjectionNumbers
from memory_service.recall.lanes import Lanes
from memory_service.recall.reader import MemoryReader
from memory_service.recall.retrievals import Retrievals
from memory_service.recall.service import Recall
from memory_service.secrets import load_secrets
from memory_service.settings import Settings, Tunables
from memory_service.shapes import memory_json
from memory_service.stores.postgres.pool import Postgres
from memory_service.stores.qdrant import VectorIndex
from memory_service.stores.redis import WorkingStore
from memory_service.stores.redis_client import Redis
from memory_service.stores.redis_runs import RunStore
from memory_service.stores.session_buffer import BufferBounds, SessionBuffer
from memory_service.tasks.finish import Doing, Finishing
from memory_service.tasks.first import first_context
from memory_service.tasks.service import TaskRules, Tasks
from memory_service.tasks.settings import TaskNumbers
from memory_service.working.notes import TaskNotebook
from memory_service.working.service import WorkingMemory
from memory_service.working.settings import Working
from memory_service.write.conflict_model import ConflictModel, ConflictModelNumbers
from memory_service.write.conflict_rules import load_conflict_rules
from memory_service.write.contradictions import ConflictNumbers, Contradictions
from memory_service.write.reading import ReadingNumbers, ReadingTerms, load_reading_terms
from memory_service.write.rejoining import rejoin
from memory_service.write.resolving import Conflicts
from memory_service.write.service import MemoryWriter
from memory_service.write.shared_commit import SharedCommit
from memory_service.write.similar import SimilarMemories
from memory_service.write.storing import Storing
from memory_service.write.triggers import load_trigger_rules
from memory_service.write.turn_forgetting import forget_turns_of
from memory_service.write.turn_reading import TurnReadingNumbers, load_turn_terms
from memory_service.write.turn_service import Turns
from memory_service.write.turn_settings import TurnNumbers

log = logging.getLogger(__name__)
Reader = tuple[LanguageModel, ReadingTerms]


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
    conflicts: Conflicts
    reader: MemoryReader
    recall: Recall
    contexts: Contexts
    working: WorkingMemory
    turns: Turns
    tasks: Tasks
    finishing: Finishing
    experiences: Experiences
    ask_experiences: AskLessons
    retrievals: Retrievals
    erasure: Erasure
    lifecycle: Lifecycle
    judging: Judging
    relations: Relations
    exports: Exports
    imports: Imports
    relay: Relay
    follower: ModelFollower
    retrieval_log: RetrievalLog
    schedule: Schedule
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
    async with AsyncExitStack() as stack:
        ground = await open_ground(stack, settings, clock, embedder, tunables, progress)
        yield _runtime(ground, stack)


def _runtime(ground: Ground, stack: AsyncExitStack) -> Runtime:
    numbers, clock, postgres = ground.numbers, ground.clock, ground.postgres
    working, buffer = _working(ground), _session_buffer(ground)
    erase_copies = _erase_copies(working, buffer)
    relay = Relay(
        postgres, ground.index, ground.embedder, ground.vocabulary, numbers.relay, erase_copies,
        ground.embedder_config.stored(),
    )  # fmt: skip
    retrieval_log = RetrievalLog(postgres, numbers.retrievals, clock)
    storing = _storing(ground)
    families = _families(ground, storing)
    new_writer = _writer(ground, storing, relay, families)
    plain = new_writer(None)  # what tasks and turns write was read already
    turns = _turns(ground, plain, working, buffer)
    experiences = _experiences(ground, relay, retrieval_log, stack)
    recall = _recall(ground, retrieval_log)
    contexts = _contexts(ground, recall, experiences, retrieval_log)
    judging = Judging(postgres, numbers, clock, relay.nudge, retrieval_log.flush)
    doing = Doing(plain.write, experiences.distill, experiences.feedback, turns.end_task, judging.mark_used)
    tasks, finishing = _task_loop(ground, working, contexts, experiences, doing)
    return Runtime(
        settings=ground.settings,
        tunables=numbers,
        clock=clock,
        postgres=postgres,
        redis=ground.redis,
        index=ground.index,
        embedder=ground.embedder,
        access=Access(postgres, numbers.limits, clock),
        writer=new_writer(_reading(ground)),
        conflicts=Conflicts(postgres, storing, ground.vocabulary, ground.summary_rules, numbers, clock, relay.nudge),
        reader=MemoryReader(postgres, clock, numbers.heat),
        recall=recall,
        contexts=contexts,
        working=working,
        turns=turns,
        tasks=tasks,
        finishing=finishing,
        experiences=experiences,
        ask_experiences=noted_queries(experiences.query, retrieval_log.note, numbers.retrievals),
        retrievals=Retrievals(postgres, retrieval_log.flush),
        erasure=Erasure(
            postgres,
            working,
            numbers.section("erasure", ErasureNumbers),
            relay.nudge,
            turns.erase_user,
            retrieval_log.forget_user,
        ),
        lifecycle=Lifecycle(postgres, ground.vocabulary, numbers, clock, relay.nudge, families),
        judging=judging,
        relations=Relations(postgres, numbers.limits.relations_max, clock, relay.nudge),
        exports=Exports(postgres, numbers.section("moving", MovingNumbers), ground.embedder, clock),
        imports=_imports(ground, relay, families),
        relay=relay,
        follower=_follower(ground, relay),
        retrieval_log=retrieval_log,
        schedule=Schedule(postgres, _jobs(ground, relay, families), numbers.section("jobs", JobNumbers), clock),
        operations=Operations(
            postgres,
            ground.redis,
            ground.index,
            ground.embedder,
            relay,
            retrieval_log,
            ReembedState(postgres, numbers.section("reembed", ReembedNumbers)),
        ),
    )


def _follower(ground: Ground, relay: Relay) -> ModelFollower:
    async def open_stored(stored: Json) -> Embedder:
        return await open_model(ground.embedder_config.opening(stored), ground.numbers, log.info)

    own = ground.numbers.section("reembed", ReembedNumbers)
    return ModelFollower(ground.postgres, ground.index, ground.embedder, relay, open_stored, own)


def _working(ground: Ground) -> WorkingMemory:
    own = ground.numbers.section("working", Working)
    once_seconds = ground.numbers.limits.idempotency_hours * 3600
    store = WorkingStore(ground.redis, ttl_seconds_max=own.ttl_seconds_max, once_seconds=once_seconds)
    return WorkingMemory(store, own, ground.embedder.count_tokens, ground.clock)


def _storing(ground: Ground) -> Storing:
    rules = load_conflict_rules(ground.folder / "conflicts.toml", ground.contrasts)
    contradictions = Contradictions(
        rules, ground.numbers.section("conflicts", ConflictNumbers), _conflict_model(ground)
    )
    return Storing(ground.vocabulary, ground.numbers.limits, contradictions)


def _conflict_model(ground: Ground) -> ConflictModel | None:
    """The language model that compares statements where the rules see no contradiction."""
    if ground.language is None:
        return None
    table = ground.numbers.section("relevance", Relevance)

    def near(new: str, older: str, cosine: float) -> float:
        model = ground.embedder.fingerprint.model  # it can be exchanged while the service runs
        return relevance(cosine, pair_script_of(new, older), table.curves(model))

    return ConflictModel(ground.language, ground.numbers.section("conflict_model", ConflictModelNumbers), near)


def _writer(
    ground: Ground, storing: Storing, relay: Relay, families: Families
) -> Callable[[Reader | None], MemoryWriter]:
    """Makes writers that read with a language model, or without one."""
    numbers, contradictions = ground.numbers, storing.contradictions
    similar = SimilarMemories(
        ground.postgres, ground.index, ground.embedder, ground.vocabulary, ground.contrasts, numbers.write, ground.clock,
        contradictions.numbers.neighbours,
    )  # fmt: skip
    shared = SharedCommit(ground.postgres, numbers.write, ground.clock)
    return partial(
        MemoryWriter, ground.postgres, similar, contradictions, storing, shared, ground.vocabulary, ground.summary_rules, numbers,
        ground.clock, relay.nudge, relay.apply_now, families,
    )  # fmt: skip


def _reading(ground: Ground) -> Reader | None:
    """The language model that reads what is written with `infer`."""
    if ground.language is None:
        return None
    return ground.language, load_reading_terms(ground.summary_rules, ground.numbers.section("reading", ReadingNumbers))


def _jobs(ground: Ground, relay: Relay, families: Families) -> list[Job]:
    """The table of maintenance jobs, in the order of a night."""
    numbers, postgres, nudge = ground.numbers, ground.postgres, relay.nudge
    times, reconciling = numbers.section("jobs", JobNumbers), numbers.section("reconcile", ReconcileNumbers)
    cooling = Cooling(postgres, numbers.heat, numbers.section("cooling", CoolingNumbers), nudge)
    purge = Purge(postgres, families, numbers.section("purge", PurgeNumbers), numbers.limits.idempotency_hours, nudge)
    reconcile = Reconcile(postgres, ground.index, reconciling, relay.prepare, nudge)
    return [
        Job("decay", times.timing("decay"), "archive", cooling.run),
        Job("purge", times.timing("purge"), "erase", purge.run),
        Job("reconcile", times.timing("reconcile"), "repair", reconcile.run, reconcile.tenants),
        Job("compress", times.timing("compress"), "compress", _compression(ground, relay).run),
        Job("insights", times.timing("insights"), "write", _reviewing(ground, relay).run),
        Job("reindex", None, "enqueue", Reindexing(postgres, reconciling.page_rows, nudge).run),
    ]


def _families(ground: Ground, storing: Storing) -> Families:
    numbers = ground.numbers
    patterns = load_text_patterns(ground.folder / "compress.toml")
    own, insights = numbers.section("compress", CompressNumbers), numbers.section("insights", InsightNumbers)
    gone_max = ground.lesson_rules.numbers.gone_rows_max
    contradictions = storing.contradictions
    disputes = Disputes(partial(rejoin, contradictions), contradictions.numbers.dispute_max)
    return Families(ground.vocabulary, numbers.heat, own, patterns, insights, gone_max, ground.clock, disputes)


def _compression(ground: Ground, relay: Relay) -> Compression:
    numbers = ground.numbers
    own, relevance = numbers.section("compress", CompressNumbers), numbers.section("relevance", Relevance)

    def midpoints() -> Midpoints:
        curves = relevance.curves(ground.embedder.fingerprint.model)  # it can be exchanged while the service runs
        return Midpoints(curves.latin.midpoint, curves.cjk.midpoint)

    model = SummaryModel(ground.language, own) if ground.language else None
    patterns = load_text_patterns(ground.folder / "compress.toml")
    return Compression(
        ground.postgres, ground.index, ground.vocabulary, numbers.heat, own, patterns, midpoints, relay.nudge, model
    )


def _reviewing(ground: Ground, relay: Relay) -> Reviewing:
    numbers = ground.numbers
    own = numbers.section("insights", InsightNumbers)
    model = InsightModel(ground.language, own) if ground.language else None
    return Reviewing(
        ground.postgres,
        ground.vocabulary,
        numbers.heat,
        own,
        ground.distill_rules,
        ground.lesson_rules,
        relay.nudge,
        model,
    )


def _recall(ground: Ground, retrieval_log: RetrievalLog) -> Recall:
    numbers = ground.numbers
    lanes = Lanes(ground.postgres, ground.index, ground.embedder, ground.vocabulary, numbers.search, numbers.rank)
    return Recall(ground.postgres, lanes, ground.readings, ground.time_rules, numbers, ground.clock, retrieval_log.note)


def _contexts(ground: Ground, recall: Recall, experiences: Experiences, retrieval_log: RetrievalLog) -> Contexts:
    own = ground.numbers.section("injection", InjectionNumbers)
    lessons = lessons_for_context(experiences.query, own)
    note, keep = retrieval_log.note, retrieval_log.keep
    learned = lessons_learned(ground.postgres, own, ground.lesson_rules.confidence)
    return Contexts(recall.find, lessons, learned, ground.embedder.count_tokens, own, note, keep)


def _experiences(ground: Ground, relay: Relay, log: RetrievalLog, stack: AsyncExitStack) -> Experiences:
    rules, numbers, postgres = ground.lesson_rules, ground.numbers, ground.postgres
    active = ActiveLessons(postgres, rules.numbers, rules.limits, rules.confidence)
    stack.push_async_callback(active.close)
    deadline_s = numbers.search.lane_deadline_s
    meant = SemanticLessons(
        postgres,
        ground.index,
        ground.embedder,
        ground.vocabulary,
        rules.numbers,
        numbers.rank,
        ground.readings,
        deadline_s,
    )
    asking = numbers.section("distill_model", DistillModelNumbers)
    wording = ground.language if rules.numbers.derive_query_with_model else None
    distiller = QueryDistiller(ground.distill_rules, asking, wording, load_query_prompt())
    advice = Advice(postgres, active, meant, rules, numbers.rank, distiller if rules.numbers.derive_query else None)
    model = None
    if ground.language is not None:
        terms = load_distill_terms(ground.distill_rules, asking, rules.limits)
        model = ModelDistiller(ground.language, terms, ground.embedder.count_tokens)
    used = UsedFrom(log.flush, numbers.retrievals.lesson_used_days)
    return Experiences(postgres, advice, meant, rules, ground.distill_rules, ground.clock, relay.nudge, used, model)


def _session_buffer(ground: Ground) -> SessionBuffer:
    own = ground.numbers.section("turns", TurnNumbers)
    bounds = BufferBounds(
        own.life_seconds * 1000, own.lease_seconds * 1000, own.buffer_messages_max, own.buffer_bytes_max
    )
    return SessionBuffer(ground.redis, bounds)


def _erase_copies(working: WorkingMemory, buffer: SessionBuffer) -> EraseCopies:
    """What the relay removes from Redis of an erased memory."""

    async def erase(tenant: str, user_id: str, memory_id: str) -> int:
        waiting = await forget_turns_of(buffer, tenant, user_id, UUID(memory_id))
        return waiting + await working.erase_copies(tenant, user_id, memory_id)

    return erase


def _turns(ground: Ground, writer: MemoryWriter, working: WorkingMemory, buffer: SessionBuffer) -> Turns:
    own, rules = ground.numbers.section("turns", TurnNumbers), ground.summary_rules
    triggers = load_trigger_rules(ground.folder / "triggers.toml", rules)
    terms = load_reading_terms(rules, ground.numbers.section("reading", ReadingNumbers))
    asking = load_turn_terms(rules, terms, ground.contrasts, ground.numbers.section("turn_reading", TurnReadingNumbers))
    language = (ground.language, asking) if ground.language else None
    secrets = load_secrets(ground.folder / "secrets.toml")
    return Turns(ground.postgres, buffer, writer, TaskNotebook(working), triggers, own, ground.clock, secrets, language)


def _task_loop(
    ground: Ground, working: WorkingMemory, contexts: Contexts, experiences: Experiences, doing: Doing
) -> tuple[Tasks, Finishing]:
    own, numbers = ground.numbers.section("tasks", TaskNumbers), ground.numbers.section("working", Working)
    injecting = contexts.numbers
    rules = TaskRules(
        own,
        numbers,
        ground.distill_rules,
        ground.lesson_rules.confidence,
        injecting.tokens_default,
        injecting.tokens_max,
    )
    runs = RunStore(ground.redis, ttl_seconds_max=numbers.ttl_seconds_max)
    first = first_context(contexts.build, own.first_memories_max, ground.clock)
    count = ground.embedder.count_tokens
    tasks = Tasks(ground.postgres, runs, rules, ground.clock, count, working.get, first, experiences.query)
    return tasks, Finishing(ground.postgres, runs, rules, ground.clock, doing)


def _imports(ground: Ground, relay: Relay, families: Families) -> Imports:
    numbers = ground.numbers
    seeds = memory_seeds(ground.summary_rules, numbers.write, numbers.heat)
    own = numbers.section("moving", MovingNumbers)
    most = numbers.limits.relations_max
    return Imports(
        ground.postgres, ground.vocabulary, ground.lesson_rules, own, most, seeds, ground.clock, relay.nudge, families
    )  # fmt: skip
