"""Only valid conditions come through, and each bad one is named without echoing what was sent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_service.domain import FieldCondition
from memory_service.errors import FieldError, InvalidFields
from memory_service.recall.filters import parse_filters

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def test_conditions_keep_their_order_and_values() -> None:
    parsed = parse_filters({"category": {"eq": "x", "ne": None}, "metadata.a.b": {"in": [1, "1", None]}}, 64)
    assert parsed == (
        FieldCondition("category", "eq", "x"),
        FieldCondition("category", "ne", None),
        FieldCondition("metadata.a.b", "in", [1, "1", None]),
    )


@given(
    st.dictionaries(
        st.text(max_size=300), st.dictionaries(st.text(max_size=300), values, max_size=3) | values, max_size=5
    )
)
def test_any_object_is_parsed_or_refused_naming_filters(filters: dict[str, Any]) -> None:
    complaints: tuple[FieldError, ...] = ()
    parsed: tuple[FieldCondition, ...] = ()
    try:
        parsed = parse_filters(filters, 8)
    except InvalidFields as refused:
        complaints = refused.errors
    assert len(parsed) <= 8
    assert bool(complaints) or len(parsed) == sum(len(operators) for operators in filters.values())
    assert all(e.field.startswith("filters") and len(e.field) < 450 for e in complaints)


@pytest.mark.parametrize("count", [64, 65])
def test_the_number_of_conditions_is_bounded(count: int) -> None:
    filters = {f"metadata.k{n}": {"eq": n} for n in range(count)}
    if count == 64:
        assert len(parse_filters(filters, 64)) == 64
    else:
        with pytest.raises(InvalidFields, match="at most 64"):
            parse_filters(filters, 64)


@pytest.mark.parametrize("text", ["2026-01-01", "2026-01-01T00:00:00", "2026-01-01T00:00:00+09:00"])
def test_times_of_a_memory_are_asked_like_any_other_time(text: str) -> None:
    assert parse_filters({"occurred_at": {"gte": text}}, 1)
