"""What is a working memory made of?  Frozen values: a state, and a patch that asks for a change.

No rule of how they change (state.py), no JSON text (codec.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

StepStatus = Literal["success", "error"]
SCALARS = ("agent_id", "task_goal", "task_type")


@dataclass(frozen=True, slots=True)
class Fact:
    fact: str
    source: str | None = None
    at: datetime | None = None  # None only on the way in: the time of the write


@dataclass(frozen=True, slots=True)
class PendingItem:
    """`priority` 1 is first, 5 last."""

    item: str
    priority: int


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """`source` names the long-term memory that it was copied from, as a fact's does; otherwise there is none."""

    action: str
    reason: str | None = None
    error: str | None = None
    at: datetime | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """`status` is None where the caller did not say how it ended."""

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    status: StepStatus | None = None
    duration_ms: float | None = None
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One tool call with what came of it; `result` is any JSON value."""

    tool: str
    status: StepStatus
    arguments: Mapping[str, Any] = field(default_factory=dict)
    result: Any = None
    error: str | None = None
    reason: str | None = None
    duration_ms: float | None = None
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class WorkingState:
    """The working memory of one task.  A recent step is a tool call or a plain sentence."""

    task_id: str
    user_id: str
    agent_id: str | None = None
    task_goal: str | None = None
    task_type: str | None = None
    constraints: tuple[str, ...] = ()
    confirmed_facts: tuple[Fact, ...] = ()
    pending_items: tuple[PendingItem, ...] = ()
    done_items: tuple[str, ...] = ()
    failed_attempts: tuple[FailedAttempt, ...] = ()
    tool_call_history: tuple[ToolCall, ...] = ()
    recent_steps: tuple[str | Step, ...] = ()
    variables: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Patch:
    """What to change: lists are appended, variables merged, `fields` (of SCALARS) set (None clears), `remove` names texts or variables.

    Plain strings stand for an item with defaults; a plain pending item keeps the priority it already has.
    """

    fields: Mapping[str, str | None] = field(default_factory=dict)
    constraints: Sequence[str] = ()
    confirmed_facts: Sequence[str | Fact] = ()
    pending_items: Sequence[str | PendingItem] = ()
    done_items: Sequence[str] = ()
    failed_attempts: Sequence[str | FailedAttempt] = ()
    tool_call_history: Sequence[str | ToolCall] = ()
    recent_steps: Sequence[str | Step] = ()
    variables: Mapping[str, Any] = field(default_factory=dict)
    remove: Mapping[str, Sequence[str]] = field(default_factory=dict)
    ttl_seconds: int | None = None
