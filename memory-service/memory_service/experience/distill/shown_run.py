"""What of a run is shown to a language model?

Masked, bounded in tokens, and marked where something is left out.  What failed and what came right after it goes first, then
the beginning and the end, then the rest.  Pure; it must not judge a step.
"""

from collections.abc import Callable
from dataclasses import dataclass

from memory_service.domain import Json
from memory_service.experience.distill.run_view import RunView
from memory_service.experience.distill_model_settings import DistillModelNumbers
from memory_service.experience.distill_rules import NO_ERROR
from memory_service.experience.lessons import goal_terms
from memory_service.experience.quoting import MASK, is_secret_name
from memory_service.experience.trajectory import Step, flat_arguments, text_of
from memory_service.models.language_data import as_data

CountTokens = Callable[[str], int]
CHARS_PER_TOKEN_MAX = 8  # what is longer than that can't be within the bound, so only so much is counted
CUT_ROUNDS_MAX = 4
GAP = " … "


@dataclass(frozen=True, slots=True)
class ShownRun:
    """`data` is JSON for the prompt; `steps` are the numbers of the steps in it, which evidence can name."""

    data: Json
    steps: tuple[int, ...]


def shown_run(run: RunView, numbers: DistillModelNumbers, count_tokens: CountTokens) -> ShownRun:
    """At most `run_tokens_max` tokens of steps, and goal and feedback of `text_tokens_max` each."""
    trajectory, most = run.trajectory, numbers.text_tokens_max
    told: dict[int, Json] = {}
    left = numbers.run_tokens_max
    for at in telling_order(run, numbers.neighbour_steps)[: numbers.steps_shown_max]:
        step = _shown_step(run, at, numbers.step_tokens_max, count_tokens)
        left -= count_tokens(as_data(step))
        if left < 0 and told:
            break
        told[at] = step
    data: Json = {
        "goal": shortened(run.quote(trajectory.goal, most * CHARS_PER_TOKEN_MAX), most, count_tokens),
        "outcome": trajectory.outcome,
    }
    if trajectory.task_type:
        data["task_type"] = trajectory.task_type
    if terms := goal_terms(trajectory.goal, run.rules)[: run.rules.limits.goal_terms_state_max]:
        data["goal_terms"] = terms
    if trajectory.feedback:
        data["feedback"] = shortened(run.quote(trajectory.feedback, most * CHARS_PER_TOKEN_MAX), most, count_tokens)
    data["steps"] = _in_order(told, len(run.steps))
    return ShownRun(data, tuple(sorted(told)))


def telling_order(run: RunView, neighbours: int) -> list[int]:
    """All step numbers: failed calls with the `neighbours` after each, the ends, the rest."""
    count = len(run.steps)
    failed = [at for at, step in enumerate(run.steps) if step.failed]
    near = [after for at in failed for after in range(at, min(count, at + neighbours + 1))]
    ends = [at for at in (0, count - 1, 1, count - 2) if 0 <= at < count]
    return list(dict.fromkeys((*near, *ends, *range(count))))


def shortened(text: str, tokens_max: int, count_tokens: CountTokens) -> str:
    """The text, or its head and tail with a gap between, in about `tokens_max` tokens and never many more characters than that takes."""
    chars = tokens_max * CHARS_PER_TOKEN_MAX
    if len(text) > chars:
        text = _ends(text, chars)
    for _ in range(CUT_ROUNDS_MAX):
        tokens = count_tokens(text)
        if tokens <= tokens_max:
            return text
        text = _ends(text, max(1, len(text) * tokens_max // tokens - len(GAP)))
    return text


def _ends(text: str, chars: int) -> str:
    """Two thirds from the beginning, a third from the end, where errors say what is wrong."""
    head, tail = chars * 2 // 3, chars // 3
    return f"{text[:head]}{GAP}{text[len(text) - tail :]}" if len(text) > chars else text


def _shown_step(run: RunView, at: int, tokens_max: int, count_tokens: CountTokens) -> Json:
    step = run.steps[at]

    def said(text: str) -> str:
        return shortened(run.quote(text, tokens_max * CHARS_PER_TOKEN_MAX), tokens_max, count_tokens)

    shown: Json = {
        "step": at,
        "tool": said(step.tool),
        "arguments": _shown_arguments(run, step, said),
        "status": step.status,
    }
    if run.classes[at] != NO_ERROR:
        shown["error_class"] = run.classes[at]
    for name in ("error", "result", "reason"):
        if text := getattr(step, name):
            shown[name] = said(text)
    return shown


def _shown_arguments(run: RunView, step: Step, said: Callable[[str], str]) -> Json:
    """{dotted path: value}; short scalars as they are, texts masked and cut, lists as text."""
    shown: Json = {}
    for name, value in list(flat_arguments(step.arguments).items())[: run.rules.limits.tools_named_max * 4]:
        plain = value is None or isinstance(value, bool | int | float)
        shown[run.quote(name)] = MASK if is_secret_name(name, run.rules) else value if plain else said(text_of(value))
    return shown


def _in_order(told: dict[int, Json], count: int) -> list[Json]:
    """The steps by number, with `{left_out: n}` where some are missing."""
    shown: list[Json] = []
    expected = 0
    for at in (*sorted(told), count):
        if at > expected:
            shown.append({"left_out": at - expected})
        if at < count:
            shown.append(told[at])
        expected = at + 1
    return shown
