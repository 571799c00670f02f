"""How does English speak of a time by the names of days, months, seasons and years?  Pure.

Makes the rules that read one expression each ("May 8, 2023"); it does not combine them ("since", "between … and") and does
not decide whether the words around one allow it.  A text comes with single spaces.  Every repetition is bounded, so reading
is linear.
"""

import re
from datetime import datetime

from memory_service.recall.time_english_relative import Relative
from memory_service.recall.time_patterns import BEFORE, NUMBER, PART, PARTS, SHIFTS, YEAR, rules_of
from memory_service.recall.time_rules import Reading, Rule, TimeWords, any_of, reading
from memory_service.recall.time_spans import (
    Recurring,
    When,
    day_span,
    day_start,
    month_span,
    shifted,
    span_of,
    year_span,
)

ORDINALS = {"first": 1, "1st": 1, "second": 2, "2nd": 2, "third": 3, "3rd": 3, "fourth": 4, "4th": 4, "last": 4}
YEAR_TOLD = rf"(?:{YEAR}|(?P<shift_year>last|this|next) year)"
TH = r"(?:st|nd|rd|th)"


def english_rules(words: TimeWords, spread: float) -> list[Rule]:
    """All rules of English, the more specific first.  `spread`: how inexact "two weeks ago" is, in units."""
    return [*_Calendar(words).rules(), *Relative(words, spread).rules()]


class _Calendar:
    """Days, months, quarters, seasons and years by name."""

    def __init__(self, words: TimeWords) -> None:
        self._words = words
        self._months = {name: n for n, names in enumerate(words.english.months, 1) for name in names}

    def rules(self) -> list[Rule]:
        english, months = self._words.english, any_of(self._months)
        named = rf"\b(?:(?:this )?(?P<shift>{any_of(SHIFTS)}) )?(?P<name>{any_of(english.ranges)})"
        days = rf"(?P<day>\d{{1,2}})(?P<th>{TH})?(?: ?(?:-|–|to) ?(?P<last>\d{{1,2}}){TH}?)?"
        whole = r"(?![\w%]|[:.]\d|,\d(?!\d{3}\b))"
        quarter = rf"(?:Q(?P<q>[1-4])|(?P<nth>{any_of(ORDINALS)}) (?P<what>quarter|half)|H(?P<h>[12]))"
        month_year = rf"(?P<month>{months})\b\.?,? (?:of )?(?:{YEAR_TOLD}|['’](?P<yy>\d\d))(?!\w|[.:/-]\d)"
        return [
            *rules_of(
                self._months,
                (rf"\b(?P<month>{months})\.? (?:the )?{days}{whole}(?:(?:,? |,)(?:of )?{YEAR_TOLD}\b)?", self._day),
                (rf"{BEFORE}(?:the )?{days}(?P<of> of)? (?P<month>{months})\b(?:\.?,? (?:of )?{YEAR_TOLD}\b)?", self._day),
                also=[NUMBER],
            ),
            *rules_of(
                self._months,
                (rf"\b(?:{PART})?{month_year}", self._month_of_year),
                (rf"\b{YEAR_TOLD}(?P<in>,| in)? (?:{PART})?(?P<month>{months})\b", self._month_of_year),
                also=[NUMBER, "year"],
            ),
            *rules_of(
                self._months,
                (
                    rf"\b(?:{PART}|(?:this )?(?P<shift>{any_of(SHIFTS)}) )?(?P<month>{months})\b"
                    rf"(?!['’]s| (?:{english.name_goes_on})\b)",
                    self._month,
                ),
            ),
            *rules_of(
                ["q1", "q2", "q3", "q4", "h1", "h2", "quarter", "half"],
                (rf"\b{quarter}(?:,? (?:of )?{YEAR_TOLD})?(?![\w-])", self._quarter),
                (rf"{BEFORE}{YEAR}[ -]?{quarter}(?![\w-])", self._quarter),
            ),
            *rules_of(
                {word for name in english.ranges for word in re.findall("[a-z]+", name)},
                (rf"{named}(?:,? (?:of )?{YEAR_TOLD})?\b(?!\.\d| (?:{english.named_not_before})\b)", self._named),
            ),
            *rules_of([NUMBER],
                (r"\b(?:the|in|early|late|mid)[ -](?P<decade>\d{3})0s\b", self._decade),
                (
                    rf"(?:\b{PART}|(?<![\w.:/#@-])|(?<=\b\d{{4}}-)){YEAR}"
                    rf"(?!\w|[.:/]\d|-\d(?!\d{{3}}\b)| (?:{english.not_after_year})\b)",
                    self._year,
                ),
                (rf"\bon the (?P<day>\d{{1,2}}){TH}(?: of (?P<shift>last|this|next) month)?(?= ?(?:$|[?.!,;]))", self._nth),
            ),
        ]  # fmt: skip

    def _year_told(self, found: re.Match[str], now: datetime) -> int | None:
        """The year in figures or "last year"; None when neither is said.  A number that is no year gives 0, which no span has."""
        if found["shift_year"]:
            return now.year + SHIFTS[found["shift_year"].lower()]
        return None if found["year"] is None else self._checked(int(found["year"]))

    def _checked(self, year: int) -> int:
        return year if self._words.is_year(year) else 0

    def _day(self, found: re.Match[str], now: datetime) -> Reading | None:
        name = found["month"]
        month, first, last = self._months[name.lower()], int(found["day"]), int(found["last"] or found["day"])
        if not 1 <= first <= last <= 31:
            return None
        year = self._year_told(found, now)
        if year is not None:
            return reading(month_span(year, month, first, last))
        if day_span(2000, month, last) is None:  # 31 June; 2000 has a 29 February
            return None
        sure = name[0].isupper() or name.lower() not in self._words.english.months_verbs or found.groupdict().get("of")
        first_said = found.start("month") < found.start("day")
        return reading(
            Recurring("year", (month, first), (month, last)),
            need="nothing" if sure or (found["th"] and first_said) else "date",
        )

    def _month_of_year(self, found: re.Match[str], now: datetime) -> Reading | None:
        short = found.groupdict().get("yy")
        year = 2000 + int(short) if short else self._year_told(found, now)
        loose = "in" in found.groupdict() and not found["in"] and not found["part"]
        if year is None or (loose and found["month"].islower() and found["month"] in self._words.english.months_verbs):
            return None  # "in 2023 may I …"
        return reading(month_span(year, self._months[found["month"].lower()], *self._days(found["part"])))

    def _days(self, part: str | None) -> tuple[int, int]:
        return (1, 31) if part is None else self._words.month_parts[PARTS[part.lower()]]

    def _month(self, found: re.Match[str], now: datetime) -> Reading | None:
        name, month = found["month"], self._months[found["month"].lower()]
        first, last = self._days(found["part"])
        when = Recurring("year", (month, first), (month, last))
        if found["part"]:
            return reading(when)
        sure = name.lower() in self._words.english.months_sure
        if found["shift"]:
            if SHIFTS[found["shift"].lower()] == 0 and not (sure or name[0].isupper()):
                return None  # "this may be"
            return reading(_which(when, found["shift"], now))
        return reading(when, need="nothing" if sure else "month")

    def _quarter(self, found: re.Match[str], now: datetime) -> Reading | None:
        half = found["h"] or (found["what"] or "").lower() == "half"
        number = int(found["q"] or found["h"] or ORDINALS[found["nth"].lower()])
        if half:
            if number > 2:
                return None
            first, last = self._words.year_parts["first_half" if number == 1 else "second_half"]
        else:
            first, last = number * 3 - 2, number * 3
        year = found["year"] or found.groupdict().get("shift_year")
        if year is None:
            return reading(Recurring("year", (first, 1), (last, 31)), need="month") if found["q"] else None
        told = self._checked(int(year)) if year.isdigit() else now.year + SHIFTS[year.lower()]
        return reading(year_span(told, first, last))

    def _named(self, found: re.Match[str], now: datetime) -> Reading | None:
        a, b, c, d = self._words.ranges[self._words.english.ranges[found["name"].lower()]]
        when = Recurring("year", (a, b), (c, d))
        year = self._year_told(found, now)
        if year is not None:
            return reading(when.of_year(year))
        return reading(_which(when, found["shift"], now)) if found["shift"] else reading(when, need="named")

    def _decade(self, found: re.Match[str], now: datetime) -> Reading | None:
        year = self._checked(int(found["decade"]) * 10)
        first, last = year_span(year), year_span(year + 9)
        return reading(span_of(first.start, last.end)) if first and last else None

    def _year(self, found: re.Match[str], now: datetime) -> Reading | None:
        year = self._checked(int(found["year"]))
        if found["part"]:
            return reading(year_span(year, *self._words.year_parts[PARTS[found["part"].lower()]]))
        return reading(year_span(year), need="year")

    def _nth(self, found: re.Match[str], now: datetime) -> Reading | None:
        day = int(found["day"])
        if not 1 <= day <= 31:
            return None
        if found["shift"] is None:
            return reading(Recurring("month", (0, day), (0, day)))
        month = shifted(day_start(now).replace(day=1), "month", SHIFTS[found["shift"].lower()])
        return reading(day_span(month.year, month.month, day))


def _which(when: Recurring, shift: str, now: datetime) -> When | None:
    """The last that is over, the one of this year, or the next that begins."""
    offset = SHIFTS[shift.lower()]
    if offset == 0:
        return when.of_year(now.year)
    if offset > 0:
        return when.next_from(now)
    over = [span for span in when.near(now, 2) if span.end <= now]
    return over[-1] if over else None
