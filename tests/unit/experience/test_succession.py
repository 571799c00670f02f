"""Which of several lessons for the same conditions counts?"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memory_service.domain import Experience, new_id
from memory_service.experience.changes import after_use, differences, patched, text_changed
from memory_service.experience.conditions_settings import ConditionLimits
from memory_service.experience.confidence import started
from memory_service.experience.confidence_settings import ConfidenceSettings
from memory_service.experience.scenario import scenario_of
from memory_service.experience.settings import ExperienceNumbers
from memory_service.experience.succession import Succession, confidence_of, ledger_json, succession
from memory_service.settings import Settings, load_tunables

NOW = datetime(2026, 3, 1, tzinfo=UTC)
TUNABLES = load_tunables(Settings())
NUMBERS = TUNABLES.section("experience", ExperienceNumbers)
CONFIDENCE = TUNABLES.section("experience_confidence", ConfidenceSettings)
LIMITS = TUNABLES.section("experience_conditions", ConditionLimits)


def lesson(action: str, confidence: float = 0.5, *, days: float = 0, **fields: Any) -> Experience:
    at = NOW + timedelta(days=days)
    held = started("feedback", at, CONFIDENCE, confidence)
    condition = {"field": "tool", "operator": "eq", "value": "psql"}
    base = Experience(new_id(), "t", "u", (condition,), b"h", action, "feedback", held.value, ledger_json(held), at, at)
    return replace(base, **fields)


def decided(newcomer: Experience, *known: Experience, learned: bool = True) -> Succession:
    return succession(newcomer, known, NOW, NUMBERS, CONFIDENCE, learned=learned)


def test_the_first_lesson_is_created() -> None:
    outcome = decided(one := lesson("a"))
    assert (outcome.status, outcome.told, [c.before for c in outcome.changes]) == ("created", one, [None])


def test_the_same_action_in_other_letters_reinforces() -> None:
    known = lesson("Do  it", source_memory_ids=(new_id(),))
    outcome = decided(lesson("do it", 0.9, tags=("x",)), known)
    assert outcome.status == "reinforced"
    assert (outcome.told.id, outcome.told.action, outcome.told.tags, outcome.told.version) == (
        known.id,
        "Do  it",
        ("x",),
        2,
    )
    assert outcome.told.confidence == pytest.approx(0.5 + 0.1 * (0.99 - 0.5))
    assert outcome.told.source_memory_ids == known.source_memory_ids


@pytest.mark.parametrize(
    ("mine", "days", "status"), [(0.6, 0, "superseded_other"), (0.5, 1, "superseded_other"), (0.4, 1, "rejected")]
)
def test_the_more_confident_wins_then_the_newer(mine: float, days: float, status: str) -> None:
    known = lesson("old")
    outcome = decided(newcomer := lesson("new", mine, days=days), known)
    assert outcome.status == status
    active = [c.after for c in outcome.changes if c.after.status == "active"]
    lost = [c.after for c in outcome.changes if c.after.status == "superseded"]
    winner = newcomer.id if status == "superseded_other" else known.id
    assert [one.id for one in active] == ([newcomer.id] if status == "superseded_other" else [])
    assert [one.superseded_by for one in lost] == [winner]
    assert outcome.changes[0].after.status == "superseded"  # the loser is written first: never two active


def test_a_retired_lesson_comes_back_only_by_hand() -> None:
    retired = lesson("a", status="retired")
    assert (decided(lesson("a"), retired).status, decided(lesson("a"), retired).changes) == ("rejected", ())
    assert decided(lesson("b"), retired).status == "created"
    assert decided(lesson("a"), retired, learned=False).status == "created"


def test_labels_and_sources_stay_bounded() -> None:
    known = lesson("a", tags=tuple(str(n) for n in range(NUMBERS.tags_max)))
    told = decided(lesson("a", tags=("more",), source_memory_ids=tuple(new_id() for _ in range(200))), known).told
    assert len(told.tags) == NUMBERS.tags_max
    assert len(told.source_memory_ids) == NUMBERS.source_ids_max


def test_a_use_moves_confidence_counts_and_version_but_not_the_text() -> None:
    before = lesson("a")
    after = after_use(before, False, NOW, CONFIDENCE)
    assert (after.use_count, after.success_count, after.failure_count, after.version) == (1, 0, 1, 2)
    assert after.confidence < before.confidence
    assert sum(entry.delta for entry in confidence_of(after).ledger) == pytest.approx(after.confidence)
    assert not text_changed(before, after)
    assert set(differences(before, after)) == {"confidence", "use_count", "failure_count"}


def test_a_patch_that_changes_nothing_is_no_version() -> None:
    before = lesson("a", condition_hash=b"h")
    assert patched(before, {"action": "a"}, NOW, LIMITS, CONFIDENCE) == before
    other = patched(before, {"task_type": "x", "status": "retired"}, NOW, LIMITS, CONFIDENCE)
    assert (other.version, other.task_type, other.condition_hash != b"h", text_changed(before, other)) == (
        2,
        "x",
        True,
        True,
    )


def test_every_operator_reads_as_a_sentence() -> None:
    values = {"in": ["a"], "nin": ["a"], "exists": False}
    for operator in (
        "eq",
        "ne",
        "in",
        "nin",
        "gt",
        "gte",
        "lt",
        "lte",
        "contains",
        "not_contains",
        "starts_with",
        "matches",
        "exists",
    ):
        one = lesson("a", conditions=({"field": "f", "operator": operator, "value": values.get(operator, "中")},))
        (sentence,) = scenario_of(one)["given"]
        assert sentence.startswith("f ")
        assert "\\u" not in sentence
