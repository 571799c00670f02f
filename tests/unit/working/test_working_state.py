"""What is a task after a change?"""

from dataclasses import replace
from datetime import UTC, datetime

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_service.errors import InvalidFields
from memory_service.working import codec
from memory_service.working.items import Fact, FailedAttempt, Patch, PendingItem, Step, ToolCall, WorkingState
from memory_service.working.state import apply_patch, copied_memories, fold, forget_memory, record_step
from tests.unit.working.working_factories import LATER, NOW, SETTINGS, settings, state


def patched(before: WorkingState, numbers: object = SETTINGS, **parts: object) -> WorkingState:
    return apply_patch(before, Patch(**parts), NOW, numbers)  # type: ignore[arg-type]


def test_plain_strings_become_items_with_defaults() -> None:
    after = patched(
        state(),
        constraints=["no deletes"],
        confirmed_facts=["port is 8000"],
        pending_items=["write tests"],
        failed_attempts=["restart"],
        tool_call_history=["grep"],
        recent_steps=["looked around"],
    )
    assert after.constraints == ("no deletes",)
    assert after.confirmed_facts == (Fact("port is 8000", None, NOW),)
    assert after.pending_items == (PendingItem("write tests", 3),)
    assert after.failed_attempts == (FailedAttempt("restart", None, None, NOW),)
    assert after.tool_call_history == (ToolCall("grep", {}, None, None, NOW),)
    assert after.recent_steps == ("looked around",)


def test_a_patch_appends_and_leaves_what_it_does_not_name() -> None:
    before = patched(state(task_goal="g"), constraints=["a"], variables={"x": 1, "y": [1]})
    after = patched(before, constraints=["b"], variables={"y": None})
    assert (after.task_goal, after.constraints, dict(after.variables)) == ("g", ("a", "b"), {"x": 1, "y": None})


def test_null_clears_a_plain_field() -> None:
    assert patched(state(task_goal="g", agent_id="a"), fields={"task_goal": None}) == state(agent_id="a")


def test_a_known_fact_is_refreshed_in_its_place_and_keeps_its_source() -> None:
    before = patched(state(), confirmed_facts=[Fact("a b", "log"), "c"])
    after = apply_patch(before, Patch(confirmed_facts=["a  b"]), LATER, SETTINGS)
    assert after.confirmed_facts == (Fact("a  b", "log", LATER), Fact("c", None, NOW))


def test_facts_that_differ_only_in_case_or_width_are_two_facts() -> None:
    after = patched(state(), confirmed_facts=["PATH=/A", "PATH=/a", "10²", "102"])
    assert len(after.confirmed_facts) == 4


def test_a_done_item_leaves_the_to_do_list() -> None:
    before = patched(state(), pending_items=["a", PendingItem("b", 1)])
    after = patched(before, done_items=["b"])
    assert after.pending_items == (PendingItem("a", 3),)
    assert after.done_items == ("b",)


def test_an_item_named_as_pending_and_done_at_once_is_done() -> None:
    after = patched(state(), pending_items=["a"], done_items=["a"])
    assert (after.pending_items, after.done_items) == ((), ("a",))


def test_a_done_item_named_as_pending_is_open_again() -> None:
    after = patched(patched(state(), done_items=["a", "b"]), pending_items=["a"])
    assert (after.pending_items, after.done_items) == ((PendingItem("a", 3),), ("b",))


def test_a_plain_to_do_item_keeps_the_priority_it_has() -> None:
    after = patched(patched(state(), pending_items=[PendingItem("a", 1)]), pending_items=["a"])
    assert after.pending_items == (PendingItem("a", 1),)


def test_remove_takes_texts_and_variable_names_away() -> None:
    before = patched(
        state(),
        constraints=["a", "b"],
        confirmed_facts=["f", "g"],
        pending_items=["p"],
        done_items=["d"],
        failed_attempts=["x"],
        tool_call_history=["grep"],
        recent_steps=["s", Step("grep", "success")],
        variables={"v": 1, "w": 2},
    )
    after = patched(
        before,
        remove={
            "constraints": ["a"], "confirmed_facts": ["g", "never there"], "pending_items": ["p"], "done_items": ["d"],
            "failed_attempts": ["x"], "tool_call_history": ["grep"], "recent_steps": ["grep"], "variables": ["v"],
        },
    )  # fmt: skip
    assert after == state(
        constraints=("b",), confirmed_facts=(Fact("f", None, NOW),), recent_steps=("s",), variables={"w": 2}
    )


def test_one_patch_can_replace_an_item() -> None:
    after = patched(patched(state(), constraints=["a"]), constraints=["A"], remove={"constraints": ["a"]})
    assert after.constraints == ("A",)


def test_remove_of_an_unknown_list_is_named() -> None:
    with pytest.raises(InvalidFields) as refused:
        patched(state(), remove={"task_goal": ["x"], "nope": ["y"]})
    assert [error.field for error in refused.value.errors] == ["remove.task_goal", "remove.nope"]


@pytest.mark.parametrize("name", ["constraints", "confirmed_facts", "pending_items"])
def test_a_list_that_must_not_lose_anything_refuses_what_exceeds_its_bound(name: str) -> None:
    numbers = settings(**{f"{name}_max": 2})
    full = patched(state(), numbers, **{name: ["a", "b"]})
    with pytest.raises(InvalidFields) as refused:
        patched(full, numbers, **{name: ["c"]})
    assert [error.field for error in refused.value.errors] == [name]
    assert len(getattr(patched(full, numbers, **{name: ["a"]}), name)) == 2


def test_too_many_variables_are_refused() -> None:
    with pytest.raises(InvalidFields) as refused:
        patched(state(), settings(variables_max=1), variables={"a": 1, "b": 2})
    assert refused.value.errors[0].field == "variables"


@pytest.mark.parametrize("name", ["done_items", "failed_attempts", "tool_call_history", "recent_steps"])
def test_history_drops_its_oldest(name: str) -> None:
    after = patched(state(), settings(**{f"{name}_max": 2}), **{name: ["a", "b", "c"]})
    kept = [codec.to_json(after)[name][i] for i in range(2)]
    assert len(getattr(after, name)) == 2
    assert "b" in str(kept[0])
    assert "c" in str(kept[1])


def test_a_failed_step_lands_in_history_steps_and_failures() -> None:
    step = Step("curl", "error", {"url": "http://x"}, error="timeout", reason="firewall", duration_ms=3)
    after = record_step(state(), step, NOW, SETTINGS)
    assert after.failed_attempts == (FailedAttempt('curl {"url": "http://x"}', "firewall", "timeout", NOW),)
    assert after.tool_call_history == (ToolCall("curl", {"url": "http://x"}, "error", 3, NOW),)
    assert after.recent_steps == (replace(step, at=NOW),)


def test_a_successful_step_is_no_failure() -> None:
    after = record_step(state(), Step("ls", "success", result=["a"]), NOW, SETTINGS)
    assert after.failed_attempts == ()
    assert after.recent_steps[0].result == ["a"]  # type: ignore[union-attr]


def test_a_long_failed_call_is_cut_with_a_marker() -> None:
    after = record_step(state(), Step("curl", "error", {"url": "x" * 9_000}), NOW, SETTINGS)
    assert len(after.failed_attempts[0].action) == SETTINGS.action_chars_max
    assert after.failed_attempts[0].action.endswith("…")


def test_copies_of_a_memory_are_found_and_forgotten_whatever_the_case_of_the_id() -> None:
    before = patched(state(), confirmed_facts=[Fact("a", "memory:ABC"), Fact("b", "memory:abd"), Fact("c", "x")])
    assert copied_memories(before) == {"abc", "abd"}
    assert [fact.fact for fact in forget_memory(before, "abc").confirmed_facts] == ["b", "c"]
    assert forget_memory(before, "zzz") is before


def test_a_source_that_is_an_id_alone_names_the_memory_too() -> None:
    one, other = "01a22d55-f078-7665-a3ac-e5bf9b067854", "01a22d55-f078-7665-a3ac-e5bf9b067855"
    before = patched(
        state(), confirmed_facts=[Fact("a", one.upper()), Fact("b", f" memory:{other}"), Fact("c", "x" * 36)]
    )
    assert copied_memories(before) == {one, other}
    assert [fact.fact for fact in forget_memory(before, one).confirmed_facts] == ["b", "c"]


texts = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=12).filter(
    lambda text: fold(text) != ""
)
names = st.sampled_from(
    ["constraints", "confirmed_facts", "pending_items", "done_items", "failed_attempts", "recent_steps"]
)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
patches = st.builds(
    Patch,
    constraints=st.lists(texts, max_size=4),
    confirmed_facts=st.lists(texts | st.builds(Fact, texts, st.none() | texts), max_size=4),
    pending_items=st.lists(texts | st.builds(PendingItem, texts, st.integers(1, 5)), max_size=4),
    done_items=st.lists(texts, max_size=2),
    failed_attempts=st.lists(texts, max_size=3),
    recent_steps=st.lists(texts | st.builds(Step, texts, st.just("error"), result=values), max_size=3),
    variables=st.dictionaries(texts, values, max_size=3),
)


def folded(of: WorkingState, name: str) -> set[str]:
    keys = {"confirmed_facts": "fact", "pending_items": "item", "failed_attempts": "action", "recent_steps": "tool"}
    return {fold(item if isinstance(item, str) else getattr(item, keys[name])) for item in getattr(of, name)}


@given(patches, patches, st.dictionaries(names, st.lists(texts, max_size=2), max_size=2))
def test_a_patch_never_loses_an_item_that_it_did_not_name(
    first: Patch, second: Patch, remove: dict[str, list[str]]
) -> None:
    before = apply_patch(state(), first, NOW, SETTINGS)
    after = apply_patch(before, replace(second, remove=remove), LATER, SETTINGS)
    done = {fold(item) for item in second.done_items}
    reopened = {fold(item if isinstance(item, str) else item.item) for item in second.pending_items} - done
    for name in ("constraints", "confirmed_facts", "pending_items", "done_items", "failed_attempts", "recent_steps"):
        named = {fold(text) for text in remove.get(name, [])}
        moved = {"pending_items": done, "done_items": reopened}.get(name, set())
        assert folded(before, name) - named - moved <= folded(after, name)
        assert folded(apply_patch(state(), second, NOW, SETTINGS), name) <= folded(after, name)
    assert {key: before.variables[key] for key in before.variables if key not in second.variables} == {
        key: value for key, value in after.variables.items() if key not in second.variables
    }


@given(patches)
def test_a_state_comes_back_from_json_exactly_as_it_went_in(patch: Patch) -> None:
    before = apply_patch(state(task_goal="目标"), patch, NOW, SETTINGS)
    after = codec.decode(codec.encode(before))
    assert after == before
    assert codec.encode(after) == codec.encode(before)


def test_values_that_json_readers_like_to_change_are_kept() -> None:
    odd: dict[str, object] = {
        "big": 2**63 - 1,
        "small": -(2**63),
        "none": None,
        "empty": [],
        "object": {},
        "float": 1.0,
        "zero": -0.0,
        "é": "𝄞",
    }
    after = codec.decode(codec.encode(patched(state(), variables=odd)))
    assert repr(dict(after.variables)) == repr(odd)


def test_what_is_kept_is_answered_as_it_is_with_its_end() -> None:
    before = patched(state(), confirmed_facts=["端口是 5433"], variables={"source": "memory:x", "n": 2**63 - 1})
    ends = datetime(2026, 3, 1, 12, 0, 0, 250, tzinfo=UTC)
    answered = orjson.loads(codec.with_end(codec.encode(before), ends))
    assert answered == {**codec.to_json(before), "expires_at": "2026-03-01T12:00:00.000250Z"}
    assert list(answered)[-1] == "expires_at"


@pytest.mark.parametrize(
    "source", ["memory:01a22ca6-dbff-70ce-ab7a-0c41fc1855bc", "01A22CA6-DBFF-70CE-AB7A-0C41FC1855BC"]
)
@pytest.mark.parametrize("items", ["confirmed_facts", "failed_attempts"])
def test_no_copied_memory_is_overlooked_in_what_is_kept(items: str, source: str) -> None:
    copied = Fact("a", source) if items == "confirmed_facts" else FailedAttempt("a", source=source)
    assert copied_memories(after := patched(state(), **{items: [copied]}))
    assert codec.may_hold_copies(codec.encode(after))
    assert not codec.may_hold_copies(codec.encode(patched(state(), confirmed_facts=['it says "source":"memory:x"'])))
