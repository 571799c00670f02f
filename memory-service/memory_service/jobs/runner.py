"""How is one job run, for one tenant or for all, so that nobody else runs it at the same time and everybody learns how it went?

Locks belong to a session of their own: `job` for a scheduled run as a whole, `job/tenant` for the work on one tenant, which a
run by hand takes too.  So one tenant's long run by hand holds up no other tenant.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

from memory_service.domain import Clock, new_id
from memory_service.errors import Conflict, HindsightError, JobOverran, SetupRefused, StoreUnavailable
from memory_service.jobs.job import Job, JobNumbers
from memory_service.jobs.timing import Past, Timing, wanted
from memory_service.lifecycle.report import JobReport, JobRun
from memory_service.metrics import JOB_DONE, JOB_RUNS, JOB_SECONDS
from memory_service.stores.postgres import job_runs, locks, tenants
from memory_service.stores.postgres.job_runs import RunRow, StartedBy
from memory_service.stores.postgres.locks import Locks
from memory_service.stores.postgres.pool import Connection, Postgres

log = logging.getLogger(__name__)
# Commits something of the caller's (the idempotent answer) together with the end of the run.
Record = Callable[[Connection, Any], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Finished:
    """A run and what it told; after a failure the report is empty and `row.error` says why."""

    row: RunRow
    report: JobReport
    error: Exception | None = None


class JobRunner:
    """`run_due` for the schedule, `run_for` by hand."""

    def __init__(self, postgres: Postgres, numbers: JobNumbers, clock: Clock) -> None:
        self._postgres = postgres
        self._numbers = numbers
        self._clock = clock

    async def run_due(self, job: Job) -> bool:
        """Run the job for all tenants if it is due and nobody else does.  True when it was run, well or not.

        Raises StoreUnavailable when Postgres can't be asked.
        """
        if job.timing is None or not await self._wanted(job, job.timing):
            return False
        async with locks.session(self._postgres) as held:
            if not await held.take(job.name):
                return False
            if not await self._wanted(job, job.timing):  # somebody ran it between the question and the lock
                return False
            # What died counts as a failure from now on, not before: it is taken over at once, and when the next one dies
            # too, the job itself may be what kills its process, so that one pauses.
            now = self._clock()
            await self._postgres.transaction(lambda c: job_runs.close_interrupted(c, job.name, None, now))
            await self._run_all(job, job.timing.latest(now), now, held)
        return True

    async def run_for(
        self, job: Job, tenant: str, *, dry_run: bool, started_by: StartedBy, record: Record | None = None
    ) -> Finished:
        """Run it now for one tenant.  Raises Conflict while another run of it works on this tenant, and what the job raises."""
        row = RunRow(new_id(), job.name, tenant, started_by, dry_run, self._clock())
        if dry_run:
            return await self._by_hand(job, row, record)
        async with locks.session(self._postgres) as held:
            if not await held.take(f"{job.name}/{tenant}"):
                raise Conflict(f"{job.name} is running already", retry_after_s=5)
            await self._postgres.transaction(lambda c: job_runs.close_interrupted(c, job.name, tenant, row.started_at))
            return await self._by_hand(job, row, record)

    async def _by_hand(self, job: Job, row: RunRow, record: Record | None) -> Finished:
        await self._postgres.transaction(lambda c: job_runs.begin(c, row))
        finished = await self._attempt(job, row)

        async def end(connection: Connection) -> None:
            await job_runs.finish(connection, finished.row, self._numbers.runs_kept_max)
            if record is not None and finished.error is None:
                await record(connection, finished)

        await self._postgres.transaction(end)
        if isinstance(finished.error, SetupRefused):
            raise Conflict(str(finished.error)) from finished.error
        if finished.error is not None:
            raise finished.error
        return finished

    async def _run_all(self, job: Job, due_at: datetime, now: datetime, held: Locks) -> None:
        """All tenants, one after the other; a store that is down ends the run, whatever else fails only its tenant's part."""
        whole = RunRow(new_id(), job.name, None, "schedule", dry_run=False, started_at=now, due_at=due_at)
        await self._postgres.transaction(lambda c: job_runs.begin(c, whole))
        started, done, counts = monotonic(), 0, dict[str, int]()
        errors: list[str] = []
        try:
            for tenant in await self.tenants(job):
                part = await self._part(job, tenant, whole, held)
                if part is None:
                    continue
                done, counts = done + part.row.done, _added(counts, part.row.counts)
                errors += [part.row.error] if part.row.error else []
                if isinstance(part.error, StoreUnavailable):
                    break
        except HindsightError as refused:  # finding out whom it concerns failed
            errors.append(told(refused))
        end = replace(
            whole,
            finished_at=self._ended(now, started),
            outcome="failure" if errors else "success",
            done=done,
            counts=counts,
            error=_first_of(errors),
        )
        await self._postgres.transaction(lambda c: job_runs.finish(c, end, self._numbers.runs_kept_max))
        _measure(end, monotonic() - started)

    async def _part(self, job: Job, tenant: str, whole: RunRow, held: Locks) -> Finished | None:
        """One tenant's part; None when it is being run by hand just now."""
        name = f"{job.name}/{tenant}"
        if not await held.take(name):
            return None
        try:
            row = RunRow(
                new_id(),
                job.name,
                tenant,
                "schedule",
                dry_run=False,
                started_at=self._clock(),
                part_of=whole.id,
                due_at=whole.due_at,
            )
            finished = await self._attempt(job, row)

            async def keep(connection: Connection) -> None:
                await job_runs.close_interrupted(
                    connection, job.name, tenant, row.started_at
                )  # by hand, with its process
                await job_runs.add_part(connection, finished.row, self._numbers.runs_kept_max)

            await self._postgres.transaction(keep)
            return finished
        finally:
            await held.give_back(name)

    async def _attempt(self, job: Job, row: RunRow) -> Finished:
        """Run the job's function within its time.  Every failure but a cancelled one is told in the row."""
        assert row.tenant is not None
        started, report = monotonic(), JobReport(0)
        error: Exception | None = None
        run = JobRun(row.tenant, row.started_at, row.dry_run, self._numbers.items_max)
        try:
            async with asyncio.timeout(self._numbers.run_s_max):
                report = await job.run(run)
        except (HindsightError, SetupRefused) as refused:
            error = refused
        except TimeoutError:
            error = JobOverran(f"the job took longer than {self._numbers.run_s_max:g} s")
        except Exception as unexpected:
            log.exception("job %s failed", job.name)
            error = unexpected
        ended = replace(
            row,
            finished_at=self._ended(row.started_at, started),
            outcome="failure" if error else "success",
            done=report.done,
            counts=dict(report.counts),
            error=told(error) if error else None,
        )
        if row.part_of is None and not row.dry_run:
            _measure(ended, monotonic() - started)
        return Finished(ended, report, error)

    async def _wanted(self, job: Job, timing: Timing) -> bool:
        now = self._clock()
        found = await self._postgres.read(lambda c: job_runs.earlier(c, job.name, timing.latest(now)))
        past = Past(found.done_for, found.failures, found.failed_at)
        retry = timedelta(minutes=self._numbers.retry_minutes)
        return wanted(timing, past, now, self._numbers.attempts_max, retry)

    async def tenants(self, job: Job) -> list[str]:
        """Whom it concerns: who has rows, and whom the job itself knows of.  Raises StoreUnavailable."""
        found = set(await self._postgres.read(tenants.every))
        return sorted(found | set(await job.tenants() if job.tenants else ()))

    def _ended(self, began: datetime, started: float) -> datetime:
        """By the clock; one that stands still or was set back does not end a run before it began."""
        return max(self._clock(), began + timedelta(seconds=monotonic() - started))


def told(error: Exception) -> str:
    """What may be kept and shown: our own errors carry no secrets, of others only their kind is named."""
    if isinstance(error, HindsightError | SetupRefused):
        return str(error)
    return f"internal error ({type(error).__name__}), see the log"


def _first_of(errors: list[str]) -> str | None:
    """The first, and how many more there are."""
    if len(errors) > 1:
        return f"{errors[0]} (and {len(errors) - 1} more tenants)"
    return errors[0] if errors else None


def _added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def _measure(row: RunRow, seconds: float) -> None:
    JOB_RUNS.labels(row.job, row.outcome).inc()
    JOB_SECONDS.labels(row.job).observe(seconds)
    JOB_DONE.labels(row.job).inc(row.done)
