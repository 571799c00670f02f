"""How does a finder see a run?

One `RunView` per distillation: the analysed steps with their error classes, and builders that keep every lesson safe and
bounded.  It must not contain a rule of its own.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from memory_service.experience.conditions import Operator
from memory_service.experience.distill.values import is_general, resource, root_of
from memory_service.experience.distill_rules import NO_ERROR, DistillRules
from memory_service.experience.lessons import Lesson, Origin, Triple, any_word_pattern, condition_terms, telling_words
from memory_service.experience.quoting import MASK, cut, is_secret_name, masked, safe_text
from memory_service.experience.review import Review
from memory_service.experience.trajectory import Step, Trajectory, argument_text, flat_arguments, text_of, words

_PLAIN_NAME = re.compile(r"[\w\-]{1,64}(?:\.[\w\-]{1,64}){0,5}")


@dataclass(frozen=True, slots=True)
class RunView:
    trajectory: Trajectory
    review: Review
    rules: DistillRules
    classes: tuple[str, ...]  # per step, "none" where it worked
    dialogue: bool  # messages of several agents instead of calls

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.trajectory.steps

    @property
    def chinese(self) -> bool:
        return self.trajectory.chinese

    def say(self, english: str, chinese: str) -> str:
        return chinese if self.chinese else english

    def class_words(self, error_class: str) -> str:
        """`rate_limit` for a reader."""
        return error_class.replace("_", " ")

    def quote(self, text: str, chars_max: int | None = None) -> str:
        return safe_text(text, self.rules, chars_max or self.rules.limits.quote_chars_max)

    def goal_gist(self) -> str:
        return self.quote(self.trajectory.goal, self.rules.limits.goal_chars_max)

    def is_talk(self, step: Step) -> bool:
        return step.tool.casefold() in self.rules.review.tools.talk

    def is_call(self, step: Step) -> bool:
        """Something done outside, in parameters: neither said nor thought."""
        return not self.is_talk(step) and step.tool.casefold() not in self.rules.tools.think

    def is_prose(self, value: Any) -> bool:
        return isinstance(value, str) and len(words(value)) > self.rules.limits.prose_words

    def written(self, name: str, value: Any) -> str:
        """An argument's value as a lesson may show it; "" when it is secret, too long or of this run only."""
        limits = self.rules.limits
        if is_secret_name(name, self.rules):
            return ""
        if isinstance(value, bool):
            return f"`{name}` = {text_of(value)}"
        if (
            not isinstance(value, str)
            or not is_general(name, value, limits.value_chars_max)
            or MASK in masked(value, self.rules)
        ):
            return ""
        return f'`{name}` = "{self.quote(value)}"'

    def shown_arguments(self, step: Step) -> str:
        """`name: value, …` for a reader; secrets by name are masked here, the others by `quote`."""
        flat = flat_arguments(step.arguments)
        if len(flat) == 1 and self.is_talk(step):
            return argument_text(step)
        return ", ".join(
            f"{name}: {MASK if is_secret_name(name, self.rules) else text_of(value)}" for name, value in flat.items()
        )

    def can_be_condition(self, name: str, value: Any = "") -> bool:
        """Argument names that conditions.py would refuse, secrets and masked values never become conditions."""
        return (
            _PLAIN_NAME.fullmatch(name) is not None
            and not is_secret_name(name, self.rules)
            and MASK not in masked(text_of(value), self.rules)
        )

    def scope(self, step: Step, without: Sequence[str] = ()) -> tuple[Triple, ...]:
        """The file type, else the path prefix or host, of the call's first path-like argument that is not in `without`."""
        for name, value in flat_arguments(step.arguments).items():
            found = resource(value) if name not in without and self.can_be_condition(name, value) else None
            if found and found.extension:
                return (Triple(f"arguments.{name}", "matches", f"(?i){re.escape(found.extension)}$"),)
            if found and len(found.prefix) > 1:
                return (Triple(f"arguments.{name}", "starts_with", found.prefix),)
        return ()

    def place(self, step: Step, without: Sequence[str] = ()) -> tuple[Triple, ...]:
        """The folder or host of the call's first path-like argument that is not in `without`."""
        for name, value in flat_arguments(step.arguments).items():
            found = resource(value) if name not in without and self.can_be_condition(name, value) else None
            if found and len(found.prefix) > 1:
                return (Triple(f"arguments.{name}", "starts_with", found.prefix),)
        return ()

    def service(self, step: Step, without: Sequence[str] = ()) -> tuple[Triple, ...]:
        """The host, else the first folder, of the call's first path-like argument that is not in `without`."""
        for name, value in flat_arguments(step.arguments).items():
            root = root_of(value) if name not in without and self.can_be_condition(name, value) else ""
            if root:
                return (Triple(f"arguments.{name}", "starts_with", root),)
        return ()

    def lesson(
        self,
        rule: str,
        conditions: Sequence[Triple],
        evidence: Sequence[int],
        *,
        action: str = "",
        avoid: str = "",
        rationale: str = "",
        origin: Origin | None = None,
    ) -> Lesson:
        limits = self.rules.limits
        origin = origin or ("failure" if self.trajectory.outcome in ("failure", "aborted") else "detour")
        texts = (cut(text.strip(), limits.text_chars_max) for text in (action, avoid, rationale))
        done, avoided, why = texts
        return Lesson(
            rule=rule,
            conditions=tuple(dict.fromkeys(conditions)),
            action=done,
            avoid=avoided,
            rationale=why,
            origin=origin,
            confidence=getattr(self.rules.confidence, origin),
            source_steps=tuple(dict.fromkeys(evidence))[: limits.evidence_steps_max],
            tags=tuple(dict.fromkeys(tag for tag in ("distilled", rule) if tag)),
        )

    def goal_conditions(self, terms_max: int) -> tuple[Triple, ...]:
        """What makes the kind of task recognisable before anything was called; fewer terms, wider use."""
        terms = sorted(condition_terms(self.trajectory.goal, self.rules, terms_max))
        task = (self.trajectory.task_type,) if self.trajectory.task_type else ()
        return (
            *(Triple("task_type", "eq", name) for name in task),
            *(Triple("goal_terms", "contains", term) for term in terms),
        )

    def kind_of_task(self, said: str) -> tuple[Triple, ...]:
        """For which tasks a user's words about this one are meant: of its type, and about any of the things named.

        Words of the feedback count too: who asks for something about customers means other tasks with customers.
        """
        limits, rules = self.rules.limits, self.rules
        about = dict.fromkeys(telling_words(self.trajectory.goal, rules, limits.feedback_goal_words))
        about.update(dict.fromkeys(telling_words(said, rules, limits.feedback_said_words)))
        pattern = any_word_pattern(list(about))
        if not pattern:
            return self.goal_conditions(limits.goal_terms)
        task = (self.trajectory.task_type,) if self.trajectory.task_type else ()
        return (*(Triple("task_type", "eq", name) for name in task), Triple("goal", "matches", pattern))


def view_of(trajectory: Trajectory, review: Review, rules: DistillRules) -> RunView:
    classes = tuple(
        rules.error_class(step.error or step.result) if step.failed else NO_ERROR for step in trajectory.steps
    )
    return RunView(trajectory, review, rules, classes, _is_dialogue(trajectory, rules))


def tool_is(step: Step) -> Triple:
    return Triple("tool", "eq", step.tool)


def same_error_again(step: Step, error_class: str) -> tuple[Triple, ...]:
    """The decision point right after a failure of this tool."""
    return (tool_is(step), Triple("last_error_tool", "eq", step.tool), Triple("last_error_class", "eq", error_class))


def holds_for(conditions: Sequence[Triple], step: Step) -> bool:
    """Whether the triples about the call itself hold for a call of this run; the others are taken as true."""
    flat = flat_arguments(step.arguments)
    return all(_true(triple, step, flat) for triple in conditions)


def _true(triple: Triple, step: Step, flat: dict[str, Any]) -> bool:
    operator: Operator = triple.operator
    if triple.field == "tool":
        return bool(step.tool == triple.value)
    if not triple.field.startswith("arguments."):
        return True
    name = triple.field.removeprefix("arguments.")
    value = flat.get(name)
    if operator == "exists":
        return (name in flat) is bool(triple.value)
    if isinstance(value, str) and isinstance(triple.value, str):
        if operator == "starts_with":
            return value.startswith(triple.value)
        if operator == "matches":
            return re.search(triple.value, value) is not None
        if operator == "contains":
            return triple.value in value
    if operator == "gt":
        return isinstance(value, int | float) and bool(value > triple.value)
    return operator == "eq" and type(value) is type(triple.value) and bool(value == triple.value)


def _is_dialogue(trajectory: Trajectory, rules: DistillRules) -> bool:
    """Most steps are one long text without a result: speakers, not tools."""
    steps = trajectory.steps
    said = [
        step
        for step in steps
        if len(step.arguments) == 1 and not step.result and all(isinstance(v, str) for v in step.arguments.values())
    ]
    long = [step for step in said if len(words(argument_text(step))) > rules.limits.prose_words]
    return len(steps) > 1 and len(said) > len(steps) * 3 // 4 and len(long) * 2 >= len(said)
