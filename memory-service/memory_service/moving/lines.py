"""What does a line of a moved file say?  The parsed lines as frozen values, and what is answered about them.

A file is JSON lines: a header, then memories, experiences, and after these what refers to them (versions, relations,
conflicts), then an end line that a truncated file lacks.  A line without `type` is a seed: the body of a POST, without an id.
Parsing is the API's work; nothing here decides.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from memory_service.domain import Experience, Json, Memory
from memory_service.experience.drafts import NewLesson
from memory_service.write.drafts import Draft

FORMAT = "hindsight-export"
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class VersionLine:
    """A replaced version of a memory, or any version of an experience (`of` says which); ids are as in the file."""

    of: str
    id: UUID
    version: int
    at: datetime
    actor: str
    cause: str
    changes: Json
    snapshot: Json
    task_id: str | None = None


@dataclass(frozen=True, slots=True)
class RelationLine:
    source_id: UUID
    target_id: UUID
    relation_type: str
    weight: float
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ConflictLine:
    id: UUID
    old_id: UUID
    new_id: UUID
    reason: str
    state: str
    resolution: str | None
    created_at: datetime
    resolved_at: datetime | None
    resolved_by: str | None
    found_by: str


Thing = Memory | Experience | VersionLine | RelationLine | ConflictLine | Draft | NewLesson


@dataclass(frozen=True, slots=True)
class Line:
    """`number` counts from 1; `thing` belongs to `user_id`."""

    number: int
    user_id: str
    thing: Thing

    @property
    def id(self) -> UUID | None:
        """The id that an answer names: the memory's of a version, the source of a relation, none of a seed."""
        if isinstance(self.thing, RelationLine):
            return self.thing.source_id
        return None if isinstance(self.thing, Draft | NewLesson) else self.thing.id


@dataclass(frozen=True, slots=True)
class Refused:
    """A line that was not stored.  `code` is that of a problem; `detail` says what is wrong in words."""

    number: int
    id: str | None
    code: str
    detail: str


@dataclass(slots=True)
class Imported:
    """What became of the lines so far."""

    imported: int = 0
    unchanged: int = 0
    refused: list[Refused] = field(default_factory=list)
    ids: dict[str, str] = field(default_factory=dict)

    def add(self, other: "Imported") -> None:
        self.imported += other.imported
        self.unchanged += other.unchanged
        self.refused += other.refused
        self.ids |= other.ids


def counted(counts: Mapping[str, int]) -> int:
    """All lines between the header and the end."""
    return sum(counts.values())


def json_of(imported: Imported) -> dict[str, Any]:
    """The answer of POST /v1/import."""
    refused = sorted(imported.refused, key=lambda one: one.number)
    return {
        "imported": imported.imported,
        "unchanged": imported.unchanged,
        "refused": [{"line": r.number, "id": r.id, "code": r.code, "detail": r.detail} for r in refused],
        "ids": imported.ids,
    }
