"""What did an agent do in one run?

A run as the caller told it, cut to what the analysis reads, with the few views of it that review and distillation share:
flat arguments, call keys, words.  It must not judge a run; `review` and `distill` do.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from memory_service.errors import InvalidFields
from memory_service.experience.review_rules import ReviewLimits
from memory_service.scripts import is_chinese

StepStatus = Literal["success", "error"]
RunOutcome = Literal["success", "failure", "aborted", "detour"]

_WORD = re.compile(r"[^\W_\u3400-\u9fff]+|[\u3400-\u9fff]")


@dataclass(frozen=True, slots=True)
class Step:
    """One tool call, or one message of a multi-agent talk (the speaker is the tool, the message its only argument)."""

    tool: str
    arguments: Mapping[str, Any]
    status: StepStatus = "success"
    result: str = ""
    error: str = ""
    reason: str = ""
    duration_ms: float | None = None

    @property
    def failed(self) -> bool:
        return self.status == "error"


@dataclass(frozen=True, slots=True)
class Trajectory:
    goal: str
    outcome: RunOutcome
    steps: tuple[Step, ...] = ()
    task_type: str | None = None
    feedback: str | None = None

    @property
    def chinese(self) -> bool:
        """Lessons and reasons follow the language of the goal."""
        return is_chinese(self.goal)


def step_of(raw: Mapping[str, Any]) -> Step:
    """A step of the contract (`{tool, arguments?, status, result?, error?, duration_ms?, reason?}`), already validated at the edge.

    Results and errors may be any JSON; they are kept as the text that an agent would see.
    """
    return Step(
        tool=raw["tool"],
        arguments=raw.get("arguments") or {},
        status=raw["status"],
        result=text_of(raw.get("result")),
        error=text_of(raw.get("error")),
        reason=text_of(raw.get("reason")),
        duration_ms=raw.get("duration_ms"),
    )


def text_of(value: object) -> str:
    """A JSON value as the text an agent would see: strings as they are, the rest as JSON without escapes."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def analysed(trajectory: Trajectory, limits: ReviewLimits) -> Trajectory:
    """The run as review and distillation read it: long texts cut.  Raises InvalidFields when there are too many steps."""
    if len(trajectory.steps) > limits.steps_max:
        raise InvalidFields.of(
            "trajectory.steps", f"has {len(trajectory.steps)} steps; at most {limits.steps_max} are read"
        )
    chars = limits.text_chars_max
    steps = tuple(
        replace(
            step,
            arguments={key: _cut(value, limits) for key, value in step.arguments.items()},
            result=step.result[:chars],
            error=step.error[:chars],
            reason=step.reason[:chars],
        )
        for step in trajectory.steps
    )
    return replace(
        trajectory, goal=trajectory.goal[:chars], feedback=(trajectory.feedback or "")[:chars] or None, steps=steps
    )


def _cut(value: Any, limits: ReviewLimits, depth: int = 1) -> Any:
    if isinstance(value, str):
        return value[: limits.text_chars_max]
    if isinstance(value, Mapping | list | tuple) and depth >= limits.arguments_depth_max:
        return text_of(value)[: limits.text_chars_max]
    if isinstance(value, Mapping):
        return {key: _cut(inner, limits, depth + 1) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_cut(inner, limits, depth + 1) for inner in value]
    return value


def leaves(value: object) -> Iterator[str]:
    """Every scalar inside a JSON value, as text, in order."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from leaves(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from leaves(inner)
    elif value is not None:
        yield text_of(value)


def argument_text(step: Step) -> str:
    return " ".join(leaves(step.arguments))


def flat_arguments(arguments: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{dotted path: value}.  Lists stay whole: the third item of a list is an accident of one run, not a field."""
    flat: dict[str, Any] = {}
    for key, value in arguments.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            flat.update(flat_arguments(value, f"{path}."))
        else:
            flat[path] = value
    return flat


def call_key(step: Step) -> str:
    """Equal for calls of the same tool with the same arguments, whatever their order."""
    return json.dumps([step.tool, step.arguments], sort_keys=True, ensure_ascii=False, default=str)


def words(text: str) -> list[str]:
    """Case-folded words in order; each CJK character is one, so that six of either make a phrase."""
    return _WORD.findall(text.casefold())
