"""What can a person ask of the local stack? up, down, status, logs: each reads options and calls once."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from local_stack import background, postgres
from local_stack.console import Follower, Screen
from local_stack.errors import StackError
from local_stack.home import Home, default_root, is_locked, open_home
from local_stack.limits import limit
from local_stack.processes import PYTHON, is_alive, rotate, tail
from local_stack.state import READY, load, stop_supervisor
from local_stack.supervisor import Commands, Options, Supervisor

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Run Hindsight on this machine.")
_LOGS = ("supervisor", "service", "gateway", "migrate", "postgres", "redis", "qdrant")

HomeOption = Annotated[
    Path | None, typer.Option("--home", envvar="HINDSIGHT_HOME", help="Folder of the data. Default: ~/.hindsight")
]
HiddenCommand = Annotated[str | None, typer.Option(hidden=True, help="Another program in place of ours (tests).")]


@app.command()
def up(
    home: HomeOption = None,
    port: Annotated[int, typer.Option(envvar="HINDSIGHT_PORT", min=1, max=65535, help="Port of the service.")] = int(
        limit("ports", "service")
    ),
    gateway_port: Annotated[
        int, typer.Option(envvar="HINDSIGHT_GATEWAY_PORT", min=1, max=65535, help="Port of the MCP gateway.")
    ] = int(limit("ports", "gateway")),
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return when ready; `down` stops it.")] = False,
    gateway: Annotated[bool, typer.Option("--gateway/--no-gateway", help="Start the MCP gateway too.")] = True,
    migrate_command: HiddenCommand = None,
    service_command: HiddenCommand = None,
    gateway_command: HiddenCommand = None,
) -> None:
    """Start Postgres, Redis, Qdrant's engine, the service and the MCP gateway, and stay until Ctrl-C."""
    screen = Screen()
    given = {"migrate": migrate_command, "service": service_command, "gateway": gateway_command}
    with _explained(screen):
        found = open_home(home or default_root())
        commands = {name: tuple(shlex.split(text)) for name, text in given.items() if text}
        options = Options(port, gateway_port, gateway, Commands(**commands))
        if detach:
            raise typer.Exit(_detached(found, screen, options, commands))
        raise typer.Exit(Supervisor(found, options, screen).run())


@app.command()
def down(home: HomeOption = None) -> None:
    """Stop the stack of this home, wherever it was started. Fine when nothing runs."""
    screen = Screen()
    with _explained(screen):
        stopped = stop_supervisor(open_home(home or default_root()))
        screen.say("Stopped." if stopped else "Not running.")


@app.command()
def status(home: HomeOption = None) -> None:
    """Show each process. Exit code 1 when the stack is not running or a part of it is down."""
    screen = Screen()
    with _explained(screen):
        found = open_home(home or default_root())
        state = load(found)
        if state is None or not is_locked(found):
            screen.say(f"Not running ({found.root}). Start it with: hindsight up")
            raise typer.Exit(1)
        rows = [("supervisor", str(state.supervisor.pid), "", state.phase if is_alive(state.supervisor) else "down")]
        for member in state.members.values():
            seen = "up" if is_alive(member.identity) else "down"
            rows.append((member.name, str(member.identity.pid), member.url, seen))
        screen.table(("PROCESS", "PID", "URL", "STATE"), rows)
        if "postgres" in state.members:
            screen.facts([("psql", postgres.login_line(found))])
        raise typer.Exit(0 if state.phase == READY and all(row[3] != "down" for row in rows) else 1)


@app.command()
def logs(
    name: Annotated[str | None, typer.Argument(help=f"One of: {', '.join(_LOGS)}. Default: all.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on printing until Ctrl-C.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many lines of the past.")] = int(
        limit("logs", "tail_lines")
    ),
    home: HomeOption = None,
) -> None:
    """Print the end of the logs."""
    screen = Screen()
    with _explained(screen):
        if name is not None and name not in _LOGS:
            raise StackError(f"There is no log {name!r}; choose one of: {', '.join(_LOGS)}")
        found = open_home(home or default_root())
        chosen = [name] if name else [known for known in _LOGS if found.log(known).exists()]
        followers = {known: _follower(found.log(known)) for known in chosen}
        for known in chosen:
            for line in tail(found.log(known), lines).splitlines() if lines else ():
                screen.say(line if name else f"{known} │ {line}")
        while follow:
            for known, follower in followers.items():
                for line in follower.lines():
                    screen.say(line if name else f"{known} │ {line}")
            time.sleep(limit("logs", "follow_ms") / 1000)


def _follower(log: Path) -> Follower:
    return Follower(log, log.stat().st_size if log.exists() else 0)


@contextmanager
def _explained(screen: Screen) -> Iterator[None]:
    """Turns a StackError into its message and exit code 1, and Ctrl-C into a quiet end."""
    try:
        yield
    except StackError as error:
        screen.error(str(error))
        raise typer.Exit(1) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(130) from error


def _detached(home: Home, screen: Screen, options: Options, commands: Mapping[str, Sequence[str]]) -> int:
    """Starts the supervisor as a background session, shows what it says; returns when ready (0) or gone (1)."""
    log = home.log("supervisor")
    rotate(log)
    argv = [*PYTHON, "local_stack.background", *background.arguments(home, options, commands)]
    follower = _follower(log)
    with log.open("ab") as file:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    deadline = time.monotonic() + limit("wait", "detach_s")
    while time.monotonic() < deadline:
        code = process.poll()
        state = load(home)
        ready = state is not None and state.phase == READY and state.supervisor.pid == process.pid
        for line in follower.lines():
            screen.say(line)
        if code is not None:
            return code or 1
        if ready:
            screen.say("Running in the background.")
            return 0
        time.sleep(limit("wait", "poll_ms") / 1000)
    screen.error(f"Not ready after {limit('wait', 'detach_s'):.0f} s; still starting. See: hindsight logs")
    return 1
