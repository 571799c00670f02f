"""How does something become a memory?

validate (the API did) → summarise → ask the language model, if there is one → find duplicates → one transaction with the
outbox row, shared with other writes where the text is new (`shared_commit.py`) → nudge the relay → answer.
The models are asked before the transaction; no connection is held meanwhile.  Reading and ranking is recall's work.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol
from uuid import UUID

from memory_service.domain import Caller, Clock, Memory
from memory_service.errors import (
    HindsightError,
    NotFound,
    StaleVersion,
    StoreUnavailable,
)
from memory_service.models.ports import LanguageModel
from memory_service.settings import Tunables
from memory_service.stores.postgres import memories, outbox
from memory_service.stores.postgres.pool import Connection, Postgres
from memory_service.vocabulary import Vocabulary
from memory_service.write.contradictions import Contradictions
from memory_service.write.drafts import Draft, Written, apply_patch, complete, differences, following, plain_summary
from memory_service.write.duplicates import content_hash
from memory_service.write.indexing import indexed_text
from memory_service.write.plan import Prepared
from memory_service.write.reading import Reading, ReadingTerms, read_all_with_model
from memory_service.write.related import RelatedMemories
from memory_service.write.shared_commit import SharedCommit
from memory_service.write.similar import Near, Neighbour, SimilarMemories
from memory_service.write.storing import Storing
from memory_service.write.summarise import Summary, SummaryRules, kind_of_text, summarise
from memory_service.write.suspicions import Suspected

# Commits something of the caller's (the idempotent answer) together with the write.
Record = Callable[[Connection, Any], Awaitable[None]]
FIRST_WAIT_S, LONGEST_WAIT_S = 0.01, 0.1


class Erasing(Protocol):
    """Erases memories with what was derived from them, in the caller's transaction; `lock` comes before any row is locked."""

    async def lock(self, connection: Connection, tenant: str, ids: Sequence[UUID]) -> None: ...

    async def erase(self, connection: Connection, tenant: str, ids: Sequence[UUID]) -> int: ...


class Following(Erasing, Protocol):
    """Also keeps summaries true to their sources: `line_up` before the row is locked, `released` before and `follow` after it
    is saved."""

    async def line_up(self, connection: Connection, tenant: str, ids: Sequence[UUID]) -> None: ...

    async def released(self, connection: Connection, before: Memory, after: Memory) -> Memory: ...

    async def follow(self, connection: Connection, before: Memory, after: Memory) -> None: ...


async def no_record(_connection: Connection, _result: Any) -> None:
    """Nothing to commit along."""


class MemoryWriter:
    """Writes, changes and erases memories."""

    def __init__(
        self,
        postgres: Postgres,
        similar: SimilarMemories,
        contradictions: Contradictions,
        storing: Storing,
        shared: SharedCommit,
        vocabulary: Vocabulary,
        rules: SummaryRules,
        tunables: Tunables,
        clock: Clock,
        nudge: Callable[[], None],
        apply_now: Callable[[UUID], Awaitable[None]],
        erasing: Following,
        language: tuple[LanguageModel, ReadingTerms] | None = None,
    ) -> None:
        self._postgres = postgres
        self._similar = similar
        self._contradictions = contradictions
        self._storing = storing
        self._shared = shared
        self._vocabulary = vocabulary
        self._rules = rules
        self._numbers = tunables
        self._clock = clock
        self._nudge = nudge
        self._apply_now = apply_now
        self._erasing = erasing
        self._language = language
        self._related = RelatedMemories(postgres, tunables.limits.relations_max, clock)

    async def write(self, caller: Caller, draft: Draft, record: Record = no_record) -> Written:
        """One memory, durable when this returns."""
        (checked,) = await self._related.checked(caller, [draft])
        if isinstance(checked, HindsightError):
            raise checked
        (prepared,) = await self._prepare(caller, [checked])
        if record is no_record and await self._shared.keep(prepared):
            written = Written("created", prepared.memory, inferred_by=prepared.inferred_by)
        else:
            written = await self._alone(caller, prepared, record)
        self._nudge()
        return written

    async def _alone(self, caller: Caller, prepared: Prepared, record: Record) -> Written:
        """In a transaction of its own."""

        async def work(connection: Connection) -> Written:
            (written,) = await self._storing.store(connection, caller, [prepared], self._clock())
            if isinstance(written, HindsightError):
                raise written
            await record(connection, written)
            return written

        return await self._postgres.transaction(work)

    async def write_batch(
        self, caller: Caller, drafts: Sequence[Draft | HindsightError], record: Record = no_record
    ) -> list[Written | HindsightError]:
        """Many memories in one transaction.  Items that are errors already stay errors, in their places."""
        checked = iter(await self._related.checked(caller, [d for d in drafts if isinstance(d, Draft)]))
        accepted = [next(checked) if isinstance(d, Draft) else d for d in drafts]
        good = [d for d in accepted if isinstance(d, Draft)]
        prepared = await self._prepare(caller, good)

        async def work(connection: Connection) -> list[Written | HindsightError]:
            written = iter(await self._storing.store(connection, caller, prepared, self._clock()))
            results = [d if isinstance(d, HindsightError) else next(written) for d in accepted]
            await record(connection, results)
            return results

        results = await self._postgres.transaction(work)
        self._nudge()
        return results

    async def update(
        self,
        caller: Caller,
        memory_id: UUID,
        patch: Mapping[str, Any],
        expected_version: int | None,
        cause: str = "update",
    ) -> Memory:
        """Change the named fields; what they say already makes no version and no work.

        Raises NotFound, or StaleVersion when `expected_version` is not the current one.
        """
        related = patch.get("related_ids") or ()
        known = await self._related.known(caller, related)
        reading = await self._by_rules(patch["content"]) if "content" in patch else None

        async def work(connection: Connection) -> Memory:
            await self._erasing.line_up(connection, caller.tenant, [memory_id])
            memory = await self._locked(connection, caller, memory_id, expected_version)
            if (problem := known.problem(related, memory.user_id, memory.related_ids)) is not None:
                raise problem
            follows = None
            if reading is not None and patch["content"] != memory.content:
                follows = await self._following(memory, reading)
            patched = apply_patch(memory, patch, follows, self._clock())
            changed = await self._erasing.released(connection, memory, patched)
            if not differences(memory, changed):
                return memory
            await self._storing.replace(connection, memory, changed, caller, cause)
            await self._erasing.follow(connection, memory, changed)
            return replace(changed, index_state="pending")

        changed = await self._postgres.transaction(work)
        if changed.index_state == "pending":
            self._nudge()
        return changed

    async def delete(self, caller: Caller, memory_id: UUID, expected_version: int | None = None) -> Memory:
        """Erase one memory for good; returns what it was.  Raises NotFound, StaleVersion."""

        async def work(connection: Connection) -> Memory:
            await self._erasing.lock(connection, caller.tenant, [memory_id])
            memory = await self._locked(connection, caller, memory_id, expected_version)
            await self._erasing.erase(connection, caller.tenant, [memory_id])
            return memory

        erased = await self._postgres.transaction(work)
        self._nudge()
        return erased

    async def _locked(
        self, connection: Connection, caller: Caller, memory_id: UUID, expected_version: int | None
    ) -> Memory:
        memory = await memories.get(connection, caller, memory_id, self._clock(), lock=True)
        if memory is None:
            raise NotFound
        if expected_version is not None and memory.version != expected_version:
            raise StaleVersion(f"the memory is at version {memory.version}")
        return memory

    async def _following(self, memory: Memory, reading: Summary) -> Mapping[str, Any]:
        """The labels that have to follow the new content."""
        plain = plain_summary(memory.content, self._numbers.write.summary_chars_max)
        return following(memory, await self._by_rules(memory.content), reading, plain)

    async def _by_rules(self, content: str) -> Summary:
        """The rules' reading; that of a long text takes its time and happens in a thread."""
        if len(content) > self._numbers.write.inline_chars_max:
            return await asyncio.to_thread(summarise, content, self._rules)
        return summarise(content, self._rules)

    async def wait_indexed(self, written: Written, timeout_s: float) -> Written:
        """Wait until the vector matches; what is not in time keeps index.state pending."""
        memory, pause = written.memory, FIRST_WAIT_S
        with suppress(TimeoutError, StoreUnavailable):
            async with asyncio.timeout(timeout_s):
                await self._apply_now(memory.id)
                while (state := await self._postgres.read(lambda c: outbox.state_of(c, memory.id))) == "pending":
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, LONGEST_WAIT_S)
                return replace(written, memory=replace(memory, index_state=state))
        return written

    # Steps of a write.

    async def _prepare(self, caller: Caller, drafts: Sequence[Draft]) -> list[Prepared]:
        """Summarise, make the keyword terms, look for what means the same."""
        large = sum(len(d.content) for d in drafts) > self._numbers.write.inline_chars_max
        twins = await asyncio.to_thread(self._summarised, drafts) if large else self._summarised(drafts)
        readings = await self._read(caller, drafts, twins)
        prepared = (
            await asyncio.to_thread(self._completed, caller, drafts, readings)
            if large
            else self._completed(caller, drafts, readings)
        )
        inferring = [p.memory for p in prepared if p.draft.infer]
        if not inferring:
            return prepared
        stating = {m.id: m for m in inferring if self._contradictions.states_something(m)}
        unindexed = await self._contradictions.unindexed(self._postgres, list(stating.values()))
        near = await self._similar.find(caller, inferring)
        suspected = await self._suspected(stating, near, unindexed)
        return [
            replace(
                p,
                match=near[p.memory.id].match if p.memory.id in near else None,
                suspected=suspected.get(p.memory.id),
                states_something=p.memory.id in stating,
            )
            for p in prepared
        ]

    async def _suspected(
        self, stating: Mapping[UUID, Memory], near: Mapping[UUID, Near], unindexed: Sequence[Memory]
    ) -> dict[UUID, Suspected]:
        """What might stand against the new statements: the near ones, then those that have no vector yet."""
        fresh = tuple(Neighbour(one) for one in unindexed)
        beside = {i: (m, (*(near[i].neighbours if i in near else ()), *fresh)) for i, m in stating.items()}
        repeated = {i for i in stating if i in near and near[i].match is not None}
        return await self._contradictions.judge(beside, repeated)

    def _summarised(self, drafts: Sequence[Draft]) -> list[Reading | None]:
        """By the rules.  Pure and, for long texts, slow: run in a thread then, so that other requests go on."""
        read = {True: summarise, False: kind_of_text}
        return [Reading(read[d.infer](d.content, self._rules), "rules") if d.needs_reading else None for d in drafts]

    async def _read(
        self, caller: Caller, drafts: Sequence[Draft], twins: Sequence[Reading | None]
    ) -> list[Reading | None]:
        """The language model's readings where there is one, something to fill, and the text is not stored already."""
        readings = list(twins)
        asked = [at for at, draft in enumerate(drafts) if draft.has_gaps] if self._language else []
        if not asked or self._language is None:
            return readings
        pairs = await asyncio.to_thread(
            lambda: [(drafts[at].user_id, content_hash(drafts[at].content)) for at in asked]
        )
        known = await self._postgres.read(lambda c: memories.find_same_text(c, caller.tenant, pairs, self._clock()))
        stored = {(m.user_id, content_hash(m.content)) for m in known}
        asked = [at for at, pair in zip(asked, pairs, strict=True) if pair not in stored]
        texts = [(drafts[at].content, twin.summary) for at in asked if (twin := twins[at]) is not None]
        model, terms = self._language
        for at, reading in zip(asked, await read_all_with_model(texts, model, terms), strict=True):
            readings[at] = reading
        return readings

    def _completed(self, caller: Caller, drafts: Sequence[Draft], readings: Sequence[Reading | None]) -> list[Prepared]:
        """Pure and, for long texts, slow, like `_summarised`."""
        now, numbers, prepared = self._clock(), self._numbers, []
        for draft, reading in zip(drafts, readings, strict=True):
            found = reading.summary if reading else None
            memory = complete(draft, caller.tenant, found, now, numbers.write, numbers.heat, caller.actor)
            by = reading.by if reading and draft.infer else None
            prepared.append(Prepared(draft, memory, indexed_text(memory, self._vocabulary), inferred_by=by))
        return prepared
