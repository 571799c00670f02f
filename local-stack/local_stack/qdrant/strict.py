"""Does a filter name only fields that have an index? Qdrant's strict mode, of which these two rules are mapped.

Reads filters as they came; whether they are well-formed is filters.py's work.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from local_stack.qdrant.errors import BadRequest
from local_stack.qdrant.fields import Fields

Json = dict[str, Any]
_CLAUSES = ("must", "should", "must_not")
_DEPTH_MAX = 32
RETRIEVE, UPDATE = "unindexed_filtering_retrieve", "unindexed_filtering_update"


def strict_mode(value: object) -> Json:
    """The settings to keep. 501 for a rule that is not mapped: it would seem to be in force."""
    fields = Fields(value, "strict_mode_config")
    found = {name: fields.flag(name) for name in ("enabled", RETRIEVE, UPDATE)}
    fields.done()
    return {name: given for name, given in found.items() if given is not None}


def refuse_unindexed(mode: Json, indexed: Collection[str], body: object, rule: str) -> None:
    """400 in Qdrant's words when strict mode is on and a filter anywhere in `body` names a field without an index."""
    if not mode.get("enabled") or mode.get(rule) is not False or not isinstance(body, dict):
        return
    for key in _filtered_keys(body, 0):
        if key not in indexed:
            raise BadRequest(
                f'Index required but not found for "{key}". Help: Create an index for this key or use a different filter.'
            )


def _filtered_keys(body: Json, depth: int) -> Iterator[str]:
    """Keys of the filters of a request, of its prefetches and of the searches of a batch."""
    if depth > _DEPTH_MAX:
        raise BadRequest(f"nested deeper than {_DEPTH_MAX}")
    yield from _keys_of(body.get("filter"), "", depth)
    for name in ("prefetch", "searches"):
        for inner in _listed(body.get(name)):
            if isinstance(inner, dict):
                yield from _filtered_keys(inner, depth + 1)


def _keys_of(value: object, prefix: str, depth: int) -> Iterator[str]:
    if not isinstance(value, dict):
        return
    if depth > _DEPTH_MAX:
        raise BadRequest(f"filter is nested deeper than {_DEPTH_MAX}")
    clauses = [value.get(name) for name in _CLAUSES]
    least = value.get("min_should")
    clauses.append(least.get("conditions") if isinstance(least, dict) else None)
    for condition in (one for clause in clauses for one in _listed(clause)):
        if not isinstance(condition, dict):
            continue
        for named in (condition, condition.get("is_empty"), condition.get("is_null")):
            if isinstance(named, dict) and isinstance(named.get("key"), str):
                yield prefix + named["key"]
        nested = condition.get("nested")
        if isinstance(nested, dict):
            yield from _keys_of(
                nested.get("filter"), f"{prefix}{str(nested.get('key')).removesuffix('[]')}[].", depth + 1
            )
        yield from _keys_of(condition, prefix, depth + 1)


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
