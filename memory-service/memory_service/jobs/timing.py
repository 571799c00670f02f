"""When is a job due?  Pure: times in UTC in, times in UTC out; the zone of the machine plays no part.

A missed run is caught up once: only the latest scheduled time counts, however many went by.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
FORM = re.compile(
    rf"hourly :(?P<m>[0-5]\d)|(?:daily|weekly (?P<day>{'|'.join(DAYS)})) (?P<at>(?:[01]\d|2[0-3]):[0-5]\d)"
)


@dataclass(frozen=True, slots=True)
class Timing:
    """`period` is an hour, a day or a week; `offset` is how long after its beginning (a week begins on Monday, 00:00 UTC)."""

    text: str
    period: timedelta
    offset: timedelta

    def latest(self, now: datetime) -> datetime:
        """The last scheduled time that is not after `now`."""
        moment = now.astimezone(UTC)
        monday = (moment - timedelta(days=moment.weekday())).replace(hour=0, minute=0, second=0, microsecond=0)
        gone = moment - monday - self.offset
        return monday + self.offset + (gone // self.period) * self.period

    def following(self, now: datetime) -> datetime:
        """The first scheduled time after `now`."""
        return self.latest(now) + self.period


@dataclass(frozen=True, slots=True)
class Past:
    """What is known of earlier scheduled runs of a job: the scheduled time of the last good one, and what failed for the present one."""

    done_for: datetime | None
    failures: int
    failed_at: datetime | None


def parse_timing(text: str) -> Timing:
    """`hourly :07`, `daily 03:00` or `weekly sunday 04:00`, in UTC.  Raises ValueError."""
    found = FORM.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no schedule; write hourly :07, daily 03:00 or weekly sunday 04:00 (UTC)")
    if found["m"] is not None:
        return Timing(text, timedelta(hours=1), timedelta(minutes=int(found["m"])))
    hour, minute = map(int, found["at"].split(":"))
    at = timedelta(hours=hour, minutes=minute)
    if found["day"] is None:
        return Timing(text, timedelta(days=1), at)
    return Timing(text, timedelta(days=7), timedelta(days=DAYS.index(found["day"])) + at)


def wanted(timing: Timing, past: Past, now: datetime, attempts_max: int, retry: timedelta) -> bool:
    """Is a run due?  After a failure not before `retry`, and at most `attempts_max` times for one scheduled time."""
    if past.done_for is not None and past.done_for >= timing.latest(now):
        return False
    if past.failures >= attempts_max:
        return False
    return past.failed_at is None or now >= past.failed_at + retry
