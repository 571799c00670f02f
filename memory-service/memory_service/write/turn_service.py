"""When does dialogue become memory?  The only place where session buffers are filled, read and emptied.

Order of a request, and what a kill -9 between the steps leaves behind:
1. The messages are added to the session's buffer, claimed for this request.  A kill from here to 3: the claim runs out, and
   the next request of the session, or the end of the task, judges and writes them as if they were its own.
2. Triggers are judged; a language model, if there is one, reads what is to be written; texts are embedded once.
3. One transaction: the memories, the ids of the messages (turn_written) and the kept answer of an Idempotency-Key.
4. What was written leaves the buffer, claims end.  A kill between 3 and 4: when the claim has run out, turn_written tells that
   these messages were written, so they are neither written twice nor do they bring back a memory that was erased meanwhile.
5. Working memory gets facts, failures and steps.  A kill before: it misses notes of what is in Postgres.
6. The answer.  So what is answered is in Postgres when a trigger fired, and in Redis or Postgres when none did.

With Redis down nothing can wait: a request in which something triggers is written whole to Postgres, and says `degraded`;
any other is refused (503).  With Postgres down a plain turn still joins the buffer; one that triggers is refused and taken
out of the buffer again, so that sending it again is right.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID, uuid4

from memory_service.access import require_user, require_writer
from memory_service.domain import Caller, Clock, new_id
from memory_service.errors import HindsightError, StoreUnavailable
from memory_service.models.ports import LanguageModel
from memory_service.secrets import Secrets
from memory_service.stores.postgres import erasing, memories
from memory_service.stores.postgres import turns as written_turns
from memory_service.stores.postgres.pool import Connection, Postgres
from memory_service.stores.session_buffer import Entry, SessionBuffer, SessionKey
from memory_service.write.drafts import Written
from memory_service.write.service import MemoryWriter, Record, no_record
from memory_service.write.triggers import TriggerRules
from memory_service.write.turn_codec import held_of, payload_of
from memory_service.write.turn_plan import Held, Occasion, TurnPlan, forgetting, plan_turns
from memory_service.write.turn_reading import ReadDraft, TurnTerms, causes, read_drafts
from memory_service.write.turn_settings import TurnNumbers
from memory_service.write.turn_spans import without
from memory_service.write.turn_values import TaskNotes, TurnsAnswer, TurnsRequest, WorkingNotes, WrittenTurn
from memory_service.write.turns import STATED

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Claims:
    """What this request holds of a session's buffer: `mine` it brought along, `taken` waited there.

    `began`: before the buffer was read.
    """

    key: SessionKey
    holder: str
    began: datetime
    mine: set[int] = field(default_factory=set)
    taken: set[int] = field(default_factory=set)


class Turns:
    """Takes dialogue and ends tasks."""

    def __init__(
        self,
        postgres: Postgres,
        buffer: SessionBuffer,
        writer: MemoryWriter,
        working: WorkingNotes,
        rules: TriggerRules,
        numbers: TurnNumbers,
        clock: Clock,
        secrets: Secrets,
        language: tuple[LanguageModel, TurnTerms] | None = None,
    ) -> None:
        self._postgres = postgres
        self._buffer = buffer
        self._writer = writer  # one that asks no model: the drafts were read before they come to it
        self._working = working
        self._rules = rules
        self.numbers = numbers
        self._clock = clock
        self._secrets = secrets
        self._language = language

    async def take(self, caller: Caller, request: TurnsRequest, record: Record = no_record) -> TurnsAnswer:
        """Add dialogue to its session and write what is due.  Raises Forbidden, StoreUnavailable."""
        require_writer(caller)
        require_user(caller, request.user_id)
        claims = self._claims(SessionKey(caller.tenant, request.user_id, request.session_id))
        own = await asyncio.to_thread(self._arrived, request)  # masking a megabyte takes its time
        try:
            entries = await self._appended(caller, claims, request.batch, own)
        except StoreUnavailable as error:
            if error.store != "redis":
                raise
            return await self._without_buffer(caller, claims, request, own, record, error)
        try:
            return await self._handle(caller, claims, entries, request.task_id, record)
        except Exception:  # nothing was acknowledged, so what came with this request leaves the buffer again
            await self._let_go(claims, request.batch)
            raise

    async def end_task(self, caller: Caller, user_id: str, task_id: str) -> list[WrittenTurn]:
        """Write what is buffered for the task in any session.  Nothing to write is fine.  Raises StoreUnavailable."""
        require_writer(caller)
        require_user(caller, user_id)
        written: list[WrittenTurn] = []
        for key in await self._buffer.sessions_of(caller.tenant, user_id):
            claims = self._claims(key)
            try:
                entries = await self._buffer.append(key, claims.holder, claims.holder) or []
                answer = await self._handle(caller, claims, entries, task_id, no_record, ended=True)
            except Exception:
                await self._let_go(claims, "")
                raise
            written += answer.written
        return written

    async def erase_user(self, tenant: str, user_id: str) -> int:
        """Forget all dialogue of a user → in how many sessions there was some.  For the erasure of users."""
        return await self._buffer.delete_user(tenant, user_id)

    # Steps.

    def _claims(self, key: SessionKey) -> _Claims:
        return _Claims(key, uuid4().hex, self._clock())

    def _arrived(self, request: TurnsRequest) -> list[Held]:
        """The request's messages without secrets, dated, numbered from 0; the tool's status belongs to the last."""
        now, last = self._clock(), len(request.messages) - 1
        return [
            Held(
                number=at,
                id=new_id(),
                message=replace(message, content=self._secrets.masked(message.content), at=message.at or now),
                task_id=request.task_id,
                agent_id=request.agent_id,
                tool_status=request.last_tool_status if at == last else None,
            )
            for at, message in enumerate(request.messages)
        ]

    async def _appended(self, caller: Caller, claims: _Claims, batch: str, own: Sequence[Held]) -> list[Entry]:
        """The buffer with the request's messages in it.  A full one is written first."""
        payloads = [payload_of(one) for one in own]
        entries = await self._buffer.append(claims.key, batch, claims.holder, payloads)
        if entries is None:
            emptying = self._claims(claims.key)
            waiting = await self._buffer.append(claims.key, emptying.holder, emptying.holder) or []
            try:
                await self._handle(caller, emptying, waiting, None, no_record, overfull=True)
            except Exception:
                await self._let_go(emptying, "")
                raise
            entries = await self._buffer.append(claims.key, batch, claims.holder, payloads)
        if entries is None:
            raise StoreUnavailable("redis", "the session's buffer is full and is being written; try again")
        claims.mine = {entry.number for entry in entries if entry.claim == "mine"}
        return entries

    async def _handle(
        self,
        caller: Caller,
        claims: _Claims,
        entries: Sequence[Entry],
        task_id: str | None,
        record: Record,
        *,
        ended: bool = False,
        overfull: bool = False,
    ) -> TurnsAnswer:
        """Judge what is new, write what is due, settle."""
        held = await self._unwritten(caller, claims.key, entries)
        lapsed = {entry.number for entry in entries if entry.claim == "lapsed"}
        gone = lapsed - {one.number for one in held}
        full = overfull or sum(len(entry.payload) for entry in entries) > self.numbers.flush_bytes
        occasion = await self._occasion(caller, claims.key, task_id, ended=ended, overfull=full)
        plan = await asyncio.to_thread(plan_turns, held, claims.mine | lapsed, occasion, self._rules)
        wanted = (plan.changed | lapsed) - claims.mine
        claims.taken = await self._buffer.claim(claims.key, claims.holder, sorted(wanted))
        if claims.taken != wanted:  # another request was faster with some: they are its work
            held = [one for one in held if one.number in claims.mine | claims.taken]
            fresh = claims.mine | (lapsed & claims.taken)
            plan = await asyncio.to_thread(plan_turns, held, fresh, occasion, self._rules)
        answer = await self._written(caller, claims, held, plan, task_id, record)
        await self._settled(claims, held, plan, gone & claims.taken, _statements(plan, answer.written))
        await self._noted(caller, claims, task_id, answer.notes)
        return answer

    async def _unwritten(self, caller: Caller, key: SessionKey, entries: Sequence[Entry]) -> list[Held]:
        """The messages that nobody else holds.  Of those whose holder died, without what it had written."""
        held = [held_of(entry.number, entry.payload) for entry in entries if entry.claim != "other"]
        doubtful = {entry.number for entry in entries if entry.claim == "lapsed"}
        ids = [one.id for one in held if one.number in doubtful]
        if not ids:
            return await self._remembered(caller, held)
        known = await self._postgres.read(lambda c: written_turns.written_of(c, caller.tenant, key.user_id, ids))
        left = []
        for one in held:
            cuts = known.get(one.id, ())
            if cuts is not None:
                text = one.message.content if one.cut else without(one.message.content, cuts)
                left.append(replace(one, message=replace(one.message, content=text), cut=one.cut or bool(cuts)))
        return await self._remembered(caller, [one for one in left if one.cut or one.message.content])

    async def _remembered(self, caller: Caller, held: list[Held]) -> list[Held]:
        """Without what is left of turns whose statements were erased since; the relay takes it out of the buffer."""
        ids = list({one for message in held for one in message.of})
        if not ids:
            return held
        try:
            rows = await self._postgres.read(lambda c: memories.get_many(c, caller.tenant, ids))
        except StoreUnavailable:  # then nothing is written now either
            return held
        return forgetting(held, set(ids) - {row.id for row in rows})

    async def _occasion(
        self, caller: Caller, key: SessionKey, task_id: str | None, *, ended: bool, overfull: bool
    ) -> Occasion:
        living = False
        if task_id is not None:
            with suppress(StoreUnavailable):
                living = await self._working.lives(caller, key.user_id, task_id)
        return Occasion(
            user_id=key.user_id,
            session_id=key.session_id,
            now=self._clock(),
            living=frozenset({task_id} if living and task_id is not None else ()),
            ended=task_id if ended else None,
            overfull=overfull,
        )

    async def _written(
        self,
        caller: Caller,
        claims: _Claims,
        held: Sequence[Held],
        plan: TurnPlan,
        task_id: str | None,
        record: Record,
        degraded: tuple[str, ...] = (),
    ) -> TurnsAnswer:
        """The memories, the notes about their messages and the kept answer, in one transaction.

        Raises UserBeingErased: what was in the buffer when the request began may be erased by now.
        """
        user_id = claims.key.user_id
        read = await self._read(plan, held)

        def answered(results: Sequence[Written | HindsightError]) -> TurnsAnswer:
            written = tuple(_shown(one, result) for one, result in zip(read, results, strict=True))
            return TurnsAnswer(plan.waiting, plan.triggers, written, _notes(plan, read, written, task_id), degraded)

        async def commit(connection: Connection, results: Sequence[Written | HindsightError]) -> None:
            await erasing.admit(connection, caller.tenant, [user_id], claims.began)
            if plan.touched:
                ids = {
                    one.id: None if one.number in plan.drops else plan.cuts[one.number]
                    for one in held
                    if one.number in plan.touched
                }
                await written_turns.note_written(connection, caller.tenant, user_id, ids, self.numbers.life_seconds)
            await record(connection, answered(results))

        if read:
            return answered(await self._writer.write_batch(caller, [one.draft for one in read], commit))
        if record is not no_record or plan.touched:
            await self._postgres.transaction(lambda c: commit(c, ()))
        return answered(())

    async def _read(self, plan: TurnPlan, held: Sequence[Held]) -> list[ReadDraft]:
        """The drafts, read by the model when there is one."""
        if self._language is None or not plan.drafts:
            return [ReadDraft(draft, "rules") for draft in plan.drafts]
        model, terms = self._language
        return await read_drafts(plan.drafts, [one.message for one in held], model, terms)

    async def _settled(
        self, claims: _Claims, held: Sequence[Held], plan: TurnPlan, gone: set[int], made: Mapping[str, UUID]
    ) -> None:
        """Empty the buffer of what was written.  With Redis gone by now, turn_written keeps it from being written again.

        What stays of a turn remembers the memories that its statements became (`made`, by sentence).
        """
        keep = dict.fromkeys(claims.mine | claims.taken, b"")
        for one in held:
            spans = plan.cuts.get(one.number, ())
            of = tuple(made[said] for said in plan.rests.get(one.number, ()) if said in made)
            if one.number in keep and (spans or one.cut or of):
                text, cut = without(one.message.content, spans), one.cut or bool(spans)
                changed = replace(one, message=replace(one.message, content=text), cut=cut, of=(*one.of, *of))
                keep[one.number] = payload_of(changed)
        drop = plan.drops | gone
        with suppress(StoreUnavailable):
            await self._buffer.settle(
                claims.key,
                claims.holder,
                drop=sorted(drop),
                keep={n: text for n, text in keep.items() if n not in drop},
            )

    async def _let_go(self, claims: _Claims, batch: str) -> None:
        with suppress(StoreUnavailable):
            await self._buffer.settle(
                claims.key,
                claims.holder,
                drop=sorted(claims.mine),
                keep=dict.fromkeys(claims.taken, b""),
                forget_batch=batch,
            )

    async def _noted(self, caller: Caller, claims: _Claims, task_id: str | None, notes: TaskNotes | None) -> None:
        """Working memory may be gone or full by now: what it would be told is in Postgres or in the buffer.

        An erasure waits until it is told, or it is told nothing: a task that was begun since must not hear of what is erased.
        """
        if notes is None or task_id is None:
            return
        user_id = claims.key.user_id
        try:
            async with self._postgres.connection() as connection, connection.transaction():
                await erasing.admit(connection, caller.tenant, [user_id], claims.began)
                await self._working.note(caller, user_id, task_id, notes.facts, notes.failures, notes.steps)
        except HindsightError as error:
            log.warning("working memory was not told of turns: %s", error.code)

    async def _without_buffer(
        self,
        caller: Caller,
        claims: _Claims,
        request: TurnsRequest,
        own: Sequence[Held],
        record: Record,
        error: StoreUnavailable,
    ) -> TurnsAnswer:
        """Redis is down: all or nothing.  Raises `error` when nothing triggers."""
        occasion = Occasion(request.user_id, request.session_id, self._clock())
        fresh = [one.number for one in own]
        plan = await asyncio.to_thread(plan_turns, own, fresh, occasion, self._rules)
        if not plan.drafts:
            raise error
        if plan.waiting:  # what triggers nothing can't wait either
            whole = await asyncio.to_thread(plan_turns, own, fresh, replace(occasion, overfull=True), self._rules)
            plan = replace(whole, triggers=plan.triggers)
        return await self._written(caller, claims, own, plan, None, record, ("redis",))


def _shown(read: ReadDraft, result: Written | HindsightError) -> WrittenTurn:
    trigger = causes(read.draft)[0]
    if isinstance(result, HindsightError):
        return WrittenTurn(trigger, read.by, "rejected", error=result, reason=read.reason)
    return WrittenTurn(trigger, read.by, result.status, result.memory, reason=read.reason)


def _statements(plan: TurnPlan, written: Sequence[WrittenTurn]) -> dict[str, UUID]:
    """What became of each stated sentence.  The first results are those of the plan's drafts, in their order."""
    pairs = zip(plan.drafts, written, strict=False)
    return {draft.content: one.memory.id for draft, one in pairs if draft.kind != "episodic" and one.memory is not None}


def _notes(
    plan: TurnPlan, read: Sequence[ReadDraft], written: Sequence[WrittenTurn], task_id: str | None
) -> TaskNotes | None:
    """What the task's working memory is told: what was stated, as copies of the memories that hold it, and what happened."""
    if task_id is None or task_id not in plan.living:
        return None
    facts = tuple(
        (one.memory.content, one.memory.id)
        for draft, one in zip(read, written, strict=True)
        if one.memory is not None
        and one.memory.kind == "semantic"
        and draft.draft.task_id == task_id
        and one.trigger in STATED
    )
    notes = plan.notes.get(task_id, ())
    failed = next(
        (
            one.memory.id
            for draft, one in zip(read, written, strict=True)
            if one.memory is not None and draft.draft.task_id == task_id and "tool_error" in causes(draft.draft)
        ),
        None,
    )
    failures = tuple((note.text, note.error, failed) for note in notes if note.kind == "failure" and failed is not None)
    steps = tuple(note.text for note in notes if note.kind == "step")
    return TaskNotes(facts, failures, steps) if facts or failures or steps else None
