"""What are the things this service talks about?

Frozen values shared by features, stores and API.  No I/O, no settings, no framework.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, Literal, TypeVar
from uuid import UUID

import uuid_utils

Kind = Literal["episodic", "semantic"]
KindChoice = Literal["auto", "episodic", "semantic"]
Outcome = Literal["success", "failure", "detour"]
State = Literal["active", "cold", "superseded", "compressed"]
IndexState = Literal["pending", "indexed", "failed"]
ExperienceStatus = Literal["active", "superseded", "retired"]
ExperienceOrigin = Literal["success", "failure", "detour", "feedback", "insight"]
FeedbackOutcome = Literal["success", "failure", "irrelevant", "outdated"]
Role = Literal["reader", "writer", "admin"]
Lane = Literal["vector", "keyword", "structured", "recent"]
Json = dict[str, Any]
Key = bytes
"""The 16 bytes of an id, where a search looks hundreds of them up: making a UUID, and its hash, are Python code."""
Clock = Callable[[], datetime]

T = TypeVar("T")

SHARED_USER = "*shared"
LIVE_STATES: tuple[State, ...] = ("active", "cold")


def utc_now() -> datetime:
    """The real clock; tests pass another one where this is a default."""
    return datetime.now(UTC)


def new_id() -> UUID:
    """A UUIDv7: ids sort by creation time, which keeps B-tree inserts at the right edge."""
    return UUID(int=uuid_utils.uuid7().int)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is asking.  The tenant and the rights come from the key, never from the request."""

    tenant: str
    role: Role
    user_id: str | None = None
    key_id: str | None = None
    job: str | None = None  # a maintenance job acts by itself, for no key

    @property
    def may_write(self) -> bool:
        return self.role in ("writer", "admin")

    @property
    def actor(self) -> str:
        """Who did it, as versions remember it."""
        if self.job:
            return f"job:{self.job}"
        return f"key:{self.key_id}" if self.key_id else "local"

    @property
    def is_admin(self) -> bool:
        return self.role == "admin"

    def may_read(self, user_id: str) -> bool:
        """The common pool is everybody's to read; only its keepers may change it."""
        return user_id == SHARED_USER or self.may_act_for(user_id)

    def may_act_for(self, user_id: str) -> bool:
        return self.user_id is None or self.user_id == user_id


@dataclass(frozen=True, slots=True)
class Entity:
    name: str
    type: str = "other"


@dataclass(frozen=True, slots=True)
class Memory:
    """One row of episodic_memory or semantic_memory; API.md explains each field."""

    id: UUID
    tenant: str
    kind: Kind
    user_id: str
    content: str
    summary: str
    created_at: datetime
    updated_at: datetime
    occurred_at: datetime
    agent_id: str | None = None
    session_id: str | None = None
    task_id: str | None = None
    event_type: str | None = None
    category: str | None = None
    tags: tuple[str, ...] = ()
    entities: tuple[Entity, ...] = ()
    tool_calls: tuple[Json, ...] = ()
    outcome: Outcome | None = None
    importance: float = 0.5
    confidence: float = 1.0
    heat: float = 1.0
    heat_at: datetime | None = None
    state: State = "active"
    pinned: bool = False
    superseded_by: UUID | None = None
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    related_ids: tuple[UUID, ...] = ()
    source_memory_ids: tuple[UUID, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    version: int = 1
    conflict_id: UUID | None = None
    expires_at: datetime | None = None
    last_accessed_at: datetime | None = None
    access_count: int = 0
    index_state: IndexState = "pending"
    written_by: str | None = None

    def expired(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    @property
    def speaker(self) -> str | None:
        """Who says it, by the metadata, case-folded; None when that is not said."""
        said = self.metadata.get("speaker")
        return said.strip().casefold() or None if isinstance(said, str) else None

    def may_be_of(self, other: "Memory") -> bool:
        """False when two people are known to say these: "I have two kids" of one is no news of the other."""
        return self.speaker is None or other.speaker is None or self.speaker == other.speaker


@dataclass(frozen=True, slots=True)
class Experience:
    """One conditional lesson.  `conditions` are normalised triples {field, operator, value}; the ledger's entries are
    {at: RFC 3339, cause, delta}, oldest first; `source_steps` are numbers from 0 of the run it was learned from.
    """

    id: UUID
    tenant: str
    user_id: str
    conditions: tuple[Json, ...]
    condition_hash: bytes
    action: str
    origin: ExperienceOrigin
    confidence: float
    confidence_ledger: tuple[Json, ...]
    created_at: datetime
    updated_at: datetime
    agent_id: str | None = None
    task_type: str | None = None
    avoid: str | None = None
    rationale: str | None = None
    tags: tuple[str, ...] = ()
    source_memory_ids: tuple[UUID, ...] = ()
    source_steps: tuple[int, ...] = ()
    rule: str | None = None
    status: ExperienceStatus = "active"
    superseded_by: UUID | None = None
    use_count: int = 0
    success_count: int = 0
    failure_count: int = 0
    version: int = 1


@dataclass(frozen=True, slots=True)
class FieldCondition:
    """One entry of `filters`: the field as the caller wrote it (dotted), an operator and a JSON value."""

    field: str
    operator: str
    value: Any


@dataclass(frozen=True, slots=True)
class MemoryFilter:
    """Which memories count.  Every lane and every list applies the same one; `now` decides what has expired."""

    tenant: str
    user_ids: tuple[str, ...]
    now: datetime
    kinds: tuple[Kind, ...] = ()
    states: tuple[State, ...] = ("active",)
    tags: tuple[str, ...] = ()
    tag_match: Literal["any", "all"] = "any"
    agent_id: str | None = None
    session_id: str | None = None
    task_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    as_of: datetime | None = None
    conditions: tuple[FieldCondition, ...] = ()


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list: `next_cursor` is None on the last page, `total` counts the whole list."""

    items: list[T]
    next_cursor: str | None
    total: int
