"""A cursor gives back exactly the position it was made from, to the list it was made for."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_service.api import cursors
from memory_service.errors import InvalidFields

AT, ONE = datetime(2026, 5, 4, 9, 30, 0, 123456, tzinfo=UTC), UUID("019abcde-0000-7000-8000-000000000000")


@given(st.datetimes(timezones=st.just(UTC)), st.uuids(), st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_a_cursor_round_trips(at: datetime, one: UUID, scope: list[str]) -> None:
    made = cursors.encode((at, one), scope)
    assert made.isascii()
    assert "=" not in made
    assert cursors.decode(made, scope) == (at, one)


@given(st.text(max_size=80))
def test_anything_else_is_refused_and_nothing_but_that(text: str) -> None:
    with pytest.raises(InvalidFields) as refused:
        cursors.decode(text, ["memories", "default", "ana"])
    assert refused.value.errors[0].field == "cursor"


@given(st.integers(0, 60), st.integers(1, 63))
def test_an_edited_cursor_is_refused(position: int, step: int) -> None:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    made = cursors.encode((AT, ONE), "scope")
    edited = made[:position] + alphabet[(alphabet.index(made[position]) + step) % 64] + made[position + 1 :]
    with pytest.raises(InvalidFields):
        cursors.decode(edited, "scope")


def test_a_cursor_of_another_scope_is_refused() -> None:
    with pytest.raises(InvalidFields):
        cursors.decode(cursors.encode((AT, ONE), ["memories", "tenant-a"]), ["memories", "tenant-b"])
