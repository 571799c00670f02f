"""How do processes that are killed get short leases? By a config folder of their own, the shipped one with some numbers changed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from memory_service.settings import Settings

# What a dead process held is free after seconds; a live one renews or re-checks its leases, so short ones change nothing else.
SHORT_LEASES: Mapping[str, float] = {"idempotency_lease_s": 2.0, "lease_s": 4.0}


def quick_config(folder: Path, numbers: Mapping[str, float] = SHORT_LEASES) -> str:
    """A new config folder for HINDSIGHT_CONFIG_DIR; each name stands in exactly one line of the shipped memory.toml."""
    shutil.copytree(Settings().config_folder, folder)
    text = (folder / "memory.toml").read_text(encoding="utf-8")
    for name, value in numbers.items():
        text, count = re.subn(rf"(?m)^{name} = \S+", f"{name} = {value}", text)
        assert count == 1, name
    (folder / "memory.toml").write_text(text, encoding="utf-8")
    return str(folder)
