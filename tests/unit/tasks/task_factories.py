"""Small makers of what the task loop decides about."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from uuid import uuid4

from memory_service.domain import Experience
from memory_service.experience.distill_rules import DistillRules, load_distill_rules
from memory_service.experience.drafts import Advised
from memory_service.experience.review_rules import load_review_rules
from memory_service.settings import Settings, load_tunables
from memory_service.stores.postgres.tasks import TaskRun
from memory_service.tasks.settings import TaskNumbers
from memory_service.vocabulary import load_vocabulary
from memory_service.working.items import Step
from memory_service.working.settings import Working

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SETTINGS = Settings()


@cache
def task_numbers() -> TaskNumbers:
    return load_tunables(SETTINGS).section("tasks", TaskNumbers)


@cache
def working_numbers() -> Working:
    return load_tunables(SETTINGS).section("working", Working)


@cache
def distill_rules() -> DistillRules:
    folder = SETTINGS.config_folder
    words = load_vocabulary(folder / "terms.toml", folder / "stop_words.toml")
    return load_distill_rules(folder / "distill.toml", load_review_rules(folder / "review.toml"), words)


def later(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def call(tool: str = "http_get", error: str | None = None, at: float = 0, **arguments: Any) -> Step:
    return Step(tool, "error" if error else "success", arguments, error=error, at=later(at))


def lesson(action: str = "use v2", avoid: str | None = "v1", **fields: Any) -> Experience:
    conditions = fields.pop("conditions", ({"field": "tool", "operator": "eq", "value": "http_get"},))
    return Experience(
        id=uuid4(), tenant="t", user_id="u", conditions=conditions, condition_hash=b"x", action=action, avoid=avoid,
        origin="feedback", confidence=0.9, confidence_ledger=(), created_at=NOON, updated_at=NOON, **fields,
    )  # fmt: skip


def advised(
    experience: Experience, match: Any = "exact", score: float = 0.9, confidence: float = 0.9, **fields: Any
) -> Advised:
    return Advised(experience, match, score, confidence, **fields)


def run(**fields: Any) -> TaskRun:
    return TaskRun(
        **{
            "tenant": "t", "user_id": "u", "task_id": "task", "run_id": uuid4(), "agent_id": None, "session_id": None,
            "goal": "Export all users", "task_type": "export", "started_at": NOON, **fields,
        }
    )  # fmt: skip
