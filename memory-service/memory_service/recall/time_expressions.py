"""Which time does a query speak of?  Pure; English, Chinese and figures, also mixed.

Runs the rules of time_figures.py, time_english.py and time_chinese.py over the beginning of a query and has time_joining.py
decide which of the expressions count and belong together.  It does not decide how much a time counts in ranking, and never
leaves out a memory: a query may speak of a time that is in a memory's text ("whose birthday is in May?").  Times of day are
not read: the store knows UTC, not where the user is, so "this morning" is today.
"""

import re
import unicodedata
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path

from memory_service.recall.time_chinese import chinese_rules
from memory_service.recall.time_english import english_rules
from memory_service.recall.time_figures import number_rules
from memory_service.recall.time_joining import Found, joined, supported
from memory_service.recall.time_patterns import NUMBER
from memory_service.recall.time_rules import Rule, TimeNumbers, TimeWords
from memory_service.recall.time_spans import DAY, Span, When, utc
from memory_service.settings import read_section

WORD = re.compile(r"[A-Za-z]+(?:\d+)?")
DIGIT = re.compile(r"\d")
HAN = re.compile("[\u4e00-\u9fff]")


@dataclass(frozen=True, slots=True)
class TimeRules:
    """What reading needs, made once.  `numbers` are [time_hints] of memory.toml."""

    words: TimeWords
    numbers: TimeNumbers
    variants: dict[int, str]
    figures: tuple[Rule, ...]
    english: tuple[Rule, ...]
    chinese: tuple[Rule, ...]


def load_time_rules(path: Path, numbers: TimeNumbers) -> TimeRules:
    """Read config/time_expressions.toml.  Raises SetupRefused naming the file and every entry that is wrong."""
    words = read_section(path, TimeWords)
    return TimeRules(
        words,
        numbers,
        str.maketrans(words.chinese.variants),
        tuple(number_rules(words)),
        tuple(english_rules(words, numbers.ago_spread_units)),
        tuple(chinese_rules(words, numbers.ago_spread_units)),
    )


@dataclass(frozen=True, slots=True)
class TimeHint:
    """A time that a query speaks of: a stretch, or one that comes back ("in May") where no year is said.

    `text` is the words that say it, in the query's normal form (NFKC, single spaces, simplified).
    """

    text: str
    when: When
    numbers: TimeNumbers

    def closeness(self, at: datetime) -> float:
        """How near `at` is to it, 0..1: 1 inside.

        What happens is told some days later, so after the end it halves per `told_after_half_days`, before the start per
        `before_half_days`.  Of a stretch that comes back both are at most 1/`period_halves` of its period, or every date
        would be near.  Below `closeness_min` it is 0.
        """
        at, after, before = utc(at), self.numbers.told_after_half_days, self.numbers.before_half_days
        if isinstance(self.when, Span):
            return self._cut(_closeness(self.when, at, after, before))
        most = self.when.period_days / self.numbers.period_halves
        spans = self.when.near(at)
        return self._cut(max((_closeness(s, at, min(after, most), min(before, most)) for s in spans), default=0.0))

    def _cut(self, closeness: float) -> float:
        return closeness if closeness >= self.numbers.closeness_min else 0.0


def _closeness(span: Span, at: datetime, after_half_days: float, before_half_days: float) -> float:
    if at < span.start:
        return float(0.5 ** ((span.start - at) / DAY / before_half_days))
    if at >= span.end:
        return float(0.5 ** ((at - span.end) / DAY / after_half_days))
    return 1.0


def time_hints(query: str, now: datetime, rules: TimeRules) -> list[TimeHint]:
    """The times in the first `query_chars_max` characters of a query, in its order, at most `hints_max`.

    An expression that can be read in two ways ("05/08/2023") gives a hint for each.  Never raises.
    """
    longest = rules.numbers.query_chars_max
    text = _normal(query[:longest], rules.variants)[:longest]  # NFKC makes 18 characters of some
    now = utc(now)
    found = supported(_found(text, now, rules), text, rules.words.english)
    hints = [
        TimeHint(text[one.begin : one.end], when, rules.numbers)
        for one in joined(found, text, now)
        for when in one.whens
    ]
    return hints[: rules.numbers.hints_max]


def _normal(text: str, variants: dict[int, str]) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).translate(variants).split())


def _found(text: str, now: datetime, rules: TimeRules) -> list[Found]:
    """What the rules read, in the order of the text; an earlier rule takes its words from the later ones."""
    cues = {word.lower() for word in WORD.findall(text)}
    if DIGIT.search(text):
        cues.add(NUMBER)
    tried = [rule for rule in rules.figures if rule.may_match(cues)]
    if HAN.search(text):  # before English, which would take the 2023 of 2023年
        characters = set(text)
        tried += [rule for rule in rules.chinese if rule.may_match(characters)]
    tried += [rule for rule in rules.english if rule.may_match(cues)]
    taken, found = bytearray(len(text) + 1), []
    for rule in tried:
        for match in islice(rule.pattern.finditer(text), rules.numbers.rule_matches_max):
            begin, end = match.span()
            if taken.find(1, begin, end) >= 0:
                continue
            read = rule.read(match, now)
            if read is not None:
                taken[begin:end] = b"\1" * (end - begin)
                found.append(Found(begin, end, read.whens, read.need))
    return sorted(found, key=lambda one: one.begin)
