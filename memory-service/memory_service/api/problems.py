"""How is an error told?  As RFC 9457 application/problem+json, the same shape for every error.  Never a stack, SQL, DSN or URL."""

import math
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from memory_service.api.body import dotted, message
from memory_service.errors import BadRequest, FieldError, HindsightError, InvalidFields, NotFound
from memory_service.metrics import STORE_ERRORS
from memory_service.shapes import to_json

MEDIA_TYPE = "application/problem+json"


def problem(error: HindsightError) -> dict[str, Any]:
    """The body, also used for the rejected items of a batch."""
    return {
        "type": f"urn:hindsight:problem:{error.code}",
        "title": error.title,
        "status": error.status,
        "detail": _safe(error.detail),
        "code": error.code,
        "errors": [{"field": _safe(e.field), "message": _safe(e.message)} for e in error.errors],
    }


def problem_response(error: HindsightError) -> Response:
    """The answer with its headers."""
    headers = {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if error.status == 415:
        headers["Accept-Encoding"] = "identity"  # RFC 9110, 15.5.16: what would have been read
    return Response(to_json(problem(error)), error.status, headers, MEDIA_TYPE)


class MethodNotAllowed(HindsightError):
    status, code, title = 405, "method_not_allowed", "This address does not take that method"


def install(app: FastAPI) -> None:
    """One handler for everything that a route may raise."""

    @app.exception_handler(HindsightError)
    async def own(_request: Request, error: HindsightError) -> Response:
        store = getattr(error, "store", None)
        if store:
            STORE_ERRORS.labels(store).inc()
        return problem_response(error)

    @app.exception_handler(RequestValidationError)
    async def parameters(_request: Request, error: RequestValidationError) -> Response:
        found = [FieldError(dotted(e["loc"][1:]) or "query", message(e["type"], e["msg"])) for e in error.errors()]
        return problem_response(
            InvalidFields("; ".join(f"{e.field}: {e.message}" for e in found[:5]), errors=tuple(found[:20]))
        )

    @app.exception_handler(HTTPException)
    async def framework(_request: Request, error: HTTPException) -> Response:
        kinds: dict[int, HindsightError] = {404: NotFound("there is no such address"), 405: MethodNotAllowed()}
        response = problem_response(kinds.get(error.status_code, BadRequest()))
        for name, value in (error.headers or {}).items():
            response.headers[name] = value
        return response


def _safe(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
