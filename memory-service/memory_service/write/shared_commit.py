"""How do writes that come at the same time become durable together?

A transaction costs a statement, a flush to the disk and the turns of the event loop that wait for them, whether it carries one
memory or ten.  So one is under way at a time, and what arrives meanwhile goes with the next: an idle service adds no wait, a
busy one needs fewer transactions than it gets writes.

Only new texts are shared, for which there is nothing to decide.  Every other write has a transaction of its own
(`storing.py`), as has one that turns out not to be new.  What is wrong with one memory never reaches another: when a shared
statement fails for its contents, each of its writes goes alone.  `keep` must not be told of success before the commit.
"""

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from uuid import UUID

from memory_service.domain import Clock
from memory_service.errors import StoreUnavailable
from memory_service.settings import Write
from memory_service.stores.postgres import keeping
from memory_service.stores.postgres.keeping import NewMemory
from memory_service.stores.postgres.pool import Connection, Postgres
from memory_service.write.indexing import lock_key
from memory_service.write.plan import Prepared

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Waiting:
    new: NewMemory
    chars: int
    kept: asyncio.Future[bool]


class SharedCommit:
    """One for the process: `keep` beside all writes."""

    def __init__(self, postgres: Postgres, numbers: Write, clock: Clock) -> None:
        self._postgres = postgres
        self._numbers = numbers
        self._clock = clock
        self._waiting: deque[_Waiting] = deque()
        self._working: asyncio.Task[None] | None = None

    async def keep(self, prepared: Prepared) -> bool:
        """True: durable.  False: nothing was written, it needs a transaction of its own.  Raises StoreUnavailable."""
        if not prepared.is_plain or len(self._waiting) >= self._numbers.shared_waiting_max:
            return False
        memory, text = prepared.memory, prepared.text
        lock = lock_key(memory.tenant, memory.user_id, text.content_hash)
        chars = len(memory.content) + len(text.search_terms)
        waiting = _Waiting(NewMemory(memory, text, lock), chars, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._working is None:  # kept, since the loop itself holds tasks by weak references only
            self._working = asyncio.create_task(self._work())
        return await waiting.kept

    async def _work(self) -> None:
        """Until nobody waits.  Belongs to no request: one that is cancelled leaves the others'."""
        try:
            while group := self._next_group():
                await self._keep_together(group)
        finally:
            self._working = None

    def _next_group(self) -> list[_Waiting]:
        """Those that wait longest, within the bounds.  A text is in it once: the next group sees that it is not new any more."""
        group: list[_Waiting] = []
        again: list[_Waiting] = []
        locks: set[int] = set()
        chars = 0
        while self._waiting and len(group) < self._numbers.shared_rows_max:
            one = self._waiting[0]
            if group and chars + one.chars > self._numbers.shared_chars_max:
                break
            self._waiting.popleft()
            if one.kept.done():  # its request was cancelled
                continue
            if one.new.lock in locks:
                again.append(one)
                continue
            locks.add(one.new.lock)
            chars += one.chars
            group.append(one)
        self._waiting.extendleft(reversed(again))
        return group

    async def _keep_together(self, group: list[_Waiting]) -> None:
        try:
            kept = await self._kept([one.new for one in group])
        except StoreUnavailable as error:
            for one in (*group, *self._waiting):  # those behind it would find the same, a timeout later
                _refuse(one, error)
            self._waiting.clear()
        except Exception:
            log.exception("%d memories could not be kept together: each is tried alone", len(group))
            _answer(group, set())
        except BaseException:
            for one in group:
                one.kept.cancel()
            raise
        else:
            _answer(group, kept)

    async def _kept(self, new: list[NewMemory]) -> set[UUID]:
        """As a read, which is asked again when the connection broke: whether the first time was heard, the ids tell."""
        again = False

        async def work(connection: Connection) -> set[UUID]:
            nonlocal again
            before = await keeping.kept_before(connection, new) if again else set()
            again = True
            missing = [one for one in new if one.memory.id not in before]
            return before | await keeping.keep_new(connection, missing, self._clock())

        return await self._postgres.read(work)


def _answer(group: list[_Waiting], kept: set[UUID]) -> None:
    for one in group:
        if not one.kept.done():
            one.kept.set_result(one.new.memory.id in kept)


def _refuse(one: _Waiting, cause: StoreUnavailable) -> None:
    """An exception of its own for each, whose traceback is then its request's."""
    if not one.kept.done():
        error = StoreUnavailable(cause.store)
        error.__cause__ = cause
        one.kept.set_exception(error)
