"""How does a benchmark run a memory-service of its own?  As a process over stores that are up already."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import httpx

STOP_S = 60.0


@contextmanager
def service_process(environment: Mapping[str, str], url: str, ready_s: float) -> Iterator[None]:
    """Ready when it is entered, ended when it is left.  Exits when it is not ready at `url` within `ready_s` seconds."""
    service = subprocess.Popen([sys.executable, "-m", "memory_service", "serve"], env=dict(environment))
    try:
        _wait_ready(url, service, ready_s)
        yield
    finally:
        service.terminate()
        service.wait(timeout=STOP_S)


def _wait_ready(url: str, service: subprocess.Popen[bytes], ready_s: float) -> None:
    deadline = time.monotonic() + ready_s
    while time.monotonic() < deadline and service.poll() is None:
        try:
            if httpx.get(f"{url}/ready").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise SystemExit(f"memory-service at {url} did not become ready within {ready_s:g} s")
