"""What happens around every request?  Its id, its log line, its metric, and an answer even when the code fails.

Plain ASGI: Starlette's function middleware would buffer bodies and break streaming.
"""

import logging
import traceback
from collections.abc import Callable
from functools import lru_cache
from time import monotonic
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memory_service.access import is_loopback
from memory_service.api.problems import problem_response
from memory_service.domain import new_id
from memory_service.errors import Forbidden, HindsightError
from memory_service.metrics import REQUESTS

log = logging.getLogger("memory_service.requests")
REQUEST_ID_CHARS_MAX = 128
CLIENT_GONE = 499  # nginx's: whoever asked left before the request was whole, so no answer has this status
HEALTH = "/health"  # open to everybody, as API.md says: probes ask by whatever address a container has


class RequestLog:
    """Outermost: gives the request its id, catches what nobody caught, logs and counts."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, request_id = monotonic(), _request_id(scope)
        scope["facts"] = {}
        # Ids in addresses may contain an encoded slash: routes match the encoded path, ContractRoute decodes the parts.
        if b"%" in (scope.get("raw_path") or b""):
            scope["path"] = scope["raw_path"].decode("ascii", "replace")
        # Like GET, without the body: probes ask so.  A copy, because uvicorn looks into its scope to know what it may leave out.
        head = scope["method"] == "HEAD"
        asked = {**scope, "method": "GET"} if head else scope
        status = 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"].append((b"x-request-id", request_id.encode("latin-1")))
            elif head and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        try:
            await self._app(asked, receive, watched)
        except ClientDisconnect:
            status = CLIENT_GONE
        except Exception as error:
            frames = "".join(traceback.format_tb(error.__traceback__))  # the error's own text may quote contents
            log.error("unhandled %s\n%s", type(error).__name__, frames, extra={"facts": {"request_id": request_id}})
            await problem_response(HindsightError())(asked, receive, watched)
        finally:
            _record(asked, scope["method"], request_id, status, monotonic() - started)


class LoopbackHosts:
    """While no key exists only this machine's own names and pages are served, and everybody's question whether the process is up.

    Otherwise a web page could rebind its name to us, or post memories from a visitor's browser (a form needs no preflight).
    """

    def __init__(self, app: ASGIApp, keys_required: Callable[[], Any]) -> None:
        self._app = app
        self._keys_required = keys_required

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] != HEALTH and _foreign(scope):
            try:
                required = await self._keys_required()
            except HindsightError:
                required = False
            if not required:
                refusal = Forbidden("without an API key only localhost is served; create one: hindsight keys create")
                await problem_response(refusal)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _foreign(scope: Scope) -> bool:
    """Asked under a name that is not this machine's, or by a page that is not."""
    if not _local_name(_header(scope, b"host") or ""):
        return True
    origin = _header(scope, b"origin")
    return origin is not None and not _local_name(origin.partition("://")[2])


@lru_cache(maxsize=256)
def _local_name(host: str) -> bool:
    name = host.rsplit(":", 1)[0] if host.count(":") == 1 or "]:" in host else host
    return is_loopback(name.strip("[]").lower())


def _header(scope: Scope, name: bytes) -> str | None:
    """The first header of this name, which is in lower case."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), None)


def _request_id(scope: Scope) -> str:
    given = _header(scope, b"x-request-id") or ""
    usable = given.isascii() and given.isprintable() and 1 <= len(given) <= REQUEST_ID_CHARS_MAX
    return given if usable else str(new_id())


def _record(scope: Scope, method: str, request_id: str, status: int, seconds: float) -> None:
    route = getattr(scope.get("route"), "path", "unmatched")
    REQUESTS.labels(method, route, str(status)).observe(seconds)
    facts = {
        "request_id": request_id,
        "method": method,
        "route": route,
        "status": status,
        "ms": round(1000 * seconds, 2),
    }
    log.info("request", extra={"facts": {**facts, **scope["facts"]}})
