"""How does a buffered message look in Redis?  JSON, as bytes; no rule of what it means."""

from datetime import datetime
from uuid import UUID

import orjson

from memory_service.write.triggers import Message
from memory_service.write.turn_plan import Held


def payload_of(held: Held) -> bytes:
    message = held.message
    return orjson.dumps(
        {
            "id": held.id, "role": message.role, "content": message.content, "name": message.name, "at": message.at,
            "task_id": held.task_id, "agent_id": held.agent_id, "tool_status": held.tool_status, "cut": held.cut, "of": held.of,
        }
    )  # fmt: skip


def held_of(number: int, payload: bytes) -> Held:
    raw = orjson.loads(payload)
    at = datetime.fromisoformat(raw["at"]) if raw["at"] else None
    return Held(
        number=number,
        id=UUID(raw["id"]),
        message=Message(raw["role"], raw["content"], raw["name"], at),
        task_id=raw["task_id"],
        agent_id=raw["agent_id"],
        tool_status=raw["tool_status"],
        cut=raw["cut"],
        of=tuple(UUID(one) for one in raw.get("of", ())),
    )
