"""What do all routes have in common?  Unknown query parameters are named, text in addresses is checked, bodies are documented.

A key that is bound to a user need not name it: here for parameters, in `read_body` for bodies.

`ContractRoute` is the route class of every router; `takes(Model)` documents a body that `read_body` reads.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, get_args, get_origin
from urllib.parse import parse_qsl, unquote_to_bytes, urlencode

from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.types import Receive, Scope, Send

from memory_service.api.body import ALIASES, USER, same_as, text_problem
from memory_service.api.dependencies import reader_of
from memory_service.api.solving import handler_of
from memory_service.errors import FieldError, InvalidFields

REF = "#/components/schemas/{model}"
_BODIES: dict[str, type[BaseModel]] = {}  # what `takes` was given: FastAPI would try to write a class into the page


class ContractRoute(APIRoute):
    """Checks the address before anything else."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)  # asks for the handler
        self.app = self._answer

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._handler(Request(scope, receive, send))
        await response(scope, receive, send)

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        inner = handler_of(self.dependant)
        allowed = _query_names(self.dependant)
        lists = frozenset(one.alias for one in _query_params(self.dependant) if _is_list(one.field_info.annotation))
        wants_user = any(one.alias == USER and one.field_info.is_required() for one in _query_params(self.dependant))

        async def handler(request: Request) -> Response:
            if request.path_params:
                _decode_path(request)
            if request.scope["query_string"]:
                _check_query(request, allowed, lists)
            if wants_user:
                await _fill_user(request)
            return await inner(request)

        self._handler = handler
        return handler


def takes(model: type[BaseModel], description: str = "", *, required: bool = True) -> dict[str, Any]:
    """openapi_extra of a route whose body is read by `read_body`."""
    schema = {"$ref": REF.format(model=model.__name__)}
    _BODIES[model.__name__] = model
    return {
        "requestBody": {
            "required": required,
            "description": description,
            "content": {"application/json": {"schema": schema}},
        },
    }


def install_openapi(app: FastAPI) -> None:
    """OpenAPI with the schemas of all bodies."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            page = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            for path, operations in page["paths"].items():
                for operation in operations.values():
                    _document_problems(path, operation)
                    _document_own_user(operation.get("parameters", ()))
            ordered = [_BODIES[name] for name in sorted(_BODIES)]
            _, definitions = models_json_schema([(m, "validation") for m in ordered], ref_template=REF)
            schemas = page.setdefault("components", {}).setdefault("schemas", {})
            schemas.update({name: _with_own_user(schema) for name, schema in definitions.get("$defs", {}).items()})
            app.openapi_schema = page
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


PROBLEMS = {
    400: "the body is not JSON in UTF-8",
    401: "no or unknown API key",
    403: "the key may not",
    404: "unknown, or someone else's",
    409: "conflict: a stale version, or the first request of this Idempotency-Key still runs",
    413: "too large",
    415: "the body is packed: no Content-Encoding but identity is read",
    422: "fields that are not valid, each named",
    429: "too many requests; Retry-After says when",
    503: "a store that this needs is down",
}
OPEN = ("/health", "/ready")
OWN_USER = "may be left out with a key that is bound to a user; required with any other"


def _document_problems(path: str, operation: dict[str, Any]) -> None:
    """Every error that a route may answer, all of the same shape."""
    codes = set() if path in OPEN else {401, 403, 422, 429, 503}
    codes |= {404} if "{" in path else set()
    codes |= {400, 409, 413, 415} if "requestBody" in operation else set()
    schema = {"type": "object", "required": ["type", "title", "status", "detail", "code", "errors"]}
    content = {"application/problem+json": {"schema": schema}}
    for code in sorted(codes):
        operation["responses"][str(code)] = {"description": PROBLEMS[code], "content": content}


def _document_own_user(parameters: Sequence[dict[str, Any]]) -> None:
    for one in parameters:
        if (one["name"], one["in"]) == (USER, "query"):
            one |= {"required": False, "description": OWN_USER}


def _with_own_user(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a body in which `user_id` may be left out."""
    if USER not in schema.get("required", ()):
        return schema
    properties = {**schema["properties"], USER: {**schema["properties"][USER], "description": OWN_USER}}
    required = [name for name in schema["required"] if name != USER]
    return {**schema, "properties": properties, "required": required}


def _query_names(dependant: Any) -> frozenset[str]:
    return frozenset(parameter.alias for parameter in _query_params(dependant))


def _query_params(dependant: Any) -> list[Any]:
    """Those of the route and of everything that it depends on."""
    return [*dependant.query_params, *(one for child in dependant.dependencies for one in _query_params(child))]


def _is_list(annotation: Any) -> bool:
    """Is this `list[…]`, or that or nothing?"""
    return get_origin(annotation) is list or any(get_origin(one) is list for one in get_args(annotation))


def _decode_path(request: Request) -> None:
    """Path parameters are percent-encoded until here, so that a slash may be part of an id."""
    decoded = {}
    for name, value in request.path_params.items():
        try:
            text = unquote_to_bytes(value).decode("utf-8") if isinstance(value, str) else value
        except UnicodeDecodeError:  # %ED%A0%80 is how a lone surrogate arrives in an address
            raise InvalidFields.of(name, "is not text in UTF-8") from None
        if isinstance(text, str) and (problem := text_problem(text)) is not None:
            raise InvalidFields.of(name, problem)
        decoded[name] = text
    request.scope["path_params"] = decoded


async def _fill_user(request: Request) -> None:
    """The user of the key as the parameter that is missing.  Raises Unauthorized, RateLimited, StoreUnavailable."""
    query: bytes = request.scope["query_string"]
    if any(name == USER for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True)):
        return
    caller = await reader_of(request)
    if caller.user_id is not None:
        request.scope["query_string"] = b"&".join(filter(None, (query, urlencode({USER: caller.user_id}).encode())))


def _check_query(request: Request, allowed: frozenset[str], lists: frozenset[str]) -> None:
    """Raises InvalidFields.  Of a parameter that is no list a second value would be taken and the first one dropped silently."""
    errors = []
    seen: set[str] = set()
    for name, value in parse_qsl(
        request.scope["query_string"].decode("latin-1"), keep_blank_values=True, errors="surrogateescape"
    ):
        if name not in allowed:
            errors.append(FieldError(name[:200], "is not a parameter of this request"))
        elif name in seen and name not in lists:
            errors.append(FieldError(name, "is given more than once"))
        elif (problem := text_problem(value)) is not None:
            errors.append(FieldError(name, problem))
        seen.add(name)
    errors += [FieldError(alias, same_as(name)) for alias, name in ALIASES.items() if {alias, name} <= seen & allowed]
    if errors:
        raise InvalidFields("; ".join(f"{e.field}: {e.message}" for e in errors[:5]), errors=tuple(errors[:20]))
