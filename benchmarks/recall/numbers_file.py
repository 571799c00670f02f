"""How are weights written into config/memory.toml, so that its reasons stay where they are?

Only the digits of the named keys of one section change; every comment, blank and other number stays.  The result is parsed again
before it is written: what else would differ stops it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

DIGITS = 2  # more says more than was measured


def write(path: Path, section: str, numbers: Mapping[str, float]) -> None:
    """Raises ValueError, and writes nothing, when a key is not there or anything else would change."""
    path.write_text(changed(path.read_text(encoding="utf-8"), section, numbers), encoding="utf-8")


def changed(text: str, section: str, numbers: Mapping[str, float]) -> str:
    """The text of the file with these numbers.  Raises ValueError."""
    lines, inside, left = text.splitlines(keepends=True), False, dict(numbers)
    for position, line in enumerate(lines):
        if line.startswith("["):
            inside = line.split("#")[0].strip() == f"[{section}]"
        found = re.match(r"(\w+)(\s*=\s*)([-+\d._eE]+)(\s*)", line) if inside else None
        if found and found[1] in left:
            told = f"{left.pop(found[1]):.{DIGITS}f}".rstrip("0").rstrip(".")
            told = _number("0" if told == "-0" else told)
            lines[position] = found[1] + found[2] + told + _gap(found, told, line) + line[found.end() :]
    if left:
        raise ValueError(f"[{section}] has no {', '.join(left)}")
    made = "".join(lines)
    _check(text, made, section, numbers)
    return made


def _number(told: str) -> str:
    """Always a float: an integer would be another type."""
    return told if "." in told else f"{told}.0"


def _gap(found: re.Match[str], told: str, line: str) -> str:
    """Blanks up to the comment, so that comments stay below each other."""
    if not line[found.end() :].startswith("#"):
        return found[4]
    return " " * max(len(found[4]) + len(found[3]) - len(told), 1)


def _check(before: str, after: str, section: str, numbers: Mapping[str, float]) -> None:
    old, new = tomllib.loads(before), tomllib.loads(after)
    for name in numbers:
        old[section].pop(name)
        new[section].pop(name)
    if old != new:
        raise ValueError("more than the numbers would change")
