"""Do these conditions hold for this state: yes, no, or can't be known?

Three answers.  A missing field is unknown for every operator but `exists`, and null is the same as missing.  A present value
of the wrong type is never unknown: it does not equal, contain or exceed anything, so `ne`, `nin` and `not_contains` hold.

- eq ne in nin: type-strict; RFC 3339 strings are instants (conditions_values.py).
- gt gte lt lte: numbers with numbers; an instant with instants; another string with strings, by code point.
- contains: part of a text, or member of a list.  starts_with, matches: texts only.
- What is too large to be compared within the limits is unknown, unless a part that was read decides.

`field` is looked up as one whole key of the state first (agents like flat states), then name by name.
Pure, and bounded in time for any state.  Must not be the way to find experiences among many: condition_index.py is.
"""

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Literal

from memory_service.experience.conditions import LIST_INDEX, Condition
from memory_service.experience.conditions_patterns import Patterns
from memory_service.experience.conditions_settings import ConditionLimits
from memory_service.experience.conditions_values import Incomparable, key_of, member_keys
from memory_service.timestamps import instant

MatchKind = Literal["exact", "partial"]


@dataclass(frozen=True, slots=True)
class Match:
    """`kind`: exact = all true; partial = none false, some true, some unknown; None = neither."""

    kind: MatchKind | None
    matched: tuple[Condition, ...]
    missing: tuple[Condition, ...]
    failed: tuple[Condition, ...]


def lookup(state: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path, None when missing.  Not-finite numbers can't come from JSON and count as missing."""
    value: Any = state.get(path)
    if value is None and "." in path:
        value = state
        for name in path.split("."):
            value = step(value, name)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def step(value: Any, name: str) -> Any:
    """One name further into an object, or one number further into a list."""
    if isinstance(value, Mapping):
        return value.get(name)
    if isinstance(value, list) and LIST_INDEX.fullmatch(name) and int(name) < len(value):
        return value[int(name)]
    return None


class Operand:
    """A present value of the state, with the forms that operators compare, each made when first needed."""

    def __init__(self, raw: Any, limits: ConditionLimits) -> None:
        self.raw = raw
        self._limits = limits

    @cached_property
    def key(self) -> Hashable:
        """None (no present value has that key) when it is too large to be compared."""
        try:
            return key_of(self.raw, self._limits.state_nodes_max, self._limits.state_depth_max)
        except Incomparable:
            return None

    @cached_property
    def moment(self) -> datetime | None:
        return instant(self.raw) if isinstance(self.raw, str) else None

    @cached_property
    def members(self) -> tuple[frozenset[Hashable], bool]:
        return member_keys(self.raw, self._limits.state_nodes_max, self._limits.state_depth_max)

    @cached_property
    def text_head(self) -> tuple[str, bool]:
        """As much of the text as `contains` may read, and whether that is all."""
        text, most = self.raw, self._limits.state_text_chars_max
        return text[:most], len(text) <= most

    @cached_property
    def pattern_text(self) -> bytes | None:
        if len(self.raw) > self._limits.pattern_text_chars_max:
            return None
        raw: bytes = self.raw.encode("utf-8", "replace")
        return raw


class Evaluator:
    """Evaluation under given limits.  Keeps compiled patterns, so for one thread at a time."""

    def __init__(self, limits: ConditionLimits) -> None:
        self.limits = limits
        self._patterns = Patterns(limits)

    def operand(self, state: Mapping[str, Any], path: str) -> Operand | None:
        """None when the field is missing or null."""
        raw = lookup(state, path)
        return None if raw is None else Operand(raw, self.limits)

    def evaluate(self, condition: Condition, state: Mapping[str, Any]) -> bool | None:
        """True, False, or None for unknown."""
        return self.holds(condition, self.operand(state, condition.field))

    def match(self, conditions: Iterable[Condition], state: Mapping[str, Any]) -> Match:
        operands: dict[str, Operand | None] = {}
        answers: dict[bool | None, list[Condition]] = {True: [], False: [], None: []}
        for condition in conditions:
            if condition.field not in operands:
                operands[condition.field] = self.operand(state, condition.field)
            answers[self.holds(condition, operands[condition.field])].append(condition)
        matched, failed, missing = (tuple(answers[answer]) for answer in (True, False, None))
        kind: MatchKind | None = None if failed or not matched else "partial" if missing else "exact"
        return Match(kind, matched, missing, failed)

    def holds(self, condition: Condition, operand: Operand | None) -> bool | None:
        """The one place that says what each operator means."""
        operator = condition.operator
        if operator == "exists":
            return bool(condition.target) is (operand is not None)
        if operand is None:
            return None
        if operator == "contains":  # first, with matches: the index leaves only these to be evaluated one by one
            return _contains(condition, operand)
        if operator == "not_contains":
            return _asked(False, _contains(condition, operand))
        if operator == "matches":
            return self._matches(condition.target, operand)
        if operator in ("eq", "ne"):
            return _asked(operator == "eq", None if operand.key is None else bool(operand.key == condition.target))
        if operator in ("in", "nin"):
            return _asked(operator == "in", None if operand.key is None else bool(operand.key in condition.target))
        if operator == "starts_with":
            return isinstance(operand.raw, str) and bool(operand.raw.startswith(condition.target))
        return _ordered(condition, operand)

    def _matches(self, pattern: str, operand: Operand) -> bool | None:
        if not isinstance(operand.raw, str):
            return False
        text = operand.pattern_text
        return None if text is None else self._patterns.found(pattern, text)


def _asked(positive: bool, answer: bool | None) -> bool | None:
    return answer if positive or answer is None else not answer


def _contains(condition: Condition, operand: Operand) -> bool | None:
    if isinstance(operand.raw, str):
        if not isinstance(condition.value, str):
            return False
        text, whole = operand.text_head
        return True if condition.value in text else False if whole else None
    if isinstance(operand.raw, list):
        keys, whole = operand.members
        return True if condition.target in keys else False if whole else None
    return False


def _ordered(condition: Condition, operand: Operand) -> bool:
    left, right = comparable(condition.target, operand), condition.target
    if left is None:
        return False
    if condition.operator in ("gt", "gte"):
        return bool(left > right) or (condition.operator == "gte" and bool(left == right))
    return bool(left < right) or (condition.operator == "lte" and bool(left == right))


def comparable(threshold: Any, operand: Operand) -> Any:
    """The operand in the threshold's kind (number, instant or text); None when it has no such form."""
    if isinstance(threshold, str):
        return operand.raw if isinstance(operand.raw, str) else None
    if isinstance(threshold, datetime):
        return operand.moment
    number = isinstance(operand.raw, int | float) and not isinstance(operand.raw, bool)
    return operand.raw if number else None
