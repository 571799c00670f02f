"""What does a labelled set say: who said what when, and which turns answer which question?

One `Case` is one user.  Sets of one's own are JSON lines, a user a line:

    {"user": "ana", "turns": [{"ref": "1", "content": "…", "occurred_at": "2026-03-01T09:00:00Z", "session_id": "monday",
                               "metadata": {"speaker": "Ana", "role": "user"}}],
     "questions": [{"query": "…", "category": "dates", "evidence": ["1"]}]}

`session_id`, `metadata` and `category` may be left out; a time without an offset is UTC.  Must not talk to a service.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

CONTENT_CHARS_MAX = 60_000  # below the contract's 256 KiB of UTF-8; one reply in BEAM runs away to 348,853 characters
USER, ASSISTANT = "user", "assistant"


class BadSet(Exception):
    """The files are not what this set looks like; the text says which and why."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One thing that was said.  `metadata` goes into the memory as it is; `speaker` and `role` in it mean something."""

    ref: str
    content: str
    occurred_at: datetime
    session_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def role(self) -> str:
        return str(self.metadata.get("role", ""))


@dataclass(frozen=True, slots=True)
class Question:
    """`evidence`: refs of the turns that answer it; never empty."""

    query: str
    category: str
    evidence: frozenset[str]


@dataclass(slots=True)
class Case:
    """One user: the turns in the order of time, and what is asked about them.  `unscored` questions had no evidence there."""

    user: str
    turns: list[Turn] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    unscored: int = 0

    def say(self, ref: str, content: str, at: datetime, session: str, speaker: str, role: str) -> None:
        """A turn of a public set.  Blank ones (photos without a caption) were said with nothing to find, and are left out."""
        if content.strip():
            said = {"speaker": speaker, "role": role}
            self.turns.append(Turn(ref, content[:CONTENT_CHARS_MAX], at, session, said))

    def ask(self, query: str, category: str, evidence: Iterable[str]) -> None:
        """A question, as far as its evidence was said; without any it can't be scored."""
        found = frozenset(evidence) & {turn.ref for turn in self.turns}
        if found:
            self.questions.append(Question(query, category, found))
        else:
            self.unscored += 1

    def before(self) -> dict[str, Turn]:
        """By ref the turn before it in its session."""
        last: dict[str | None, Turn] = {}
        found = {}
        for turn in self.turns:
            if turn.session_id is not None and turn.session_id in last:
                found[turn.ref] = last[turn.session_id]
            last[turn.session_id] = turn
        return found


def read_text(path: Path) -> str:
    """A file, also a gzipped one.  Raises BadSet."""
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise BadSet(f"{path}: {problem}") from None


def read_json(path: Path) -> Any:
    """Raises BadSet."""
    try:
        return json.loads(read_text(path))
    except json.JSONDecodeError as problem:
        raise BadSet(f"{path}: {problem}") from None


def files(data: Path, pattern: str) -> list[Path]:
    """`data` itself, or what matches below it, in the order of the numbers in the names.  Raises BadSet when there is nothing."""
    if data.is_file():
        return [data]
    found = sorted(data.glob(pattern), key=lambda p: ([int(n) for n in re.findall(r"\d+", p.name)], p.name))
    if not found:
        raise BadSet(f"no {pattern} in {data}")
    return found


def own(data: Path) -> list[Case]:
    """A set in the form above.  Raises BadSet naming the line."""
    cases = []
    for path in files(data, "*.jsonl*"):
        for number, line in enumerate(read_text(path).splitlines(), 1):
            if line.strip():
                try:
                    cases.append(_own_case(json.loads(line)))
                except (KeyError, TypeError, ValueError, AttributeError) as problem:
                    raise BadSet(f"{path}:{number}: {problem!r}") from None
    return cases


def _own_case(told: Mapping[str, Any]) -> Case:
    case = Case(told["user"])
    for turn in told["turns"]:
        at = datetime.fromisoformat(turn["occurred_at"])
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        metadata = turn.get("metadata", {})
        case.turns.append(Turn(turn["ref"], turn["content"], at, turn.get("session_id"), metadata))
    case.turns.sort(key=lambda turn: turn.occurred_at)
    refs = {turn.ref for turn in case.turns}
    if len(refs) < len(case.turns):
        raise ValueError("a ref is there twice")
    for question in told["questions"]:
        unknown = set(question["evidence"]) - refs
        if unknown:
            raise ValueError(f"evidence that nobody said: {sorted(unknown)}")
        case.ask(question["query"], question.get("category", ""), question["evidence"])
    return case
