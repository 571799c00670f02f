"""How does a person decide between two memories that contradict each other?

`page` lists what waits, `resolve` keeps the new one, the old one, both, or a merged text.  The loser is superseded: still
readable, its validity ended.  One transaction each; finding contradictions is `contradictions` work.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from memory_service.domain import Caller, Clock, Memory
from memory_service.errors import Conflict as AlreadyResolved
from memory_service.errors import InvalidFields, NotFound
from memory_service.settings import Tunables
from memory_service.stores.postgres import conflicts, memories
from memory_service.stores.postgres.conflicts import Conflict, ConflictState, Resolution
from memory_service.stores.postgres.pool import Connection, Postgres
from memory_service.vocabulary import Vocabulary
from memory_service.write.disputes import carried, inherited, set_against
from memory_service.write.drafts import Draft, complete
from memory_service.write.indexing import indexed_text
from memory_service.write.rules import SummaryRules
from memory_service.write.service import Record, no_record
from memory_service.write.storing import Storing
from memory_service.write.summarise import summarise


@dataclass(frozen=True, slots=True)
class Disputed:
    """A conflict with both memories as they are now, and the merged one that a person wrote."""

    conflict: Conflict
    old: Memory
    new: Memory
    merged: Memory | None = None


class Conflicts:
    """Lists and resolves conflicts."""

    def __init__(
        self,
        postgres: Postgres,
        storing: Storing,
        vocabulary: Vocabulary,
        rules: SummaryRules,
        tunables: Tunables,
        clock: Clock,
        nudge: Callable[[], None],
    ) -> None:
        self._postgres = postgres
        self._storing = storing
        self._vocabulary = vocabulary
        self._rules = rules
        self._numbers = tunables
        self._clock = clock
        self._nudge = nudge

    async def page(
        self,
        caller: Caller,
        user_id: str | None,
        state: ConflictState | None,
        after: tuple[datetime, UUID] | None,
        limit: int,
    ) -> tuple[list[Disputed], int]:
        """Newest first; and how many there are."""

        async def read(connection: Connection) -> tuple[list[Disputed], int]:
            found, total = await conflicts.page(connection, caller, user_id, state, after, limit)
            ids = sorted({i for one in found for i in (one.old_id, one.new_id)})
            rows = {m.id: m for m in await memories.get_many(connection, caller.tenant, ids)} if ids else {}
            return [
                Disputed(one, rows[one.old_id], rows[one.new_id])
                for one in found
                if {one.old_id, one.new_id} <= {*rows}
            ], total

        return await self._postgres.read(read)

    async def resolve(
        self, caller: Caller, conflict_id: UUID, keep: Resolution, content: str | None, record: Record = no_record
    ) -> Disputed:
        """Raises NotFound, InvalidFields for `content` where it does not belong, Conflict for one that is resolved."""
        if (keep == "merged") != (content is not None):
            raise InvalidFields.of("content", "is required with keep: merged, and only then")
        reading = await asyncio.to_thread(summarise, content, self._rules) if content is not None else None

        async def work(connection: Connection) -> Disputed:
            now = self._clock()
            seen = await conflicts.get(connection, caller, conflict_id)
            if seen is None:
                raise NotFound
            await self._storing.line_up(connection, caller.tenant, seen.user_id)
            found = await conflicts.get(connection, caller, conflict_id, lock=True)
            if found is None:
                raise NotFound
            if found.state == "resolved":
                raise AlreadyResolved(f"it is resolved already: {found.resolution}")
            both = await memories.get_many(connection, caller.tenant, [found.old_id, found.new_id], lock=True)
            rows = {m.id: m for m in both}
            old, new = rows[found.old_id], rows[found.new_id]
            merged = None
            if content is not None:
                draft = Draft(new.user_id, content, kind="semantic", category=new.category, agent_id=new.agent_id)
                merged = complete(draft, caller.tenant, reading, now, self._numbers.write, self._numbers.heat)
                merged = replace(merged, source_memory_ids=(old.id, new.id), written_by=caller.actor)
                await memories.insert(connection, merged, indexed_text(merged, self._vocabulary))
            await conflicts.resolve(connection, caller.tenant, found.id, keep, now, caller.actor)
            successors = {
                "new": {old.id: new.id}, "old": {new.id: old.id}, "both": {},
                "merged": {old.id: merged.id, new.id: merged.id} if merged else {},
            }[keep]  # fmt: skip
            standing = {m.id: m for m in (old, new, *((merged,) if merged else ()))}
            carries = await self._passed_on(connection, caller, found, successors, standing, now)
            old = await self._settle(connection, caller, old, successors.get(old.id), carries[old.id], now)
            new = await self._settle(connection, caller, new, successors.get(new.id), carries[new.id], now)
            merged = replace(merged, conflict_id=carries[merged.id]) if merged else None
            told = replace(found, state="resolved", resolution=keep, resolved_at=now, resolved_by=caller.actor)
            result = Disputed(told, old, new, merged)
            await record(connection, result)
            return result

        resolved = await self._postgres.transaction(work)
        self._nudge()
        return resolved

    async def _passed_on(
        self,
        connection: Connection,
        caller: Caller,
        decided: Conflict,
        successors: dict[UUID, UUID],
        standing: dict[UUID, Memory],
        now: datetime,
    ) -> dict[UUID, UUID | None]:
        """What else waits of the two sides goes to who took their place → the conflict that each of `standing` carries now.

        The others of the dispute are told at once, without a version of theirs.
        """
        tenant, most = caller.tenant, self._storing.contradictions.numbers.dispute_max
        waiting = await conflicts.open_of(connection, tenant, [decided.old_id, decided.new_id], most)
        pairs, over = inherited(decided, successors, waiting)
        asked = sorted({i for pair in pairs for i in (pair.one, pair.other)} - {*standing})
        others = await memories.get_many(connection, tenant, asked) if asked else []
        rows = {**standing, **{m.id: m for m in others}}
        for pair in pairs:
            older, newer = sorted((rows[pair.one], rows[pair.other]), key=lambda m: m.id.int)
            reason = self._storing.contradictions.reason_between(newer, older)
            set_up = set_against(pair, rows, reason, now)
            if set_up is not None:
                await (conflicts.insert if pair.conflict is None else conflicts.move)(connection, set_up)
        for one in over:  # the side that is left stands
            keep: Resolution = "new" if one.old_id in successors else "old"
            await conflicts.resolve(connection, tenant, one.id, keep, now, caller.actor)
        group = standing[decided.new_id].conflict_id or decided.id
        members = {*standing, *await conflicts.members(connection, tenant, group, most)}
        left = await conflicts.open_of(connection, tenant, sorted(members), most)
        carries = carried(members, left)
        sides = (decided.old_id, decided.new_id)  # these get versions that say what they carry
        await conflicts.carry(connection, tenant, {i: one for i, one in carries.items() if i not in sides})
        return carries

    async def _settle(
        self,
        connection: Connection,
        caller: Caller,
        memory: Memory,
        successor: UUID | None,
        waiting: UUID | None,
        now: datetime,
    ) -> Memory:
        """One side after the decision: superseded or not, and part of what is left of its dispute, if anything is."""
        after = replace(memory, conflict_id=waiting, updated_at=now, version=memory.version + 1)
        if successor is not None and memory.state in ("active", "cold"):
            after = replace(
                after, state="superseded", superseded_by=successor, valid_to=max(now, memory.valid_from or now)
            )
        await self._storing.change_state(connection, memory, after, caller, "resolved")
        return after
