"""Does `hindsight up` start, watch and stop everything, and tell a person what went wrong?

The stores are real. In place of the service and the gateway run small programs that answer HTTP, so that these tests
are about the launcher alone.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import psycopg
import pytest

from local_stack import postgres
from local_stack.home import open_home
from local_stack.processes import Identity, identify
from local_stack.state import Member, State, end_orphans
from local_stack.stores import Stores, answers_http

STAND_IN = """
import http.server, os, signal, sys
name = sys.argv[1]
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == '/exit':
            print('about to break: out of cheese', flush=True); os._exit(7)
        self.send_response(200 if name == 'service' else 404); self.end_headers()
    def log_message(self, *_): pass
signal.signal(signal.SIGTERM, lambda *_: (print('stopping cleanly', flush=True), os._exit(0)))
if name == 'migrate':
    assert os.environ['HINDSIGHT_DATABASE_URL'].startswith('postgresql://'); sys.exit(0)
print('{"event": "building the embedding model 1/3"}', flush=True)
port = int(os.environ['HINDSIGHT_PORT' if name == 'service' else 'HINDSIGHT_GATEWAY_PORT'])
http.server.ThreadingHTTPServer(('127.0.0.1', port), Answer).serve_forever()
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Stack:
    """A home and how to call `hindsight` on it."""

    home: Path
    script: Path
    port: int
    gateway_port: int

    def argv(self, command: str, *options: str) -> list[str]:
        argv = [sys.executable, "-m", "local_stack", command, *options, "--home", str(self.home)]
        if command == "up":
            argv += ["--port", str(self.port), "--gateway-port", str(self.gateway_port)]
            for name in ("migrate", "service", "gateway"):
                if not any(option.startswith(f"--{name}-command") for option in options):
                    argv += [f"--{name}-command", shlex.join([sys.executable, str(self.script), name])]
        return argv

    def run(self, command: str, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.argv(command, *options), capture_output=True, text=True, timeout=60, check=False)

    def start(self, *options: str) -> subprocess.Popen[str]:
        """`up` in the foreground, returned once it is ready."""
        process = subprocess.Popen(
            self.argv("up", *options),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and process.poll() is None:
            if self.state().get("phase") == "ready":
                return process
            time.sleep(0.02)
        raise AssertionError(process.communicate(timeout=30)[0])

    def state(self) -> dict[str, object]:
        try:
            return dict(json.loads((self.home / "run" / "stack.json").read_text()))
        except (OSError, ValueError):
            return {}

    def pids(self) -> dict[str, int]:
        return {name: member["pid"] for name, member in self.state()["members"].items()}  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose Postgres cluster is made already: making one takes seconds, copying one does not."""
    home = open_home(tmp_path_factory.mktemp("made"))
    postgres.create_cluster(home)
    return home.root


@pytest.fixture
def stack(tmp_path: Path, made: Path) -> Stack:
    shutil.copytree(made, tmp_path / "home")
    script = tmp_path / "stand_in.py"
    script.write_text(STAND_IN)
    return Stack(tmp_path / "home", script, free_port(), free_port())


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def wait_until_gone(pids: list[int], seconds: float = 15) -> list[int]:
    deadline = time.monotonic() + seconds
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    return [pid for pid in pids if alive(pid)]


def test_detach_status_logs_and_down(stack: Stack) -> None:
    assert stack.run("status").returncode == 1
    up = stack.run("up", "--detach")
    assert up.returncode == 0, up.stdout + up.stderr
    assert f"http://127.0.0.1:{stack.port}" in up.stdout
    assert f":{stack.gateway_port}/mcp" in up.stdout
    assert up.stdout.count("curl -s ") == 2
    assert "building the embedding model 1/3" in up.stdout
    assert httpx.get(f"http://127.0.0.1:{stack.port}/ready", trust_env=False).status_code == 200

    status = stack.run("status")
    assert status.returncode == 0
    for name, pid in stack.pids().items():
        assert any(line.split()[0] == name and str(pid) in line and "up" in line for line in status.stdout.splitlines())
    (login,) = [line.split(maxsplit=1)[1] for line in status.stdout.splitlines() if line.split()[0] == "psql"]
    assert login in up.stdout
    asked = subprocess.run(
        [*shlex.split("env " + login), "-Atc", "SELECT 6 * 7"], capture_output=True, text=True, check=False
    )
    assert asked.stdout == "42\n", asked.stderr
    assert "database system is ready" in stack.run("logs", "postgres").stdout
    assert "service │ " in stack.run("logs").stdout
    assert stack.run("logs", "nonsense").returncode == 1

    pids = list(stack.pids().values())
    down = stack.run("down")
    assert down.returncode == 0
    assert "Stopped." in down.stdout
    assert not [pid for pid in pids if alive(pid)], "down must return with everything gone"
    assert "stopping cleanly" in (stack.home / "logs" / "service.log").read_text()
    assert "database system is shut down" in (stack.home / "logs" / "postgres.log").read_text()
    again = stack.run("down")
    assert again.returncode == 0
    assert "Not running." in again.stdout
    assert stack.run("status").returncode == 1


def test_the_urls_are_left_in_a_private_file_and_no_password_on_the_screen(stack: Stack) -> None:
    shown = stack.run("up", "--detach").stdout
    try:
        env = stack.home / "stack.env"
        assert stat.S_IMODE(env.stat().st_mode) == 0o600
        values = dict(line.split("=", 1) for line in env.read_text().splitlines())
        assert values["HINDSIGHT_SERVICE_URL"] == f"http://127.0.0.1:{stack.port}"
        assert values["HINDSIGHT_DATABASE_URL"].startswith("postgresql://hindsight:")
        assert values["HINDSIGHT_REDIS_URL"].startswith("redis://:")
        assert values["HINDSIGHT_QDRANT_URL"]
        assert (stack.home / "run" / "postgres.secret").read_text().strip() not in shown
        psql = next(line for line in shown.splitlines() if "PGPASSFILE=" in line).split(maxsplit=1)[1]
        query = subprocess.run(f"{psql} -Atc 'SELECT 41 + 1'", shell=True, capture_output=True, text=True, check=True)
        assert query.stdout == "42\n"
    finally:
        stack.run("down")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_everything_cleanly(stack: Stack, number: signal.Signals) -> None:
    process = stack.start("--no-gateway")
    pids = list(stack.pids().values())
    assert set(stack.pids()) == {"postgres", "redis", "qdrant", "service"}
    process.send_signal(number)
    shown = process.communicate(timeout=30)[0]
    assert process.returncode == 0
    assert shown.rstrip().endswith("Stopped.")
    assert not [pid for pid in pids if alive(pid)]


def test_the_second_start_takes_less_than_five_seconds(stack: Stack) -> None:
    """The best of three: the bound is about the launcher, not about what else keeps the machine busy."""
    stack.run("up", "--detach")
    best_s = float("inf")
    for _ in range(3):
        stack.run("down")
        started = time.monotonic()
        assert stack.run("up", "--detach").returncode == 0
        best_s = min(best_s, time.monotonic() - started)
        if best_s < 5:
            break
    stack.run("down")
    assert best_s < 5


def test_a_taken_port_is_named_with_the_option_that_changes_it(stack: Stack) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", stack.port))
        taken.listen()
        refused = stack.run("up")
    assert refused.returncode == 1
    assert f"Port {stack.port}" in refused.stdout
    assert "--port" in refused.stdout
    assert "Traceback" not in refused.stderr
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", stack.gateway_port))
        taken.listen()
        assert "--gateway-port" in stack.run("up").stdout


def test_a_second_up_on_the_same_home_is_refused_and_disturbs_nothing(stack: Stack) -> None:
    stack.run("up", "--detach")
    try:
        pids = stack.pids()
        other = Stack(stack.home, stack.script, free_port(), free_port())
        for options in ((), ("--detach",)):
            refused = other.run("up", *options)
            assert refused.returncode == 1
            assert "already running" in refused.stdout
        assert stack.pids() == pids
        assert stack.run("status").returncode == 0
    finally:
        stack.run("down")


@pytest.mark.parametrize("victim", ["postgres", "redis", "qdrant", "service", "gateway"])
def test_a_part_that_dies_is_started_again_and_the_others_stay(stack: Stack, victim: str) -> None:
    process = stack.start()
    pids = stack.pids()
    os.kill(pids[victim], signal.SIGKILL)
    now = wait_for_another(stack, victim, pids[victim])
    assert {**now, victim: 0} == {**pids, victim: 0}
    assert answers(stack, victim)
    assert process.poll() is None
    process.terminate()
    assert f"{victim} ended (killed by SIGKILL)" in process.communicate(timeout=60)[0]
    assert process.returncode == 0
    assert wait_until_gone(list(now.values())) == []


def wait_for_another(stack: Stack, name: str, pid: int) -> dict[str, int]:
    """The pids once `name` runs as another process."""
    deadline = time.monotonic() + 20
    while (now := stack.pids())[name] == pid and time.monotonic() < deadline:
        time.sleep(0.05)
    assert now[name] != pid
    return now


def answers(stack: Stack, name: str) -> bool:
    """Does that part, as the stack's own settings name it, answer within some seconds?"""
    home = open_home(stack.home)
    stores = Stores(home, home.ports(), lambda _child: None)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if name == "postgres":
            with suppress(psycopg.OperationalError), psycopg.connect(stores.urls.database_url, connect_timeout=2):
                return True
        elif name in ("service", "gateway"):
            if answers_http(stack.port if name == "service" else stack.gateway_port, "/", below=600):
                return True
        elif stores.is_ready(name):
            return True
        time.sleep(0.1)
    return False


def test_a_store_that_keeps_dying_ends_the_run_with_its_log(stack: Stack) -> None:
    process = stack.start()
    pids, last = stack.pids(), stack.pids()["qdrant"]
    for _ in range(3):
        os.kill(last, signal.SIGKILL)
        last = wait_for_another(stack, "qdrant", last)["qdrant"]
    os.kill(last, signal.SIGKILL)
    shown = process.communicate(timeout=60)[0]
    assert process.returncode == 1
    assert shown.count("qdrant ended (killed by SIGKILL)") == 4  # three restarts
    assert "Everything else is being stopped." in shown
    assert wait_until_gone([*pids.values(), last]) == []


def test_a_service_that_keeps_dying_ends_the_run_with_its_log(stack: Stack) -> None:
    process = stack.start()
    pids = stack.pids()
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{stack.port}/exit", trust_env=False)
        time.sleep(0.1)
    shown = process.communicate(timeout=30)[0]
    assert process.returncode == 1
    assert shown.count("service ended (exit code 7)") == 4  # three restarts
    assert "about to break: out of cheese" in shown
    assert not [pid for pid in pids.values() if alive(pid)]


@pytest.mark.parametrize("part", ["migrate", "service", "gateway"])
def test_a_part_that_does_not_start_ends_up_with_its_log(stack: Stack, part: str) -> None:
    broken = shlex.join([sys.executable, "-c", "import sys; print('no such table: cheese'); sys.exit(3)"])
    refused = stack.run("up", f"--{part}-command", broken)
    assert refused.returncode == 1
    assert f"{part} ended (exit code 3)" in refused.stdout
    assert "no such table: cheese" in refused.stdout
    assert stack.state() == {}


def test_after_kill_9_of_the_supervisor_nothing_survives_it_and_the_next_up_works(stack: Stack) -> None:
    process = stack.start()
    pids = list(stack.pids().values())
    process.kill()
    process.wait(10)
    assert stack.run("status").returncode == 1
    if sys.platform == "linux":
        assert wait_until_gone(pids) == []
    again = stack.run("up", "--detach")
    assert again.returncode == 0, again.stdout
    assert not set(pids) & set(stack.pids().values())
    stack.run("down")
    assert wait_until_gone(pids) == []


def test_an_orphan_is_ended_only_when_it_is_proven_ours(stack: Stack) -> None:
    home = open_home(stack.home)
    ours = subprocess.Popen(["sleep", "60"])
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        identity = identify(ours.pid)
        assert identity is not None
        state = State(Identity(1, "gone"))
        state.members["redis"] = Member("redis", identity, signal.SIGTERM)
        state.members["qdrant"] = Member("qdrant", Identity(stranger.pid, "another start"), signal.SIGTERM)
        state.save(home)
        assert end_orphans(home) == ["redis"]
        assert ours.wait(5) == -signal.SIGTERM
        assert stranger.poll() is None
    finally:
        for process in (ours, stranger):
            process.kill()
            process.wait()
