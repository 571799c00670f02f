"""When are two JSON values the same?

Type-strict: 1 is 1.0 but not "1" and not true.  RFC 3339 strings are the same when they name the same instant, also inside
lists and objects.  Lists are ordered, objects are not.  Pure; must not know operators.
"""

import math
from collections.abc import Hashable
from typing import Any

from memory_service.timestamps import instant, time_text

INTEGER_MIN, INTEGER_MAX = -(2**63), 2**64 - 1  # what JSON bodies and jsonb carry exactly


class Incomparable(Exception):
    """Too many values, too deep, not finite, or not JSON: nothing can be said about it."""


def key_of(value: Any, nodes_max: int, depth_max: int) -> Hashable:
    """Equal keys mean equal values.  Raises Incomparable beyond `nodes_max` values or `depth_max` levels."""
    if isinstance(value, str):  # the usual case, without the bookkeeping
        return _text_key(value)
    return _Keys(nodes_max, depth_max).key(value, 1)


def member_keys(values: list[Any], nodes_max: int, depth_max: int) -> tuple[frozenset[Hashable], bool]:
    """Keys of a list's members, and whether these are all of them: beyond `nodes_max` values the rest is not read."""
    keys, found = _Keys(nodes_max, depth_max), set()
    try:
        for value in values:
            found.add(keys.key(value, 2))
    except Incomparable:
        return frozenset(found), False
    return frozenset(found), True


def _text_key(text: str) -> Hashable:
    return instant(text) or text


class _Keys:
    def __init__(self, nodes_max: int, depth_max: int) -> None:
        self.nodes_left = nodes_max
        self.depth_max = depth_max

    def key(self, value: Any, depth: int) -> Hashable:
        self.nodes_left -= 1
        if self.nodes_left < 0 or depth > self.depth_max:
            raise Incomparable
        if isinstance(value, str):
            return _text_key(value)
        if isinstance(value, bool):  # Python's True equals 1
            return ("boolean", value)
        if value is None or isinstance(value, int):
            return value
        if isinstance(value, float) and math.isfinite(value):
            return value  # Python compares int and float exactly and hashes equal ones alike
        if isinstance(value, list):
            return ("list", tuple([self.key(one, depth + 1) for one in value]))
        if isinstance(value, dict):
            return ("object", frozenset([(name, self.key(one, depth + 1)) for name, one in value.items()]))
        raise Incomparable


def normalised(value: Any, depth_max: int, *, moments: bool) -> Any:
    """The value with one spelling for each number (1.0 and -0.0 are written 1 and 0) and, if `moments`, for each instant.

    Raises ValueError saying what a condition may not contain.
    """
    if depth_max < 1:
        raise ValueError("is nested too deep")
    if isinstance(value, str):
        _refuse_unstorable(value)
        moment = instant(value) if moments else None
        return value if moment is None else time_text(moment)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, list):
        return [normalised(one, depth_max - 1, moments=moments) for one in value]
    if isinstance(value, dict):
        for name in value:
            if not isinstance(name, str):
                raise ValueError("must be JSON")
            _refuse_unstorable(name)
        return {name: normalised(value[name], depth_max - 1, moments=moments) for name in sorted(value)}
    raise ValueError("must be JSON")


def _number(value: int | float) -> int | float:
    """Beyond 64 bits even floats are refused: jsonb would hand 1e300 back as an integer of 301 digits."""
    if not math.isfinite(value):
        raise ValueError("must be a finite number")
    if not INTEGER_MIN <= value <= INTEGER_MAX:
        raise ValueError("must be a number of at most 64 bits")
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _refuse_unstorable(text: str) -> None:
    if "\x00" in text or any("\ud800" <= c <= "\udfff" for c in text):
        raise ValueError("must not contain NUL or lone surrogates")
