"""What may a line of POST /v1/import say?  One model per `type` of line; lines without a type are bodies of other POSTs.

Fields and names are those of the export (stores/postgres/exports.py; a test compares the two).  A line is judged like a request:
unknown fields, wrong types and values that no store can hold are named.
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field

from memory_service.api.body import Contract
from memory_service.api.experience_schemas import Triples
from memory_service.api.fields import Content, Id, Identifier, Label, Share, Summary, Text, Time
from memory_service.api.schemas import LIST_MAX, Entities, Ids, Metadata, Tags
from memory_service.domain import Entity, Experience, ExperienceOrigin, ExperienceStatus, Kind, Memory, Outcome, State
from memory_service.moving.lines import ConflictLine, RelationLine, VersionLine
from memory_service.timestamps import time_text

INT4_MAX = 2**31 - 1
Version = Annotated[int, Field(ge=1, le=INT4_MAX)]
Count = Annotated[int, Field(ge=0, le=INT4_MAX)]
Actor = Annotated[str, Field(min_length=1, max_length=256)]
Note = Annotated[str, Field(max_length=4096)]


def _named_tools(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if not all(isinstance(call.get("tool"), str) for call in calls):
        raise ValueError("each must name its tool")
    return calls


# As stored: the service itself may note more of a call than a caller may send.
StoredCalls = Annotated[list[dict[str, Any]], Field(max_length=LIST_MAX), AfterValidator(_named_tools)]


class HeaderLine(Contract):
    """The first line; only the format matters to an import."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    type: Literal["header"]
    format: str
    format_version: int


class EndLine(Contract):
    """The last line; whoever has the whole file compares the number."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    type: Literal["end"]


class MemoryFields(Contract):
    """What a memory line and a kept version have in common; in a kept version all may be missing."""

    agent_id: Identifier | None = None
    session_id: Identifier | None = None
    task_id: Identifier | None = None
    event_type: Label | None = None
    category: Label | None = None
    tags: Tags = Field(default_factory=list)
    entities: Entities = Field(default_factory=list)
    tool_calls: StoredCalls = Field(default_factory=list)
    outcome: Outcome | None = None
    importance: Share = 0.5
    confidence: Share = 1.0
    heat: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    state: State = "active"
    pinned: bool = False
    superseded_by: Id | None = None
    valid_from: Time | None = None
    valid_to: Time | None = None
    related_ids: Ids = Field(default_factory=list)
    metadata: Metadata = Field(default_factory=dict)
    conflict_id: Id | None = None
    expires_at: Time | None = None
    last_accessed_at: Time | None = None
    access_count: Count = 0
    written_by: Actor | None = None


class MemoryIn(MemoryFields):
    """`{type: "memory", …}`: the memory object with its stored heat and the time of that."""

    type: Literal["memory"]
    id: Id
    kind: Kind
    user_id: Identifier
    content: Content
    summary: Summary
    version: Version = 1
    heat_at: Time | None = None
    source_memory_ids: list[Id] = Field(default_factory=list)
    occurred_at: Time
    created_at: Time
    updated_at: Time

    def memory(self, tenant: str) -> Memory:
        values = {name: getattr(self, name) for name in type(self).model_fields if name != "type"}
        values["entities"] = tuple(Entity(e.name, e.type) for e in self.entities)
        values["tool_calls"] = tuple(self.tool_calls)
        values["tags"] = tuple(dict.fromkeys(self.tags))
        for name in ("related_ids", "source_memory_ids"):
            values[name] = tuple(dict.fromkeys(values[name]))
        return Memory(tenant=tenant, **values)


class MemorySnapshot(MemoryFields):
    """A kept version, which a rollback brings back: what is known of it must be right, what is not known stays."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    id: Id | None = None
    kind: Kind | None = None
    content: Content
    summary: Summary | None = None
    version: Version | None = None
    occurred_at: Time | None = None


class LedgerEntryIn(Contract):
    at: Time
    cause: Annotated[str, Field(min_length=1, max_length=64)]
    delta: Annotated[float, Field(ge=-1, le=1)]


class ExperienceIn(Contract):
    """`{type: "experience", …}`: the experience object as stored."""

    type: Literal["experience"]
    id: Id
    user_id: Identifier
    conditions: Triples
    action: Text
    origin: ExperienceOrigin
    confidence: Share
    confidence_ledger: Annotated[list[LedgerEntryIn], Field(min_length=1)]
    created_at: Time
    updated_at: Time
    agent_id: Identifier | None = None
    task_type: Label | None = None
    avoid: Text | None = None
    rationale: Text | None = None
    tags: Tags = Field(default_factory=list)
    source_memory_ids: Ids = Field(default_factory=list)
    source_steps: Annotated[list[Count], Field(max_length=256)] = Field(default_factory=list)
    rule: Label | None = None
    status: ExperienceStatus = "active"
    superseded_by: Id | None = None
    use_count: Count = 0
    success_count: Count = 0
    failure_count: Count = 0
    version: Version = 1

    def experience(self, tenant: str) -> Experience:
        """Its conditions are not parsed and not hashed yet."""
        values = {name: getattr(self, name) for name in type(self).model_fields if name != "type"}
        values["confidence_ledger"] = tuple(
            {"at": time_text(e.at), "cause": e.cause, "delta": e.delta} for e in self.confidence_ledger
        )
        for name in ("conditions", "tags", "source_memory_ids", "source_steps"):
            values[name] = tuple(values[name])
        return Experience(tenant=tenant, condition_hash=b"", **values)


def _sides(changes: dict[str, Any]) -> dict[str, Any]:
    if not all(isinstance(one, dict) and set(one) <= {"from", "to"} for one in changes.values()):
        raise ValueError("must be {field: {from, to}}")
    return changes


Changes = Annotated[dict[str, Any], AfterValidator(_sides)]


class VersionFields(Contract):
    id: Id
    version: Version
    user_id: Identifier
    at: Time
    actor: Actor
    cause: Actor
    changes: Changes = Field(default_factory=dict)
    task_id: Identifier | None = None

    def line(self, of: str, snapshot: dict[str, Any]) -> VersionLine:
        return VersionLine(
            of, self.id, self.version, self.at, self.actor, self.cause, self.changes, snapshot, self.task_id
        )


class VersionIn(VersionFields):
    """`{type: "version", …}`: what a memory was before a change."""

    type: Literal["version"]
    snapshot: MemorySnapshot


class ExperienceVersionIn(VersionFields):
    """`{type: "experience_version", …}`: an experience as of a version."""

    type: Literal["experience_version"]
    snapshot: dict[str, Any]


class RelationIn(Contract):
    """`{type: "relation", …}`: one edge of the graph."""

    type: Literal["relation"]
    user_id: Identifier
    source_id: Id
    target_id: Id
    relation_type: Label
    weight: Share = 1.0
    created_at: Time

    def line(self) -> RelationLine:
        return RelationLine(self.source_id, self.target_id, self.relation_type, self.weight, self.created_at)


class ConflictIn(Contract):
    """`{type: "conflict", …}`: two memories that contradict each other."""

    type: Literal["conflict"]
    id: Id
    user_id: Identifier
    old_id: Id
    new_id: Id
    reason: Note
    state: Literal["open", "resolved"] = "open"
    resolution: Note | None = None
    created_at: Time
    resolved_at: Time | None = None
    resolved_by: Actor | None = None
    found_by: Literal["rules", "model"] = "rules"  # older files do not say it

    def line(self) -> ConflictLine:
        return ConflictLine(**{name: getattr(self, name) for name in ConflictLine.__slots__})
