"""What does API.md say about filters?  A plain evaluator in Python, written from the contract and not from the SQL.

Missing and null are the same.  Types are strict.  RFC 3339 strings compare as instants, `contains` is substring on text
and membership on lists.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

ABSENT: Any = None


def matches(memory: dict[str, Any], filters: dict[str, dict[str, Any]]) -> bool:
    """All conditions hold for this memory object."""
    return all(
        holds(value_at(memory, field), operator, value)
        for field, ops in filters.items()
        for operator, value in ops.items()
    )


def value_at(memory: dict[str, Any], field: str) -> Any:
    if field == "index.state":
        return memory["index"]["state"]
    if not field.startswith("metadata."):
        return memory[field]
    path = field.removeprefix("metadata.")
    if (whole := memory["metadata"].get(path)) is not None:
        return whole
    value: Any = memory["metadata"]
    for part in path.split("."):
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and part.lstrip("-").isdigit() and -len(value) <= int(part) < len(value):
            value = value[int(part)]
        else:
            return ABSENT
    return value


def holds(stored: Any, operator: str, asked: Any) -> bool:
    if operator == "exists":
        return (stored is not None) == asked
    if operator in ("eq", "in"):
        return any(equal(stored, one) for one in (asked if operator == "in" else [asked]))
    if operator in ("ne", "nin"):
        return not any(equal(stored, one) for one in (asked if operator == "nin" else [asked]))
    if operator == "contains":
        if isinstance(stored, str):
            return isinstance(asked, str) and asked in stored
        return isinstance(stored, list) and any(identical(one, asked) for one in stored)
    return ordered(stored, operator, asked)


def equal(stored: Any, asked: Any) -> bool:
    if isinstance(stored, str) and isinstance(asked, str) and (moment := instant(asked)) is not None:
        return instant(stored) == moment or stored == asked
    return identical(stored, asked)


def identical(a: Any, b: Any) -> bool:
    """The same JSON value: 1 and 1.0 are one number, 1 and true and "1" are three things."""
    if is_number(a) and is_number(b):
        return number(a) == number(b)
    if type(a) is not type(b):
        return False
    if isinstance(a, list):
        return len(a) == len(b) and all(identical(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(identical(a[key], b[key]) for key in a)
    return bool(a == b)


def ordered(stored: Any, operator: str, asked: Any) -> bool:
    left: Any
    right: Any
    if is_number(stored) and is_number(asked):
        left, right = number(stored), number(asked)
    elif isinstance(stored, str) and isinstance(asked, str):
        if (right := instant(asked)) is not None:
            if (left := instant(stored)) is None:
                return False
        else:
            left, right = stored.encode(), asked.encode()
    else:
        return False
    return bool({"gt": left > right, "gte": left >= right, "lt": left < right, "lte": left <= right}[operator])


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def number(value: float) -> Decimal:
    """As written in JSON: 0.1 is a tenth, not the nearest binary fraction."""
    return Decimal(repr(value))


def instant(text: str) -> datetime | None:
    """Full RFC 3339 strings only; a date or a naive time is just text."""
    if not (len(text) >= 20 and text[10] in "Tt " and (text[-1] in "Zz" or text[-3] == ":") and text.isascii()):
        return None
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError:
        return None
    return moment.astimezone(UTC) if moment.tzinfo else None
