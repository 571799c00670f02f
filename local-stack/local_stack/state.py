"""Who runs on this home, and can it be proven? Keeps run/stack.json; signals only processes that it can identify."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import dataclass, field
from typing import Any

from local_stack.home import Home, is_locked, read_json, write_private
from local_stack.limits import limit
from local_stack.processes import Child, Identity, end, identify, is_alive

STARTING, READY, STOPPING = "starting", "ready", "stopping"


@dataclass(frozen=True)
class Member:
    """One recorded process."""

    name: str
    identity: Identity
    stop_signal: signal.Signals
    url: str = ""


@dataclass
class State:
    """What run/stack.json says. `phase` is starting, ready or stopping; passwords are never in it."""

    supervisor: Identity
    phase: str = STARTING
    members: dict[str, Member] = field(default_factory=dict)

    def add(self, child: Child, url: str = "") -> None:
        self.members[child.spec.name] = Member(child.spec.name, child.identity, child.spec.stop_signal, url)

    def save(self, home: Home) -> None:
        document = {
            "supervisor": {"pid": self.supervisor.pid, "started": self.supervisor.started},
            "phase": self.phase,
            "members": {
                name: {
                    "pid": member.identity.pid,
                    "started": member.identity.started,
                    "stop_signal": int(member.stop_signal),
                    "url": member.url,
                }
                for name, member in self.members.items()
            },
        }
        write_private(home.state, json.dumps(document, indent=1) + "\n", durable=False)


def own_identity() -> Identity:
    return identify(os.getpid()) or Identity(os.getpid(), "")


def load(home: Home) -> State | None:
    """The recorded state, None when there is none or it can't be read."""
    found: dict[str, Any] = read_json(home.state)
    try:
        members = {
            name: Member(
                name, Identity(kept["pid"], kept["started"]), signal.Signals(kept["stop_signal"]), str(kept["url"])
            )
            for name, kept in found["members"].items()
        }
        supervisor = Identity(found["supervisor"]["pid"], found["supervisor"]["started"])
        return State(supervisor, str(found["phase"]), members)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def end_orphans(home: Home) -> list[str]:
    """Ends what a killed supervisor left running, the last started first, and names it."""
    state = load(home)
    if state is None:
        return []
    left = [member for member in reversed(state.members.values()) if is_alive(member.identity)]
    for member in left:
        end(member.identity, member.stop_signal, limit("wait", "orphan_s"))
    return [member.name for member in left]


def stop_supervisor(home: Home) -> bool:
    """Ends the supervisor and everything under it; False when none was running. Returns with all of it gone."""
    if not is_locked(home):
        end_orphans(home)
        return False
    deadline = time.monotonic() + limit("wait", "probe_s")
    state = load(home)
    while (state is None or not is_alive(state.supervisor)) and is_locked(home) and time.monotonic() < deadline:
        time.sleep(limit("wait", "poll_ms") / 1000)  # it holds the lock but has not written its state yet
        state = load(home)
    if state is not None:
        end(state.supervisor, signal.SIGTERM, limit("wait", "down_s"))
    end_orphans(home)
    return True
