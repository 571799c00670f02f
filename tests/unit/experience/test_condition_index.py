"""The index answers what evaluating every experience would answer, in the same order, also after changes."""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from memory_service.experience.condition_index import ConditionIndex, Entry, Hits
from memory_service.experience.conditions_settings import ConditionLimits
from memory_service.experience.matching import Evaluator
from tests.unit.experience.condition_factories import LIMITS, NOW, STATES, TRIPLE_LISTS, limits, parsed, triple

ALL = 10_000


def entry(number: int, *triples: dict[str, Any], strength: float = 0.8, hours: int = 0) -> Entry:
    return Entry(UUID(int=number), parsed(*triples), strength, NOW + timedelta(hours=hours))


ENTRIES = st.builds(
    lambda number, triples, strength, hours: entry(number, *triples, strength=strength, hours=hours),
    st.integers(1, 2**128 - 1),
    TRIPLE_LISTS,
    st.sampled_from((0.3, 0.5, 0.8)),
    st.integers(0, 2),
)
ENTRY_LISTS = st.lists(ENTRIES, max_size=25, unique_by=lambda one: one.id)


@dataclass(frozen=True)
class Expected:
    exact: list[UUID]
    partial: list[UUID]


def naive(entries: list[Entry], state: dict[str, Any], bounds: ConditionLimits = LIMITS) -> Expected:
    """Every experience evaluated, then sorted as the index promises."""
    evaluator = Evaluator(bounds)
    exact, partial = [], []
    for one in entries:
        match = evaluator.match(one.conditions, state)
        order = (one.strength, one.created_at, one.id.int)
        if match.kind == "exact":
            exact.append((order, one.id))
        elif match.kind == "partial":
            partial.append(((len(match.matched) / len(one.conditions), *order), one.id))
    return Expected([i for _, i in sorted(exact, reverse=True)], [i for _, i in sorted(partial, reverse=True)])


def everything(hits: Hits) -> Expected:
    return Expected([hit.id for hit in hits.exact], [hit.id for hit in hits.partial])


def search(entries: list[Entry], state: dict[str, Any], **arguments: Any) -> Hits:
    index = ConditionIndex(Evaluator(LIMITS), entries)
    return index.search(state, **{"exact_max": ALL, "partial_max": ALL, **arguments})


@settings(max_examples=50)
@given(ENTRY_LISTS, st.lists(STATES, min_size=1, max_size=4))
def test_the_index_finds_what_evaluating_every_experience_finds(
    entries: list[Entry], states: list[dict[str, Any]]
) -> None:
    index = ConditionIndex(Evaluator(LIMITS), entries)
    for state in states:
        hits, expected = index.search(state, exact_max=ALL, partial_max=ALL), naive(entries, state)
        assert everything(hits) == expected
        assert (hits.exact_total, hits.partial_total) == (len(expected.exact), len(expected.partial))


@settings(max_examples=25)
@given(ENTRY_LISTS, STATES)
def test_it_finds_the_same_when_state_values_are_too_large_to_compare(
    entries: list[Entry], state: dict[str, Any]
) -> None:
    tight = limits(state_nodes_max=2, state_text_chars_max=2, pattern_text_chars_max=2, state_depth_max=2)
    hits = ConditionIndex(Evaluator(tight), entries).search(state, exact_max=ALL, partial_max=ALL)
    assert everything(hits) == naive(entries, state, tight)


@settings(max_examples=50)
@given(ENTRY_LISTS, STATES, st.integers(0, 5), st.integers(0, 5), st.sampled_from((None, 0.4, 0.6)))
def test_limits_keep_the_best(
    entries: list[Entry], state: dict[str, Any], exact: int, partial: int, least: float | None
) -> None:
    strong = [one for one in entries if least is None or one.strength >= least]
    expected = naive(strong, state)
    hits = search(entries, state, exact_max=exact, partial_max=partial, strength_min=least)
    assert everything(hits) == Expected(expected.exact[:exact], expected.partial[:partial])


@settings(max_examples=20)
@given(ENTRY_LISTS, STATES, st.integers(1, 3))
def test_what_accept_refuses_does_not_use_up_the_limit(entries: list[Entry], state: dict[str, Any], limit: int) -> None:
    def odd(experience_id: UUID) -> bool:
        return experience_id.int % 2 == 1

    expected = naive([one for one in entries if odd(one.id)], state)
    hits = search(entries, state, exact_max=limit, partial_max=limit, accept=odd)
    assert everything(hits) == Expected(expected.exact[:limit], expected.partial[:limit])


class ChangingIndex(RuleBasedStateMachine):
    """Adding, replacing and removing in any order leaves an index like a new one."""

    def __init__(self) -> None:
        super().__init__()
        self.index = ConditionIndex(Evaluator(LIMITS))
        self.kept: dict[UUID, Entry] = {}

    @rule(one=ENTRIES)
    def add(self, one: Entry) -> None:
        self.index.add(one)
        self.kept[one.id] = one

    @precondition(lambda self: self.kept)
    @rule(data=st.data(), other=ENTRIES)
    def replace(self, data: st.DataObject, other: Entry) -> None:
        changed = replace(other, id=data.draw(st.sampled_from(sorted(self.kept))))
        self.index.add(changed)
        self.kept[changed.id] = changed

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        gone = data.draw(st.sampled_from(sorted(self.kept)))
        assert self.index.remove(gone)
        assert not self.index.remove(gone)
        del self.kept[gone]

    @rule(state=STATES)
    def search(self, state: dict[str, Any]) -> None:
        hits = self.index.search(state, exact_max=ALL, partial_max=ALL)
        assert everything(hits) == naive(list(self.kept.values()), state)

    @invariant()
    def it_knows_how_many_there_are(self) -> None:
        assert len(self.index) == len(self.kept)


ChangingIndex.TestCase.settings = settings(max_examples=10, stateful_step_count=20)
TestChangingIndex = ChangingIndex.TestCase


def test_a_hit_tells_which_triples_matched_and_which_are_missing() -> None:
    hits = search(
        [entry(1, triple("tool", "eq", "bash"), triple("args.path", "starts_with", "/etc"))], {"tool": "bash"}
    )
    (hit,) = hits.partial
    assert [c.field for c in hit.match.matched] == ["tool"]
    assert [c.field for c in hit.match.missing] == ["args.path"]
    assert not hits.exact


def test_the_more_confident_comes_first_then_the_newer() -> None:
    entries = [
        entry(1, triple(), strength=0.5, hours=9),
        entry(2, triple(), strength=0.8, hours=1),
        entry(3, triple(), strength=0.8, hours=2),
    ]
    assert [hit.id.int for hit in search(entries, {"tool": "bash"}).exact] == [3, 2, 1]


def test_a_partial_match_with_a_greater_share_of_true_triples_comes_first() -> None:
    entries = [
        entry(1, triple(), triple("x"), strength=0.9),
        entry(2, triple(), triple("a", "eq", 1), triple("x"), strength=0.3),
    ]
    assert [hit.id.int for hit in search(entries, {"tool": "bash", "a": 1}).partial] == [2, 1]


def test_an_empty_index_finds_nothing() -> None:
    assert search([], {"a": 1}) == Hits((), (), 0, 0)


def test_removing_everything_leaves_no_field_behind() -> None:
    index = ConditionIndex(Evaluator(LIMITS))
    for number in range(1, 500):
        index.add(
            entry(
                number,
                triple(f"f{number}.x", "eq", number),
                triple(f"g{number}", "gt", number),
                triple("h", "exists", True),
            )
        )
    for number in range(1, 500):
        assert index.remove(UUID(int=number))
    assert len(index) == 0
    assert not index._fields
    assert index._tree._root == {}
    index.add(entry(1, triple()))
    assert len(index._triples._conditions) < 1500  # freed numbers are used again


def test_a_pattern_is_only_run_for_experiences_that_nothing_cheaper_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator, ran = Evaluator(LIMITS), []
    holds = evaluator.holds
    monkeypatch.setattr(
        evaluator, "holds", lambda condition, operand: ran.append(condition.operator) or holds(condition, operand)
    )
    entries = [entry(n + 1, triple("tool", "eq", f"t{n}"), triple("error", "matches", f"code {n}")) for n in range(100)]
    hits = ConditionIndex(evaluator, entries).search({"tool": "t7", "error": "code 7"}, exact_max=5, partial_max=5)
    assert [hit.id.int for hit in hits.exact] == [8]
    assert len(ran) < 10


def test_a_huge_or_deep_state_is_searched_without_reading_it_all() -> None:
    deep: Any = "bash"
    for _ in range(5000):
        deep = {"x": deep}
    state = {"tool": "bash", "deep": deep, "list": list(range(200_000)), **{f"k{n}": n for n in range(20_000)}}
    entries = [
        entry(1, triple()),
        entry(2, triple("list", "contains", 5)),
        entry(3, triple("deep.x.x", "exists", True)),
    ]
    assert {hit.id.int for hit in search(entries, state).exact} == {1, 2, 3}
