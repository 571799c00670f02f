"""When one of a dispute is decided against, who is against whom, and which conflict does each of the others carry?"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from memory_service.stores.postgres.conflicts import Conflict
from memory_service.write.disputes import Pair, carried, inherited

BEGAN = datetime(2026, 3, 2, tzinfo=UTC)
A, B, C, D = (UUID(int=n) for n in range(1, 5))


def conflict(number: int, old: UUID, new: UUID) -> Conflict:
    at = BEGAN + timedelta(hours=number)
    return Conflict(UUID(int=100 + number), "t", "u", old, new, "r", "open", None, at, None, None)


FIRST, SECOND = conflict(1, A, B), conflict(2, B, C)


def test_what_a_loser_was_against_is_against_its_successor() -> None:
    assert inherited(SECOND, {B: C}, [FIRST]) == ([Pair(C, A, FIRST)], [])
    assert inherited(FIRST, {B: A}, [SECOND]) == ([Pair(A, C, SECOND)], [])


def test_what_the_winner_is_against_stays_as_it_is() -> None:
    assert inherited(SECOND, {C: B}, [FIRST]) == ([], [])


def test_a_merged_text_inherits_from_both() -> None:
    before, after = conflict(1, A, B), conflict(3, C, D)
    merged = UUID(int=9)
    assert inherited(SECOND, {B: merged, C: merged}, [after, before]) == (
        [Pair(merged, D, after), Pair(merged, A, before)], [],
    )  # fmt: skip


def test_a_conflict_of_two_who_would_be_set_against_each_other_twice_is_over() -> None:
    third = conflict(3, A, C)
    assert inherited(SECOND, {B: C}, [third, FIRST]) == ([], [FIRST])


def test_where_both_stand_each_is_set_against_what_the_other_is_against_once() -> None:
    assert inherited(SECOND, {}, [FIRST]) == ([Pair(C, A)], [])
    assert inherited(SECOND, {}, [conflict(3, A, C), FIRST]) == ([], [])


def test_the_members_of_each_dispute_carry_its_newest_conflict() -> None:
    apart = conflict(3, D, UUID(int=5))
    assert carried([A, B, C, D, UUID(int=6)], [FIRST, apart, SECOND]) == {
        A: SECOND.id, B: SECOND.id, C: SECOND.id, D: apart.id, UUID(int=6): None,
    }  # fmt: skip
