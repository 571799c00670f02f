"""Which advice was taken, which memories were used."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

from memory_service.domain import Experience, Memory
from memory_service.tasks.used import (
    Advised,
    Given,
    JudgedBy,
    carried_out,
    experiences_used,
    followed,
    memories_used,
)
from memory_service.working.items import Step
from tests.unit.tasks.task_factories import NOON, call, distill_rules, later, lesson, task_numbers

OLD = {"url": "https://x/v1/users"}


BY = JudgedBy.of(distill_rules(), task_numbers())


def told(experience: Experience, at: float = 0, tool: str = "http_get") -> Advised:
    return Advised(tool, OLD, later(at), (experience.id,))


@pytest.mark.parametrize(
    ("action", "avoid", "after", "taken"),
    [
        ("use v2", "calling v1", call(**OLD), False),  # warned, and did it all the same
        ("use v2", "calling v1", call(url="https://x/v2/users"), True),
        ("send a page number", None, call(**OLD), True),  # nothing to avoid: the plan was confirmed
        ("send a `page` number", None, call(**OLD, page=1), True),
        ("be careful", None, call(**OLD, page=1), False),
        ("use `sql_query` instead", "http_get", call("sql_query", q="x"), True),
        ("use v2", "calling v1", call("read_file", path="x"), False),  # something else altogether
        ("先调用 list_users", "http_get", call("list_users"), True),
    ],
)  # fmt: skip
def test_whether_the_next_call_follows_a_lesson(action: str, avoid: str | None, after: Step, taken: bool) -> None:
    experience = lesson(action, avoid)
    assert followed(experience, told(experience), after) is taken


def test_only_the_first_call_after_the_advice_counts_and_each_lesson_once() -> None:
    taken, ignored, unasked, late = lesson(), lesson(), lesson(), lesson()
    advised = [told(taken, at=1), told(ignored, at=3), told(taken, at=4), told(late, at=99)]
    calls = [call(at=0.5, url="before"), call(at=2, url="v2"), call(at=3.5, **OLD), call(at=5, url="v2")]
    known = {one.id: one for one in (taken, ignored, unasked, late)}
    assert experiences_used(advised, (), calls, known, BY) == {taken.id: True}


def test_a_lesson_that_is_gone_or_somebody_elses_is_not_judged() -> None:
    gone = lesson()
    assert experiences_used([told(gone)], [Given(NOON, (gone.id,))], [call(at=1, url="v2")], {}, BY) == {}


def test_a_lesson_failed_when_any_call_that_followed_it_failed() -> None:
    wrong, right, mixed = lesson(), lesson(), lesson()
    known = {one.id: one for one in (wrong, right, mixed)}
    advised = [told(wrong, at=1), told(mixed, at=1), told(right, at=3), told(mixed, at=3)]
    calls = [call(at=2, error="415", url="v2"), call(at=4, url="v2")]
    assert experiences_used(advised, (), calls, known, BY) == {wrong.id: False, mixed.id: False, right.id: True}


def test_a_warning_that_was_ignored_is_not_blamed_for_the_failure() -> None:
    experience = lesson("use v2", "calling v1")
    calls = [call(at=1, error="410", **OLD)]
    assert experiences_used([told(experience)], (), calls, {experience.id: experience}, BY) == {}


def test_a_service_that_was_down_proves_no_lesson_wrong() -> None:
    assert BY.passing <= {known.name for known in BY.rules.error_classes}
    for error, by_itself in (
        ("415 Unsupported Media Type", True),
        ("503", False),
        ("429", False),
        ("timed out", False),
    ):
        assert BY.fails_by_itself(call(error=error)) is by_itself
    assert not BY.fails_by_itself(call())
    assert BY.fails_by_itself(Step("x", "error", {}))


@pytest.mark.parametrize(
    ("action", "avoid", "done", "taken"),
    [
        ("Call `http_get` with `format` = json.", "xml", call(url="x", format="json"), True),
        ("Call `http_get` with `format` = json.", "xml", call(url="x", format="xml"), False),  # what it warns of
        ("Call `http_get` with `format` = json.", "xml", call(url="x"), False),  # neither
        ("Call `http_get` with `format` = json.", "xml", call("post", kind="json"), False),  # another tool
        ("use /v2/users", "/v1/users", call(url="/v2/users"), True),
        ("use /v2/users", "/v1/users", call(**OLD), False),
        ("Call `login` first.", None, call("login", service="x"), True),  # the conditions speak of another tool
        ("be careful", None, call(**OLD), False),
    ],
)  # fmt: skip
def test_whether_a_call_does_what_was_told_at_the_start(
    action: str, avoid: str | None, done: Step, taken: bool
) -> None:
    assert carried_out(lesson(action, avoid), done, BY.asking_words) is taken


def test_what_was_given_at_the_start_counts_by_the_first_later_call_that_does_it() -> None:
    good, bad, unused = (lesson(f"use {word}", "raw") for word in ("page", "cursor", "offset"))
    known = {one.id: one for one in (good, bad, unused)}
    given = [Given(later(1), tuple(known))]
    calls = [
        call(at=0.5, cursor="early"), call(at=2, page=1), call(at=3, error="no", page=2), call(at=4, error="no", cursor="a")
    ]  # fmt: skip
    assert experiences_used((), given, calls, known, BY) == {good.id: True, bad.id: False}


def test_a_note_of_advice_survives_its_line() -> None:
    note = Advised(
        "工具",
        {"q": "a\nb\u2028", "n": 2**63 - 1, "deep": {"x": [None, True]}},
        later(0.123456),
        (uuid4(),),
        ("a", "b"),
    )
    line = note.to_line()
    assert b"\n" not in line
    assert Advised.from_line(line) == note
    older = line.replace(b',"marks":["a","b"]', b"")
    assert Advised.from_line(older) == Advised(note.tool, note.arguments, note.at, note.experience_ids)


def test_a_memory_is_used_when_calls_carry_several_of_its_words() -> None:
    words = distill_rules().vocabulary

    def memory(content: str) -> Memory:
        return Memory(uuid4(), "t", "semantic", "u", content, content, NOON, NOON, NOON)

    useful = memory("The warehouse cluster listens at port 6543 with the account reporting_ro")
    other = memory("Ana prefers short answers in the morning")
    goal = "Export the orders"
    calls = [
        call("sql", port=6543, account="reporting_ro", host="warehouse"),
        call("sql", error="no", note=other.content),
    ]
    assert memories_used([useful, other], goal, calls, words, 3) == [useful.id]
    assert memories_used([useful], useful.content, calls, words, 3) == []  # the goal said so itself
    assert memories_used([useful], goal, calls, words, 30) == []


def test_time_decides_not_order() -> None:
    experience = lesson()
    calls = [call(at=9, **OLD), call(at=2, url="v2")]
    assert sorted(calls, key=lambda one: one.at or NOON)[0].at == NOON + timedelta(seconds=2)
    ordered = sorted(calls, key=lambda one: one.at or NOON)
    assert experiences_used([told(experience, at=1)], (), ordered, {experience.id: experience}, BY)
