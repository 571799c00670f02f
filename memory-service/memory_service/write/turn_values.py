"""What goes into `turn_service` and what comes out?  Frozen values, and what the service needs of working memory."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol
from uuid import UUID, uuid4

from memory_service.domain import Caller, Memory
from memory_service.errors import HindsightError
from memory_service.write.triggers import Message, ToolStatus, TriggerName


@dataclass(frozen=True, slots=True)
class TurnsRequest:
    """`batch` names the request (32 characters): the same batch again adds its messages once."""

    user_id: str
    session_id: str
    messages: tuple[Message, ...]
    task_id: str | None = None
    agent_id: str | None = None
    last_tool_status: ToolStatus | None = None
    batch: str = field(default_factory=lambda: uuid4().hex)


@dataclass(frozen=True, slots=True)
class WrittenTurn:
    """One memory that dialogue became.  `error` instead of a memory: it could not be merged into the one that is there."""

    trigger: str
    inferred_by: Literal["model", "rules"]
    status: str
    memory: Memory | None = None
    error: HindsightError | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class TaskNotes:
    """What a task's working memory is told: facts, and failures (what was tried, its error), with the memory of each; steps."""

    facts: tuple[tuple[str, UUID], ...] = ()
    failures: tuple[tuple[str, str | None, UUID], ...] = ()
    steps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TurnsAnswer:
    """`buffered` is how many turns wait in the session's buffer now; `notes` what working memory of the task was told."""

    buffered: int
    triggers: tuple[TriggerName, ...]
    written: tuple[WrittenTurn, ...]
    notes: TaskNotes | None = None
    degraded: tuple[str, ...] = ()


class WorkingNotes(Protocol):
    """What this feature needs of working memory."""

    async def lives(self, caller: Caller, user_id: str, task_id: str) -> bool: ...

    async def note(
        self,
        caller: Caller,
        user_id: str,
        task_id: str,
        facts: Sequence[tuple[str, UUID]] = (),
        failures: Sequence[tuple[str, str | None, UUID]] = (),
        steps: Sequence[str] = (),
    ) -> None: ...
