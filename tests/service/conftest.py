"""Stores that all service tests share, and the worlds in which most of them run."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

# pytest imports test files by path here (importmode=importlib), so their neighbours have to be made findable.
sys.path.insert(0, str(Path(__file__).parent))

from service_running import Backends, World, new_user, serving

from local_stack.stores import running_stores


@pytest.fixture(scope="session")
def backends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backends]:
    """Real Postgres, Redis and Qdrant's engine, started once."""
    with running_stores(tmp_path_factory.mktemp("stack")) as urls:
        made = Backends(urls)
        made.prepare()
        yield made


@pytest.fixture(scope="session")
async def world(backends: Backends) -> AsyncIterator[World]:
    """A service without keys: everybody on this machine is admin of the default tenant."""
    async with serving(backends.new_settings()) as opened:
        yield opened


@pytest.fixture(scope="session")
async def keyed(backends: Backends) -> AsyncIterator[World]:
    """A service with keys; `client` has none."""
    settings = backends.new_settings()
    async with serving(settings) as opened:
        await opened.new_key("admin", tenant="unused")
        opened.runtime.access._any = None  # a key exists from now on, not in auth_cache_s
        yield opened


@pytest.fixture
def client(world: World) -> httpx.AsyncClient:
    return world.client


@pytest.fixture
def user() -> str:
    """Nobody has used this id before."""
    return new_user()
