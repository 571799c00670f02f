"""What else than its own words and meaning speaks for a memory?  Pure.

In a conversation the answer often shares nothing with the question that is asked of it later ("Two years, with my sister."):
the turn before it does.  So a turn gains by what the turns beside it are worth, more when the one before asks something.  A
memory that only asks tells nothing; the more it states beside it, the less it loses.  What a user asks of an assistant tells
of the user, more than the assistant's long answers do, which mention everything, unless the query asks what the assistant
said ("what did you recommend?").  One whose speaker the query names, or that happened at the time that the query names,
tells more.

All in log-odds, added to those of fusion.py.  The weights are [signals] of config/memory.toml, learned by
benchmarks/recall/fit.py.  Who speaks is `speaker` and `role` of a memory's metadata; without them nothing is a turn.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from memory_service.domain import Key
from memory_service.recall.calibration import Reading
from memory_service.recall.fusion import Candidates
from memory_service.recall.time_expressions import TimeHint
from memory_service.scripts import Script
from memory_service.settings import Signals
from memory_service.stores.postgres.rank_facts import Beside, RankFacts, Utterance

ROLES = frozenset({"user", "assistant", "system", "tool", "human", "ai", "bot"})
ASSISTANTS = frozenset({"assistant", "ai", "bot", "model"})
WORD = re.compile(r"\w+")
SAY = "recommend|suggest|advise|say|tell|mention|propose|explain|give|show|describe|provide|write|answer"
SAID = (
    "recommended|suggested|advised|said|told|mentioned|proposed|explained|gave|showed|described|provided|wrote|answered"
)
SAYING = "advice|suggestions?|recommendations?|answers?|repl(?:y|ies)|explanations?|tips?"
# A request like "can you tell me", "你能告诉我" is none.
ASSISTANT_SAID = re.compile(
    rf"\b(?:did|had|have) you (?:\w+ )?(?:{SAY}|{SAID}|given|shown|written)\b|\byou (?:{SAID})\b|\byour (?:\w+ )?(?:{SAYING})\b"
    r"|[你您](?:之前|以前|上次|刚才|当时|曾)[^，。？！,.?!]{0,6}(?:建议|推荐|说|提|告诉|解释|回答|给)"
    r"|[你您](?:[给跟向对]我)?(?:建议|推荐|说|提到|告诉|解释|回答)[过了的]|[你您]的(?:建议|推荐|回答|解释|说法)"
)
CLAUSE_END = re.compile(r"[,;:.!?]+(?!\w)|[，；：、。！？…—–\n]+")  # 3.5, 12:30 or a host's name end nothing


@dataclass(frozen=True, slots=True)
class Asked:
    """What the query says beside its words: the words themselves, case-folded, the times that it speaks of, and whether it asks
    for what the assistant said."""

    text: str
    words: frozenset[str]
    times: Sequence[TimeHint]
    of_assistant: bool = False

    @classmethod
    def of(cls, query: str, times: Sequence[TimeHint]) -> "Asked":
        folded = query.casefold()
        return cls(folded, frozenset(WORD.findall(folded)), times, ASSISTANT_SAID.search(folded) is not None)

    def names(self, speaker: str) -> bool:
        """Whether it names this speaker, by any part of the name; a role is nobody's name."""
        parts = WORD.findall(speaker.casefold())
        if not parts or any(part in ROLES for part in parts):
            return False
        return any((part in self.words) if part.isascii() else (len(part) > 1 and part in self.text) for part in parts)


Links = Mapping[Key, tuple[Key | None, Key | None]]
"""The turn before and the one after each."""


def links_of(beside: Sequence[Beside]) -> dict[Key, tuple[Key | None, Key | None]]:
    """Also of turns that are known only from beside another: what comes before another is followed by it."""
    before: dict[Key, Key] = {}
    after: dict[Key, Key] = {}
    for one in beside:
        first, second = (one.turn, one.id) if one.follows else (one.id, one.turn)
        after[first], before[second] = second, first
    return {i: (before.get(i), after.get(i)) for i in before.keys() | after.keys()}


def with_signals(
    candidates: Candidates,
    facts: RankFacts,
    scripts: Mapping[Key, Script],
    links: Links,
    asked: Asked,
    reading: Reading,
    lowest: float | None,
    numbers: Signals,
) -> Candidates:
    """The candidates with what speaks for them beside themselves, and the turns that only turns beside them lead to.

    `scripts` are those of all `facts`; `lowest` is the cosine that a memory has at most which no lane found.  Without a vector
    lane, and so without log-odds, they stay as they are.
    """
    if candidates.log_odds is None:
        return candidates
    floors = {script: reading.rank_log_odds(script, lowest, 0.0) for script in set(scripts.values())}
    own = {i: odds for i, odds in zip(candidates.ids, candidates.log_odds.tolist(), strict=True) if i in facts}
    worth = {i: own[i] - floors[scripts[i]] for i in links if i in own}
    named = frozenset(who for who in set(facts.speakers) if who and asked.names(who))
    if asked.of_assistant:
        numbers = numbers.model_copy(update={"assistant": 0.0})
    told: dict[Key, dict[str, float]] = {}
    for i, asks, speaker, role in zip(facts.ids, facts.asks, facts.speakers, facts.roles, strict=True):
        if not (asks or speaker or role or asked.times or i in links):
            continue  # most memories: nothing is to be said of them
        signals = _signals(facts[i], facts, worth, links, asked.times, named, numbers)
        if signals and (i in own or "before" in signals or "after" in signals):
            told[i] = signals
    return _raised(candidates, told, {i: floors[scripts[i]] for i in told if i not in own}, reading)


def _signals(
    facts: Utterance,
    all_facts: Mapping[Key, Utterance],
    worth: Mapping[Key, float],
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
        signals["asks"] = numbers.asks * only_asks(facts.head, numbers.asks_told_bytes_max)
    if facts.speaker in named:
        signals["speaker"] = numbers.speaker
    if assistant:
        signals["assistant"] = numbers.assistant
    if times:
        signals["time"] = numbers.time * max(hint.closeness(facts.occurred_at) for hint in times)
    return {name: value for name, value in signals.items() if value}


def only_asks(head: str, told_bytes_max: int) -> float:
    """How little a text that asks near its end tells beside that, 0..1; `head` is its beginning.

    It tells everything but the clauses that end with a question mark ("I moved to Oslo, and you?"); where there is none, the mark
    is behind what is read, and its last words are taken to ask.  Who tells `told_bytes_max` loses nothing.  Bytes, since a
    Chinese character says about three letters.
    """
    told = begin = 0
    asks = False
    for end in CLAUSE_END.finditer(head):
        mark, behind = end[0], end.end()
        if "?" in mark or "？" in mark:
            asks = True
        else:
            told += _bytes(head[begin:behind])
            if told >= told_bytes_max:
                return 0.0
        begin = behind
    if asks:
        told += _bytes(head[begin:])
    return max(1.0 - told / told_bytes_max, 0.0)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _is_assistant(facts: Utterance) -> bool:
    return (facts.role or "").casefold() in ASSISTANTS


def _other_speaker(facts: Utterance, beside: Utterance | None) -> Utterance | None:
    """The turn beside, when somebody else says it: of one speaker's notes the one before says nothing about the next."""
    if beside is None:
        return None
    own, other = facts.speaker or facts.role, beside.speaker or beside.role
    return beside if own and other and own.casefold() != other.casefold() else None


def _raised(
    candidates: Candidates,
    signals: Mapping[Key, Mapping[str, float]],
    newcomers: Mapping[Key, float],
    reading: Reading,
) -> Candidates:
    """With their signals added, and the newcomers with their log-odds, who have signals all.

    What makes one a reminder only, its lanes of recent and important memories, still counts.
    """
    assert candidates.log_odds is not None
    if not signals:
        return candidates
    ids, none = [*candidates.ids, *newcomers], np.zeros(len(newcomers))
    before = np.concatenate([candidates.log_odds, list(newcomers.values())])
    gains = np.array([sum(signals[i].values()) if i in signals else 0.0 for i in ids])
    raised = np.array([i in signals for i in ids]) & np.isfinite(before)
    log_odds, listed = before + gains, np.concatenate([candidates.listed, none])
    relevance = np.where(
        raised, np.maximum(reading.spreads(log_odds), listed), np.concatenate([candidates.relevance, none])
    )
    return replace(
        candidates,
        ids=ids,
        relevance=relevance,
        calibrated=np.concatenate([candidates.calibrated, none]),
        listed=listed,
        log_odds=log_odds,
        signals={i: signals[i] for i, is_raised in zip(ids, raised.tolist(), strict=True) if is_raised},
    )
