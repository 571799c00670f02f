"""Where does the stack keep its files? Paths, secrets and atomic writes under one folder; starts nothing.

data/postgres data/redis data/qdrant     what must survive
logs/NAME.log                            one per process
run/                                     lock, pids, chosen ports, generated secrets
stack.env                                the URLs as KEY=VALUE lines, readable by the owner only
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from local_stack.errors import AlreadyRunning, StackError


@dataclass(frozen=True)
class Home:
    """The folder of one stack. Build it with `open_home`, which makes it absolute and creates the folders."""

    root: Path

    @property
    def postgres(self) -> Path:
        return self.root / "data" / "postgres"

    @property
    def redis(self) -> Path:
        return self.root / "data" / "redis"

    @property
    def qdrant(self) -> Path:
        return self.root / "data" / "qdrant"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def state(self) -> Path:
        return self.run / "stack.json"

    @property
    def env(self) -> Path:
        return self.root / "stack.env"

    def log(self, name: str) -> Path:
        return self.root / "logs" / f"{name}.log"

    def secret(self, name: str) -> str:
        """A password generated once and kept in run/NAME.secret (0600)."""
        path = self.run / f"{name}.secret"
        if path.exists():
            return path.read_text("utf-8").strip()
        value = secrets.token_urlsafe(24)
        write_private(path, value + "\n")
        return value

    def ports(self) -> dict[str, int]:
        """The ports chosen last time, by process name; empty when none or unreadable (then new ones are chosen)."""
        found = read_json(self.run / "ports.json")
        return {name: port for name, port in found.items() if isinstance(port, int)}

    def remember_ports(self, ports: Mapping[str, int]) -> None:
        write_private(self.run / "ports.json", json.dumps(dict(ports), indent=1) + "\n", durable=False)


def default_root() -> Path:
    """HINDSIGHT_HOME, else ~/.hindsight."""
    return Path(os.environ.get("HINDSIGHT_HOME") or "~/.hindsight").expanduser()


def open_home(root: Path) -> Home:
    """Creates the folders (0700: passwords and memories live here) and returns the Home with an absolute path."""
    home = Home(root.expanduser().absolute())
    try:
        for folder in (home.root, home.root / "data", home.root / "logs", home.run, home.redis, home.qdrant):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        reason = f"The home folder {home.root} can't be created: {error.strerror}. Choose another: --home."
        raise StackError(reason) from error
    return home


def write_private(path: Path, text: str, *, durable: bool = True) -> None:
    """Writes a 0600 file atomically: a reader sees the old content or the new, also after a crash.

    Not `durable` is for what the next start writes anew: a power cut may leave it empty, a killed process can't.
    """
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    fresh.replace(path)
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes a rename in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_json(path: Path) -> dict[str, object]:
    """A JSON object from a file, {} when it is missing or damaged."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


@contextmanager
def locked(home: Home) -> Iterator[None]:
    """Holds the home for one supervisor. The kernel lets go when the process ends, however it ends."""
    with (home.run / "lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise AlreadyRunning(
                f"A stack is already running on {home.root}. `hindsight status` shows it, `hindsight down` stops it; "
                "use --home for a second one."
            ) from error
        yield


def is_locked(home: Home) -> bool:
    """True while a supervisor holds the home."""
    try:
        with locked(home):
            return False
    except AlreadyRunning:
        return True
