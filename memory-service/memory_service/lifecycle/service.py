"""How does a memory change by hand besides its text?  History, rollback, cold storage and pins.

Each call is one transaction with the row locked, and leaves an outbox row when state or version changed, so that vectors
follow.  Which change is right is decided by the pure modules beside this one.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from memory_service.domain import Caller, Clock, Json, Memory
from memory_service.errors import Gone, NotFound, StaleVersion
from memory_service.lifecycle import ageing
from memory_service.lifecycle.families import Families
from memory_service.lifecycle.versions import HistoryPage, content_of, history_page
from memory_service.settings import Heat, Tunables
from memory_service.shapes import memory_json
from memory_service.stores.postgres import changes, memories, relations, versions
from memory_service.stores.postgres.memories import IndexedText
from memory_service.stores.postgres.pool import Connection, Postgres
from memory_service.vocabulary import Vocabulary
from memory_service.write.drafts import apply_patch, differences
from memory_service.write.indexing import indexed_text

# Commits something of the caller's (the idempotent answer) together with the change.
Record = Callable[[Connection, Any], Awaitable[None]]
Decide = Callable[[Memory, datetime], Memory]


class Lifecycle:
    """One for the process."""

    def __init__(
        self,
        postgres: Postgres,
        vocabulary: Vocabulary,
        tunables: Tunables,
        clock: Clock,
        nudge: Callable[[], None],
        families: Families,
    ) -> None:
        self._postgres = postgres
        self._vocabulary = vocabulary
        self._inline_chars_max = tunables.write.inline_chars_max
        self._heat: Heat = tunables.heat
        self._clock = clock
        self._nudge = nudge
        self._families = families

    async def history(self, caller: Caller, memory_id: UUID, below: int | None, limit: int) -> HistoryPage:
        """Versions newest first, the present one included; under `below` when it is given.  Raises NotFound."""

        async def work(connection: Connection) -> HistoryPage:
            memory = await memories.get(connection, caller, memory_id, self._clock())
            if memory is None:
                raise NotFound
            under = min(below or memory.version, memory.version)  # what is added meanwhile is not on this page
            rows, total = await versions.replaced_page(connection, caller.tenant, memory_id, under, limit + 1)
            return history_page(memory, rows, total, limit, first=below is None)

        return await self._postgres.read(work)

    async def rollback(
        self, caller: Caller, memory_id: UUID, version: int, expected_version: int | None, record: Record
    ) -> Memory:
        """A new version that says what `version` said.  Raises NotFound, Gone, StaleVersion, InvalidFields.

        Going back to what the memory says already changes nothing.
        """
        snapshot = await self._snapshot(caller, memory_id, version)
        text: IndexedText | None = None

        async def work(connection: Connection) -> Memory:
            await self._families.line_up(connection, caller.tenant, [memory_id])
            memory = await self._locked(connection, caller, memory_id, expected_version, restoring=True)
            now, after = self._clock(), memory
            if version != memory.version:
                if snapshot is None:
                    raise NotFound(f"the memory has no version {version}")
                patch = content_of(snapshot, now)
                ends = await relations.lock_ends(connection, caller, patch.get("related_ids", ()), now)
                patch["related_ids"] = tuple(
                    one
                    for one in patch.get("related_ids", ())
                    if one in ends and relations.may_be_tied(memory.user_id, ends[one])
                )
                after = apply_patch(memory, patch, None, now)
            after = await self._families.released(connection, memory, after)
            if after is not memory and differences(memory, after):
                await self._keep(connection, caller, memory, after, f"rollback to version {version}")
                await changes.save(connection, after, text or indexed_text(after, self._vocabulary))
                await relations.follow_related(connection, memory, after)
                await self._families.follow(connection, memory, after)
                after = replace(after, index_state="pending")
            else:
                after = memory
            await record(connection, after)
            return after

        if snapshot is not None and len(snapshot.get("content", "")) > self._inline_chars_max:
            text = await self._read_ahead(caller, memory_id, snapshot)
        after = await self._postgres.transaction(work)
        self._nudge()
        return after

    async def archive(self, caller: Caller, memory_id: UUID, expected_version: int | None, record: Record) -> Memory:
        """Into cold storage.  Raises NotFound, StaleVersion, Conflict."""
        return await self._change(caller, memory_id, ageing.archived, "archive", expected_version, record)

    async def restore(self, caller: Caller, memory_id: UUID, expected_version: int | None, record: Record) -> Memory:
        """Back from cold storage, or out of its summary.  Raises NotFound, Gone when it was erased, StaleVersion, Conflict."""

        def decide(memory: Memory, now: datetime) -> Memory:
            return ageing.restored(memory, now, self._heat)

        return await self._change(caller, memory_id, decide, "restore", expected_version, record, restoring=True)

    async def pin(self, caller: Caller, memory_id: UUID, expected_version: int | None, record: Record) -> Memory:
        """It does not cool any more.  Raises NotFound, StaleVersion."""

        def decide(memory: Memory, now: datetime) -> Memory:
            return ageing.pinned(memory, now, self._heat)

        return await self._change(caller, memory_id, decide, "pin", expected_version, record)

    async def unpin(self, caller: Caller, memory_id: UUID, expected_version: int | None, record: Record) -> Memory:
        """It cools again.  Raises NotFound, StaleVersion."""
        return await self._change(caller, memory_id, ageing.unpinned, "unpin", expected_version, record)

    async def _change(
        self,
        caller: Caller,
        memory_id: UUID,
        decide: Decide,
        cause: str,
        expected_version: int | None,
        record: Record,
        *,
        restoring: bool = False,
    ) -> Memory:
        """One change of state.  A memory that is that way already is answered as it is."""

        async def work(connection: Connection) -> Memory:
            if restoring:
                await self._families.lock(connection, caller.tenant, [memory_id])
            memory = await self._locked(connection, caller, memory_id, expected_version, restoring=restoring)
            after = decide(memory, self._clock())
            if after.version > memory.version:
                await self._keep(connection, caller, memory, after, cause)
                await changes.save_state(connection, after)
                if memory.state == "compressed":
                    await self._families.leave(connection, memory)
                after = replace(after, index_state="pending")
            await record(connection, after)
            return after

        after = await self._postgres.transaction(work)
        self._nudge()
        return after

    async def _locked(
        self,
        connection: Connection,
        caller: Caller,
        memory_id: UUID,
        expected_version: int | None,
        *,
        restoring: bool = False,
    ) -> Memory:
        """The row, locked.  `restoring`: an erased id is answered with Gone, which never comes back."""
        memory = await memories.get(connection, caller, memory_id, self._clock(), lock=True)
        if memory is None:
            if restoring and await versions.erased_for(connection, caller, memory_id):
                raise Gone
            raise NotFound
        if expected_version is not None and memory.version != expected_version:
            raise StaleVersion(f"the memory is at version {memory.version}")
        return memory

    async def _keep(self, connection: Connection, caller: Caller, before: Memory, after: Memory, cause: str) -> None:
        shown, changed = memory_json(before), differences(before, after)
        await changes.keep_version(
            connection, before, shown, changed, actor=caller.actor, cause=cause, at=after.updated_at
        )

    async def _snapshot(self, caller: Caller, memory_id: UUID, version: int) -> Json | None:
        """Read ahead of the transaction: a replaced version never changes.  Whose it is, is checked inside."""
        return await self._postgres.read(lambda c: versions.snapshot(c, caller.tenant, memory_id, version))

    async def _read_ahead(self, caller: Caller, memory_id: UUID, snapshot: Json) -> IndexedText | None:
        """The keyword terms of a long text, made in a thread; they depend on what the version said and on nothing newer."""
        memory = await self._postgres.read(lambda c: memories.get(c, caller, memory_id, self._clock()))
        if memory is None:
            return None
        old = apply_patch(memory, content_of(snapshot, self._clock()), None, self._clock())
        return await asyncio.to_thread(indexed_text, old, self._vocabulary)
