"""How do the end-to-end tests run the product? By its own command, on free ports, in a folder of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

UP_S, DOWN_S = 240, 60


@dataclass(frozen=True)
class Stack:
    """A running stack, as `hindsight up` made it."""

    home: Path
    environment: dict[str, str]
    service: str
    gateway: str

    def hindsight(self, *arguments: str, timeout_s: float = DOWN_S) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "memory_service", *arguments]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )


def free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


@contextmanager
def running_stack(home: Path) -> Iterator[Stack]:
    service_port, gateway_port = free_ports(2)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HINDSIGHT_")}
    # The deterministic embedder: the bundled one has tests of its own and takes a download.
    environment = {**kept, "HINDSIGHT_HOME": str(home), "HINDSIGHT_EMBEDDING_PROVIDER": "hash"}
    made = Stack(home, environment, f"http://127.0.0.1:{service_port}", f"http://127.0.0.1:{gateway_port}/mcp")
    started = made.hindsight(
        "up", "--detach", "--port", str(service_port), "--gateway-port", str(gateway_port), timeout_s=UP_S
    )
    try:
        assert started.returncode == 0, started.stdout + started.stderr
        assert "curl" in started.stdout
        yield made
    finally:
        made.hindsight("down")
