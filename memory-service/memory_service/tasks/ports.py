"""What does the task loop need of other features?  Function types, wired in bootstrap; nothing here does anything."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from memory_service.domain import Caller, Experience, Json
from memory_service.experience.drafts import Distilled, ExperienceQuery, QueryAnswer
from memory_service.experience.trajectory import Trajectory
from memory_service.stores.postgres.pool import Connection
from memory_service.working.commits import TaskMemory
from memory_service.write.drafts import Draft, Written

# Commits something together with the write that it is given to.
Record = Callable[[Connection, Any], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class FirstQuestion:
    """What the first injection of a task is asked for."""

    tenant: str
    user_ids: tuple[str, ...]
    task_id: str
    query: str
    task_type: str | None
    state: Mapping[str, Any]
    max_tokens: int


@dataclass(frozen=True, slots=True)
class FirstContext:
    """The first injection: a block for the prompt, and what it consists of ({id, grade, score, what})."""

    text: str
    tokens: int
    items: tuple[Json, ...]
    retrieval_id: UUID | None
    degraded: tuple[str, ...]

    def to_json(self) -> Json:
        return {
            "text": self.text,
            "tokens": self.tokens,
            "items": list(self.items),
            "retrieval_id": str(self.retrieval_id) if self.retrieval_id else None,
            "degraded": list(self.degraded),
        }

    @property
    def ids(self) -> tuple[UUID, ...]:
        return tuple(UUID(item["id"]) for item in self.items)


BuildContext = Callable[[FirstQuestion], Awaitable[FirstContext]]
ReadTask = Callable[[Caller, str, str], Awaitable[TaskMemory]]  # caller, user_id, task_id; NotFound
AskExperiences = Callable[[ExperienceQuery], Awaitable[QueryAnswer]]
EndTask = Callable[[Caller, str, str], Awaitable[object]]  # flushes what is buffered of the task's dialogue


class MarkUsed(Protocol):
    """Notes that memories which a retrieval brought were used; counted once for each `task_id`.

    Raises UserBeingErased when the user was erased `since` then.
    """

    async def __call__(
        self,
        tenant: str,
        user_id: str,
        ids: Sequence[UUID],
        *,
        retrieval_id: UUID | None,
        task_id: str | None,
        since: datetime | None,
    ) -> object: ...


class WriteMemory(Protocol):
    """Raises what a write of a memory raises; `record` runs in the transaction of the write."""

    async def __call__(self, caller: Caller, draft: Draft, record: Record) -> Written: ...


class DistillRun(Protocol):
    """Reviews a run and stores its lessons, unless `learn` is False; `record` runs in the same transaction."""

    async def __call__(
        self,
        caller: Caller,
        user_id: str,
        run: Trajectory,
        record: Record,
        *,
        agent_id: str | None = None,
        sources: tuple[UUID, ...] = (),
        learn: bool = True,
    ) -> Distilled: ...


class JudgeExperience(Protocol):
    """Moves the confidence of an experience that was used; `record` runs in the same transaction.  Raises NotFound."""

    async def __call__(
        self, caller: Caller, experience_id: UUID, succeeded: bool, task_id: str | None, record: Record
    ) -> Experience: ...
