"""What did the caller ask to narrow the search to?  Parses `filters` and refuses what makes no sense.

Pure.  The meaning of each operator is in stores/postgres/filters.py; this module only lets valid conditions through.
"""

from collections.abc import Mapping
from typing import Any

from memory_service.domain import FieldCondition
from memory_service.errors import FieldError, InvalidFields
from memory_service.stores.postgres.filters import BOOL_FIELDS, JSON_FIELDS, NUMBER_FIELDS, TEXT_FIELDS, TIME_FIELDS
from memory_service.timestamps import parse_time

OPERATORS = ("eq", "ne", "in", "nin", "gt", "gte", "lt", "lte", "contains", "exists")
ORDERED = ("gt", "gte", "lt", "lte")
VALUES_MAX = 1000
PATH_PARTS_MAX = 32
NAME_CHARS_MAX = 200  # of what is echoed in an error


def parse_filters(filters: Mapping[str, Any], conditions_max: int) -> tuple[FieldCondition, ...]:
    """Conditions of `{field: {operator: value}}`, all of which must hold.  Raises InvalidFields naming each bad one."""
    conditions, errors = [], []
    for field, operators in filters.items():
        where = f"filters.{field[:NAME_CHARS_MAX]}"
        if (problem := _bad_field(field)) is not None:
            errors.append(FieldError(where, problem))
        elif not isinstance(operators, dict) or not operators:
            errors.append(FieldError(where, 'must be an object of operators such as {"eq": "value"}'))
        else:
            for operator, value in operators.items():
                if (problem := _bad_condition(field, operator, value)) is not None:
                    errors.append(FieldError(f"{where}.{operator[:NAME_CHARS_MAX]}", problem))
                else:
                    conditions.append(FieldCondition(field, operator, value))
    if len(conditions) + len(errors) > conditions_max:
        errors.append(FieldError("filters", f"at most {conditions_max} conditions"))
    if errors:
        raise InvalidFields("; ".join(f"{e.field}: {e.message}" for e in errors[:5]), errors=tuple(errors[:20]))
    return tuple(conditions)


def _bad_field(field: str) -> str | None:
    if field.startswith("metadata."):
        parts = field.removeprefix("metadata.").split(".")
        return None if len(parts) <= PATH_PARTS_MAX and all(parts) else "is not a path into metadata"
    if any(field in known for known in (TEXT_FIELDS, NUMBER_FIELDS, TIME_FIELDS, BOOL_FIELDS, JSON_FIELDS)):
        return None
    return "is not a field of a memory"


def _bad_condition(field: str, operator: str, value: Any) -> str | None:
    if operator not in OPERATORS:
        return f"unknown operator; one of {', '.join(OPERATORS)}"
    if operator == "exists":
        return None if isinstance(value, bool) else "must be true or false"
    if operator in ("in", "nin"):
        if not isinstance(value, list) or not 1 <= len(value) <= VALUES_MAX:
            return f"must be a list of 1 to {VALUES_MAX} values"
        problems = (_bad_value(field, "eq", one) for one in value)
        return next((problem for problem in problems if problem), None)
    return _bad_value(field, operator, value)


def _bad_value(field: str, operator: str, value: Any) -> str | None:
    if value is None:
        return None if operator in ("eq", "ne") else "null can only be compared with eq, ne, in and nin"
    if operator == "contains" and (field in NUMBER_FIELDS or field in TIME_FIELDS or field in BOOL_FIELDS):
        return "contains works on texts and lists"
    if field in TEXT_FIELDS:
        return None if isinstance(value, str) else "must be a string"
    if field in NUMBER_FIELDS:
        return None if isinstance(value, int | float) and not isinstance(value, bool) else "must be a number"
    if field in TIME_FIELDS:
        return (
            None
            if isinstance(value, str) and _is_time(value)
            else "must be an RFC 3339 time such as 2026-01-31T09:30:00Z"
        )
    if field in BOOL_FIELDS:
        return (
            None
            if isinstance(value, bool) and operator in ("eq", "ne")
            else "must be true or false, compared with eq or ne"
        )
    if operator in ORDERED:
        return (
            None
            if isinstance(value, str | int | float) and not isinstance(value, bool)
            else "must be a number or a string"
        )
    return None


def _is_time(value: str) -> bool:
    try:
        parse_time(value)
    except ValueError:
        return False
    return True
