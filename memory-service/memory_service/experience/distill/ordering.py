"""What had to come first, and how long had one to wait?

The same call failed and later worked unchanged: what was done in between is the lesson.  A wait in between is a limit
that was hit; another tool is an order of calls; nothing in between is an error that passes.
"""

import re
from collections.abc import Iterator

from memory_service.experience.distill.run_view import RunView, same_error_again, tool_is
from memory_service.experience.lessons import Lesson, Triple
from memory_service.experience.trajectory import Step, call_key, leaves, text_of

_ASKED_WAIT = re.compile(
    r"(?:retry.?after|wait|try again in|重试前等待|等待)\D{0,20}?(\d{1,5}(?:\.\d{1,3})?)"
    r"\s{0,2}(ms|milliseconds?|s|sec|seconds?|m|min|minutes?|毫秒|秒|分钟)?",
    re.IGNORECASE,
)
_SECONDS = {"ms": 0.001, "mi": 60.0, "m": 60.0, "毫秒": 0.001, "分钟": 60.0}
_PASSING = ("rate_limit", "timeout", "unavailable")


def orders_and_waits(run: RunView) -> Iterator[Lesson]:
    for at, step in enumerate(run.steps):
        if not step.failed or not run.is_call(step):
            continue
        again = _same_call_worked(run, at)
        if again is None:
            continue
        between = [n for n in range(at + 1, again) if not run.steps[n].failed and run.is_call(run.steps[n])]
        waits = [n for n in between if run.steps[n].tool.casefold() in run.rules.tools.wait]
        others = [n for n in between if n not in waits and run.steps[n].tool != step.tool]
        prepared = [n for n in others if _same_thing(step, run.steps[n])]
        if waits or (run.classes[at] in _PASSING and not prepared):
            yield _wait(run, at, again, waits)
        elif others and len(others) <= run.rules.limits.between_steps_max:
            yield _order(run, at, again, others)


def _same_thing(failed: Step, other: Step) -> bool:
    """Whether two calls name the same thing, so that one can have prepared it for the other ("locked" passes by itself or not)."""
    mine = {text for text in leaves(failed.arguments) if len(text) > 1}
    return any(text in mine for text in leaves(other.arguments))


def _same_call_worked(run: RunView, at: int) -> int | None:
    key = call_key(run.steps[at])
    for later in range(at + 1, min(len(run.steps), at + 1 + run.rules.limits.lookahead_steps_max)):
        if call_key(run.steps[later]) == key:
            return None if run.steps[later].failed else later
    return None


def _wait(run: RunView, at: int, again: int, waits: list[int]) -> Lesson:
    step, error_class = run.steps[at], run.classes[at]
    error = run.quote(step.error or step.result)
    seconds = _asked_seconds(step) or max((_waited_seconds(run.steps[n]) for n in waits), default=0.0)
    how_long = run.say(
        f"wait {seconds:g} s" if seconds else "wait a moment", f"等待 {seconds:g} 秒" if seconds else "稍等片刻"
    )
    by = run.say(f" with `{run.steps[waits[-1]].tool}`", f"（用 `{run.steps[waits[-1]].tool}`）") if waits else ""
    return run.lesson(
        "wait_cured",
        same_error_again(step, error_class),
        (at, *waits, again),
        action=run.say(
            f"After failure of `{step.tool}` ({run.class_words(error_class)}), {how_long}{by} and send the same call once more.",
            f"`{step.tool}` 返回错误（{run.class_words(error_class)}）后，{how_long}{by}，再原样调用一次。",
        ),
        avoid=run.say("Calling again at once or giving up.", "立刻重试，或者放弃。"),
        rationale=run.say(f"“{error}” passed; the same call then worked.", f"“{error}”过去之后，同一调用成功了。"),
    )


def _asked_seconds(step: Step) -> float:
    """The wait that the error itself asks for, in seconds."""
    found = _ASKED_WAIT.search(step.error or step.result)
    if not found:
        return 0.0
    unit = (found.group(2) or "s").casefold()
    return float(found.group(1)) * (_SECONDS.get(unit) or _SECONDS.get(unit[:2]) or 1.0)


def _waited_seconds(step: Step) -> float:
    """What a wait tool was given, in seconds; a name that ends in `ms` or starts with `milli` counts thousandths."""
    for name, value in step.arguments.items():
        numbers = [text for text in leaves(value) if re.fullmatch(r"\d{1,7}(?:\.\d{1,6})?", text)]
        if numbers:
            return float(numbers[0]) * (
                0.001 if re.search(r"(?:^|_)(?:ms|milli\w*)$", name) else 60.0 if "min" in name else 1.0
            )
    return (step.duration_ms or 0.0) / 1000


def _order(run: RunView, at: int, again: int, between: list[int]) -> Lesson:
    step = run.steps[at]
    first = run.steps[between[-1]]
    error = run.quote(step.error or step.result)
    names = list(dict.fromkeys(run.steps[n].tool for n in between))
    told = " → ".join(f"`{name}`" for name in names)
    return run.lesson(
        "order_of_calls",
        (tool_is(step), Triple("succeeded_tools", "not_contains", first.tool), *run.place(step)),
        (at, *between, again),
        action=run.say(f"Call {told} before `{step.tool}`.", f"先调用 {told}，再调用 `{step.tool}`。"),
        avoid=run.say(
            f"Calling `{step.tool}` before `{first.tool}` has worked.", f"`{first.tool}` 成功之前就调用 `{step.tool}`。"
        ),
        rationale=run.say(
            f"It failed with “{error}”; after {told} the same call worked.",
            f"先报错“{error}”，{told} 之后同一调用成功。",
        )
        + ("" if not text_of(first.reason) else " " + run.quote(first.reason)),
    )
