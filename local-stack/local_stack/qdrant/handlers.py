"""What does each operation of Qdrant's REST API do? A handler parses the body, calls once and shapes the reply.

Handlers are `async` and call the engine in place: the event loop is the one thread that the engine has (see
collections.py). They know no HTTP; app.py does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import qdrant_edge as edge

from local_stack.qdrant import updates
from local_stack.qdrant.collections import Collection, Collections
from local_stack.qdrant.errors import BadRequest, NotFound
from local_stack.qdrant.fields import Fields, PointId, point_id, point_ids
from local_stack.qdrant.filters import filter_of
from local_stack.qdrant.indexes import index_schema, type_name
from local_stack.qdrant.points import record_out, scored_out, with_payload_of, with_vector_of
from local_stack.qdrant.queries import query_request, result_limit, scroll_request
from local_stack.qdrant.schema import config_changes, config_out
from local_stack.qdrant.strict import RETRIEVE, UPDATE

Json = dict[str, Any]
Handler = Callable[["Call"], Awaitable[Any]]


class Call:
    """One request: path parts, body and the collections."""

    def __init__(self, collections: Collections, part: Mapping[str, str], waits: bool, body: object) -> None:
        self.collections = collections
        self.part = part
        self.waits = waits
        self._body = body

    @property
    def collection(self) -> Collection:
        return self.collections.get(self.part["name"])

    def reading(self) -> Collection:
        """The collection, when strict mode lets this request search it; 400 otherwise."""
        found = self.collection
        found.allow(self._body, RETRIEVE)
        return found

    def writing(self) -> Collection:
        """The same for an update by filter."""
        found = self.collection
        found.allow(self._body, UPDATE)
        return found

    def fields(self, where: str = "body") -> Fields:
        """The body as an object; an absent body is an empty one."""
        return Fields({} if self._body is None else self._body, where)

    def updated(self, number: int) -> Json:
        return {"operation_id": number, "status": "completed" if self.waits else "acknowledged"}


# --- collections


async def list_collections(call: Call) -> Json:
    return {"collections": [{"name": name} for name in call.collections.names()]}


async def create_collection(call: Call) -> bool:
    call.collections.create(call.part["name"], call.fields())
    return True


async def collection_info(call: Call) -> Json:
    collection = call.collection
    info = collection.shard.info()
    return {
        "status": "green",
        "optimizer_status": "ok",
        "indexed_vectors_count": info.indexed_vectors_count,
        "points_count": info.points_count,
        "segments_count": info.segments_count,
        "config": config_out(collection.config),
        "payload_schema": {
            key: {"data_type": type_name(found.data_type), "points": found.points}
            for key, found in info.payload_schema.items()
        },
    }


async def update_collection(call: Call) -> bool:
    call.collections.update_config(call.part["name"], config_changes(call.fields()))
    return True


async def delete_collection(call: Call) -> bool:
    return call.collections.delete(call.part["name"])


async def collection_exists(call: Call) -> Json:
    return {"exists": call.collections.exists(call.part["name"])}


async def change_aliases(call: Call) -> bool:
    body = call.fields()
    actions = body.items("actions")
    body.done()
    if actions is None:
        raise BadRequest("missing field `actions`")
    call.collections.change_aliases(actions)
    return True


async def list_aliases(call: Call) -> Json:
    """All aliases, or those of one collection."""
    only = call.collection.name if "name" in call.part else None
    listed = [
        {"alias_name": alias, "collection_name": target}
        for alias, target in call.collections.aliases().items()
        if only is None or target == only
    ]
    return {"aliases": listed}


async def create_index(call: Call) -> Json:
    body, collection = call.fields(), call.collection
    field = body.need_text("field_name")
    operation = edge.UpdateOperation.create_field_index(field, index_schema(body.need("field_schema")))
    body.done()
    number = collection.update(operation)
    collection.indexed.add(field)
    return call.updated(number)


async def delete_index(call: Call) -> Json:
    collection, field = call.collection, call.part["field"]
    number = collection.update(edge.UpdateOperation.delete_field_index(field))
    collection.indexed.discard(field)
    return call.updated(number)


# --- reading points


def _resolver(collection: Collection) -> Callable[[PointId, str], edge.NamedVector]:
    """Finds the vector of a point that a query names by its id."""

    def resolve(found: PointId, using: str) -> edge.NamedVector:
        records = collection.shard.retrieve([found], False, True)
        if not records:
            raise NotFound(f"No point with id {found} found")
        vector = records[0].vector
        named = vector.get(using) if isinstance(vector, dict) else vector if not using else None
        if named is None:
            raise BadRequest(f"Not existing vector name error: {using}")
        return named

    return resolve


async def query(call: Call) -> Json:
    collection = call.reading()
    found = collection.shard.query(query_request(call.fields(), _resolver(collection)))
    return {"points": [scored_out(point) for point in found]}


async def query_batch(call: Call) -> list[Json]:
    collection, body = call.reading(), call.fields()
    searches = body.items("searches") or []
    body.done()
    requests = [query_request(Fields(search, "searches"), _resolver(collection)) for search in searches]
    answers = collection.shard.query_batch(edge.QueryBatchRequest(requests)) if requests else []
    return [{"points": [scored_out(point) for point in found]} for found in answers]


async def scroll(call: Call) -> Json:
    records, following = call.reading().shard.scroll(scroll_request(call.fields()))
    return {
        "points": [record_out(record) for record in records],
        "next_page_offset": following,
    }


async def count(call: Call) -> Json:
    body = call.fields()
    exact = body.flag("exact")
    request = edge.CountRequest(exact=exact is not False, filter=filter_of(body.take("filter")))
    body.done()
    return {"count": call.reading().shard.count(request)}


async def facet(call: Call) -> Json:
    body = call.fields()
    request = edge.FacetRequest(
        key=body.need_text("key"),
        limit=result_limit(body),
        exact=body.flag("exact") or False,
        filter=filter_of(body.take("filter")),
    )
    body.done()
    hits = call.reading().shard.facet(request).hits
    return {"hits": [{"value": hit.value, "count": hit.count} for hit in hits]}


async def get_points(call: Call) -> list[Json]:
    body = call.fields()
    ids = point_ids(body.need("ids"), "ids")
    payload = with_payload_of(body.take("with_payload"), default=True)
    vector = with_vector_of(body.take("with_vector"))
    body.done()
    return [record_out(record) for record in call.collection.shard.retrieve(list(ids), payload, vector)]


async def get_point(call: Call) -> Json:
    text = call.part["id"]
    found = point_id(int(text) if text.isdecimal() else text)
    records = call.collection.shard.retrieve([found], True, True)
    if not records:
        raise NotFound(f"Point with id {found} does not exists!")
    return record_out(records[0])


# --- writing points


def write(kind: str) -> Handler:
    """The handler of one kind of update."""

    async def apply(call: Call) -> Json:
        return call.updated(updates.apply(kind, call.fields(), call.writing()))

    return apply


async def write_batch(call: Call) -> list[Json]:
    """Updates in order; as in Qdrant, those before a refused one stay applied."""
    body = call.fields()
    operations = body.items("operations")
    body.done()
    if operations is None:
        raise BadRequest("missing field `operations`")
    answers = []
    for operation in operations:
        names = Fields(operation, "operations").names()
        if len(names) != 1:
            raise BadRequest("an operation must have exactly one kind")
        found = Fields(operation, "operations").take(names[0])
        selector = {"points": found} if isinstance(found, list) else found
        call.collection.allow(selector, UPDATE)
        answers.append(call.updated(updates.apply(names[0], Fields(selector, names[0]), call.collection)))
    return answers
