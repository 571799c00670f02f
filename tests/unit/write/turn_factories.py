"""Turns and the shipped trigger rules, with everything that a test does not name filled in."""

from datetime import UTC, datetime
from functools import cache
from typing import Any

from memory_service.write.drafts import Draft
from memory_service.write.triggers import (
    BufferState,
    Message,
    Role,
    TriggerRules,
    Turn,
    load_trigger_rules,
    should_write,
)
from memory_service.write.turns import TurnScope
from tests.unit.write.factories import CONFIG, shipped_rules

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


@cache
def trigger_rules() -> TriggerRules:
    return load_trigger_rules(CONFIG / "triggers.toml", shipped_rules())


def turn(*messages: tuple[Role, str], **changes: Any) -> Turn:
    return Turn(tuple(Message(role, content) for role, content in messages), **changes)


def fired(one: Turn, **buffer: Any) -> list[str]:
    return [trigger.name for trigger in should_write(one, BufferState(**buffer), trigger_rules())]


def scope(**changes: Any) -> TurnScope:
    return TurnScope(**{"user_id": "u", "session_id": "s", "at": NOW, **changes})


def draft(content: str, **changes: Any) -> Draft:
    given = {
        "user_id": "u",
        "session_id": "s",
        "task_id": "t",
        "kind": "episodic",
        "metadata": {"triggers": ["tool_error"]},
    }
    return Draft(content=content, **{**given, **changes})
