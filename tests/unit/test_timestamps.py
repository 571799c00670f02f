"""RFC 3339 in any offset, naive means UTC, and nothing that only looks like a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_service.timestamps import instant, parse_time

offsets = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31)), offsets)
def test_every_offset_names_the_same_moment(naive: datetime, offset: timezone) -> None:
    moment = naive.replace(tzinfo=offset)
    assert instant(moment.isoformat()) == moment
    assert parse_time(naive.isoformat()) == naive.replace(tzinfo=UTC)


@given(st.text(max_size=40))
def test_any_text_is_a_moment_or_none(text: str) -> None:
    moment = instant(text)
    assert moment is None or moment.tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-01",
        "2026-01-01T00:00:00",
        "20260101T000000Z",
        "2026-W01-1",
        "2026-02-30T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-01-01T25:00:00Z",
        "٢٠٢٦-01-01T00:00:00Z",
        " 2026-01-01T00:00:00Z",
        "2026-01-01T00:00:00+25:00",
        "now",
        "",
    ],
)
def test_what_is_no_full_rfc_3339_time_is_no_instant(text: str) -> None:
    assert instant(text) is None


@pytest.mark.parametrize(
    "text", ["2026-02-30", "2026-1-1", "12:00", "2026", "2026-W01-1", "20260101", "tomorrow", "", "2026-01-01T24:01:00"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="RFC 3339"):
        parse_time(text)


def test_a_leap_second_and_long_fractions_are_read() -> None:
    assert instant("2016-12-31T23:59:60Z") == datetime(2016, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert instant("2026-01-01T00:00:00.123456789Z") == datetime(2026, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)
