"""Which URL does what? Routes of Qdrant's REST API over `collections.py`; a route parses, calls once and shapes the reply.

Handlers are `async` and call the engine in place: the event loop is the one thread that the engine has (see
collections.py). Anything without a route answers 501, as does a query parameter that nobody reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import orjson
import qdrant_edge as edge
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from local_stack.limits import limit
from local_stack.qdrant import updates
from local_stack.qdrant.collections import Collection, Collections
from local_stack.qdrant.errors import ApiError, BadRequest, NotFound, NotMapped, TooLarge
from local_stack.qdrant.fields import Fields, PointId, point_id, point_ids
from local_stack.qdrant.filters import filter_of
from local_stack.qdrant.indexes import index_schema, type_name
from local_stack.qdrant.points import id_out, record_out, scored_out, with_payload_of, with_vector_of
from local_stack.qdrant.queries import query_request, result_limit, scroll_request
from local_stack.qdrant.schema import config_out

Json = dict[str, Any]
Handler = Callable[["Call"], Awaitable[Any]]
log = logging.getLogger("local_stack.qdrant")
# Reported in `/`; clients warn when it is more than one minor version from their own. The engine 0.9 has the query
# language of Qdrant 1.20 (text_any, prefix, memory placement), which is what clients 1.19 to 1.21 speak.
VERSION = "1.20.0"
# On a single node these change nothing: there is one replica, and every update is applied before the answer.
_NEUTRAL_PARAMETERS = frozenset({"wait", "ordering", "timeout", "consistency"})


class Call:
    """One request: path parts, body and the collections."""

    def __init__(self, request: Request, collections: Collections, body: object) -> None:
        self.collections = collections
        self.part = request.path_params
        self.waits = request.query_params.get("wait", "false") == "true"
        self._body = body

    @property
    def collection(self) -> Collection:
        return self.collections.get(self.part["name"])

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
    body = call.fields()
    changes: dict[str, Json] = {}
    for name in ("metadata", "hnsw_config", "optimizers_config", "quantization_config"):
        value = body.take(name)
        if value is not None and not isinstance(value, dict):
            raise BadRequest(f"{name} must be an object")
        if value is not None:
            changes[name] = value
    body.done()
    call.collections.update_config(call.part["name"], changes)
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
    body = call.fields()
    operation = edge.UpdateOperation.create_field_index(
        body.need_text("field_name"), index_schema(body.need("field_schema"))
    )
    body.done()
    return call.updated(call.collection.update(operation))


async def delete_index(call: Call) -> Json:
    return call.updated(call.collection.update(edge.UpdateOperation.delete_field_index(call.part["field"])))


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
    collection = call.collection
    found = collection.shard.query(query_request(call.fields(), _resolver(collection)))
    return {"points": [scored_out(point) for point in found]}


async def query_batch(call: Call) -> list[Json]:
    collection, body = call.collection, call.fields()
    searches = body.items("searches") or []
    body.done()
    requests = [query_request(Fields(search, "searches"), _resolver(collection)) for search in searches]
    answers = collection.shard.query_batch(edge.QueryBatchRequest(requests)) if requests else []
    return [{"points": [scored_out(point) for point in found]} for found in answers]


async def scroll(call: Call) -> Json:
    records, following = call.collection.shard.scroll(scroll_request(call.fields()))
    return {
        "points": [record_out(record) for record in records],
        "next_page_offset": None if following is None else id_out(following),
    }


async def count(call: Call) -> Json:
    body = call.fields()
    exact = body.flag("exact")
    request = edge.CountRequest(exact=exact is not False, filter=filter_of(body.take("filter")))
    body.done()
    return {"count": call.collection.shard.count(request)}


async def facet(call: Call) -> Json:
    body = call.fields()
    request = edge.FacetRequest(
        key=body.need_text("key"),
        limit=result_limit(body),
        exact=body.flag("exact") or False,
        filter=filter_of(body.take("filter")),
    )
    body.done()
    hits = call.collection.shard.facet(request).hits
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


def _write(kind: str) -> Handler:
    async def write(call: Call) -> Json:
        return call.updated(updates.apply(kind, call.fields(), call.collection))

    return write


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
        answers.append(call.updated(updates.apply(names[0], Fields(selector, names[0]), call.collection)))
    return answers


# --- the application

_POINTS = "/collections/{name}/points"
_ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("POST", f"{_POINTS}/query", query),  # first: the hot one
    ("PUT", _POINTS, _write("upsert")),
    ("POST", _POINTS, get_points),
    ("POST", f"{_POINTS}/query/batch", query_batch),
    ("POST", f"{_POINTS}/delete", _write("delete")),
    ("POST", f"{_POINTS}/scroll", scroll),
    ("POST", f"{_POINTS}/count", count),
    ("POST", f"{_POINTS}/batch", write_batch),
    ("POST", f"{_POINTS}/payload", _write("set_payload")),
    ("PUT", f"{_POINTS}/payload", _write("overwrite_payload")),
    ("POST", f"{_POINTS}/payload/delete", _write("delete_payload")),
    ("POST", f"{_POINTS}/payload/clear", _write("clear_payload")),
    ("PUT", f"{_POINTS}/vectors", _write("update_vectors")),
    ("POST", f"{_POINTS}/vectors/delete", _write("delete_vectors")),
    ("GET", _POINTS + "/{id}", get_point),
    ("POST", "/collections/{name}/facet", facet),
    ("PUT", "/collections/{name}/index", create_index),
    ("DELETE", "/collections/{name}/index/{field}", delete_index),
    ("GET", "/collections/{name}/aliases", list_aliases),
    ("GET", "/collections/{name}/exists", collection_exists),
    ("POST", "/collections/aliases", change_aliases),
    ("GET", "/collections/{name}", collection_info),
    ("PUT", "/collections/{name}", create_collection),
    ("PATCH", "/collections/{name}", update_collection),
    ("DELETE", "/collections/{name}", delete_collection),
    ("GET", "/collections", list_collections),
    ("GET", "/aliases", list_aliases),
)


def create_app(collections: Collections) -> Starlette:
    """The ASGI application. It flushes every few seconds, and closes the collections when it stops."""

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        flusher = asyncio.create_task(_flush_regularly(collections))
        try:
            yield
        finally:
            flusher.cancel()
            collections.close()

    by_path: dict[str, dict[str, Handler]] = {}
    for method, path, handler in _ROUTES:
        by_path.setdefault(path, {})[method] = handler
    routes = [Route(path, _Endpoint(handlers, collections)) for path, handlers in by_path.items()]
    routes.insert(0, Route("/", _root))
    for probe in ("/healthz", "/readyz", "/livez"):
        routes.append(Route(probe, _alive))
    app = Starlette(routes=routes, lifespan=lifespan)
    app.router.default = _unknown_route
    app.router.redirect_slashes = False
    return app


async def _flush_regularly(collections: Collections) -> None:
    while True:
        await asyncio.sleep(limit("qdrant", "flush_interval_s"))
        try:
            collections.flush()
        except Exception:  # the next round tries again; the updates stay in the write-ahead log
            log.exception("flush failed")


async def _root(_request: Request) -> Response:
    return _json({"title": "qdrant - vector search engine", "version": VERSION}, 200)


async def _alive(_request: Request) -> Response:
    return Response("healthz check passed", media_type="text/plain")


async def _unknown_route(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await _refusal(NotMapped(f"{scope['method']} {scope['path']}"))(scope, receive, send)


class _Endpoint:
    """All methods of one path as an ASGI application (Starlette wraps plain functions in a slower way)."""

    def __init__(self, handlers: dict[str, Handler], collections: Collections) -> None:
        self._handlers = handlers
        self._collections = collections

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        started = time.perf_counter()
        request = Request(scope, receive)
        try:
            result = await self._handler(request)(Call(request, self._collections, await _body(request)))
            response = _json({"result": result, "status": "ok", "time": time.perf_counter() - started}, 200)
        except ApiError as error:
            response = _refusal(error)
        except (TypeError, ValueError, OverflowError) as error:  # the engine's own argument checks
            response = _refusal(BadRequest(str(error).partition("\n")[0]))
        except Exception as error:
            response = _engine_failure(error)
        await response(scope, receive, send)

    def _handler(self, request: Request) -> Handler:
        handler = self._handlers.get(request.method)
        if handler is None:
            raise NotMapped(f"{request.method} {request.url.path}")
        unknown = set(request.query_params) - _NEUTRAL_PARAMETERS
        if unknown:
            raise NotMapped(f"query parameter(s) {', '.join(sorted(unknown))}")
        return handler


async def _body(request: Request) -> object:
    most = int(limit("qdrant", "body_max_mb") * 1024 * 1024)
    raw = bytearray()
    async for piece in request.stream():
        raw += piece
        if len(raw) > most:
            raise TooLarge(f"Payload reached size limit of {most} bytes")
    if not raw:
        return None
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"Format error in JSON body: {error}") from error


def _engine_failure(error: Exception) -> Response:
    """The engine raises plain exceptions; only its own runtime errors are ours to answer for with 500."""
    said = str(error)
    if type(error) is Exception and not said.startswith("Service runtime error"):
        return _refusal(NotFound(said) if said.startswith("No point with id") else BadRequest(said))
    log.error("the engine failed", exc_info=error)
    return _refusal(ApiError(f"Service internal error: {said}"))


def _refusal(error: ApiError) -> Response:
    return _json({"status": {"error": str(error)}, "time": 0.0}, error.status)


def _json(content: object, status: int) -> Response:
    return Response(orjson.dumps(content, default=str), status, media_type="application/json")


