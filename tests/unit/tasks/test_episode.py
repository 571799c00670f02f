"""What is kept of a finished run."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from memory_service.experience.baseline import baseline_of
from memory_service.experience.review import Review, review_trajectory
from memory_service.experience.trajectory import analysed
from memory_service.tasks.closing import Closing, Ending, closing_of
from memory_service.tasks.episode import episode_of, outcome_of
from memory_service.tasks.used import Advised
from memory_service.working.items import Step, WorkingState
from memory_service.working.state import record_step
from tests.unit.tasks.task_factories import call, distill_rules, later, run, task_numbers, working_numbers

RULES, NUMBERS = distill_rules(), task_numbers()
LEAST = RULES.review.score.worth_reviewing_min


def closed(*steps: Step, outcome: Any = "success", goal: str = "Export all users", **fields: Any) -> Closing:
    state = WorkingState("task", "u", task_goal=goal, task_type="export", constraints=("read only",))
    for at, step in enumerate(steps):
        state = record_step(state, step, later(at), working_numbers())
    ending = Ending(outcome, fields.pop("result", None), fields.pop("feedback", None))
    return closing_of(run(**fields), state, (), ending, later(42.5), RULES)


def reviewed(closing: Closing) -> Review:
    read = analysed(closing.trajectory(), RULES.review.limits)
    return review_trajectory(read, baseline_of([], RULES.review.baseline), RULES.review, RULES.vocabulary)


def draft(closing: Closing, **fields: Any) -> Any:
    review = reviewed(closing)
    return episode_of(run(**fields), closing, review, outcome_of(closing, review, LEAST), NUMBERS)


STEPS = (
    Step("http_get", "error", {"url": "v1"}, error="410 Gone", reason="the docs name it", duration_ms=3),
    Step("http_get", "success", {"url": "v2"}, result={"n": 2}),
)


def test_an_episode_tells_goal_decisions_calls_outcome_and_time() -> None:
    made = draft(closed(*STEPS, result={"file": "users.csv"}, feedback="well done"), agent_id="a", session_id="s")
    assert made.content.splitlines() == [
        "Task: Export all users",
        "Outcome: success after a detour. Started 2026-03-01 12:00:00 UTC, took 42.5 s, 2 steps, 1 failed, 0 repeated.",
        "Constraints: read only",
        "Key decisions:",
        "- the docs name it → http_get(url=v1)",
        "What failed:",
        "- http_get(url=v1): 410 Gone",
        "Tools: http_get ×2",
        'Result: {"file": "users.csv"}',
        "Feedback: well done",
    ]
    assert made.summary == "Task “Export all users”: success after a detour."
    assert made.tool_calls == (
        {"tool": "http_get", "arguments": {"url": "v1"}, "status": "error", "error": "410 Gone", "duration_ms": 3},
        {"tool": "http_get", "arguments": {"url": "v2"}, "status": "success"},
    )
    assert (made.kind, made.infer, made.event_type) == ("episodic", False, "task_episode")
    assert (made.task_id, made.agent_id, made.session_id) == ("task", "a", "s")
    assert made.metadata["duration_ms"] == 42_500


def test_a_chinese_goal_gives_a_chinese_episode() -> None:
    made = draft(closed(*STEPS, goal="导出所有用户"))
    assert made.content.startswith("任务：导出所有用户\n结果：绕弯路后成功。")
    assert made.summary == "任务“导出所有用户”：绕弯路后成功。"


@pytest.mark.parametrize(
    ("closing", "outcome"),
    [
        (closed(STEPS[1]), "success"),
        (closed(*STEPS), "detour"),
        (closed(*[STEPS[1]] * 60), "detour"),  # far more effort than usual
        (closed(STEPS[1], outcome="failure"), "failure"),
        (closed(*STEPS, outcome="aborted"), None),
    ],
)
def test_the_outcome_of_an_episode_follows_the_review(closing: Closing, outcome: str | None) -> None:
    assert outcome_of(closing, reviewed(closing), LEAST) == outcome
    assert draft(closing).outcome == outcome


def test_failures_and_detours_are_more_important_than_a_smooth_run() -> None:
    assert draft(closed(*STEPS)).importance == NUMBERS.importance_telling > draft(closed(STEPS[1])).importance


def test_a_run_whose_steps_expired_is_known_by_its_row() -> None:
    closing = closing_of(run(goal="Export"), None, (), Ending("failure"), later(9_000), RULES)
    made = draft(closing)
    assert closing.expired
    assert made.content.splitlines()[0] == "Task: Export"
    assert "Its steps had expired" in made.content
    assert made.tool_calls == ()


def test_secrets_of_a_run_are_masked_before_anything_is_kept() -> None:
    secret = "sk-abcdefghijklmnopqrstuvwxyz123456"
    step = Step(
        "login", "error", {"password": "hunter2", "in": {"api_key": secret}}, error=f"bad key {secret}", result=secret
    )
    closing = closed(step, result={"token": secret}, feedback=f"never use {secret}")
    kept = json.dumps(closing.to_json()) + draft(closing).content
    assert secret not in kept
    assert "hunter2" not in kept
    assert "[masked]" in kept


def test_a_closing_survives_being_kept() -> None:
    closing = closed(*STEPS, result=[1, {"b": None}], feedback="好")
    closing = replace(closing, advised=(Advised("t", {"n": 2**63 - 1}, later(1), (uuid4(),)),))
    assert Closing.from_json(json.loads(json.dumps(closing.to_json()))) == closing


def test_long_runs_and_long_texts_stay_bounded() -> None:
    huge = "x" * 100_000
    steps = [Step("t", "error", {"a": huge, "n": n}, error=huge, result=huge, reason=huge) for n in range(60)]
    closing = closed(*steps, goal=huge, result=huge, feedback=huge)
    assert len(json.dumps(closing.to_json())) < 60 * 5 * RULES.review.limits.text_chars_max
    made = draft(closing)
    assert len(made.content) < 60_000
    assert len(made.tool_calls) == 60


def test_a_task_made_by_hand_with_a_long_type_still_makes_an_episode() -> None:
    closing = replace(closed(STEPS[1]), task_type="t" * 200)
    assert draft(closing).tags == ()


def test_the_clock_of_another_process_can_not_make_a_duration_negative() -> None:
    closing = closing_of(run(started_at=later(60)), None, (), Ending("success"), later(0), RULES)
    assert closing.duration_ms == 0
    assert call().at == later(0)
