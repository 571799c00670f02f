"""What is a maintenance job?  A row of the table that bootstrap.py builds; schedule.py runs it, features do the work.

Job("decay", parse_timing("hourly :07"), "archive", cooling.run)
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pydantic import field_validator

from memory_service.jobs.timing import Timing, parse_timing
from memory_service.lifecycle.report import JobFunction
from memory_service.settings import Section

IRREGULAR = {"write": "wrote"}


class JobNumbers(Section):
    """[jobs] of memory.toml: schedules in UTC, and how runs are bounded and kept."""

    decay: str
    purge: str
    reconcile: str
    compress: str
    insights: str
    poll_s: float
    attempts_max: int
    retry_minutes: float
    run_s_max: float
    items_max: int
    runs_kept_max: int

    @field_validator("decay", "purge", "reconcile", "compress", "insights")
    @classmethod
    def _schedule(cls, text: str) -> str:
        return parse_timing(text).text

    def timing(self, job: str) -> Timing:
        return parse_timing(getattr(self, job))


@dataclass(frozen=True, slots=True)
class Job:
    """One job.  `timing` None: by hand only; `verb` completes "would … 12"; `tenants`: whom it concerns besides those who have rows."""

    name: str
    timing: Timing | None
    verb: str
    run: JobFunction
    tenants: Callable[[], Awaitable[list[str]]] | None = None

    @property
    def past(self) -> str:
        """`archived`, `repaired`, `wrote`."""
        return IRREGULAR.get(self.verb) or f"{self.verb}{'' if self.verb.endswith('e') else 'e'}d"
