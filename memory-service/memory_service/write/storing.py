"""What does one transaction of a write do?

Equal texts line up, duplicates are merged, statements that contradict or update older ones are settled, the rest is inserted,
each with its outbox row.  It runs inside the caller's transaction; asking models is service.py's work, done before.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from memory_service.domain import LIVE_STATES, Caller, Memory
from memory_service.errors import HindsightError, InvalidFields, TooLarge
from memory_service.settings import Limits
from memory_service.shapes import memory_json
from memory_service.stores.postgres import changes, conflicts, erasing, memories, relations
from memory_service.stores.postgres.pool import Connection
from memory_service.vocabulary import Vocabulary
from memory_service.write.contradictions import Contradictions, Settled
from memory_service.write.drafts import Written, differences
from memory_service.write.indexing import indexed_text, lock_key
from memory_service.write.plan import Plan, Prepared

# Writers of a user's statements line up, so that two contradictory ones can't both miss the other.
STATEMENTS = b"statements"


class Storing:
    """Stores prepared drafts and changed memories."""

    def __init__(self, vocabulary: Vocabulary, limits: Limits, contradictions: Contradictions) -> None:
        self._vocabulary = vocabulary
        self._limits = limits
        self.contradictions = contradictions

    async def store(
        self, connection: Connection, caller: Caller, prepared: Sequence[Prepared], now: datetime
    ) -> list[Written | HindsightError]:
        """One result for each, in order.  Raises UserBeingErased."""
        if not prepared:
            return []
        await erasing.admit(connection, caller.tenant, {p.memory.user_id for p in prepared})
        plan, placed = await self._placed(connection, caller, prepared, now)
        settled = await self._settled(connection, plan, prepared, now)
        texts = {p.memory.id: p.text for p in prepared}
        new = [(settled.new.get(i, memory), text and texts[i]) for i, (memory, text) in plan.new.items()]
        rows = [(memory, text or indexed_text(memory, self._vocabulary)) for memory, text in new]
        if len(rows) == 1:
            await memories.insert(connection, *rows[0])
        elif rows:
            await memories.insert_many(connection, rows)
        for before, after in plan.merged():
            await self.replace(connection, before, after, caller, "duplicate")
        await self._keep(connection, caller, settled)
        await _tie_related(connection, caller.tenant, placed, prepared, now)
        return [_answered(w, p, plan, settled) for w, p in zip(placed, prepared, strict=True)]

    async def line_up(self, connection: Connection, tenant: str, user_id: str) -> None:
        """Nobody else writes a statement of this user, or decides about two, until we commit.  Raises UserBeingErased."""
        await erasing.admit(connection, tenant, [user_id])
        await memories.lock_texts(connection, [lock_key(tenant, user_id, STATEMENTS)])

    async def replace(self, connection: Connection, before: Memory, after: Memory, caller: Caller, cause: str) -> None:
        """Write `after`, keeping `before` as a version when the version rose."""
        if after.version > before.version:
            await self._keep_version(connection, before, after, caller, cause)
            await changes.save(connection, after, indexed_text(after, self._vocabulary))
            await relations.follow_related(connection, before, after)
        elif after.last_accessed_at is not None:
            await memories.touch(connection, {after.id: 1}, after.last_accessed_at)

    async def change_state(
        self, connection: Connection, before: Memory, after: Memory, caller: Caller, cause: str
    ) -> None:
        """Write what does not depend on the text, keeping `before` as a version."""
        await self._keep_version(connection, before, after, caller, cause)
        await changes.save_state(connection, after)

    # Steps.

    async def _placed(
        self, connection: Connection, caller: Caller, prepared: Sequence[Prepared], now: datetime
    ) -> tuple[Plan, list[Written | HindsightError]]:
        """Which drafts become rows and which are merged into a memory that is there."""
        pairs = [(p.memory.user_id, p.text.content_hash) for p in prepared]
        lines = {(p.memory.user_id, STATEMENTS) for p in prepared if p.states_something}
        await memories.lock_texts(connection, [lock_key(caller.tenant, user, text) for user, text in {*pairs, *lines}])
        known = await memories.find_same_text(connection, caller.tenant, pairs, now)
        by_meaning = [p.match.memory_id for p in prepared if p.match is not None]
        alike = await memories.get_many(connection, caller.tenant, by_meaning, lock=True) if by_meaning else []
        live = {m.id: m for m in alike if m.state in LIVE_STATES and not m.expired(now)}
        plan = Plan(known, live, self._limits)
        return plan, [_place(plan, p, now) for p in prepared]

    async def _settled(
        self, connection: Connection, plan: Plan, prepared: Sequence[Prepared], now: datetime
    ) -> Settled:
        new = [plan.new[p.memory.id][0] for p in prepared if p.states_something and p.memory.id in plan.new]
        suspected = {p.memory.id: p.suspected for p in prepared if p.suspected is not None}
        return await self.contradictions.settle(connection, new, suspected, now)

    async def _keep(self, connection: Connection, caller: Caller, settled: Settled) -> None:
        for standing in settled.standings.values():
            if standing.conflict is not None:
                await conflicts.insert(connection, standing.conflict)
                if standing.dispute is not None:
                    await conflicts.join(connection, caller.tenant, standing.dispute, standing.conflict.id)
        for before, after in settled.changed:
            cause = "superseded" if after.state == "superseded" else "conflict"
            await self.change_state(connection, before, after, caller, cause)

    async def _keep_version(
        self, connection: Connection, before: Memory, after: Memory, caller: Caller, cause: str
    ) -> None:
        await changes.keep_version(
            connection,
            before,
            memory_json(before),
            differences(before, after),
            actor=caller.actor,
            cause=cause,
            at=after.updated_at,
        )


def _place(plan: Plan, prepared: Prepared, now: datetime) -> Written | HindsightError:
    """One item's place in the plan, or why it has none: the others of its batch go on."""
    try:
        return plan.place(prepared, now)
    except (InvalidFields, TooLarge) as error:
        return error


def _answered(
    written: Written | HindsightError, prepared: Prepared, plan: Plan, settled: Settled
) -> Written | HindsightError:
    """The memory as it is after everything that this transaction did, and what its statement did to older ones."""
    if isinstance(written, HindsightError):
        return written
    memory_id = written.memory.id
    memory = settled.new.get(memory_id) or plan.latest(written.memory)
    told = replace(written, memory=memory, inferred_by=prepared.inferred_by)
    if written.status == "created" and prepared.suspected is not None:
        told = replace(told, compared_by=prepared.suspected.by)
    standing = settled.standings.get(memory_id)
    if written.status != "created" or standing is None:
        return told
    if standing.conflict is not None:
        return replace(told, status="conflict")
    return replace(told, status="superseded", superseded=_newest(standing.superseded))


def _newest(ended: Sequence[Memory]) -> UUID:
    return max(ended, key=lambda m: (m.created_at, m.id)).id


async def _tie_related(
    connection: Connection,
    tenant: str,
    placed: Sequence[Written | HindsightError],
    prepared: Sequence[Prepared],
    now: datetime,
) -> None:
    """What a draft names as related becomes part of the graph, also when it was merged into a memory that was there."""
    written = [(w.memory.id, p) for w, p in zip(placed, prepared, strict=True) if isinstance(w, Written)]
    if pairs := [(one, target) for one, p in written for target in p.draft.related_ids]:
        await relations.add_related(connection, tenant, pairs, now)
