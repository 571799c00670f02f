"""Which memories are there?  Reading by id and listing; nothing is ranked and nothing is changed here."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from memory_service.domain import Caller, Clock, Memory, MemoryFilter
from memory_service.errors import NotFound
from memory_service.lifecycle.versions import as_it_was
from memory_service.settings import Heat
from memory_service.stores.postgres import memories, versions
from memory_service.stores.postgres.filters import SqlFilter
from memory_service.stores.postgres.pool import Postgres


class MemoryReader:
    """Reads that are not searches."""

    def __init__(self, postgres: Postgres, clock: Clock, heat: Heat) -> None:
        self._postgres = postgres
        self._clock = clock
        self._heat = heat

    async def get(self, caller: Caller, memory_id: UUID) -> Memory:
        """One memory that the caller may see.  Raises NotFound."""
        memory = await self._postgres.read(lambda c: memories.get(c, caller, memory_id, self._clock()))
        if memory is None:
            raise NotFound
        return memory

    async def page(
        self, chosen: MemoryFilter, after: tuple[datetime, UUID] | None, limit: int
    ) -> tuple[Sequence[Memory], int]:
        """At most `limit` memories after a position, newest first, and how many pass the filter in all."""
        sql = SqlFilter(chosen, self._heat.decay, self._heat.decay_days * 86_400)
        rows, total = await self._postgres.read(lambda c: memories.list_page(c, sql, after, limit))
        return await as_believed(self._postgres, chosen, rows), total


async def as_believed(postgres: Postgres, chosen: MemoryFilter, found: Sequence[Memory]) -> Sequence[Memory]:
    """The memories with what they said at `chosen.as_of`; as they are when it is not given.

    Which ones are found is decided by what they say now: only that has words and vectors to be found by.
    """
    moment = chosen.as_of
    if moment is None or not found:
        return found
    ids = [one.id for one in found]
    earlier = await postgres.read(lambda c: versions.standing_at(c, chosen.tenant, ids, moment))
    return [as_it_was(one, earlier[one.id], chosen.now) if one.id in earlier else one for one in found]
