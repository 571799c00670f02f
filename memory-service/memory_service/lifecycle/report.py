"""What does a maintenance job get, and what does it tell?  The values between jobs/ and the features that do the work.

A job's function is `async (JobRun) -> JobReport` for one tenant.  It works in bounded transactions, may be run again at any time (also
beside requests), and in a dry run changes nothing and tells the same.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID


@dataclass(frozen=True, slots=True)
class JobRun:
    """One run for one tenant.  `now` is its time, in UTC; at most `items_max` items are to be told."""

    tenant: str
    now: datetime
    dry_run: bool
    items_max: int


@dataclass(frozen=True, slots=True)
class JobItem:
    """One thing that was changed, or would be, and why.  Items are answered, never stored."""

    id: UUID
    user_id: str
    why: str


@dataclass(frozen=True, slots=True)
class JobReport:
    """`done`: how many things were changed (would be, in a dry run); `items`: the first of them; `counts`: figures by name.

    Counts are kept in job_run: numbers only, no contents, no ids.
    """

    done: int
    items: list[JobItem] = field(default_factory=list)
    counts: Mapping[str, int] = field(default_factory=dict)


JobFunction = Callable[[JobRun], Awaitable[JobReport]]
