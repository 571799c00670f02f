"""Made-up runs and the shipped rules, read once."""

from functools import cache
from pathlib import Path
from typing import Any

from memory_service.experience.baseline import Baseline, Effort, baseline_of
from memory_service.experience.distill import distill
from memory_service.experience.distill_rules import DistillRules, load_distill_rules
from memory_service.experience.lessons import Lesson, Rejected
from memory_service.experience.review import Review, review_trajectory
from memory_service.experience.review_rules import ReviewRules, load_review_rules
from memory_service.experience.trajectory import Step, Trajectory, analysed
from memory_service.terms import Vocabulary, load_vocabulary

CONFIG = Path(__file__).parents[3] / "config"


@cache
def vocabulary() -> Vocabulary:
    return load_vocabulary(CONFIG / "terms.toml", CONFIG / "stop_words.toml")


@cache
def review_rules() -> ReviewRules:
    return load_review_rules(CONFIG / "review.toml")


@cache
def rules() -> DistillRules:
    return load_distill_rules(CONFIG / "distill.toml", review_rules(), vocabulary())


def ok(tool: str, result: str = "done", **arguments: Any) -> Step:
    return Step(tool=tool, arguments=arguments, result=result)


def bad(tool: str, error: str, **arguments: Any) -> Step:
    return Step(tool=tool, arguments=arguments, status="error", error=error)


def said(speaker: str, message: str) -> Step:
    return Step(tool=speaker, arguments={"message": message})


def run(
    *steps: Step, goal: str = "Load the customer report and count its rows", outcome: Any = "success", **more: Any
) -> Trajectory:
    return Trajectory(goal=goal, outcome=outcome, steps=tuple(steps), **more)


def effort(**numbers: float) -> Effort:
    usual = {
        "steps": 4,
        "tool_calls": 4,
        "repeated_calls": 0,
        "argument_chars": 80,
        "untouched_goal_terms": 4,
        "closing_chars": 20,
    }
    return Effort(**{**usual, **numbers})


def reviewed(trajectory: Trajectory, baseline: Baseline | None = None) -> Review:
    numbers = review_rules()
    usual = baseline or baseline_of([], numbers.baseline)
    return review_trajectory(analysed(trajectory, numbers.limits), usual, numbers, vocabulary())


def judged(trajectory: Trajectory) -> list[Lesson | Rejected]:
    cut = analysed(trajectory, review_rules().limits)
    return distill(cut, reviewed(cut), rules())


def lessons(trajectory: Trajectory, rule: str | None = None) -> list[Lesson]:
    return [found for found in judged(trajectory) if isinstance(found, Lesson) and rule in (None, found.rule)]


def refused(trajectory: Trajectory, rule: str) -> list[Rejected]:
    return [found for found in judged(trajectory) if isinstance(found, Rejected) and found.lesson.rule == rule]


def conditions_of(lesson: Lesson) -> set[tuple[str, str, Any]]:
    return {(triple.field, triple.operator, triple.value) for triple in lesson.conditions}
