"""Which runs are worth looking at, and does the review say why?"""

from pathlib import Path

import pytest

from memory_service.errors import InvalidFields, SetupRefused
from memory_service.experience.baseline import Baseline, baseline_of
from memory_service.experience.review_rules import load_review_rules
from memory_service.experience.trajectory import analysed
from tests.unit.experience.trajectory_factories import CONFIG, bad, effort, ok, review_rules, reviewed, run, said

LEAN = (ok("read_file", path="/data/customer_report.csv"), ok("count_rows", report="customer", rows=12))


def test_a_lean_run_is_not_worth_reviewing():
    review = reviewed(run(*LEAN))
    assert not review.worth_reviewing
    assert review.reasons == ("Nothing above the usual effort.",)


def test_a_failed_run_is_worth_reviewing_however_short():
    assert reviewed(run(*LEAN, outcome="failure")).worth_reviewing


def test_feedback_makes_any_run_worth_reviewing():
    review = reviewed(run(*LEAN, feedback="Use the monthly file next time."))
    assert review.worth_reviewing
    assert "The user gave feedback." in review.reasons


def test_the_outcome_does_not_move_the_score():
    assert reviewed(run(*LEAN, outcome="failure")).score == reviewed(run(*LEAN)).score


def test_repeats_failures_and_retries_are_counted_and_raise_the_score():
    repeated = [bad("read_file", "timeout", path="/data/customer_report.csv")] * 3
    review = reviewed(run(*repeated, *LEAN))
    assert (review.steps, review.repeated_calls, review.failed_calls, review.retries) == (5, 3, 3, 3)
    assert review.score > reviewed(run(*LEAN)).score


def test_calls_that_differ_in_one_word_of_many_are_near_repeats():
    query = "monthly revenue by region for the last four quarters of the shop"
    review = reviewed(run(ok("search", query=query), ok("search", query=f"{query} please")))
    assert (review.repeated_calls, review.near_repeats) == (0, 1)


def test_the_same_run_scores_lower_where_such_runs_are_usually_long():
    steps = [ok("read_file", path=f"/data/part-{n}.csv") for n in range(20)]
    small, large = Baseline(effort(steps=4), 9), Baseline(effort(steps=60, argument_chars=4_000), 9)
    assert reviewed(run(*steps), large).score < reviewed(run(*steps), small).score


def test_what_was_only_said_to_the_user_does_not_touch_the_goal():
    goal = "Cancel the subscription and refund the March invoice"
    talked = reviewed(run(ok("respond", content="I cancel the subscription and refund the March invoice"), goal=goal))
    acted = reviewed(run(ok("cancel_subscription"), ok("refund", invoice="March"), goal=goal))
    assert set(talked.untouched) == {"Cancel", "subscription", "refund", "March", "invoice"}
    assert acted.untouched == ()


def test_reasons_follow_a_chinese_goal():
    review = reviewed(run(bad("query_db", "超时"), goal="统计上个月每个地区的销售额并生成报告", outcome="failure"))
    assert review.reasons[0] == "任务失败。"
    assert any("失败的调用：1 次" in reason for reason in review.reasons)


def test_a_run_without_steps_is_reviewed_without_an_error():
    review = reviewed(run(outcome="aborted"))
    assert (review.steps, review.failed_calls) == (0, 0)
    assert review.worth_reviewing


def test_the_duration_counts_only_when_every_step_told_its_own():
    untold = reviewed(run(*LEAN))
    assert untold.effort.duration_ms is None


def test_too_many_steps_are_refused_by_name():
    with pytest.raises(InvalidFields) as refusal:
        analysed(run(*[ok("noop")] * (review_rules().limits.steps_max + 1)), review_rules().limits)
    assert refusal.value.errors[0].field == "trajectory.steps"


def test_long_texts_are_cut_for_the_analysis_at_any_depth():
    limits = review_rules().limits
    cut = analysed(run(ok("write", "r" * 9_000, body={"text": ["x" * 9_000]})), limits).steps[0]
    assert len(cut.result) == limits.text_chars_max == len(cut.arguments["body"]["text"][0])


def test_deep_arguments_are_read_without_an_error():
    deep: object = "end"
    for _ in range(500):
        deep = {"in": deep}
    assert reviewed(run(ok("write", body=deep))).steps == 1


def test_the_baseline_is_the_median_of_the_newest_runs():
    numbers = review_rules().baseline
    old, new = [effort(steps=100)] * numbers.runs_max, [effort(steps=float(n)) for n in range(numbers.runs_max)]
    usual = baseline_of([*old, *new], numbers)
    assert (usual.runs, usual.effort.steps) == (numbers.runs_max, (numbers.runs_max - 1) / 2)


def test_the_settings_stand_in_while_runs_are_few():
    numbers = review_rules().baseline
    usual = baseline_of([effort(steps=999)] * (numbers.runs_min - 1), numbers)
    assert (usual.runs, usual.effort.steps) == (0, numbers.steps)


def test_a_talk_of_agents_is_reviewed_like_any_run():
    review = reviewed(run(said("Planner", "We should look at the table first and then decide what to do next with it")))
    assert review.steps == 1


def test_a_typo_in_the_settings_is_refused_with_its_name(tmp_path: Path):
    path = tmp_path / "review.toml"
    path.write_text(
        (CONFIG / "review.toml").read_text(encoding="utf-8").replace("runs_min", "run_min"), encoding="utf-8"
    )
    with pytest.raises(SetupRefused, match=r"baseline\.run"):
        load_review_rules(path)
