"""How much effort does a run of this task type usually take?

`Effort` is what one run took; the service keeps it per run.  `baseline_of` makes the median of past runs, or the settings
while there are too few.  It must not judge; `review` compares a run with its baseline.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from statistics import median

from memory_service.experience.review_rules import BaselineNumbers


@dataclass(frozen=True, slots=True)
class Effort:
    """Counts of one run.  `duration_ms` is None unless every step told its own."""

    steps: float
    tool_calls: float
    repeated_calls: float
    argument_chars: float
    untouched_goal_terms: float
    closing_chars: float
    duration_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Baseline:
    """The usual effort.  `runs` is how many past runs it stands on; 0 means the settings."""

    effort: Effort
    runs: int = 0


def baseline_of(past: Sequence[Effort], numbers: BaselineNumbers) -> Baseline:
    """Median of the newest `runs_max` of `past` (oldest first); the settings below `runs_min` runs."""
    newest = past[-numbers.runs_max :]
    if len(newest) < numbers.runs_min:
        return Baseline(Effort(**{field.name: getattr(numbers, field.name) for field in fields(Effort)}), 0)
    known = {
        field.name: [value for run in newest if (value := getattr(run, field.name)) is not None]
        for field in fields(Effort)
    }
    medians = {name: float(median(values)) if values else None for name, values in known.items()}
    return Baseline(Effort(**medians), len(newest))  # type: ignore[arg-type]  # only duration_ms can be None
