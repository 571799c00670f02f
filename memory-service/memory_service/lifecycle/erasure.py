"""How is a user forgotten?  Everything of one user, in all three stores, while others write on.

The gate of stores/postgres/erasing.py is shut first.  From then on nothing new of the user is committed to Postgres, so what is
there only gets less, and the work ends however many write.  Order, and why:

1. The gate.  What was committed before is seen by 3, what comes later is refused (503, Retry-After).
2. Redis, each index in one script: what came before is gone, what comes later is new and stays.
3. Postgres, in bounded transactions that each leave outbox rows: runs first, so that a finish that is under way writes no
   episode; the log of searches, so that its rows need not be cleaned of each memory; memories, lessons, the rest.
4. The log once more, with the moment until which what was begun is refused: now nothing that anybody reads is from before.
5. The gate opens with its session.  Then the vectors: the relay removes them, and is waited for a while.

Killed at any line, the gate opens by itself, nothing half done is wrong, and the DELETE, which nobody answered, is sent again.
Ids are remembered as erased; contents nowhere.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import psycopg

from memory_service.domain import Caller, Json
from memory_service.errors import StoreUnavailable, UserBeingErased
from memory_service.settings import Section
from memory_service.stores.postgres import changes, erasing, experiences, tasks
from memory_service.stores.postgres.pool import Connection, Postgres
from memory_service.working.service import WorkingMemory

T = TypeVar("T")


class ErasureNumbers(Section):
    """[erasure] of memory.toml."""

    chunk_rows: int
    at_once_max: int
    gate_wait_s: float
    deadlocks_max: int
    vectors_wait_s: float
    vectors_poll_s: float


class Erasure:
    """Erases users."""

    def __init__(
        self,
        postgres: Postgres,
        working: WorkingMemory,
        numbers: ErasureNumbers,
        nudge: Callable[[], None],
        erase_turns: Callable[[str, str], Awaitable[int]],
        forget_searches: Callable[[str, str], Awaitable[int]],
    ) -> None:
        self._postgres = postgres
        self._working = working
        self._numbers = numbers
        self._nudge = nudge
        self._erase_turns = erase_turns
        self._forget_searches = forget_searches
        self._places = asyncio.Semaphore(numbers.at_once_max)  # each holds a connection beside the pool

    async def erase_user(self, caller: Caller, user_id: str) -> Json:
        """How much was removed, by place.  A second call finds nothing and is fine.

        Raises StoreUnavailable, and UserBeingErased when the user is being erased already and that takes long.
        """
        try:
            async with asyncio.timeout(self._numbers.gate_wait_s):
                await self._places.acquire()
        except TimeoutError:
            raise UserBeingErased("other users are being erased; try again") from None
        try:
            async with self._postgres.alone() as session:
                await erasing.close(session, caller.tenant, user_id, self._numbers.gate_wait_s)
                counts = await self._erased(session, caller.tenant, user_id)
        finally:
            self._places.release()
            self._nudge()
        await self._vectors_gone(caller.tenant, user_id)
        return {"user_id": user_id, **counts}

    async def _erased(self, session: Connection, tenant: str, user_id: str) -> Json:
        """Everything but the vectors."""
        redis: tuple[int, int] | None = None
        with suppress(StoreUnavailable):  # else below: Postgres need not wait for it
            redis = await self._forget_in_redis(tenant, user_id)
        runs = await self._step(session, lambda c: tasks.erase_user(c, tenant, user_id))
        searches = await self._forget_searches(tenant, user_id)
        attached = await changes.attached_to_user(session, tenant, user_id)
        memories = await self._all(session, lambda c: self._some_memories(c, tenant, user_id))
        lessons = await self._all(session, lambda c: self._some_lessons(c, tenant, user_id))
        await self._step(session, lambda c: changes.erase_user_rest(c, tenant, user_id))
        working, dialogues = redis or await self._forget_in_redis(tenant, user_id)
        searches += await self._forget_searches(tenant, user_id)
        return {
            "memories": memories,
            "experiences": lessons,
            "retrievals": searches,
            **attached,
            "working_memory": working,
            "task_runs": runs,
            "sessions": dialogues,
        }

    async def _forget_in_redis(self, tenant: str, user_id: str) -> tuple[int, int]:
        """(Tasks, sessions with dialogue).  Once: what comes afterwards was told after the erasure began."""
        return await self._working.delete_user(tenant, user_id), await self._erase_turns(tenant, user_id)

    async def _some_memories(self, connection: Connection, tenant: str, user_id: str) -> int | None:
        ids = await changes.ids_of_user(connection, tenant, user_id, self._numbers.chunk_rows)
        return await changes.erase(connection, tenant, ids) if ids else None

    async def _some_lessons(self, connection: Connection, tenant: str, user_id: str) -> int | None:
        await experiences.lock_user(connection, tenant, user_id, rebuild=True)
        ids = await experiences.ids_of_user(connection, tenant, user_id, self._numbers.chunk_rows)
        return await experiences.erase(connection, tenant, ids) if ids else None

    async def _all(self, session: Connection, some: Callable[[Connection], Awaitable[int | None]]) -> int:
        """Until none is seen.  What is derived of a memory comes only while that is there, and locked; when somebody erased just
        those that were seen, what he made in their place is seen by the next look."""
        total = 0
        while (gone := await self._step(session, some)) is not None:
            total += gone
            self._nudge()
        return total

    async def _step(self, session: Connection, work: Callable[[Connection], Awaitable[T]]) -> T:
        """One transaction of the session that holds the gate; again when somebody's changes crossed it."""
        for _ in range(self._numbers.deadlocks_max):
            with suppress(psycopg.errors.DeadlockDetected):
                async with session.transaction():
                    return await work(session)
        async with session.transaction():
            return await work(session)

    async def _vectors_gone(self, tenant: str, user_id: str) -> None:
        """The relay was told.  With Qdrant down they go when it is back: no search shows what has no row."""
        with suppress(TimeoutError, StoreUnavailable):
            async with asyncio.timeout(self._numbers.vectors_wait_s):
                while await self._postgres.read(lambda c: erasing.vectors_wait(c, tenant, user_id)):
                    await asyncio.sleep(self._numbers.vectors_poll_s)
