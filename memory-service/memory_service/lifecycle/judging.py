"""How did a memory serve?  Feedback in words, uses that a finished task confirms, and what was said so far.

Each is one transaction with the row locked.  What an outcome does to heat and confidence is decided by `ageing`; feedback
never changes a memory's state.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from memory_service.domain import SHARED_USER, Caller, Clock, FeedbackOutcome, Memory
from memory_service.errors import InvalidFields, NotFound
from memory_service.lifecycle import ageing
from memory_service.lifecycle.feedback_settings import FeedbackNumbers
from memory_service.settings import Heat, Tunables
from memory_service.shapes import memory_json
from memory_service.stores.postgres import changes, erasing, feedback, memories
from memory_service.stores.postgres.feedback import Given, Said, Warmth
from memory_service.stores.postgres.pool import Connection, Postgres
from memory_service.write.drafts import differences

# Commits something of the caller's (the idempotent answer) together with the change.
Record = Callable[[Connection, Any], Awaitable[None]]
Flush = Callable[[], Awaitable[None]]
SECONDS_A_DAY = 86_400


@dataclass(frozen=True, slots=True)
class Feedback:
    """What a caller says about a memory; `retrieval_id` is the search that brought it."""

    outcome: FeedbackOutcome
    retrieval_id: UUID | None = None
    note: str | None = None


class Judging:
    """`flush_log` writes what this process's log of retrievals still holds: feedback may come faster than the log."""

    def __init__(
        self, postgres: Postgres, tunables: Tunables, clock: Clock, nudge: Callable[[], None], flush_log: Flush
    ) -> None:
        self._postgres = postgres
        self._heat: Heat = tunables.heat
        self._numbers = tunables.section("feedback", FeedbackNumbers)
        self._clock = clock
        self._nudge = nudge
        self._flush_log = flush_log

    async def page(
        self, caller: Caller, memory_id: UUID, after: tuple[datetime, UUID] | None, limit: int
    ) -> tuple[list[Given], int]:
        """What was said of it, newest first, and how much there is.  Raises NotFound."""

        async def read(connection: Connection) -> tuple[list[Given], int]:
            if await memories.get(connection, caller, memory_id, self._clock()) is None:
                raise NotFound
            return await feedback.page(connection, caller, memory_id, after, limit)

        return await self._postgres.read(read)

    async def feedback(self, caller: Caller, memory_id: UUID, said: Feedback, record: Record) -> Memory:
        """Heat and confidence move.  Raises NotFound, and InvalidFields for a retrieval that did not bring this memory."""
        searcher = None
        if said.retrieval_id is not None:
            searcher = await self._searcher(caller, memory_id, said.retrieval_id)

        async def work(connection: Connection) -> Memory:
            memory, now = await self._locked(connection, caller, memory_id), self._clock()
            after = ageing.judged(memory, said.outcome, now, self._heat, self._numbers)
            if after.version > memory.version:
                await self._keep(connection, caller, memory, after, f"feedback_{said.outcome}")
                await changes.save_state(connection, after)
                after = replace(after, index_state="pending")
            else:
                await feedback.save_heat(connection, after)
            await erasing.admit(connection, caller.tenant, [searcher or memory.user_id])
            row = (caller.tenant, searcher or memory.user_id, memory_id, now, caller.actor)
            await feedback.insert(connection, Said(*row, said.outcome, said.note, said.retrieval_id))
            if searcher is not None and said.retrieval_id is not None and said.outcome in ("success", "failure"):
                await feedback.note_used(connection, caller.tenant, searcher, said.retrieval_id, [memory_id])
            await record(connection, after)
            return after

        after = await self._postgres.transaction(work)
        self._nudge()
        return after

    async def mark_used(
        self,
        tenant: str,
        user_id: str,
        ids: Sequence[UUID],
        *,
        retrieval_id: UUID | None = None,
        task_id: str | None = None,
        since: datetime | None = None,
    ) -> list[UUID]:
        """These memories were used in a finished task: each is `use_gain` warmer.  Those for which that is new.

        Counted once per task (or per retrieval without one), however often it is told.  Ids that are not the user's or
        the common pool's are left out.  Raises UserBeingErased when the user was erased `since` then.
        """
        if not ids or (task_id is None and retrieval_id is None):
            return []
        occasion = f"task:{task_id}" if task_id is not None else f"retrieval:{retrieval_id}"
        warmth = Warmth(self._heat.use_gain, self._heat.decay, self._heat.decay_days * SECONDS_A_DAY)
        if retrieval_id is not None:
            await self._flush_log()

        async def work(connection: Connection) -> list[UUID]:
            await erasing.admit(connection, tenant, [user_id], since)
            counted = await feedback.mark_used(connection, tenant, user_id, ids, occasion, self._clock(), warmth)
            if retrieval_id is not None:
                await feedback.note_used(connection, tenant, user_id, retrieval_id, ids)
            return counted

        return await self._postgres.transaction(work)

    async def _locked(self, connection: Connection, caller: Caller, memory_id: UUID) -> Memory:
        memory = await memories.get(connection, caller, memory_id, self._clock(), lock=True)
        if memory is None:
            raise NotFound
        return memory

    async def _keep(self, connection: Connection, caller: Caller, before: Memory, after: Memory, cause: str) -> None:
        shown, changed = memory_json(before), differences(before, after)
        await changes.keep_version(
            connection, before, shown, changed, actor=caller.actor, cause=cause, at=after.updated_at
        )

    async def _searcher(self, caller: Caller, memory_id: UUID, retrieval_id: UUID) -> str:
        """Who searched.  Raises NotFound for an unknown memory, InvalidFields for a retrieval that did not bring it.

        The log is written behind the answer, here within moments, by another process within `retrieval_wait_s`.
        """
        memory = await self._postgres.read(lambda c: memories.get(c, caller, memory_id, self._clock()))
        if memory is None:
            raise NotFound
        await self._flush_log()
        found = await self._retrieval(caller, retrieval_id, memory)
        if found is None:
            await asyncio.sleep(self._numbers.retrieval_wait_s)
            found = await self._retrieval(caller, retrieval_id, memory)
        if found is None:
            raise InvalidFields.of("retrieval_id", "there is no such retrieval, or it did not bring this memory")
        return found

    async def _retrieval(self, caller: Caller, retrieval_id: UUID, memory: Memory) -> str | None:
        """Whose retrieval it was, if it is one that the caller may speak of and that brought the memory."""
        found = await self._postgres.read(lambda c: feedback.retrieval_of(c, caller.tenant, retrieval_id, memory.id))
        if found is None or not found[1] or not caller.may_act_for(found[0]):
            return None
        return found[0] if memory.user_id in (found[0], SHARED_USER) else None
