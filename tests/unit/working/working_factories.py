"""Working states, patches and numbers for tests; every part can be given, none must."""

from datetime import UTC, datetime
from typing import Any

from memory_service.settings import load_settings, load_tunables
from memory_service.working.items import WorkingState
from memory_service.working.settings import Working

NOW = datetime(2026, 5, 4, 9, 30, 0, 123456, tzinfo=UTC)
LATER = datetime(2026, 5, 4, 9, 31, tzinfo=UTC)
SETTINGS = load_tunables(load_settings()).section("working", Working)


def settings(**numbers: Any) -> Working:
    return SETTINGS.model_copy(update=numbers)


def state(**parts: Any) -> WorkingState:
    return WorkingState(**{"task_id": "t", "user_id": "u", **parts})


def count_words(text: str) -> int:
    """A tokenizer of its own kind: a token per four characters of each word, so a long word costs more."""
    return sum(-(-len(word) // 4) for word in text.split())
