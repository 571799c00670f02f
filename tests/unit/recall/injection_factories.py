"""Memories and lessons to inject, with everything that a test does not name filled in."""

import tomllib
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

from memory_service.recall.injection import InjectionNumbers, Lesson, Remembered

CONFIG = Path(__file__).parents[3] / "config"
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


@cache
def numbers() -> InjectionNumbers:
    return InjectionNumbers(**tomllib.loads((CONFIG / "memory.toml").read_text(encoding="utf-8"))["injection"])


def words(text: str) -> int:
    """A count of tokens that is easy to follow: four characters a token."""
    return -(-len(text) // 4)


def memory(number: int, **changes: Any) -> Remembered:
    given: dict[str, Any] = {
        "id": UUID(int=number),
        "kind": "semantic",
        "content": f"Fact number {number} in its full length.",
        "summary": f"Fact {number}.",
        "relevance": 0.9,
        "occurred_at": NOW - timedelta(days=number),
    }
    return Remembered(**{**given, **changes})


def lesson(number: int, **changes: Any) -> Lesson:
    given: dict[str, Any] = {
        "id": UUID(int=number),
        "when": "tool is read_file and arguments.path ends in .csv",
        "action": "pass encoding=gb18030",
        "avoid": "reading it as utf-8",
        "rationale": "the export tool writes GB18030",
        "confidence": 0.8,
        "score": 0.9,
    }
    return Lesson(**{**given, **changes})
