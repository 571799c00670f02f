"""What does a point look like on the wire and in the engine? Translates ids, vectors, payloads and results both ways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import qdrant_edge as edge

from local_stack.qdrant.errors import BadRequest, NotMapped
from local_stack.qdrant.fields import Fields, point_id
from local_stack.qdrant.schema import VectorNames

Json = dict[str, Any]
_NUMBERS = frozenset((float, int))  # by exact type: True is an integer to Python, but no number here


def points_of(body: Fields, names: VectorNames) -> list[edge.Point]:
    """The points of an upsert, in either of Qdrant's forms: `points` (one by one) or `batch` (column by column)."""
    if "points" in body:
        return [_point(item, names) for item in body.items("points") or []]
    if "batch" not in body:
        raise BadRequest("missing field `points` or `batch`")
    columns = Fields(body.take("batch"), "batch")
    ids = columns.items("ids") or []
    payloads = columns.items("payloads")
    vectors = _rows(columns.need("vectors"), len(ids))
    columns.done()
    if payloads is not None and len(payloads) != len(ids):
        raise BadRequest(f"batch has {len(ids)} ids and {len(payloads)} payloads")
    return [
        edge.Point(point_id(found), vectors_of(vectors[row], names), _payload(payloads[row] if payloads else None))
        for row, found in enumerate(ids)
    ]


def _rows(vectors: object, rows: int) -> list[Any]:
    """A batch's vectors, one entry a point: a list as it is, or a mapping of names to columns turned around."""
    if isinstance(vectors, dict):
        if any(not isinstance(column, list) or len(column) != rows for column in vectors.values()):
            raise BadRequest(f"each vector column of batch must be a list of {rows}")
        return [{name: column[row] for name, column in vectors.items()} for row in range(rows)]
    if not isinstance(vectors, list) or len(vectors) != rows:
        raise BadRequest(f"batch.vectors must hold one vector for each of the {rows} ids")
    return vectors


def _point(value: object, names: VectorNames) -> edge.Point:
    fields = Fields(value, "point")
    found = edge.Point(
        point_id(fields.need("id")), vectors_of(fields.need("vector"), names), _payload(fields.take("payload"))
    )
    fields.done()
    return found


def _payload(value: object) -> Json:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadRequest("payload must be an object")
    return value


def vectors_of(value: object, names: VectorNames) -> edge.Vector:
    """The vectors of one point. Sizes and names are checked here, before the write-ahead log gets to see them."""
    if isinstance(value, dict) and not _is_sparse(value):
        return {name: _checked(vector, name, names) for name, vector in value.items()}
    found = _checked(value, "", names)
    if isinstance(found, edge.SparseVector):
        raise BadRequest("a sparse vector needs a name")
    return found


def _is_sparse(value: Mapping[str, object]) -> bool:
    return set(value) == {"indices", "values"} and isinstance(value["values"], list)


def _checked(value: object, name: str, names: VectorNames) -> edge.NamedVector:
    vector = vector_of(value)
    if isinstance(vector, edge.SparseVector):
        if name not in names.sparse:
            raise BadRequest(f"Not existing vector name error: {name}")
        return vector
    size = names.dense.get(name)
    if size is None:
        raise BadRequest(f"Not existing vector name error: {name}")
    rows = vector if vector and isinstance(vector[0], list) else [vector]
    for row in rows:
        if isinstance(row, list) and len(row) != size:
            raise BadRequest(f"Vector dimension error: expected dim: {size}, got {len(row)}")
    return vector


def vector_of(value: object) -> edge.NamedVector:
    """One dense, sparse or multi vector. Texts and images would need an inference service, which is not here."""
    if isinstance(value, list):
        flat = value and all(isinstance(row, list) for row in value)
        for row in value if flat else [value]:
            if not _NUMBERS.issuperset(map(type, row)):
                raise BadRequest("a vector must hold numbers only")
        return value
    if isinstance(value, dict):
        if not _is_sparse(value):
            raise NotMapped(f"a vector given as an object with {', '.join(sorted(map(str, value)))}")
        indices, values = value["indices"], value["values"]
        if not isinstance(indices, list) or len(indices) != len(values) or len(set(indices)) != len(indices):
            raise BadRequest("a sparse vector needs as many values as indices, and each index once")
        return edge.SparseVector(indices, values)
    raise BadRequest("a vector must be a list of numbers or a sparse vector")


def vector_out(value: Any) -> Any:
    """The engine's vectors as JSON."""
    if isinstance(value, edge.SparseVector):
        return {"indices": value.indices, "values": value.values}
    if isinstance(value, dict):
        return {name: vector_out(part) for name, part in value.items()}
    return value


# Ids go out as the engine has them: orjson writes a UUID in its canonical form, eight times faster than Python.


def record_out(record: edge.Record) -> Json:
    found: Json = {"id": record.id, "payload": record.payload}
    if record.vector is not None:
        found["vector"] = vector_out(record.vector)
    if record.order_value is not None:
        found["order_value"] = record.order_value
    return found


def scored_out(point: edge.ScoredPoint) -> Json:
    found: Json = {"id": point.id, "version": point.version, "score": point.score, "payload": point.payload}
    if point.vector is not None:
        found["vector"] = vector_out(point.vector)
    if point.order_value is not None:
        found["order_value"] = point.order_value
    return found


def with_payload_of(value: object, default: bool) -> edge.WithPayloadType:
    """Qdrant's three forms: a flag, a list of keys, or include and exclude."""
    if value is None:
        return default
    if isinstance(value, bool):
        return value
    if isinstance(value, list):
        return _strings(value, "with_payload")
    fields = Fields(value, "with_payload")
    include, exclude = fields.texts("include"), fields.texts("exclude")
    fields.done()
    if (include is None) == (exclude is None):
        raise BadRequest("with_payload needs either include or exclude")
    return edge.PayloadSelector.Include(include) if include is not None else edge.PayloadSelector.Exclude(exclude or [])


def with_vector_of(value: object) -> edge.WithVectorType:
    """A flag or a list of vector names."""
    if value is None:
        return False
    if isinstance(value, bool):
        return value
    if isinstance(value, list):
        return _strings(value, "with_vector")
    raise BadRequest("with_vector must be a flag or a list of names")


def _strings(values: Sequence[object], where: str) -> list[str]:
    if not all(isinstance(value, str) for value in values):
        raise BadRequest(f"{where} must hold strings only")
    return [str(value) for value in values]
