"""How is working memory kept in Redis?  One hash per task, two indexes per user, every change one atomic script.

Knows bytes, revisions and lives, not what a state means, and never decides who may see it.

Keys: `hs:{tenant:user}:wm:task` and its `:lock`; `…:wm-tasks` and `…:wm-once` list a user's tasks and idempotency
records by the time they end, so that erasing a user needs no scan; `…:wm-once:digest` is one record.  What is in braces
is Redis Cluster's hash tag: everything of a user is in one slot, so that scripts may touch all of it together.  Parts are
percent-encoded: `:`, `{`, `*` or a space in an id can't reach into another key.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import quote, unquote

from memory_service.stores.redis_client import Redis, reached

SCRIPTS = Path(__file__).parent
REVISION_CHARS = 16  # working_commit.lua compares this many
CommitAnswer = Literal["ok", "stale", "gone", "locked", "used", "finished"]


@lru_cache(maxsize=4096)
def encode_part(text: str) -> str:
    """One part of a key: nothing in it can end the part or open a hash tag."""
    return quote(text, safe="")


@dataclass(frozen=True, slots=True)
class TaskKey:
    """Names of everything that belongs to one task."""

    tenant: str
    user_id: str
    task_id: str

    @property
    def member(self) -> str:
        """The task's name in the user's index."""
        return encode_part(self.task_id)

    @property
    def task(self) -> str:
        return f"{_tasks(self.tenant, self.user_id)}:{self.member}"

    @property
    def lock(self) -> str:
        return f"{self.task}:lock"

    @property
    def index(self) -> str:
        """Where the user's tasks are listed."""
        return _index(self.tenant, self.user_id)


def _key(tenant: str, user: str, task: str) -> TaskKey:
    """A key from parts as they are in an index."""
    return TaskKey(tenant, unquote(user), unquote(task))


def _user(tenant: str, user_id: str) -> str:
    return f"hs:{{{encode_part(tenant)}:{encode_part(user_id)}}}"


def _tasks(tenant: str, user_id: str) -> str:
    return f"{_user(tenant, user_id)}:wm"


def _index(tenant: str, user_id: str) -> str:
    return f"{_user(tenant, user_id)}:wm-tasks"


def _once(tenant: str, user_id: str) -> str:
    return f"{_user(tenant, user_id)}:wm-once"


def _copies(tenant: str, memory_id: str) -> str:
    return f"hs:{{{encode_part(tenant)}}}:wm-copies:{encode_part(memory_id)}"


@dataclass(frozen=True, slots=True)
class Once:
    """An Idempotency-Key as it is kept: `digest` names it, `fingerprint` stands for the request that used it."""

    digest: str
    fingerprint: str

    @classmethod
    def of(cls, key: str, request: bytes) -> "Once":
        return cls(sha256(key.encode()).hexdigest(), sha256(request).hexdigest())


@dataclass(frozen=True, slots=True)
class OnceRecord:
    """What the first request with a key left: `answer` is empty when it was erased since."""

    fingerprint: str
    answer: bytes


@dataclass(frozen=True, slots=True)
class StoredTask:
    state: bytes
    revision: str
    ttl_ms: int
    left_ms: int


@dataclass(frozen=True, slots=True)
class Commit:
    """One write.  `expected` None writes whatever there is; `ttl_ms` None keeps the life that was chosen before."""

    revision: str
    state: bytes
    expected: str | None = None
    ttl_ms: int | None = None
    renew: bool = True
    lock_holder: str = ""
    once: Once | None = None
    answer: bytes = b""
    unfinished: bool = False  # refuse a task that is finished


class WorkingStore:
    """Tasks in Redis.  Raises StoreUnavailable; the caller checks ids before they come here (they must be valid UTF-8)."""

    def __init__(self, redis: Redis, *, ttl_seconds_max: int, once_seconds: int) -> None:
        self._redis = redis
        self._index_ms = ttl_seconds_max * 1000
        self._once_ms = once_seconds * 1000
        names = ("read", "commit", "delete", "erase_user", "blank", "unlock")
        self._scripts = {
            name: redis.register_script((SCRIPTS / f"working_{name}.lua").read_text("utf-8")) for name in names
        }

    async def read(
        self, key: TaskKey, once: Once | None = None, *, renew: bool = True
    ) -> tuple[StoredTask | None, OnceRecord | None]:
        """The task, if it lives, and what an Idempotency-Key left.  Renews the life unless told otherwise."""
        record = f"{_once(key.tenant, key.user_id)}:{once.digest if once else ''}"
        state, revisions, ttl_ms, left_ms, fingerprint, answer = await self._run(
            "read",
            [key.task, _index(key.tenant, key.user_id), record],
            [key.member, self._index_ms, "1" if renew else "0"],
        )
        stored = StoredTask(state, revisions[:REVISION_CHARS].decode(), int(ttl_ms), int(left_ms)) if state else None
        return stored, OnceRecord(fingerprint.decode(), answer) if once and fingerprint else None

    async def commit(self, key: TaskKey, commit: Commit) -> CommitAnswer:
        """Write if the task is still at the revision that was read → what happened.

        ok · stale (someone else wrote) · gone · locked (someone holds the lock) · used (the Idempotency-Key has a record)
        · finished (an `unfinished` commit found a finished task).
        Repeating a commit whose reply was lost answers ok and changes nothing.
        """
        records = _once(key.tenant, key.user_id)
        digest = commit.once.digest if commit.once else ""
        happened: bytes = await self._run(
            "commit",
            [key.task, key.lock, _index(key.tenant, key.user_id), f"{records}:{digest}", records],
            [
                commit.expected or "",
                commit.revision,
                commit.state,
                "" if commit.ttl_ms is None else commit.ttl_ms,
                "1" if commit.renew else "0",
                key.member,
                self._index_ms,
                commit.lock_holder,
                commit.once.fingerprint if commit.once else "",
                commit.answer,
                self._once_ms,
                f"{key.member}:{digest}",
                "1" if commit.unfinished else "0",
            ],
        )
        return cast("CommitAnswer", happened.decode())

    async def lock(self, key: TaskKey, holder: str, lease_ms: int) -> bool:
        """Keep other writers from committing for at most `lease_ms`; a commit by the holder ends it."""
        async with reached(self._redis):
            return bool(await self._redis.set(key.lock, holder, px=lease_ms, nx=True))

    async def unlock(self, key: TaskKey, holder: str) -> None:
        """End the lock unless its time ran out and another holder has it."""
        await self._run("unlock", [key.lock], [holder])

    async def delete(self, key: TaskKey) -> bool:
        """Delete a task and the stored answers that show it; False when there was none."""
        keys = [key.task, _index(key.tenant, key.user_id), _once(key.tenant, key.user_id)]
        args = [key.member, f"{_once(key.tenant, key.user_id)}:", f"{key.member}:"]
        return bool(await self._run("delete", keys, args))

    async def delete_user(self, tenant: str, user_id: str) -> int:
        """Delete all tasks, locks and idempotency records of a user → how many live tasks there were."""
        keys = [_index(tenant, user_id), _once(tenant, user_id)]
        return int(await self._run("erase_user", keys, [f"{_tasks(tenant, user_id)}:", f"{_once(tenant, user_id)}:"]))

    async def tasks_of(self, tenant: str, user_id: str) -> list[TaskKey]:
        """The user's tasks that may still live, soonest to end first."""
        return [_key(tenant, encode_part(user_id), member) for member in await self._members(_index(tenant, user_id))]

    async def note_copies(self, key: TaskKey, memory_ids: Iterable[str]) -> None:
        """Remember, before it is written, that this task holds copies of these memories.

        An entry too many costs a look, one too few would leave a copy behind: it is kept twice as long as a task can live.
        """
        now_ms, member = int(time.time() * 1000), f"{encode_part(key.user_id)}:{key.member}"
        noted = sorted(memory_ids)
        if not noted:
            return
        async with reached(self._redis), self._redis.pipeline(transaction=False) as pipeline:
            for memory_id in noted:
                name = _copies(key.tenant, memory_id)
                pipeline.zadd(name, {member: now_ms + 2 * self._index_ms})
                pipeline.zremrangebyscore(name, "-inf", now_ms)
                pipeline.pexpire(name, 2 * self._index_ms)
            await pipeline.execute()

    async def tasks_with_copy(self, tenant: str, memory_id: str) -> list[TaskKey]:
        """The tasks, of any user of the tenant, that may hold a copy of this memory."""
        members = await self._members(_copies(tenant, memory_id))
        return [_key(tenant, *member.split(":")) for member in members]

    async def blank_answers(self, tenant: str, user_id: str, holds: Callable[[bytes], bool]) -> None:
        """Erase the stored answers of a user for which `holds(answer)` is true; the requests stay recognised."""
        records = _once(tenant, user_id)
        for member in await self._members(records):
            record = f"{records}:{member.rpartition(':')[2]}"
            async with reached(self._redis):
                answer = cast("bytes | None", await self._redis.hget(record, "answer"))
            if answer and holds(answer):
                await self._run("blank", [record], [])

    async def _members(self, index: str) -> list[str]:
        """What an index lists, first to end first."""
        async with reached(self._redis):
            members = cast("list[bytes]", await self._redis.zrange(index, 0, -1))
        return [member.decode() for member in members]

    async def _run(self, name: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        async with reached(self._redis):
            return await self._scripts[name](keys=keys, args=args)
