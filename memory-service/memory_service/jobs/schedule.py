"""Which jobs run when, and how did they go?  The table of jobs, its clockwork, and what operators see of it.

Any number of processes may run one: whoever finds a job due first and gets its lock runs it.  Each job has a task of its
own here, so one that fails or takes long holds up no other.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from memory_service.domain import Clock
from memory_service.errors import NotFound, StoreUnavailable
from memory_service.jobs.job import Job, JobNumbers
from memory_service.jobs.runner import Finished, JobRunner, Record
from memory_service.metrics import STORE_ERRORS
from memory_service.stores.postgres import job_runs
from memory_service.stores.postgres.job_runs import RunRow, StartedBy
from memory_service.stores.postgres.pool import Postgres

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobStanding:
    """One row of the table, as a tenant sees it: `last` is its own last run, `scheduled` the last scheduled run as a whole."""

    job: Job
    next_at: datetime | None
    last: RunRow | None
    scheduled: RunRow | None


class Schedule:
    """`run` as one task per process; `tick` runs what is due now; the rest serves routes and commands."""

    def __init__(self, postgres: Postgres, jobs: Sequence[Job], numbers: JobNumbers, clock: Clock) -> None:
        self._postgres = postgres
        self._jobs = {job.name: job for job in jobs}
        self._numbers = numbers
        self._clock = clock
        self._runner = JobRunner(postgres, numbers, clock)
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        """Look every poll_s whether something is due, until stopped; what runs then is cancelled and made up for later."""
        loops = [asyncio.create_task(self._loop(job)) for job in self._jobs.values() if job.timing is not None]
        try:
            await self._stopped.wait()
        finally:
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)

    def stop(self) -> None:
        """End `run`."""
        self._stopped.set()

    async def tick(self) -> list[str]:
        """Run everything that is due, side by side; the names of what ran."""
        jobs = [job for job in self._jobs.values() if job.timing is not None]
        ran = await asyncio.gather(*(self._guarded(job) for job in jobs))
        return [job.name for job, done in zip(jobs, ran, strict=True) if done]

    async def run_now(
        self, name: str, tenant: str, *, dry_run: bool, started_by: StartedBy, record: Record | None = None
    ) -> Finished:
        """One job for one tenant.  Raises NotFound naming the jobs, Conflict while it runs already, and what the job raises."""
        return await self._runner.run_for(self.job(name), tenant, dry_run=dry_run, started_by=started_by, record=record)

    def job(self, name: str) -> Job:
        """Raises NotFound, which names the jobs that there are."""
        if name not in self._jobs:
            raise NotFound(f"there is no such job; there are {', '.join(sorted(self._jobs))}")
        return self._jobs[name]

    async def tenants(self, job: Job) -> list[str]:
        """Whom the job concerns.  Raises StoreUnavailable."""
        return await self._runner.tenants(job)

    async def standing(self, tenant: str) -> list[JobStanding]:
        """The table, and how each job last went."""
        found = []
        for job in self._jobs.values():
            last = await self._postgres.read(lambda c, name=job.name: job_runs.last_of(c, tenant, name))  # type: ignore[misc]
            whole = await self._postgres.read(lambda c, name=job.name: job_runs.last_scheduled(c, name))  # type: ignore[misc]
            following = job.timing.following(self._clock()) if job.timing else None
            found.append(JobStanding(job, following, last, whole))
        return found

    async def runs(
        self, tenant: str, name: str | None, after: tuple[datetime, UUID] | None, limit: int
    ) -> tuple[list[RunRow], int]:
        """A tenant's runs, newest first; of one job when `name` is given.  Raises NotFound for an unknown one."""
        if name is not None:
            self.job(name)
        return await self._postgres.read(lambda c: job_runs.page(c, tenant, name, after, limit))

    async def _loop(self, job: Job) -> None:
        while True:
            await asyncio.sleep(self._numbers.poll_s)
            await self._guarded(job)

    async def _guarded(self, job: Job) -> bool:
        """Nothing that happens in one job ends the clockwork."""
        try:
            return await self._runner.run_due(job)
        except StoreUnavailable as error:
            STORE_ERRORS.labels(error.store).inc()
            log.warning("job %s waits: %s", job.name, error)
        except Exception:
            log.exception("job %s could not be run", job.name)
        return False


def summary(job: Job, finished: Finished) -> str:
    """`would archive 12: heat 0.27 is below 0.3`, with the first reason; `archived 12: …`; `nothing to archive`."""
    if not finished.row.done:
        return f"nothing to {job.verb}"
    done = f"would {job.verb} {finished.row.done}" if finished.row.dry_run else f"{job.past} {finished.row.done}"
    first = finished.report.items[:1]
    return f"{done}: {first[0].why}" if first else done
