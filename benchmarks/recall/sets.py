"""Which sets are there, and how is one read?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.recall.assistants import beam, memdaily
from benchmarks.recall.cases import BadSet, Case, own
from benchmarks.recall.dialogues import locomo, realtalk


@dataclass(frozen=True, slots=True)
class Chosen:
    """A set and how it is to be read.  `limit`: at most so many users, 0 is all."""

    name: str
    data: Path
    noise: int = 0
    roles: str = "all"
    limit: int = 0
    label: str = ""

    @property
    def called(self) -> str:
        """What tables call it."""
        told = [self.label or self.name]
        told += [f"+ {self.noise} noise lines"] if self.noise else []
        told += [f"({self.roles} only)"] if self.roles != "all" else []
        return " ".join(told)


SETS: dict[str, Callable[[Chosen], list[Case]]] = {
    "locomo": lambda chosen: locomo(chosen.data),
    "realtalk": lambda chosen: realtalk(chosen.data),
    "memdaily": lambda chosen: memdaily(chosen.data, chosen.noise),
    "beam": lambda chosen: beam(chosen.data, chosen.roles),
    "own": lambda chosen: own(chosen.data),
}


def cases_of(chosen: Chosen) -> list[Case]:
    """Users with at least one question that can be scored.  Raises BadSet."""
    if chosen.noise and chosen.name != "memdaily":
        raise BadSet("only memdaily comes with noise")
    if chosen.roles != "all" and chosen.name != "beam":
        raise BadSet("only beam has messages of an assistant to leave out")
    try:
        cases = SETS[chosen.name](chosen)
    except (KeyError, TypeError, ValueError) as problem:
        raise BadSet(f"{chosen.data} is not {chosen.name}: {problem!r}") from None
    cases = [case for case in cases if case.questions][: chosen.limit or None]
    if not cases:
        raise BadSet(f"{chosen.data} has no question with evidence")
    return cases


def parsed(text: str) -> Chosen:
    """NAME=PATH[,noise=N][,roles=user][,limit=N][,label=TEXT].  Raises BadSet."""
    name, _, rest = text.partition("=")
    path, *options = rest.split(",")
    if name not in SETS or not path:
        raise BadSet(f"{text}: NAME=PATH with a name of {', '.join(SETS)}")
    told = dict(option.partition("=")[::2] for option in options)
    unknown = told.keys() - {"noise", "roles", "limit", "label"}
    if unknown:
        raise BadSet(f"{text}: unknown {sorted(unknown)}")
    try:
        noise, limit = int(told.get("noise", 0)), int(told.get("limit", 0))
    except ValueError as problem:
        raise BadSet(f"{text}: {problem}") from None
    return Chosen(name, Path(path), noise, told.get("roles", "all"), limit, told.get("label", ""))
