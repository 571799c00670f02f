"""When a job is due: schedules in UTC, catching up, pauses after failures.  The zone of the machine plays no part."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_service.jobs.timing import Past, Timing, parse_timing, wanted

RETRY = timedelta(minutes=15)
NEVER = Past(None, 0, None)
SCHEDULES = ("hourly :07", "daily 03:00", "daily 00:00", "weekly sunday 04:00", "weekly monday 00:00")


def utc(text: str) -> datetime:
    return datetime.fromisoformat(f"{text}+00:00")


def due(timing: Timing, past: Past, now: datetime) -> bool:
    return wanted(timing, past, now, 3, RETRY)


@pytest.mark.parametrize(
    ("schedule", "now", "latest", "following"),
    [
        ("hourly :07", "2026-03-04T10:06:59", "2026-03-04T09:07", "2026-03-04T10:07"),
        ("hourly :07", "2026-03-04T10:07:00", "2026-03-04T10:07", "2026-03-04T11:07"),
        ("daily 03:00", "2026-03-04T02:59:59.999999", "2026-03-03T03:00", "2026-03-04T03:00"),
        ("daily 03:00", "2026-03-01T00:00:00", "2026-02-28T03:00", "2026-03-01T03:00"),
        ("weekly sunday 04:00", "2026-03-01T03:59:00", "2026-02-22T04:00", "2026-03-01T04:00"),
        ("weekly sunday 04:00", "2026-03-01T04:00:00", "2026-03-01T04:00", "2026-03-08T04:00"),
        ("weekly monday 00:00", "2026-01-01T12:00:00", "2025-12-29T00:00", "2026-01-05T00:00"),
    ],
)
def test_the_latest_and_the_following_time(schedule: str, now: str, latest: str, following: str) -> None:
    timing = parse_timing(schedule)
    assert timing.latest(utc(now)) == utc(latest)
    assert timing.following(utc(now)) == utc(following)


@given(st.sampled_from(SCHEDULES), st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)))
def test_the_latest_time_is_never_later_and_less_than_a_period_ago(schedule: str, now: datetime) -> None:
    timing = parse_timing(schedule)
    latest = timing.latest(now)
    assert timedelta(0) <= now - latest < timing.period
    assert timing.latest(latest) == latest
    assert timing.following(now) - latest == timing.period


@given(
    st.sampled_from(SCHEDULES),
    st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC)),
    st.sampled_from(["Asia/Tokyo", "America/St_Johns", "Pacific/Chatham"]),
)
def test_the_same_instant_in_another_zone_is_the_same(schedule: str, now: datetime, zone: str) -> None:
    timing = parse_timing(schedule)
    assert timing.latest(now.astimezone(ZoneInfo(zone))) == timing.latest(now)
    assert timing.latest(now.astimezone(ZoneInfo(zone))).utcoffset() == timedelta(0)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/St_Johns"])
def test_the_machines_zone_changes_nothing_not_even_when_clocks_are_set_back(zone: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c", ALL_HOURS],
        env={**os.environ, "TZ": zone},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    # 2026-10-31 to 11-02: in St. John's the clocks are set back on 1 November
    assert told == ["2026-10-31T03:00:00+00:00", "2026-11-01T03:00:00+00:00", "2026-11-02T03:00:00+00:00"]


ALL_HOURS = """
import time
from datetime import datetime, timedelta, timezone
from memory_service.jobs.timing import parse_timing
time.tzset()
timing, now, seen = parse_timing("daily 03:00"), datetime(2026, 10, 31, 3, tzinfo=timezone.utc), []
for minute in range(0, 60 * 48, 10):
    local = (now + timedelta(minutes=minute)).astimezone()
    if timing.latest(local) not in seen:
        seen.append(timing.latest(local))
seen.append(timing.latest((now + timedelta(days=2)).astimezone()))
print(*(at.isoformat() for at in seen))
"""


@pytest.mark.parametrize(
    "text",
    ["", "daily", "daily 24:00", "daily 3:00", "hourly", "hourly 07", "hourly :60", "weekly 04:00", "weekly SUNDAY 04:00",
     "daily 03:00 ", "monthly 1"],
)  # fmt: skip
def test_what_is_no_schedule_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="weekly sunday 04:00"):
        parse_timing(text)


def test_a_job_that_never_ran_is_due_and_one_that_did_waits_for_the_next_time() -> None:
    timing, now = parse_timing("daily 03:00"), utc("2026-03-04T03:00:30")
    assert due(timing, NEVER, now)
    ran = Past(utc("2026-03-04T03:00"), 0, None)
    assert not due(timing, ran, now)
    assert not due(timing, ran, utc("2026-03-05T02:59:59"))
    assert due(timing, ran, utc("2026-03-05T03:00"))


def test_however_many_runs_were_missed_one_makes_up_for_them() -> None:
    timing, now = parse_timing("hourly :07"), utc("2026-03-14T12:30")
    assert due(timing, Past(utc("2026-03-04T03:07"), 0, None), now)
    assert not due(timing, Past(timing.latest(now), 0, None), now)


def test_after_a_failure_it_pauses_and_after_three_it_waits_for_the_next_time() -> None:
    timing, last, failed = parse_timing("daily 03:00"), utc("2026-03-03T03:00"), utc("2026-03-04T03:01")
    assert not due(timing, Past(last, 1, failed), failed + RETRY - timedelta(seconds=1))
    assert due(timing, Past(last, 1, failed), failed + RETRY)
    assert due(timing, Past(last, 2, failed), failed + RETRY)
    assert not due(timing, Past(last, 3, failed), failed + 10 * RETRY)
    assert due(timing, Past(last, 0, None), utc("2026-03-05T03:00"))  # failures are counted for one scheduled time
