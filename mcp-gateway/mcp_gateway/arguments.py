"""Are these tool arguments what the tool declares? Flat JSON Schemas out, checked values or one clear sentence back.

Pure. Must not know tools, and must not repair silently: the one leniency is a JSON string where an object or a list
is declared, because several clients send nested values that way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import orjson

from mcp_gateway.client import Json
from mcp_gateway.errors import BadArguments

Kind = Literal["string", "integer", "number", "object", "string list", "object list"]

# The service's own limit for nesting; checked here because the JSON writer recurses.
_DEPTH_MAX = 32
_INTEGER_BITS = 64
_NAMED = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "object": 'an object such as {"key": "value"}',
    "string list": 'a list of strings such as ["one", "two"]',
    "object list": 'a list of objects such as [{"key": "value"}]',
}


@dataclass(frozen=True)
class Argument:
    """One named argument; `choices` bound a string or the members of a string list."""

    name: str
    kind: Kind
    description: str
    required: bool = False
    default: str | int | None = None
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None

    def schema(self) -> dict[str, Json]:
        """JSON Schema of this property without anyOf, oneOf, $ref or null: several clients reject those."""
        bounds: dict[str, Json] = {"enum": list(self.choices)} if self.choices else {}
        match self.kind:
            case "object":
                core: dict[str, Json] = {"type": "object", "additionalProperties": True}
            case "string list":
                core = {"type": "array", "items": {"type": "string", **bounds}}
            case "object list":
                core = {"type": "array", "items": {"type": "object", "additionalProperties": True}}
            case scalar:
                core = {"type": scalar, **bounds}
        for key, value in (("minimum", self.minimum), ("maximum", self.maximum), ("default", self.default)):
            if value is not None:
                core[key] = value
        return {**core, "description": self.description}


def input_schema(arguments: Sequence[Argument]) -> dict[str, Json]:
    return {
        "type": "object",
        "properties": {argument.name: argument.schema() for argument in arguments},
        "required": [argument.name for argument in arguments if argument.required],
        "additionalProperties": False,
    }


def check_arguments(tool: str, declared: Sequence[Argument], given: Mapping[str, Json]) -> dict[str, Json]:
    """Values by argument name, defaults filled in; null counts as not given. Raises BadArguments."""
    by_name = {argument.name: argument for argument in declared}
    unknown = [name for name in given if name not in by_name]
    if unknown:
        raise BadArguments(
            f"{tool} has no argument {_names(unknown)}. Allowed: {', '.join(by_name)}. Call it again without it."
        )
    checked: dict[str, Json] = {}
    for argument in declared:
        value = given.get(argument.name)
        if value is not None:
            checked[argument.name] = _check_value(argument, value)
        elif argument.required:
            raise BadArguments(f"{tool} needs the argument '{argument.name}': {_NAMED[argument.kind]}.")
        elif argument.default is not None:
            checked[argument.name] = argument.default
    return checked


def _check_value(argument: Argument, value: Json) -> Json:
    if isinstance(value, str) and argument.kind in ("object", "string list", "object list"):
        try:
            value = orjson.loads(value)
        except ValueError:
            raise _wrong(argument) from None
    _check_text_and_numbers(argument.name, value)
    if not _has_kind(argument.kind, value):
        raise _wrong(argument)
    if argument.choices and not set(value if isinstance(value, list) else [value]) <= set(argument.choices):
        raise BadArguments(f"'{argument.name}' must be one of: {', '.join(argument.choices)}.")
    if isinstance(value, int | float):
        _check_bounds(argument, value)
        return int(value) if argument.kind == "integer" else value
    return value


def _has_kind(kind: Kind, value: Json) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "integer":
            # JSON Schema counts 5.0 as an integer, and some clients write it.
            return not isinstance(value, bool) and (isinstance(value, int) or _is_whole(value))
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "object":
            return isinstance(value, dict)
        case "string list":
            return isinstance(value, list) and all(isinstance(member, str) for member in value)
        case "object list":
            return isinstance(value, list) and all(isinstance(member, dict) for member in value)


def _is_whole(value: Json) -> bool:
    return isinstance(value, float) and value.is_integer()


def _check_bounds(argument: Argument, value: float) -> None:
    low, high = argument.minimum, argument.maximum
    if (low is not None and value < low) or (high is not None and value > high):
        span = f"between {low} and {high}" if low is not None and high is not None else f"at least {low}"
        raise BadArguments(f"'{argument.name}' must be {span}.")


def _check_text_and_numbers(name: str, value: Json) -> None:
    """Refuse what no store can keep, wherever it hides: NUL, lone surrogates, NaN, huge integers, deep nesting."""
    if not isinstance(value, dict | list):  # nearly always
        _check_scalar(name, value)
        return
    level: list[Json] = [value]
    for _ in range(_DEPTH_MAX + 1):
        if not level:
            return
        below: list[Json] = []
        for item in level:
            _check_scalar(name, item)
            if isinstance(item, dict):
                for key in item:
                    _check_scalar(name, key)
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        level = below
    raise BadArguments(f"'{name}' is nested deeper than {_DEPTH_MAX} levels. Flatten it.")


def _check_scalar(name: str, item: Json) -> None:
    if isinstance(item, str):
        if "\x00" in item or not _is_whole_text(item):
            raise BadArguments(f"'{name}' contains a NUL character or half of a surrogate pair. Remove it.")
    elif isinstance(item, float):
        if not math.isfinite(item):
            raise BadArguments(f"'{name}' contains NaN or an infinity. Use a finite number or leave it out.")
    elif isinstance(item, int) and item.bit_length() >= _INTEGER_BITS:
        raise BadArguments(f"'{name}' contains an integer that needs more than 64 bits. Send it as a string.")


def _is_whole_text(item: str) -> bool:
    """UTF-8 has no bytes for half a surrogate pair."""
    if item.isascii():
        return True
    try:
        item.encode()
    except UnicodeEncodeError:
        return False
    return True


def _wrong(argument: Argument) -> BadArguments:
    return BadArguments(f"'{argument.name}' must be {_NAMED[argument.kind]}.")


def _names(names: Iterable[str]) -> str:
    """Unknown names, quoted and bounded: they come from a model and go back to it."""
    shown = [ascii(name[:40]) for name in list(names)[:5]]
    return ", ".join(shown)
