"""Which memories belong together, and who may say so?  The graph by hand.

A relation is said of its source: that must be a memory that the caller may change, and the target one that it may read; anything
else answers like a memory that is not there.  They belong to one user, or one of them to the common pool: a relation shows the id
of its other end.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from memory_service.domain import Caller, Clock, Memory
from memory_service.errors import FieldError, InvalidFields, NotFound
from memory_service.shapes import memory_json
from memory_service.stores.postgres import changes, memories, relations
from memory_service.stores.postgres.pool import Connection, Postgres
from memory_service.stores.postgres.relations import RELATED_TO, Related, Relation
from memory_service.write.drafts import differences

Record = Callable[[Connection, Any], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Ends:
    """From where to where, and as what."""

    source_id: UUID
    target_id: UUID
    relation_type: str


@dataclass(frozen=True, slots=True)
class Tied:
    """A relation as it is now; `new` when it was not there before."""

    relation: Relation
    new: bool


class Relations:
    """Ties, unties and lists memories."""

    def __init__(self, postgres: Postgres, relations_max: int, clock: Clock, nudge: Callable[[], None]) -> None:
        self._postgres = postgres
        self._relations_max = relations_max
        self._clock = clock
        self._nudge = nudge

    async def tie(self, caller: Caller, ends: Ends, weight: float | None, record: Record) -> Tied:
        """Add a relation, or set the weight of one that is there.  Raises NotFound, and InvalidFields for two users' memories
        and for an end that has `relations_max` already.
        """
        if ends.source_id == ends.target_id:
            raise InvalidFields.of("target_id", "must be another memory than source_id")

        async def work(connection: Connection) -> Tied:
            now = self._clock()
            pair = (ends.source_id, ends.target_id)
            known = await relations.lock_ends(connection, caller, pair, now, alone=True)
            _check(caller, ends, known)
            if not relations.may_be_tied(known[ends.source_id], known[ends.target_id]):
                raise InvalidFields.of("target_id", "is a memory of another user than source_id, and neither is shared")
            tied = Tied(*await relations.tie(connection, caller.tenant, pair, ends.relation_type, weight, now))
            if tied.new:
                await self._check_room(connection, caller, ends)
            await record(connection, tied)
            return tied

        return await self._postgres.transaction(work)

    async def untie(self, caller: Caller, ends: Ends) -> None:
        """Remove a relation.  Raises NotFound.

        `related_to` may stand in the `related_ids` of its source: it goes there too, as a new version.
        """

        async def work(connection: Connection) -> None:
            source = await memories.get(connection, caller, ends.source_id, self._clock(), lock=True)
            known = await relations.lock_ends(connection, caller, (ends.source_id, ends.target_id), self._clock())
            _check(caller, ends, known)
            if not await relations.untie(connection, caller.tenant, ends.source_id, ends.target_id, ends.relation_type):
                raise NotFound("there is no such relation")
            if source is not None and ends.relation_type == RELATED_TO and ends.target_id in source.related_ids:
                await self._forget(connection, caller, source, ends.target_id)

        await self._postgres.transaction(work)
        self._nudge()

    async def page(
        self, caller: Caller, memory_id: UUID, after: tuple[datetime, UUID] | None, limit: int
    ) -> tuple[list[Related], int]:
        """Relations of a memory in both directions, the latest first, and how many there are.  Raises NotFound."""

        async def work(connection: Connection) -> tuple[list[Related], int]:
            now = self._clock()
            if await memories.get(connection, caller, memory_id, now) is None:
                raise NotFound
            return await relations.related_page(connection, caller, memory_id, now, after, limit)

        return await self._postgres.read(work)

    async def _check_room(self, connection: Connection, caller: Caller, ends: Ends) -> None:
        """With the new relation in place.  Raises InvalidFields naming the end that has too many."""
        most = self._relations_max
        found = await relations.counts(connection, caller.tenant, (ends.source_id, ends.target_id), most + 1)
        for field, one in (("source_id", ends.source_id), ("target_id", ends.target_id)):
            if found[one] > most:
                raise InvalidFields.of(
                    field, f"this memory has {most} relations already, which is the most it can have"
                )

    async def _forget(self, connection: Connection, caller: Caller, source: Memory, target: UUID) -> None:
        kept = tuple(one for one in source.related_ids if one != target)
        after = replace(source, related_ids=kept, version=source.version + 1, updated_at=self._clock())
        shown, changed = memory_json(source), differences(source, after)
        await changes.keep_version(
            connection, source, shown, changed, actor=caller.actor, cause="unrelate", at=after.updated_at
        )
        await changes.save_state(connection, after)


def _check(caller: Caller, ends: Ends, known: Mapping[UUID, str]) -> None:
    """`known`: whose the ends are that the caller may read.  Raises NotFound naming the end that is not there for it."""
    source_is_there = ends.source_id in known and caller.may_act_for(known[ends.source_id])
    for field, is_there in (("source_id", source_is_there), ("target_id", ends.target_id in known)):
        if not is_there:
            raise NotFound(f"{field}: there is no such memory", errors=(FieldError(field, "there is no such memory"),))
