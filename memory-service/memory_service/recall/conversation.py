"""What else than its own words and meaning speaks for a memory?  Pure.

In a conversation the answer often shares nothing with the question that is asked of it later ("Two years, with my sister."):
the turn before it does.  So a turn gains by what the turns beside it are worth, more when the one before asks something.  A
memory that itself asks tells less than one that answers; but what a user asks of an assistant tells of the user, more than
the assistant's long answers do, which mention everything.  One whose speaker the query names, or that happened at the time
that the query names, tells more.

All in log-odds, added to those of fusion.py.  The weights are [signals] of config/memory.toml, learned by
benchmarks/recall/fit.py.  Who speaks is `speaker` and `role` of a memory's metadata; without them nothing is a turn.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from memory_service.recall.calibration import Reading
from memory_service.recall.fusion import Candidate
from memory_service.recall.time_expressions import TimeHint
from memory_service.scripts import Script
from memory_service.settings import Signals
from memory_service.stores.postgres.memories import Beside, RankFacts

ROLES = frozenset({"user", "assistant", "system", "tool", "human", "ai", "bot"})
ASSISTANTS = frozenset({"assistant", "ai", "bot", "model"})
WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Asked:
    """What the query says beside its words: the words themselves, case-folded, and the times that it speaks of."""

    text: str
    words: frozenset[str]
    times: Sequence[TimeHint]

    @classmethod
    def of(cls, query: str, times: Sequence[TimeHint]) -> "Asked":
        folded = query.casefold()
        return cls(folded, frozenset(WORD.findall(folded)), times)

    def names(self, speaker: str) -> bool:
        """Whether it names this speaker, by any part of the name; a role is nobody's name."""
        parts = WORD.findall(speaker.casefold())
        if not parts or any(part in ROLES for part in parts):
            return False
        return any((part in self.words) if part.isascii() else (len(part) > 1 and part in self.text) for part in parts)


Links = Mapping[UUID, tuple[UUID | None, UUID | None]]
"""The turn before and the one after each."""


def links_of(beside: Sequence[Beside]) -> dict[UUID, tuple[UUID | None, UUID | None]]:
    """Also of turns that are known only from beside another: what comes before another is followed by it."""
    before: dict[UUID, UUID] = {}
    after: dict[UUID, UUID] = {}
    for one in beside:
        first, second = (one.turn, one.facts.id) if one.follows else (one.facts.id, one.turn)
        after[first], before[second] = second, first
    return {i: (before.get(i), after.get(i)) for i in before.keys() | after.keys()}


def with_signals(
    candidates: Sequence[Candidate],
    facts: Mapping[UUID, RankFacts],
    scripts: Mapping[UUID, Script],
    links: Links,
    asked: Asked,
    reading: Reading,
    lowest: float | None,
    numbers: Signals,
) -> list[Candidate]:
    """The candidates with what speaks for them beside themselves, and the turns that only turns beside them lead to.

    `scripts` are those of all `facts`; `lowest` is the cosine that a memory has at most which no lane found.  Candidates
    without log-odds, because no vector lane answered, stay as they are.
    """
    floors = {script: reading.rank_log_odds(script, lowest, 0.0) for script in set(scripts.values())}
    worth = {c.id: c.log_odds - floors[scripts[c.id]] for c in candidates if c.id in facts and c.log_odds is not None}
    told = []
    for one in candidates:
        if one.id in worth and one.log_odds is not None:
            signals = _signals(facts[one.id], facts, worth, links, asked, numbers)
            told.append(_raised(one, one.log_odds, signals, reading))
        else:
            told.append(one)
    for memory_id in facts.keys() - {c.id for c in candidates}:
        signals = _signals(facts[memory_id], facts, worth, links, asked, numbers)
        if signals.get("before") or signals.get("after"):
            floor = floors[scripts[memory_id]]
            told.append(_raised(Candidate(memory_id, {}, 0.0, 0.0, floor), floor, signals, reading))
    return told


def _signals(
    facts: RankFacts,
    all_facts: Mapping[UUID, RankFacts],
    worth: Mapping[UUID, float],
    links: Links,
    asked: Asked,
    numbers: Signals,
) -> dict[str, float]:
    """Log-odds by name; those that say nothing are left out."""
    before, after = (_other_speaker(facts, all_facts.get(i)) if i else None for i in links.get(facts.id, (None, None)))
    assistant = _is_assistant(facts)
    answers = before is not None and before.asks and not assistant
    asks = facts.asks and not assistant and not (after is not None and _is_assistant(after))
    signals = {
        "before": _worth(before, worth) * (numbers.answered if answers else numbers.before),
        "after": _worth(after, worth) * numbers.after,
        "asks": numbers.asks if asks else 0.0,
        "speaker": numbers.speaker if facts.speaker and asked.names(facts.speaker) else 0.0,
        "assistant": numbers.assistant if assistant else 0.0,
        "time": numbers.time * max((hint.closeness(facts.occurred_at) for hint in asked.times), default=0.0),
    }
    return {name: value for name, value in signals.items() if value}


def _is_assistant(facts: RankFacts) -> bool:
    return (facts.role or "").casefold() in ASSISTANTS


def _worth(beside: RankFacts | None, worth: Mapping[UUID, float]) -> float:
    return max(worth.get(beside.id, 0.0), 0.0) if beside else 0.0


def _other_speaker(facts: RankFacts, beside: RankFacts | None) -> RankFacts | None:
    """The turn beside, when somebody else says it: of one speaker's notes the one before says nothing about the next."""
    if beside is None:
        return None
    own, other = facts.speaker or facts.role, beside.speaker or beside.role
    return beside if own and other and own.casefold() != other.casefold() else None


def _raised(one: Candidate, log_odds: float, signals: Mapping[str, float], reading: Reading) -> Candidate:
    """The same with its signals.  What makes it a reminder only, its lanes of recent and important memories, still counts."""
    if not signals or math.isinf(log_odds):
        return one
    total = log_odds + sum(signals.values())
    return replace(one, relevance=max(reading.spread(total), one.listed), log_odds=total, signals=signals)
