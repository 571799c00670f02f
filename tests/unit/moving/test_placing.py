"""Which of two active lessons counts after an import?"""

# ruff: noqa: E501 - one case reads best on one line

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

from memory_service.domain import Experience
from memory_service.experience.confidence_settings import ConfidenceSettings
from memory_service.moving.placing import placed
from memory_service.settings import Settings, load_tunables

NOW = datetime(2026, 3, 1, tzinfo=UTC)
NUMBERS = load_tunables(Settings()).section("experience_confidence", ConfidenceSettings)


def lesson(number: int, confidence: float, **fields: object) -> Experience:
    ledger = ({"at": "2026-03-01T00:00:00Z", "cause": "given", "delta": confidence},)
    made = Experience(UUID(int=number), "t", "u", ({"field": "a", "operator": "eq", "value": 1},), b"h", "do it", "feedback", confidence, ledger, NOW, NOW)  # fmt: skip
    return replace(made, **fields)  # type: ignore[arg-type]


def test_the_more_confident_leads_and_points_to_nothing() -> None:
    placing = placed(lesson(1, 0.9, superseded_by=UUID(int=9)), lesson(2, 0.5), NOW, NUMBERS)
    assert (placing.newcomer.status, placing.newcomer.superseded_by) == ("active", None)
    assert placing.loser is not None
    assert (placing.loser.status, placing.loser.superseded_by, placing.loser.version) == ("superseded", UUID(int=1), 2)


def test_the_less_confident_comes_in_as_superseded_at_its_own_version() -> None:
    placing = placed(lesson(1, 0.5, version=4), lesson(2, 0.9), NOW, NUMBERS)
    assert placing.loser is None
    assert (placing.newcomer.status, placing.newcomer.superseded_by, placing.newcomer.version) == (
        "superseded",
        UUID(int=2),
        4,
    )


def test_what_is_not_active_disturbs_nobody() -> None:
    for status in ("superseded", "retired"):
        newcomer = lesson(1, 0.99, status=status, superseded_by=UUID(int=7))
        assert placed(newcomer, lesson(2, 0.1), NOW, NUMBERS).newcomer == newcomer


def test_of_two_equally_confident_the_newer_leads() -> None:
    newer = replace(lesson(1, 0.9), created_at=datetime(2026, 3, 2, tzinfo=UTC))
    assert placed(newer, lesson(2, 0.9), NOW, NUMBERS).loser is not None
    assert placed(lesson(1, 0.9), replace(lesson(2, 0.9), created_at=newer.created_at), NOW, NUMBERS).loser is None
