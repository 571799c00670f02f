"""How do the three stores start and stop together? Returns URLs; knows nothing of the service above them.

Order matters once: Postgres's cluster is made while the other two already start. All children are spawned from the
calling thread, which must be the process's main thread (see processes.py).
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from local_stack import ports, postgres, redis
from local_stack.errors import ChildDied
from local_stack.home import Home, open_home
from local_stack.limits import limit
from local_stack.processes import PYTHON, Child, ChildSpec, spawn, wait_ready

NAMES = ("postgres", "redis", "qdrant")
_STATUS_LINE_MAX = 256  # bytes


@dataclass(frozen=True)
class StackUrls:
    """What a client needs; passwords are inside.  `database_socket_url` is "" where the path of a socket would be too long."""

    database_url: str
    redis_url: str
    qdrant_url: str
    database_socket_url: str = ""

    def environment(self) -> dict[str, str]:
        """The URLs under the names that the service reads; Postgres by its Unix socket where it has one."""
        return {
            "HINDSIGHT_DATABASE_URL": self.database_socket_url or self.database_url,
            "HINDSIGHT_REDIS_URL": self.redis_url,
            "HINDSIGHT_QDRANT_URL": self.qdrant_url,
        }


def _quiet(_text: str) -> None:
    return None


class Stores:
    """The running stores. `children` and `ports` go by the names in NAMES."""

    def __init__(self, home: Home, chosen: dict[str, int], on_spawn: Callable[[Child], None]) -> None:
        self.home = home
        self._on_spawn = on_spawn
        self.ports = chosen
        self.children: dict[str, Child] = {}

    @property
    def urls(self) -> StackUrls:
        return StackUrls(
            database_url=postgres.url(self.home, self.ports["postgres"]),
            redis_url=redis.url(self.home, self.ports["redis"]),
            qdrant_url=f"http://127.0.0.1:{self.ports['qdrant']}",
            database_socket_url=postgres.socket_url(self.home, self.ports["postgres"]),
        )

    def spec(self, name: str) -> ChildSpec:
        """What starts the store of that name."""
        if name == "postgres":
            return postgres.spec(self.home, self.ports[name])
        if name == "redis":
            return redis.spec(self.home, self.ports[name])
        return qdrant_spec(self.home, self.ports[name])

    def is_ready(self, name: str) -> bool:
        """One cheap question to a running store."""
        if name == "postgres":
            return postgres.is_ready(self.home, self.children[name].pid)
        if name == "redis":
            return redis.is_ready(self.ports[name], self.home.secret("redis"))
        return answers_http(self.ports[name], "/readyz")

    def start(self, name: str) -> Child:
        """Spawns one store without waiting for it."""
        if name == "postgres":
            postgres.clear_stale_lock(self.home)
        child = spawn(self.spec(name))
        self.children[name] = child
        self._on_spawn(child)
        return child

    def wait(self, on_ready: Callable[[str], None] = _quiet, on_wait: Callable[[], None] = lambda: None) -> None:
        """Returns when all started stores answer; see wait_ready for the errors."""
        deadline = time.monotonic() + limit("wait", "stores_ready_s")
        while True:
            waiting = {name: (child, lambda name=name: self.is_ready(name)) for name, child in self.children.items()}
            try:
                wait_ready(waiting, limit("wait", "stores_ready_s"), on_ready, on_wait)
                return
            except ChildDied:
                postgres_child = self.children.get("postgres")
                if postgres_child is None or not self.has_old_backends(postgres_child) or time.monotonic() > deadline:
                    raise
                time.sleep(limit("wait", "watch_ms") / 1000)
                self.start("postgres")

    def has_old_backends(self, child: Child) -> bool:
        """Did it end because, after kill -9 of the postmaster before, backends still hold the shared memory?  They end in a moment."""
        dead = child is self.children.get("postgres") and child.exit_code() is not None
        return dead and "shared memory block" in child.own_log()

    def kill(self, name: str) -> None:
        """SIGKILL without warning: what a crash does. For fault tests."""
        child = self.children[name]
        os.kill(child.pid, signal.SIGKILL)
        while child.exit_code() is None:
            time.sleep(limit("wait", "poll_ms") / 1000)

    def restart(self, name: str) -> None:
        """Stops the store (unless it is gone already), starts it again on the same port and waits for it."""
        self.children[name].stop()
        self.start(name)
        self.wait()

    def stop(self) -> None:
        """Stops all three side by side: none needs another to stop."""
        for child in self.children.values():
            child.ask_to_stop()
        for child in self.children.values():
            child.stop(asked=True)


def qdrant_spec(home: Home, port: int) -> ChildSpec:
    """The REST process around Qdrant's engine. SIGTERM flushes and closes it."""
    options = ("--host", "127.0.0.1", "--port", str(port), "--storage", str(home.qdrant))
    return ChildSpec(
        name="qdrant",
        argv=(*PYTHON, "local_stack.qdrant", *options),
        env=dict(os.environ),
        log=home.log("qdrant"),
        stop_s=limit("stop", "qdrant_s"),
    )


def answers_http(port: int, path: str, below: int = 400) -> bool:
    """True when GET answers with a status below `below`."""
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n"
    try:  # not http.client: it imports the parsers of mail and TLS, 30 ms of a start
        with socket.create_connection(("127.0.0.1", port), limit("wait", "probe_s")) as connection:
            connection.sendall(request.encode())
            with connection.makefile("rb") as answer:
                version, _, status = answer.readline(_STATUS_LINE_MAX).partition(b" ")
    except OSError:
        return False
    return version.startswith(b"HTTP/") and status[:3].isdigit() and int(status[:3]) < below


def launch_stores(
    home: Home,
    on_progress: Callable[[str], None] = _quiet,
    on_spawn: Callable[[Child], None] = lambda _child: None,
) -> Stores:
    """Starts all three side by side, without waiting for them. On any error everything started is stopped again."""
    stores = Stores(home, _choose_ports(home), on_spawn)
    try:
        for name in ("redis", "qdrant"):
            stores.start(name)
        if not (home.postgres / "PG_VERSION").exists():
            on_progress("making the Postgres cluster (once)")
        postgres.create_cluster(home)
        stores.start("postgres")
    except BaseException:
        stores.stop()
        raise
    return stores


def start_stores(home: Home) -> Stores:
    """Starts all three and waits until each answers. On any error everything started is stopped again."""
    stores = launch_stores(home)
    try:
        stores.wait()
    except BaseException:
        stores.stop()
        raise
    return stores


def _choose_ports(home: Home) -> dict[str, int]:
    """The ports of last time where they are free, so that a saved psql command keeps working."""
    remembered = home.ports()
    chosen: dict[str, int] = {}
    for name in NAMES:
        chosen[name] = ports.choose(remembered.get(name), frozenset(chosen.values()))
    home.remember_ports({**remembered, **chosen})
    return chosen


@contextmanager
def running_stores(folder: Path) -> Iterator[StackUrls]:
    """The three stores under `folder` for the length of a with-block; data stays in `folder`."""
    stores = start_stores(open_home(folder))
    try:
        yield stores.urls
    finally:
        stores.stop()
