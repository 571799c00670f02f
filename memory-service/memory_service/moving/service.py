"""How do lines become rows?  Slice by slice, each one transaction; a slice that was committed is not lost with the next.

index texts in a thread → lock the ids, the users' lessons and the rows → ask what is known of all ids at once → plan (pure)
→ write → nudge the relay.  Importing again changes nothing, so a broken import is repeated as a whole.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from memory_service.domain import Caller, Clock, Experience, Memory
from memory_service.errors import InvalidFields
from memory_service.experience import store
from memory_service.experience.changes import snapshot_of
from memory_service.experience.drafts import NewLesson
from memory_service.experience.indexing import lesson_terms
from memory_service.experience.store import LessonRules
from memory_service.experience.succession import Changed
from memory_service.moving.identity import Known, Owner, ids_in, twin_of
from memory_service.moving.lines import ConflictLine, Imported, Line, Refused, RelationLine, VersionLine
from memory_service.moving.planning import Bounds, Made, Plan
from memory_service.moving.seeds import SeedMemory, seed_lesson
from memory_service.moving.settings import MovingNumbers
from memory_service.shapes import memory_json
from memory_service.stores.postgres import changes, erasing, experiences, imports, memories, relations
from memory_service.stores.postgres.memories import IndexedText
from memory_service.stores.postgres.pool import Connection, Postgres
from memory_service.vocabulary import Vocabulary
from memory_service.write.drafts import Draft, differences
from memory_service.write.duplicates import content_hash
from memory_service.write.indexing import indexed_text, lock_key

# Commits something of the caller's (the idempotent answer).
Record = Callable[[Connection, Any], Awaitable[None]]
CAUSE = "imported"


class Summaries(Protocol):
    """Keeps summaries true to their sources: `line_up` before rows are locked, `follow` when one was replaced."""

    async def line_up(self, connection: Connection, tenant: str, ids: Sequence[UUID]) -> None: ...

    async def follow(self, connection: Connection, before: Memory, after: Memory) -> None: ...


class Imports:
    """`take` slices, then `finish`."""

    def __init__(
        self,
        postgres: Postgres,
        vocabulary: Vocabulary,
        rules: LessonRules,
        numbers: MovingNumbers,
        relations_max: int,
        seed: SeedMemory,
        clock: Clock,
        nudge: Callable[[], None],
        summaries: Summaries,
    ) -> None:
        self._postgres = postgres
        self._vocabulary = vocabulary
        self.rules = rules
        self.numbers = numbers
        self._relations_max = relations_max
        self._seed = seed
        self._clock = clock
        self._nudge = nudge
        self._summaries = summaries

    async def take(self, caller: Caller, lines: Sequence[Line], since: datetime) -> Imported:
        """Store one slice; what became of its lines.  Raises StoreUnavailable.

        UserBeingErased when a user of these is or was erased `since` the import began: earlier slices would be missing.
        """
        if not lines:
            return Imported()
        made = await asyncio.to_thread(lambda: [self._made(caller, line) for line in lines])
        good = [one for one in made if not isinstance(one, Refused)]
        told = await self._postgres.transaction(lambda c: self._stored(c, caller, good, since))
        told.refused += [one for one in made if isinstance(one, Refused)]
        self._nudge()
        return told

    async def finish(self, total: Imported, record: Record) -> None:
        """Commit the answer of the whole request."""
        await self._postgres.transaction(lambda c: record(c, total))

    def _made(self, caller: Caller, line: Line) -> Made | Line | Refused:
        """With an id and what is indexed.  Takes about a millisecond a text."""
        thing, seed = line.thing, isinstance(line.thing, Draft | NewLesson)
        try:
            if isinstance(thing, Draft):
                thing = self._seed(caller, thing, self._clock())
            elif isinstance(thing, NewLesson):
                thing = seed_lesson(caller, thing, self._clock(), self.rules)
        except InvalidFields as error:
            return Refused(line.number, None, error.code, error.detail)
        if isinstance(thing, Memory):
            return Made(line, thing, indexed_text(thing, self._vocabulary), seed)
        if isinstance(thing, Experience):
            return Made(line, thing, lesson_terms(thing, self._vocabulary), seed)
        return line

    # Inside the transaction.

    async def _stored(
        self, connection: Connection, caller: Caller, made: Sequence[Made | Line], since: datetime
    ) -> Imported:
        own = {_own_id(one) for one in made} - {None}
        users = sorted({_user(one) for one in made if _is_lesson(one)})
        await erasing.admit(connection, caller.tenant, {_user(one) for one in made}, since)
        twins = {twin_of(caller.tenant, _user(one), own_id) for one in made if (own_id := _own_id(one))}
        await imports.lock_ids(connection, [_key(one) for one in (*own, *twins) if one])
        seqs = {user: await experiences.lock_user(connection, caller.tenant, user) for user in users}
        plan = await self._plan(connection, caller, made, users)
        for one in made:
            plan.add(one)
        return plan.written(await self._write(connection, caller, plan, seqs))

    async def _plan(
        self, connection: Connection, caller: Caller, made: Sequence[Made | Line], users: Sequence[str]
    ) -> Plan:
        """Everything that the lines have to be compared with: a fixed number of questions, however many lines."""
        now = self._clock()
        pairs = [
            (one.line.user_id, one.text.content_hash)
            for one in made
            if isinstance(one, Made) and one.seed and isinstance(one.text, IndexedText)
        ]
        if pairs:  # before any row, as every writer does
            await memories.lock_texts(connection, [lock_key(caller.tenant, user, text) for user, text in pairs])
        known = await self._known(connection, caller, made)
        hashes = {
            one.thing.condition_hash for one in made if isinstance(one, Made) and isinstance(one.thing, Experience)
        }
        active = await imports.active_for(connection, caller.tenant, sorted(hashes)) if hashes else []
        patterns = {user: await experiences.patterns_of_user(connection, caller.tenant, user) for user in users}
        same = await memories.find_same_text(connection, caller.tenant, pairs, now) if pairs else []
        texts = {pair for pair in pairs for one in same if pair == (one.user_id, content_hash(one.content))}
        bounds = Bounds(self.rules.confidence, self.rules.numbers.patterns_per_user_max, self._relations_max)
        return Plan(caller.tenant, now, known, bounds, {one.condition_hash: one for one in active}, patterns, texts)

    async def _known(self, connection: Connection, caller: Caller, made: Sequence[Made | Line]) -> Known:
        """Rows are locked before it is asked what was erased: what is erased meanwhile was there, and waits for us."""
        asked: set[UUID] = set()
        for one in made:
            named = _ids(one)
            asked |= {*named, *(twin_of(caller.tenant, _user(one), old) for old in named)}
        ids = sorted(asked)
        await self._summaries.line_up(connection, caller.tenant, ids)
        await imports.lock_memories(connection, caller.tenant, ids)
        owners = {
            row.id: Owner(row.what, row.ours, row.user_id, row.version, row.detail)  # type: ignore[arg-type]
            for row in await imports.owners(connection, caller.tenant, ids)
        }
        known = Known(caller.tenant, owners, await imports.erased(connection, caller, ids))
        if any(isinstance(one.thing, RelationLine) for one in made):
            known.relations = await relations.among(connection, caller.tenant, ids)
            known.relation_counts.update(await relations.counts(connection, caller.tenant, ids, self._relations_max))
        return known

    async def _write(self, connection: Connection, caller: Caller, plan: Plan, seqs: dict[str, int]) -> dict[str, int]:
        """The rows of the plan; how many of those that may have been here were new."""
        if plan.memories:
            await memories.insert_many(connection, list(plan.memories.values()))
            await relations.add_related(connection, caller.tenant, plan.seed_relations(), plan.now)
        await self._replace(connection, caller, plan)
        await self._lessons(connection, caller, plan, seqs)
        tenant, added = caller.tenant, dict[str, int]()
        if plan.versions:
            added["versions"] = len(await imports.add_versions(connection, tenant, list(plan.versions.values())))
        if plan.lesson_versions:
            rows = list(plan.lesson_versions.values())
            added["lesson_versions"] = len(await imports.add_lesson_versions(connection, tenant, rows))
        if plan.relations:
            edges = [(*key, line.weight, line.created_at) for key, line in plan.relations.items()]
            added["relations"] = len(await imports.add_relations(connection, tenant, edges))
        if plan.conflicts:
            added["conflicts"] = len(await imports.add_conflicts(connection, tenant, list(plan.conflicts.values())))
        return added

    async def _replace(self, connection: Connection, caller: Caller, plan: Plan) -> None:
        """Memories that are here with a lower version: what they were is kept."""
        before = (
            {one.id: one for one in await memories.get_many(connection, caller.tenant, list(plan.saved_memories))}
            if plan.saved_memories
            else {}
        )
        for one, (after, text) in plan.saved_memories.items():
            await changes.keep_version(
                connection,
                before[one],
                memory_json(before[one]),
                differences(before[one], after),
                actor=caller.actor,
                cause=CAUSE,
                at=plan.now,
            )
            await changes.save(connection, after, text)
            await relations.follow_related(connection, before[one], after)
        for one, (after, _) in plan.saved_memories.items():  # when all are saved: a summary tells of several of them
            await self._summaries.follow(connection, before[one], after)

    async def _lessons(self, connection: Connection, caller: Caller, plan: Plan, seqs: dict[str, int]) -> None:
        """Those that give way first: at no moment are two active for the same conditions."""
        for before, after in plan.losers.values():
            await store.put(connection, caller, Changed(before, after, "superseded"), seqs[after.user_id], self.rules)
        saved = sorted(plan.saved_lessons.values(), key=lambda one: one[0].status == "active")
        for lesson, terms in saved:
            await experiences.save(connection, lesson, terms, seqs[lesson.user_id])
        new = [(lesson, terms, seqs[lesson.user_id]) for lesson, terms in plan.lessons.values()]
        if new:
            await imports.insert_experiences(connection, new)
        written = [lesson for lesson, _ in (*saved, *plan.lessons.values())]
        if written:
            await imports.add_lesson_versions(connection, caller.tenant, [_placeholder(one, caller) for one in written])
            await changes.enqueue(connection, caller.tenant, [one.id for one in written])


def _placeholder(lesson: Experience, caller: Caller) -> dict[str, Any]:
    """The present version, until the file's own line about it comes: a history never lacks it."""
    return {
        "id": str(lesson.id),
        "version": lesson.version,
        "user_id": lesson.user_id,
        "at": lesson.updated_at.isoformat(),
        "actor": caller.actor,
        "cause": CAUSE,
        "task_id": None,
        "changes": {},
        "snapshot": snapshot_of(lesson),
    }


def _user(one: Made | Line) -> str:
    return one.line.user_id if isinstance(one, Made) else one.user_id


def _is_lesson(one: Made | Line) -> bool:
    thing = one.thing
    return isinstance(thing, Experience) or (isinstance(thing, VersionLine) and thing.of == "experience")


def _own_id(one: Made | Line) -> UUID | None:
    """The id that this line brings into being, if it does."""
    return one.thing.id if isinstance(one.thing, Memory | Experience | ConflictLine) else None


def _ids(one: Made | Line) -> set[UUID]:
    """Every id that this line names."""
    thing = one.thing
    if isinstance(thing, Memory):
        links = (thing.superseded_by, thing.conflict_id)
        return {thing.id, *thing.related_ids, *thing.source_memory_ids, *(link for link in links if link)}
    if isinstance(thing, Experience):
        return {thing.id, *thing.source_memory_ids, *((thing.superseded_by,) if thing.superseded_by else ())}
    if isinstance(thing, VersionLine):
        return {thing.id, *ids_in(thing.snapshot, thing.changes)}
    if isinstance(thing, RelationLine):
        return {thing.source_id, thing.target_id}
    return {thing.id, thing.old_id, thing.new_id} if isinstance(thing, ConflictLine) else set()


def _key(one: UUID) -> int:
    return int.from_bytes(hashlib.blake2b(one.bytes, digest_size=8, person=b"import").digest(), "big", signed=True)
