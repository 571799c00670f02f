"""Which lessons go with an erased memory, which lose their quotation, and which stay as they are?"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from memory_service.domain import Experience, new_id
from memory_service.experience.erased_sources import CAUSE, REASON, REASON_ZH, Telling, without_sources

NOW = datetime(2026, 3, 2, tzinfo=UTC)
ONE, TWO, THREE = (UUID(int=n) for n in (1, 2, 3))


def lesson(*sources: UUID, rule: str | None = "recovered", action: str = "Use JSON") -> Experience:
    return Experience(
        id=new_id(), tenant="t", user_id="u", conditions=(), condition_hash=b"", action=action, origin="detour", confidence=0.5,
        confidence_ledger=(), created_at=NOW, updated_at=NOW, avoid="XML", rationale="415 of heron", source_memory_ids=sources,
        source_steps=(1, 2), rule=rule, version=4,
    )  # fmt: skip


def told(*sources: UUID, cause: str = "reinforced") -> Telling:
    return Telling(cause, sources)


FIRST = told(ONE, cause="created")


def test_a_lesson_without_any_other_source_goes() -> None:
    assert without_sources(lesson(ONE), [ONE], [FIRST], NOW) is None
    assert without_sources(lesson(ONE, TWO), [ONE, TWO], [FIRST, told(ONE, TWO)], NOW) is None


@pytest.mark.parametrize(("action", "reason"), [("Use JSON", REASON), ("改用 JSON 格式", REASON_ZH)])
def test_what_others_taught_too_stays_without_the_quotation(action: str, reason: str) -> None:
    before = lesson(ONE, TWO, action=action)
    after = without_sources(before, [ONE], [FIRST, told(ONE, TWO)], NOW)
    assert after == replace(
        before, id=after.id if after else before.id, avoid=None, rationale=reason, source_memory_ids=(TWO,), source_steps=(), version=1,
    )  # fmt: skip
    assert after is not None
    assert after.id != before.id


def test_a_later_source_takes_no_words_along() -> None:
    before = lesson(ONE, TWO)
    assert without_sources(before, [TWO], [FIRST, told(ONE, TWO)], NOW) == replace(before, source_memory_ids=(ONE,))


def test_words_of_a_run_that_no_memory_tells_of_stay() -> None:
    before = lesson(TWO)
    after = without_sources(before, [TWO], [told(cause="created"), told(TWO)], NOW)
    assert after == replace(before, source_memory_ids=())


def test_somebody_who_said_it_again_without_a_source_keeps_it() -> None:
    after = without_sources(lesson(ONE), [ONE], [FIRST, told(ONE)], NOW)
    assert after is not None
    assert (after.rationale, after.source_memory_ids) == (REASON, ())


def test_one_that_lost_its_words_before_stays_until_its_last_source_is_erased() -> None:
    made_anew = told(TWO, THREE, cause=CAUSE)
    before = lesson(TWO, THREE)
    assert without_sources(before, [TWO], [made_anew], NOW) == replace(before, source_memory_ids=(THREE,))
    assert without_sources(lesson(THREE), [THREE], [made_anew], NOW) is None


def test_a_lesson_by_hand_is_its_writers_words() -> None:
    before = lesson(ONE, rule=None)
    assert without_sources(before, [ONE], [FIRST], NOW) == replace(before, source_memory_ids=())


def test_without_a_history_the_words_may_be_of_any_source() -> None:
    assert without_sources(lesson(ONE), [ONE], [], NOW) is None
