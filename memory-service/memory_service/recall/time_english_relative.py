"""How does English speak of a time from now on or back (yesterday, two weeks ago, last Friday)?  Pure.

Weekdays are here too.  Every repetition is bounded, so reading is linear.
"""

import re
from datetime import datetime

from memory_service.recall.time_patterns import PART, PARTS, SHIFTS, rules_of, vague_span
from memory_service.recall.time_rules import Reading, Rule, TimeWords, any_of, reading
from memory_service.recall.time_spans import (
    Recurring,
    Unit,
    When,
    ago_span,
    day_start,
    later,
    month_span,
    rolling_span,
    shifted,
    span_of,
    unit_span,
    weekday_span,
    year_span,
)


class Relative:
    """What is said from now: days, weeks, "ago", "the past"; and weekdays."""

    def __init__(self, words: TimeWords, spread: float) -> None:
        self._words = words
        self._spread = spread
        self._weekdays = {name: n for n, names in enumerate(words.english.weekdays) for name in names}

    def rules(self) -> list[Rule]:
        english, shift, weekday = self._words.english, any_of(SHIFTS), any_of(self._weekdays)
        count = rf"(?P<count>\d{{1,4}}|{any_of(english.counts)})"
        unit = rf"(?P<unit>{any_of(english.units)})s?"
        unit_cues = {form for name in english.units for form in (name, f"{name}s")}
        more = rf"(?: and (?P<count2>\d{{1,4}}|{any_of(english.counts)}) (?P<unit2>{any_of(english.units)})s?)?"
        half = "(?: and a (?P<{}>half))?"
        calendar = "week|month|quarter|year|decade|weekend"
        return [
            *rules_of(
                {"ago", "back", "now"},
                (
                    rf"\b{count}{half.format('half')} {unit}{half.format('half2')}{more} (?P<way>ago|back|from now)\b",
                    self._ago,
                ),
            ),
            *rules_of(["before"], (rf"\b(?:the )?(?P<unit>{calendar}|{weekday}) before last\b", self._before_last)),
            *rules_of(
                self._weekdays.keys() | {f"{name}s" for name in self._weekdays},
                (
                    rf"\b(?:(?P<shift>{shift}) )?(?P<weekday>{weekday})s?\b(?!\.\w)"
                    r"(?P<part>['’]s\b| (?:early )?(?:morning|afternoon|evening|night))?(?: (?:of )?(?P<week>last|this|next) week)?",
                    self._weekday,
                ),
            ),
            *rules_of(
                {word for name in english.days for word in name.split()} - {"the", "this"} | {"night"},
                (rf"\b(?P<day>{any_of(english.days)}|last night)\b(?: (?:morning|afternoon|evening|night|noon)\b)?", self._day),
            ),
            *rules_of(
                unit_cues | {"weekend", "weekends"},
                (rf"\b(?:the |these |this )?(?:last|past|previous) {count} {unit}\b", self._rolling),
                (
                    rf"\b(?:{PART})?(?:(?P<the>the|this) )?(?P<shift>{shift}) (?P<unit>{calendar}|day|hour)\b(?! of\b)",
                    self._unit,
                ),
                (r"\b(?:over|during|on|at) the (?P<unit>weekend)\b", lambda found, now: reading(Recurring("week", (0, 5), (0, 6)))),
            ),
            *rules_of(
                {name.split()[-1] for name in english.vague},
                (rf"\b(?P<vague>{any_of(english.vague)})\b", self._vague),
            ),
        ]  # fmt: skip

    def _count(self, text: str) -> tuple[float, float]:
        return (float(text), float(text)) if text.isdigit() else self._words.english.counts[text.lower()]

    def _ago(self, found: re.Match[str], now: datetime) -> Reading | None:
        unit = self._words.english.units[found["unit"].lower()]
        half = 0.5 if found["half"] or found["half2"] else 0.0
        fewest, most = (number + half for number in self._count(found["count"]))
        if found["way"].lower() == "from now":
            return reading(ago_span(now, unit, -most, -fewest, self._spread))
        if found["unit2"]:
            smaller = self._words.english.units[found["unit2"].lower()]
            return reading(ago_span(shifted(now, unit, -most), smaller, *self._count(found["count2"]), self._spread))
        return reading(ago_span(now, unit, fewest, most, self._spread))

    def _before_last(self, found: re.Match[str], now: datetime) -> Reading | None:
        unit = found["unit"].lower()
        if unit in self._weekdays:
            return reading(weekday_span(_last_weekday(now, self._weekdays[unit]), -1, *2 * (self._weekdays[unit],)))
        return self._calendar_unit(unit, -2, now)

    def _calendar_unit(self, unit: str, offset: int, now: datetime) -> Reading | None:
        if unit == "weekend":
            return reading(weekday_span(now, offset, 5, 6))
        return reading(unit_span(now, self._words.english.units[unit], offset))

    def _weekday(self, found: re.Match[str], now: datetime) -> Reading | None:
        name = found["weekday"]
        day = self._weekdays[name.lower()]
        short = name.lower() != self._words.english.weekdays[day][0]
        if short and not name[0].isupper():
            return None  # "sat", "sun", "wed"
        if found["week"]:
            return reading(weekday_span(now, SHIFTS[found["week"].lower()], day, day))
        if found["shift"]:
            return reading(self._shifted_weekday(day, SHIFTS[found["shift"].lower()], now))
        when = Recurring("week", (0, day), (0, day))
        if (
            short
            and not found["part"]
            and found.string[found.end() : found.end() + 1] not in ("", "?", ".", ",", "!", ";")
        ):
            return None  # "on Sun servers"
        return reading(when, need="nothing" if found["part"] else "weekday")

    def _shifted_weekday(self, day: int, shift: int, now: datetime) -> When | None:
        if shift == 0:
            return weekday_span(now, 0, day, day)
        if shift < 0:
            return weekday_span(_last_weekday(now, day), 0, day, day)
        return weekday_span(later(now, 7 - (now.weekday() - day) % 7), 0, day, day)

    def _day(self, found: re.Match[str], now: datetime) -> Reading | None:
        today, name = day_start(now), found["day"].lower()
        if name == "last night":
            return reading(span_of(later(today, -0.5), later(today, 0.5)))
        return reading(unit_span(now, "day", self._words.english.days[name]))

    def _rolling(self, found: re.Match[str], now: datetime) -> Reading | None:
        unit = self._words.english.units[found["unit"].lower()]
        return reading(rolling_span(now, unit, self._count(found["count"])[1]))

    def _unit(self, found: re.Match[str], now: datetime) -> Reading | None:
        name, shift = found["unit"].lower(), found["shift"].lower()
        unit: Unit | None = self._words.english.units.get(name)
        the = (found["the"] or "").lower()
        if unit is not None and shift in ("last", "past") and (the == "the" or shift == "past"):
            # "the last week" is the past seven days; "the last day" and "last hour" may be of anything
            return None if name == "day" and shift == "last" else reading(rolling_span(now, unit, 1))
        if name in ("day", "hour"):
            return None
        if found["part"] and unit in ("month", "year"):
            whole = unit_span(now, unit, SHIFTS[shift])
            part = PARTS[found["part"].lower()]
            if whole is None:
                return None
            if unit == "year":
                return reading(year_span(whole.start.year, *self._words.year_parts[part]))
            return reading(month_span(whole.start.year, whole.start.month, *self._words.month_parts[part]))
        return self._calendar_unit(name, SHIFTS[shift], now)

    def _vague(self, found: re.Match[str], now: datetime) -> Reading | None:
        fewest, most = self._words.english.vague[found["vague"].lower()]
        return reading(vague_span(now, fewest, most))


def _last_weekday(now: datetime, day: int) -> datetime:
    """The last such day before today."""
    return later(now, -((now.weekday() - day - 1) % 7 + 1))
