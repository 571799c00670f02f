"""Which of a language model's lessons can be believed?

Every triple is checked against the run: its field must be one that a state has, its value one that the run shows and another
run can meet.  Then the whole lesson: its conditions must hold at a decision point of this very run, by the evaluator that will
be asked later.  What is wrong is left out, what is left must still be a lesson.  Pure; it must not invent or improve a word.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memory_service.errors import InvalidFields
from memory_service.experience.conditions import LISTED, OPERATORS, Condition, Operator, parse_conditions
from memory_service.experience.conditions_settings import ConditionLimits
from memory_service.experience.distill.acceptance import trivial
from memory_service.experience.distill.run_view import RunView
from memory_service.experience.distill.values import is_identifier, is_limit_name, is_setting_name
from memory_service.experience.distill_model_settings import DistillModelNumbers
from memory_service.experience.lessons import Lesson, Origin, Rejected, Triple, state_of
from memory_service.experience.matching import Evaluator
from memory_service.experience.quoting import MASK, masked
from memory_service.experience.trajectory import flat_arguments, text_of
from memory_service.terms import query_terms

RULE = "model"
LIST_FIELDS = ("goal_terms", "succeeded_tools", "failed_tools")
TOOL_FIELDS = ("tool", "last_error_tool", "succeeded_tools", "failed_tools")
_DIGITS = re.compile(r"[0-9]{3}")
_STATUS = re.compile(r"\W*[1-5][0-9]{2}\W*")  # an HTTP status is a kind of error, no number of this run
FIELDS = ("tool", "arguments.NAME", "task_type", "last_error", "last_error_class", "last_error_tool", *LIST_FIELDS)
ANYWHERE = ("task_type", "goal_terms")  # fields that say what the task is and not where in it the agent stands


@dataclass(frozen=True, slots=True)
class Moment:
    """A decision point of the run: the state before step `at`, or before doing it again."""

    at: int
    state: Mapping[str, Any]


class Believer:
    """Judges lessons about one run.  For one thread: it keeps an evaluator."""

    def __init__(
        self, run: RunView, shown: Sequence[int], numbers: DistillModelNumbers, limits: ConditionLimits
    ) -> None:
        self._run = run
        self._shown = frozenset(shown)
        self._numbers = numbers
        self._limits = limits
        self._evaluator = Evaluator(limits)
        self._moments = list(_moments(run, shown))
        self._tools = {step.tool for step in run.steps}
        self._paths = {path for step in run.steps for path in flat_arguments(step.arguments)}
        self._classes = {known.name for known in run.rules.error_classes} | {"other", "none"}
        self._errors = "\n".join(step.error or step.result for step in run.steps if step.failed)

    def believed(self, said: object) -> list[Lesson | Rejected]:
        """Of the model's list what holds.  Whatever is no list or no lesson at all gives nothing."""
        if not isinstance(said, list):
            return []
        judged = (self._judged(one) for one in said[: self._numbers.lessons_max] if isinstance(one, Mapping))
        return [one for one in judged if one is not None]

    def _judged(self, said: Mapping[str, Any]) -> Lesson | Rejected | None:
        texts = {name: self._text(said.get(name)) for name in ("action", "avoid", "rationale")}
        if not any(texts.values()):
            return None
        given = said.get("conditions")
        raw = given[: self._limits.triples_max] if isinstance(given, list) else []
        kept = list(dict.fromkeys(c for one in raw if (c := self._triple(one)) is not None))
        kept = kept[: self._numbers.conditions_max]
        moments = [m for m in self._moments if self._evaluator.match(kept, m.state).kind == "exact"] if kept else []
        evidence = self._evidence(said.get("evidence"), moments)
        lesson = self._run.lesson(
            RULE,
            [Triple(one.field, one.operator, one.value) for one in kept],
            evidence,
            origin=self._origin(evidence),
            **texts,
        )
        reason = self._refusal(lesson, kept, moments, len(raw))
        return Rejected(lesson, reason) if reason else lesson

    def _refusal(self, lesson: Lesson, kept: Sequence[Condition], moments: Sequence[Moment], asked: int) -> str:
        if not kept:
            return (
                "none of its conditions speaks of what the run shows"
                if asked
                else "it has no condition, so it would apply always"
            )
        if len(kept) < asked and all(one.field in ANYWHERE for one in kept):
            return "without the conditions that the run does not show it would apply to the whole task"
        if not moments:
            return "its conditions hold at no step of the run"
        return trivial(lesson, self._run)

    def _text(self, said: object) -> str:
        return self._run.quote(said, self._numbers.texts_chars_max) if isinstance(said, str) else ""

    def _evidence(self, said: object, moments: Sequence[Moment]) -> list[int]:
        """Step numbers that were shown; where the model named none, those where the conditions hold."""
        numbers = said if isinstance(said, list) else []
        named = [n for n in numbers if isinstance(n, int) and not isinstance(n, bool) and n in self._shown]
        return list(dict.fromkeys(named or [moment.at for moment in moments]))

    def _origin(self, evidence: Sequence[int]) -> Origin:
        if self._run.trajectory.outcome in ("failure", "aborted"):
            return "failure"
        wrong = self._run.trajectory.outcome == "detour" or any(self._run.steps[at].failed for at in evidence)
        return "detour" if wrong else "success"

    # One triple.

    def _triple(self, said: object) -> Condition | None:
        """The normalised condition, None when it can't be believed."""
        if not isinstance(said, Mapping) or not isinstance(said.get("field"), str):
            return None
        field, operator, value = said["field"].strip(), _operator(said.get("operator")), said.get("value")
        if operator is None or not self._known_field(field):
            return None
        if field in LIST_FIELDS:
            operator = {"eq": "contains", "ne": "not_contains"}.get(operator, operator)  # type: ignore[assignment]
            if operator not in ("contains", "not_contains", "exists"):
                return None
        if operator == "exists" and not isinstance(value, bool):
            value = True
        if field == "goal_terms" and isinstance(value, str):
            value = next(iter(query_terms(value, self._run.rules.vocabulary)), value)
        if operator != "exists" and not self._can_come_again(field, operator, value):
            return None
        try:
            (condition,) = parse_conditions([{"field": field, "operator": operator, "value": value}], self._limits)
        except InvalidFields:
            return None
        return condition

    def _known_field(self, field: str) -> bool:
        if field.startswith("arguments."):
            path = field.removeprefix("arguments.")
            return path in self._paths and self._run.can_be_condition(path)
        return field in FIELDS

    def _can_come_again(self, field: str, operator: Operator, value: Any) -> bool:
        """A value of the run's own vocabulary, and none that only this run can have."""
        values = value if operator in LISTED and isinstance(value, list) else [value]
        return bool(values) and all(self._one_can(field, operator, one) for one in values)

    def _one_can(self, field: str, operator: Operator, value: Any) -> bool:
        if (
            value is None
            or MASK in masked(text_of(value), self._run.rules)
            or (isinstance(value, str) and not value.strip())
        ):
            return False
        if operator == "matches":  # whether it holds anywhere in the run is asked of the whole lesson
            of_one_run = (
                field.startswith("arguments.") and _DIGITS.search(text_of(value)) and not is_setting_name(field)
            )
            return isinstance(value, str) and not of_one_run
        if field in TOOL_FIELDS:
            return value in self._tools or (field == "last_error_tool" and value == "")
        if field == "last_error_class":
            return value in self._classes
        if field == "task_type":
            return bool(value == self._run.trajectory.task_type)
        if field == "last_error":
            told = isinstance(value, str) and value.casefold() in self._errors.casefold()
            return told and not any(is_identifier(w) and not _STATUS.fullmatch(w) for w in value.split())
        return not field.startswith("arguments.") or _general(field, operator, value)


def _general(field: str, operator: Operator, value: Any) -> bool:
    """Of an argument: no id, date or amount of this one run.  A limit or a setting may have digits."""
    if isinstance(value, bool) or is_setting_name(field) or is_limit_name(field):
        return True
    if isinstance(value, int | float):
        return operator not in ("eq", "ne", *LISTED)
    return isinstance(value, str) and not is_identifier(value)


def _operator(said: object) -> Operator | None:
    name = said.strip().lower() if isinstance(said, str) else None
    return next((operator for operator in OPERATORS if operator == name), None)


def _moments(run: RunView, shown: Iterable[int]) -> Iterable[Moment]:
    trajectory = run.trajectory
    for at in shown:
        step = run.steps[at]
        for past in (run.steps[:at], run.steps[: at + 1]) if step.failed else (run.steps[:at],):
            state = state_of(
                run.rules,
                goal=trajectory.goal,
                task_type=trajectory.task_type,
                tool=step.tool,
                arguments=step.arguments,
                past=past,
            )
            yield Moment(at, state)
