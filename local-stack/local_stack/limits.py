"""How long does the stack wait, and how much does it take? Reads `limits.toml`; decides nothing itself."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources


@cache
def _document() -> dict[str, dict[str, float]]:
    return tomllib.loads(resources.files("local_stack").joinpath("limits.toml").read_text("utf-8"))


def limit(section: str, name: str) -> float:
    """One number of `limits.toml`; a name that is not there is a programming error (KeyError)."""
    return _document()[section][name]
