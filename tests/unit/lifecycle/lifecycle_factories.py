"""Memories and numbers for the tests of ageing."""

from datetime import UTC, datetime
from typing import Any

from memory_service.domain import Memory, new_id
from memory_service.lifecycle.feedback_settings import FeedbackNumbers
from memory_service.settings import Heat, Settings, load_tunables

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SHIPPED = load_tunables(Settings())
HEAT: Heat = SHIPPED.heat
NUMBERS = SHIPPED.section("feedback", FeedbackNumbers)


def a_memory(**fields: Any) -> Memory:
    """An active memory of now, heat 1, confidence 1."""
    given = {
        "content": "the content",
        "summary": "the summary",
        "created_at": NOW,
        "updated_at": NOW,
        "occurred_at": NOW,
    }
    return Memory(
        **{"id": new_id(), "tenant": "t", "kind": "semantic", "user_id": "ana", "heat_at": NOW, **given, **fields}
    )
