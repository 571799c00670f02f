"""What of a run stands in docs/BENCHMARKS.md?  The table and one line about the machine, between two marks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.speed import bars

DOCS = Path(__file__).parents[2] / "docs" / "BENCHMARKS.md"
QUIET_LOAD_MAX = 1.0
BUSY = " The machine was busy with other work, which hits a stack of six processes harder than one: no verdict."
BEGIN, END = "<!-- speed: written by make bench -->", "<!-- speed: end -->"


def lines(told: dict[str, Any]) -> list[str]:
    """The section for a run as speed.json has it."""
    machine, versions, (small, large) = told["machine"], told["versions"], told["memories"]
    before, after = machine["load"][0], machine["load_after"][0]
    return [
        *bars.table(told["bars"]),
        "",
        f"{told['rounds']} rounds, {small:,} and {large:,} memories, mem0ai {versions['mem0ai']}, torch {versions['torch']};",
        f"{machine['processors']} processors ({machine['processor']}), Python {machine['python']}, {told['took_s']} s,",
        f"load {before} before and {after} after ({machine['at'][:10]}).{BUSY if before > QUIET_LOAD_MAX else ''}",
    ]


def renew(told: dict[str, Any]) -> None:
    """Put the section of this run in the place of the last one's."""
    text = DOCS.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    DOCS.write_text("\n".join([head + BEGIN, *lines(told), END]) + tail, encoding="utf-8")
