"""How is a child started, proven to be ours, watched and stopped?

Knows nothing of what a child does. Children are spawned from the main thread only: Linux delivers the parent-death
signal when the *thread* that forked ends, so a child started by a pool thread would be killed with it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from local_stack.errors import ChildDied, NotReady
from local_stack.limits import limit

# A module of ours, followed by its name. -P: a file called redis.py or mcp.py where somebody stands would be taken for the library.
PYTHON = (sys.executable, "-P", "-m")
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


@dataclass(frozen=True)
class ChildSpec:
    """What to start. `stop_s` is the time from `stop_signal` to SIGKILL; `uid`/`gid` drop from root when set."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    log: Path
    stop_s: float
    stop_signal: signal.Signals = signal.SIGTERM
    uid: int | None = None
    gid: int | None = None
    cwd: Path | None = None


@dataclass(frozen=True)
class Identity:
    """A process for certain: pids are reused, a pid together with its start time is not."""

    pid: int
    started: str


def identify(pid: int) -> Identity | None:
    """The identity of a live process, None when there is none (a zombie counts as none)."""
    started = _linux_start(pid) if sys.platform == "linux" else _ps_start(pid)
    return Identity(pid, started) if started else None


def _linux_start(pid: int) -> str:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()  # the name in parentheses may hold spaces; field 3 (state) comes first
    if fields[0] in ("Z", "X"):
        return ""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}:{fields[19]}"  # field 22, start time in ticks since boot


def _ps_start(pid: int) -> str:
    answer = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, started = answer.stdout.strip().partition(" ")
    return "" if not state or state.startswith("Z") else started.strip()


def is_alive(identity: Identity) -> bool:
    """True while the very process that was recorded still runs."""
    return identify(identity.pid) == identity


def end(identity: Identity, stop_signal: signal.Signals, timeout_s: float) -> None:
    """Ends a process that need not be our child: politely, after `timeout_s` by SIGKILL. Nothing when it is gone."""
    for number, patience_s in ((stop_signal, timeout_s), (signal.SIGKILL, 5.0)):
        if not is_alive(identity):
            return
        try:
            os.kill(identity.pid, number)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + patience_s
        while is_alive(identity) and time.monotonic() < deadline:
            time.sleep(limit("wait", "poll_ms") / 1000)


def tail(log: Path, lines: int | None = None) -> str:
    """The last lines of a log file, bounded to 64 KiB; empty when there is no file."""
    count = lines if lines is not None else int(limit("logs", "tail_lines"))
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 65536))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-count:])


def rotate(log: Path) -> None:
    """Moves a log that has grown large to NAME.log.1 (replacing the one before)."""
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > limit("logs", "rotate_at_mb") * 1024 * 1024:
        log.replace(log.with_name(log.name + ".1"))


class Child:
    """One running process. `stop` is idempotent and always returns with the process gone."""

    def __init__(self, spec: ChildSpec, process: subprocess.Popen[bytes], identity: Identity, log_start: int) -> None:
        self.spec = spec
        self.identity = identity
        self.log_start = log_start
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_code(self) -> int | None:
        """The exit code once the process has ended, None while it runs."""
        return self._process.poll()

    def ask_to_stop(self) -> None:
        """Sends the stop signal and returns at once."""
        if self._process.poll() is None:
            self._process.send_signal(self.spec.stop_signal)

    def stop(self, asked: bool = False) -> None:
        """Asks (unless already `asked`), waits `stop_s`, then SIGKILL. Reaps the process."""
        if not asked:
            self.ask_to_stop()
        try:
            self._process.wait(self.spec.stop_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def own_log(self) -> str:
        """The end of what this process, not an earlier one, wrote to its log."""
        try:
            with self.spec.log.open("rb") as file:
                file.seek(max(self.log_start, self.spec.log.stat().st_size - 65536))
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-int(limit("logs", "tail_lines")) :])

    def death(self) -> ChildDied:
        """The error that tells how this process ended."""
        code = self._process.returncode
        how = f"killed by {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
        return ChildDied(
            f"{self.spec.name} ended ({how}). The end of {self.spec.log}:\n{self.own_log() or '(the log is empty)'}"
        )


def spawn(spec: ChildSpec) -> Child:
    """Starts a process in its own session (a Ctrl-C in the terminal reaches only the supervisor), log appended."""
    rotate(spec.log)
    with spec.log.open("ab") as log:
        log_start = log.tell()
        process = subprocess.Popen(
            list(spec.argv),
            env=dict(spec.env),
            cwd=spec.cwd,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=spec.uid,
            group=spec.gid,
            extra_groups=[] if spec.uid is not None else None,
            preexec_fn=_die_with_parent(spec.stop_signal),
        )
    identity = identify(process.pid) or Identity(process.pid, "gone")
    return Child(spec, process, identity, log_start)


def _die_with_parent(number: signal.Signals) -> Callable[[], None] | None:
    """Runs in the child between fork and exec: asks Linux to signal it when the parent dies. None elsewhere."""
    libc = _LIBC
    if libc is None:
        return None
    parent = os.getpid()

    def apply() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != parent:  # it died between fork and prctl
            os._exit(1)

    return apply


def wait_ready(
    waiting: Mapping[str, tuple[Child, Callable[[], bool]]],
    timeout_s: float,
    on_ready: Callable[[str], None] = lambda _name: None,
    on_wait: Callable[[], None] = lambda: None,
) -> None:
    """Polls all children together until each probe is true.

    `on_wait` runs on every turn (progress, interruption). Raises ChildDied as soon as one ends, NotReady at the end
    of `timeout_s`, naming the first that is late.
    """
    open_probes = dict(waiting)
    deadline = time.monotonic() + timeout_s
    while open_probes:
        for name, (child, probe) in list(open_probes.items()):
            if child.exit_code() is not None:
                raise child.death()
            if probe():
                del open_probes[name]
                on_ready(name)
        if open_probes and time.monotonic() > deadline:
            child = next(iter(open_probes.values()))[0]
            raise NotReady(
                f"{child.spec.name} did not become ready within {timeout_s:.0f} s. "
                f"The end of {child.spec.log}:\n{child.own_log() or '(the log is empty)'}"
            )
        on_wait()
        if open_probes:
            time.sleep(limit("wait", "poll_ms") / 1000)
