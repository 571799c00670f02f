"""What does a caller hand in to be remembered, and what becomes of it?

Frozen values and the pure steps from a draft to a memory: filling in what is missing, merging into a duplicate,
applying a patch.  No I/O.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import orjson

from memory_service.domain import Entity, Json, Kind, KindChoice, Memory, Outcome, new_id
from memory_service.errors import InvalidFields, TooLarge
from memory_service.settings import Heat, Limits, Write
from memory_service.shapes import to_json
from memory_service.timestamps import time_text
from memory_service.write.routing import route
from memory_service.write.summarise import Summary


@dataclass(frozen=True, slots=True)
class Draft:
    """A memory as the caller wrote it; None means "not said".  `infer` lets the summariser fill what is missing."""

    user_id: str
    content: str
    kind: KindChoice = "auto"
    summary: str | None = None
    event_type: str | None = None
    category: str | None = None
    tags: tuple[str, ...] = ()
    entities: tuple[Entity, ...] | None = None
    tool_calls: tuple[Json, ...] = ()
    outcome: Outcome | None = None
    importance: float | None = None
    occurred_at: datetime | None = None
    agent_id: str | None = None
    session_id: str | None = None
    task_id: str | None = None
    related_ids: tuple[UUID, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    expires_at: datetime | None = None
    infer: bool = True

    @property
    def has_gaps(self) -> bool:
        """Is there anything left for a language model to say?"""
        given = (self.summary, self.event_type, self.category, self.entities, self.importance)
        return self.infer and any(one is None for one in given)

    @property
    def needs_reading(self) -> bool:
        """Must the summariser read the text?  Not when everything that it would find is given or unwanted."""
        return self.infer or self.kind == "auto"


@dataclass(frozen=True, slots=True)
class Written:
    """What a write answered.  `memory` is the new one, or the existing one of a duplicate.

    `superseded` is the newest memory that it updated; a conflict is the memory's conflict_id.
    `inferred_by` is what read the text: a language model or the rules; None when the draft was to be stored as given.
    `compared_by` is what compared a statement with older ones; None for what states nothing, or was not to be compared.
    """

    status: Literal["created", "duplicate", "conflict", "superseded"]
    memory: Memory
    similarity: float | None = None
    superseded: UUID | None = None
    inferred_by: Literal["model", "rules"] | None = None
    compared_by: Literal["model", "rules"] | None = None


def complete(
    draft: Draft,
    tenant: str,
    reading: Summary | None,
    now: datetime,
    write: Write,
    heat: Heat,
    written_by: str | None = None,
) -> Memory:
    """The memory to store.  With `infer` the reading's findings fill the gaps; without it only the kind may come from it."""
    guess = reading if draft.infer else None
    importance = draft.importance
    if importance is None:
        importance = guess.importance if guess else write.default_importance
    return Memory(
        id=new_id(),
        tenant=tenant,
        kind=_kind(draft, reading),
        user_id=draft.user_id,
        content=draft.content,
        summary=draft.summary or (guess.text if guess else plain_summary(draft.content, write.summary_chars_max)),
        created_at=now,
        updated_at=now,
        occurred_at=draft.occurred_at or now,
        agent_id=draft.agent_id,
        session_id=draft.session_id,
        task_id=draft.task_id,
        event_type=draft.event_type or (guess.event_type if guess else None),
        category=draft.category or (guess.category if guess else None),
        tags=tuple(dict.fromkeys(draft.tags)),
        entities=draft.entities if draft.entities is not None else _entities(guess),
        tool_calls=draft.tool_calls,
        outcome=draft.outcome,
        importance=importance,
        confidence=write.default_confidence,
        heat=heat.initial,
        heat_at=now,
        valid_from=now,
        related_ids=tuple(dict.fromkeys(draft.related_ids)),
        metadata=draft.metadata,
        expires_at=draft.expires_at,
        written_by=written_by,
    )


def _kind(draft: Draft, reading: Summary | None) -> Kind:
    if reading is None:
        return "semantic" if draft.kind == "semantic" else "episodic"
    return route(draft.kind, reading, has_outcome=draft.outcome is not None, has_tool_calls=bool(draft.tool_calls))


def plain_summary(content: str, chars_max: int) -> str:
    """The beginning of the text on one line, for a text that nobody is asked to read."""
    line = " ".join(content[: 4 * chars_max].split())
    return line if len(line) <= chars_max else line[: chars_max - 1] + "…"


def merge_duplicate(existing: Memory, draft: Draft, now: datetime, limits: Limits) -> Memory:
    """The existing memory after it was said again: touched, with new tags and new metadata keys, restored when cold.

    The version rises only when something besides the access changed.  Raises InvalidFields or TooLarge when the two
    together are more than one memory may have.
    """
    tags = tuple(dict.fromkeys((*existing.tags, *draft.tags)))
    metadata = {**draft.metadata, **existing.metadata}
    if len(tags) > limits.tags_max:  # what a memory may have when it is written holds for what is merged into it
        raise InvalidFields.of(
            "tags", f"with the {len(existing.tags)} of the same memory these are above {limits.tags_max}"
        )
    if len(to_json(metadata)) > limits.metadata_bytes_max:
        raise TooLarge.of(
            "metadata", f"together with that of the same memory above {limits.metadata_bytes_max} bytes of JSON"
        )
    touched = replace(existing, last_accessed_at=now, access_count=existing.access_count + 1)
    if tags == existing.tags and len(metadata) == len(existing.metadata) and existing.state != "cold":
        return touched
    merged = replace(
        touched,
        tags=tags,
        metadata=metadata,
        state="active",
        version=existing.version + 1,
        updated_at=now,
        index_state="pending",
    )
    return replace(merged, heat=max(existing.heat, 1.0), heat_at=now) if existing.state == "cold" else merged


def apply_patch(memory: Memory, patch: Mapping[str, Any], follows: Mapping[str, Any] | None, now: datetime) -> Memory:
    """The memory with the named fields changed and one version more.  Both mappings hold field names and final values.

    `follows` is what has to follow a new content (`following`); what the patch names wins.
    """
    return replace(memory, **{**(follows or {}), **patch}, version=memory.version + 1, updated_at=now)


def following(memory: Memory, before: Summary, after: Summary, plain: str) -> dict[str, Any]:
    """Of a memory whose content changes, the labels that the rules had made, as they read the new content.

    `before` and `after` are the rules' readings of the old and the new content, `plain` the summary of a text that nobody was
    asked to read.  A label is the rules' when it is what they say; what a person or a model wrote stays.  That they found
    nothing tells something only when they read the text at all, which its event type shows.
    """
    read = memory.event_type == before.event_type
    changes: dict[str, Any] = {}
    if memory.summary in (plain, before.text):
        changes["summary"] = after.text
    if memory.entities == _entities(before) and (read or memory.entities):
        changes["entities"] = _entities(after)
    if read and memory.category == before.category:
        changes |= {"category": after.category, "event_type": after.event_type}
    return changes


def differences(before: Memory, after: Memory) -> dict[str, dict[str, Any]]:
    """{field: {from, to}} of what a reader of the memory would see changed."""
    fields = (
        "content", "summary", "category", "event_type", "tags", "entities", "outcome", "importance", "confidence",
        "occurred_at", "expires_at", "related_ids", "metadata", "state", "pinned", "superseded_by", "valid_from", "valid_to",
    )  # fmt: skip
    found = {}
    for name in fields:
        old, new = getattr(before, name), getattr(after, name)
        if old != new or (name == "metadata" and _json(old) != _json(new)):
            found[name] = {"from": _plain(old), "to": _plain(new)}
    return found


def _json(metadata: Mapping[str, Any]) -> bytes:
    """To Python 1, 1.0 and True are equal; the order of the names is nothing that is kept."""
    return orjson.dumps(metadata, option=orjson.OPT_SORT_KEYS)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | UUID):
        return time_text(value) if isinstance(value, datetime) else str(value)
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    if isinstance(value, Entity):
        return {"name": value.name, "type": value.type}
    return dict(value) if isinstance(value, Mapping) else value


def _entities(guess: Summary | None) -> tuple[Entity, ...]:
    return tuple(Entity(e.name, e.type) for e in guess.entities) if guess else ()
