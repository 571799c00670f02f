"""How is a user forgotten?  Everything of one user, in all three stores.

Postgres first, in bounded transactions that each leave outbox rows, so that a kill at any line leaves nothing that a
second call, or the relay, does not finish.  Ids are remembered as erased; contents nowhere.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

from memory_service.domain import Caller, Json
from memory_service.errors import StoreUnavailable
from memory_service.stores.postgres import changes, experiences, tasks
from memory_service.stores.postgres.pool import Connection, Postgres
from memory_service.working.service import WorkingMemory

CHUNK_ROWS = 1_000


class Erasure:
    """Erases users."""

    def __init__(
        self,
        postgres: Postgres,
        working: WorkingMemory,
        nudge: Callable[[], None],
        erase_turns: Callable[[str, str], Awaitable[int]],
        forget_searches: Callable[[str, str], Awaitable[int]],
    ) -> None:
        self._postgres = postgres
        self._working = working
        self._nudge = nudge
        self._erase_turns = erase_turns
        self._forget_searches = forget_searches

    async def erase_user(self, caller: Caller, user_id: str) -> Json:
        """How much was removed, by place.  A second call finds nothing and is fine."""
        counts: Counter[str] = Counter()
        with suppress(
            StoreUnavailable
        ):  # first, so that no request that runs now finds dialogue to write; and again below
            counts["sessions"] += await self._erase_turns(caller.tenant, user_id)

        # Before the memories, so that a finish that runs now can't write an episode any more.
        runs = await self._postgres.transaction(lambda c: tasks.erase_user(c, caller.tenant, user_id))

        # First once more, so that the rows need not be cleaned of each memory; and at the end, for what was asked meanwhile.
        counts["retrievals"] += await self._forget_searches(caller.tenant, user_id)

        attached = await self._postgres.read(lambda c: changes.attached_to_user(c, caller.tenant, user_id))

        async def chunk(connection: Connection) -> int:
            ids = await changes.ids_of_user(connection, caller.tenant, user_id, CHUNK_ROWS)
            return await changes.erase(connection, caller.tenant, ids)

        while erased := await self._postgres.transaction(chunk):
            counts["memories"] += erased

        async def lessons(connection: Connection) -> int:
            await experiences.lock_user(connection, caller.tenant, user_id, rebuild=True)
            ids = await experiences.ids_of_user(connection, caller.tenant, user_id, CHUNK_ROWS)
            return await experiences.erase(connection, caller.tenant, ids)

        while erased := await self._postgres.transaction(lessons):
            counts["experiences"] += erased
        await self._postgres.transaction(lambda c: changes.erase_user_rest(c, caller.tenant, user_id))
        counts["retrievals"] += await self._forget_searches(caller.tenant, user_id)
        self._nudge()
        working = await self._working.delete_user(caller.tenant, user_id)
        counts["sessions"] += await self._erase_turns(caller.tenant, user_id)
        return {
            "user_id": user_id,
            **_told(counts),
            **attached,
            "working_memory": working,
            "task_runs": runs,
            "sessions": counts["sessions"],
        }


def _told(counts: Counter[str]) -> Json:
    return {name: counts[name] for name in ("memories", "experiences", "retrievals")}
