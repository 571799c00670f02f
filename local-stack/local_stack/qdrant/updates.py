"""What does a write do? Translates every mapped update, alone or inside `points/batch`, into the engine's operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import qdrant_edge as edge

from local_stack.qdrant.collections import Collection
from local_stack.qdrant.errors import BadRequest, NotMapped
from local_stack.qdrant.fields import Fields, PointId, point_id, point_ids
from local_stack.qdrant.filters import filter_of, need_filter
from local_stack.qdrant.points import points_of, vectors_of

_MODES = {
    "upsert": edge.UpdateMode.Upsert,
    "insert_only": edge.UpdateMode.InsertOnly,
    "update_only": edge.UpdateMode.UpdateOnly,
}
Build = Callable[[Fields, Collection], edge.UpdateOperation]


def apply(kind: str, body: Fields, collection: Collection) -> int:
    """Runs one update and returns its number. 501 for a kind or a field that is not mapped."""
    if kind not in _KINDS:
        raise NotMapped(f"update operation {kind}")
    operation = _KINDS[kind](body, collection)
    body.done()
    return collection.update(operation)


def _upsert(body: Fields, collection: Collection) -> edge.UpdateOperation:
    condition = filter_of(body.take("update_filter"), "update_filter")
    mode = body.choice("update_mode", _MODES)
    points = points_of(body, collection.names)
    if not points:
        raise BadRequest("Empty update request")
    return edge.UpdateOperation.upsert_points(points, condition, None if mode is None else _MODES[mode])


def _selected(body: Fields) -> list[PointId] | edge.Filter:
    """The points of a selector: by ids or by filter."""
    if "points" in body:
        ids = point_ids(body.take("points"), "points")
        if "filter" in body:
            raise BadRequest("either points or filter, not both")
        return ids
    return need_filter(body.take("filter"), "filter")


def _delete(body: Fields, _collection: Collection) -> edge.UpdateOperation:
    chosen = _selected(body)
    if isinstance(chosen, edge.Filter):
        return edge.UpdateOperation.delete_points_by_filter(chosen)
    return edge.UpdateOperation.delete_points(chosen)


def _payload(body: Fields) -> dict[str, Any]:
    found = body.need("payload")
    if not isinstance(found, dict):
        raise BadRequest("payload must be an object")
    return found


def _set_payload(body: Fields, _collection: Collection) -> edge.UpdateOperation:
    payload, key, chosen = _payload(body), body.text("key"), _selected(body)
    if isinstance(chosen, edge.Filter):
        return edge.UpdateOperation.set_payload_by_filter(chosen, payload, key)
    return edge.UpdateOperation.set_payload(chosen, payload, key)


def _overwrite_payload(body: Fields, _collection: Collection) -> edge.UpdateOperation:
    payload, key, chosen = _payload(body), body.text("key"), _selected(body)
    if isinstance(chosen, edge.Filter):
        return edge.UpdateOperation.overwrite_payload_by_filter(chosen, payload, key)
    return edge.UpdateOperation.overwrite_payload(chosen, payload, key)


def _delete_payload(body: Fields, _collection: Collection) -> edge.UpdateOperation:
    keys = body.texts("keys")
    if keys is None:
        raise BadRequest("missing field `keys`")
    chosen = _selected(body)
    if isinstance(chosen, edge.Filter):
        return edge.UpdateOperation.delete_payload_by_filter(chosen, keys)
    return edge.UpdateOperation.delete_payload(chosen, keys)


def _clear_payload(body: Fields, _collection: Collection) -> edge.UpdateOperation:
    chosen = _selected(body)
    if isinstance(chosen, edge.Filter):
        return edge.UpdateOperation.clear_payload_by_filter(chosen)
    return edge.UpdateOperation.clear_payload(chosen)


def _update_vectors(body: Fields, collection: Collection) -> edge.UpdateOperation:
    condition = filter_of(body.take("update_filter"), "update_filter")
    found = []
    for item in body.items("points") or []:
        fields = Fields(item, "points")
        identifier = point_id(fields.need("id"))
        found.append(edge.PointVectors(identifier, vectors_of(fields.need("vector"), collection.names)))
        fields.done()
    if not found:
        raise BadRequest("Empty update request")
    return edge.UpdateOperation.update_vectors(found, condition)


def _delete_vectors(body: Fields, collection: Collection) -> edge.UpdateOperation:
    names = body.texts("vector")
    if not names:
        raise BadRequest("missing field `vector`")
    unknown = [name for name in names if name not in collection.names.dense and name not in collection.names.sparse]
    if unknown:
        raise BadRequest(f"Not existing vector name error: {unknown[0]}")
    chosen = _selected(body)
    if isinstance(chosen, edge.Filter):
        return edge.UpdateOperation.delete_vectors_by_filter(chosen, names)
    return edge.UpdateOperation.delete_vectors(chosen, names)


_KINDS: dict[str, Build] = {
    "upsert": _upsert,
    "delete": _delete,
    "delete_points": _delete,
    "set_payload": _set_payload,
    "overwrite_payload": _overwrite_payload,
    "delete_payload": _delete_payload,
    "clear_payload": _clear_payload,
    "update_vectors": _update_vectors,
    "delete_vectors": _delete_vectors,
}
