"""Which earlier calls tell about a planned one, and which of them are said once for all."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from memory_service.domain import Experience
from memory_service.experience.trajectory import words
from memory_service.stores.postgres.tasks import ToolUse
from memory_service.tasks.calls import PlannedCall
from memory_service.tasks.earlier import Met, Said, own_failures, past_uses, uncovered
from memory_service.tasks.opposites import telling
from memory_service.working.items import FailedAttempt, Step
from tests.unit.tasks.task_factories import call, later, lesson, task_numbers

PLANNED = PlannedCall("http_get", {"url": "https://x/v1/users"})
NUMBERS = task_numbers()
MOST = NUMBERS.hints_per_type_max


def own(*calls: Step, noted: tuple[FailedAttempt, ...] = ()) -> list[Met]:
    return own_failures(PLANNED, calls, noted, "task", NUMBERS)


def use(*calls: dict[str, Any], day: int = 0) -> ToolUse:
    told = [{"tool": "http_get", "arguments": dict(PLANNED.arguments), **one} for one in calls]
    return ToolUse(uuid4(), later(86_400 * day), told)


def said(experience: Experience) -> Said:
    fields = [str(one["field"]).partition(".") for one in experience.conditions]
    texts = (experience.action, experience.avoid or "", experience.rationale or "")
    named = frozenset(rest for head, _, rest in fields if head == "arguments" and rest in experience.action)
    return Said(telling(experience, frozenset({"use"})), named, frozenset(w for text in texts for w in words(text)))


def test_the_same_call_that_failed_in_this_task_is_counted() -> None:
    same = dict(PLANNED.arguments)
    (one,) = own(call(error="410", at=1, **same), call(error="410 Gone", at=2, **same))
    assert (one.count, one.likeness, one.call.error, one.here) == (2, 1.0, "410 Gone", True)


def test_a_similar_call_that_failed_is_told_after_the_same_one() -> None:
    first, second = own(call(error="no", at=9, url="https://x/v1/orders"), call(error="410", at=1, **PLANNED.arguments))
    assert (first.likeness, second.call.arguments) == (1.0, {"url": "https://x/v1/orders"})


def test_calls_of_other_tools_and_of_unlike_arguments_are_not_told() -> None:
    assert own(call("rm", error="no", path="/"), call(error="no", path="/etc/hosts")) == []


def test_a_failure_that_was_cured_with_the_same_arguments_is_no_warning() -> None:
    same = dict(PLANNED.arguments)
    assert own(call(error="timeout", at=1, **same), call(at=2, **same)) == []
    assert len(own(call(at=1, **same), call(error="timeout", at=2, **same))) == 1


def test_failures_in_the_agents_own_words_count_when_they_name_the_tool() -> None:
    noted = (
        FailedAttempt("http_get the user list", reason="it is gone", at=later(1)),
        FailedAttempt("asked the user", at=later(2)),
    )
    (one,) = own(noted=noted)
    assert (one.noted, one.call.error) == ("http_get the user list", "it is gone")


def test_a_recorded_failure_is_not_told_a_second_time_from_the_notes() -> None:
    failed = call(error="410", at=1, **PLANNED.arguments)
    assert len(own(failed, noted=(FailedAttempt("http_get {}", error="410", at=failed.at),))) == 1


def test_failures_with_the_same_kind_of_error_are_one_with_the_count_of_all() -> None:
    uses = [
        use({"status": "error", "error": f"410 Gone: /v1/users/{n} at 12:0{n}", "arguments": {"url": f"https://x/v1/users/{n}"}}, day=n)
        for n in range(5)
    ]  # fmt: skip
    failed, _ = past_uses(PLANNED, uses[::-1], NUMBERS)
    assert [(one.count, one.at) for one in failed] == [(5, later(4 * 86_400))]


def test_failures_of_different_kinds_stay_apart_and_are_bounded() -> None:
    errors = ["Gone", "Forbidden", "could not parse", "no such host", "too large"]
    uses = [use({"status": "error", "error": error, "arguments": {"url": f"https://x/v1/{error}"}}) for error in errors]
    failed, _ = past_uses(PLANNED, uses, NUMBERS)
    assert [one.count for one in failed] == [1] * MOST
    assert len({one.call.error for one in failed}) == MOST


def test_successes_that_differ_in_run_data_are_one_and_those_that_differ_in_a_setting_are_two() -> None:
    planned = PlannedCall("read", {"path": "/data/in/c.csv", "encoding": "utf-8"})
    told = [
        {"path": "/data/in/a.csv", "encoding": "utf-8"}, {"path": "/data/in/b.csv", "encoding": "utf-8"},
        {"path": "/data/in/d.csv", "encoding": "gbk"}, {"path": "/data/in/e.csv", "encoding": "gbk"},
    ]  # fmt: skip
    uses = [use({"status": "success", "arguments": arguments}) for arguments in told]
    _, worked = past_uses(planned, uses, NUMBERS)
    assert [(one.call.arguments["encoding"], one.count) for one in worked] == [("utf-8", 2), ("gbk", 2)]


def test_when_the_very_call_worked_others_like_it_are_not_told() -> None:
    uses = [use({"status": "ok"}), use({"status": "ok", "arguments": {"url": "https://x/v1/orders"}})]
    _, worked = past_uses(PLANNED, uses, NUMBERS)
    assert [one.likeness for one in worked] == [1.0]


def test_arguments_of_a_memory_may_be_anything() -> None:
    arguments, statuses = (None, "text", ["a"], {"url": None}), ("error", "ok")
    odd = [use({"status": status, "arguments": one}) for one in arguments for status in statuses]
    assert all(isinstance(one, Met) for found in past_uses(PLANNED, odd, NUMBERS) for one in found)


RULE = lesson(
    "Call `http_get` with a `url` that starts with `https://x/v2/`.",
    "Calling `http_get` with one that starts with `https://x/v1/`.",
    rationale="It failed with “410 Gone” (gone) and worked once that was changed.",
    conditions=(
        {"field": "arguments.url", "operator": "starts_with", "value": "https://x/v1/"},
        {"field": "tool", "operator": "eq", "value": "http_get"},
    ),
)
BY_HAND = lesson("use /v2/users", "calling /v1/users")


@pytest.mark.parametrize(
    ("rule", "one", "told"),
    [
        (RULE, call(error="410 Gone", url="https://x/v1/orders"), False),  # what the lesson warns of
        (RULE, call(error="410 Gone", url="https://y/orders"), False),  # the error that the lesson tells
        (RULE, call(error="could not resolve the host name", url="https://y/orders"), True),  # another story
        (RULE, call(url="https://x/v2/orders"), False),  # what the lesson says to do
        (RULE, call(url="https://x/v1/orders"), True),  # what the lesson would not expect
        (BY_HAND, call(error="410", url="https://x/v1/users"), False),
        (BY_HAND, call(url="https://x/v2/users"), False),
        (BY_HAND, call(url="https://x/v1/users"), True),
    ],
)
def test_what_a_lesson_says_is_not_told_as_a_case_too(rule: Experience, one: Step, told: bool) -> None:
    met = Met(0.9, 1, one, one.at, "memory")
    assert uncovered([met], PLANNED, [said(rule)], NUMBERS) == ([met] if told else [])


def test_what_failed_in_this_very_task_with_these_arguments_is_always_told() -> None:
    failed = call(error="410 Gone", **PLANNED.arguments)
    here, noted = (
        Met(1.0, 2, failed, failed.at, "task", here=True),
        Met(0.0, 1, failed, None, "task", True, "http_get it"),
    )
    alike = Met(0.9, 1, failed, failed.at, "task", here=True)
    assert uncovered([here, noted, alike], PLANNED, [said(RULE)], NUMBERS) == [here, noted]
