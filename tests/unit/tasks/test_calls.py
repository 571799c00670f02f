"""Which calls a task made, and how alike two calls are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_service.tasks.calls import calls_of, cut_arguments, similarity
from memory_service.working.items import FailedAttempt, Step, ToolCall, WorkingState
from memory_service.working.state import record_step
from tests.unit.tasks.task_factories import later, task_numbers, working_numbers

EMPTY = WorkingState("task", "u")


def like(one: object, other: object) -> float:
    return similarity(one, other, task_numbers())


def test_a_noted_step_is_one_call_with_all_that_is_known_of_it() -> None:
    step = Step("curl", "error", {"url": "x"}, error="410", reason="docs", result={"body": 1})
    (found,) = calls_of(record_step(EMPTY, step, later(0), working_numbers()))
    assert found == replace(step, at=later(0))


def test_two_equal_calls_at_the_same_moment_stay_two() -> None:
    step, state = Step("ls", "success"), EMPTY
    for _ in range(2):
        state = record_step(state, step, later(0), working_numbers())
    assert len(calls_of(state)) == 2


def test_a_call_whose_step_was_dropped_keeps_its_error() -> None:
    state = EMPTY
    for at in range(60):
        state = record_step(state, Step("curl", "error", {"n": at}, error=f"e{at}"), later(at), working_numbers())
    calls = calls_of(state)
    assert len(state.recent_steps) == working_numbers().recent_steps_max < len(calls) == 60
    assert [(call.arguments["n"], call.error) for call in calls] == [(at, f"e{at}") for at in range(60)]


def test_steps_and_calls_that_were_patched_in_are_found_in_the_order_of_time() -> None:
    state = replace(
        EMPTY,
        tool_call_history=(ToolCall("b", {}, None, None, later(2)),),
        recent_steps=("a sentence", Step("a", "success", at=later(1))),
        failed_attempts=(FailedAttempt("c", error="x", at=later(3)),),
    )
    assert [call.tool for call in calls_of(state)] == ["a", "b"]


@pytest.mark.parametrize(
    ("one", "other", "low", "high"),
    [
        ({}, {}, 1, 1),
        ({"a": 1}, {"a": 1}, 1, 1),
        ({"url": "https://x/v1/users"}, {"url": "https://x/v1/orders"}, 0.6, 0.99),
        ({"url": "https://x/v1/users"}, {"url": "https://x/v2/users", "page": 1}, 0.5, 0.8),  # one argument more: a cure
        ({"path": "/tmp/a.txt"}, {"path": "/var/b.csv"}, 0, 0.49),
        ({"a": "x"}, {"b": "x"}, 0, 0),
        ({"page": 1}, {"page": 2}, 0.5, 0.99),
        ({"q": {"deep": "same words here"}}, {"q": {"deep": "same words there"}}, 0.5, 0.99),
        ("free text here", "free text there", 0.5, 0.99),
        (None, {}, 1, 1),
        (["a", "b"], {"a": "b"}, 0, 0),
        ({"flag": True}, {"flag": 1}, 0, 0.49),
        ({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}, 1, 1),
        ({"q": "one two"}, {"q": "two one"}, 0.9, 0.99),
    ],
)  # fmt: skip
def test_how_alike_two_calls_are(one: object, other: object, low: float, high: float) -> None:
    assert low <= like(one, other) <= high
    assert like(one, other) == pytest.approx(like(other, one))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(JSON, JSON)
def test_likeness_is_a_share_symmetric_and_one_for_equals(one: object, other: object) -> None:
    assert 0 <= like(one, other) <= 1
    assert like(one, other) == pytest.approx(like(other, one))
    assert like(one, one) == 1


def test_long_arguments_are_cut_with_a_mark_and_others_stay() -> None:
    cut = cut_arguments({"text": "x" * 50, "n": 7, "in": {"list": ["y" * 50, None]}}, 10)
    assert cut == {"text": "x" * 9 + "…", "n": 7, "in": {"list": ["y" * 9 + "…", None]}}
