"""Do a route's parameters arrive as they were declared, and is a route that needs more refused when it is made?"""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest
from fastapi import Body, Cookie, Depends, Header, Query, Request, Response
from fastapi.dependencies.utils import get_dependant
from fastapi.exceptions import RequestValidationError

from memory_service.api.solving import RouteRefused, handler_of


def asked(query: str = "", path: dict[str, str] | None = None, **headers: str) -> Request:
    return Request(
        {
            "type": "http",
            "method": "GET",
            "path": "/",
            "query_string": query.encode(),
            "path_params": path or {},
            "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
        }
    )


def answer(call: Any, request: Request) -> Response:
    async def run() -> Response:
        return await handler_of(get_dependant(path="/{one}", call=call))(request)

    return asyncio.run(run())


async def test_path_query_and_header_are_validated_and_defaults_fill_what_is_missing() -> None:
    async def route(
        one: str, n: Annotated[int, Query(ge=1)], x_tag: Annotated[str | None, Header()] = None, limit: int = 5
    ) -> Response:
        return Response(f"{one} {n} {x_tag} {limit}")

    handler = handler_of(get_dependant(path="/{one}", call=route))
    assert (await handler(asked("n=3", {"one": "a"}, x_tag="t"))).body == b"a 3 t 5"
    with pytest.raises(RequestValidationError) as refused:
        await handler(asked("n=0&limit=x", {"one": "a"}))
    assert [error["loc"] for error in refused.value.errors()] == [("query", "n"), ("query", "limit")]
    with pytest.raises(RequestValidationError) as missing:
        await handler(asked("", {"one": "a"}))
    assert [error["type"] for error in missing.value.errors()] == ["missing"]


def test_a_dependency_is_called_once_a_request_and_in_the_order_of_the_signature() -> None:
    calls: list[str] = []

    async def first(request: Request) -> str:
        calls.append("first")
        return request.method

    def second(one: Annotated[str, Depends(first)], n: int) -> int:
        calls.append("second")
        return n + len(one)

    async def route(
        a: Annotated[str, Depends(first)], b: Annotated[int, Depends(second)], c: Annotated[str, Depends(first)]
    ) -> Response:
        return Response(f"{a} {b} {c}")

    assert answer(route, asked("n=4")).body == b"GET 7 GET"
    assert calls == ["first", "second"]


def test_a_dependency_whose_parameters_are_wrong_is_not_called_and_all_complaints_are_told() -> None:
    called = []

    def needs(n: int) -> int:
        called.append(n)
        return n

    async def route(a: Annotated[int, Depends(needs)], m: int) -> Response:
        return Response()

    with pytest.raises(RequestValidationError) as refused:
        answer(route, asked("n=x&m=y"))
    assert [error["loc"][1] for error in refused.value.errors()] == ["n", "m"]
    assert called == []


def test_what_a_dependency_raises_comes_before_what_is_wrong_with_the_route() -> None:
    async def refuses() -> None:
        raise PermissionError

    async def route(a: Annotated[None, Depends(refuses)], m: int) -> Response:
        return Response()

    with pytest.raises(PermissionError):
        answer(route, asked("m=y"))


async def opened() -> AsyncIterator[int]:
    yield 1


async def with_body(given: Annotated[dict[str, Any], Body()]) -> Response:
    return Response()


async def with_cookie(given: Annotated[str, Cookie()]) -> Response:
    return Response()


async def with_generator(one: Annotated[int, Depends(opened)]) -> Response:
    return Response()


async def with_response(response: Response) -> Response:
    return response


async def uncached(one: Annotated[int, Depends(len, use_cache=False)]) -> Response:
    return Response()


async def without_response() -> dict[str, str]:
    return {}


def plain() -> Response:
    return Response()


@pytest.mark.parametrize(
    "call", [with_body, with_cookie, with_generator, with_response, uncached, without_response, plain]
)
def test_a_route_that_needs_more_than_is_found_here_is_refused_when_it_is_made(call: Any) -> None:
    with pytest.raises(RouteRefused):
        handler_of(get_dependant(path="/{one}", call=call))
