"""The shipped rules and the labelled data, read once."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from memory_service.write.contrasts import Contrasts, load_contrasts
from memory_service.write.rules import SummaryRules, load_summary_rules

CONFIG = Path(__file__).parents[3] / "config"


@cache
def shipped_rules() -> SummaryRules:
    return load_summary_rules(CONFIG / "summarise.toml")


@cache
def shipped_contrasts() -> Contrasts:
    return load_contrasts(CONFIG / "contrasts.toml")


def labelled(name: str) -> list[dict[str, Any]]:
    lines = (Path(__file__).parent / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]
