"""Which of the memories that are there does a new statement contradict or update?

`judge` compares texts before the transaction, in a thread; `settle` decides inside it, once nobody else can write a statement
of these users: over rows that may have changed, over those whose vectors are not there yet, and over the other new ones of
the same request.  It must not write.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from memory_service.domain import Memory, new_id
from memory_service.settings import Section
from memory_service.stores.postgres import conflicts, memories
from memory_service.stores.postgres.conflicts import Conflict
from memory_service.stores.postgres.pool import Connection, Postgres
from memory_service.write.conflict_rules import ConflictRules
from memory_service.write.conflicts import Verdict, relation_between
from memory_service.write.statements import Statement, statements


class ConflictNumbers(Section):
    """[conflicts] of memory.toml."""

    neighbours: int
    unindexed_max: int
    unindexed_s: float
    batch_back: int


@dataclass(frozen=True, slots=True)
class Standing:
    """What a new memory does to older ones: `conflict` is raised against one, or `superseded` ones are updated by it."""

    conflict: Conflict | None = None
    superseded: tuple[Memory, ...] = ()


@dataclass(slots=True)
class Settled:
    """`new` memories as they are to be inserted, `changed` (before, after) of older rows, what each new one did."""

    new: dict[UUID, Memory]
    changed: list[tuple[Memory, Memory]]
    standings: dict[UUID, Standing]


class Contradictions:
    """Finds them; one for the process."""

    def __init__(self, rules: ConflictRules, numbers: ConflictNumbers) -> None:
        self._rules = rules
        self.numbers = numbers

    async def unindexed(self, postgres: Postgres, statements: Sequence[Memory]) -> list[Memory]:
        """Older ones that the vector index can't bring yet.  Ask before the index is asked: what is missing here is there."""
        if not statements:
            return []
        users, now = sorted({m.user_id for m in statements}), statements[0].created_at
        return await postgres.read(lambda c: self._unindexed(c, statements[0].tenant, users, now))

    async def judge(self, near: Mapping[UUID, tuple[Memory, Sequence[Memory]]]) -> dict[UUID, list[UUID]]:
        """Ids of the older memories that stand against each new one: new id → (new memory, its neighbours)."""
        if not near:
            return {}
        return await asyncio.to_thread(
            lambda: {new_id: self._against(new, older) for new_id, (new, older) in near.items()}
        )

    def states_something(self, memory: Memory) -> bool:
        """Is this a statement that another could contradict?"""
        return memory.kind == "semantic" and bool(statements(memory.content, self._rules))

    async def settle(
        self, connection: Connection, new: Sequence[Memory], suspects: Mapping[UUID, Sequence[UUID]], now: datetime
    ) -> Settled:
        """Decide, with the suspects locked.  `new` are statements about to be inserted, in order; they were made
        (created_at) before the vector index was asked for suspects.
        """
        settled = Settled({memory.id: memory for memory in new}, [], {})
        if not new:
            return settled
        tenant, users = new[0].tenant, {memory.user_id for memory in new}
        asked_at = min(memory.created_at for memory in new)
        recent = await self._unindexed(connection, tenant, sorted(users), now, fresh=asked_at)
        wanted = {one for memory in new for one in suspects.get(memory.id, ())} | {memory.id for memory in recent}
        locked = await memories.get_many(connection, tenant, sorted(wanted), lock=True) if wanted else []
        older = {m.id: m for m in locked if m.state == "active" and m.kind == "semantic" and not m.expired(now)}
        verdicts = await asyncio.to_thread(self._verdicts, new, older)
        for memory in new:
            self._apply(settled, memory.id, verdicts[memory.id], older, now)
        before = {m.id: m for m in locked}
        settled.changed = [(before[i], after) for i, after in older.items() if after is not before[i]]
        return settled

    async def _unindexed(
        self, connection: Connection, tenant: str, users: Sequence[str], now: datetime, fresh: datetime | None = None
    ) -> list[Memory]:
        since = now - timedelta(seconds=self.numbers.unindexed_s)
        return await conflicts.unindexed_statements(
            connection, tenant, users, since, now, self.numbers.unindexed_max, fresh
        )

    def _verdicts(self, new: Sequence[Memory], older: Mapping[UUID, Memory]) -> dict[UUID, list[tuple[UUID, Verdict]]]:
        """(older id, verdict), the newest of the older ones first; older ones of the same request count too."""
        read: dict[UUID, list[Statement]] = {}

        def told(memory: Memory) -> list[Statement]:
            if memory.id not in read:
                read[memory.id] = statements(memory.content, self._rules)
            return read[memory.id]

        found: dict[UUID, list[tuple[UUID, Verdict]]] = {}
        ordered = sorted(older.values(), key=lambda m: (m.created_at, m.id), reverse=True)
        for at, memory in enumerate(new):
            against = [*reversed(new[max(0, at - self.numbers.batch_back) : at]), *ordered]
            found[memory.id] = [
                (other.id, verdict)
                for other in against
                if other.user_id == memory.user_id
                and (verdict := relation_between(told(memory), told(other), self._rules)) is not None
            ]
        return found

    def _against(self, new: Memory, older: Sequence[Memory]) -> list[UUID]:
        """Ids of those active statements of the same user that stand against this one."""
        said = statements(new.content, self._rules)
        mine = (o for o in older if (o.user_id, o.kind, o.state) == (new.user_id, "semantic", "active"))
        return [o.id for o in mine if relation_between(said, statements(o.content, self._rules), self._rules)]

    def _apply(
        self,
        settled: Settled,
        new: UUID,
        verdicts: Sequence[tuple[UUID, Verdict]],
        older: dict[UUID, Memory],
        now: datetime,
    ) -> None:
        """A contradiction waits for a person, raised against the newest; otherwise all that the new one updates end."""
        alive = [(i, v) for i, v in verdicts if (settled.new.get(i) or older[i]).state == "active"]
        against = next(((i, v) for i, v in alive if v.relation == "contradiction"), None)
        if against is not None:
            memory = settled.new[new]
            raised = Conflict(
                new_id(),
                memory.tenant,
                memory.user_id,
                against[0],
                new,
                against[1].reason,
                "open",
                None,
                now,
                None,
                None,
            )
            settled.new[new] = replace(memory, conflict_id=raised.id)
            self._change(settled, older, against[0], now, conflict_id=raised.id)
            settled.standings[new] = Standing(conflict=raised)
        elif alive:
            since = settled.new[new].valid_from or now
            for old, _ in alive:
                self._change(settled, older, old, now, state="superseded", superseded_by=new, valid_to=since)
            ended = tuple(settled.new.get(i) or older[i] for i, _ in alive)
            settled.standings[new] = Standing(superseded=ended)

    def _change(
        self, settled: Settled, older: dict[UUID, Memory], changed: UUID, now: datetime, **fields: object
    ) -> None:
        if changed in settled.new:  # not inserted yet: no version of it was ever seen
            settled.new[changed] = replace(settled.new[changed], **fields)  # type: ignore[arg-type]
        else:
            row = older[changed]
            older[changed] = replace(row, **fields, updated_at=now, version=row.version + 1)  # type: ignore[arg-type]
