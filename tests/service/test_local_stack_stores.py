"""Do the three stores start from their wheels, keep their data, and survive being killed?"""

from __future__ import annotations

import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from sqlalchemy import create_engine, text

from local_stack import postgres, privileges
from local_stack.errors import RootNotSupported
from local_stack.home import Home, open_home
from local_stack.stores import StackUrls, Stores, running_stores, start_stores
from memory_service.stores.postgres.pool import sqlalchemy_url


def execute(urls: StackUrls, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(urls.database_url, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def qdrant(urls: StackUrls, method: str, path: str, body: object = None) -> object:
    answer = httpx.request(method, f"{urls.qdrant_url}{path}", json=body, trust_env=False)
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]


def write_everywhere(urls: StackUrls, key: int) -> None:
    execute(urls, "CREATE TABLE IF NOT EXISTS kept (key int)")
    execute(urls, f"INSERT INTO kept VALUES ({key})")
    redis.Redis.from_url(urls.redis_url).set(f"kept:{key}", key)
    if not qdrant(urls, "GET", "/collections/kept/exists")["exists"]:  # type: ignore[index]
        qdrant(urls, "PUT", "/collections/kept", {"vectors": {"size": 2, "distance": "Dot"}})
    qdrant(urls, "PUT", "/collections/kept/points?wait=true", {"points": [{"id": key, "vector": [1, 0]}]})


def kept_everywhere(urls: StackUrls) -> tuple[set[int], set[int], set[int]]:
    rows = {int(str(row[0])) for row in execute(urls, "SELECT key FROM kept")}
    keys = {int(key.split(b":")[1]) for key in redis.Redis.from_url(urls.redis_url).scan_iter("kept:*")}
    points = qdrant(urls, "POST", "/collections/kept/points/scroll", {"limit": 1000})["points"]  # type: ignore[index]
    return rows, keys, {point["id"] for point in points}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return open_home(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def stores(home: Home) -> Iterator[Stores]:
    running = start_stores(home)
    yield running
    running.stop()


def test_postgres_speaks_utf8_keeps_commits_and_sorts_by_code_point(stores: Stores) -> None:
    settings = execute(
        stores.urls,
        "SELECT current_setting('server_encoding'), current_setting('synchronous_commit'), current_setting('fsync'),"
        " current_setting('timezone'), lower('ÄÖ'), 'b' < 'ä', current_database()",
    )
    assert settings == [("UTF8", "on", "on", "UTC", "äö", True, "hindsight")]
    assert int(str(execute(stores.urls, "SHOW server_version_num")[0][0])) >= 150000


def test_no_store_lets_anyone_in_without_its_password(stores: Stores) -> None:
    for url in (stores.urls.database_url, stores.urls.database_socket_url):
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(url.replace(stores.home.secret("postgres"), "wrong"))
    with pytest.raises(redis.AuthenticationError):
        redis.Redis(port=stores.ports["redis"], retry=Retry(NoBackoff(), 0)).ping()


def test_redis_refuses_to_forget(stores: Stores) -> None:
    client = redis.Redis.from_url(stores.urls.redis_url)
    assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    assert client.config_get("appendonly") == {"appendonly": "yes"}
    assert client.config_get("appendfsync") == {"appendfsync": "everysec"}


def test_passwords_and_data_are_readable_by_the_owner_only(stores: Stores) -> None:
    for path in (*stores.home.run.glob("*.secret"), stores.home.run / "redis.conf"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    for path in (stores.home.root, stores.home.postgres):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700, path


def test_passwords_are_on_no_command_line(stores: Stores) -> None:
    for name, child in stores.children.items():
        listed = subprocess.run(["ps", "-o", "args=", "-p", str(child.pid)], capture_output=True, text=True, check=True)
        assert stores.home.secret("postgres") not in listed.stdout, name
        assert stores.home.secret("redis") not in listed.stdout, name


def test_psql_works_over_the_socket_in_the_data_folder(stores: Stores) -> None:
    folder = postgres.socket_folder(stores.home, stores.ports["postgres"])
    if not folder:
        pytest.skip("the temporary folder's path is too long for a socket")
    environment = {**os.environ, "PGPASSWORD": stores.home.secret("postgres")}
    command = [postgres.programs().path("psql"), "-h", folder, "-p", str(stores.ports["postgres"]), "-U", "hindsight"]
    answer = subprocess.run(
        [*command, "-Atc", "SELECT 1 + 1", "hindsight"], env=environment, capture_output=True, text=True, check=True
    )
    assert answer.stdout == "2\n"


@pytest.mark.parametrize("name", ["postgres", "redis", "qdrant"])
def test_kill_9_loses_nothing_acknowledged(stores: Stores, name: str) -> None:
    before = {100, 200}
    for key in before:
        write_everywhere(stores.urls, key)
    url_before = stores.urls
    stores.kill(name)
    assert stores.children[name].exit_code() == -9
    stores.restart(name)
    assert stores.urls == url_before
    for kept in kept_everywhere(stores.urls):
        assert before <= kept


def test_a_stop_and_a_second_start_keep_data_ports_and_passwords(tmp_path: Path) -> None:
    with running_stores(tmp_path) as first:
        write_everywhere(first, 1)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(first.database_url, connect_timeout=2)
    with running_stores(tmp_path) as second:
        assert second == first
        assert kept_everywhere(second) == ({1}, {1}, {1})


def test_an_interrupted_initdb_starts_over(tmp_path: Path) -> None:
    home = open_home(tmp_path)
    (home.root / "data" / "postgres.new").mkdir()
    (home.root / "data" / "postgres.new" / "half").write_text("x")
    assert postgres.create_cluster(home)
    assert not postgres.create_cluster(home)
    assert (home.postgres / "PG_VERSION").exists()


def test_a_socket_path_that_is_too_long_means_tcp_only() -> None:
    assert postgres.socket_folder(Home(Path("/h")), 5432) == "/h/data/postgres"
    assert postgres.socket_folder(Home(Path("/" + "h" * 100)), 5432) == ""


def test_the_service_reaches_postgres_by_its_socket_and_everyone_else_by_tcp(stores: Stores) -> None:
    url = stores.urls.environment()["HINDSIGHT_DATABASE_URL"]
    assert "&" not in url  # a shell may read stack.env
    with psycopg.connect(url) as connection, create_engine(sqlalchemy_url(url)).connect() as other:
        assert connection.info.host == str(stores.home.postgres)
        by_socket = "SELECT inet_server_addr() IS NULL, current_database()"
        assert connection.execute(by_socket).fetchone() == (True, "hindsight")
        assert tuple(other.execute(text(by_socket)).one()) == (True, "hindsight")
    assert execute(stores.urls, "SELECT host(inet_server_addr())") == [("127.0.0.1",)]
    assert stat.S_IMODE(stores.home.postgres.stat().st_mode) == 0o700


def test_a_home_with_spaces_and_a_very_long_path_works(tmp_path: Path) -> None:
    with running_stores(tmp_path / "a home") as urls:
        assert "a%20home" in urls.database_socket_url
        with psycopg.connect(urls.database_socket_url) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    with running_stores(tmp_path / "a home" / ("long" * 30)) as urls:
        assert urls.environment()["HINDSIGHT_DATABASE_URL"] == urls.database_url
        write_everywhere(urls, 1)
        assert kept_everywhere(urls) == ({1}, {1}, {1})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs a way around")
def test_root_without_user_namespaces_uses_an_unprivileged_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privileges, "_namespace_allowed", lambda: False)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        home = open_home(Path(folder) / "home")
        stores = start_stores(home)
        try:
            assert execute(stores.urls, "SELECT 1") == [(1,)]
            assert home.postgres.stat().st_uid != 0
            assert Path(f"/proc/{stores.children['postgres'].pid}").stat().st_uid != 0
        finally:
            stores.stop()
        monkeypatch.undo()
        again = start_stores(home)  # and back, once namespaces are permitted
        try:
            assert execute(again.urls, "SELECT 1") == [(1,)]
        finally:
            again.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs a way around")
def test_root_without_any_way_around_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privileges, "_namespace_allowed", lambda: False)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o700)
        closed = Path(folder) / "closed"
        closed.mkdir(mode=0o700)
        with pytest.raises(RootNotSupported, match="ordinary user"):
            start_stores(open_home(closed / "home"))
