"""What does a person see while the stack starts and runs? Prints; decides nothing.

Rich colours on a terminal; plain whole lines anywhere else, so that a log or a pipe gets no codes and no wrapping.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_REQUEST_KEYS = frozenset({"route", "path", "request_id"})


class Screen:
    """Where the launcher reports."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or _terminal()

    def _print(self, text: str, style: str | None = None) -> None:
        if self._console is None:
            print(text, flush=True)
        else:
            self._console.print(text, style=style, markup=False, emoji=False, highlight=False, soft_wrap=True)

    def step(self, text: str) -> None:
        """Something begins."""
        self._print(f"… {text}", "dim")

    def done(self, text: str) -> None:
        """Something is up."""
        self._print(f"✓ {text}", "green")

    def say(self, text: str) -> None:
        self._print(text)

    def error(self, text: str) -> None:
        self._print(text, "bold red")

    def relay(self, name: str, line: str) -> None:
        """One line of a child's log, when it tells a person something."""
        told = worth_showing(line)
        if told:
            self._print(f"  {name} │ {told}", "dim")

    def facts(self, rows: Sequence[tuple[str, str]]) -> None:
        """Names and values, one a line."""
        width = max(len(name) for name, _ in rows)
        for name, value in rows:
            self._print(f"  {name:<{width}}  {value}")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        if self._console is None or not self._console.is_terminal:
            widths = [max(len(row[place]) for row in [columns, *rows]) for place in range(len(columns))]
            for row in [columns, *rows]:
                self._print("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
            return
        from rich.table import Table

        table = Table(*columns, box=None)
        for row in rows:
            table.add_row(*row)
        self._console.print(table)


def _terminal() -> Console | None:
    """None where nobody sees colours; importing rich would take a background start a twentieth of a second."""
    if not sys.stdout.isatty():
        return None
    from rich.console import Console

    return Console()


def worth_showing(line: str) -> str:
    """The readable part of a log line: a JSON line's message unless it logs a request, any other line as it is."""
    text = line.strip()
    if not text.startswith("{"):
        return text
    try:
        found = json.loads(text)
    except ValueError:
        return text
    if not isinstance(found, dict) or _REQUEST_KEYS & set(found):
        return ""
    return str(next((found[key] for key in ("message", "event", "msg") if found.get(key)), ""))


class Follower:
    """The lines that a log gets from now on (or from `position`). Survives a rotation by starting over."""

    def __init__(self, path: Path, position: int = 0) -> None:
        self._path = path
        self._position = position
        self._rest = b""

    def lines(self) -> list[str]:
        """The whole lines written since the last call."""
        try:
            with self._path.open("rb") as file:
                if file.seek(0, 2) < self._position:
                    self._position, self._rest = 0, b""
                file.seek(self._position)
                fresh = file.read()
        except OSError:
            return []
        self._position += len(fresh)
        *whole, self._rest = (self._rest + fresh).split(b"\n")
        return [line.decode("utf-8", "replace") for line in whole]


def curl(url: str, body: Mapping[str, object], authorised: bool) -> str:
    """A command line to paste. The key is named, not shown."""
    key = ' -H "Authorization: Bearer $HINDSIGHT_API_KEY"' if authorised else ""
    return f"curl -s {url}{key} -H 'Content-Type: application/json' -d '{json.dumps(body)}'"
