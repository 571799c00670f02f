"""Is every request answered by the route that the whole router would choose?"""

import asyncio
import re
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from memory_service.api.dispatch import Dispatch
from memory_service.app import create_app
from memory_service.settings import load_settings

APP = create_app(load_settings())
ROUTES = [route for route in APP.routes if isinstance(route, Route)]
FILLED = [
    (method, re.sub(r"\{\w+\}", "x%2Fy", route.path)) for route in ROUTES for method in sorted(route.methods or ())
]


def scope(method: str, path: str) -> dict[str, Any]:
    return {"type": "http", "method": method, "path": path, "root_path": "", "headers": [], "app": APP}


def chosen(method: str, path: str) -> str:
    """The path template and name of the route that answers, or the status of the refusal."""
    told: list[str] = []

    class Noted(Exception):
        pass

    async def receive() -> Any:
        raise Noted

    async def send(_message: Any) -> None:
        raise Noted

    asked = scope(method, path)
    try:
        asyncio.run(Dispatch(APP.router)(asked, receive, send))
    except HTTPException as refusal:
        return str(refusal.status_code)
    except Exception:  # without a runtime no route can do its work, but it was chosen by then
        told.append(f"{asked['method']} {asked['route'].path}")
    return told[0] if told else f"{asked['method']} {asked['route'].path}"


def expected(method: str, path: str) -> str:
    """By trying all routes in their order."""
    matches = [(route.matches(scope(method, path))[0], route) for route in ROUTES]
    full = [route for match, route in matches if match == Match.FULL]
    if full:
        return f"{method} {full[0].path}"
    return "405" if any(match == Match.PARTIAL for match, _ in matches) else "404"


@pytest.mark.parametrize(("method", "path"), FILLED)
def test_a_route_is_found_as_the_whole_router_finds_it(method: str, path: str) -> None:
    assert chosen(method, path) == expected(method, path)


@pytest.mark.parametrize(
    ("method", "path", "answer"),
    [
        ("GET", "/", "404"),
        ("GET", "/v1", "404"),
        ("GET", "/v1/nothing", "404"),
        ("GET", "/v1/memories/a/b/c/d", "404"),
        ("GET", "/v1/memories/", "404"),
        ("DELETE", "/v1/memories", "405"),
        ("PUT", "/health", "405"),
        ("GET", "/health/", "404"),
        ("GET", "/v1//memories", "404"),
    ],
)
def test_what_no_route_takes_is_refused_as_ever(method: str, path: str, answer: str) -> None:
    assert chosen(method, path) == answer == expected(method, path)
