"""Which memories become one, and what does it say?  Groups never chain topics, and no number is lost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_service.domain import Memory, new_id
from memory_service.lifecycle.compress import (
    Candidate,
    Group,
    alike_by_nature,
    closeness,
    first_window,
    groups_of,
    slices,
)
from memory_service.lifecycle.compress_rules import CompressNumbers, TextPatterns, load_text_patterns
from memory_service.lifecycle.summary_facts import Facts, facts_json, facts_of
from memory_service.lifecycle.summary_model import Worded, objections
from memory_service.lifecycle.summary_text import date_range, duration, head_line, rules_text, summary_memory
from memory_service.models.ports import Vector
from memory_service.settings import Settings
from tests.unit.lifecycle.lifecycle_factories import HEAT, SHIPPED, a_memory

NUMBERS = SHIPPED.section("compress", CompressNumbers)
PATTERNS: TextPatterns = load_text_patterns(Path(Settings().config_folder) / "compress.toml")
MARCH = datetime(2026, 3, 2, 9, tzinfo=UTC)


def candidate(day: float = 0, **fields: Any) -> Candidate:
    given = {
        "id": new_id(), "version": 1, "kind": "episodic", "event_type": "observation", "category": None, "outcome": None,
        "tools": (), "chinese": False, "occurred_at": MARCH + timedelta(days=day),
    }  # fmt: skip
    return Candidate(**{**given, **fields})


def at_angles(ones: list[Candidate], degrees: list[float]) -> dict[UUID, Vector]:
    """Unit vectors in a plane: what is between two of them is the difference of their angles."""
    return {
        one.id: np.array([np.cos(np.radians(a)), np.sin(np.radians(a))], np.float32)
        for one, a in zip(ones, degrees, strict=True)
    }


def grouped(ones: list[Candidate], degrees: list[float], midpoint: float = 0.0) -> list[set[int]]:
    """The groups as sets of places in `ones`."""
    places = {one.id: at for at, one in enumerate(ones)}
    found = groups_of(ones, at_angles(ones, degrees), midpoint, NUMBERS.cold)
    return [{places[m.id] for m in group.members} for group in found]


def weather(city: str = "Berlin", day: float = 0, ms: float | None = 200, **fields: Any) -> Memory:
    call: dict[str, Any] = {"tool": "weather_api", "arguments": {"city": city}, "status": "success"}
    call |= {"duration_ms": ms} if ms is not None else {}
    given = {
        "kind": "episodic", "content": f"Called weather_api for {city}", "summary": f"Called weather_api for {city}",
        "event_type": "tool_result", "tool_calls": (call,), "occurred_at": MARCH + timedelta(days=day),
    }  # fmt: skip
    return a_memory(**{**given, **fields})


def told(*sources: Memory) -> Facts:
    return facts_of(sources, NUMBERS, PATTERNS)


# Groups.


def test_memories_that_are_alike_become_one_group_and_others_stay_out() -> None:
    ones = [candidate(day) for day in range(6)]
    assert grouped(ones, [0, 4, 8, 80, 2, 84]) == [{0, 1, 2, 4}]


def test_a_chain_of_neighbours_that_drifts_to_another_topic_is_not_one_group() -> None:
    ones = [candidate(n) for n in range(10)]
    degrees = [n * 20.0 for n in range(10)]  # each is near the next: single linkage makes one group of all
    for group in grouped(ones, degrees):
        assert max(group) - min(group) <= 3
        assert len(group) < 5
    near = closeness(np.stack(list(at_angles(ones, degrees).values())), 0.0)
    assert all(near[n, n + 1] >= NUMBERS.closeness_min for n in range(9))
    assert near[0, 9] < 0


def test_what_shares_few_words_stays_apart_however_close_its_vectors_are() -> None:
    deployed, rolled_back = (
        frozenset(["deploy", "orders-service", "production"]),
        frozenset(["roll", "back", "orders-service"]),
    )
    ones = [candidate(day, words=rolled_back if day == 3 else deployed) for day in range(4)]
    assert grouped(ones, [0] * 4) == [{0, 1, 2}]
    assert grouped([candidate(day, words=one.words, tools=("deploy",)) for day, one in enumerate(ones)], [0] * 4) == [
        {0, 1, 2, 3}
    ]


def test_what_happened_months_apart_is_not_one_group() -> None:
    ones = [candidate(day) for day in (0, 1, 2, 100, 101, 102)]
    assert grouped(ones, [0] * 6) == [{0, 1, 2}, {3, 4, 5}]


def test_fewer_than_group_min_stay_as_they_are_and_more_than_group_max_are_cut() -> None:
    assert grouped([candidate(n) for n in range(2)], [0, 0]) == []
    ones = [candidate(n / 100) for n in range(NUMBERS.group_max + 50)]
    assert [len(group) for group in grouped(ones, [0] * len(ones))] == [NUMBERS.group_max, 50]


def test_new_memories_join_the_summary_that_is_there_also_a_single_one() -> None:
    summary = new_id()
    ones = [candidate(n, summary_id=summary) for n in range(3)] + [candidate(4)]
    (group,) = groups_of(ones, at_angles(ones, [0, 2, 4, 3]), 0.0, NUMBERS.cold)
    assert (group.summary_id, [one.id for one in group.new]) == (summary, [ones[3].id])
    assert groups_of(ones, at_angles(ones, [0, 2, 4, 80]), 0.0, NUMBERS.cold) == []


def test_a_memory_whose_vector_is_missing_waits() -> None:
    ones = [candidate(n) for n in range(4)]
    vectors = at_angles(ones, [0] * 4)
    del vectors[ones[1].id]
    (group,) = groups_of(ones, vectors, 0.0, NUMBERS.cold)
    assert ones[1] not in group.members


def test_only_what_is_alike_by_nature_is_compared() -> None:
    plain = candidate()
    others = [
        candidate(event_type="decision"), candidate(kind="semantic"), candidate(tools=("a",)), candidate(chinese=True),
    ]  # fmt: skip
    assert len(alike_by_nature([plain, *others], NUMBERS.cold)) == 5
    ended = [candidate(outcome="success"), candidate(outcome="failure"), candidate(all_calls_worked=False)]
    assert len(alike_by_nature(ended, NUMBERS.cold)) == 1
    assert len(alike_by_nature(ended, NUMBERS.repeated)) == 3


def test_so_many_are_compared_at_once_and_no_more() -> None:
    ones = [candidate(n / 1000) for n in range(2 * NUMBERS.compared_max + 1)]
    parts = list(slices(ones, NUMBERS.cold))
    assert [len(part) for part in parts] == [NUMBERS.compared_max, NUMBERS.compared_max, 1]
    assert [one for part in parts for one in part] == ones


@given(st.lists(st.tuples(st.floats(0, 360), st.floats(0, 90)), min_size=1, max_size=30))
def test_every_two_members_are_close_in_meaning_and_in_time(spots: list[tuple[float, float]]) -> None:
    ones = sorted((candidate(day) for _, day in spots), key=lambda one: (one.occurred_at, one.id))
    vectors = at_angles(ones, [angle for angle, _ in spots])
    found: list[Group] = groups_of(ones, vectors, 0.0, NUMBERS.cold)
    members = [m.id for group in found for m in group.members]
    assert len(members) == len(set(members))
    for group in found:
        near = closeness(np.stack([vectors[m.id] for m in group.members]), 0.0)
        assert near.min() >= NUMBERS.closeness_min - 1e-5
        days = (group.members[-1].occurred_at - group.members[0].occurred_at) / timedelta(days=1)
        assert days <= NUMBERS.span_days_max + 1e-6
        assert NUMBERS.group_min <= len(group.members) <= NUMBERS.group_max


# What a summary says.


def test_ten_calls_become_one_sentence_with_counts_mean_and_month() -> None:
    sources = [weather(day=n * 2, ms=180 + 40 * (n % 2)) for n in range(10)]
    assert head_line(told(*sources)) == "weather_api called 10 times, 10 succeeded, 200 ms on average, March 2026."


def test_in_chinese_when_the_sources_are_chinese() -> None:
    sources = [
        weather("北京", n, summary=f"查询北京第{n}天的天气", content=f"查询北京第{n}天的天气") for n in range(10)
    ]
    assert head_line(told(*sources)) == "weather_api 调用 10 次，成功 10 次，平均 200 毫秒，2026年3月。"
    text = rules_text(told(*sources))
    assert "参数：city: 北京 ×10" in text
    assert "原文：" in text


def test_failures_rates_errors_arguments_and_the_span_of_durations_are_kept() -> None:
    failed = {
        "tool": "weather_api",
        "arguments": {"city": "Oslo"},
        "status": "error",
        "error": "429 slow down",
        "duration_ms": 50,
    }
    sources = [weather("Berlin", n) for n in range(6)] + [
        weather("Oslo", 7 + n, tool_calls=(failed,)) for n in range(2)
    ]
    text = rules_text(told(*sources))
    assert text.startswith(
        "weather_api called 8 times, 6 succeeded, 2 failed (75% success), 162 ms on average, March 2026."
    )
    assert "Durations: 50 ms to 200 ms" in text
    assert "Arguments: city: Berlin ×6, Oslo ×2" in text
    assert "Errors: 429 slow down ×2" in text
    assert facts_json(told(*sources)) == {
        "memories": 8, "times": 8, "worked": 6, "failed": 2, "success_rate": 0.75, "tools": ["weather_api"],
        "duration_ms": {"average": 162.5, "shortest": 50.0, "longest": 200.0},
        "first": "2026-03-02T09:00:00Z", "last": "2026-03-10T09:00:00Z",
    }  # fmt: skip


def test_texts_without_tool_calls_are_counted_by_their_words() -> None:
    texts = [f"Nightly backup finished in {n} minutes" for n in (10, 12, 14)] + ["Nightly backup failed after 4 min"]
    sources = [weather(day=n, content=t, summary=t, tool_calls=()) for n, t in enumerate(texts)]
    assert head_line(told(*sources)) == (
        "“Nightly backup finished in 10 minutes” and the like 4 times, 3 succeeded, 1 failed (75% success), 10 min on average, "
        "March 2026."
    )


@pytest.mark.parametrize(
    ("text", "ended", "ms"),
    [
        ("weather API succeeded in 200 ms", True, 200),
        ("it took 1.5 s and was successful", True, 1500),
        ("调用成功，耗时 200 毫秒", True, 200),
        ("请求超时，用了 3 秒", False, 3000),
        ("did not fail", None, None),
        ("unsuccessful after 2 s", None, 2000),
        ("took 2 s, then 3 s", None, None),
        ("version 1.2.3 s", None, None),
        ("started at 5 m", None, None),
    ],
)
def test_what_words_say_is_read_and_what_is_doubtful_is_not(text: str, ended: bool | None, ms: float | None) -> None:
    assert (PATTERNS.ended(text), PATTERNS.duration_ms(text)) == (ended, ms)


def test_when_not_every_end_is_known_the_sentence_says_of_how_many() -> None:
    sources = [weather(day=n, content=t, summary=t, tool_calls=()) for n, t in enumerate(["ran, ok", "ran", "ran, ok"])]
    assert ", 2 with a known end, 2 succeeded, " in head_line(told(*sources))


def test_of_facts_every_statement_is_quoted() -> None:
    texts = [f"The user likes tea number {n}" for n in range(12)]
    sources = [a_memory(content=t, summary=t, occurred_at=MARCH + timedelta(days=n)) for n, t in enumerate(texts)]
    text = rules_text(told(*sources))
    assert text.startswith("12 similar statements, March 2026.")
    assert all(t in text for t in texts)


def test_the_summary_is_a_memory_like_its_sources() -> None:
    sources = [
        weather(day=n, tags=("x", f"t{n}"), agent_id="a", outcome="success", importance=n / 10) for n in range(4)
    ]
    facts = told(*sources)
    made = summary_memory(sources, facts, head_line(facts), rules_text(facts), "rules", MARCH, HEAT, NUMBERS)
    assert (made.kind, made.event_type, made.outcome, made.agent_id) == ("episodic", "tool_result", "success", "a")
    assert (made.importance, made.occurred_at) == (0.3, sources[-1].occurred_at)
    assert made.source_memory_ids == tuple(m.id for m in sources)
    assert set(made.tags) == {"x", "t0", "t1", "t2", "t3"}
    assert len(made.tool_calls) == 1
    assert made.metadata["compressed"]["times"] == 4


@pytest.mark.parametrize(
    ("last", "english", "chinese"),
    [
        (MARCH, "2 March 2026", "2026年3月2日"),
        (MARCH + timedelta(days=20), "March 2026", "2026年3月"),
        (MARCH + timedelta(days=30), "2 March 2026 to 1 April 2026", "2026年3月2日至2026年4月1日"),
    ],
)
def test_dates_are_told_as_a_day_a_month_or_from_to(last: datetime, english: str, chinese: str) -> None:
    assert date_range(MARCH, last, chinese=False) == english
    assert date_range(MARCH, last, chinese=True) == chinese


@pytest.mark.parametrize(
    ("ms", "said"), [(0.25, "0.25 ms"), (200, "200 ms"), (1200, "1.2 s"), (90_000, "1.5 min"), (7_200_000, "2 h")]
)
def test_a_duration_has_the_unit_that_a_person_would_use(ms: float, said: str) -> None:
    assert duration(ms, chinese=False) == said


# A language model's words.


def test_a_models_text_is_believed_when_it_keeps_every_number_and_invents_none() -> None:
    facts = told(*(weather(day=n) for n in range(10)))
    head, shown = head_line(facts), rules_text(facts)
    good = "In March 2026 weather_api was called 10 times; all 10 succeeded, taking 200 ms on average."
    assert objections(Worded(good, good), facts, shown) == []
    for bad, why in [
        ("In March 2026 weather_api was called ten times, 200 ms on average.", "lost the numbers 10"),
        (f"{good} That is 12 more than in April.", "invented the numbers 12"),
        (good.replace("weather_api", "The API"), "does not name weather_api"),
    ]:
        assert any(why in one for one in objections(Worded(bad, bad), facts, shown)), bad
    assert objections(Worded("", head), facts, shown) == ["it is empty"]
    chinese = "2026年3月 weather_api 共调用 10 次，全部成功 10 次，平均耗时 200 毫秒。"
    assert "it is in another language" in objections(Worded(chinese, chinese), facts, shown)


@pytest.mark.parametrize(("windows", "at_once"), [(6, 5), (7, 5), (10, 5), (23, 5), (2, 1), (9, 4)])
def test_weekly_runs_that_read_a_few_windows_reach_all_of_them(windows: int, at_once: int) -> None:
    began = datetime(2026, 3, 2, 9, tzinfo=UTC)
    reached: set[int] = set()
    for week in range(windows):
        first = first_window(began + timedelta(days=7 * week), windows, at_once)
        reached |= set(range(first, min(first + at_once, windows)))
    assert reached == set(range(windows))
