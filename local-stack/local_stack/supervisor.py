"""In which order does everything start and stop, and what happens when a part dies?

Starts the stores and the service side by side, since the service spends its first seconds importing and waits for the
stores by itself; then the migrations, then the gateway, which would take a processor from the others. Watches them;
stops them in reverse order. It knows the others by their command lines and URLs only.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType

from local_stack import ports, postgres
from local_stack.console import Follower, Screen, curl
from local_stack.errors import ChildDied, NotReady, PortTaken, StackError
from local_stack.home import Home, locked, write_private
from local_stack.limits import limit
from local_stack.processes import PYTHON, Child, ChildSpec, spawn, wait_ready
from local_stack.state import READY, STOPPING, State, end_orphans, own_identity
from local_stack.stores import StackUrls, Stores, answers_http, launch_stores

_HOST = "127.0.0.1"


@dataclass(frozen=True)
class Commands:
    """What runs on top of the stores. Tests put stand-ins here."""

    migrate: Sequence[str] = (*PYTHON, "memory_service.launched", "migrate")
    service: Sequence[str] = (*PYTHON, "memory_service.launched", "serve", str(int(limit("wait", "stores_ready_s"))))
    gateway: Sequence[str] = (*PYTHON, "mcp_gateway", "http")


@dataclass(frozen=True)
class Options:
    """What was asked for on the command line."""

    port: int
    gateway_port: int
    gateway: bool = True
    commands: Commands = field(default_factory=Commands)


class Interrupted(Exception):
    """A signal asked to stop."""


class Supervisor:
    """One run of the stack. `run` returns the exit code."""

    def __init__(self, home: Home, options: Options, screen: Screen) -> None:
        self._home = home
        self._options = options
        self._screen = screen
        self._state = State(own_identity())
        self._stores: Stores | None = None
        self._children: list[Child] = []
        self._deaths: dict[str, list[float]] = {}
        self._due: dict[str, float] = {}  # when what died is started again
        self._signal: int | None = None

    def run(self) -> int:
        """Starts, stays until a signal (0) or until something dies or fails to start (1), and stops everything."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # `nohup hindsight up` stays
                signal.signal(number, self._on_signal)
        started = time.monotonic()
        with locked(self._home):
            orphans = end_orphans(self._home)
            if orphans:
                self._screen.step(f"ended what an earlier run left behind: {', '.join(orphans)}")
            self._check_ports()
            self._save()
            try:
                self._start()
                self._announce(time.monotonic() - started)
                self._state.phase = READY  # what was announced is in the log by now: `up --detach` shows it and ends
                self._save()
                self._watch()
            except Interrupted:
                return 0
            except StackError as error:
                if self._signal is not None:  # Ctrl-C reached a helper of ours too, and it failed of that
                    return 0
                self._screen.error(str(error))
                return 1
            finally:
                self._stop()
        return 0

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._signal = number

    def _pause(self) -> None:
        """Between two looks at anything: a signal ends the waiting."""
        if self._signal is not None:
            raise Interrupted

    def _save(self) -> None:
        self._state.save(self._home)

    def _check_ports(self) -> None:
        wanted = [("service", self._options.port, "--port")]
        if self._options.gateway:
            wanted.append(("gateway", self._options.gateway_port, "--gateway-port"))
        for name, port, option in wanted:
            if not ports.is_free(port, _HOST):
                raise PortTaken(
                    f"Port {port} on {_HOST} is already in use, so the {name} can't listen there. "
                    f"Stop what uses it, or choose another: hindsight up {option} {port + 1}"
                )

    def _start(self) -> None:
        self._screen.step(f"starting Postgres, Redis-compatible server and Qdrant's engine in {self._home.root}")
        stores = self._stores = launch_stores(self._home, on_progress=self._screen.step, on_spawn=self._record_store)
        environment = self._environment(stores.urls)
        self._write_env(environment)
        service = self._spawn("service", self._options.commands.service, environment)

        def meanwhile() -> None:
            self._pause()
            if service.exit_code() is not None:
                raise service.death()

        stores.wait(lambda name: self._screen.done(f"{name} on {_HOST}:{stores.ports[name]}"), meanwhile)
        self._finish_migration(self._spawn("migrate", self._options.commands.migrate, environment))
        gateway = self._spawn("gateway", self._options.commands.gateway, environment) if self._options.gateway else None
        self._wait_for(service, self._options.port, ("/health", "/ready"), limit("wait", "service_ready_s"))
        if gateway is not None:
            self._wait_for(gateway, self._options.gateway_port, (), limit("wait", "gateway_ready_s"))

    def _record_store(self, child: Child) -> None:
        self._state.add(child, f"{_HOST}:{self._home.ports()[child.spec.name]}")
        self._save()

    def _environment(self, urls: StackUrls) -> dict[str, str]:
        """What the children get on top of the caller's environment: the names of the settings they read."""
        return {
            "HINDSIGHT_HOME": str(self._home.root),
            **urls.environment(),
            "HINDSIGHT_HOST": _HOST,
            "HINDSIGHT_PORT": str(self._options.port),
            "HINDSIGHT_SERVICE_URL": f"http://{_HOST}:{self._options.port}",
            "HINDSIGHT_GATEWAY_HOST": _HOST,
            "HINDSIGHT_GATEWAY_PORT": str(self._options.gateway_port),
        }

    def _write_env(self, environment: Mapping[str, str]) -> None:
        """stack.env for other `hindsight` commands, and a password file so that psql needs no password on its line."""
        lines = [f"{name}={value}" for name, value in environment.items()]
        write_private(self._home.env, "\n".join(lines) + "\n", durable=False)
        port, secret = self._home.ports()["postgres"], self._home.secret("postgres")
        write_private(self._home.run / "pgpass", f"{_HOST}:{port}:*:{postgres.USER}:{secret}\n", durable=False)

    def _spawn(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> Child:
        self._screen.step(f"starting {name}")
        env = {**os.environ, **environment}
        child = spawn(ChildSpec(name, command, env, self._home.log(name), limit("stop", f"{name}_s")))
        self._children.append(child)
        port = {"service": self._options.port, "gateway": self._options.gateway_port}.get(name)
        self._state.add(child, "" if port is None else f"http://{_HOST}:{port}")
        self._save()
        return child

    def _finish_migration(self, child: Child) -> None:
        """Waits for the end of the migrations."""
        deadline = time.monotonic() + limit("wait", "migrate_s")
        while child.exit_code() is None:
            self._pause()
            if time.monotonic() > deadline:
                raise NotReady(
                    f"The migrations did not finish in {limit('wait', 'migrate_s'):.0f} s:\n{child.own_log()}"
                )
            time.sleep(limit("wait", "poll_ms") / 1000)
        if child.exit_code() != 0:
            raise child.death()
        self._children.remove(child)
        del self._state.members["migrate"]
        self._screen.done("database is at the current version")

    def _wait_for(self, child: Child, port: int, paths: Sequence[str], timeout_s: float) -> None:
        """Waits until every path answers, showing what the child logs meanwhile (the first start builds the model)."""
        follower = Follower(child.spec.log, child.log_start)

        def ready() -> bool:
            return all(answers_http(port, path) for path in paths) if paths else answers_http(port, "/", below=600)

        def meanwhile() -> None:
            self._pause()
            for line in follower.lines():
                self._screen.relay(child.spec.name, line)

        wait_ready({child.spec.name: (child, ready)}, timeout_s, on_wait=meanwhile)
        self._screen.done(f"{child.spec.name} on http://{_HOST}:{port}")

    def _announce(self, took_s: float) -> None:
        service = f"http://{_HOST}:{self._options.port}"
        authorised = bool(os.environ.get("HINDSIGHT_API_KEY"))
        rows = [("service", service)]
        if self._options.gateway:
            rows.append(("gateway", f"http://{_HOST}:{self._options.gateway_port}/mcp"))
        rows.append(("psql", postgres.login_line(self._home)))
        write = {"user_id": "me", "content": "The staging database listens on port 6543."}
        search = {"user_id": "me", "query": "which port does staging use?"}
        rows.append(("write", curl(f"{service}/v1/memories", write, authorised)))
        rows.append(("search", curl(f"{service}/v1/memories/search", search, authorised)))
        self._screen.done(
            f"Hindsight is up ({took_s:.1f} s). Data: {self._home.root}. Stop with Ctrl-C or `hindsight down`."
        )
        self._screen.facts(rows)

    def _watch(self) -> None:
        """Until a signal (Interrupted) or a death that a restart can't mend (ChildDied)."""
        while True:
            for child in self._all():
                if child.exit_code() is not None:
                    self._revive(child)
            self._pause()
            time.sleep(limit("wait", "watch_ms") / 1000)

    def _revive(self, dead: Child) -> None:
        """Start what died again, a little later each time.  One that keeps dying ends the run."""
        now, name = time.monotonic(), dead.spec.name
        if name not in self._due:
            self._due[name] = now + self._rest_s(dead, now)
        if now >= self._due[name]:
            del self._due[name]
            if dead in self._children:
                self._children.remove(dead)
                self._spawn(name, dead.spec.argv, dead.spec.env)
            elif self._stores is not None:
                self._screen.step(f"starting {name}")
                self._stores.start(name)

    def _rest_s(self, dead: Child, now: float) -> float:
        """How long it rests before it is started again.  Raises ChildDied for one death too many."""
        deaths = self._deaths[dead.spec.name] = [
            at for at in self._deaths.get(dead.spec.name, ()) if now - at < limit("restart", "within_s")
        ]
        if deaths and self._stores is not None and self._stores.has_old_backends(dead):
            return limit("wait", "watch_ms") / 1000  # of the one that died before: no death of its own
        if len(deaths) >= limit("restart", "times"):
            raise _during_run(dead.death())
        deaths.append(now)
        self._screen.error(f"{dead.death()}\nStarting it again.")
        return limit("restart", "rest_s") * (len(deaths) - 1)

    def _all(self) -> list[Child]:
        return [*(self._stores.children.values() if self._stores else ()), *self._children]

    def _stop(self) -> None:
        """In reverse order: gateway, service, then the stores. Signals that come meanwhile change nothing."""
        self._state.phase = STOPPING
        self._save()
        running = [child for child in self._all() if child.exit_code() is None]
        if running:
            self._screen.step("stopping " + ", ".join(child.spec.name for child in reversed(running)))
        by_name = {child.spec.name: child for child in self._children}
        for name in ("gateway", "service", "migrate"):
            if name in by_name:
                by_name[name].stop()
        if self._stores is not None:
            self._stores.stop()
        self._home.state.unlink(missing_ok=True)
        self._screen.say("Stopped.")


def _during_run(death: ChildDied) -> ChildDied:
    return ChildDied(f"{death}\nEverything else is being stopped.")
