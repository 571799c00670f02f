"""Which URL does what? Routes of Qdrant's REST API, and how a result or an error goes out.

Anything without a route answers 501, as does a query parameter that nobody reads. What the operations do is in
handlers.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from local_stack.limits import limit
from local_stack.qdrant import handlers
from local_stack.qdrant.collections import Collections
from local_stack.qdrant.errors import ApiError, BadRequest, NotFound, NotMapped, TooLarge
from local_stack.qdrant.handlers import Call, Handler

log = logging.getLogger("local_stack.qdrant")
# Reported in `/`; clients warn when it is more than one minor version from their own. The engine 0.9 has the query
# language of Qdrant 1.20 (text_any, prefix, memory placement), which is what clients 1.19 to 1.21 speak.
VERSION = "1.20.0"
# On a single node these change nothing: there is one replica, and every update is applied before the answer.
_NEUTRAL_PARAMETERS = frozenset({"wait", "ordering", "timeout", "consistency"})


# --- the application

_POINTS = "/collections/{name}/points"
_ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("POST", f"{_POINTS}/query", handlers.query),  # first: the hot one
    ("PUT", _POINTS, handlers.write("upsert")),
    ("POST", _POINTS, handlers.get_points),
    ("POST", f"{_POINTS}/query/batch", handlers.query_batch),
    ("POST", f"{_POINTS}/delete", handlers.write("delete")),
    ("POST", f"{_POINTS}/scroll", handlers.scroll),
    ("POST", f"{_POINTS}/count", handlers.count),
    ("POST", f"{_POINTS}/batch", handlers.write_batch),
    ("POST", f"{_POINTS}/payload", handlers.write("set_payload")),
    ("PUT", f"{_POINTS}/payload", handlers.write("overwrite_payload")),
    ("POST", f"{_POINTS}/payload/delete", handlers.write("delete_payload")),
    ("POST", f"{_POINTS}/payload/clear", handlers.write("clear_payload")),
    ("PUT", f"{_POINTS}/vectors", handlers.write("update_vectors")),
    ("POST", f"{_POINTS}/vectors/delete", handlers.write("delete_vectors")),
    ("GET", _POINTS + "/{id}", handlers.get_point),
    ("POST", "/collections/{name}/facet", handlers.facet),
    ("PUT", "/collections/{name}/index", handlers.create_index),
    ("DELETE", "/collections/{name}/index/{field}", handlers.delete_index),
    ("GET", "/collections/{name}/aliases", handlers.list_aliases),
    ("GET", "/collections/{name}/exists", handlers.collection_exists),
    ("POST", "/collections/aliases", handlers.change_aliases),
    ("GET", "/collections/{name}", handlers.collection_info),
    ("PUT", "/collections/{name}", handlers.create_collection),
    ("PATCH", "/collections/{name}", handlers.update_collection),
    ("DELETE", "/collections/{name}", handlers.delete_collection),
    ("GET", "/collections", handlers.list_collections),
    ("GET", "/aliases", handlers.list_aliases),
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
    routes.extend(Route(probe, _alive) for probe in ("/healthz", "/readyz", "/livez"))
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
            result = await self._handler(request)(await self._call(request))
            response = _json({"result": result, "status": "ok", "time": time.perf_counter() - started}, 200)
        except ApiError as error:
            response = _refusal(error)
        except (TypeError, ValueError, OverflowError) as error:  # the engine's own argument checks
            response = _refusal(BadRequest(str(error).partition("\n")[0]))
        except Exception as error:
            response = _engine_failure(error)
        await response(scope, receive, send)

    async def _call(self, request: Request) -> Call:
        waits = request.query_params.get("wait", "false") == "true"
        return Call(self._collections, request.path_params, waits, await _body(request))

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
