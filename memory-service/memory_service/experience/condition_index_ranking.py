"""Which matches are the best?  By share, strength, created_at, id, each descending; ids make the order total.

Finds the best n of many by partition, one key after the other, so that 100,000 equal matches are never sorted.
"""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from memory_service.experience.condition_index_postings import Numbers
from memory_service.experience.condition_index_triples import grown

LOW_64 = (1 << 64) - 1
GROWTH = 8  # how many times more are asked for when `accept` refused too many


class Ranks:
    def __init__(self) -> None:
        self._strength: NDArray[np.float64] = np.zeros(0, np.float64)
        self._created_us: NDArray[np.int64] = np.zeros(0, np.int64)
        self._id_high: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._id_low: NDArray[np.uint64] = np.zeros(0, np.uint64)

    def grow(self, capacity: int) -> None:
        self._strength, self._created_us = grown(self._strength, capacity), grown(self._created_us, capacity)
        self._id_high, self._id_low = grown(self._id_high, capacity), grown(self._id_low, capacity)

    def put(self, slot: int, strength: float, created_us: int, experience_id: UUID) -> None:
        self._strength[slot], self._created_us[slot] = strength, created_us
        self._id_high[slot], self._id_low[slot] = experience_id.int >> 64, experience_id.int & LOW_64

    def id_of(self, slot: int) -> UUID:
        return UUID(int=int(self._id_high[slot]) << 64 | int(self._id_low[slot]))

    def best(
        self,
        slots: Numbers,
        share: NDArray[np.float64] | None,
        limit: int,
        accept: Callable[[UUID], bool] | None,
        strength_min: float | None,
    ) -> list[int]:
        """At most `limit` slots, best first.  `share`, when given, is parallel to `slots`."""
        if strength_min is not None:
            strong = self._strength[slots] >= strength_min
            slots, share = slots[strong], None if share is None else share[strong]
        if limit < 1 or not len(slots):
            return []
        keys: list[NDArray[Any]] = [] if share is None else [share]
        keys += [column[slots] for column in (self._strength, self._created_us, self._id_high, self._id_low)]
        if accept is None:
            return [int(slot) for slot in slots[_best(keys, limit)]]
        accepted: list[int] = []
        asked, wanted = 0, limit
        while asked < len(slots) and len(accepted) < limit:
            for slot in slots[_best(keys, wanted)[asked:]].tolist():
                if len(accepted) < limit and accept(self.id_of(slot)):
                    accepted.append(slot)
            asked, wanted = wanted, wanted * GROWTH
        return accepted


def _best(keys: list[NDArray[Any]], limit: int) -> NDArray[np.intp]:
    """Positions of the `limit` greatest by the keys, most significant first, in descending order."""
    pool = np.arange(len(keys[0]))
    chosen: list[NDArray[np.intp]] = []
    for key in keys:
        if len(pool) <= limit:
            break
        values = key[pool]
        least = np.partition(values, len(values) - limit)[len(values) - limit]
        above = pool[values > least]
        chosen.append(above)
        pool, limit = pool[values == least], limit - len(above)
    found = np.concatenate([*chosen, pool[:limit]])
    order = np.lexsort([key[found] for key in reversed(keys)])[::-1]
    return found[order]
