"""What does a point carry besides its vector?  The payload that searches narrow by, and which of its fields are indexed.

Pure.  Point id: the memory's id for its first chunk, a UUIDv5 of it for the others.
"""

from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid5

from memory_service.domain import Experience, Json, Memory
from memory_service.models.ports import Vector
from memory_service.timestamps import time_text

VERSION_FIELD = "version"
# Lessons share the collection: each search names the kinds that it means.
MEMORY_KINDS = ("episodic", "semantic")
EXPERIENCE_KIND = "experience"
# Tenant, user and state (of a lesson, that it is one) as one value.  Each further condition of a filter costs as much as a third
# of the comparison of vectors itself, and these three are in every search.
SCOPE = "scope"
# No links of the graph follow these fields: every search names a scope, so that links among all points of, say, one kind
# would cost as much to build as the scope's own and never be walked.
_KEYWORD = {"type": "keyword", "enable_hnsw": False}
# Which fields of the payload are indexed, and how: all that a filter names, or strict mode would refuse it.  user_id is the
# tenant index, by which Qdrant groups points on disk; the graph links the points of a scope.
PAYLOAD_INDEXES: dict[str, Any] = {
    "user_id": {**_KEYWORD, "is_tenant": True},
    SCOPE: {"type": "keyword"},
    **dict.fromkeys(
        (
            "tenant", "memory_id", "kind", "state", "agent_id", "session_id", "task_id", "tags", "category", "event_type", "outcome",
        ),
        _KEYWORD,
    ),
    "occurred_at": {"type": "datetime", "enable_hnsw": False},
}  # fmt: skip


def scope_of(tenant: str, user_id: str, group: str) -> str:
    """The value of SCOPE.  `group` is a memory's state, or EXPERIENCE_KIND."""
    return f"{quote(tenant, safe='')}/{quote(user_id, safe='')}/{group}"


def points_of(memory: Memory, vectors: Vector) -> list[Json]:
    """One point per row of `vectors` (chunks, dimensions), with the payload that filters may narrow by."""
    payload = {
        SCOPE: scope_of(memory.tenant, memory.user_id, memory.state), "tenant": memory.tenant,
        "user_id": memory.user_id, "memory_id": str(memory.id), VERSION_FIELD: memory.version,
        "kind": memory.kind, "state": memory.state, "agent_id": memory.agent_id, "session_id": memory.session_id,
        "task_id": memory.task_id, "tags": list(memory.tags), "category": memory.category, "event_type": memory.event_type,
        "outcome": memory.outcome, "occurred_at": time_text(memory.occurred_at),
    }  # fmt: skip
    return _points(memory.id, payload, vectors)


def points_of_experience(experience: Experience, vectors: Vector) -> list[Json]:
    """One point per row of `vectors` of a lesson's text."""
    payload = {
        SCOPE: scope_of(experience.tenant, experience.user_id, EXPERIENCE_KIND), "tenant": experience.tenant,
        "user_id": experience.user_id, "memory_id": str(experience.id),
        VERSION_FIELD: experience.version, "kind": EXPERIENCE_KIND, "state": experience.status, "tags": list(experience.tags),
    }  # fmt: skip
    return _points(experience.id, payload, vectors)


def point_id(memory_id: UUID, chunk: int) -> UUID:
    return memory_id if chunk == 0 else uuid5(memory_id, str(chunk))


def _points(of: UUID, payload: Json, vectors: Vector) -> list[Json]:
    present = {key: value for key, value in payload.items() if value is not None}
    return [
        {
            "id": str(point_id(of, chunk)),
            "vector": vector,
            "payload": {**present, "chunk": chunk, "chunks": len(vectors)},
        }
        for chunk, vector in enumerate(vectors)
    ]
