"""What is known of a run at the moment when it is finished?

Taken once, when the first finish arrives, and kept with the task's row until the finish is complete: a finish that was cut
off is completed from it, with the same steps and the same outcome, also when the working memory has expired meanwhile.
Pure; secrets are masked and long texts cut here, before anything is stored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from memory_service.domain import Json
from memory_service.experience.distill_rules import DistillRules
from memory_service.experience.quoting import MASK, is_secret_name, masked
from memory_service.experience.trajectory import Trajectory, text_of
from memory_service.stores.postgres.tasks import EndedAs, TaskRun
from memory_service.tasks.calls import calls_of, run_steps
from memory_service.tasks.used import Advised
from memory_service.working.items import Step, WorkingState


@dataclass(frozen=True, slots=True)
class Ending:
    """What the caller said when the task was over."""

    outcome: EndedAs
    result: Any = None
    feedback: str | None = None


@dataclass(frozen=True, slots=True)
class Closing:
    """The run as it was.  `expired`: the working memory was gone, so nothing is known of its steps."""

    outcome: EndedAs
    result: str
    feedback: str | None
    goal: str
    task_type: str | None
    constraints: tuple[str, ...]
    calls: tuple[Step, ...]
    advised: tuple[Advised, ...]
    started_at: datetime
    at: datetime
    expired: bool

    @property
    def duration_ms(self) -> int:
        return max(0, round((self.at - self.started_at).total_seconds() * 1000))

    def trajectory(self) -> Trajectory:
        """The run for review and distillation."""
        return Trajectory(self.goal, self.outcome, run_steps(self.calls), self.task_type, self.feedback)

    def to_json(self) -> Json:
        return {
            "outcome": self.outcome,
            "result": self.result,
            "feedback": self.feedback,
            "goal": self.goal,
            "task_type": self.task_type,
            "constraints": list(self.constraints),
            "calls": [_call_json(call) for call in self.calls],
            "advised": [one.to_line().decode() for one in self.advised],
            "started_at": self.started_at.isoformat(),
            "at": self.at.isoformat(),
            "expired": self.expired,
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> "Closing":
        """What `to_json` wrote."""
        return cls(
            outcome=raw["outcome"],
            result=raw["result"],
            feedback=raw["feedback"],
            goal=raw["goal"],
            task_type=raw["task_type"],
            constraints=tuple(raw["constraints"]),
            calls=tuple(Step(**{**call, "at": _time(call["at"])}) for call in raw["calls"]),
            advised=tuple(Advised.from_line(line.encode()) for line in raw["advised"]),
            started_at=datetime.fromisoformat(raw["started_at"]),
            at=datetime.fromisoformat(raw["at"]),
            expired=raw["expired"],
        )


def closing_of(
    run: TaskRun,
    state: WorkingState | None,
    advised: Sequence[Advised],
    ending: Ending,
    now: datetime,
    rules: DistillRules,
) -> Closing:
    """The run as it is now.  What the working memory says of goal and task type is newer than the row."""
    chars = rules.review.limits.text_chars_max
    goal = (state.task_goal if state else None) or run.goal
    return Closing(
        outcome=ending.outcome,
        result=masked(text_of(ending.result)[:chars], rules),
        feedback=masked_feedback(ending, rules),
        goal=masked(goal[:chars], rules),
        task_type=(state.task_type if state else None) or run.task_type,
        constraints=tuple(masked(text[:chars], rules) for text in state.constraints) if state else (),
        calls=tuple(_kept(call, chars, rules) for call in calls_of(state)) if state else (),
        advised=tuple(advised),
        started_at=min(run.started_at, now),
        at=now,
        expired=state is None,
    )


def masked_feedback(ending: Ending, rules: DistillRules) -> str | None:
    """The feedback as it is kept."""
    return masked(ending.feedback[: rules.review.limits.text_chars_max], rules) if ending.feedback else None


def _kept(call: Step, chars: int, rules: DistillRules) -> Step:
    return replace(
        call,
        arguments=plain_arguments(call.arguments, chars, rules),
        result=masked(text_of(call.result)[:chars], rules) or None,
        error=masked(call.error[:chars], rules) if call.error else None,
        reason=masked(call.reason[:chars], rules) if call.reason else None,
    )


def plain_arguments(arguments: Mapping[str, Any], chars: int, rules: DistillRules) -> dict[str, Any]:
    """Arguments without secrets, long texts cut; numbers, lists and objects stay what they are."""
    return {
        name: MASK if is_secret_name(name, rules) else _plain(value, chars, rules) for name, value in arguments.items()
    }


def _plain(value: Any, chars: int, rules: DistillRules) -> Any:
    if isinstance(value, str):
        return masked(value[:chars], rules)
    if isinstance(value, Mapping):
        return plain_arguments(value, chars, rules)
    if isinstance(value, list | tuple):
        return [_plain(inner, chars, rules) for inner in value]
    return value


def _call_json(call: Step) -> Json:
    return {
        "tool": call.tool,
        "status": call.status,
        "arguments": dict(call.arguments),
        "result": call.result,
        "error": call.error,
        "reason": call.reason,
        "duration_ms": call.duration_ms,
        "at": call.at.isoformat() if call.at else None,
    }


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
