"""How does a lesson get into Postgres?  The steps of one writing transaction, shared by write, distill, patch and feedback.

`lock_user` first; then each change is the row, its version and, when its text changed, an outbox row.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from memory_service.domain import Caller, Experience, new_id
from memory_service.errors import InvalidFields
from memory_service.experience.changes import differences, snapshot_of, text_changed
from memory_service.experience.conditions import Condition, condition_hash, parse_conditions
from memory_service.experience.conditions_settings import ConditionLimits
from memory_service.experience.confidence import started
from memory_service.experience.confidence_settings import ConfidenceSettings
from memory_service.experience.drafts import NewLesson, Stored
from memory_service.experience.indexing import lesson_terms
from memory_service.experience.settings import ExperienceNumbers
from memory_service.experience.succession import Changed, ledger_json, succession
from memory_service.stores.postgres import changes as memory_changes
from memory_service.stores.postgres import experiences
from memory_service.stores.postgres.pool import Connection
from memory_service.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class LessonRules:
    """What storing goes by."""

    numbers: ExperienceNumbers
    limits: ConditionLimits
    confidence: ConfidenceSettings
    vocabulary: Vocabulary


def made(caller: Caller, lesson: NewLesson, now: datetime, rules: LessonRules) -> Experience:
    """The experience that this lesson would be.  Raises InvalidFields for bad conditions."""
    parsed = parse_conditions(lesson.conditions, rules.limits)
    confidence = started(lesson.origin, now, rules.confidence, None if lesson.learned else lesson.start)
    if lesson.learned and lesson.start is not None:  # a rule's own estimate of what it found
        entry = replace(confidence.ledger[0], delta=lesson.start)
        confidence = replace(confidence, value=lesson.start, ledger=(entry,))
    return Experience(
        id=new_id(),
        tenant=caller.tenant,
        user_id=lesson.user_id,
        conditions=tuple(condition.as_json() for condition in parsed),
        condition_hash=condition_hash(parsed, tenant=caller.tenant, user_id=lesson.user_id, task_type=lesson.task_type),
        action=lesson.action,
        origin=lesson.origin,
        confidence=confidence.value,
        confidence_ledger=ledger_json(confidence),
        created_at=now,
        updated_at=now,
        agent_id=lesson.agent_id,
        task_type=lesson.task_type,
        avoid=lesson.avoid,
        rationale=lesson.rationale,
        tags=tuple(dict.fromkeys(lesson.tags))[: rules.numbers.tags_max],
        source_memory_ids=tuple(dict.fromkeys(lesson.source_memory_ids))[: rules.numbers.source_ids_max],
        source_steps=lesson.source_steps,
        rule=lesson.rule,
    )


async def add(
    connection: Connection, caller: Caller, newcomer: Experience, seq: int, rules: LessonRules, *, learned: bool
) -> Stored:
    """Store one, or say which lesson it is or gives way to.  Raises InvalidFields for one pattern too many."""
    await check_patterns(connection, newcomer, rules)
    known = await experiences.same_conditions(
        connection, newcomer.tenant, newcomer.user_id, newcomer.condition_hash, rules.numbers.same_conditions_max
    )
    outcome = succession(newcomer, known, newcomer.created_at, rules.numbers, rules.confidence, learned=learned)
    for change in outcome.changes:
        await put(connection, caller, change, seq, rules)
    return Stored(outcome.status, outcome.told, outcome.reason)


async def put(
    connection: Connection, caller: Caller, change: Changed, seq: int, rules: LessonRules, task_id: str | None = None
) -> None:
    """Write one row with its version; the relay learns of it when its text changed."""
    after = change.after
    store = experiences.insert if change.before is None else experiences.save
    await store(connection, after, lesson_terms(after, rules.vocabulary), seq)
    await experiences.keep_version(
        connection,
        after,
        snapshot_of(after),
        differences(change.before, after),
        actor=caller.actor,
        cause=change.cause,
        task_id=task_id,
    )
    if text_changed(change.before, after):
        await memory_changes.enqueue(connection, after.tenant, [after.id])


async def check_patterns(connection: Connection, experience: Experience, rules: LessonRules) -> None:
    """Patterns can't be looked up, each may have to run in a query: their number is bounded.  Raises InvalidFields."""
    wanted = {c["value"] for c in experience.conditions if c["operator"] == "matches"}
    if not wanted:
        return
    known = await experiences.patterns_of_user(connection, experience.tenant, experience.user_id)
    if len(known | wanted) > rules.numbers.patterns_per_user_max and wanted - known:
        most = rules.numbers.patterns_per_user_max
        raise InvalidFields.of("conditions", f"this user already has {most} different patterns of `matches`")


def canonical(conditions: Sequence[Condition]) -> frozenset[bytes]:
    return frozenset(condition.canonical for condition in conditions)
