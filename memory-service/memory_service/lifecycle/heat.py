"""How alive is a memory?  Pure.

heat(now) = stored × decay ^ (days since it was stored / decay_days), DESIGN "Formulas".  It is computed when read from
the stored value and its time, so nothing is ever rewritten just because time passes.  Pinned memories do not cool.
"""

from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt

from memory_service.settings import Heat

Column = npt.NDArray[np.float64]


def heat_at(stored: float, stored_at: datetime | None, now: datetime, numbers: Heat, *, pinned: bool = False) -> float:
    """The heat at `now`; a clock that runs behind the stored time does not heat anything up."""
    if pinned or stored_at is None:
        return stored
    periods = max((now - stored_at) / timedelta(days=numbers.decay_days), 0.0)
    return float(stored * numbers.decay**periods)


def heats_at(stored: Column, cooled_s: Column, numbers: Heat) -> Column:
    """`heat_at` of many; `cooled_s`: seconds since each was stored, 0 for one that does not cool."""
    heats: Column = stored * numbers.decay ** (
        np.maximum(cooled_s, 0.0) / timedelta(days=numbers.decay_days).total_seconds()
    )
    return heats
