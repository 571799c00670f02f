"""Which of the memories that are there does a new statement contradict or update?

`judge` compares texts before the transaction: the rules in a thread, and a language model, where there is one, what the rules
say nothing about.  `settle` decides inside it, once nobody else can write a statement of these users: over rows that may have
changed, over those whose vectors are not there yet, and over the other new ones of the same request.  These last two are
compared by the rules only, as is what is written at the same moment.  It must not write.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from memory_service.domain import Memory, new_id
from memory_service.settings import Section
from memory_service.stores.postgres import conflicts, memories
from memory_service.stores.postgres.conflicts import Conflict, FoundBy
from memory_service.stores.postgres.pool import Connection, Postgres
from memory_service.write.conflict_model import ConflictModel, Opinions
from memory_service.write.conflict_rules import ConflictRules
from memory_service.write.conflicts import Relation, relation_between
from memory_service.write.similar import Neighbour
from memory_service.write.statements import Statement, statements
from memory_service.write.suspicions import Suspected


class ConflictNumbers(Section):
    """[conflicts] of memory.toml."""

    neighbours: int
    unindexed_max: int
    unindexed_s: float
    batch_back: int
    dispute_max: int


@dataclass(frozen=True, slots=True)
class Standing:
    """What a new memory does to older ones: `conflict` is raised against one, or `superseded` ones are updated by it.

    `dispute`: the conflict that the older one carried before; who carries it too belongs to the new one's dispute.
    """

    conflict: Conflict | None = None
    dispute: UUID | None = None
    superseded: tuple[Memory, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """How a new memory stands to an older one, and who says so."""

    relation: Relation
    reason: str
    by: FoundBy


@dataclass(slots=True)
class Settled:
    """`new` memories as they are to be inserted, `changed` (before, after) of older rows, what each new one did."""

    new: dict[UUID, Memory]
    changed: list[tuple[Memory, Memory]]
    standings: dict[UUID, Standing]


class Contradictions:
    """Finds them; one for the process."""

    def __init__(self, rules: ConflictRules, numbers: ConflictNumbers, model: ConflictModel | None = None) -> None:
        self._rules = rules
        self.numbers = numbers
        self._model = model

    async def unindexed(self, postgres: Postgres, statements: Sequence[Memory]) -> list[Memory]:
        """Older ones that the vector index can't bring yet.  Ask before the index is asked: what is missing here is there."""
        if not statements:
            return []
        users, now = sorted({m.user_id for m in statements}), statements[0].created_at
        return await postgres.read(lambda c: self._unindexed(c, statements[0].tenant, users, now))

    async def judge(
        self, near: Mapping[UUID, tuple[Memory, Sequence[Neighbour]]], repeated: Collection[UUID] = ()
    ) -> dict[UUID, Suspected]:
        """What stands against each new one: new id → (new memory, its neighbours, the nearest first).

        The model is asked about statements that the rules have nothing against; they stand where it does not answer.
        `repeated` are new ones that will be merged into what they repeat: nobody needs to ask about these.
        """
        if not near:
            return {}
        near = {i: (new, [o for o in older if new.may_be_of(o.memory)]) for i, (new, older) in near.items()}
        by_rules = await asyncio.to_thread(
            lambda: {new_id: self._against(new, older) for new_id, (new, older) in near.items()}
        )
        told: dict[UUID, Opinions] = {}
        if self._model is not None:
            open_ones = {i: pair for i, pair in near.items() if not by_rules[i] and i not in repeated}
            asked = {i: (new, self._model.candidates(new, older)) for i, (new, older) in open_ones.items()}
            told = await self._model.judge(asked)
        return {
            i: Suspected("model", (), told[i]) if i in told else Suspected("rules", tuple(ids))
            for i, ids in by_rules.items()
        }

    def states_something(self, memory: Memory) -> bool:
        """Is this a statement that another could contradict?  A model also understands what the rules take for a doubt."""
        if memory.kind != "semantic":
            return False
        return (self._model is not None and self._model.reads(memory.content)) or bool(
            statements(memory.content, self._rules)
        )

    async def settle(
        self, connection: Connection, new: Sequence[Memory], suspected: Mapping[UUID, Suspected], now: datetime
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
        wanted = {one for memory in new if memory.id in suspected for one in suspected[memory.id].ids}
        wanted |= {memory.id for memory in recent}
        locked = await memories.get_many(connection, tenant, sorted(wanted), lock=True) if wanted else []
        older = {m.id: m for m in locked if m.state == "active" and m.kind == "semantic" and not m.expired(now)}
        verdicts = await asyncio.to_thread(self._verdicts, new, older, suspected)
        for memory in new:
            self._apply(settled, memory.id, verdicts[memory.id], older, now)
        before = {m.id: m for m in locked}
        settled.changed = [(before[i], after) for i, after in older.items() if after is not before[i]]
        return settled

    def reason_between(self, new: Memory, old: Memory) -> str | None:
        """Why the rules set these two against each other; None when they do not."""
        verdict = relation_between(
            statements(new.content, self._rules), statements(old.content, self._rules), self._rules
        )
        return verdict.reason if verdict is not None and new.may_be_of(old) else None

    async def _unindexed(
        self, connection: Connection, tenant: str, users: Sequence[str], now: datetime, fresh: datetime | None = None
    ) -> list[Memory]:
        since = now - timedelta(seconds=self.numbers.unindexed_s)
        return await conflicts.unindexed_statements(
            connection, tenant, users, since, now, self.numbers.unindexed_max, fresh
        )

    def _verdicts(
        self, new: Sequence[Memory], older: Mapping[UUID, Memory], suspected: Mapping[UUID, Suspected]
    ) -> dict[UUID, list[tuple[UUID, Found]]]:
        """(older id, what was found), the newest of the older ones first; older ones of the same request count too."""
        read: dict[UUID, list[Statement]] = {}

        def told(memory: Memory) -> list[Statement]:
            if memory.id not in read:
                read[memory.id] = statements(memory.content, self._rules)
            return read[memory.id]

        def between(memory: Memory, other: Memory) -> Found | None:
            verdict = relation_between(told(memory), told(other), self._rules)
            if verdict is not None:
                return _dated(Found(verdict.relation, verdict.reason, "rules"), memory, other)
            opinion = suspected[memory.id].opinions.get(other.id) if memory.id in suspected else None
            if opinion is None or opinion.text != other.content:  # edited since the model read it
                return None
            return _dated(Found(opinion.relation, opinion.reason, "model"), memory, other)

        found: dict[UUID, list[tuple[UUID, Found]]] = {}
        ordered = sorted(older.values(), key=lambda m: (m.created_at, m.id), reverse=True)
        for at, memory in enumerate(new):
            against = [*reversed(new[max(0, at - self.numbers.batch_back) : at]), *ordered]
            found[memory.id] = [
                (other.id, one)
                for other in against
                if other.user_id == memory.user_id
                and memory.may_be_of(other)
                and (one := between(memory, other)) is not None
            ]
        return found

    def _against(self, new: Memory, older: Sequence[Neighbour]) -> list[UUID]:
        """Ids of those active statements of the same user that stand against this one."""
        said = statements(new.content, self._rules)
        near = (one.memory for one in older)
        mine = (o for o in near if (o.user_id, o.kind, o.state) == (new.user_id, "semantic", "active"))
        return [o.id for o in mine if relation_between(said, statements(o.content, self._rules), self._rules)]

    def _apply(
        self,
        settled: Settled,
        new: UUID,
        verdicts: Sequence[tuple[UUID, Found]],
        older: dict[UUID, Memory],
        now: datetime,
    ) -> None:
        """A contradiction waits for a person, raised against the newest; otherwise all that the new one updates end.

        What is disputed already is not updated either: that would decide for the person who is asked.
        """
        rows = {i: settled.new.get(i) or older[i] for i, _ in verdicts}
        alive = [(i, v) for i, v in verdicts if rows[i].state == "active"]
        against = next(((i, v) for i, v in alive if v.relation == "contradiction" or rows[i].conflict_id), None)
        if against is not None:
            memory, dispute = settled.new[new], rows[against[0]].conflict_id
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
                against[1].by,
            )
            settled.new[new] = replace(memory, conflict_id=raised.id)
            self._change(settled, older, against[0], now, conflict_id=raised.id)
            settled.standings[new] = Standing(conflict=raised, dispute=dispute)
        elif alive:
            since = settled.new[new].valid_from or now
            for old, _ in alive:
                ended_at = max(since, rows[old].valid_from or since)
                self._change(settled, older, old, now, state="superseded", superseded_by=new, valid_to=ended_at)
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


def _dated(found: Found, memory: Memory, other: Memory) -> Found:
    """What happened earlier and is told later (a chat that is read in afterwards) updates nothing: a person decides."""
    if found.relation == "update" and memory.occurred_at < other.occurred_at:
        return replace(
            found, relation="contradiction", reason=f"{found.reason}; it happened before what it would update"
        )
    return found
