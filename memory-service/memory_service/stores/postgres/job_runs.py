"""Which maintenance jobs ran, for whom and how did they end?  Rows of job_run; figures only, no contents and no ids.

A scheduled run has one row for the whole (tenant NULL) and one for each tenant (`part_of`); a run by hand has one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal
from uuid import UUID

from psycopg.types.json import Jsonb

from memory_service.stores.postgres.pool import Connection, execute, fetch_all, fetch_one

Outcome = Literal["success", "failure"]
StartedBy = Literal["schedule", "request", "command"]
INTERRUPTED = "interrupted: its process ended while it ran"
COLUMNS = "id, job, tenant, started_by, dry_run, started_at, part_of, due_at, finished_at, outcome, done, result, error"


@dataclass(frozen=True, slots=True)
class RunRow:
    """One row; finished_at and outcome are None while it runs."""

    id: UUID
    job: str
    tenant: str | None
    started_by: StartedBy
    dry_run: bool
    started_at: datetime
    part_of: UUID | None = None
    due_at: datetime | None = None
    finished_at: datetime | None = None
    outcome: Outcome | None = None
    done: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Earlier:
    """Scheduled runs so far: the scheduled time of the last good one; what failed for the present one, and when last."""

    done_for: datetime | None
    failures: int
    failed_at: datetime | None


async def begin(connection: Connection, run: RunRow) -> None:
    await _insert(connection, run)


async def finish(connection: Connection, run: RunRow, kept_max: int) -> None:
    """The run ended.  Of its job and tenant only the newest `kept_max` rows stay."""
    await execute(
        connection,
        """UPDATE job_run SET finished_at = %(at)s, outcome = %(outcome)s, done = %(done)s, result = %(result)s, error = %(error)s
           WHERE id = %(id)s""",
        {"id": run.id, "at": run.finished_at, "outcome": run.outcome, "done": run.done,
         "result": Jsonb(dict(run.counts)), "error": run.error},
    )  # fmt: skip
    await _trim(connection, run, kept_max)


async def add_part(connection: Connection, run: RunRow, kept_max: int) -> None:
    """One tenant's part of a scheduled run, when it has ended.  Of those in which nothing happened only the newest stays."""
    await _insert(connection, run)
    await execute(
        connection,
        """DELETE FROM job_run WHERE tenant = %(tenant)s AND job = %(job)s AND id <> %(id)s AND part_of IS NOT NULL
           AND done = 0 AND outcome = 'success'""",
        {"tenant": run.tenant, "job": run.job, "id": run.id},
    )
    await _trim(connection, run, kept_max)


async def earlier(connection: Connection, job: str, due_at: datetime) -> Earlier:
    """What is known of the scheduled runs of a job before the one for `due_at`."""
    row = await fetch_one(
        connection,
        """SELECT max(due_at) FILTER (WHERE outcome = 'success'),
                  count(*) FILTER (WHERE outcome = 'failure' AND due_at = %(due)s),
                  max(finished_at) FILTER (WHERE outcome = 'failure' AND due_at = %(due)s)
           FROM job_run WHERE job = %(job)s AND tenant IS NULL""",
        {"job": job, "due": due_at},
    )
    return Earlier(*row) if row else Earlier(None, 0, None)


async def close_interrupted(connection: Connection, job: str, tenant: str | None, now: datetime) -> int:
    """Call it with the job's lock in hand: what still looks as if it ran, died.  How many."""
    whose = "tenant IS NULL" if tenant is None else "tenant = %(tenant)s AND NOT dry_run"
    return await execute(
        connection,
        f"""UPDATE job_run SET finished_at = %(now)s, outcome = 'failure', error = %(error)s
            WHERE job = %(job)s AND {whose} AND finished_at IS NULL""",
        {"job": job, "tenant": tenant, "now": now, "error": INTERRUPTED},
    )


async def page(
    connection: Connection, tenant: str, job: str | None, after: tuple[datetime, UUID] | None, limit: int
) -> tuple[list[RunRow], int]:
    """A tenant's runs, newest first, beginning after `after`; and how many there are in all."""
    where = "tenant = %(tenant)s AND (%(job)s::text IS NULL OR job = %(job)s)"
    position = "AND (started_at, id) < (%(at)s, %(id)s)" if after else ""
    at, one = after or (None, None)
    parameters = {"tenant": tenant, "job": job, "at": at, "id": one, "limit": limit}
    rows = await fetch_all(
        connection,
        f"SELECT {COLUMNS} FROM job_run WHERE {where} {position} ORDER BY started_at DESC, id DESC LIMIT %(limit)s",
        parameters,
    )
    total = await fetch_one(connection, f"SELECT count(*) FROM job_run WHERE {where}", parameters)
    return [RunRow(*row) for row in rows], total[0] if total else 0


async def last_of(connection: Connection, tenant: str, job: str) -> RunRow | None:
    """A tenant's last run of a job that was no dry run and has ended."""
    row = await fetch_one(
        connection,
        f"""SELECT {COLUMNS} FROM job_run WHERE tenant = %(tenant)s AND job = %(job)s AND NOT dry_run AND outcome IS NOT NULL
            ORDER BY started_at DESC LIMIT 1""",
        {"tenant": tenant, "job": job},
    )
    return RunRow(*row) if row else None


async def last_scheduled(connection: Connection, job: str) -> RunRow | None:
    """The last scheduled run as a whole; its figures are about all tenants."""
    row = await fetch_one(
        connection,
        f"SELECT {COLUMNS} FROM job_run WHERE job = %(job)s AND tenant IS NULL ORDER BY started_at DESC LIMIT 1",
        {"job": job},
    )
    return RunRow(*row) if row else None


async def last_successes(connection: Connection) -> dict[str, datetime]:
    """When each job last ended well, on schedule."""
    rows = await fetch_all(
        connection,
        "SELECT job, max(finished_at) FROM job_run WHERE tenant IS NULL AND outcome = 'success' GROUP BY job",
    )
    return dict(rows)


async def _insert(connection: Connection, run: RunRow) -> None:
    await execute(
        connection,
        f"""INSERT INTO job_run ({COLUMNS}) VALUES (%(id)s, %(job)s, %(tenant)s, %(by)s, %(dry)s, %(started)s, %(part_of)s,
               %(due)s, %(finished)s, %(outcome)s, %(done)s, %(result)s, %(error)s)""",
        {"id": run.id, "job": run.job, "tenant": run.tenant, "by": run.started_by, "dry": run.dry_run, "started": run.started_at,
         "part_of": run.part_of, "due": run.due_at, "finished": run.finished_at, "outcome": run.outcome, "done": run.done,
         "result": Jsonb(dict(run.counts)), "error": run.error},
    )  # fmt: skip


async def _trim(connection: Connection, run: RunRow, kept_max: int) -> None:
    whose = "tenant IS NULL" if run.tenant is None else "tenant = %(tenant)s"
    await execute(
        connection,
        f"""DELETE FROM job_run WHERE id IN (SELECT id FROM job_run WHERE job = %(job)s AND {whose}
                AND finished_at IS NOT NULL ORDER BY started_at DESC OFFSET %(kept)s)""",
        {"job": run.job, "tenant": run.tenant, "kept": kept_max},
    )
