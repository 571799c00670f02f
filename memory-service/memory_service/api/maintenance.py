"""Routes of maintenance: run a job now for the caller's tenant, and see how the last runs went."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from memory_service.access import require_admin, require_unbound
from memory_service.api.answers import Answer, once, reply
from memory_service.api.contract import ContractRoute, takes
from memory_service.api.dependencies import Reader, Services, note
from memory_service.api.lifecycle import read_nothing
from memory_service.api.lifecycle_schemas import Nothing
from memory_service.api.paging import Page, page_json
from memory_service.domain import Json
from memory_service.jobs.job import Job
from memory_service.jobs.runner import Finished
from memory_service.jobs.schedule import JobStanding, summary
from memory_service.stores.postgres.job_runs import RunRow
from memory_service.timestamps import optional_time

router = APIRouter(prefix="/v1/maintenance", route_class=ContractRoute, tags=["operations"])


@router.get("")
async def last_runs(
    services: Services, caller: Reader, page: Page, job: Annotated[str | None, Query(max_length=64)] = None
) -> Response:
    """The table of jobs with each one's next and last run, and the runs on this tenant, newest first."""
    require_unbound(caller)
    scope = ["maintenance", caller.tenant, job]
    rows, total = await services.schedule.runs(caller.tenant, job, page.after(scope), page.wanted)
    jobs = [standing_json(one) for one in await services.schedule.standing(caller.tenant)]
    runs = page_json(page, scope, rows, total, lambda one: (one.started_at, one.id), run_json)
    return reply({"jobs": jobs, **runs})


@router.post("/{job}", openapi_extra=takes(Nothing, required=False))
async def run_now(
    request: Request, job: str, services: Services, caller: Reader, dry_run: Annotated[bool, Query()] = False
) -> Response:
    """Run a job now, for this tenant; with `dry_run` it tells what it would do and why, and changes nothing."""
    require_admin(caller)
    require_unbound(caller)
    await read_nothing(request, services.tunables.limits)
    found = services.schedule.job(job)
    note(request, job=found.name, dry_run=dry_run)
    return await once(
        request,
        services,
        caller,
        lambda record: services.schedule.run_now(
            found.name, caller.tenant, dry_run=dry_run, started_by="request", record=record
        ),
        lambda finished: Answer(200, report_json(found, finished), tuple(i.id for i in finished.report.items)),
    )


def report_json(job: Job, finished: Finished) -> Json:
    """A run with what it names; `summary` is a sentence for people."""
    items = [{"id": str(item.id), "user_id": item.user_id, "why": item.why} for item in finished.report.items]
    return {**run_json(finished.row), "summary": summary(job, finished), "items": items}


def run_json(row: RunRow) -> Json:
    """One run; finished_at and outcome are null while it runs."""
    took = (row.finished_at - row.started_at).total_seconds() if row.finished_at else None
    return {
        "id": str(row.id),
        "job": row.job,
        "started_by": row.started_by,
        "dry_run": row.dry_run,
        "started_at": optional_time(row.started_at),
        "finished_at": optional_time(row.finished_at),
        "duration_ms": None if took is None else round(took * 1000, 3),
        "outcome": row.outcome,
        "done": row.done,
        "counts": dict(row.counts),
        "error": row.error,
    }


def standing_json(one: JobStanding) -> Json:
    """One row of the table.  Of the scheduled run as a whole only times and outcome: its figures are about all tenants."""
    whole = one.scheduled
    return {
        "name": one.job.name,
        "schedule": one.job.timing.text if one.job.timing else None,
        "next_at": optional_time(one.next_at),
        "last_run": run_json(one.last) if one.last else None,
        "last_scheduled": {
            "started_at": optional_time(whole.started_at),
            "finished_at": optional_time(whole.finished_at),
            "outcome": whole.outcome,
        }
        if whole
        else None,
    }
