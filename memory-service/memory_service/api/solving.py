"""How do the parameters of a route get their values?  As FastAPI declares them, without what it does for cases that we have none of.

FastAPI reads the signatures and keeps what it read in a `Dependant`; for each request it then walks that tree through exit stacks,
caches of scopes and a thread for every plain function, which takes longer than reading working memory does.  Here the tree
is read once: path, query and header parameters are still validated by FastAPI itself, dependencies are called in the same
order, each once a request.  A plain function is called where it stands, so it must not block.
"""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, get_type_hints

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import request_params_to_args
from fastapi.exceptions import RequestValidationError

Handler = Callable[[Request], Awaitable[Response]]
_OTHER_KINDS = (
    "cookie_params",
    "body_params",
    "websocket_param_name",
    "http_connection_param_name",
    "response_param_name",
    "background_tasks_param_name",
    "security_scopes_param_name",
    "concurrency",
)


class RouteRefused(TypeError):
    """A route asks for something that is not found here."""


@dataclass(slots=True)
class _Asked:
    """What one request brought so far."""

    request: Request
    known: dict[Callable[..., Any], Any] = field(default_factory=dict)
    errors: list[Any] = field(default_factory=list)


class _Step:
    """One function with its parameters: a route's, or a dependency's."""

    def __init__(self, dependant: Dependant) -> None:
        if dependant.call is None or not dependant.use_cache:
            raise RouteRefused(f"{dependant.call}: a dependency is a function that is called once a request")
        if unknown := [kind for kind in _OTHER_KINDS if getattr(dependant, kind)]:
            raise RouteRefused(f"{dependant.call.__qualname__} uses {', '.join(unknown)}")
        if inspect.isgeneratorfunction(dependant.call) or inspect.isasyncgenfunction(dependant.call):
            raise RouteRefused(f"{dependant.call.__qualname__} is a generator")
        self.call: Callable[..., Any] = dependant.call
        self._name = dependant.name
        self._request_name = dependant.request_param_name
        self._waits = inspect.iscoroutinefunction(dependant.call)
        self._before = [_Step(one) for one in dependant.dependencies]
        self._path, self._query, self._headers = (
            dependant.path_params, dependant.query_params, dependant.header_params,
        )  # fmt: skip

    async def values(self, asked: _Asked) -> dict[str, Any]:
        """The arguments of `call`; what is wrong with them is added to `asked.errors`."""
        values: dict[str, Any] = {}
        for one in self._before:
            if one.call not in asked.known:
                errors_before = len(asked.errors)
                own = await one.values(asked)
                if len(asked.errors) > errors_before:
                    continue
                solved = one.call(**own)
                asked.known[one.call] = (await solved) if one._waits else solved
            if one._name is not None:
                values[one._name] = asked.known[one.call]
        request = asked.request
        if self._path:
            self._add(values, asked, request_params_to_args(self._path, request.path_params))
        if self._query:
            self._add(values, asked, request_params_to_args(self._query, request.query_params))
        if self._headers:
            self._add(values, asked, request_params_to_args(self._headers, request.headers))
        if self._request_name is not None:
            values[self._request_name] = request
        return values

    @staticmethod
    def _add(values: dict[str, Any], asked: _Asked, found: tuple[dict[str, Any], list[Any]]) -> None:
        values.update(found[0])
        asked.errors += found[1]


def handler_of(dependant: Dependant) -> Handler:
    """Answers a request by the route's function.

    Raises RouteRefused, when the route is made, unless the function is a coroutine that returns a Response, and when it asks
    for more than the request, parameters and dependencies.  The handler raises RequestValidationError.
    """
    route = _Step(dependant)
    returned = get_type_hints(route.call).get("return")
    if not route._waits or not (isinstance(returned, type) and issubclass(returned, Response)):
        raise RouteRefused(f"{route.call.__qualname__} must be a coroutine that returns a Response")

    async def handler(request: Request) -> Response:
        asked = _Asked(request)
        values = await route.values(asked)
        if asked.errors:
            raise RequestValidationError(asked.errors)
        response: Response = await route.call(**values)
        return response

    return handler
