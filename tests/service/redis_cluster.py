"""A Redis Cluster of three real nodes for tests.  Each owns a third of the slots, so keys of one script that belong to different
slots are refused (CROSSSLOT), and a client that does not follow MOVED finds two thirds of nothing."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from local_stack.redis import program

SLOTS = 16_384
READY_S = 20.0


@contextmanager
def running_cluster(folder: Path, nodes: int = 3) -> Iterator[str]:
    """The address of the first node, as HINDSIGHT_REDIS_URL takes it."""
    ports = [_free_port() for _ in range(nodes)]
    started = []
    for port in ports:
        home = folder / str(port)
        home.mkdir(parents=True)
        options = (
            "--bind",
            "127.0.0.1",
            "--port",
            str(port),
            "--dir",
            str(home),
            "--save",
            "",
            "--cluster-enabled",
            "yes",
        )
        log = (home / "log").open("wb")
        started.append(subprocess.Popen([program(), *options], stdout=log, stderr=log))
    clients = [redis.Redis(port=port) for port in ports]
    try:
        _join(clients, ports)
        yield f"redis+cluster://127.0.0.1:{ports[0]}/0"
    finally:
        for client in clients:
            client.close()
        for process in started:
            process.terminate()
        for process in started:
            process.wait(10)


def _join(clients: list[redis.Redis], ports: list[int]) -> None:
    for client in clients:
        _until(client.ping)
    step = -(-SLOTS // len(clients))
    for at, client in enumerate(clients):
        last = min(SLOTS, (at + 1) * step) - 1
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", str(at * step), str(last))
        client.execute_command("CLUSTER", "MEET", "127.0.0.1", str(ports[0]))
    for client in clients:
        _until(lambda client=client: _complete(client, len(clients)))  # type: ignore[misc]


def _complete(client: redis.Redis, nodes: int) -> bool:
    """This node knows all of them, and that all slots are served."""
    said = client.execute_command("CLUSTER", "INFO")
    text = said.decode() if isinstance(said, bytes) else str(said)
    return ("cluster_state:ok" in text or "'cluster_state': 'ok'" in text) and (
        f"cluster_known_nodes:{nodes}" in text or f"'cluster_known_nodes': '{nodes}'" in text
    )


def _until(ready: object) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        try:
            if ready():  # type: ignore[operator]
                return
        except redis.RedisError:
            pass
        time.sleep(0.05)
    raise AssertionError("the cluster did not become ready")


def _free_port() -> int:
    """Its bus listens 10,000 above."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port < 50_000:
            return port
