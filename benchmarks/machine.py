"""On what was it measured?  Facts of the machine that go with every figure."""

import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def machine() -> dict[str, Any]:
    """`memory_mib` and `processor` are 0 and empty where /proc does not tell them; `load` is of the last 1, 5 and 15 minutes."""
    model = next((line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if "model name" in line), "")
    memory = next((int(line.split()[1]) // 1024 for line in _lines("/proc/meminfo") if "MemTotal" in line), 0)
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "processor": model,
        "memory_mib": memory,
        "load": [round(load, 1) for load in os.getloadavg()],
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
