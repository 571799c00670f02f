"""How is a working state written as JSON?  One shape for Redis and for answers, every value kept exactly.

orjson writes 64-bit integers, floats and non-ASCII text as they are.  Nothing here decides what a state may hold.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from memory_service.domain import Json
from memory_service.working.items import Fact, FailedAttempt, PendingItem, Step, ToolCall, WorkingState


def to_json(state: WorkingState) -> Json:
    """The object of the contract without `expires_at`, which the store knows.  Times are RFC 3339 in UTC, ending in Z."""
    return {
        "task_id": state.task_id,
        "user_id": state.user_id,
        "agent_id": state.agent_id,
        "task_goal": state.task_goal,
        "task_type": state.task_type,
        "constraints": list(state.constraints),
        "confirmed_facts": [{"fact": f.fact, "source": f.source, "at": time_text(f.at)} for f in state.confirmed_facts],
        "pending_items": [{"item": p.item, "priority": p.priority} for p in state.pending_items],
        "done_items": list(state.done_items),
        "failed_attempts": [
            {"action": f.action, "reason": f.reason, "error": f.error, "at": time_text(f.at)}
            | ({"source": f.source} if f.source else {})
            for f in state.failed_attempts
        ],
        "tool_call_history": [_call_json(call) for call in state.tool_call_history],
        "recent_steps": [{"text": step} if isinstance(step, str) else _step_json(step) for step in state.recent_steps],
        "variables": dict(state.variables),
    }


def encode(state: WorkingState) -> bytes:
    return orjson.dumps(to_json(state))


def decode(raw: bytes) -> WorkingState:
    """The state that `encode` wrote."""
    data = orjson.loads(raw)
    return WorkingState(
        task_id=data["task_id"],
        user_id=data["user_id"],
        agent_id=data["agent_id"],
        task_goal=data["task_goal"],
        task_type=data["task_type"],
        constraints=tuple(data["constraints"]),
        confirmed_facts=tuple(Fact(**_timed(item)) for item in data["confirmed_facts"]),
        pending_items=tuple(PendingItem(**item) for item in data["pending_items"]),
        done_items=tuple(data["done_items"]),
        failed_attempts=tuple(FailedAttempt(**_timed(item)) for item in data["failed_attempts"]),
        tool_call_history=tuple(ToolCall(**_timed(item)) for item in data["tool_call_history"]),
        recent_steps=tuple(item["text"] if "text" in item else Step(**_timed(item)) for item in data["recent_steps"]),
        variables=data["variables"],
    )


def with_end(raw: bytes, ends: datetime) -> bytes:
    """What `encode` wrote as the object of the contract: with `expires_at`, which the store knows."""
    return b'%b,"expires_at":"%b"}' % (raw[:-1], str(time_text(ends)).encode())


def may_hold_copies(raw: bytes) -> bool:
    """False when nothing in what `encode` wrote names a source, so that it need not be decoded to look for copied memories."""
    return b'"source":"' in raw


def time_text(at: datetime | None) -> str | None:
    """RFC 3339 in UTC; always with microseconds, so that times of one list sort as text."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z" if at else None


def _call_json(call: ToolCall) -> Json:
    return {
        "tool": call.tool,
        "arguments": dict(call.arguments),
        "status": call.status,
        "duration_ms": call.duration_ms,
        "at": time_text(call.at),
    }


def _step_json(step: Step) -> Json:
    return {
        "tool": step.tool,
        "arguments": dict(step.arguments),
        "status": step.status,
        "result": step.result,
        "error": step.error,
        "reason": step.reason,
        "duration_ms": step.duration_ms,
        "at": time_text(step.at),
    }


def _timed(item: Mapping[str, Any]) -> Json:
    at = item["at"]
    return {**item, "at": datetime.fromisoformat(at) if at else None}
