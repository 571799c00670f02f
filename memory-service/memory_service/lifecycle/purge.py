"""What is done with what has outlived its time?  The job `purge`.

Memories past `expires_at` are gone from every answer already; here they are erased like by DELETE, with vectors, versions and copies.
Lessons that quote what is erased go too, or lose the quotation.  Kept answers, logs and runs past their keeping are removed.
Ids of erased memories are kept for ever: they refuse a return.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from memory_service.lifecycle.families import Families
from memory_service.lifecycle.report import JobItem, JobReport, JobRun
from memory_service.settings import Section
from memory_service.stores.postgres import lesson_sources, purging
from memory_service.stores.postgres.pool import Connection, Postgres


class PurgeNumbers(Section):
    """[purge] of memory.toml."""

    batch_rows: int
    retrievals_days: float
    task_runs_days: float
    job_runs_days: float


class Purge:
    """`run` removes in batches, one transaction each."""

    def __init__(
        self,
        postgres: Postgres,
        families: Families,
        numbers: PurgeNumbers,
        idempotency_hours: int,
        nudge: Callable[[], None],
    ) -> None:
        self._postgres = postgres
        self._families = families
        self._numbers = numbers
        self._nudge = nudge
        self._keep = {
            "idempotency_keys": timedelta(hours=idempotency_hours),
            "retrievals": timedelta(days=numbers.retrievals_days),
            "task_runs": timedelta(days=numbers.task_runs_days),
            "job_runs": timedelta(days=numbers.job_runs_days),
        }

    async def run(self, run: JobRun) -> JobReport:
        """Done: memories erased; rows of each log are in the counts.  Raises StoreUnavailable."""
        done, items = await (self._expired(run) if run.dry_run else self._erase(run))
        lessons = await self._quoting(run)
        counts = {name: await self._aged(run, name, run.now - keep) for name, keep in self._keep.items()}
        return JobReport(done, items, {"memories": done, "lessons": lessons, **counts})

    async def _expired(self, run: JobRun) -> tuple[int, list[JobItem]]:
        found = await self._postgres.read(lambda c: purging.expired(c, run.tenant, run.now, run.items_max))
        count = await self._postgres.read(lambda c: purging.expired_count(c, run.tenant, run.now))
        return count, [JobItem(one, user, _why(end)) for one, user, end in found]

    async def _erase(self, run: JobRun) -> tuple[int, list[JobItem]]:
        async def work(connection: Connection) -> list[JobItem]:
            """Found under a lock, so one whose end was moved meanwhile stays."""
            found = await purging.expired(connection, run.tenant, run.now, self._numbers.batch_rows, lock=True)
            await self._families.erase(connection, run.tenant, [one for one, _, _ in found])
            return [JobItem(one, user, _why(end)) for one, user, end in found]

        done = 0
        items: list[JobItem] = []
        while gone := await self._postgres.transaction(work):
            done += len(gone)
            items += gone[: run.items_max - len(items)]
            self._nudge()
        return done, items

    async def _quoting(self, run: JobRun) -> int:
        """Lessons that an earlier version of this software left when it erased what they quote."""
        size, total = self._numbers.batch_rows, 0
        if run.dry_run:
            return await self._postgres.read(lambda c: lesson_sources.quoting_erased_count(c, run.tenant))
        while gone := await self._postgres.transaction(lambda c: self._families.unquote(c, run.tenant, size)):
            total += len(gone)
            self._nudge()
        return total

    async def _aged(self, run: JobRun, name: str, before: datetime) -> int:
        if run.dry_run:
            return await self._postgres.read(lambda c: purging.aged_count(c, name, run.tenant, before))
        size, total = self._numbers.batch_rows, 0
        while True:
            gone = await self._postgres.transaction(lambda c: purging.delete_aged(c, name, run.tenant, before, size))
            total += gone
            if gone < size:
                return total


def _why(end: datetime) -> str:
    return f"expired {end:%Y-%m-%d %H:%M} UTC"
