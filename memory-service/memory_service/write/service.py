"""How does something become a memory?

validate (the API did) → summarise → find duplicates → one transaction with the outbox row → nudge the relay → answer.
The models are asked before the transaction; no connection is held meanwhile.  Reading and ranking is recall's work.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from memory_service.domain import LIVE_STATES, Caller, Clock, Memory, MemoryFilter
from memory_service.errors import (
    EmbedderUnavailable,
    HindsightError,
    InvalidFields,
    NotFound,
    StaleVersion,
    StoreUnavailable,
)
from memory_service.models.ports import Embedder
from memory_service.settings import Tunables
from memory_service.shapes import memory_json
from memory_service.stores.postgres import changes, memories, outbox
from memory_service.stores.postgres.memories import IndexedText
from memory_service.stores.postgres.pool import Connection, Postgres
from memory_service.stores.qdrant import PointRefused, VectorIndex
from memory_service.vocabulary import Vocabulary
from memory_service.write.contrasts import Contrasts
from memory_service.write.drafts import Draft, Written, apply_patch, complete, differences, merge_duplicate
from memory_service.write.duplicates import content_hash, same_meaning
from memory_service.write.indexing import indexed_text, lock_key, passage
from memory_service.write.summarise import Summary, SummaryRules, summarise

# Commits something of the caller's (the idempotent answer) together with the write.
Record = Callable[[Connection, Any], Awaitable[None]]
FIRST_WAIT_S, LONGEST_WAIT_S = 0.01, 0.1


async def no_record(_connection: Connection, _result: Any) -> None:
    """Nothing to commit along."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A draft on its way: the memory it would become and, perhaps, an older one that means the same."""

    draft: Draft
    memory: Memory
    text: IndexedText
    same_meaning_id: UUID | None = None
    similarity: float | None = None


class MemoryWriter:
    """Writes, changes and erases memories."""

    def __init__(
        self,
        postgres: Postgres,
        index: VectorIndex,
        embedder: Embedder,
        vocabulary: Vocabulary,
        rules: SummaryRules,
        contrasts: Contrasts,
        tunables: Tunables,
        clock: Clock,
        nudge: Callable[[], None],
    ) -> None:
        self._postgres = postgres
        self._index = index
        self._embedder = embedder
        self._vocabulary = vocabulary
        self._rules = rules
        self._contrasts = contrasts
        self._numbers = tunables
        self._clock = clock
        self._nudge = nudge

    async def write(self, caller: Caller, draft: Draft, record: Record = no_record) -> Written:
        """One memory, durable when this returns."""
        await self._check_related(caller, [draft])
        (prepared,) = await self._prepare(caller, [draft])

        async def work(connection: Connection) -> Written:
            (written,) = await self._store(connection, caller, [prepared])
            await record(connection, written)
            return written

        written = await self._postgres.transaction(work)
        self._nudge()
        return written

    async def write_batch(
        self, caller: Caller, drafts: Sequence[Draft | HindsightError], record: Record = no_record
    ) -> list[Written | HindsightError]:
        """Many memories in one transaction.  Items that are errors already stay errors, in their places."""
        accepted = [d if isinstance(d, HindsightError) else (await self._related_error(caller, d) or d) for d in drafts]
        good = [d for d in accepted if isinstance(d, Draft)]
        prepared = await self._prepare(caller, good)

        async def work(connection: Connection) -> list[Written | HindsightError]:
            written = iter(await self._store(connection, caller, prepared))
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
        """Change the named fields.  Raises NotFound, or StaleVersion when `expected_version` is not the current one."""
        if patch.get("related_ids"):
            await self._check_ids_exist(caller, patch["related_ids"], "related_ids")
        summary = summarise(patch["content"], self._rules) if "content" in patch and "summary" not in patch else None

        async def work(connection: Connection) -> Memory:
            now = self._clock()
            memory = await memories.get(connection, caller, memory_id, now, lock=True)
            if memory is None:
                raise NotFound
            if expected_version is not None and memory.version != expected_version:
                raise StaleVersion(f"the memory is at version {memory.version}")
            changed = apply_patch(memory, patch, summary, now)
            await self._replace(connection, memory, changed, caller, cause)
            return replace(changed, index_state="pending")

        changed = await self._postgres.transaction(work)
        self._nudge()
        return changed

    async def delete(self, caller: Caller, memory_id: UUID) -> Memory:
        """Erase one memory for good; returns what it was, for the caller to erase copies elsewhere.  Raises NotFound."""

        async def work(connection: Connection) -> Memory:
            memory = await memories.get(connection, caller, memory_id, self._clock(), lock=True)
            if memory is None:
                raise NotFound
            await changes.erase(connection, caller.tenant, [memory_id])
            return memory

        erased = await self._postgres.transaction(work)
        self._nudge()
        return erased

    async def wait_indexed(self, written: Written, timeout_s: float) -> Written:
        """Wait until the vector matches; what is not in time keeps index.state pending."""
        ids, pause = [written.memory.id], FIRST_WAIT_S
        with suppress(TimeoutError, StoreUnavailable):
            async with asyncio.timeout(timeout_s):
                while await self._postgres.read(lambda c: outbox.waiting(c, ids)):
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, LONGEST_WAIT_S)
                return replace(written, memory=replace(written.memory, index_state="indexed"))
        return written

    # Steps of a write.

    async def _prepare(self, caller: Caller, drafts: Sequence[Draft]) -> list[Prepared]:
        now = self._clock()
        prepared = []
        for draft in drafts:
            summary = self._summary(draft)
            memory = complete(draft, caller.tenant, summary, now, self._numbers.write, self._numbers.heat)
            prepared.append(Prepared(draft, memory, indexed_text(memory, self._vocabulary)))
        inferring = [p for p in prepared if p.draft.infer]
        similar = dict(zip((p.memory.id for p in inferring), await self._same_meaning(caller, inferring), strict=True))
        return [self._marked(p, similar.get(p.memory.id)) for p in prepared]

    def _summary(self, draft: Draft) -> Summary:
        return summarise(draft.content, self._rules)

    @staticmethod
    def _marked(prepared: Prepared, similar: tuple[UUID, float] | None) -> Prepared:
        return replace(prepared, same_meaning_id=similar[0], similarity=similar[1]) if similar else prepared

    async def _same_meaning(self, caller: Caller, prepared: Sequence[Prepared]) -> list[tuple[UUID, float] | None]:
        """For each draft the older memory that says the same in other words, with its cosine.

        The vectors stay in the embedder's cache, where the relay finds them.  A text of several chunks is not compared:
        one chunk does not speak for the whole.  With Qdrant or the model down nothing is a duplicate by meaning.
        """
        texts = [passage(p.memory, self._vocabulary) for p in prepared]
        chunks = [self._embedder.chunks(text) for text in texts]
        single = [i for i, pieces in enumerate(chunks) if len(pieces) == 1]
        found: list[tuple[UUID, float] | None] = [None] * len(prepared)
        if not single:
            return found
        try:
            vectors = await self._embedder.embed_passages([chunks[i][0] for i in single])
            tasks = [self._nearest_same(caller, prepared[i], vector) for i, vector in zip(single, vectors, strict=True)]
            for i, match in zip(single, await asyncio.gather(*tasks), strict=True):
                found[i] = match
        except (StoreUnavailable, EmbedderUnavailable, PointRefused):
            return [None] * len(prepared)
        return found

    async def _nearest_same(self, caller: Caller, prepared: Prepared, vector: Any) -> tuple[UUID, float] | None:
        memory, numbers = prepared.memory, self._numbers.write
        chosen = MemoryFilter(caller.tenant, (memory.user_id,), self._clock(), kinds=(memory.kind,), states=LIVE_STATES)
        nearest = await self._index.search(vector, chosen, numbers.duplicate_candidates)
        close = {hit.memory_id: hit for hit in nearest.hits if hit.cosine > numbers.duplicate_cosine}
        if not close:
            return None
        rows = await self._postgres.read(lambda c: memories.get_many(c, caller.tenant, list(close)))
        rows = [row for row in rows if row.user_id == memory.user_id and close[row.id].version == row.version]
        for row in sorted(rows, key=lambda r: -close[r.id].cosine):
            if same_meaning(
                memory.content, row.content, close[row.id].cosine, numbers.duplicate_cosine, self._contrasts
            ):
                return row.id, close[row.id].cosine
        return None

    async def _store(self, connection: Connection, caller: Caller, prepared: Sequence[Prepared]) -> list[Written]:
        """Inside the transaction: equal texts line up, duplicates are merged, the rest is inserted."""
        if not prepared:
            return []
        now = self._clock()
        pairs = [(p.memory.user_id, p.text.content_hash) for p in prepared]
        await memories.lock_texts(connection, [lock_key(caller.tenant, user, text) for user, text in pairs])
        known = await memories.find_same_text(connection, caller.tenant, pairs, now)
        by_meaning = [p.same_meaning_id for p in prepared if p.same_meaning_id is not None]
        alike = await memories.get_many(connection, caller.tenant, by_meaning, lock=True) if by_meaning else []
        plan = _Plan(known, {m.id: m for m in alike if m.state in LIVE_STATES and not m.expired(now)})
        written = [plan.place(p, now) for p in prepared]
        if len(plan.new) == 1:
            await memories.insert(connection, *plan.new[0])
        elif plan.new:
            await memories.insert_many(connection, plan.new)
        for before, after in plan.merged():
            await self._replace(connection, before, after, caller, "duplicate")
        return [replace(w, memory=plan.latest(w.memory)) for w in written]

    async def _replace(self, connection: Connection, before: Memory, after: Memory, caller: Caller, cause: str) -> None:
        """Write `after`, keeping `before` as a version when the version rose."""
        if after.version > before.version:
            actor = f"key:{caller.key_id}" if caller.key_id else "local"
            await changes.keep_version(
                connection,
                before,
                memory_json(before),
                differences(before, after),
                actor=actor,
                cause=cause,
                at=after.updated_at,
            )
            await changes.save(connection, after, indexed_text(after, self._vocabulary))
        elif after.last_accessed_at is not None:
            await memories.touch(connection, {after.id: 1}, after.last_accessed_at)

    async def _check_related(self, caller: Caller, drafts: Sequence[Draft]) -> None:
        for draft in drafts:
            if (error := await self._related_error(caller, draft)) is not None:
                raise error

    async def _related_error(self, caller: Caller, draft: Draft) -> HindsightError | None:
        try:
            await self._check_ids_exist(caller, draft.related_ids, "related_ids")
        except InvalidFields as error:
            return error
        return None

    async def _check_ids_exist(self, caller: Caller, ids: Sequence[UUID], field: str) -> None:
        """A reference to nothing, or to somebody else's memory, is refused alike."""
        if not ids:
            return
        rows = await self._postgres.read(lambda c: memories.get_many(c, caller.tenant, ids))
        known = {row.id for row in rows if caller.may_act_for(row.user_id)}
        for position, one in enumerate(ids):
            if one not in known:
                raise InvalidFields.of(f"{field}.{position}", "there is no such memory")


class _Plan:
    """What one transaction will do: which drafts become rows and which are merged into which memory."""

    def __init__(self, known: Sequence[Memory], alike: Mapping[UUID, Memory]) -> None:
        self.new: list[tuple[Memory, IndexedText]] = []
        self._by_text: dict[tuple[str, str], Memory] = {}
        self._before: dict[UUID, Memory] = {m.id: m for m in (*known, *alike.values())}
        self._after: dict[UUID, Memory] = dict(self._before)
        self._known: dict[tuple[str, bytes], list[Memory]] = {}
        self._alike = alike
        for memory in known:
            self._known.setdefault((memory.user_id, content_hash(memory.content)), []).append(memory)

    def place(self, prepared: Prepared, now: Any) -> Written:
        """Decide about one draft."""
        key = (prepared.memory.user_id, prepared.text.content_hash)
        for memory in self._known.get(key, ()):
            if prepared.draft.kind in ("auto", memory.kind):  # an explicit other kind is another memory
                return self._merge(memory.id, prepared, 1.0, now)
        if prepared.same_meaning_id in self._alike:
            return self._merge(self._alike[prepared.same_meaning_id].id, prepared, prepared.similarity, now)
        self.new.append((prepared.memory, prepared.text))
        self._known.setdefault(key, []).append(prepared.memory)
        self._after[prepared.memory.id] = prepared.memory
        return Written("created", prepared.memory)

    def _merge(self, memory_id: UUID, prepared: Prepared, similarity: float | None, now: Any) -> Written:
        merged = merge_duplicate(self._after[memory_id], prepared.draft, now)
        if memory_id not in self._before:  # a duplicate inside the batch: the row is not written yet
            merged = replace(merged, version=1, access_count=0, last_accessed_at=None)
            self.new = [(merged, text) if m.id == memory_id else (m, text) for m, text in self.new]
        self._after[memory_id] = merged
        return Written("duplicate", merged, similarity)

    def merged(self) -> list[tuple[Memory, Memory]]:
        """(before, after) of the existing memories that were said again; at most one version more each."""
        pairs = []
        for memory_id, before in self._before.items():
            after = self._after[memory_id]
            if after is not before:
                pairs.append((before, replace(after, version=min(after.version, before.version + 1))))
        return pairs

    def latest(self, memory: Memory) -> Memory:
        """The memory after everything this transaction did to it."""
        before, after = self._before.get(memory.id), self._after[memory.id]
        return replace(after, version=min(after.version, before.version + 1)) if before else after
