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
from urllib.parse import parse_qsl

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

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


def create_app(collections: Collections) -> Router:
    """The ASGI application. It flushes every few seconds, and closes the collections when it stops.

    A bare router: `_Endpoint` answers for every error itself, so Starlette's two layers for them would only cost time.
    """

    @contextlib.asynccontextmanager
    async def lifespan(_app: Router) -> AsyncIterator[None]:
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
    return Router(routes, redirect_slashes=False, default=_unknown_route, lifespan=lifespan)


async def _flush_regularly(collections: Collections) -> None:
    while True:
        await asyncio.sleep(limit("qdrant", "flush_interval_s"))
        try:
            collections.flush()
        except Exception:  # the next round tries again; the updates stay in the write-ahead log
            log.exception("flush failed")


async def _root(_request: Request) -> Response:
    found = {"title": "qdrant - vector search engine", "version": VERSION}
    return Response(orjson.dumps(found), media_type="application/json")


async def _alive(_request: Request) -> Response:
    return Response("healthz check passed", media_type="text/plain")


async def _unknown_route(scope: Scope, _receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await _refuse(send, NotMapped(f"{scope['method']} {scope['path']}"))


class _Endpoint:
    """All methods of one path as an ASGI application.

    It reads the scope and sends the two messages of an answer itself: with Starlette's Request and Response a search costs
    a seventh more before and after the engine (measured).
    """

    def __init__(self, handlers: dict[str, Handler], collections: Collections) -> None:
        self._handlers = handlers
        self._collections = collections

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        try:
            handler, parameters = self._handler(scope), _parameters(scope)
            waits = parameters.get("wait") == "true"
            result = await handler(Call(self._collections, scope["path_params"], waits, await _body(receive)))
            answer = _json({"result": result, "status": "ok", "time": time.perf_counter() - started})
        except ApiError as error:
            await _refuse(send, error)
        except (TypeError, ValueError, OverflowError) as error:  # the engine's own argument checks
            await _refuse(send, BadRequest(str(error).partition("\n")[0]))
        except Exception as error:
            await _refuse(send, _engine_failure(error))
        else:
            await _reply(send, 200, answer)

    def _handler(self, scope: Scope) -> Handler:
        handler = self._handlers.get(scope["method"])
        if handler is None:
            raise NotMapped(f"{scope['method']} {scope['path']}")
        return handler


def _parameters(scope: Scope) -> dict[str, str]:
    """The query parameters, the last of a name; 501 for one that nobody reads."""
    if not scope["query_string"]:
        return {}
    found = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
    unknown = set(found) - _NEUTRAL_PARAMETERS
    if unknown:
        raise NotMapped(f"query parameter(s) {', '.join(sorted(unknown))}")
    return found


async def _body(receive: Receive) -> object:
    most = int(limit("qdrant", "body_max_mb") * 1024 * 1024)
    pieces, size, more = list[bytes](), 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise BadRequest("the client went away")
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > most:
            raise TooLarge(f"Payload reached size limit of {most} bytes")
        more = message.get("more_body", False)
    raw = b"".join(pieces)
    if not raw:
        return None
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"Format error in JSON body: {error}") from error


def _engine_failure(error: Exception) -> ApiError:
    """The engine raises plain exceptions; only its own runtime errors are ours to answer for with 500."""
    said = str(error)
    if type(error) is Exception and not said.startswith("Service runtime error"):
        return NotFound(said) if said.startswith("No point with id") else BadRequest(said)
    log.error("the engine failed", exc_info=error)
    return ApiError(f"Service internal error: {said}")


def _json(content: object) -> bytes:
    return orjson.dumps(content, default=str)


async def _refuse(send: Send, error: ApiError) -> None:
    await _reply(send, error.status, _json({"status": {"error": str(error)}, "time": 0.0}))


async def _reply(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
