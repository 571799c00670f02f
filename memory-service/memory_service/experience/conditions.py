"""When does a lesson apply, in one spelling?

Parses `[{field, operator, value}]`, refuses what makes no sense naming the place, and normalises: two ways of writing the
same conditions become equal triples and one `condition_hash`.  Pure; what a triple means for a state is matching.py's work.

Decisions:
- `field` is a dotted path: names, or numbers from 0 where the state has a list (`steps.0.tool`).
- null is the same as missing, so it is not a value to compare with: `exists` asks for that.
- Operators in any case; numbers, instants and object keys in one spelling; `in` and `nin` lists sorted, each value once;
  triples sorted, each once.  `exists` without a value means true.  `in` with one value stays `in`.
- Scope in the hash is tenant and user_id.  The agent is left out: what one agent learned, the others can use.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from dataclasses import field as part
from typing import Any, Literal, cast, get_args

import orjson

from memory_service.errors import FieldError, InvalidFields
from memory_service.experience.conditions_patterns import compile_pattern
from memory_service.experience.conditions_settings import ConditionLimits
from memory_service.experience.conditions_values import Incomparable, key_of, normalised
from memory_service.timestamps import instant

Operator = Literal[
    "eq", "ne", "in", "nin", "gt", "gte", "lt", "lte", "contains", "not_contains", "starts_with", "matches", "exists"
]
OPERATORS: tuple[Operator, ...] = get_args(Operator)
ORDERED: tuple[Operator, ...] = ("gt", "gte", "lt", "lte")
LISTED: tuple[Operator, ...] = ("in", "nin")
# Operators that compare whole values, where another offset is only another spelling.  The rest reads the text itself.
BY_VALUE: tuple[Operator, ...] = ("eq", "ne", *LISTED, *ORDERED)
LIST_INDEX = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)  # of a field's name where the state has a list
HASH_VERSION = "conditions-1"  # stored hashes depend on every rule of this module
ERRORS_MAX = 20
NODES_MAX = 1_000_000  # not a limit: value_bytes_max bounds a condition's value before


@dataclass(frozen=True, slots=True)
class Condition:
    """One normalised triple.  Equal and hashed by `canonical`, its JSON: Python would take True for 1.

    `value` is JSON that nobody may change.  `target` is what evaluation compares with: a key of conditions_values for eq, ne,
    contains and not_contains, a set of keys for in and nin, a number, text or instant for gt, gte, lt and lte, else the value.
    """

    field: str = part(compare=False)
    operator: Operator = part(compare=False)
    value: Any = part(compare=False)
    canonical: bytes
    target: Any = part(compare=False, repr=False)

    def __hash__(self) -> int:
        """Of the bytes alone, which remember theirs: indexes ask for it a few times per lesson."""
        return hash(self.canonical)

    def as_json(self) -> dict[str, Any]:
        return {"field": self.field, "operator": self.operator, "value": self.value}


def parse_conditions(raw: Any, limits: ConditionLimits, where: str = "conditions") -> tuple[Condition, ...]:
    """Normalised triples in canonical order.  `raw` is parsed JSON; `where` is the field that holds it in the request.

    Raises InvalidFields naming each bad place, such as `conditions.3.value`.
    """
    if not isinstance(raw, list | tuple) or not raw:
        raise InvalidFields.of(where, "must be a list of 1 or more {field, operator, value}")
    if len(raw) > limits.triples_max:
        raise InvalidFields.of(where, f"at most {limits.triples_max} conditions")
    conditions: dict[Condition, None] = {}
    errors: list[FieldError] = []
    for position, one in enumerate(raw):
        try:
            conditions[_parsed(one, limits)] = None
        except _Refused as refused:
            errors += [FieldError(f"{where}.{position}{e.field}", e.message) for e in refused.errors]
    if errors:
        raise InvalidFields("; ".join(f"{e.field}: {e.message}" for e in errors[:5]), errors=tuple(errors[:ERRORS_MAX]))
    return tuple(sorted(conditions, key=lambda condition: condition.canonical))


def stored_condition(raw: Any, limits: ConditionLimits, known: dict[bytes, Condition]) -> Condition:
    """A triple as Postgres has it, which `parse_conditions` normalised before: not checked again, five times as fast.

    `known` has those made before by `canonical`: each is made once, however many lessons have it.  Rows that somebody changed
    by hand go the long way.  Raises InvalidFields.
    """
    try:
        path, operator, value = raw["field"], raw["operator"], raw["value"]
        if len(raw) == 3 and isinstance(path, str) and operator in OPERATORS and value is not None:
            canonical = orjson.dumps([path, operator, value], option=orjson.OPT_SORT_KEYS)
            made = known.get(canonical)
            if made is None:
                made = known[canonical] = Condition(path, operator, value, canonical, _target(operator, value, limits))
            return made
    except (KeyError, TypeError, Incomparable):
        pass
    condition = parse_conditions([raw], limits)[0]
    return known.setdefault(condition.canonical, condition)


def condition_hash(conditions: Iterable[Condition], *, tenant: str, user_id: str, task_type: str | None) -> bytes:
    """32 bytes of SHA-256; the order of the triples does not matter.  No task type and an empty one differ."""
    triples = sorted({condition.canonical for condition in conditions})
    scope = orjson.dumps([HASH_VERSION, tenant, user_id, task_type])
    return hashlib.sha256(b"\n".join([scope, *triples])).digest()  # JSON has no raw line feed, so the parts stay apart


class _Refused(Exception):
    """Fields relative to the triple: "" or ".value"."""

    def __init__(self, *errors: FieldError) -> None:
        super().__init__(errors)
        self.errors = errors


def _parsed(raw: Any, limits: ConditionLimits) -> Condition:
    if not isinstance(raw, Mapping):
        raise _Refused(FieldError("", "must be an object {field, operator, value}"))
    unknown = [str(name)[:64] for name in raw if name not in ("field", "operator", "value")][:ERRORS_MAX]
    errors = [FieldError(f".{name}", "is not a part of a condition") for name in unknown]
    path, operator = raw.get("field"), _operator(raw.get("operator"))
    if (problem := _bad_field(path, limits)) is not None:
        errors.append(FieldError(".field", problem))
    if operator is None:
        errors.append(FieldError(".operator", f"must be one of {', '.join(OPERATORS)}"))
        raise _Refused(*errors)
    if "value" not in raw and operator != "exists":
        errors.append(FieldError(".value", "is missing"))
        raise _Refused(*errors)
    try:
        value = _value(operator, raw.get("value", True), limits)
    except ValueError as error:
        errors.append(FieldError(".value", str(error)))
    if errors:
        raise _Refused(*errors)
    canonical = orjson.dumps([path, operator, value], option=orjson.OPT_SORT_KEYS)
    return Condition(cast(str, path), operator, value, canonical, _target(operator, value, limits))


def _operator(raw: Any) -> Operator | None:
    name = raw.strip().lower() if isinstance(raw, str) and len(raw) < 64 else None
    return next((operator for operator in OPERATORS if operator == name), None)


def _bad_field(path: Any, limits: ConditionLimits) -> str | None:
    if not isinstance(path, str) or not path.strip():
        return "must be a dotted path into the state such as arguments.path"
    if len(path) > limits.field_chars_max:
        return f"must have at most {limits.field_chars_max} characters"
    if any(unicodedata.category(c) in ("Cc", "Cs", "Cn", "Zl", "Zp") for c in path):
        return "must consist of printable characters"
    parts = path.split(".")
    if len(parts) > limits.field_parts_max:
        return f"must have at most {limits.field_parts_max} names"
    return None if all(part.strip() for part in parts) else "must not have an empty name between its dots"


def _value(operator: Operator, raw: Any, limits: ConditionLimits) -> Any:
    """The normalised value.  Raises ValueError."""
    if operator == "exists":
        if not isinstance(raw, bool):
            raise ValueError("must be true or false")
        return raw
    if raw is None:
        raise ValueError("must not be null; use exists with the value false")
    if operator in LISTED and not (isinstance(raw, list) and 1 <= len(raw) <= limits.values_max):
        raise ValueError(f"must be a list of 1 to {limits.values_max} values")
    if operator in ORDERED and (isinstance(raw, bool) or not isinstance(raw, str | int | float)):
        raise ValueError("must be a number or a string")
    if operator in ("starts_with", "matches") and not isinstance(raw, str):
        raise ValueError("must be a string")
    if raw == "" and operator in ("contains", "not_contains", "starts_with", "matches"):
        raise ValueError("must not be empty")
    value = normalised(raw, limits.value_depth_max, moments=operator in BY_VALUE)
    if operator in LISTED:
        value = _sorted_once(value)
    if len(orjson.dumps(value)) > limits.value_bytes_max:
        raise ValueError(f"must have at most {limits.value_bytes_max} bytes")
    if operator == "matches":
        compile_pattern(value, limits)
    return value


def _sorted_once(values: list[Any]) -> list[Any]:
    """By JSON text, which tells 1 from "1" and true; the order means nothing, it only has to be one."""
    if any(value is None for value in values):
        raise ValueError("must not contain null; use exists with the value false")
    return list({orjson.dumps(value): value for value in sorted(values, key=orjson.dumps)}.values())


def _target(operator: Operator, value: Any, limits: ConditionLimits) -> Any:
    if operator in ("eq", "ne", "contains", "not_contains"):
        return key_of(value, NODES_MAX, limits.value_depth_max)
    if operator in LISTED:
        return frozenset(key_of(one, NODES_MAX, limits.value_depth_max) for one in value)
    if operator in ORDERED and isinstance(value, str):
        return instant(value) or value
    return value
