"""Which change of arguments made a failing call work?

A call failed, a later and similar call of the same tool worked: what changed in the arguments is the lesson.  Values of this one run
(another id, another number) are no lesson and are rejected as such by `acceptance`.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from memory_service.experience.distill.changed_arguments import Change, changes_of
from memory_service.experience.distill.run_view import RunView, holds_for, same_error_again, tool_is
from memory_service.experience.distill.values import is_command_name, same_command
from memory_service.experience.lessons import Lesson, Triple
from memory_service.experience.trajectory import Step, call_key, flat_arguments, words

RULE = "recovered_call"


def recovered_calls(run: RunView) -> Iterator[Lesson]:
    """For every failed call and the later success that is its likeliest cure: what the nearest failed variant teaches."""
    yield from (nearest for _, nearest in _groups(run))


def first_tries(run: RunView) -> Iterator[Lesson]:
    """What the first failed variant teaches where that is something else: the first try of this run is that of the next."""
    yield from (first for first, nearest in _groups(run) if set(first.conditions) != set(nearest.conditions))


def _groups(run: RunView) -> Iterator[tuple[Lesson, Lesson]]:
    """Failed calls with one cure are a group; what its first and its nearest variant teach, of those that teach something."""
    by_success: dict[int, list[int]] = {}
    for at, step in enumerate(run.steps):
        if step.failed and run.is_call(step):
            cure = _likeliest_cure(run, at)
            if cure is not None:
                by_success.setdefault(cure, []).append(at)
    for cure, failures in by_success.items():
        told = _of_group(run, cure, failures)
        if told:
            yield told


def _of_group(run: RunView, cure: int, failures: list[int]) -> tuple[Lesson, Lesson] | None:
    found: list[tuple[int, int, Lesson]] = []
    for at in failures:
        size = len(_changed(run.steps[at], run.steps[cure]))
        lesson = _lesson(run, at, cure, failures) if 0 < size <= run.rules.limits.changed_arguments_max else None
        if lesson:
            found.append((size, -at, lesson))
    return (found[0][2], min(found, key=lambda one: one[:2])[2]) if found else None


def _likeliest_cure(run: RunView, at: int) -> int | None:
    """The later success of the same tool that is most like the failed call, the nearest of equals.

    The next one need not be it: after a refused `git push` comes a `git checkout`, then the `git push` that worked.  None when
    the same call worked unchanged before any other did, since then no argument was the matter.
    """
    failed, best = run.steps[at], None
    key, likest = call_key(failed), -1.0
    for later in range(at + 1, min(len(run.steps), at + 1 + run.rules.limits.lookahead_steps_max)):
        step = run.steps[later]
        if step.tool != failed.tool or step.failed:
            continue
        if call_key(step) == key:
            return best
        if not _same_verb(failed, step):
            continue
        like = _likeness(failed, step)
        if like > likest:
            best, likest = later, like
    return best


def _same_verb(failed: Step, worked: Step) -> bool:
    """Of a tool that runs command lines: whether both run the same command."""
    before, after = flat_arguments(failed.arguments), flat_arguments(worked.arguments)
    lines = [(before[name], after[name]) for name in before if is_command_name(name) and name in after]
    return all(same_command(one, other) for one, other in lines if isinstance(one, str) and isinstance(other, str))


def _likeness(failed: Step, worked: Step) -> float:
    """0..1: the mean over all argument names of how much of the value stayed; a text counts by its words (Jaccard)."""
    before, after = flat_arguments(failed.arguments), flat_arguments(worked.arguments)
    names = dict.fromkeys((*before, *after))
    if not names:
        return 1.0
    return sum(_stayed(before.get(name, ...), after.get(name, ...)) for name in names) / len(names)


def _stayed(before: Any, after: Any) -> float:
    if before is ... or after is ...:
        return 0.0
    if before == after:
        return 1.0
    if not isinstance(before, str) or not isinstance(after, str):
        return 0.0
    one, other = set(words(before)), set(words(after))
    return len(one & other) / max(1, len(one | other))


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
    changes = changes_of(run, failed, changed, error_class)
    if not changes:
        return None
    conditions = _conditions(run, failed, error_class, changes, tuple(changed))
    do, dont = "; ".join(change.do for change in changes), "; ".join(filter(None, (change.dont for change in changes)))
    error = run.quote(failed.error or failed.result)
    return run.lesson(
        RULE,
        conditions,
        (at, cure, *failures),
        action=run.say(f"Call `{failed.tool}` {do}.", f"调用 `{failed.tool}` 时{do}。"),
        avoid=run.say(f"Calling `{failed.tool}` {dont}.", f"不要{dont}调用 `{failed.tool}`。") if dont else "",
        rationale=run.say(
            f"It failed with “{error}” ({run.class_words(error_class)}) and worked once that was changed.",
            f"报错“{error}”（{run.class_words(error_class)}），改了这一处之后成功。",
        ),
    )


def _conditions(
    run: RunView, failed: Step, error_class: str, changes: Sequence[Change], changed: tuple[str, ...]
) -> tuple[Triple, ...]:
    """The widest decision point that no success of this run contradicts: the file type, else the folder or host as well, else
    after this error only.
    """
    when = tuple(triple for change in changes for triple in change.when)
    after_error = (*same_error_again(failed, error_class), *when)
    if not any(change.specific for change in changes):
        return after_error
    if any(change.limit for change in changes):
        scope = run.service(failed, changed)  # a service limits all its lists alike: /orders teaches for /items
    else:
        scope = () if _names_place(when) else run.scope(failed, changed)
    wide = (tool_is(failed), *when, *scope)
    narrow = (*wide, *run.place(failed, changed)) if scope else wide
    return next((one for one in (wide, narrow) if not _contradicted(run, one)), after_error)


def _contradicted(run: RunView, conditions: tuple[Triple, ...]) -> bool:
    return any(not step.failed and holds_for(conditions, step) for step in run.steps)


def _names_place(conditions: tuple[Triple, ...]) -> bool:
    return any(
        triple.operator in ("starts_with", "matches") and triple.field.startswith("arguments.") for triple in conditions
    )
