"""Which call was repeated after it had failed, and which resource answers the same error for good?

Two findings about insisting: the identical call after the same error, and errors that no retry can cure.
"""

import re
from collections import defaultdict
from collections.abc import Iterator

from memory_service.experience.distill.run_view import RunView, same_error_again, tool_is
from memory_service.experience.distill.values import is_general, is_setting_name, resource
from memory_service.experience.lessons import Lesson, Triple
from memory_service.experience.trajectory import Step, call_key, flat_arguments
from memory_service.scripts import is_chinese


def repeated_errors(run: RunView) -> Iterator[Lesson]:
    """The same call failed again with the same class of error.  What ended it is told when something did."""
    failures: dict[tuple[str, str], list[int]] = defaultdict(list)
    for at, step in enumerate(run.steps):
        if step.failed and run.is_call(step) and run.classes[at] != "rate_limit":
            failures[(call_key(step), run.classes[at])].append(at)
    for (key, error_class), places in failures.items():
        if len(places) < 2:
            continue
        step = run.steps[places[0]]
        way_out = next((at for at in range(places[-1] + 1, len(run.steps)) if _other_success(run, at, key)), None)
        error = run.quote(step.error or step.result)
        yield run.lesson(
            "repeated_error",
            same_error_again(step, error_class),
            (places[1], places[0], *places[2:], *(() if way_out is None else (way_out,))),
            action=_instead(run, step, way_out),
            avoid=run.say(
                f"Repeating the identical `{step.tool}` call after the error ({run.class_words(error_class)}): the answer stays the same.",
                f"出错（{run.class_words(error_class)}）之后原样重复调用 `{step.tool}`：结果不会变。",
            ),
            rationale=run.say(
                f"{len(places)} identical calls all failed with “{error}”.",
                f"{len(places)} 次完全相同的调用都报错“{error}”。",
            ),
        )


def _other_success(run: RunView, at: int, key: str) -> bool:
    step = run.steps[at]
    return (
        not step.failed
        and run.is_call(step)
        and step.tool.casefold() not in run.rules.tools.wait
        and call_key(step) != key
    )


def _instead(run: RunView, step: Step, way_out: int | None) -> str:
    if way_out is None:
        return run.say(
            "Change the arguments or the approach before the next call, or stop and tell the user.",
            "先改参数或换方法再调用，否则停下来告诉用户。",
        )
    other = run.steps[way_out]
    if other.tool == step.tool:
        names = ", ".join(
            f"`{name}`"
            for name in flat_arguments(other.arguments)
            if other.arguments.get(name) != step.arguments.get(name)
        )
        return run.say(
            f"Change {names or 'the arguments'} before calling `{step.tool}` again.",
            f"再次调用 `{step.tool}` 前先改 {names or '参数'}。",
        )
    return run.say(f"Go on with `{other.tool}` instead; that worked here.", f"改用 `{other.tool}`，这次它成功了。")


def permanent_errors(run: RunView) -> Iterator[Lesson]:
    """A resource, field or value that will answer the same error to every call.  One lesson per decision point."""
    points: dict[tuple[Triple, ...], list[int]] = defaultdict(list)
    by_id: set[tuple[Triple, ...]] = set()
    for at, step in enumerate(run.steps):
        if not (step.failed and run.is_call(step) and run.rules.is_permanent(run.classes[at])):
            continue
        for conditions, behind_id in _points(run, step, run.classes[at]):
            points[conditions].append(at)
            if behind_id:
                by_id.add(conditions)
    for conditions, places in points.items():
        distinct = len({call_key(run.steps[at]) for at in places})
        if conditions not in by_id or distinct >= run.rules.limits.permanent_repeats_min:
            yield _permanent(run, conditions, places)


def _points(run: RunView, step: Step, error_class: str) -> Iterator[tuple[tuple[Triple, ...], bool]]:
    error = (step.error or step.result).casefold()
    limits = run.rules.limits
    flat = {name: value for name, value in flat_arguments(step.arguments).items() if run.can_be_condition(name, value)}
    if error_class == "unknown_field":
        named = [name for name in flat if name.rpartition(".")[2].casefold() in error]
        yield from (((tool_is(step), Triple(f"arguments.{name}", "exists", True)), False) for name in named[:1])
        if named:
            return
    for name, value in flat.items():
        place = None if is_setting_name(name) else resource(value)  # "text/plain" is no path
        if place and len(place.prefix) > 1:
            # A missing file says nothing about its folder, so without an id the whole value is the resource.
            whole = isinstance(value, str) and not place.by_id and error_class == "not_found" and place.extension
            triple = (
                Triple(f"arguments.{name}", "eq", value)
                if whole
                else Triple(f"arguments.{name}", "starts_with", place.prefix)
            )
            yield (tool_is(step), triple), place.by_id
            return
    told = [
        (name, value)
        for name, value in flat.items()
        if isinstance(value, str)
        and not run.is_prose(value)
        and _says(error, value.casefold())
        and is_general(name, value, limits.value_chars_max)
    ]
    if told:  # the longest: a short one is likelier there by chance
        name, value = max(told, key=lambda one: len(one[1]))
        yield (tool_is(step), Triple(f"arguments.{name}", "eq", value)), False


def _says(error: str, value: str) -> bool:
    """Whether the error names the value as a word: the "x" of a body stands in "text/plain" and is not meant."""
    if not is_chinese(value):
        return re.search(rf"(?<![a-z0-9]){re.escape(value)}(?![a-z0-9])", error) is not None
    return value in error


def _permanent(run: RunView, conditions: tuple[Triple, ...], places: list[int]) -> Lesson:
    step, error_class = run.steps[places[0]], run.classes[places[0]]
    what = conditions[-1]
    shown = run.quote(f"{what.field.removeprefix('arguments.')} {what.operator.replace('_', ' ')} {what.value}")
    after = range(places[-1] + 1, min(len(run.steps), places[-1] + 1 + run.rules.limits.lookahead_steps_max))
    way_out = next((at for at in after if not run.steps[at].failed and run.is_call(run.steps[at])), None)
    error = run.quote(step.error or step.result)
    return run.lesson(
        "permanent_error",
        conditions,
        (*places, *(() if way_out is None else (way_out,))),
        action=_instead(run, step, way_out),
        avoid=run.say(
            f"Calling `{step.tool}` where {shown}, or retrying it: the error ({run.class_words(error_class)}) stays.",
            f"在 {shown} 时调用或重试 `{step.tool}`：错误（{run.class_words(error_class)}）不会消失。",
        ),
        rationale=run.say(f"The answer was “{error}” ({len(places)}×).", f"返回“{error}”（{len(places)} 次）。"),
    )
