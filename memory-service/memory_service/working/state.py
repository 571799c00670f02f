"""What is going on in this task, and what is it after a change?

Pure: a state, a patch and the time in, a new state out.  No store, no JSON text, no permission.

Where changes are merged.  The merge runs here, in Python, and the store commits the result by compare-and-set (see
service.py).  Merging in Lua inside Redis would need no retries, but Redis's cjson reads every number as a double and
turns `[]` into `{}`: 2**63 - 1 and an empty list would come back as something else.
"""

import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from memory_service.errors import FieldError, InvalidFields
from memory_service.working.items import Fact, FailedAttempt, Patch, PendingItem, Step, ToolCall, WorkingState
from memory_service.working.settings import Working

UUID_CHARS = 36
MEMORY_SOURCE = "memory:"  # the source of a fact that was copied from a long-term memory is "memory:<id>"
REMOVABLE = (
    "constraints", "confirmed_facts", "pending_items", "done_items", "failed_attempts", "tool_call_history",
    "recent_steps", "variables",
)  # fmt: skip


def apply_patch(state: WorkingState, patch: Patch, now: datetime, settings: Working) -> WorkingState:
    """The state after `patch`.  Removals first, so that one patch can replace an item; done items leave the to-do list last.

    Raises InvalidFields naming the list when constraints, facts, to-do items or variables would exceed their bound; the
    lists that are history (done items, failures, calls, steps) drop their oldest instead.
    """
    fields: dict[str, Any] = dict(patch.fields)
    state = _remove(replace(state, **fields) if fields else state, patch.remove)
    done = {fold(item) for item in patch.done_items}
    reopened = {fold(_item_text(item)) for item in patch.pending_items} - done if state.done_items else frozenset()
    state = replace(
        state,
        constraints=_distinct((*state.constraints, *patch.constraints)),
        confirmed_facts=_merged_facts(state.confirmed_facts, patch.confirmed_facts, now),
        pending_items=tuple(
            item
            for item in _merged_todo(state.pending_items, patch.pending_items, settings)
            if not done or fold(item.item) not in done
        ),
        done_items=_latest(
            _distinct((*(item for item in state.done_items if fold(item) not in reopened), *patch.done_items)),
            settings.done_items_max,
        ),
        failed_attempts=_latest(
            (*state.failed_attempts, *(_failure(item, now) for item in patch.failed_attempts)),
            settings.failed_attempts_max,
        ),
        tool_call_history=_latest(
            (*state.tool_call_history, *(_call(item, now) for item in patch.tool_call_history)),
            settings.tool_call_history_max,
        ),
        recent_steps=_latest(
            (*state.recent_steps, *(_step(item, now) for item in patch.recent_steps)), settings.recent_steps_max
        ),
        variables={**state.variables, **patch.variables},
    )
    _refuse_overflow(state, patch, settings)
    return state


def record_step(state: WorkingState, step: Step, now: datetime, settings: Working) -> WorkingState:
    """The state after one tool call: it joins the call history and the recent steps, and the failures when it failed."""
    step = replace(step, at=step.at or now)
    call = ToolCall(step.tool, step.arguments, step.status, step.duration_ms, step.at)
    failures = state.failed_attempts
    if step.status == "error":
        failures = (
            *failures,
            FailedAttempt(describe_call(step, settings.action_chars_max), step.reason, step.error, step.at),
        )
    return replace(
        state,
        tool_call_history=_latest((*state.tool_call_history, call), settings.tool_call_history_max),
        recent_steps=_latest((*state.recent_steps, step), settings.recent_steps_max),
        failed_attempts=_latest(failures, settings.failed_attempts_max),
    )


def forget_memory(state: WorkingState, memory_id: str) -> WorkingState:
    """The state without the facts and failures that were copied from this long-term memory."""
    facts = tuple(fact for fact in state.confirmed_facts if _copied_from(fact.source) != memory_id.casefold())
    failures = tuple(one for one in state.failed_attempts if _copied_from(one.source) != memory_id.casefold())
    if len(facts) == len(state.confirmed_facts) and len(failures) == len(state.failed_attempts):
        return state
    return replace(state, confirmed_facts=facts, failed_attempts=failures)


def memory_source(memory_id: str) -> str:
    """The `source` that marks a fact as a copy of that memory."""
    return f"{MEMORY_SOURCE}{memory_id.casefold()}"


def copied_memories(state: WorkingState) -> frozenset[str]:
    """Ids of the long-term memories that this state holds copies of."""
    sources = [*(one.source for one in state.confirmed_facts), *(one.source for one in state.failed_attempts)]
    return frozenset(one for source in sources if (one := _copied_from(source)) is not None)


def _copied_from(source: str | None) -> str | None:
    """The id that a source names, as "memory:<id>" or, as people write it, alone; None for any other source."""
    named = (source or "").strip().casefold()
    if named.startswith(MEMORY_SOURCE):
        return named.removeprefix(MEMORY_SOURCE)
    try:
        return str(UUID(named)) if len(named) == UUID_CHARS else None
    except ValueError:
        return None


def describe_call(call: Step | ToolCall, chars_max: int) -> str:
    """A call on one line: the tool and its arguments as JSON, cut with a marker."""
    arguments = json.dumps(dict(call.arguments), ensure_ascii=False, sort_keys=True) if call.arguments else ""
    text = f"{call.tool} {arguments}".rstrip()
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


def fold(text: str) -> str:
    """What makes two texts the same: canonical Unicode form and white space.

    Not case and not compatibility forms, unlike duplicates of memories: notes of a task name files, flags and units, and
    an item that is taken for another one would be lost.
    """
    return " ".join(unicodedata.normalize("NFC", text).split())


def _remove(state: WorkingState, remove: Mapping[str, Sequence[str]]) -> WorkingState:
    unknown = [name for name in remove if name not in REMOVABLE]
    if unknown:
        allowed = ", ".join(REMOVABLE)
        raise InvalidFields(
            f"remove: no such list; it may name {allowed}",
            errors=tuple(FieldError(f"remove.{name}", f"is not one of {allowed}") for name in unknown),
        )
    for name, texts in remove.items():
        if name == "variables":
            named = set(texts)
            state = replace(state, variables={key: value for key, value in state.variables.items() if key not in named})
        else:
            folded = {fold(text) for text in texts}
            kept = tuple(item for item in getattr(state, name) if fold(_text_of(item)) not in folded)
            changed: dict[str, Any] = {name: kept}
            state = replace(state, **changed)
    return state


def _text_of(item: str | Fact | PendingItem | FailedAttempt | ToolCall | Step) -> str:
    """The text by which `remove` names an item."""
    match item:
        case str():
            return item
        case Fact():
            return item.fact
        case PendingItem():
            return item.item
        case FailedAttempt():
            return item.action
        case ToolCall() | Step():
            return item.tool


def _merged_facts(known: tuple[Fact, ...], added: Sequence[str | Fact], now: datetime) -> tuple[Fact, ...]:
    """A fact that is known already is refreshed in its place: its time, and its source where one is given."""
    merged = {fold(fact.fact): fact for fact in known}
    for raw in added:
        fact = Fact(raw) if isinstance(raw, str) else raw
        key = fold(fact.fact)
        before = merged.get(key)
        source = fact.source or (before.source if before else None)
        merged[key] = Fact(fact.fact, source, fact.at or now)
    return tuple(merged.values())


def _merged_todo(
    known: tuple[PendingItem, ...], added: Sequence[str | PendingItem], settings: Working
) -> tuple[PendingItem, ...]:
    merged = {fold(item.item): item for item in known}
    for raw in added:
        key = fold(_item_text(raw))
        if isinstance(raw, PendingItem):
            merged[key] = raw
        elif key not in merged:
            merged[key] = PendingItem(raw, settings.priority_default)
    return tuple(merged.values())


def _item_text(item: str | PendingItem) -> str:
    return item if isinstance(item, str) else item.item


def _failure(item: str | FailedAttempt, now: datetime) -> FailedAttempt:
    failure = FailedAttempt(item) if isinstance(item, str) else item
    return replace(failure, at=failure.at or now)


def _call(item: str | ToolCall, now: datetime) -> ToolCall:
    call = ToolCall(item) if isinstance(item, str) else item
    return replace(call, at=call.at or now)


def _step(item: str | Step, now: datetime) -> str | Step:
    return item if isinstance(item, str) else replace(item, at=item.at or now)


def _distinct(texts: Iterable[str]) -> tuple[str, ...]:
    """Each text once, at its first place."""
    distinct: dict[str, str] = {}
    for text in texts:
        distinct.setdefault(fold(text), text)
    return tuple(distinct.values())


T = TypeVar("T")


def _latest(items: tuple[T, ...], count_max: int) -> tuple[T, ...]:
    return items[max(0, len(items) - count_max) :]


def _refuse_overflow(state: WorkingState, patch: Patch, settings: Working) -> None:
    bounds = (
        ("constraints", state.constraints, patch.constraints, settings.constraints_max),
        ("confirmed_facts", state.confirmed_facts, patch.confirmed_facts, settings.confirmed_facts_max),
        ("pending_items", state.pending_items, patch.pending_items, settings.pending_items_max),
        ("variables", state.variables, patch.variables, settings.variables_max),
    )
    errors = tuple(
        FieldError(name, f"a task holds at most {most}; remove some first (nothing was changed)")
        for name, items, added, most in bounds
        if added and len(items) > most
    )
    if errors:
        raise InvalidFields(f"{errors[0].field}: {errors[0].message}", errors=errors)
