"""Which memories have grown cold, and what becomes of them?  The job `decay`.

Heat is computed when read, so nothing is rewritten because time passes: only memories that fall below `cold_below` are
touched, and they go where `archive` sends them.  What is pinned, or waits in an open conflict, stays.
"""

from collections.abc import Callable
from datetime import datetime
from uuid import UUID

from memory_service.domain import Memory
from memory_service.lifecycle.ageing import archived
from memory_service.lifecycle.heat import heat_at
from memory_service.lifecycle.report import JobItem, JobReport, JobRun
from memory_service.settings import Heat, Section
from memory_service.shapes import memory_json
from memory_service.stores.postgres import changes, cooling, memories
from memory_service.stores.postgres.pool import Connection, Postgres
from memory_service.write.drafts import differences

ACTOR, CAUSE = "job:decay", "decay"
SECONDS_A_DAY = 86_400


class CoolingNumbers(Section):
    """[cooling] of memory.toml."""

    batch_rows: int


class Cooling:
    """`run` archives what has cooled; batches of `batch_rows`, one transaction each."""

    def __init__(self, postgres: Postgres, heat: Heat, numbers: CoolingNumbers, nudge: Callable[[], None]) -> None:
        self._postgres = postgres
        self._heat = heat
        self._batch_rows = numbers.batch_rows
        self._nudge = nudge

    async def run(self, run: JobRun) -> JobReport:
        """Done: memories that are cold now.  Raises StoreUnavailable."""
        if not 0 < self._heat.decay < 1 or self._heat.cold_below <= 0:
            return JobReport(0)  # nothing cools
        asked = (run.tenant, run.now, self._heat.cold_below, self._heat.decay, self._heat.decay_days * SECONDS_A_DAY)
        if run.dry_run:
            found = await self._postgres.read(lambda c: cooling.cooled(c, *asked, run.items_max))
            items = [JobItem(one.id, one.user_id, self._why(one.warmth)) for one in found]
            return JobReport(await self._postgres.read(lambda c: cooling.cooled_count(c, *asked)), items)
        done, items = 0, []
        while True:
            found = await self._postgres.read(lambda c: cooling.cooled(c, *asked, self._batch_rows))
            ids = [one.id for one in found]
            moved = await self._postgres.transaction(lambda c, ids=ids: self._archive(c, run, ids)) if ids else []  # type: ignore[misc]
            done += len(moved)
            items += moved[: run.items_max - len(items)]
            if not moved:  # the last ones, or others changed all of these meanwhile: the next run looks again
                return JobReport(done, items)
            self._nudge()

    async def _archive(self, connection: Connection, run: JobRun, ids: list[UUID]) -> list[JobItem]:
        """Those that are still to be archived now that they are locked."""
        moved = []
        for memory in await memories.get_many(connection, run.tenant, ids, lock=True):
            if not cools_down(memory, run.now, self._heat):
                continue
            after = archived(memory, run.now)
            snapshot, changed = memory_json(memory), differences(memory, after)
            await changes.keep_version(
                connection, memory, snapshot, changed, actor=ACTOR, cause=CAUSE, at=after.updated_at
            )
            await changes.save_state(connection, after)
            moved.append(JobItem(memory.id, memory.user_id, self._why(_warmth(memory, run.now, self._heat))))
        return moved

    def _why(self, warmth: float) -> str:
        return f"heat {warmth:.2f} is below {self._heat.cold_below:g}"


def cools_down(memory: Memory, now: datetime, heat: Heat) -> bool:
    """Is it to leave normal search?  One that waits for a person to decide, or is past its end, is left alone."""
    if memory.state != "active" or memory.pinned or memory.conflict_id is not None or memory.expired(now):
        return False
    return _warmth(memory, now, heat) < heat.cold_below


def _warmth(memory: Memory, now: datetime, heat: Heat) -> float:
    return heat_at(memory.heat, memory.heat_at, now, heat, pinned=memory.pinned)
