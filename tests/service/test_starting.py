"""Does a service that starts beside its stores wait for them, and is a migration that has nothing to do a short one?"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, LiteralString

import httpx
import psycopg
import pytest
from service_running import Backends

from local_stack.home import open_home
from local_stack.stores import Stores, launch_stores
from memory_service import migrating
from memory_service.errors import SetupRefused
from memory_service.settings import Settings
from memory_service.stores.waiting import stores_up


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "memory_service.launched", *arguments],
        env={**os.environ, "HINDSIGHT_EMBEDDING_PROVIDER": "hash", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def answer(url: str, process: subprocess.Popen[str], seconds: float = 60) -> httpx.Response:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()[0]
        try:
            return httpx.get(url, trust_env=False, timeout=10)
        except httpx.TransportError:
            time.sleep(0.05)
    raise AssertionError(f"no answer from {url}")


def end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.communicate(timeout=30)


async def test_waiting_ends_with_the_patience_when_a_store_stays_away(backends: Backends) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    begun = time.monotonic()
    assert not await stores_up(backends.urls.database_url, nobody, 0.3)
    assert not await stores_up(f"postgresql://u:p@127.0.0.1:{free_port()}/x", backends.urls.qdrant_url, 0.3)
    assert 0.6 <= time.monotonic() - begun < 10


async def test_waiting_ends_as_soon_as_the_last_store_takes_connections(backends: Backends) -> None:
    port = free_port()
    waiting = asyncio.create_task(stores_up(backends.urls.database_url, f"http://127.0.0.1:{port}", 30))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", port)
    async with server:
        assert await asyncio.wait_for(waiting, 5)


def test_a_service_that_starts_before_its_stores_checks_schema_and_model_once_they_come(tmp_path: Path) -> None:
    """The case of every `hindsight up`: what it must refuse it must refuse here too, so it may not take them for down."""
    home, port = open_home(tmp_path / "home"), free_port()
    stores = launch_stores(home)
    try:
        stores.wait()
        environment = {**stores.urls.environment(), "HINDSIGHT_PORT": str(port)}
        migrated = start("migrate", **environment)
        assert "database is at revision" in migrated.communicate(timeout=60)[0]
        stores.stop()
        service = start("serve", "60", **environment)
        try:
            time.sleep(1)  # it imports or waits
            again(stores)
            ready = answer(f"http://127.0.0.1:{port}/ready", service)
            assert ready.status_code == 200
            assert ready.json()["stores"] == {"postgres": "up", "redis": "up", "qdrant": "up"}
        finally:
            end(service)
        stores.stop()
        other_model = start("serve", "60", **environment, HINDSIGHT_EMBEDDING_DIMENSIONS="64")
        again(stores)
        told = other_model.communicate(timeout=60)[0]
        assert other_model.returncode == 2, told
        assert "hindsight: " in told
        with psycopg.connect(stores.urls.database_url, autocommit=True) as connection:
            connection.execute("UPDATE alembic_version SET version_num = '9999'")
        newer = start("migrate", **environment)
        assert newer.wait(60) != 0
    finally:
        stores.stop()


def rows(settings: Settings, query: LiteralString) -> list[tuple[Any, ...]]:
    with psycopg.connect(settings.database_url) as connection:
        return connection.execute(query).fetchall()


def again(stores: Stores) -> None:
    for name in ("redis", "qdrant", "postgres"):
        stores.start(name)
    stores.wait()


def test_a_current_database_is_left_alone_and_a_new_key_is_still_stored(
    backends: Backends, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = backends.new_settings()
    upgrades: list[str] = []
    upgrade = migrating._upgraded

    def counted(settings: Settings) -> str:
        upgrades.append(settings.api_key or "")
        return upgrade(settings)

    monkeypatch.setattr(migrating, "_upgraded", counted)
    said: list[str] = []
    migrating.migrate(settings, said.append)
    assert upgrades == []
    with_key = settings.model_copy(update={"api_key": "hs_of-the-operator"})
    for _ in range(2):
        migrating.migrate(with_key, said.append)
    assert upgrades == ["hs_of-the-operator"]
    assert rows(settings, "SELECT role, tenant FROM api_key") == [("admin", "default")]
    assert said[0].startswith("database is at revision ")
    assert said[1] == said[2] == f"{said[0]}, HINDSIGHT_API_KEY is an admin key"


def test_an_older_or_empty_database_is_upgraded(backends: Backends) -> None:
    settings = backends.new_settings()
    backends._admin("CREATE DATABASE never_migrated")
    empty = settings.model_copy(update={"database_url": backends.database_url("never_migrated")})
    migrating.migrate(empty, lambda _line: None)
    assert rows(empty, "SELECT version_num FROM alembic_version") == rows(
        settings, "SELECT version_num FROM alembic_version"
    )


def test_a_migration_without_postgres_is_refused_in_one_line_without_the_password() -> None:
    with pytest.raises(SetupRefused) as refused:
        migrating.migrate(Settings(database_url=f"postgresql://u:secret@127.0.0.1:{free_port()}/x"), print)
    assert "Postgres could not be used" in str(refused.value)
    assert "secret" not in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "environment", "told"),
    [
        (("serve",), {}, "expected serve SECONDS or migrate"),
        (("serve", "0"), {"HINDSIGHT_PORT": "no number"}, "HINDSIGHT_PORT"),
    ],
)
def test_a_refused_start_is_one_line_and_exit_code_2(
    arguments: tuple[str, ...], environment: Mapping[str, Any], told: str
) -> None:
    process = start(*arguments, **environment)
    said = process.communicate(timeout=60)[0]
    assert process.returncode == 2
    assert told in said
    assert said.startswith("hindsight: ")
    assert said.count("\n") == 1
