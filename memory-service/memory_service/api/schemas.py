"""What may a caller send about memories?  The request bodies of API.md, "Long-term memories"."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AliasChoices, BeforeValidator, Field

from memory_service.api.body import Contract
from memory_service.api.fields import Content, Id, Identifier, Label, Query, Share, Summary, Time
from memory_service.domain import Entity, Kind, KindChoice, Outcome
from memory_service.write.drafts import Draft

LIST_MAX = 256
TAGS_MAX = 64


class EntityIn(Contract):
    """An entity; a plain string is its name."""

    name: Annotated[str, Field(min_length=1, max_length=512)]
    type: Label = "other"


def _entity(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


class ToolCall(Contract):
    """One call of a tool, as it went."""

    tool: Annotated[str, Field(min_length=1, max_length=256)]
    arguments: dict[str, Any] | list[Any] | str | None = None
    status: Annotated[str, Field(min_length=1, max_length=32)] = "success"
    error: str | None = None
    duration_ms: Annotated[float, Field(ge=0)] | None = None


Tags = Annotated[list[Label], Field(max_length=TAGS_MAX)]
Entities = Annotated[list[Annotated[EntityIn, BeforeValidator(_entity)]], Field(max_length=LIST_MAX)]
ToolCalls = Annotated[list[ToolCall], Field(max_length=LIST_MAX)]
Ids = Annotated[list[Id], Field(max_length=LIST_MAX)]
Metadata = dict[str, Any]


class WriteMemory(Contract):
    """POST /v1/memories"""

    user_id: Identifier
    content: Content
    kind: KindChoice = "auto"
    summary: Summary | None = None
    event_type: Label | None = None
    category: Label | None = None
    tags: Tags | None = None
    entities: Entities | None = None
    tool_calls: ToolCalls | None = None
    outcome: Outcome | None = None
    importance: Share | None = None
    occurred_at: Time | None = None
    agent_id: Identifier | None = None
    session_id: Identifier | None = None
    task_id: Identifier | None = None
    related_ids: Ids | None = None
    metadata: Metadata | None = None
    expires_at: Time | None = None
    infer: bool = True

    def draft(self) -> Draft:
        """The same for the writer."""
        return Draft(
            user_id=self.user_id,
            content=self.content,
            kind=self.kind,
            summary=self.summary,
            event_type=self.event_type,
            category=self.category,
            tags=tuple(self.tags or ()),
            entities=None if self.entities is None else tuple(Entity(e.name, e.type) for e in self.entities),
            tool_calls=tuple(c.model_dump(exclude_none=True) for c in self.tool_calls or ()),
            outcome=self.outcome,
            importance=self.importance,
            occurred_at=self.occurred_at,
            agent_id=self.agent_id,
            session_id=self.session_id,
            task_id=self.task_id,
            related_ids=tuple(self.related_ids or ()),
            metadata=self.metadata or {},
            expires_at=self.expires_at,
            infer=self.infer,
        )


class WriteBatch(Contract):
    """POST /v1/memories/batch: each item is a body of POST /v1/memories and is checked by itself."""

    memories: Annotated[list[dict[str, Any]], Field(min_length=1, description="bodies of POST /v1/memories")]


class PatchMemory(Contract):
    """PATCH /v1/memories/{id}: only what is named changes; null clears."""

    content: Content | None = None
    summary: Summary | None = None
    category: Label | None = None
    event_type: Label | None = None
    tags: Tags | None = None
    entities: Entities | None = None
    outcome: Outcome | None = None
    importance: Share | None = None
    confidence: Share | None = None
    occurred_at: Time | None = None
    expires_at: Time | None = None
    related_ids: Ids | None = None
    metadata: Metadata | None = None

    def changes(self) -> dict[str, Any]:
        """Field names and final values.  A list or object that is cleared is empty.  Raises ValueError naming a field."""
        changed: dict[str, Any] = {}
        for name in self.model_fields_set:
            value = getattr(self, name)
            if name in ("tags", "related_ids"):
                value = tuple(dict.fromkeys(value or ()))
            elif name == "entities":
                value = tuple(Entity(e.name, e.type) for e in value or ())
            elif name == "metadata":
                value = value or {}
            elif value is None and name in NEVER_NULL:
                raise ValueError(name)
            changed[name] = value
        return changed


NEVER_NULL = frozenset({"content", "summary", "importance", "confidence", "occurred_at"})


def _kinds(value: list[str]) -> list[str]:
    return list(dict.fromkeys(value))


class SearchMemories(Contract):
    """POST /v1/memories/search"""

    user_id: Identifier
    query: Query
    limit: Annotated[int, Field(ge=1, le=100, validation_alias=AliasChoices("limit", "top_k"))] = 5
    kinds: Annotated[list[Kind], AfterValidator(_kinds)] | None = None
    tags: Tags | None = None
    tag_match: Literal["any", "all"] = "any"
    filters: dict[str, Any] | None = None
    agent_id: Identifier | None = None
    session_id: Identifier | None = None
    task_id: Identifier | None = None
    since: Time | None = None
    until: Time | None = None
    include_cold: bool = False
    include_superseded: bool = False
    as_of: Time | None = None
    include_shared: bool = False
    mode: Literal["hybrid", "vector", "keyword"] = "hybrid"
    rerank: bool = False
    min_score: Share | None = None
    explain: bool = False
