"""Conditions: what is refused and where, and what counts as the same conditions."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_service.errors import InvalidFields
from memory_service.experience.conditions import condition_hash, parse_conditions
from tests.unit.experience.condition_factories import LIMITS, TRIPLE_LISTS, limits, parsed, triple


def hashed(*triples: dict[str, Any], tenant: str = "t", user_id: str = "u", task_type: str | None = None) -> bytes:
    return condition_hash(parsed(*triples), tenant=tenant, user_id=user_id, task_type=task_type)


def refused(raw: Any, **numbers: int) -> list[str]:
    with pytest.raises(InvalidFields) as raised:
        parse_conditions(raw, limits(**numbers))
    return [error.field for error in raised.value.errors]


@pytest.mark.parametrize("raw", [None, "x", 1, {}, [], {"field": "a"}, True])
def test_conditions_that_are_not_a_filled_list_are_refused(raw: Any) -> None:
    assert refused(raw) == ["conditions"]


def test_twelve_triples_are_taken_and_thirteen_are_refused() -> None:
    assert len(parsed(*[triple(f"f{n}") for n in range(12)])) == 12
    assert refused([triple(f"f{n}") for n in range(13)]) == ["conditions"]


@pytest.mark.parametrize(
    ("bad", "place"),
    [
        ("x", "conditions.1"),
        (None, "conditions.1"),
        ({"operator": "eq", "value": 1}, "conditions.1.field"),
        (triple(field=7), "conditions.1.field"),  # type: ignore[arg-type]
        (triple(field=" "), "conditions.1.field"),
        (triple(field="a..b"), "conditions.1.field"),
        (triple(field=".a"), "conditions.1.field"),
        (triple(field="a\n"), "conditions.1.field"),
        (triple(field="a\ud800"), "conditions.1.field"),
        (triple(field="x" * 257), "conditions.1.field"),
        (triple(field=".".join("abcdefghijklmnopq")), "conditions.1.field"),
        ({"field": "a", "value": 1}, "conditions.1.operator"),
        (triple(operator="equals"), "conditions.1.operator"),
        (triple(operator=["eq"]), "conditions.1.operator"),  # type: ignore[arg-type]
        ({"field": "a", "operator": "eq"}, "conditions.1.value"),
        (triple(value=None), "conditions.1.value"),
        (triple(operator="in", value=[]), "conditions.1.value"),
        (triple(operator="in", value="bash"), "conditions.1.value"),
        (triple(operator="nin", value=["a", None]), "conditions.1.value"),
        (triple(operator="in", value=list(range(1001))), "conditions.1.value"),
        (triple(operator="gt", value=True), "conditions.1.value"),
        (triple(operator="lte", value=[1]), "conditions.1.value"),
        (triple(operator="exists", value="true"), "conditions.1.value"),
        (triple(operator="exists", value=None), "conditions.1.value"),
        (triple(operator="starts_with", value=1), "conditions.1.value"),
        (triple(operator="starts_with", value=""), "conditions.1.value"),
        (triple(operator="contains", value=""), "conditions.1.value"),
        (triple(operator="matches", value=["a"]), "conditions.1.value"),
        (triple(operator="matches", value="("), "conditions.1.value"),
        (triple(operator="matches", value="(?=a)"), "conditions.1.value"),
        (triple(operator="matches", value=r"(a)\1"), "conditions.1.value"),
        (triple(operator="matches", value="(((a{100}){100}){100})"), "conditions.1.value"),
        (triple(operator="matches", value=".{0,900}z"), "conditions.1.value"),
        (triple(operator="matches", value="a" * 513), "conditions.1.value"),
        (triple(value="a\x00"), "conditions.1.value"),
        (triple(value={"a\ud800": 1}), "conditions.1.value"),
        (triple(value=float("nan")), "conditions.1.value"),
        (triple(value=[float("inf")]), "conditions.1.value"),
        (triple(value=2**64), "conditions.1.value"),
        (triple(value=1e300), "conditions.1.value"),
        (triple(value="x" * 20_000), "conditions.1.value"),
        (triple(value=[[[[[[[[[1]]]]]]]]]), "conditions.1.value"),
        (triple(value={1: 2}), "conditions.1.value"),
        (triple(value=object()), "conditions.1.value"),
        ({**triple(), "negate": True}, "conditions.1.negate"),
    ],
)
def test_a_bad_triple_is_refused_and_named_by_its_place(bad: Any, place: str) -> None:
    assert refused([triple(), bad, triple()]) == [place]


def test_every_bad_triple_is_named() -> None:
    assert refused([triple(operator="?"), triple(value=None), triple()]) == [
        "conditions.0.operator",
        "conditions.1.value",
    ]


def test_the_order_of_triples_does_not_matter() -> None:
    one, two = triple("a", "eq", 1), triple("b", "gt", 2)
    assert parsed(one, two) == parsed(two, one)
    assert hashed(one, two) == hashed(two, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (triple(operator="EQ"), triple(operator=" eq ")),
        (triple(value=1), triple(value=1.0)),
        (triple(value=0), triple(value=-0.0)),
        (triple(operator="gt", value=2**60), triple(operator="gt", value=float(2**60))),
        (triple(value={"a": 1, "b": [2.0]}), triple(value={"b": [2], "a": 1.0})),
        (triple(operator="in", value=["b", "a", "b"]), triple(operator="in", value=["a", "b"])),
        (triple(operator="in", value=[1, 1.0, "1", True]), triple(operator="in", value=[True, "1", 1])),
        (triple(operator="lt", value="2026-01-01T01:00:00+01:00"), triple(operator="lt", value="2026-01-01T00:00:00Z")),
        ({"field": "a", "operator": "exists"}, triple("a", "exists", True)),
    ],
)
def test_another_spelling_is_the_same_condition(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert hashed(one) == hashed(other)
    assert len(parsed(one, other)) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (triple(value=1), triple(value="1")),
        (triple(value=1), triple(value=True)),
        (triple(value=0), triple(value=False)),
        (triple(value=[1, 2]), triple(value=[2, 1])),
        (triple(value="Bash"), triple(value="bash")),
        (triple(operator="in", value=[1]), triple(operator="in", value=[True])),
        (
            triple(operator="contains", value="2026-01-01T01:00:00+01:00"),
            triple(operator="contains", value="2026-01-01T00:00:00Z"),
        ),
        (triple("a.b"), triple("a")),
        (triple("exists", "exists", True), triple("exists", "exists", False)),
    ],
)
def test_another_meaning_is_another_condition(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert hashed(one) != hashed(other)
    assert len(parsed(one, other)) == 2


def test_the_hash_covers_tenant_user_and_task_type() -> None:
    hashes = {
        hashed(triple()),
        hashed(triple(), tenant="t2"),
        hashed(triple(), user_id="u2"),
        hashed(triple(), task_type="x"),
        hashed(triple(), task_type=""),
        hashed(triple(), tenant="tu", user_id=""),
    }
    assert len(hashes) == 6
    assert all(len(one) == 32 for one in hashes)


def test_the_hash_stays_what_stored_rows_have() -> None:
    assert (
        hashed(triple("a", "eq", 1), task_type="code").hex()
        == "5a7136e60aa884ab43f76bca5d3682c9812e5a380b77bc88febc6062a0629ec8"
    )


@given(TRIPLE_LISTS, st.randoms())
def test_shuffled_and_repeated_triples_have_one_hash(triples: list[dict[str, Any]], chance: Any) -> None:
    again = [*triples, *triples][: LIMITS.triples_max]
    chance.shuffle(again)
    assert hashed(*again) == hashed(*triples)


@given(TRIPLE_LISTS)
def test_parsing_what_was_stored_changes_nothing(triples: list[dict[str, Any]]) -> None:
    once = parsed(*triples)
    stored = json.loads(json.dumps([condition.as_json() for condition in once]))
    again = parse_conditions(stored, LIMITS)
    assert again == once
    assert [c.as_json() for c in again] == [c.as_json() for c in once]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
LOOSE = st.fixed_dictionaries(
    {},
    optional={"field": JSON | st.text(), "operator": JSON | st.sampled_from(("eq", "in", "matches")), "value": JSON},
)


@given(st.lists(LOOSE | JSON, max_size=4) | JSON)
def test_any_input_is_taken_or_refused_by_field(raw: Any) -> None:
    try:
        assert 1 <= len(parse_conditions(raw, LIMITS)) <= LIMITS.triples_max
    except InvalidFields as refusal:
        places = [error.field for error in refusal.errors]
        assert places
        assert all(place.startswith("conditions") for place in places)
