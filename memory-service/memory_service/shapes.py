"""How does a thing look in JSON?  The one place that knows the names and order of the fields in API.md.

Plain dicts out; orjson turns them into bytes, UUIDs and times included.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from memory_service.domain import Experience, Json, Memory
from memory_service.timestamps import optional_time

OPTIONS = orjson.OPT_UTC_Z


def to_json(value: Any) -> bytes:
    """UTF-8 JSON: times end in Z, non-ASCII stays as it is."""
    return orjson.dumps(value, option=OPTIONS)


def memory_json(memory: Memory, model: str | None = None, heat: float | None = None) -> Json:
    """The memory object of API.md.  `model` names the embedding model in `index`; `heat` is as of now, else as stored."""
    return {
        "id": str(memory.id),
        "kind": memory.kind,
        "user_id": memory.user_id,
        "agent_id": memory.agent_id,
        "session_id": memory.session_id,
        "task_id": memory.task_id,
        "content": memory.content,
        "summary": memory.summary,
        "event_type": memory.event_type,
        "category": memory.category,
        "tags": list(memory.tags),
        "entities": [{"name": e.name, "type": e.type} for e in memory.entities],
        "tool_calls": list(memory.tool_calls),
        "outcome": memory.outcome,
        "importance": memory.importance,
        "confidence": memory.confidence,
        "heat": memory.heat if heat is None else round(heat, 6),
        "state": memory.state,
        "pinned": memory.pinned,
        "superseded_by": str(memory.superseded_by) if memory.superseded_by else None,
        "valid_from": optional_time(memory.valid_from),
        "valid_to": optional_time(memory.valid_to),
        "related_ids": [str(i) for i in memory.related_ids],
        "metadata": _mapping(memory.metadata),
        "version": memory.version,
        "conflict_id": str(memory.conflict_id) if memory.conflict_id else None,
        "occurred_at": optional_time(memory.occurred_at),
        "expires_at": optional_time(memory.expires_at),
        "created_at": optional_time(memory.created_at),
        "updated_at": optional_time(memory.updated_at),
        "last_accessed_at": optional_time(memory.last_accessed_at),
        "access_count": memory.access_count,
        "index": {"state": memory.index_state, "model": model},
    }


def experience_json(experience: Experience, effective_confidence: float | None = None) -> Json:
    """The experience object of API.md.  `effective_confidence` is the confidence faded to now."""
    shown = {
        "id": str(experience.id),
        "user_id": experience.user_id,
        "agent_id": experience.agent_id,
        "task_type": experience.task_type,
        "conditions": list(experience.conditions),
        "action": experience.action,
        "avoid": experience.avoid,
        "rationale": experience.rationale,
        "origin": experience.origin,
        "confidence": experience.confidence,
        "confidence_ledger": list(experience.confidence_ledger),
        "tags": list(experience.tags),
        "source_memory_ids": [str(i) for i in experience.source_memory_ids],
        "source_steps": list(experience.source_steps),
        "rule": experience.rule,
        "status": experience.status,
        "superseded_by": str(experience.superseded_by) if experience.superseded_by else None,
        "use_count": experience.use_count,
        "success_count": experience.success_count,
        "failure_count": experience.failure_count,
        "version": experience.version,
        "condition_hash": experience.condition_hash.hex(),
        "created_at": optional_time(experience.created_at),
        "updated_at": optional_time(experience.updated_at),
    }
    return shown if effective_confidence is None else {**shown, "effective_confidence": round(effective_confidence, 6)}


def _mapping(value: Mapping[str, Any]) -> dict[str, Any]:
    return dict(value)
