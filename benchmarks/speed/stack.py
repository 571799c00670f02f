"""How does a benchmark get a whole Hindsight of its own?  `hindsight up` with a home, ports and a model of its own, and `down` again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.speed.rest import Failed, Line
from local_stack import ports

HINDSIGHT = Path(sys.executable).with_name("hindsight")
PARTS = ("service", "gateway")


class Stack:
    """One home.  `start` and `stop` any number of times."""

    def __init__(self, home: Path, model: str | None) -> None:
        """`model`: the folder of a BERT model; None is the bundled one."""
        self.home = home
        self.port = ports.choose(None)
        self.gateway_port = ports.choose(None, frozenset({self.port}))
        chosen = {"HINDSIGHT_EMBEDDING_PROVIDER": "onnx", "HINDSIGHT_EMBEDDING_MODEL": model} if model else {}
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HINDSIGHT_")}
        model_dir = os.environ.get("HINDSIGHT_MODEL_DIR")
        self._environment = {**kept, **chosen, "OMP_NUM_THREADS": "1", "HINDSIGHT_LOG_LEVEL": "INFO"}
        if model_dir:
            self._environment["HINDSIGHT_MODEL_DIR"] = model_dir

    def start(self) -> None:
        """Returns when the service and the gateway are ready.  Raises RuntimeError with what was printed."""
        options = ["--home", str(self.home), "--port", str(self.port), "--gateway-port", str(self.gateway_port)]
        self._run("up", "--detach", *options)

    def stop(self) -> None:
        self._run("down", "--home", str(self.home))

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            [str(HINDSIGHT), *command], env=self._environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"hindsight {command[0]} failed:\n{done.stdout}{done.stderr}")

    def line(self) -> Line:
        """A new connection to the service."""
        return Line(self.port)

    def pids(self) -> Mapping[str, int]:
        """Process ids by name: supervisor, postgres, redis, qdrant, service, gateway."""
        state = json.loads((self.home / "run" / "stack.json").read_text())
        members = {name: int(member["pid"]) for name, member in state["members"].items()}
        return {"supervisor": int(state["supervisor"]["pid"]), **members}

    def redis_url(self) -> str:
        lines = (self.home / "stack.env").read_text().splitlines()
        return next(line.partition("=")[2] for line in lines if line.startswith("HINDSIGHT_REDIS_URL="))

    def first_answer(self, user: str, query: str) -> float:
        """Seconds from the command to the first answered search."""
        begun = time.perf_counter()
        options = ["--home", str(self.home), "--port", str(self.port), "--gateway-port", str(self.gateway_port)]
        printed = self.home / "up.log"
        with printed.open("wb") as file:
            command = [str(HINDSIGHT), "up", "--detach", *options]
            starting = subprocess.Popen(command, env=self._environment, stdout=file, stderr=subprocess.STDOUT)
        took = None
        while took is None:
            if starting.poll() not in (None, 0):
                raise RuntimeError(f"hindsight up failed:\n{printed.read_text(errors='replace')}")
            try:
                found = self.line().ask("POST", "/v1/memories/search", {"user_id": user, "query": query})
            except (OSError, Failed):
                time.sleep(0.01)
                continue
            took = time.perf_counter() - begun
            if found["degraded"] or not found["results"]:
                raise RuntimeError(f"the first search found nothing or was degraded: {found['degraded']}")
        starting.wait()
        return took


def rss_kib(pid: int) -> int:
    """Resident memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
