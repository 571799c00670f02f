"""What is general about an argument that changed between a failed call and its success?

From the most general reading of a change (another place, another type of id, a cap, a way of writing) to the least (one value
instead of another).  Values of this one run give nothing.  It must not choose the decision point; recovered.py does.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from memory_service.experience.distill.run_view import RunView
from memory_service.experience.distill.values import (
    differ_in_writing,
    file_types,
    is_command_name,
    is_content_name,
    is_general,
    is_identifier,
    is_limit_name,
    is_setting_name,
    power_of_ten,
    resource,
    type_before_id,
    words_swapped,
    written_like,
)
from memory_service.experience.lessons import Triple
from memory_service.experience.trajectory import Step, text_of, words


@dataclass(frozen=True, slots=True)
class Change:
    """When it applies, what to do, what not to do.  Not `specific`: the arguments alone do not show the mistake.

    `limit`: a number was too large, which is a matter of the service and not of the one resource asked for.
    """

    when: tuple[Triple, ...]
    do: str
    dont: str
    specific: bool = True
    limit: bool = False


def changes_of(
    run: RunView, failed: Step, changed: Mapping[str, tuple[Any, Any]], error_class: str
) -> tuple[Change, ...]:
    """`changed` is {path: (value that failed, value that worked)}, `...` for absent.  Empty when nothing general changed."""
    if any(run.is_prose(value) for pair in changed.values() for value in pair):
        return tuple(_reworded(run, changed))
    settled = any(is_setting_name(path) for path in changed)
    mattering = {
        path: pair
        for path, pair in changed.items()
        if not (settled and is_content_name(path) and not is_setting_name(path))
    }
    found = tuple(change for change in _each(run, failed, mattering, error_class) if change.do)
    return _without_echoes(found, changed)


def _without_echoes(found: Sequence[Change], changed: Mapping[str, tuple[Any, Any]]) -> tuple[Change, ...]:
    """A `format` that only repeats the file's extension is told, but is no condition: the next call may leave it out."""
    types = {
        kinds[0].removeprefix(".")
        for path, (before, after) in changed.items()
        if (kinds := file_types(path, before, after) or moved_type(before, after)) is not None
    }

    def echoes(triple: Triple) -> bool:
        return (
            triple.operator == "eq" and isinstance(triple.value, str) and triple.value.casefold().lstrip(".") in types
        )

    return tuple(replace(one, when=tuple(t for t in one.when if not echoes(t))) for one in found)


def _each(run: RunView, failed: Step, changed: Mapping[str, tuple[Any, Any]], error_class: str) -> Iterator[Change]:
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
    if is_setting_name(path) and isinstance(before, str) and isinstance(after, str):
        return _other_value(run, path, before, after)  # "text/plain" is no path and "utf-8" no format of something
    moved = _other_place(run, path, before, after, error_class)
    if moved is not None:
        return moved
    if is_command_name(path) and isinstance(before, str) and isinstance(after, str):
        return _other_command(run, path, before, after)
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
            limit=True,
        )
    factor = power_of_ten(before, after)
    if factor:
        return Change(
            (),
            run.say(
                f"with `{path}` as a whole number, {factor} times as large", f"把 `{path}` 写成整数，放大 {factor} 倍"
            ),
            run.say(f"with `{path}` not multiplied by {factor}", f"用没有放大 {factor} 倍的 `{path}` "),
            specific=False,
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
        return _other_value(run, path, before, after)
    return Change((), "", "")


def _other_value(run: RunView, path: str, before: Any, after: Any) -> Change:
    """One value instead of another; nothing when either can't be shown."""
    old, new = run.written(path, before), run.written(path, after)
    if not old or not new:
        return Change((), "", "")
    return Change(
        (Triple(f"arguments.{path}", "eq", before),),
        run.say(f"with {new}", f"让 {new} "),
        run.say(f"with {old}", f"用 {old} "),
    )


def _reworded(run: RunView, changed: Mapping[str, tuple[Any, Any]]) -> Iterator[Change]:
    """A query or program in which a few words gave way to others.  What is long changed elsewhere too is another text."""
    if len(changed) != 1:
        return
    [(path, (before, after))] = changed.items()
    swap = words_swapped(before, after, run.rules.limits.reworded_words_max)
    if swap is None or not run.can_be_condition(path, " ".join(swap)):
        return
    old, new = (run.quote(part) for part in swap)
    sign = next((word for word in swap[0].split() if not is_identifier(word)), "")
    if sign:
        yield Change(
            (Triple(f"arguments.{path}", "contains", sign),),
            run.say(f'with "{new}" instead of "{old}" in `{path}`', f'在 `{path}` 中用 "{new}" 代替 "{old}"'),
            run.say(f'with "{old}" in `{path}`', f'在 `{path}` 中用 "{old}" '),
        )


def _other_place(run: RunView, path: str, before: Any, after: Any, error_class: str) -> Change | None:
    """Another file type or another folder or host; None when the values are no resources, or the same one."""
    types = file_types(path, before, after)
    if types:
        return _moved(run, path, ("", types[0]), ("", types[1]))
    old, new = resource(before), resource(after)
    if not old or not new or (old.prefix, old.extension) == (new.prefix, new.extension):
        return None
    denied = error_class == "permission"
    return _moved(run, path, (old.prefix, old.extension), (new.prefix, new.extension), whole=denied)


def _other_command(run: RunView, path: str, before: str, after: str) -> Change:
    """The command line that failed and the one that worked; where only a few words changed, these."""
    swap = words_swapped(before, after, run.rules.limits.reworded_words_max)
    if swap is None or is_identifier(swap[0]) or not run.can_be_condition(path, before):
        return _other_value(run, path, before, after) if swap is None else Change((), "", "")
    old, new = (run.quote(part) for part in swap)
    return Change(
        (Triple(f"arguments.{path}", "eq", before),),
        run.say(
            f'with "{new}" instead of "{old}" in `{path}`: `{run.quote(after)}`',
            f'在 `{path}` 中用 "{new}" 代替 "{old}"：`{run.quote(after)}`',
        ),
        run.say(f"with `{path}` = `{run.quote(before)}`", f"用 `{path}` = `{run.quote(before)}` "),
    )


def moved_type(before: Any, after: Any) -> tuple[str, str] | None:
    """The two extensions of paths that differ in them."""
    one, other = resource(before), resource(after)
    types = (one.extension, other.extension) if one and other else ("", "")
    return types if all(types) and types[0] != types[1] else None


def _moved(run: RunView, path: str, old: tuple[str, str], new: tuple[str, str], *, whole: bool = False) -> Change:
    """Another place: the first segment in which the two prefixes differ ends the condition, with `whole` the whole old one.

    What was denied is one folder and not all around it; and a root alone would say "any absolute path".
    """
    (before, extension), (after, other_extension) = old, new
    if before == after:
        when = Triple(f"arguments.{path}", "matches", f"(?i){re.escape(extension)}$")
        return Change(
            (when,),
            run.say(f"with a `{path}` that ends in `{other_extension}`", f"让 `{path}` 以 `{other_extension}` 结尾"),
            run.say(f"with one that ends in `{extension}`", f"用以 `{extension}` 结尾的 `{path}` "),
        )
    old_parts, new_parts = re.split(r"(?<=[/\\])", before), re.split(r"(?<=[/\\])", after)
    pairs = zip(old_parts, new_parts, strict=False)
    shorter = min(len(old_parts), len(new_parts))
    shared = next((n for n, (a, b) in enumerate(pairs) if a != b), shorter)
    stale, fresh = "".join(old_parts[: shared + 1]), "".join(new_parts[: shared + 1])
    if whole or not stale.strip("/\\.") or stale == fresh or fresh.startswith(stale):
        stale, fresh = before, after
    if not stale.strip("/\\.") or stale == fresh:
        return Change((), "", "")
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
