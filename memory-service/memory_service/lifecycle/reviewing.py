"""How does what episodes share become a lesson or a fact?  The job `insights`.

For each user with failures: read the newest episodes → findings (insights.py) → words by the model or the rules → one transaction a
finding, in which its sources are held, and what exists is looked at: the same lesson is not written twice, what a person retired,
archived or erased is not proposed again, and a lesson learned of one run is not displaced by a guess over several.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID

from memory_service.domain import Caller, Entity, Experience, Json, Memory
from memory_service.errors import InvalidFields
from memory_service.experience import store
from memory_service.experience.confidence import same_action
from memory_service.experience.distill_rules import DistillRules
from memory_service.experience.drafts import NewLesson
from memory_service.experience.store import LessonRules
from memory_service.experience.trajectory import step_of
from memory_service.lifecycle.insight_model import InsightModel
from memory_service.lifecycle.insight_rules import InsightNumbers
from memory_service.lifecycle.insight_text import LessonTexts, fact_text, insight_id, lesson_texts
from memory_service.lifecycle.insights import Episode, Finding, conditions_of, findings_of
from memory_service.lifecycle.report import JobItem, JobReport, JobRun
from memory_service.scripts import is_chinese
from memory_service.settings import Heat
from memory_service.shapes import memory_json
from memory_service.stores.postgres import changes, experiences, insights, memories, relations
from memory_service.stores.postgres.insights import EpisodeRow
from memory_service.stores.postgres.pool import Connection, Postgres
from memory_service.vocabulary import Vocabulary
from memory_service.write.drafts import differences
from memory_service.write.duplicates import content_hash
from memory_service.write.indexing import indexed_text

JOB = "insights"
METADATA_KEY = "insight"


@dataclass(frozen=True, slots=True)
class Proposed:
    """What became of one finding; `id` is None when nothing was to be done, `why` says why or why not."""

    id: UUID | None
    why: str


@dataclass(slots=True)
class Tally:
    """What a run has done so far."""

    items_max: int
    written: int = 0
    known: int = 0
    by_model: int = 0
    items: list[JobItem] = field(default_factory=list)


class Reviewing:
    """`run` is the job.  Raises StoreUnavailable when Postgres is down; what was written until then stays."""

    def __init__(
        self,
        postgres: Postgres,
        vocabulary: Vocabulary,
        heat: Heat,
        numbers: InsightNumbers,
        rules: DistillRules,
        lessons: LessonRules,
        nudge: Callable[[], None],
        model: InsightModel | None = None,
    ) -> None:
        self._postgres = postgres
        self._vocabulary = vocabulary
        self._heat = heat
        self._numbers = numbers
        self._rules = rules
        self._lessons = lessons
        self._nudge = nudge
        self._model = model

    async def run(self, run: JobRun) -> JobReport:
        """Done: lessons and facts that were written or renewed; `known` counts findings that had been told already."""
        tally = Tally(run.items_max)
        since = run.now - timedelta(days=self._numbers.days)
        async for user_id in self._users(run, since):
            for finding in await self._findings(run, user_id, since):
                await self._tell(run, user_id, finding, tally)
        counts = {"written": tally.written, "known": tally.known, "worded_by_model": tally.by_model}
        return JobReport(tally.written, tally.items, counts)

    async def _users(self, run: JobRun, since: datetime) -> AsyncIterator[str]:
        after, size, least = "", self._numbers.users_page, self._numbers.episodes_min
        while True:
            page = await self._postgres.read(
                lambda c, a=after: insights.users_with_failures(c, run.tenant, since, run.now, least, a, size)  # type: ignore[misc]
            )
            for user_id in page:
                yield user_id
            if len(page) < size:
                return
            after = page[-1]

    async def _findings(self, run: JobRun, user_id: str, since: datetime) -> list[Finding]:
        most = self._numbers.episodes_max
        rows = await self._postgres.read(lambda c: insights.episodes(c, run.tenant, user_id, since, run.now, most))
        return await asyncio.to_thread(lambda: findings_of([_episode(row) for row in rows], self._rules, self._numbers))

    async def _tell(self, run: JobRun, user_id: str, finding: Finding, tally: Tally) -> None:
        caller = Caller(run.tenant, "admin", job=JOB)
        cured = finding.cure.kind != "none"
        if run.dry_run:
            told = await self._postgres.read(lambda c: self._propose(c, caller, user_id, finding, run, None))
        else:
            texts = await self._worded(run, caller, user_id, finding, tally) if cured else None
            told = await self._postgres.transaction(lambda c: self._propose(c, caller, user_id, finding, run, texts))
        if told.id is None:
            tally.known += 1
            return
        tally.written += 1
        if len(tally.items) < tally.items_max:
            tally.items.append(JobItem(told.id, user_id, told.why))
        self._nudge()

    async def _worded(
        self, run: JobRun, caller: Caller, user_id: str, finding: Finding, tally: Tally
    ) -> LessonTexts | None:
        """A model's words for what would be written; it is not asked about what is known."""
        if self._model is None or tally.by_model >= self._numbers.model_insights_max:
            return None
        dry = replace(run, dry_run=True)
        if (await self._postgres.read(lambda c: self._propose(c, caller, user_id, finding, dry, None))).id is None:
            return None
        told = await self._model.worded(finding, lesson_texts(finding, self._rules))
        tally.by_model += told is not None
        return told

    async def _propose(
        self,
        connection: Connection,
        caller: Caller,
        user_id: str,
        finding: Finding,
        run: JobRun,
        texts: LessonTexts | None,
    ) -> Proposed:
        """Look at what exists and, unless the run is a dry one, write.  In a dry run nothing is locked."""
        if not run.dry_run:
            there = await relations.lock_ends(connection, caller, finding.sources, run.now)
            sources = tuple(one for one in finding.sources if one in there)
            if len(sources) < self._numbers.episodes_min:
                return Proposed(None, "episodes were erased meanwhile")
            finding = replace(finding, sources=sources)
        if finding.cure.kind == "none":
            return await self._fact(connection, caller, user_id, finding, run)
        return await self._lesson(connection, caller, user_id, finding, run, texts)

    # Lessons.

    async def _lesson(
        self,
        connection: Connection,
        caller: Caller,
        user_id: str,
        finding: Finding,
        run: JobRun,
        texts: LessonTexts | None,
    ) -> Proposed:
        try:
            newcomer = self._newcomer(caller, user_id, finding, run.now, texts)
        except InvalidFields as error:
            return Proposed(None, str(error))
        seq = 0 if run.dry_run else await experiences.lock_user(connection, caller.tenant, user_id)
        most = self._lessons.numbers.same_conditions_max
        known = await experiences.same_conditions(connection, caller.tenant, user_id, newcomer.condition_hash, most)
        plain = lesson_texts(finding, self._rules).action
        same = next((one for one in known if one.id == newcomer.id or same_action(one.action, plain)), None)
        if (refusal := self._refusal(same, known, finding)) is not None:
            return Proposed(None, refusal)
        if same is None and await insights.taken(connection, caller.tenant, [newcomer.id]):
            return Proposed(None, "somebody erased or changed it before")
        why = f"{newcomer.action} ({len(finding.sources)} episodes)"
        if run.dry_run:
            return Proposed(newcomer.id, why)
        said = newcomer if same is None else replace(newcomer, action=same.action)
        try:
            stored = await store.add(connection, caller, said, seq, self._lessons, learned=True)
        except InvalidFields as error:
            return Proposed(None, str(error))
        told = stored.experience
        return (
            Proposed(told.id, why)
            if told is not None and stored.status != "rejected"
            else Proposed(None, stored.reason or "")
        )

    def _refusal(self, same: Experience | None, known: Sequence[Experience], finding: Finding) -> str | None:
        """Why there is nothing to write; None when there is."""
        if same is None:
            active = next((one for one in known if one.status == "active"), None)
            return f"lesson {active.id} is active for the same conditions" if active is not None else None
        if same.status != "active":
            return f"the lesson is {same.status}"
        fresh = set(finding.sources) - set(same.source_memory_ids)
        full = len(same.source_memory_ids) >= self._lessons.numbers.source_ids_max
        return "the lesson is known" if full or not fresh else None

    def _newcomer(
        self, caller: Caller, user_id: str, finding: Finding, now: datetime, texts: LessonTexts | None
    ) -> Experience:
        """Raises InvalidFields for conditions that can't be stored."""
        told = texts or lesson_texts(finding, self._rules)
        most = self._lessons.numbers.source_ids_max
        lesson = NewLesson(
            user_id=user_id,
            conditions=conditions_of(finding),
            action=told.action,
            origin="insight",
            start=self._numbers.confidence,
            avoid=told.avoid or None,
            rationale=told.rationale,
            task_type=finding.task_type,
            tags=(finding.tool,),
            source_memory_ids=finding.sources[-most:],
            rule=f"shared_{finding.cure.kind}",
            learned=True,
        )
        return replace(store.made(caller, lesson, now, self._lessons), id=insight_id(finding, caller.tenant, user_id))

    # Facts.

    async def _fact(
        self, connection: Connection, caller: Caller, user_id: str, finding: Finding, run: JobRun
    ) -> Proposed:
        made = self._memory(caller, user_id, finding, run.now)
        known = await insights.known_fact(connection, caller.tenant, user_id, finding.key)
        if known is not None:
            return await self._renewed(connection, caller, known, made, finding, run)
        if await insights.taken(connection, caller.tenant, [made.id]):
            return Proposed(None, "somebody erased it before")
        same = [(user_id, content_hash(made.content))]
        if await memories.find_same_text(connection, caller.tenant, same, run.now):
            return Proposed(None, "a memory says the same")
        if not run.dry_run:
            await memories.insert(connection, made, indexed_text(made, self._vocabulary))
        return Proposed(made.id, made.content)

    async def _renewed(
        self, connection: Connection, caller: Caller, known: Memory, made: Memory, finding: Finding, run: JobRun
    ) -> Proposed:
        """New episodes bear out a fact that is told already."""
        if not set(finding.sources) - set(known.source_memory_ids):
            return Proposed(None, "the fact is known")
        if known.state != "active" or await insights.edited(connection, known.id):
            return Proposed(None, f"somebody changed the fact, or it is {known.state}")
        if run.dry_run:
            return Proposed(known.id, made.content)
        locked = (await memories.get_many(connection, caller.tenant, [known.id], lock=True) or [known])[0]
        after = replace(
            locked,
            content=made.content,
            summary=made.summary,
            source_memory_ids=made.source_memory_ids,
            occurred_at=made.occurred_at,
            metadata={**locked.metadata, **made.metadata},
            version=locked.version + 1,
            updated_at=run.now,
        )
        shown, changed = memory_json(locked), differences(locked, after)
        await changes.keep_version(connection, locked, shown, changed, actor=caller.actor, cause=JOB, at=run.now)
        await changes.save(connection, after, indexed_text(after, self._vocabulary))
        return Proposed(known.id, made.content)

    def _memory(self, caller: Caller, user_id: str, finding: Finding, now: datetime) -> Memory:
        text = fact_text(finding, self._rules)
        return Memory(
            id=insight_id(finding, caller.tenant, user_id),
            tenant=caller.tenant,
            kind="semantic",
            user_id=user_id,
            content=text,
            summary=text,
            created_at=now,
            updated_at=now,
            occurred_at=finding.last,
            event_type="fact",
            category="fact",
            tags=(finding.tool,),
            entities=(Entity(finding.tool, "tool"),),
            importance=self._numbers.importance,
            confidence=self._numbers.fact_confidence,
            heat=self._heat.initial,
            heat_at=now,
            valid_from=now,
            source_memory_ids=finding.sources,
            metadata={METADATA_KEY: {"key": finding.key, "tool": finding.tool, "cause": finding.cause}},
            written_by=caller.actor,
        )


def _episode(row: EpisodeRow) -> Episode:
    """A call of unknown end is left out: nobody knows whether it taught something."""
    calls = [
        call
        for call in row.tool_calls
        if call.get("status") in ("success", "error") and isinstance(call.get("tool"), str)
    ]
    return Episode(
        row.id, row.occurred_at, tuple(step_of(_plain(call)) for call in calls), row.task_type, is_chinese(row.head)
    )


def _plain(call: Json) -> Json:
    """Arguments by name; of a call that was told with others nothing can be compared."""
    return call if isinstance(call.get("arguments"), dict) else {**call, "arguments": {}}
