"""Which stretch of time is a day, a month, "two weeks ago", every May?  Pure calendar arithmetic in UTC; it reads no words.

Nothing here raises for a date that does not exist or lies outside datetime's years: such a span is None, an edge beyond
them is cut to them.
"""

from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Literal

EARLIEST = datetime.min.replace(tzinfo=UTC)
LATEST = datetime.max.replace(tzinfo=UTC)
DAY = timedelta(days=1)
DAYS_A_MONTH = 30.436875  # 365.2425 / 12
OCCURRENCES_KEPT = 2_048  # the memories of one search fall into few years, months or weeks
LEAP_GAP_YEARS = 8  # 29 February comes at least this often (1896, 1904)

Unit = Literal["second", "minute", "hour", "day", "week", "month", "quarter", "year", "decade"]
CALENDAR_UNITS: frozenset[Unit] = frozenset({"day", "week", "month", "quarter", "year", "decade"})
MONTHS: dict[Unit, int] = {"month": 1, "quarter": 3, "year": 12, "decade": 120}
LENGTHS: dict[Unit, timedelta] = {
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": DAY,
    "week": 7 * DAY,
}


@dataclass(frozen=True, slots=True)
class Span:
    """Half-open [start, end), aware UTC, start < end."""

    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Recurring:
    """A stretch that comes back each year, month or week, from the day `first` to the day `last`, both included.

    Days are (month, day) of a year, (0, day) of a month, (0, weekday) of a week with Monday 0.  A stretch whose `last` is
    before its `first` runs into the next period.  A `first` that a year or month lacks is not there; `last` is cut.
    """

    period: Literal["year", "month", "week"]
    first: tuple[int, int]
    last: tuple[int, int]

    @property
    def period_days(self) -> float:
        return {"year": 12 * DAYS_A_MONTH, "month": DAYS_A_MONTH, "week": 7.0}[self.period]

    def near(self, at: datetime, periods_back: int = 1) -> Iterator[Span]:
        """Its occurrences that begin in the period of `at`, the next one, and so many before it."""
        for offset in range(-periods_back, 2):
            found = self._in_period(at, offset)
            if found is not None:
                yield found

    def latest(self, now: datetime) -> Span | None:
        """The one that began last."""
        spans = (self._in_period(now, offset) for offset in range(0, -LEAP_GAP_YEARS - 1, -1))
        return next((span for span in spans if span is not None and span.start <= now), None)

    def next_from(self, moment: datetime) -> Span | None:
        """The first that begins at `moment` or later."""
        return next((span for span in self.near(moment) if span.start >= moment), None)

    def of_year(self, year: int) -> Span | None:
        """Of a yearly one, the occurrence that begins in `year`."""
        return _occurrence(self, year)

    def _in_period(self, at: datetime, offset: int) -> Span | None:
        if self.period == "week":
            return _occurrence(self, at.toordinal() - at.weekday() + 7 * offset)
        return _occurrence(self, at.year + offset if self.period == "year" else at.year * 12 + at.month - 1 + offset)


When = Span | Recurring


@lru_cache(maxsize=OCCURRENCES_KEPT)
def _occurrence(of: Recurring, index: int) -> Span | None:
    """In the year `index`, the month `index` counted from year 0, or the week whose Monday is the day `index` (ordinal)."""
    wraps = of.last < of.first
    if of.period == "week":
        return span_of(_of_ordinal(index + of.first[1]), _of_ordinal(index + of.last[1] + 1 + 7 * wraps))
    if of.period == "month":
        return _days(index, of.first[1], index + wraps, of.last[1])
    january = index * 12 - 1
    return _days(january + of.first[0], of.first[1], january + of.last[0] + 12 * wraps, of.last[1])


def _of_ordinal(day: int) -> datetime:
    if not 1 <= day <= date.max.toordinal():
        return EARLIEST if day < 1 else LATEST
    return datetime.fromordinal(day).replace(tzinfo=UTC)


def _days(first_index: int, first_day: int, last_index: int, last_day: int) -> Span | None:
    """From a day of one month to a day of another; months are counted from year 0."""
    start = _date(first_index, first_day)
    year, month = divmod(last_index, 12)
    if start is None or not MINYEAR <= year <= MAXYEAR:
        return None
    end = _date(last_index, min(last_day, monthrange(year, month + 1)[1]))
    return None if end is None else span_of(start, later(end, 1))


def _date(index: int, day: int) -> datetime | None:
    year, month = divmod(index, 12)
    try:
        return datetime(year, month + 1, day, tzinfo=UTC)
    except ValueError:
        return None


def utc(moment: datetime) -> datetime:
    """A moment in UTC; a naive one means UTC, one whose UTC lies outside datetime's years is cut to them."""
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        return EARLIEST if moment.year == MINYEAR else LATEST


def span_of(start: datetime, end: datetime) -> Span | None:
    """None when nothing is left of it, as of a span that was cut at both ends."""
    return Span(start, end) if start < end else None


def day_start(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def later(moment: datetime, days: float) -> datetime:
    """So many days later, or earlier when negative."""
    try:
        return moment + timedelta(days=days)
    except OverflowError:
        return EARLIEST if days < 0 else LATEST


def shifted(moment: datetime, unit: Unit, count: float) -> datetime:
    """`count` units later; a day that the month lacks becomes its last.  Half months and the like are counted in days."""
    if unit not in MONTHS:
        return later(moment, count * (LENGTHS[unit] / DAY))
    months = count * MONTHS[unit]
    if months != int(months):
        return later(moment, months * DAYS_A_MONTH)
    year, month = divmod(moment.year * 12 + moment.month - 1 + int(months), 12)
    if not MINYEAR <= year <= MAXYEAR:
        return EARLIEST if year < MINYEAR else LATEST
    return moment.replace(year=year, month=month + 1, day=min(moment.day, monthrange(year, month + 1)[1]))


def day_span(year: int, month: int, day: int) -> Span | None:
    return _days(year * 12 + month - 1, day, year * 12 + month - 1, day) if 1 <= month <= 12 else None


def month_span(year: int, month: int, first_day: int = 1, last_day: int = 31) -> Span | None:
    return _days(year * 12 + month - 1, first_day, year * 12 + month - 1, last_day) if 1 <= month <= 12 else None


def year_span(year: int, first_month: int = 1, last_month: int = 12) -> Span | None:
    return _days(year * 12 + first_month - 1, 1, year * 12 + last_month - 1, 31)


def unit_span(now: datetime, unit: Unit, offset: int) -> Span | None:
    """The calendar day, week (from Monday), month, quarter, year or decade that lies `offset` from the one of `now`."""
    start = day_start(now)
    if unit == "week":
        start = later(start, -now.weekday())
    elif unit in MONTHS:
        index = {"month": now.month, "quarter": (now.month - 1) // 3 * 3 + 1}.get(unit, 1)
        start = start.replace(day=1, month=index, year=max(now.year // 10 * 10, 1) if unit == "decade" else now.year)
    return span_of(shifted(start, unit, offset), shifted(start, unit, offset + 1))


def weekday_span(now: datetime, week: int, first: int, last: int) -> Span | None:
    """Days `first` to `last` (Monday 0) of the calendar week that lies `week` from the one of `now`."""
    monday = later(day_start(now), 7 * week - now.weekday())
    return span_of(later(monday, first), later(monday, last + 1))


def ago_span(now: datetime, unit: Unit, fewest: float, most: float, spread: float) -> Span | None:
    """`fewest` to `most` units ago, give or take `spread` of a unit; a day is the calendar day."""
    if unit not in CALENDAR_UNITS:
        return span_of(shifted(now, unit, -most - spread), shifted(now, unit, spread - fewest))
    spread = spread if fewest == int(fewest) else spread / 2  # who says "a half" is more exact
    slack = 0.0 if unit == "day" else spread * (MONTHS[unit] * DAYS_A_MONTH if unit in MONTHS else 7.0)
    today = day_start(now)
    start, end = (day_start(shifted(today, unit, -count)) for count in (most, fewest))
    return span_of(later(start, -int(slack)), later(end, int(slack) + 1))


def rolling_span(now: datetime, unit: Unit, count: float) -> Span | None:
    """The past `count` units up to now, from the beginning of a day unless they are shorter than days."""
    start = shifted(now, unit, -count)
    return span_of(day_start(start) if unit in CALENDAR_UNITS else start, max(now, later(start, 1 / 86_400_000)))
