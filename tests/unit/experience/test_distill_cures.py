"""Which later call cured a failed one, how far does its lesson reach, and which findings say nothing?"""

from typing import Any

import pytest

from memory_service.experience.baseline import baseline_of
from memory_service.experience.conditions import parse_conditions
from memory_service.experience.lessons import Lesson, state_of
from memory_service.experience.matching import Evaluator
from memory_service.experience.trajectory import Trajectory
from tests.unit.experience.condition_factories import LIMITS
from tests.unit.experience.trajectory_factories import (
    bad,
    conditions_of,
    effort,
    lessons,
    ok,
    refused,
    review_rules,
    reviewed,
    rules,
    run,
)


def recovered(*steps: Any) -> Lesson:
    [lesson] = lessons(run(*steps), "recovered_call")
    return lesson


def warns(lesson: Lesson, tool: str, **arguments: Any) -> str | None:
    conditions = parse_conditions([triple.as_json() for triple in lesson.conditions], LIMITS)
    state = state_of(rules(), goal="Another goal", task_type=None, tool=tool, arguments=arguments, past=[])
    return Evaluator(LIMITS).match(conditions, state).kind


def shell(command: str, error: str = "") -> Any:
    return bad("shell", error, cmd=command) if error else ok("shell", cmd=command)


# ---------------------------------------------------------------- the cure is the most similar later success


@pytest.mark.parametrize(
    ("failed", "between", "cure"),
    [
        ("git push origin main", "git checkout -b release/next", "git push origin release/next"),
        ("npm install left-pad", "npm config set registry https://npm.test", "npm install left-pad --legacy-peer-deps"),
        ("docker build images/web", "docker login registry.test", "docker build --no-cache images/web"),
    ],
)
def test_the_cure_of_a_command_is_the_same_command_and_not_the_next_one_that_worked(
    failed: str, between: str, cure: str
):
    lesson = recovered(shell(failed, "rejected: 1"), shell(between), shell(cure))
    assert cure in lesson.action
    assert between not in lesson.action
    assert warns(lesson, "shell", cmd=failed) == "exact"


def test_another_command_cures_nothing():
    assert lessons(run(shell("git push origin main", "GH006"), shell("git status")), "recovered_call") == []


def test_the_cure_of_a_call_is_the_one_that_kept_most_of_its_arguments():
    lesson = recovered(
        bad("create_event", "422 invalid zone", room="blue", zone="CET", kind="talk"),
        ok("create_event", room="red", zone="UTC", kind="lunch"),
        ok("create_event", room="blue", zone="Europe/Vienna", kind="talk"),
    )
    assert "Europe/Vienna" in lesson.action


def test_a_call_that_worked_unchanged_later_has_no_cure_in_its_arguments():
    same = {"table": "orders", "mode": "fast"}
    found = run(bad("query", "busy", **same), ok("query", **same), ok("query", table="orders", mode="safe"))
    assert lessons(found, "recovered_call") == []


# ---------------------------------------------------------------- how far a lesson reaches


def test_a_format_that_was_refused_is_told_by_file_type_for_every_file_of_it():
    lesson = recovered(
        bad("upload", "415 Unsupported Media Type", file="scan.tiff", format="tiff"),
        ok("upload", file="scan.jpg", format="jpeg"),
    )
    assert conditions_of(lesson) == {("tool", "eq", "upload"), ("arguments.file", "matches", r"(?i)\.tiff$")}
    assert warns(lesson, "upload", file="x.TIFF") == "exact"
    assert warns(lesson, "upload", file="x.jpg", format="jpeg") is None
    assert '`format` = "jpeg"' in lesson.action


@pytest.mark.parametrize("body", ["x", '{"n": 1}'])
def test_the_text_that_was_sent_is_no_condition_when_a_setting_was_the_matter(body: str):
    lesson = recovered(
        bad("http_post", "415 unsupported media type: text/plain", content_type="text/plain", body="x"),
        ok("http_post", content_type="application/json", body=body),
    )
    assert conditions_of(lesson) == {("tool", "eq", "http_post"), ("arguments.content_type", "eq", "text/plain")}


def test_a_value_that_only_stands_inside_a_word_of_the_error_is_not_what_it_names():
    call = bad("http_post", "unsupported media type: text or plain", note="x", kind="plain")
    [lesson] = lessons(run(call, ok("list_kinds"), outcome="failure"), "permanent_error")
    assert conditions_of(lesson) == {("tool", "eq", "http_post"), ("arguments.kind", "eq", "plain")}


def test_a_limit_holds_for_every_list_of_the_service_and_for_no_other_service():
    lesson = recovered(
        bad("http_get", "400 page_size must be at most 100", url="https://shop.test/api/items", page_size=500),
        ok("http_get", url="https://shop.test/api/items", page_size=100),
    )
    assert warns(lesson, "http_get", url="https://shop.test/api/suppliers", page_size=200) == "exact"
    assert warns(lesson, "http_get", url="https://shop.test/api/suppliers", page_size=50) is None
    assert warns(lesson, "http_get", url="https://crm.test/api/items", page_size=200) is None


def test_what_was_denied_is_the_folder_and_not_every_absolute_path():
    lesson = recovered(
        bad("write_file", "Permission denied", path="/out/total.txt"), ok("write_file", path="tmp/total.txt")
    )
    assert ("arguments.path", "starts_with", "/out/") in conditions_of(lesson)
    assert warns(lesson, "write_file", path="/home/me/report.txt") is None


def test_a_denied_folder_is_told_whole():
    lesson = recovered(
        bad("write_file", "EACCES", path="/srv/data/private/a.txt"), ok("write_file", path="/home/me/a.txt")
    )
    assert warns(lesson, "write_file", path="/srv/data/private/b.md") == "exact"
    assert warns(lesson, "write_file", path="/srv/data/shared/b.md") is None


# ---------------------------------------------------------------- findings that say nothing


def test_a_way_of_one_tool_teaches_nothing():
    for steps in (
        [ok("http")],
        [bad("http", "410 Gone", url="/v1/a"), ok("http", url="/v2/a"), ok("http", url="/v2/b")],
    ):
        [rejected] = refused(run(*steps), "what_worked")
        assert rejected.reason == "a way of one tool teaches nothing"


def test_a_talk_with_the_user_makes_even_one_tool_a_case():
    [lesson] = lessons(run(ok("find_order"), ok("respond", content="It arrives on Monday")), "what_worked")
    assert "`find_order`" in lesson.action


@pytest.mark.parametrize("nothing", ["[]", "{}", "null", '{"items": [], "total": 0}', "No results found.", "没有结果"])
def test_calls_that_brought_nothing_are_the_detour_and_not_the_way(nothing: str):
    asked = [ok("search_mail", nothing, query=text) for text in ("invoice acme", "acme", "invoice")]
    [lesson] = lessons(run(*asked, ok("search_drive", '[{"id": 1}]', query="invoice acme")), "what_worked")
    assert lesson.action == "What worked: `search_drive`."
    assert "`search_mail` brought nothing (×3)" in lesson.avoid


def test_an_empty_answer_at_the_end_belongs_to_the_way():
    [lesson] = lessons(run(ok("delete_row", "ok", id=1), ok("list_rows", "[]")), "what_worked")
    assert lesson.action == "What worked: `delete_row` → `list_rows`."


def test_a_dead_resource_gives_way_to_the_lesson_about_the_whole_place():
    steps = [
        bad("http", "410 Gone", url="https://shop.test/v1/orders"),
        bad("http", "410 Gone", url="https://shop.test/v1/users"),
        ok("http", url="https://shop.test/v2/orders"),
    ]
    assert lessons(run(*steps), "permanent_error") == []
    assert {one.reason for one in refused(run(*steps), "permanent_error")} == {
        "another lesson of this run (recovered_call) speaks of the whole place"
    }


# ---------------------------------------------------------------- words


def failed_run(goal: str) -> Trajectory:
    return run(bad("http_get", "503 unavailable", url="https://shop.test/x"), goal=goal, outcome="failure")


def test_a_failed_run_of_calls_is_not_called_talk_and_misses_no_verb_of_any_task():
    [lesson] = lessons(failed_run("Fetch the page and compute the median"), "what_went_wrong")
    assert "no call worked" in lesson.action
    assert "talking" not in lesson.action
    assert "Cover what no call touched: page, median." in lesson.action


def test_a_class_of_errors_is_told_in_words():
    call = {"url": "https://shop.test/x"}
    [lesson] = lessons(run(bad("http_get", "429 slow down", **call), ok("http_get", **call)), "wait_cured")
    assert lesson.action == "After failure of `http_get` (rate limit), wait a moment and send the same call once more."


def test_a_success_with_failed_calls_is_a_detour_and_worth_reviewing():
    assert reviewed(run(bad("fetch", "415", kind="a"), ok("fetch", kind="b"))).worth_reviewing


def test_one_step_is_counted_in_the_singular_and_chinese_words_are_told_whole():
    one_step = reviewed(run(ok("fetch")), usual_of(steps=0, tool_calls=0))
    assert any(reason.startswith("1 step;") for reason in one_step.reasons)
    chinese = reviewed(run(ok("noop"), goal="生成销售周报"), usual_of(untouched_goal_terms=0))
    assert any("销售周报" in reason and "售周" not in reason.replace("销售周报", "") for reason in chinese.reasons)


def usual_of(**numbers: float) -> Any:
    return baseline_of([effort(**numbers)] * 5, review_rules().baseline)
