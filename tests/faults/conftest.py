"""Real stores and real service processes that can be killed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

# pytest imports test files by path here (importmode=importlib), so their neighbours have to be made findable.
sys.path.insert(0, str(Path(__file__).parent))

from quick_config import quick_config

from local_stack.home import open_home
from local_stack.stores import Stores, start_stores
from memory_service.migrating import migrate
from memory_service.settings import Settings

HERE = Path(__file__).parent
START_S, STOP_S = 60.0, 30.0


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    started = start_stores(open_home(tmp_path_factory.mktemp("faults")))
    try:
        migrate(Settings(database_url=started.urls.database_url), say=lambda _line: None)
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="session")
def config(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The shipped numbers, except that the leases of a dead process run out soon."""
    return quick_config(tmp_path_factory.mktemp("faults-config") / "config")


@dataclass
class Service:
    """One memory-service process."""

    process: subprocess.Popen[bytes]
    client: httpx.AsyncClient

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(STOP_S)

    async def gone(self) -> int:
        """Wait until it is dead; its exit status."""
        return await asyncio.to_thread(self.process.wait, STOP_S)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def serve(stores: Stores, config: str, tmp_path: Path) -> Any:
    """`async with serve() as service` runs one process; `serve(die=(place, moment, number))` one that kills itself."""

    @asynccontextmanager
    async def running(die: tuple[str, str, int] | None = None, **environment: str) -> AsyncIterator[Service]:
        port = free_port()
        env = {
            **os.environ,
            **stores.urls.environment(),
            "HINDSIGHT_PORT": str(port),
            "HINDSIGHT_EMBEDDING_PROVIDER": "hash",
            "HINDSIGHT_CONFIG_DIR": config,
            **environment,
        }
        command = [sys.executable, "-m", "memory_service", "serve"]
        if die is not None:
            command = [sys.executable, str(HERE / "serve_and_die.py"), die[0], die[1], str(die[2])]
        with (tmp_path / f"serve-{port}.log").open("wb") as log:
            process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False) as client:
            try:
                await ready(client, process, tmp_path / f"serve-{port}.log")
                yield Service(process, client)
            finally:
                if process.poll() is None:
                    process.terminate()
                    await asyncio.to_thread(process.wait, STOP_S)

    return running


async def ready(client: httpx.AsyncClient, process: subprocess.Popen[bytes], log: Path) -> None:
    async with asyncio.timeout(START_S):
        while True:
            assert process.poll() is None, f"the service ended while starting:\n{log.read_text()[-2000:]}"
            try:
                if (await client.get("/health")).status_code == 200:
                    return
            except httpx.TransportError:
                await asyncio.sleep(0.05)
