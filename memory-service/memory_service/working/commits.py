"""How does a change get into a task without losing anybody else's?

Read, merge (a pure function), commit by compare-and-set.  Requests of one process queue for a task; other processes are
met by trying again, and after a few rounds by a short lock, so that every writer gets its turn.  Bounded: who has not got
in after `write_wait_s` is told so.  Knows nothing of callers and rights.
"""

import asyncio
import random
import secrets
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from weakref import WeakValueDictionary

import orjson

from memory_service.domain import Clock, Json
from memory_service.errors import Gone, IdempotencyMismatch, NotFound, StoreUnavailable, TaskFinished, TooLarge
from memory_service.stores.redis import REVISION_CHARS, Commit, Once, OnceRecord, StoredTask, TaskKey, WorkingStore
from memory_service.working import codec
from memory_service.working.items import WorkingState
from memory_service.working.settings import Working
from memory_service.working.state import copied_memories

ANSWER_COMPRESSION = 1  # zlib's fastest: answers repeat whole states, which shrink several times even so


@dataclass(frozen=True)
class TaskMemory:
    """A task as it is now: `raw` is its state as it is kept.  `replayed`: it is the first answer to a repeated Idempotency-Key."""

    raw: bytes
    expires_at: datetime
    replayed: bool = False

    @cached_property
    def state(self) -> WorkingState:
        return codec.decode(self.raw)

    def to_bytes(self) -> bytes:
        """The working-memory object of the contract, as JSON."""
        return codec.with_end(self.raw, self.expires_at)

    def to_json(self) -> Json:
        shown: Json = orjson.loads(self.to_bytes())
        return shown


@dataclass(frozen=True, slots=True)
class Change:
    """What to do to a task.  `apply` may run several times; `creates` gives it None where there is no task.

    `ttl_ms` None keeps the life that was chosen before; `renew` False leaves even its end where it is.  `unfinished`: it would
    be lost in a task that is finished.
    """

    apply: Callable[[WorkingState | None], WorkingState]
    creates: bool = False
    ttl_ms: int | None = None
    renew: bool = True
    once: Once | None = None
    unfinished: bool = False


class TaskWriter:
    """Commits changes.  Raises NotFound, TaskFinished, TooLarge, StoreUnavailable, and whatever `Change.apply` raises."""

    def __init__(self, store: WorkingStore, settings: Working, clock: Clock) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._queues: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def write(self, key: TaskKey, change: Change) -> TaskMemory:
        """Commit `change` in its turn → the task after it."""
        queue = self._queues.setdefault(key.task, asyncio.Lock())
        try:
            async with asyncio.timeout(self._settings.write_wait_s), queue:
                return await self._until_committed(key, change)
        except TimeoutError:
            raise StoreUnavailable("redis", "too many writers for one task at once; try again") from None

    async def _until_committed(self, key: TaskKey, change: Change) -> TaskMemory:
        """Rounds until one commits; the time-out of `write` bounds them."""
        holder, rounds = "", 0
        try:
            while True:
                committed = await self._round(key, change, holder)
                if committed is not None:
                    return committed
                rounds += 1
                if rounds >= self._settings.write_attempts_max and await self._locked(key, holder := _name()):
                    continue
                holder = ""
                await asyncio.sleep(_pause_s(rounds, self._settings))
        finally:
            if holder:
                await self._store.unlock(key, holder)

    async def _locked(self, key: TaskKey, holder: str) -> bool:
        return await self._store.lock(key, holder, self._settings.write_lock_ms)

    async def _round(self, key: TaskKey, change: Change, holder: str) -> TaskMemory | None:
        """Read, merge, commit; None when someone else was faster."""
        stored, record = None, None
        if not change.creates or change.once is not None:  # what replaces everything need not be read first
            stored, record = await self._store.read(key, change.once, renew=False)
        if change.once is not None and record is not None:
            return replayed(record, change.once)
        if stored is None and not change.creates:
            raise NotFound
        state = change.apply(codec.decode(stored.state) if stored else None)
        after = TaskMemory(self._encoded(state), self._clock() + timedelta(milliseconds=self._left_ms(change, stored)))
        commit = Commit(
            revision=_name(),
            state=after.raw,
            expected=None if change.creates else _revision(stored),
            ttl_ms=change.ttl_ms,
            renew=change.renew,
            lock_holder=holder,
            once=change.once,
            answer=_answer(after) if change.once else b"",
            unfinished=change.unfinished,
        )
        await self._store.note_copies(key, copied_memories(state))
        match await self._store.commit(key, commit):
            case "ok":
                return after
            case "gone":
                raise NotFound
            case "finished":
                raise TaskFinished("this task is finished: what is noted in it now would be in no episode")
            case _:
                return None

    def _left_ms(self, change: Change, stored: StoredTask | None) -> int:
        if stored is None:
            return change.ttl_ms or self._settings.ttl_seconds_default * 1000
        return (change.ttl_ms or stored.ttl_ms) if change.renew else stored.left_ms

    def _encoded(self, state: WorkingState) -> bytes:
        raw = codec.encode(state)
        if len(raw) > self._settings.state_bytes_max:
            raise TooLarge(
                f"the working memory of one task holds at most {self._settings.state_bytes_max} bytes; nothing was changed"
            )
        return raw


def replayed(record: OnceRecord, once: Once) -> TaskMemory:
    """The first answer again.  Raises IdempotencyMismatch when the request is another one, Gone when the answer was erased."""
    if record.fingerprint != once.fingerprint:
        raise IdempotencyMismatch
    if not record.answer:
        raise Gone("what this request wrote was erased")
    raw = zlib.decompress(record.answer)
    ends = datetime.fromisoformat(orjson.loads(raw)["expires_at"])
    return TaskMemory(codec.encode(codec.decode(raw)), ends, replayed=True)


def answer_text(answer: bytes) -> bytes:
    """A kept answer as the JSON that was answered."""
    return zlib.decompress(answer)


def _answer(after: TaskMemory) -> bytes:
    return zlib.compress(after.to_bytes(), ANSWER_COMPRESSION)


def _revision(stored: StoredTask | None) -> str | None:
    return stored.revision if stored else None


def _name() -> str:
    """A name that no other write or lock has: random, so that a task deleted and made anew is never taken for the old one."""
    return secrets.token_hex(REVISION_CHARS // 2)


def _pause_s(rounds: int, settings: Working) -> float:
    longest_ms: float = min(settings.write_backoff_ms * 2 ** min(rounds, 16), settings.write_backoff_ms_max)
    return random.uniform(0.5, 1.0) * longest_ms / 1000  # noqa: S311 - spreads retries, keeps no secret
