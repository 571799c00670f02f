"""What else than its own words and meaning speaks for a memory?  Pure.

In a conversation the answer often shares nothing with the question that is asked of it later ("Two years, with my sister."):
the turn before it does.  So a turn gains by what the turns beside it are worth, more when the one before asks something.  A
memory that only asks tells nothing; one that also states something, or asks at length, loses less.  What a user asks of an
assistant tells of the user, more than the assistant's long answers do, which mention everything.  One whose speaker the query
names, or that happened at the time that the query names, tells more.

All in log-odds, added to those of fusion.py.  The weights are [signals] of config/memory.toml, learned by
benchmarks/recall/fit.py.  Who speaks is `speaker` and `role` of a memory's metadata; without them nothing is a turn.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
SENTENCE_END = re.compile(r"[.!?]+(?!\w)|[。！？…]+")  # a stop inside 3.5 or a host's name ends nothing


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
    named = frozenset(who for who in {one.speaker for one in facts.values()} if who and asked.names(who))
    told = []
    for one in candidates:
        if one.id in worth and one.log_odds is not None:
            signals = _signals(facts[one.id], facts, worth, links, asked.times, named, numbers)
            told.append(_raised(one, one.log_odds, signals, reading))
        else:
            told.append(one)
    for memory_id in facts.keys() - {c.id for c in candidates}:
        signals = _signals(facts[memory_id], facts, worth, links, asked.times, named, numbers)
        if "before" in signals or "after" in signals:
            floor = floors[scripts[memory_id]]
            told.append(_raised(Candidate(memory_id, {}, 0.0, 0.0, floor), floor, signals, reading))
    return told


def _signals(
    facts: RankFacts,
    all_facts: Mapping[UUID, RankFacts],
    worth: Mapping[UUID, float],
    links: Links,
    times: Sequence[TimeHint],
    named: frozenset[str],
    numbers: Signals,
) -> dict[str, float]:
    """Log-odds by name; those that say nothing are left out.  `named`: the speakers that the query names."""
    first, second = links.get(facts.id, (None, None))
    before = _other_speaker(facts, all_facts.get(first)) if first else None
    after = _other_speaker(facts, all_facts.get(second)) if second else None
    assistant, signals = _is_assistant(facts), dict[str, float]()
    if before is not None and (gain := worth.get(before.id, 0.0)) > 0:
        signals["before"] = gain * (numbers.answered if before.asks and not assistant else numbers.before)
    if after is not None and (gain := worth.get(after.id, 0.0)) > 0:
        signals["after"] = gain * numbers.after
    if facts.asks and not assistant and not (after is not None and _is_assistant(after)):
        signals["asks"] = numbers.asks * asking_share(facts.head, numbers.asks_bytes_max)
    if facts.speaker in named:
        signals["speaker"] = numbers.speaker
    if assistant:
        signals["assistant"] = numbers.assistant
    if times:
        signals["time"] = numbers.time * max(hint.closeness(facts.occurred_at) for hint in times)
    return {name: value for name, value in signals.items() if value}


def asking_share(head: str, bytes_max: int) -> float:
    """How little a text tells that asks near its end, 0..1; `head` is its beginning.

    The share of its sentences that ask (where none of the beginning does, one after it), times what it is shorter than
    `bytes_max`: who asks at length says what they are doing.  Bytes, since a Chinese character says about three letters.
    """
    room = 1.0 - len(head.encode("utf-8", "replace")) / bytes_max
    if room <= 0:
        return 0.0
    ends = SENTENCE_END.findall(head)
    asking = sum("?" in end or "？" in end for end in ends)
    unended = not asking or WORD.search(SENTENCE_END.split(head)[-1]) is not None
    return room * max(asking, 1) / (len(ends) + unended)


def _is_assistant(facts: RankFacts) -> bool:
    return (facts.role or "").casefold() in ASSISTANTS


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
    relevance = max(reading.spread(total), one.listed)
    return Candidate(one.id, one.lanes, relevance, one.calibrated, total, signals)
