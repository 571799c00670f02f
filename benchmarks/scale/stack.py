"""What is measured?  One set of real stores, and for each size a database, a collection and a memory-service process of its own.

All sizes are up at the same time, so that they can be asked in turn: what else the machine does then slows all of them alike.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg

from benchmarks.scale.corpus import one_owner, shares
from benchmarks.service_process import service_process
from local_stack import ports
from local_stack.stores import StackUrls, running_stores
from memory_service.migrating import migrate
from memory_service.settings import Settings

READY_S = 300.0
SIZES = {"1k": 1_000, "10k": 10_000, "100k": 100_000, "1M": 1_000_000, "1M-owner": 1_000_000}


@dataclass(frozen=True)
class Store:
    """One size: how many memories each user has, and where."""

    name: str
    want: dict[str, int]
    settings: Settings

    @property
    def url(self) -> str:
        """Of its service."""
        return f"http://127.0.0.1:{self.settings.port}"


@contextmanager
def running(home: Path, names: Sequence[str]) -> Iterator[list[Store]]:
    """Databases for these sizes, empty at first and kept under `home`; no service yet."""
    with running_stores(home) as urls:
        yield [_store(urls, name) for name in names]


@contextmanager
def serving(stores: Sequence[Store]) -> Iterator[None]:
    """A memory-service for each."""
    with ExitStack() as stack:
        for store in stores:
            stack.enter_context(_service(store))
        yield


def _store(urls: StackUrls, name: str) -> Store:
    database, total = f"scale_{name.replace('-', '_').lower()}", SIZES[name]
    settings = Settings(
        database_url=urlunsplit(urlsplit(urls.database_url)._replace(path=f"/{database}")),
        redis_url=urls.redis_url,
        qdrant_url=urls.qdrant_url,
        qdrant_collection=database,
        embedding_provider="hash",
        port=ports.choose(None, frozenset()),
    )
    _make_database(urls.database_url, database)
    migrate(settings, say=lambda _line: None)
    return Store(name, one_owner(total) if name.endswith("owner") else shares(total), settings)


@contextmanager
def _service(store: Store) -> Iterator[None]:
    settings = store.settings
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("HINDSIGHT_")},
        "HINDSIGHT_DATABASE_URL": settings.database_url,
        "HINDSIGHT_REDIS_URL": settings.redis_url,
        "HINDSIGHT_QDRANT_URL": settings.qdrant_url,
        "HINDSIGHT_QDRANT_COLLECTION": settings.qdrant_collection,
        "HINDSIGHT_EMBEDDING_PROVIDER": settings.embedding_provider,
        "HINDSIGHT_PORT": str(settings.port),
        "HINDSIGHT_JOBS": "false",  # a nightly job in the middle of a round would be measured with it
        "HINDSIGHT_LOG_LEVEL": "ERROR",
    }
    with service_process(environment, store.url, READY_S):
        yield


def _make_database(url: str, name: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
            connection.execute(f"CREATE DATABASE {name}")  # type: ignore[call-overload]
