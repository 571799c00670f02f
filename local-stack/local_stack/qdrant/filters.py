"""Which points does a filter select? Translates Qdrant's JSON filters into the engine's.

Every condition is either mapped whole or refused: half a filter selects the wrong points.
"""

from __future__ import annotations

from collections.abc import Callable

import qdrant_edge as edge

from local_stack.qdrant.errors import BadRequest, NotMapped
from local_stack.qdrant.fields import Fields, point_ids

_DEPTH_MAX = 32  # Python's recursion would end in a crash, the engine's in an aborted process


class _Truth:
    """A boolean that the engine takes for one.

    qdrant-edge 0.9 tries a match value as a string, then as an integer, and Python's True is an integer: it would look
    for the number 1. Its binding (PyO3) also accepts NumPy's boolean, by the type's name, and that is no integer.
    """

    def __init__(self, value: bool) -> None:
        self._value = value

    def __bool__(self) -> bool:
        return self._value


_Truth.__module__, _Truth.__name__ = "numpy", "bool_"


def filter_of(value: object, where: str = "filter", depth: int = 0) -> edge.Filter | None:
    """The engine's filter, None when absent. An empty object selects everything, as in Qdrant."""
    if value is None:
        return None
    if depth > _DEPTH_MAX:
        raise BadRequest(f"{where} is nested deeper than {_DEPTH_MAX}")
    fields = Fields(value, where)
    found = edge.Filter(
        must=_conditions(fields.take("must"), f"{where}.must", depth),
        should=_conditions(fields.take("should"), f"{where}.should", depth),
        must_not=_conditions(fields.take("must_not"), f"{where}.must_not", depth),
        min_should=_min_should(fields.take("min_should"), f"{where}.min_should", depth),
    )
    fields.done()
    return found


def need_filter(value: object, where: str) -> edge.Filter:
    """As filter_of, 400 when absent."""
    found = filter_of(value, where)
    if found is None:
        raise BadRequest(f"missing field `{where}`")
    return found


def _min_should(value: object, where: str, depth: int) -> edge.MinShould | None:
    if value is None:
        return None
    fields = Fields(value, where)
    conditions = _conditions(fields.need("conditions"), f"{where}.conditions", depth) or []
    least = fields.whole("min_count")
    fields.done()
    if least is None:
        raise BadRequest(f"{where}: missing field `min_count`")
    return edge.MinShould(conditions=conditions, min_count=least)


def _conditions(value: object, where: str, depth: int) -> list[edge.ConditionType] | None:
    if value is None:
        return None
    listed = value if isinstance(value, list) else [value]
    return [_condition(item, where, depth + 1) for item in listed]


def _condition(value: object, where: str, depth: int) -> edge.ConditionType:
    fields = Fields(value, where)
    names = fields.names()
    if not names or any(name in ("must", "should", "must_not", "min_should") for name in names):
        return filter_of(value, where, depth) or edge.Filter()
    found: edge.ConditionType
    if "key" in fields:
        found = _field_condition(fields)
    elif "has_id" in fields:
        found = edge.HasIdCondition(set(point_ids(fields.take("has_id"), f"{where}.has_id")))
    elif "has_vector" in fields:
        found = edge.HasVectorCondition(fields.need_text("has_vector"))
    elif "is_empty" in fields:
        found = edge.IsEmptyCondition(_key_of(fields.take("is_empty"), f"{where}.is_empty"))
    elif "is_null" in fields:
        found = edge.IsNullCondition(_key_of(fields.take("is_null"), f"{where}.is_null"))
    elif "nested" in fields:
        nested = Fields(fields.take("nested"), f"{where}.nested")
        inner = filter_of(nested.need("filter"), f"{where}.nested.filter", depth) or edge.Filter()
        found = edge.NestedCondition(key=nested.need_text("key"), filter=inner)
        nested.done()
    else:
        raise NotMapped(f"condition with {', '.join(sorted(names))} in {where}")
    fields.done()
    return found


def _key_of(value: object, where: str) -> str:
    fields = Fields(value, where)
    key = fields.need_text("key")
    fields.done()
    return key


def _field_condition(fields: Fields) -> edge.FieldCondition:
    key = fields.need_text("key")
    match, span, count = fields.take("match"), fields.take("range"), fields.take("values_count")
    empty, null = fields.flag("is_empty"), fields.flag("is_null")
    if all(part is None for part in (match, span, count, empty, null)):
        fields.done()  # a condition that is not mapped is named before the condition is called empty
        raise BadRequest(f"{fields.where}: no condition for the key {key!r}")
    return edge.FieldCondition(
        key=key,
        match=None if match is None else _match(match, f"{key}.match"),
        range=None if span is None else _range(span, f"{key}.range"),
        values_count=None if count is None else _values_count(count, f"{key}.values_count"),
        is_empty=empty,
        is_null=null,
    )


def _match(value: object, where: str) -> edge.MatchType:
    fields = Fields(value, where)
    names = fields.names()
    if len(names) != 1:
        raise BadRequest(f"{where} must have exactly one of value, any, except, text, text_any, phrase, prefix")
    name = names[0]
    if name == "value":
        exact = fields.take("value")
        if not isinstance(exact, str | int | bool):
            raise BadRequest(f"{where}.value must be a string, an integer or a boolean")
        return edge.MatchValue(_Truth(exact) if isinstance(exact, bool) else exact)  # type: ignore[arg-type]
    if name == "any":
        return edge.MatchAny(_alike(fields.items("any"), f"{where}.any"))
    if name == "except":
        return edge.MatchExcept(_alike(fields.items("except"), f"{where}.except"))
    texts: dict[str, Callable[[str], edge.MatchType]] = {
        "text": edge.MatchText,
        "text_any": edge.MatchTextAny,
        "phrase": edge.MatchPhrase,
        "prefix": edge.MatchPrefix,
        "substring": edge.MatchSubstring,
    }
    if name in texts:
        return texts[name](fields.need_text(name))
    raise NotMapped(f"{where}: match by {name}")


def _alike(values: list[object] | None, where: str) -> list[str] | list[int]:
    """All strings or all integers: Qdrant knows no mixed lists."""
    listed = values or []
    strings = [value for value in listed if isinstance(value, str)]
    numbers = [value for value in listed if isinstance(value, int) and not isinstance(value, bool)]
    if len(strings) == len(listed):
        return strings
    if len(numbers) == len(listed):
        return numbers
    raise BadRequest(f"{where} must hold only strings or only integers")


def _range(value: object, where: str) -> edge.RangeType:
    """Numbers compare as numbers, strings as RFC 3339 instants."""
    fields = Fields(value, where)
    bounds = {name: fields.take(name) for name in ("gt", "gte", "lt", "lte") if name in fields}
    fields.done()
    if bounds and all(isinstance(bound, str) for bound in bounds.values()):
        return edge.RangeDateTime(**bounds)
    if all(isinstance(bound, int | float) and not isinstance(bound, bool) for bound in bounds.values()):
        return edge.RangeFloat(**{name: float(bound) for name, bound in bounds.items()})
    raise BadRequest(f"{where} must hold only numbers or only RFC 3339 times")


def _values_count(value: object, where: str) -> edge.ValuesCount:
    fields = Fields(value, where)
    found = edge.ValuesCount(
        lt=fields.whole("lt"), gt=fields.whole("gt"), lte=fields.whole("lte"), gte=fields.whole("gte")
    )
    fields.done()
    return found
