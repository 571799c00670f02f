"""What does a task of the task loop keep in Redis beside its working memory?  Fields of the same hash, so they live and go with it.

`run` tells one run from an earlier one of the same task_id, `advised` are lines about the advice that was given, `finished`
says that the task's end is fixed.  Knows bytes and lives, not what a state or a line means.
"""

from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast
from uuid import UUID

from memory_service.stores.redis import TaskKey
from memory_service.stores.redis_client import Redis, reached

SCRIPTS = Path(__file__).parent
Begun = Literal["ok", "ours", "taken"]


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A task that lives.  `run` is None for one that was made by hand; `advised` are lines, oldest first."""

    state: bytes
    run: UUID | None
    finished: bool
    advised: tuple[bytes, ...]


class RunStore:
    """Raises StoreUnavailable; ids are checked before they come here."""

    def __init__(self, redis: Redis, *, ttl_seconds_max: int) -> None:
        self._redis = redis
        self._index_ms = ttl_seconds_max * 1000
        names = ("start", "adopt", "advised", "close")
        self._scripts = {
            name: redis.register_script((SCRIPTS / f"working_{name}.lua").read_text("utf-8")) for name in names
        }

    async def start(
        self, key: TaskKey, run: UUID, state: bytes, revision: str, ttl_ms: int, over: UUID | None = None
    ) -> Begun:
        """Begin a task unless one lives there.  `over`: a run that is known to be finished and may be replaced.

        ok · ours (the very start was here before: its reply or its process was lost) · taken.
        """
        args = [str(run), revision, state, ttl_ms, key.member, self._index_ms, str(over) if over else ""]
        happened: bytes = await self._run("start", [key.task, key.index], args)
        return cast("Begun", happened.decode())

    async def read(self, key: TaskKey) -> LiveRun | None:
        """The task as it is, without renewing its life."""
        async with reached(self._redis):
            held = await self._redis.hmget(key.task, ["state", "run", "finished", "advised"])
        state, run, finished, advised = cast("list[bytes | None]", held)
        if state is None:
            return None
        return LiveRun(
            state, UUID(run.decode()) if run else None, finished is not None, tuple((advised or b"").splitlines())
        )

    async def advised(self, key: TaskKey) -> tuple[bytes, ...]:
        """The lines of advice alone, oldest first; none when the task is gone."""
        async with reached(self._redis):
            held = await cast("Awaitable[bytes | None]", self._redis.hget(key.task, "advised"))
        return tuple((held or b"").splitlines())

    async def adopt(self, key: TaskKey, run: UUID) -> UUID | None:
        """Give a run to a task made by hand → the run that it has now; None when the task is gone."""
        held: bytes = await self._run("adopt", [key.task], [str(run)])
        return UUID(held.decode()) if held else None

    async def note_advised(self, key: TaskKey, line: bytes, bytes_max: int) -> None:
        """Remember one line without a line break; the oldest make room.  Nothing happens when the task is gone."""
        await self._run("advised", [key.task], [line, bytes_max])

    async def close(self, key: TaskKey, run: UUID, left_ms: int) -> None:
        """This run is finished: it lives at most so long from now, and nothing renews it.  Repeating changes nothing."""
        await self._run("close", [key.task, key.index], [str(run), left_ms, key.member])

    async def _run(self, name: str, keys: list[str], args: list[Any]) -> Any:
        async with reached(self._redis):
            return await self._scripts[name](keys=keys, args=args)
