"""Which moment does a string name?  RFC 3339 in any offset; a naive time means UTC.  Out: UTC, ending in Z."""

import re
from datetime import UTC, datetime

# datetime.fromisoformat alone would also take week dates, "20260101" and bare dates in places where times are meant.
RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
NAIVE = re.compile(r"\d{4}-\d\d-\d\d([Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?)?", re.ASCII)


def instant(text: str) -> datetime | None:
    """The UTC moment of a full RFC 3339 string, None for anything else (impossible dates included)."""
    if not isinstance(text, str) or not RFC3339.fullmatch(text):
        return None
    return _utc(text)


def parse_time(text: str) -> datetime:
    """The UTC moment of an RFC 3339 string or of a naive time or date.  Raises ValueError saying what is expected."""
    moment = _utc(text) if RFC3339.fullmatch(text) or NAIVE.fullmatch(text) else None
    if moment is None:
        raise ValueError("must be an RFC 3339 time such as 2026-01-31T09:30:00Z")
    return moment


def time_text(moment: datetime) -> str:
    """A UTC moment as RFC 3339, ending in Z."""
    return moment.isoformat().replace("+00:00", "Z")


def optional_time(moment: datetime | None) -> str | None:
    """The same for a moment that may be missing."""
    return None if moment is None else time_text(moment)


def _utc(text: str) -> datetime | None:
    normal = text.upper().replace("Z", "+00:00")
    if ":60" in normal[16:19]:  # RFC 3339 allows a leap second, datetime does not
        normal = normal[:16] + ":59" + normal[19:]
    try:
        moment = datetime.fromisoformat(_microseconds(normal))
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):  # month 13, or 0001-01-01 in an eastern offset
        return None


def _microseconds(text: str) -> str:
    """Cut fractions beyond the microseconds that a timestamptz keeps."""
    return re.sub(r"(\.\d{6})\d+", r"\1", text)
