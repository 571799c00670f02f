"""Three answers for every operator and type, and bounded time for hostile states."""

import time
from typing import Any

import pytest
from hypothesis import given

from memory_service.experience.matching import Evaluator, Match
from tests.unit.experience.condition_factories import LIMITS, STATES, TRIPLE_LISTS, limits, parsed, triple

MORNING, SAME_MORNING, NOON = "2026-01-31T09:30:00Z", "2026-01-31T10:30:00+01:00", "2026-01-31T12:00:00Z"


def evaluate(operator: str, value: Any, state: dict[str, Any], field: str = "f", **numbers: int) -> bool | None:
    (condition,) = parsed(triple(field, operator, value))
    return Evaluator(limits(**numbers)).evaluate(condition, state)


def match(triples: list[dict[str, Any]], state: dict[str, Any]) -> Match:
    return Evaluator(LIMITS).match(parsed(*triples), state)


@pytest.mark.parametrize(
    ("operator", "value", "actual", "expected"),
    [
        ("eq", 1, 1.0, True),
        ("eq", 1, "1", False),
        ("eq", 1, True, False),
        ("eq", True, 1, False),
        ("eq", 0, False, False),
        ("eq", "a", "A", False),
        ("eq", "é中", "é中", True),
        ("eq", [1, 2], [1.0, 2], True),
        ("eq", [1, 2], [2, 1], False),
        ("eq", {"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ("eq", {"a": None}, {}, False),
        ("eq", MORNING, SAME_MORNING, True),
        ("eq", [MORNING], [SAME_MORNING], True),
        ("eq", 2**53, 2**53 + 1, False),
        ("ne", 1, "1", True),
        ("ne", 1, 1.0, False),
        ("ne", MORNING, SAME_MORNING, False),
        ("in", ["a", 1], 1.0, True),
        ("in", ["a", 1], True, False),
        ("in", [[1]], [1], True),
        ("nin", ["a", 1], "b", True),
        ("nin", ["a", 1], "a", False),
        ("gt", 1, 2, True),
        ("gt", 1, 1, False),
        ("gt", 1, "2", False),
        ("gt", 0, True, False),
        ("gte", 1, 1.0, True),
        ("gte", 0.5, 0, False),
        ("lt", 2**53 + 1, float(2**53), True),
        ("lt", "b", "a", True),
        ("lt", "b", 1, False),
        ("lt", MORNING, "2026-01-31T10:00:00+01:00", True),
        ("lt", MORNING, "2025", False),
        ("lt", "2026", "2025-01-01T00:00:00Z", True),
        ("lte", MORNING, SAME_MORNING, True),
        ("gt", MORNING, NOON, True),
        ("gt", 1, [2], False),
        ("contains", "ell", "hello", True),
        ("contains", "x", "hello", False),
        ("contains", 1, "1", False),
        ("contains", "a", ["a", "b"], True),
        ("contains", "a", ["ab"], False),
        ("contains", 1, [1.0], True),
        ("contains", 1, [True, "1"], False),
        ("contains", [1], [[1]], True),
        ("contains", MORNING, [SAME_MORNING], True),
        ("contains", "a", {"a": 1}, False),
        ("contains", "a", 1, False),
        ("not_contains", "x", "hello", True),
        ("not_contains", "ell", "hello", False),
        ("not_contains", "a", 5, True),
        ("not_contains", "a", ["a"], False),
        ("starts_with", "/etc", "/etc/hosts", True),
        ("starts_with", "/etc", "/home", False),
        ("starts_with", "a", ["a"], False),
        ("matches", r"\.csv$", "data.csv", True),
        ("matches", "b", "abc", True),
        ("matches", "^b", "abc", False),
        ("matches", "(?i)ERROR", "an error", True),
        ("matches", "中+", "在中中", True),
        ("matches", r"\d", 5, False),
        ("exists", True, 0, True),
        ("exists", True, False, True),
        ("exists", True, "", True),
        ("exists", False, [], False),
    ],
)
def test_an_operator_answers_for_a_present_value(operator: str, value: Any, actual: Any, expected: bool) -> None:
    assert evaluate(operator, value, {"f": actual}) is expected


@pytest.mark.parametrize(
    ("operator", "value"),
    [("eq", 1), ("ne", 1), ("in", [1]), ("nin", [1]), ("gt", 1), ("gte", 1), ("lt", 1), ("lte", 1), ("contains", "a"),
     ("not_contains", "a"), ("starts_with", "a"), ("matches", "a")],
)  # fmt: skip
@pytest.mark.parametrize("state", [{}, {"f": None}, {"g": 1}])
def test_a_missing_or_null_field_is_unknown(operator: str, value: Any, state: dict[str, Any]) -> None:
    assert evaluate(operator, value, state) is None


@pytest.mark.parametrize("state", [{}, {"f": None}])
def test_exists_is_never_unknown(state: dict[str, Any]) -> None:
    assert evaluate("exists", True, state) is False
    assert evaluate("exists", False, state) is True


@pytest.mark.parametrize(
    ("path", "state", "present"),
    [
        ("a.b", {"a": {"b": 1}}, True),
        ("a.b", {"a.b": 1}, True),
        ("a.b", {"a.b": None, "a": {"b": 1}}, True),
        ("a.b", {"a": {"b": None}}, False),
        ("a.b", {"a": "b"}, False),
        ("a.0", {"a": ["x"]}, True),
        ("a.1", {"a": ["x"]}, False),
        ("a.-1", {"a": ["x"]}, False),
        ("a.00", {"a": ["x"]}, False),
        ("a.0", {"a": {"0": "x"}}, True),
        ("a.0.b", {"a": [{"b": 1}]}, True),
        ("a.٠", {"a": ["x"]}, False),
        ("a.999999999999999999", {"a": ["x"]}, False),
        ("数据.路径", {"数据": {"路径": 1}}, True),
    ],
)
def test_a_field_is_a_path_through_objects_and_lists(path: str, state: dict[str, Any], present: bool) -> None:
    assert evaluate("exists", True, state, field=path) is present


def test_a_whole_key_with_dots_is_looked_up_before_the_path() -> None:
    assert evaluate("eq", 1, {"a.b": 1, "a": {"b": 2}}, field="a.b") is True


def test_a_match_is_exact_when_all_are_true() -> None:
    found = match([triple("a", "eq", 1), triple("b", "gt", 1)], {"a": 1, "b": 2})
    assert found.kind == "exact"
    assert len(found.matched) == 2


def test_a_match_is_partial_when_some_are_true_and_the_rest_is_unknown() -> None:
    found = match([triple("a", "eq", 1), triple("b", "gt", 1)], {"a": 1})
    assert found.kind == "partial"
    assert [c.field for c in found.matched] == ["a"]
    assert [c.field for c in found.missing] == ["b"]


def test_nothing_matches_when_one_is_false_or_all_are_unknown() -> None:
    assert match([triple("a", "eq", 1), triple("b", "gt", 1)], {"a": 1, "b": 0}).kind is None
    assert match([triple("a", "eq", 1)], {}).kind is None


@given(TRIPLE_LISTS, STATES)
def test_negations_answer_the_opposite_and_are_unknown_together(
    triples: list[dict[str, Any]], state: dict[str, Any]
) -> None:
    opposite = {"eq": "ne", "in": "nin", "contains": "not_contains"}
    for one in triples:
        if one["operator"] in opposite:
            answer = evaluate(one["operator"], one["value"], state, one["field"])
            negated = evaluate(opposite[one["operator"]], one["value"], state, one["field"])
            assert (answer is None) == (negated is None)
            assert answer is None or answer is not negated


@given(TRIPLE_LISTS, STATES)
def test_the_kind_follows_from_the_single_answers(triples: list[dict[str, Any]], state: dict[str, Any]) -> None:
    evaluator, conditions = Evaluator(LIMITS), parsed(*triples)
    answers = [evaluator.evaluate(condition, state) for condition in conditions]
    expected = None if False in answers or True not in answers else "partial" if None in answers else "exact"
    assert evaluator.match(conditions, state).kind == expected


def test_a_list_too_large_to_read_is_unknown_unless_the_read_part_decides() -> None:
    state = {"f": list(range(50))}
    assert evaluate("contains", 3, state, state_nodes_max=10) is True
    assert evaluate("contains", 49, state, state_nodes_max=10) is None
    assert evaluate("not_contains", 49, state, state_nodes_max=10) is None
    assert evaluate("eq", 1, state, state_nodes_max=10) is None
    assert evaluate("nin", [1], state, state_nodes_max=10) is None
    assert evaluate("gt", 1, state, state_nodes_max=10) is False
    assert evaluate("exists", True, state, state_nodes_max=10) is True


def test_a_text_too_long_to_read_is_unknown_unless_the_read_part_decides() -> None:
    state = {"f": "ab" + "c" * 100 + "end"}
    assert evaluate("contains", "ab", state, state_text_chars_max=10) is True
    assert evaluate("contains", "end", state, state_text_chars_max=10) is None
    assert evaluate("starts_with", "abc", state, state_text_chars_max=10) is True
    assert evaluate("matches", "^ab", state, pattern_text_chars_max=10) is None


def test_a_state_a_thousand_levels_deep_is_unknown_and_not_a_crash() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    assert evaluate("eq", [1], {"f": deep}) is None
    assert evaluate("contains", 1, {"f": deep}) is None
    assert evaluate("exists", True, {"f": deep}, field="f.0.0.0.0") is True


@pytest.mark.parametrize("pattern", ["(a+)+$b", "(a|aa)+c", "(a|a?)+$b", "(.*)(.*)(.*)(.*)x", "(x+x+)+y"])
def test_patterns_that_explode_elsewhere_are_linear(pattern: str) -> None:
    started = time.perf_counter()
    assert evaluate("matches", pattern, {"f": "a" * LIMITS.pattern_text_chars_max}) is False
    assert time.perf_counter() - started < 0.5


@pytest.mark.parametrize("actual", [float("nan"), float("inf")])
def test_a_number_that_json_does_not_have_counts_as_missing(actual: float) -> None:
    assert evaluate("gt", 1, {"f": actual}) is None


def test_lone_surrogates_and_nul_in_a_state_do_not_crash() -> None:
    assert evaluate("matches", "b", {"f": "a\ud800b"}) is True
    assert evaluate("matches", "b", {"f": "a\x00b"}) is True


def test_a_stored_pattern_that_is_no_longer_allowed_is_unknown() -> None:
    assert evaluate("matches", "abcdef", {"f": "abcdef"}, pattern_chars_max=3) is None


def test_more_patterns_than_the_cache_keeps_still_answer() -> None:
    evaluator = Evaluator(limits(patterns_cached_max=2))
    for _ in range(2):
        for n in range(5):
            (condition,) = parsed(triple("f", "matches", f"^{n}$"))
            assert evaluator.evaluate(condition, {"f": str(n)}) is True
