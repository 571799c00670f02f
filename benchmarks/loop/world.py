"""What happens when a tool is called?  One simulated world per task: files, services and tables with the traps that real ones have.

Deterministic: the clock only moves by calls and waits, contents are made from names.  It must not know the agent, the tasks
or the memory: a tool answers a text or raises ToolFailed, whoever calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

CALL_S = 1.0  # simulated duration of a call


class ToolFailed(Exception):
    """A tool's error; its text is all that an agent sees."""


@dataclass(frozen=True, slots=True)
class Call:
    tool: str
    arguments: Mapping[str, Any]


@dataclass(slots=True)
class World:
    """`marks` holds what earlier calls left behind (checked-out workbooks, sessions, refreshed views), `times` when limited
    services were called."""

    tools: Mapping[str, Callable[..., str]]
    now_s: float = 0.0
    marks: set[tuple[str, str]] = field(default_factory=set)
    times: dict[str, list[float]] = field(default_factory=dict)

    def call(self, call: Call) -> str:
        """The tool's answer.  Raises ToolFailed."""
        self.now_s += CALL_S
        tool = self.tools.get(call.tool)
        if tool is None:
            raise ToolFailed(f"no tool named {call.tool}")
        return tool(self, call.arguments)

    def limited(self, service: str, calls: int, window_s: float) -> float:
        """Counts a call of a rate-limited service; seconds until it may come again, 0 when it may now."""
        recent = [at for at in self.times.get(service, []) if at > self.now_s - window_s]
        self.times[service] = recent
        if len(recent) >= calls:
            return recent[-calls] + window_s - self.now_s
        recent.append(self.now_s)
        return 0.0


def take(arguments: Mapping[str, Any], required: tuple[str, ...], optional: tuple[str, ...] = ()) -> list[Any]:
    """The values in order, None for an optional one that is missing.  Raises ToolFailed for missing and unknown names."""
    missing = [name for name in required if name not in arguments]
    if missing:
        raise ToolFailed(f"422 Unprocessable Entity: {missing[0]} is required")
    unknown = [name for name in arguments if name not in (*required, *optional)]
    if unknown:
        raise ToolFailed(f"400 Bad Request: unknown parameter {unknown[0]}")
    return [arguments.get(name) for name in (*required, *optional)]
