"""Does an answer fit the JSON schema that was asked for, and what does it say once it is cut to its bounds?

A strict validator for the part of JSON Schema that Hindsight's prompts use; a schema with any other word is refused, so
nothing is silently unchecked.  Types, enums and required keys are facts about an answer; sizes and numeric bounds are
mended here, because grammar-constrained servers do not enforce them.  Pure: it asks nobody.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

Schema = Mapping[str, Any]

# What the strict modes of OpenAI and Azure refused at one time or another; the answer is cut to them here all the same.
_BOUNDS = frozenset(("maxItems", "maxLength", "minimum", "maximum"))
_SHAPES = frozenset(("type", "enum", "properties", "required", "additionalProperties", "items", "anyOf"))
_KNOWN = _BOUNDS | _SHAPES | {"description", "title"}
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
PROBLEMS_MAX = 8
DEPTH_MAX = 32
INTEGER_MAX = 2**63 - 1  # what JSON writers and Postgres take


def fit(value: Any, schema: Schema) -> tuple[Any, list[str]]:
    """(`value` with lists, texts and numbers cut to the schema's bounds and unknown keys left out, what does not fit).

    NUL and lone surrogates become U+FFFD.  Problems name the place as a dotted path and never repeat the value.
    """
    problems: list[str] = []
    fitted = _fit(value, schema, "answer", problems, 0)
    return fitted, problems[:PROBLEMS_MAX]


def check_schema(schema: Schema) -> None:
    """Raises ValueError when the schema uses a word that `fit` does not know."""
    if unknown := set(schema) - _KNOWN:
        raise ValueError(f"the schema uses {', '.join(sorted(unknown))}, which is not checked here")
    for part in _parts(schema):
        check_schema(part)


def without_bounds(schema: Schema) -> dict[str, Any]:
    """The same schema without sizes and numeric bounds, for servers that refuse those."""
    kept: dict[str, Any] = {word: said for word, said in schema.items() if word not in _BOUNDS}
    if "properties" in kept:
        kept["properties"] = {name: without_bounds(part) for name, part in kept["properties"].items()}
    if "items" in kept:
        kept["items"] = without_bounds(kept["items"])
    if "anyOf" in kept:
        kept["anyOf"] = [without_bounds(part) for part in kept["anyOf"]]
    return kept


def _parts(schema: Schema) -> list[Schema]:
    items = [schema["items"]] if "items" in schema else []
    return [*schema.get("properties", {}).values(), *items, *schema.get("anyOf", ())]


def _fit(value: Any, schema: Schema, at: str, problems: list[str], depth: int) -> Any:
    if depth > DEPTH_MAX:
        problems.append(f"{at}: is nested too deeply")
        return None
    if "anyOf" in schema:
        return _first_fitting(value, schema["anyOf"], at, problems, depth)
    types = _types(schema)
    if types and not any(_is(value, name) for name in types):
        problems.append(f"{at}: must be {' or '.join(types)}")
        return value
    if isinstance(value, dict):
        return _fit_object(value, schema, at, problems, depth)
    if isinstance(value, list):
        return _fit_list(value, schema, at, problems, depth)
    fitted = _fit_plain(value, schema, at, problems)
    if "enum" in schema and not any(type(fitted) is type(one) and fitted == one for one in schema["enum"]):
        problems.append(f"{at}: must be one of the values that the schema lists")
    return fitted


def _types(schema: Schema) -> Sequence[str]:
    said = schema.get("type", ())
    return (said,) if isinstance(said, str) else said


def _is(value: Any, name: str) -> bool:
    """A number of any size is one, also not finite: that has its own complaint.  3.0 is an integer, true is no number."""
    if name == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    if name == "integer":
        return (isinstance(value, int) and not isinstance(value, bool)) or (
            isinstance(value, float) and value.is_integer()
        )
    kinds: dict[str, type] = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
    return isinstance(value, kinds[name])


def _first_fitting(value: Any, schemas: Sequence[Schema], at: str, problems: list[str], depth: int) -> Any:
    for schema in schemas:
        found: list[str] = []
        fitted = _fit(value, schema, at, found, depth + 1)
        if not found:
            return fitted
    problems.append(f"{at}: fits none of the forms that the schema allows")
    return value


def _fit_object(value: dict[str, Any], schema: Schema, at: str, problems: list[str], depth: int) -> dict[str, Any]:
    properties: Mapping[str, Schema] = schema.get("properties", {})
    problems += [f"{at}.{name}: is missing" for name in schema.get("required", ()) if name not in value]
    fitted = {
        name: _fit(value[name], part, f"{at}.{name}", problems, depth + 1)
        for name, part in properties.items()
        if name in value
    }
    if schema.get("additionalProperties", True) is False:
        return fitted
    others = {
        _storable(name): _fit(other, {}, at, problems, depth + 1)
        for name, other in value.items()
        if name not in properties
    }
    return {**fitted, **others}


def _fit_list(value: list[Any], schema: Schema, at: str, problems: list[str], depth: int) -> list[Any]:
    kept = value[: schema.get("maxItems", len(value))]
    part: Schema = schema.get("items", {})
    return [_fit(one, part, f"{at}.{index}", problems, depth + 1) for index, one in enumerate(kept)]


def _fit_plain(value: Any, schema: Schema, at: str, problems: list[str]) -> Any:
    if isinstance(value, str):
        return _storable(value)[: schema.get("maxLength", len(value))]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        problems.append(f"{at}: must be a finite number")
        return None
    bounded = min(max(value, schema.get("minimum", value)), schema.get("maximum", value))
    if isinstance(bounded, int) and abs(bounded) > INTEGER_MAX:
        problems.append(f"{at}: must be a number of at most 64 bits")
        return None
    return int(bounded) if "integer" in _types(schema) else bounded


def _storable(text: str) -> str:
    return _UNSTORABLE.sub("\ufffd", text)
