"""Routes of experiences: write, distil, query, list, read, change, erase."""

from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Query, Request, Response

from memory_service.access import require_user
from memory_service.api import cursors
from memory_service.api.answers import Answer, once, reply
from memory_service.api.body import read_body
from memory_service.api.contract import ContractRoute, takes
from memory_service.api.dependencies import Reader, Services, Writer, note
from memory_service.api.experience_schemas import (
    DistillRun,
    ExperienceFeedback,
    PatchExperience,
    QueryExperiences,
    WriteExperience,
)
from memory_service.api.fields import Identifier, Label
from memory_service.api.memories import path_id, user_ids, version_of
from memory_service.bootstrap import Runtime
from memory_service.domain import Caller, Experience, ExperienceStatus, Json
from memory_service.errors import InvalidFields, TooLarge
from memory_service.experience.drafts import Advised, Distilled, ExperienceQuery, Judged, Stored
from memory_service.experience.review import Review
from memory_service.experience.scenario import scenario_of
from memory_service.shapes import experience_json
from memory_service.stores.postgres.experiences import ExperienceFilter
from memory_service.timestamps import time_text

router = APIRouter(prefix="/v1/experiences", route_class=ContractRoute, tags=["experiences"])
PAGE_START = datetime(1970, 1, 1, tzinfo=UTC)


@router.post("", status_code=201, openapi_extra=takes(WriteExperience))
async def write(request: Request, services: Services, caller: Writer) -> Response:
    """Write one lesson by hand."""
    body = await read_body(request, WriteExperience, services.tunables.limits)
    require_user(caller, body.user_id)
    check_texts(services, body.action, body.avoid, body.rationale)
    note(request, user_id=body.user_id)
    return await once(
        request,
        services,
        caller,
        lambda record: services.experiences.write(caller, body.lesson(), record),
        lambda stored: Answer(201, stored_json(services, stored), ids_of([stored])),
    )


@router.post("/distill", openapi_extra=takes(DistillRun))
async def distill(request: Request, services: Services, caller: Writer) -> Response:
    """Review a finished run and store what it teaches."""
    body = await read_body(request, DistillRun, services.tunables.limits)
    require_user(caller, body.user_id)
    note(request, user_id=body.user_id)
    return await once(
        request,
        services,
        caller,
        lambda record: services.experiences.distill(
            caller, body.user_id, body.trajectory.run(), record, force=body.force, agent_id=body.agent_id
        ),
        lambda distilled: Answer(200, distilled_json(services, distilled), ids_of(distilled.stored)),
    )


@router.post("/query", openapi_extra=takes(QueryExperiences))
async def query(request: Request, services: Services, caller: Reader) -> Response:
    """Find the lessons that apply: by conditions first, by meaning second."""
    body = await read_body(request, QueryExperiences, services.tunables.limits)
    require_user(caller, body.user_id)
    answer = await services.ask_experiences(experience_query(body, caller, services))
    ids = [str(result.experience.id) for result in answer.results]
    note(request, user_id=body.user_id, ids=ids, degraded=answer.degraded)
    results = [advised_json(services, result, explain=body.explain) for result in answer.results]
    return reply({"results": results, "degraded": answer.degraded})


@router.get("")
async def list_experiences(
    request: Request,
    services: Services,
    caller: Reader,
    user_id: Annotated[Identifier, Query()],
    limit: Annotated[int | None, Query(ge=1, le=100)] = None,
    top_k: Annotated[int | None, Query(ge=1, le=100, description="alias of limit")] = None,
    cursor: Annotated[str | None, Query(max_length=512)] = None,
    status: Annotated[list[ExperienceStatus] | None, Query()] = None,
    task_type: Annotated[Label | None, Query()] = None,
    tags: Annotated[list[Label] | None, Query()] = None,
    include_shared: Annotated[bool, Query()] = False,
) -> Response:
    """List lessons, newest first; active ones unless `status` says otherwise."""
    require_user(caller, user_id)
    note(request, user_id=user_id)
    statuses = tuple(dict.fromkeys(status or ("active",)))
    users = user_ids(user_id, include_shared)
    chosen = ExperienceFilter(caller.tenant, users, statuses, task_type, tuple(dict.fromkeys(tags or ())))
    return reply(await listed(services, chosen, limit or top_k or services.tunables.limits.page_items_default, cursor))


@router.get("/{experience_id}")
async def read(request: Request, experience_id: str, services: Services, caller: Reader) -> Response:
    """One lesson."""
    found = await services.experiences.get(caller, path_id(experience_id))
    note(request, user_id=found.user_id, ids=[str(found.id)])
    return reply(shown(services, found))


@router.patch("/{experience_id}", openapi_extra=takes(PatchExperience))
async def change(
    request: Request,
    experience_id: str,
    services: Services,
    caller: Writer,
    if_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Change only what is named; `status` retires a lesson or brings it back."""
    body = await read_body(request, PatchExperience, services.tunables.limits)
    check_texts(services, body.action, body.avoid, body.rationale)
    changes = patch_changes(body)
    after = await services.experiences.patch(caller, path_id(experience_id), changes, version_of(if_match))
    note(request, user_id=after.user_id, ids=[str(after.id)])
    return reply(shown(services, after))


@router.delete("/{experience_id}", status_code=204)
async def erase(request: Request, experience_id: str, services: Services, caller: Writer) -> Response:
    """Erase one lesson everywhere."""
    gone = await services.experiences.delete(caller, path_id(experience_id))
    note(request, user_id=gone.user_id, ids=[str(gone.id)])
    return Response(status_code=204)


@router.post("/{experience_id}/feedback", openapi_extra=takes(ExperienceFeedback))
async def feedback(request: Request, experience_id: str, services: Services, caller: Writer) -> Response:
    """It was used, and the task went so: confidence moves, once for each task."""
    body = await read_body(request, ExperienceFeedback, services.tunables.limits)
    one, succeeded = path_id(experience_id), body.outcome == "success"
    return await once(
        request,
        services,
        caller,
        lambda record: services.experiences.judge(caller, one, succeeded, body.task_id, record),
        lambda told: Answer(200, judged_json(services, told), (told.experience.id,)),
    )


@router.get("/{experience_id}/history")
async def history(
    request: Request,
    experience_id: str,
    services: Services,
    caller: Reader,
    limit: Annotated[int | None, Query(ge=1, le=100)] = None,
    top_k: Annotated[int | None, Query(ge=1, le=100, description="alias of limit")] = None,
    cursor: Annotated[str | None, Query(max_length=512)] = None,
) -> Response:
    """What it was, newest version first."""
    size = limit or top_k or services.tunables.limits.page_items_default
    return reply(await history_page(services, caller, path_id(experience_id), size, cursor))


@router.get("/{experience_id}/test-case")
async def test_case(request: Request, experience_id: str, services: Services, caller: Reader) -> Response:
    """The lesson as given, when, then."""
    found = await services.experiences.get(caller, path_id(experience_id))
    note(request, user_id=found.user_id, ids=[str(found.id)])
    return reply(scenario_of(found))


# What the routes share.


def shown(services: Runtime, experience: Experience) -> Json:
    """The experience object of API.md, with its confidence as of now beside the stored one."""
    return experience_json(experience, services.experiences.effective_confidence(experience))


def stored_json(services: Runtime, stored: Stored) -> Json:
    """`{status, reason?, experience}`"""
    reason = {"reason": stored.reason} if stored.reason else {}
    experience = stored.refused if stored.experience is None else shown(services, stored.experience)
    return {"status": stored.status, **reason, "experience": experience}


def judged_json(services: Runtime, told: Judged) -> Json:
    """`{experience, repeated?}`"""
    repeated = {"repeated": True} if told.repeated else {}
    return {"experience": shown(services, told.experience), **repeated}


def ids_of(stored: Any) -> tuple[UUID, ...]:
    return tuple(one.experience.id for one in stored if one.experience is not None)


def distilled_json(services: Runtime, distilled: Distilled) -> Json:
    """`reason` says why the rules stood alone although a language model was asked."""
    lessons = [stored_json(services, one) for one in distilled.stored]
    reason = {"reason": distilled.reason} if distilled.reason else {}
    review = review_json(distilled.review)
    return {"review": review, "distilled_by": distilled.by, **reason, "experiences": lessons}


def review_json(review: Review) -> Json:
    """`baseline` is what such a run usually takes; `baseline.runs` is how many runs it stands on, 0 for the settings."""
    usual = review.baseline.effort
    return {
        "steps": review.steps,
        "tool_calls": review.tool_calls,
        "repeated_calls": review.repeated_calls,
        "near_repeats": review.near_repeats,
        "failed_calls": review.failed_calls,
        "retries": review.retries,
        "baseline": {
            "runs": review.baseline.runs,
            "steps": usual.steps,
            "tool_calls": usual.tool_calls,
            "repeated_calls": usual.repeated_calls,
            "duration_ms": usual.duration_ms,
        },
        "score": round(review.score, 6),
        "worth_reviewing": review.worth_reviewing,
        "reasons": list(review.reasons),
    }


def advised_json(services: Runtime, result: Advised, *, explain: bool) -> Json:
    """The experience's fields and how it was found; with `explain` also what the state contradicts and each lane's score."""
    found = {
        **experience_json(result.experience, result.confidence),
        "match": result.match,
        "matched": list(result.matched),
        "missing": list(result.missing),
        "score": round(result.score, 6),
    }
    if explain:
        found["score_details"] = {"failed": list(result.failed), "lanes": dict(result.lanes)}
    return found


def experience_query(body: QueryExperiences, caller: Caller, services: Runtime) -> ExperienceQuery:
    """The query as the service understands it.  Raises InvalidFields when it asks for nothing."""
    if body.state is None and body.conditions is None and body.semantic_query is None:
        raise InvalidFields.of("body", "needs state, conditions or semantic_query")
    return ExperienceQuery(
        tenant=caller.tenant,
        user_ids=user_ids(body.user_id, body.include_shared),
        now=services.clock(),
        limit=body.limit,
        state=body.state,
        conditions=body.conditions,
        semantic_query=body.semantic_query,
        task_type=body.task_type,
        tags=tuple(body.tags or ()),
        min_confidence=body.min_confidence,
    )


def check_texts(services: Runtime, action: str | None, avoid: str | None, rationale: str | None) -> None:
    """Raises TooLarge: a lesson is read in a prompt."""
    most = services.experiences.text_chars_max
    for name, text in (("action", action), ("avoid", avoid), ("rationale", rationale)):
        if text is not None and len(text) > most:
            raise TooLarge(f"{name}: above {most} characters")


def patch_changes(body: PatchExperience) -> dict[str, Any]:
    try:
        changes = body.changes()
    except ValueError as error:
        raise InvalidFields.of(str(error), "can't be cleared") from None
    if not changes:
        raise InvalidFields.of("body", "names no field to change")
    return changes


async def listed(services: Runtime, chosen: ExperienceFilter, limit: int, cursor: str | None) -> Json:
    """One page of experiences."""
    scope = ["experiences", chosen.tenant, chosen.user_ids, sorted(chosen.statuses), chosen.task_type, chosen.tags]
    after = cursors.decode(cursor, scope) if cursor is not None else None
    rows, total = await services.experiences.page(chosen, after, limit + 1)
    page = rows[:limit]
    last = cursors.encode((page[-1].created_at, page[-1].id), scope) if len(rows) > limit else None
    return {"items": [shown(services, one) for one in page], "next_cursor": last, "total": total}


async def history_page(services: Runtime, caller: Caller, experience_id: UUID, limit: int, cursor: str | None) -> Json:
    """One page of versions.  The cursor's position is a version, written as a UUID, which is what cursors carry."""
    scope = ["experience history", caller.tenant, str(experience_id)]
    below = cursors.decode(cursor, scope)[1].int if cursor is not None else None
    page = await services.experiences.history(caller, experience_id, below, limit + 1)
    rows = page.items[:limit]
    more = len(page.items) > limit
    items = [
        {
            "version": row.version,
            "at": time_text(row.at),
            "actor": row.actor,
            "cause": row.cause,
            "task_id": row.task_id,
            "changes": row.changes,
            "experience": row.snapshot,
        }
        for row in rows
    ]
    last = cursors.encode((PAGE_START, UUID(int=rows[-1].version)), scope) if more else None
    return {"items": items, "next_cursor": last, "total": page.total}
