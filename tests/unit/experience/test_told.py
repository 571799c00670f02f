"""Does feedback reach an agent as what the user meant?  Sentences labelled by hand, and to which tasks they are brought."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from memory_service.experience.conditions import parse_conditions
from memory_service.experience.distill.told import told
from memory_service.experience.lessons import Lesson, any_word_pattern, condition_terms, state_of, telling_words
from memory_service.experience.matching import Evaluator
from memory_service.experience.trajectory import words
from tests.unit.experience.condition_factories import LIMITS
from tests.unit.experience.trajectory_factories import conditions_of, lessons, ok, refused, rules, run

SENTENCES = tomllib.loads((Path(__file__).parent / "feedback_sentences.toml").read_text(encoding="utf-8"))["said"]
WEEKLY, CHINESE = "Write the weekly sales report for the board", "生成本周的销售周报"


def feedback_after(goal: str, said: str, task_type: str | None = None, *tools: str) -> Lesson:
    steps = [ok(tool) for tool in tools or ("query_db", "write_file")]
    [lesson] = lessons(run(*steps, goal=goal, feedback=said, task_type=task_type), "user_feedback")
    return lesson


def brought_to(lesson: Lesson, goal: str, task_type: str | None = None) -> str | None:
    conditions = parse_conditions([triple.as_json() for triple in lesson.conditions], LIMITS)
    state = state_of(rules(), goal=goal, task_type=task_type, tool="", arguments={}, past=[])
    return Evaluator(LIMITS).match(conditions, state).kind


@pytest.mark.parametrize("said", SENTENCES, ids=lambda said: said["text"])
def test_a_sentence_of_feedback_is_read_as_people_read_it(said: dict[str, str]):
    what = told(said["text"], rules().feedback)
    assert (what.action, what.avoid) == (said["action"], said["avoid"])


@pytest.mark.parametrize("said", SENTENCES, ids=lambda said: said["text"])
def test_the_thing_avoided_is_named_without_its_negation(said: dict[str, str]):
    avoided = told(said["text"], rules().feedback).avoid
    assert not {"not", "never", "don", "avoid"} & set(words(avoided))
    assert not any(sign in avoided for sign in ("不要", "别", "禁止", "避免", "勿"))


@pytest.mark.parametrize(
    "praise", ["Good job!", "Thanks, perfect.", "做得很好", "Great sales report, thank you!", "ok thanks"]
)
def test_praise_teaches_nothing_and_says_why(praise: str):
    [rejected] = refused(run(ok("query_db"), ok("write_file"), goal=WEEKLY, feedback=praise), "user_feedback")
    assert rejected.reason == "the feedback judges the run and tells nothing to do"


def test_two_words_are_enough_to_tell_what_to_do():
    assert feedback_after(WEEKLY, "Use euros.").action == "Use euros."


@pytest.mark.parametrize(
    ("goal", "other", "task_type"),
    [
        (WEEKLY, "Write the monthly revenue report for the board", "report"),
        (WEEKLY, "Prepare the quarterly sales report", "report"),
        ("Compute revenue per month from the warehouse", "Average order value per country in the warehouse", None),
        ("List overdue invoices by country", "Send a reminder for an invoice that is overdue", None),
        ("Tag the photos in the galleries", "Sort a gallery by date", None),
        (CHINESE, "制作上月的销售月报", "报表"),
        ("把夜间的订单写入数据库", "统计订单总数", None),
    ],
)
def test_feedback_reaches_a_similar_task(goal: str, other: str, task_type: str | None):
    lesson = feedback_after(goal, "Round amounts to whole euros.", task_type)
    assert brought_to(lesson, goal, task_type) == brought_to(lesson, other, task_type) == "exact"


@pytest.mark.parametrize(
    ("goal", "other", "task_type", "other_type"),
    [
        (WEEKLY, "Write the weekly sales report for the board", "report", "booking"),
        (WEEKLY, "Write a poem every week", None, None),
        (WEEKLY, "Compute the next prime number", None, None),
        (CHINESE, "计算本周的生产成本", None, None),
        ("把夜间的订单写入数据库", "把夜班的名单写好", None, None),
    ],
)
def test_feedback_is_kept_from_a_task_of_another_kind(goal: str, other: str, task_type: Any, other_type: Any):
    lesson = feedback_after(goal, "Round it up.", task_type)
    assert brought_to(lesson, other, other_type) is None


def test_two_wishes_after_one_task_have_conditions_of_their_own_so_that_neither_supersedes_the_other():
    one = feedback_after(WEEKLY, "Round amounts to whole euros.", "report")
    other = feedback_after(WEEKLY, "Exclude test customers.", "report")
    again = feedback_after(WEEKLY, "Round amounts to whole euros.", "report")
    assert conditions_of(one) != conditions_of(other)
    assert conditions_of(one) == conditions_of(again)


def test_a_goal_without_telling_words_still_gives_a_condition():
    assert {field for field, _, _ in conditions_of(feedback_after("Do it", "Ask me first, always"))} == {"goal_terms"}


def test_feedback_that_names_a_tool_as_a_word_is_about_its_calls():
    named = feedback_after("Reserve rooms in Graz", "Call book_room only once.", None, "book_room", "pay")
    part_of_a_word = feedback_after("Reserve rooms in Graz", "Ask before booking.", None, "book", "pay")
    assert ("tool", "eq", "book_room") in conditions_of(named)
    assert not any(field == "tool" for field, _, _ in conditions_of(part_of_a_word))


@pytest.mark.parametrize(
    ("goal", "inside", "across"),
    [
        (CHINESE, {"销售", "周报"}, {"成本", "售周", "周的"}),
        ("把夜间导出的用户名单发给财务", {"名单", "财务"}, {"把夜", "户名", "单发"}),
        ("从仓库读取费用并按部门汇总", {"仓库", "费用", "部门"}, {"从仓", "用并", "门汇"}),
    ],
)
def test_a_pair_of_characters_across_a_word_boundary_is_no_goal_term(goal: str, inside: set[str], across: set[str]):
    chosen = set(condition_terms(goal, rules(), 8))
    assert inside <= chosen
    assert not across & chosen
    held = set(state_of(rules(), goal=goal, task_type=None, tool="", arguments={}, past=[])["goal_terms"])
    assert chosen <= held


def test_words_that_any_goal_has_tell_nothing_of_it():
    assert telling_words("Please write a weekly report of 2024-05-01 for ann_lee", rules(), 8) == ["report"]
    assert telling_words("Deploy the shop with password=hunter22!", rules(), 8) == ["deploy", "shop", "password"]
    assert any_word_pattern([]) == ""
