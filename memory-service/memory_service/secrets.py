"""What of a text is a secret, and how is it masked?

Passwords, tokens and keys, by the patterns of config/secrets.toml.  For every feature that composes text from what it was
told.  It must not be applied to what a caller writes himself: that is stored as given.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from memory_service.errors import SetupRefused
from memory_service.settings import Section, read_section

MASK = "[masked]"


@dataclass(frozen=True, slots=True)
class Secrets:
    """`credentials` are masked everywhere, `of_runs` in what is kept of an agent's run."""

    argument_names: frozenset[str]
    credentials: tuple[re.Pattern[str], ...]
    of_runs: tuple[re.Pattern[str], ...]

    def masked(self, text: str) -> str:
        """The text without passwords, tokens, keys and card numbers."""
        return _masked(text, self.credentials)

    def masked_run(self, text: str) -> str:
        """The text of a run, also without addresses and long numbers."""
        return _masked(_masked(text, self.credentials), self.of_runs)

    def names_one(self, name: str) -> bool:
        """Is the value of this argument, or of the last part of this path, a secret?"""
        folded = name.rpartition(".")[2].casefold().replace("-", "_")
        return any(
            folded == secret or folded.endswith(f"_{secret}") or secret in folded.split("_")
            for secret in self.argument_names
        )


def _masked(text: str, patterns: Sequence[re.Pattern[str]]) -> str:
    for pattern in patterns:
        text = pattern.sub(_mask, text)
    return text


def _mask(found: re.Match[str]) -> str:
    """The match masked; of a pattern with a group only the group."""
    if not found.lastindex:
        return MASK
    start, end = (found.start(found.lastindex) - found.start(), found.end(found.lastindex) - found.start())
    return f"{found.group()[:start]}{MASK}{found.group()[end:]}"


class _File(Section):
    argument_names: frozenset[str]
    credentials: tuple[str, ...]
    of_runs: tuple[str, ...]


def load_secrets(path: Path) -> Secrets:
    """Read config/secrets.toml.  Raises SetupRefused naming the file and the entry that is wrong."""
    file = read_section(path, _File)
    return Secrets(
        file.argument_names, _compiled(path, "credentials", file.credentials), _compiled(path, "of_runs", file.of_runs)
    )


def _compiled(path: Path, entry: str, patterns: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    compiled = []
    for pattern in patterns:
        try:
            compiled.append(re.compile(pattern))
        except re.error as problem:
            raise SetupRefused(f"{path}: the entry {entry} has the bad pattern {pattern!r}: {problem}") from problem
    return tuple(compiled)
