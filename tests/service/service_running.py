"""How do the tests run memory-service over real stores and talk to it?

One set of stores a session; each world is a database (copied from a migrated one), a Qdrant alias and an app served in
process through its own lifespan.  Tests isolate themselves by fresh user ids instead of emptied tables.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID, uuid4

import httpx
import psycopg
from asgi_lifespan import LifespanManager

from local_stack.stores import StackUrls
from memory_service import foundation, keyring
from memory_service.app import create_app
from memory_service.bootstrap import Runtime
from memory_service.migrating import migrate
from memory_service.settings import Settings, Tunables, load_tunables

# Each world reads the same files; compiling their patterns anew takes 0.4 s of processor time a world.
for _name in ("load_vocabulary", "load_summary_rules", "load_contrasts"):
    setattr(foundation, _name, cache(getattr(foundation, _name)))
TEMPLATE = "hindsight_migrated"
WAIT_S = 10.0
_numbers = count(1)


def new_user(word: str = "user") -> str:
    return f"{word}-{uuid4().hex[:12]}"


def new_word(beginning: str) -> str:
    """A word that no text holds by chance: letters only, since the figures of a hexadecimal one are terms of their own
    that dates and counts hold too ("flamingo0306…" finds "03 March").
    """
    return beginning + uuid4().hex[:8].translate(str.maketrans("0123456789", "ghjklmnpqr"))


# What a search or a write goes on without when it is late: on a busy machine a test would see what it does not ask about.
PATIENT = {"search": {"lane_deadline_s": 15.0}, "write": {"similar_deadline_s": 15.0}}


def numbers(settings: Settings, **sections: dict[str, Any]) -> Tunables:
    """The shipped tunables with some changed: `relay={"backoff_s": 0.05}`."""
    shipped = load_tunables(settings)
    changed = {name: PATIENT.get(name, {}) | sections.get(name, {}) for name in {*PATIENT, *sections}}
    return shipped.model_copy(
        update={name: getattr(shipped, name).model_copy(update=own) for name, own in changed.items()}
    )


@dataclass(frozen=True)
class Backends:
    """The running stores and the template that every world's database is copied from."""

    urls: StackUrls

    def database_url(self, name: str) -> str:
        return urlunsplit(urlsplit(self.urls.database_url)._replace(path=f"/{name}"))

    def prepare(self) -> None:
        """Migrate the template once.  Nobody kills these stores, so commits need not wait for the disk; in tests/faults they do."""
        self._admin("ALTER ROLE CURRENT_USER SET synchronous_commit = off")
        self._admin(f"CREATE DATABASE {TEMPLATE}")
        migrate(Settings(database_url=self.database_url(TEMPLATE)), say=lambda _line: None)

    def new_settings(self, **changed: Any) -> Settings:
        """Settings of a world of its own: a fresh migrated database and an unused Qdrant alias."""
        name = f"world_{next(_numbers)}"
        self._admin(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
        return Settings(**{
            "database_url": self.database_url(name), "redis_url": self.urls.redis_url, "qdrant_url": self.urls.qdrant_url,
            "qdrant_collection": name, "embedding_provider": "hash", "jobs": False, **changed,
        })  # fmt: skip

    def _admin(self, statement: str) -> None:
        with psycopg.connect(self.urls.database_url, autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[call-overload]


@dataclass
class World:
    """A running service: `client` without a key, `runtime` inside it."""

    settings: Settings
    app: Any
    client: httpx.AsyncClient

    @property
    def runtime(self) -> Runtime:
        return self.app.state.runtime  # type: ignore[no-any-return]

    def with_key(self, key: str) -> httpx.AsyncClient:
        """The same service, asked with a key."""
        return client_of(self.app, {"Authorization": f"Bearer {key}"})

    async def new_key(
        self,
        role: Literal["reader", "writer", "admin"] = "writer",
        tenant: str = "default",
        user_id: str | None = None,
        rate: int | None = None,
    ) -> str:
        return await keyring.create(self.settings, role=role, tenant=tenant, user_id=user_id, name="test", rate=rate)

    async def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """What psql would show, or change behind the service's back."""
        async with await psycopg.AsyncConnection.connect(self.settings.database_url, autocommit=True) as connection:
            cursor = await connection.execute(statement, values or None)  # type: ignore[arg-type]
            return await cursor.fetchall() if cursor.description else []


def client_of(app: Any, headers: dict[str, str] | None = None) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=app, client=("127.0.0.1", 50_000))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers, timeout=60)


@asynccontextmanager
async def serving(settings: Settings, **overrides: Any) -> AsyncIterator[World]:
    """The service as `hindsight serve` builds it, without the socket."""
    app = create_app(settings, **{"tunables": numbers(settings), **overrides})
    async with LifespanManager(app, startup_timeout=60, shutdown_timeout=30), client_of(app) as client:
        yield World(settings, app, client)


class Proxy:
    """A TCP relay in front of a store: it can be cut like a pulled cable, frozen like a stopped process, and healed.

    `refused` and `held` prove that the fault happened.
    """

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._down = False
        self._flows = asyncio.Event()
        self._flows.set()
        self.refused = self.held = 0

    @property
    def url(self) -> str:
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        host = f"{self._url.netloc.rpartition('@')[0]}@" if "@" in self._url.netloc else ""
        return urlunsplit(self._url._replace(netloc=f"{host}127.0.0.1:{port}"))

    async def cut(self) -> None:
        self._down = True
        for writer in list(self._writers):
            writer.transport.abort()

    async def freeze(self) -> None:
        """As SIGSTOP: connections are accepted and nothing is answered."""
        self._flows.clear()

    async def heal(self) -> None:
        self._down = False
        self._flows.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._down:
            self.refused += 1
            writer.transport.abort()
            return
        with suppress(OSError):
            upstream_reader, upstream_writer = await asyncio.open_connection(self._url.hostname, self._url.port)
            self._writers |= {writer, upstream_writer}
            try:
                await asyncio.gather(self._pump(reader, upstream_writer), self._pump(upstream_reader, writer))
            finally:
                self._writers -= {writer, upstream_writer}
                for one in (writer, upstream_writer):
                    one.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await reader.read(65_536):
                self.held += not self._flows.is_set()
                await self._flows.wait()
                writer.write(chunk)
                await writer.drain()
            writer.close()


@asynccontextmanager
async def proxied(url: str) -> AsyncIterator[Proxy]:
    proxy = Proxy(url)
    proxy._server = await asyncio.start_server(proxy._serve, "127.0.0.1", 0)
    try:
        yield proxy
    finally:
        await proxy.cut()
        proxy._server.close()


async def write(
    client: httpx.AsyncClient, user_id: str, content: str, *, wait: bool = False, **fields: Any
) -> dict[str, Any]:
    """One new memory, stored as given; the memory object."""
    answer = await client.post(
        "/v1/memories",
        params={"wait": "indexed"} if wait else None,
        json={"user_id": user_id, "content": content, "infer": False, **fields},
    )
    assert answer.status_code == 201, answer.text
    return answer.json()["memory"]  # type: ignore[no-any-return]


async def write_many(
    client: httpx.AsyncClient, user_id: str, contents: list[str], *, wait: bool = False, **fields: Any
) -> list[str]:
    """New memories in one batch; their ids in order."""
    items = [{"user_id": user_id, "content": content, "infer": False, **fields} for content in contents]
    answer = await client.post("/v1/memories/batch", json={"memories": items})
    assert answer.status_code == 200, answer.text
    results = answer.json()["results"]
    assert [r["status"] for r in results] == ["created"] * len(contents), results
    ids = [r["id"] for r in results]
    if wait:
        await indexed(client, user_id)
    return ids


async def search(client: httpx.AsyncClient, user_id: str, query: str, **fields: Any) -> dict[str, Any]:
    answer = await client.post("/v1/memories/search", json={"user_id": user_id, "query": query, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


async def found(client: httpx.AsyncClient, user_id: str, query: str, **fields: Any) -> list[str]:
    """The contents that a search returned, best first."""
    return [r["content"] for r in (await search(client, user_id, query, **fields))["results"]]


async def listed(client: httpx.AsyncClient, user_id: str, **params: Any) -> list[dict[str, Any]]:
    answer = await client.get("/v1/memories", params={"user_id": user_id, "limit": 100, **params})
    assert answer.status_code == 200, answer.text
    return answer.json()["items"]  # type: ignore[no-any-return]


async def indexed(client: httpx.AsyncClient, user_id: str) -> None:
    """Until no memory of the user waits for its vector."""

    async def done() -> bool:
        pending = await listed(client, user_id, include_cold=True, filters='{"index.state":{"eq":"pending"}}')
        return not pending

    await until(done)


async def until(condition: Callable[[], Any], wait_s: float = WAIT_S) -> Any:
    """Poll until the (async) condition is truthy; its value."""
    deadline = asyncio.get_running_loop().time() + wait_s
    while True:
        if value := await condition():
            return value
        assert asyncio.get_running_loop().time() < deadline, f"not within {wait_s} s: {condition.__qualname__}"
        await asyncio.sleep(0.02)


def problem_of(answer: httpx.Response, status: int, field: str | None = None) -> dict[str, Any]:
    """Checks that this is a problem of that status, naming that field; its body."""
    assert answer.status_code == status, answer.text[:2000]
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert {"type", "title", "status", "detail", "code", "errors"} == set(body)
    assert body["status"] == status
    assert body["type"] == f"urn:hindsight:problem:{body['code']}"
    for secret in ("postgresql://", "redis://", "http://", "SELECT", "INSERT", "Traceback", 'File "'):
        assert secret not in answer.text
    if field is not None:
        assert field in [e["field"] for e in body["errors"]], body
    return body


def is_uuid7(text: str) -> bool:
    return UUID(text).version == 7
