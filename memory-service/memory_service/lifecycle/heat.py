"""How alive is a memory?  Pure.

heat(now) = stored × decay ^ (days since it was stored / decay_days), DESIGN "Formulas".  It is computed when read from
the stored value and its time, so nothing is ever rewritten just because time passes.  Pinned memories do not cool.
"""

from datetime import datetime, timedelta

from memory_service.settings import Heat


def heat_at(stored: float, stored_at: datetime | None, now: datetime, numbers: Heat, *, pinned: bool = False) -> float:
    """The heat at `now`; a clock that runs behind the stored time does not heat anything up."""
    if pinned or stored_at is None:
        return stored
    periods = max((now - stored_at) / timedelta(days=numbers.decay_days), 0.0)
    return float(stored * numbers.decay**periods)
