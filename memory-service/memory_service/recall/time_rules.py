"""With which words and numbers are times read?  config/time_expressions.toml and [time_hints] of memory.toml, checked.

It knows no grammar: that is time_english.py and time_chinese.py, which make their rules of these words once, at start.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pydantic import model_validator

from memory_service.recall.time_spans import Unit, When
from memory_service.settings import Section

Need = Literal["nothing", "year", "month", "date", "weekday", "named"]
Between = tuple[int, int]
Count = tuple[float, float]
MONTH_PARTS = {"start", "early", "mid", "late", "end"}
YEAR_PARTS = MONTH_PARTS | {"first_half", "second_half"}


class TimeNumbers(Section):
    """[time_hints] of memory.toml."""

    query_chars_max: int
    hints_max: int
    rule_matches_max: int
    told_after_half_days: float
    before_half_days: float
    period_halves: float
    closeness_min: float
    ago_spread_units: float

    @model_validator(mode="after")
    def _usable(self) -> "TimeNumbers":
        halves = (self.told_after_half_days, self.before_half_days, self.period_halves)
        if min(halves) <= 0 or not 0 < self.closeness_min < 1 or self.ago_spread_units < 0:
            raise ValueError("half-lives must be above 0, closeness_min in 0..1, ago_spread_units not negative")
        return self


class English(Section):
    months: tuple[tuple[str, ...], ...]
    weekdays: tuple[tuple[str, ...], ...]
    months_sure: frozenset[str]
    months_verbs: frozenset[str]
    month_after: frozenset[str]
    month_after_at_end: frozenset[str]
    name_goes_on: str
    weekday_after: frozenset[str]
    year_after: frozenset[str]
    never_after: frozenset[str]
    not_after_year: str
    named_after: frozenset[str]
    named_not_before: str
    days: dict[str, int]
    units: dict[str, Unit]
    counts: dict[str, Count]
    vague: dict[str, Between]
    ranges: dict[str, str]


class Chinese(Section):
    variants: dict[str, str]
    not_after_weekday: str
    not_after_middle: str
    day_parts: str
    days: dict[str, int]
    years: dict[str, int]
    units: dict[str, Unit]
    counts: dict[str, Count]
    vague: dict[str, Between]
    ranges: dict[str, str]


class TimeWords(Section):
    """config/time_expressions.toml."""

    years: Between
    month_parts: dict[str, Between]
    year_parts: dict[str, Between]
    ranges: dict[str, tuple[int, int, int, int]]
    english: English
    chinese: Chinese

    @model_validator(mode="after")
    def _whole(self) -> "TimeWords":
        """Tables that refer to each other fit, so that no query can find a hole in them."""
        if len(self.english.months) != 12 or len(self.english.weekdays) != 7:
            raise ValueError("english needs 12 months and 7 weekdays")
        if set(self.month_parts) != MONTH_PARTS or set(self.year_parts) != YEAR_PARTS:
            raise ValueError(f"month_parts needs {sorted(MONTH_PARTS)}, year_parts {sorted(YEAR_PARTS)}")
        for name in (*self.english.ranges.values(), *self.chinese.ranges.values()):
            if name not in self.ranges:
                raise ValueError(f"the range {name} is not in [ranges]")
        for pattern in (
            self.english.name_goes_on,
            self.english.not_after_year,
            self.english.named_not_before,
            self.chinese.day_parts,
        ):
            try:
                re.compile(pattern)
            except re.error as problem:
                raise ValueError(f"bad pattern {pattern[:40]!r}: {problem}") from problem
        return self

    def is_year(self, year: int) -> bool:
        return self.years[0] <= year <= self.years[1]


@dataclass(frozen=True, slots=True)
class Reading:
    """What an expression means: several `whens` are alternatives.  `need` is what has to stand before it to be a time."""

    whens: tuple[When, ...]
    need: Need = "nothing"


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of expression.

    It is tried only in a text that has one of `cues` (words, or single characters of Chinese), and one of `also` if there are
    any: most queries have none, and a search that finds nothing costs up to 0.1 ms.
    """

    cues: frozenset[str]
    pattern: re.Pattern[str]
    read: Callable[[re.Match[str], datetime], Reading | None]
    also: frozenset[str] = frozenset()

    def may_match(self, cues: set[str]) -> bool:
        return not self.cues.isdisjoint(cues) and (not self.also or not self.also.isdisjoint(cues))


def reading(*whens: When | None, need: Need = "nothing") -> Reading | None:
    """None when no alternative is a real stretch of time."""
    real = tuple(when for when in whens if when is not None)
    return Reading(real, need) if real else None


def any_of(words: Iterable[str]) -> str:
    """A pattern of literal words, the longer first."""
    return "|".join(re.escape(word) for word in sorted(words, key=lambda w: (-len(w), w)))
