"""Which change of arguments made a failing call work?

A call failed, a later call of the same tool worked: what changed in the arguments is the lesson.  Values of this one run
(another id, another number) are no lesson and are rejected as such by `acceptance`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from memory_service.experience.distill.run_view import RunView, same_error_again, tool_is
from memory_service.experience.distill.values import (
    differ_in_writing,
    is_general,
    is_limit_name,
    is_setting_name,
    resource,
    type_before_id,
    written_like,
)
from memory_service.experience.lessons import Lesson, Triple
from memory_service.experience.trajectory import Step, call_key, flat_arguments, text_of, words

RULE = "recovered_call"


@dataclass(frozen=True, slots=True)
class Change:
    """What is general about one changed argument: when it applies, what to do, what not to do."""

    when: tuple[Triple, ...]
    do: str
    dont: str
    specific: bool = True


def recovered_calls(run: RunView) -> Iterator[Lesson]:
    """For every failed call and the first later success of its tool; the nearest failed variant speaks for its group."""
    by_success: dict[int, list[int]] = {}
    for at, step in enumerate(run.steps):
        if step.failed and run.is_call(step):
            cure = _first_success(run, at)
            if cure is not None:
                by_success.setdefault(cure, []).append(at)
    for cure, failures in by_success.items():
        variants = [(len(_changed(run.steps[at], run.steps[cure])), -at) for at in failures]
        size, nearest = min(variants)
        if 0 < size <= run.rules.limits.changed_arguments_max:
            lesson = _lesson(run, -nearest, cure, failures)
            if lesson:
                yield lesson


def _first_success(run: RunView, at: int) -> int | None:
    failed = run.steps[at]
    for later in range(at + 1, min(len(run.steps), at + 1 + run.rules.limits.lookahead_steps_max)):
        step = run.steps[later]
        if step.tool == failed.tool and not step.failed:
            return later if call_key(step) != call_key(failed) else None
    return None


def _changed(failed: Step, worked: Step) -> dict[str, tuple[Any, Any]]:
    """{path: (value that failed, value that worked)}, `...` for absent; a renamed argument counts once."""
    before, after = flat_arguments(failed.arguments), flat_arguments(worked.arguments)
    return {
        path: (before.get(path, ...), after.get(path, ...))
        for path in (*before, *(path for path in after if path not in before))
        if before.get(path, ...) != after.get(path, ...)
        or type(before.get(path, ...)) is not type(after.get(path, ...))
    }


def _lesson(run: RunView, at: int, cure: int, failures: list[int]) -> Lesson | None:
    failed, worked, error_class = run.steps[at], run.steps[cure], run.classes[at]
    changed = _changed(failed, worked)
    if any(run.is_prose(value) for pair in changed.values() for value in pair):
        return None
    changes = [change for change in _changes(run, failed, changed, error_class) if change.do]
    if not changes:
        return None
    when = tuple(triple for change in changes for triple in change.when)
    if any(change.specific for change in changes):
        conditions = (tool_is(failed), *when, *(run.scope(failed, tuple(changed)) if not _names_place(when) else ()))
    else:
        conditions = (*same_error_again(failed, error_class), *when)
    do, dont = "; ".join(change.do for change in changes), "; ".join(filter(None, (change.dont for change in changes)))
    error = run.quote(failed.error or failed.result)
    return run.lesson(
        RULE,
        conditions,
        (at, cure, *failures),
        action=run.say(f"Call `{failed.tool}` {do}.", f"调用 `{failed.tool}` 时{do}。"),
        avoid=run.say(f"Calling `{failed.tool}` {dont}.", f"不要{dont}调用 `{failed.tool}`。") if dont else "",
        rationale=run.say(
            f"It failed with “{error}” ({error_class}) and worked once that was changed.",
            f"报错“{error}”（{error_class}），改了这一处之后成功。",
        ),
    )


def _names_place(conditions: tuple[Triple, ...]) -> bool:
    return any(
        triple.operator in ("starts_with", "matches") and triple.field.startswith("arguments.") for triple in conditions
    )


def _changes(run: RunView, failed: Step, changed: dict[str, tuple[Any, Any]], error_class: str) -> Iterator[Change]:
    added = [path for path, (before, _) in changed.items() if before is ...]
    removed = [path for path, (_, after) in changed.items() if after is ...]
    if len(added) == len(removed) == 1 and len(changed) == 2:
        yield _renamed(run, removed[0], added[0])
        return
    for path, (before, after) in changed.items():
        if not run.can_be_condition(path):
            continue
        if before is ...:
            shown = run.written(path, after) or f"`{path}`"
            yield Change(
                (Triple(f"arguments.{path}", "exists", False),),
                run.say(f"with {shown}", f"带上 {shown}"),
                run.say(f"without `{path}`", f"缺少 `{path}` 就"),
            )
        elif after is ...:
            yield Change(
                (Triple(f"arguments.{path}", "exists", True),),
                run.say(f"without `{path}`", f"去掉 `{path}`"),
                run.say(f"with `{path}`", f"带着 `{path}` "),
            )
        else:
            yield _replaced(run, path, before, after, error_class, failed.error or failed.result)


def _renamed(run: RunView, old: str, new: str) -> Change:
    when = (Triple(f"arguments.{old}", "exists", True),) if run.can_be_condition(old) else ()
    return Change(
        when,
        run.say(f"with `{new}` instead of `{old}`", f"用 `{new}` 代替 `{old}`"),
        run.say(f"with `{old}`", f"带着 `{old}` "),
    )


def _replaced(run: RunView, path: str, before: Any, after: Any, error_class: str, error: str) -> Change:
    """From the most general reading of a changed value to the least."""
    field, limits = f"arguments.{path}", run.rules.limits
    if not run.can_be_condition(path, before) or not run.can_be_condition(path, after):
        return Change((), "", "")
    place, other_place = resource(before), resource(after)
    if place and other_place and (place.prefix != other_place.prefix or place.extension != other_place.extension):
        return _moved(run, path, (place.prefix, place.extension), (other_place.prefix, other_place.extension))
    kind, other_kind = type_before_id(before), type_before_id(after)
    if kind and other_kind and kind != other_kind:
        return Change(
            (Triple(field, "starts_with", kind),),
            run.say(f"with a `{path}` that starts with `{other_kind}`", f"让 `{path}` 以 `{other_kind}` 开头"),
            run.say(f"with a `{path}` that starts with `{kind}`", f"用以 `{kind}` 开头的 `{path}` "),
        )
    if (
        _is_number(before)
        and _is_number(after)
        and before > after
        and (error_class == "too_large" or is_limit_name(path))
    ):
        return Change(
            (Triple(field, "gt", after),),
            run.say(f"with `{path}` at most {after}", f"让 `{path}` 不超过 {after}"),
            run.say(f"with a larger `{path}`", f"用更大的 `{path}` "),
        )
    if type(before) is not type(after) and _one_value(before, after):
        pattern = written_like(before)
        when = (Triple(field, "matches", pattern),) if pattern else ()
        kinds = (_type_name(before), _type_name(after))
        return Change(
            when,
            run.say(f"with `{path}` as a {kinds[1]}", f"把 `{path}` 写成 {kinds[1]}"),
            run.say(f"with `{path}` as a {kinds[0]}", f"把 `{path}` 写成 {kinds[0]} 来"),
            specific=bool(when),
        )
    if differ_in_writing(before, after):
        example, refused = re.sub(r"\d", "9", after), re.sub(r"\d", "9", before)
        return Change(
            (Triple(field, "matches", written_like(before)),),
            run.say(f"with `{path}` written like `{example}`", f"把 `{path}` 写成 `{example}` 的样子"),
            run.say(f"with `{path}` written like `{refused}`", f"用 `{refused}` 这种写法的 `{path}` "),
        )
    if (
        is_general(path, before, limits.value_chars_max)
        and run.written(path, after)
        and _related(path, before, after, error)
    ):
        return Change(
            (Triple(field, "eq", before),),
            run.say(f"with {run.written(path, after)}", f"让 {run.written(path, after)} "),
            run.say(f"with {run.written(path, before)}", f"用 {run.written(path, before)} "),
        )
    return Change((), "", "")


def _moved(run: RunView, path: str, old: tuple[str, str], new: tuple[str, str]) -> Change:
    """Another place: the first segment in which the two prefixes differ ends the condition."""
    (before, extension), (after, other_extension) = old, new
    if before == after:
        when = Triple(f"arguments.{path}", "matches", f"(?i){re.escape(extension)}$")
        return Change(
            (when,),
            run.say(f"with a `{path}` that ends in `{other_extension}`", f"让 `{path}` 以 `{other_extension}` 结尾"),
            run.say(f"with one that ends in `{extension}`", f"用以 `{extension}` 结尾的 `{path}` "),
        )
    old_parts, new_parts = re.split(r"(?<=[/\\])", before), re.split(r"(?<=[/\\])", after)
    shared = next(
        (n for n, (a, b) in enumerate(zip(old_parts, new_parts, strict=False)) if a != b),
        min(len(old_parts), len(new_parts)),
    )
    stale, fresh = "".join(old_parts[: shared + 1]), "".join(new_parts[: shared + 1])
    if not stale or stale == fresh or fresh.startswith(stale):
        stale, fresh = before, after
    return Change(
        (Triple(f"arguments.{path}", "starts_with", stale),),
        run.say(f"with a `{path}` that starts with `{fresh}`", f"让 `{path}` 以 `{fresh}` 开头"),
        run.say(f"with one that starts with `{stale}`", f"用以 `{stale}` 开头的 `{path}` "),
    )


def _related(path: str, before: Any, after: Any, error: str) -> bool:
    """Whether one value stands for the other; the next search of an agent that moved on is another question.

    A setting, a value that the error itself offers, two single words (enumerations), or texts that share a word.
    """
    one, other = text_of(before), text_of(after)
    if is_setting_name(path) or isinstance(before, bool) or other.casefold() in error.casefold():
        return True
    return (" " not in one and " " not in other) or bool(set(words(one)) & set(words(other)))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _one_value(before: Any, after: Any) -> bool:
    """ "5" and 5, "a" and ["a"], "true" and true: the same thing in another type."""
    unwrapped = [value[0] if isinstance(value, list) and len(value) == 1 else value for value in (before, after)]
    return str(unwrapped[0]).casefold() == str(unwrapped[1]).casefold()


def _type_name(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if _is_number(value):
        return "number"
    return "list" if isinstance(value, list) else "string" if isinstance(value, str) else "object"
