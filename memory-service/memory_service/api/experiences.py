"""Routes of experiences: write, distil, query, list, read, change, erase."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from memory_service.access import require_user
from memory_service.api.answers import Answer, once, reply
from memory_service.api.body import read_body
from memory_service.api.contract import ContractRoute, takes
from memory_service.api.dependencies import Reader, Services, Writer, note
from memory_service.api.experience_answers import (
    advised_json,
    distilled_json,
    ids_of,
    judged_json,
    shown,
    stored_json,
    version_json,
)
from memory_service.api.experience_schemas import (
    DistillRun,
    ExperienceFeedback,
    PatchExperience,
    QueryExperiences,
    WriteExperience,
)
from memory_service.api.fields import Identifier, Label
from memory_service.api.paging import Page, Paging, page_json, version_position
from memory_service.api.targets import ExperienceId, IfMatch, user_ids
from memory_service.bootstrap import Runtime
from memory_service.domain import Caller, ExperienceStatus, Json
from memory_service.errors import InvalidFields, TooLarge
from memory_service.experience.drafts import ExperienceQuery
from memory_service.experience.scenario import scenario_of
from memory_service.stores.postgres.experiences import ExperienceFilter

router = APIRouter(prefix="/v1/experiences", route_class=ContractRoute, tags=["experiences"])


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
    page: Page,
    user_id: Annotated[Identifier, Query()],
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
    return reply(await listed(services, chosen, page))


@router.get("/{experience_id}")
async def read(request: Request, services: Services, caller: Reader, experience_id: ExperienceId) -> Response:
    """One lesson."""
    found = await services.experiences.get(caller, experience_id)
    note(request, user_id=found.user_id, ids=[str(found.id)])
    return reply(shown(services, found))


@router.patch("/{experience_id}", openapi_extra=takes(PatchExperience))
async def change(
    request: Request, services: Services, caller: Writer, experience_id: ExperienceId, expected: IfMatch
) -> Response:
    """Change only what is named; `status` retires a lesson or brings it back."""
    body = await read_body(request, PatchExperience, services.tunables.limits)
    check_texts(services, body.action, body.avoid, body.rationale)
    after = await services.experiences.patch(caller, experience_id, patch_changes(body), expected)
    note(request, user_id=after.user_id, ids=[str(after.id)])
    return reply(shown(services, after))


@router.delete("/{experience_id}", status_code=204)
async def erase(request: Request, services: Services, caller: Writer, experience_id: ExperienceId) -> Response:
    """Erase one lesson everywhere."""
    gone = await services.experiences.delete(caller, experience_id)
    note(request, user_id=gone.user_id, ids=[str(gone.id)])
    return Response(status_code=204)


@router.post("/{experience_id}/feedback", openapi_extra=takes(ExperienceFeedback))
async def feedback(request: Request, services: Services, caller: Writer, experience_id: ExperienceId) -> Response:
    """It was used, and the task went so: confidence moves, once for each task."""
    body = await read_body(request, ExperienceFeedback, services.tunables.limits)
    succeeded = body.outcome == "success"
    return await once(
        request,
        services,
        caller,
        lambda record: services.experiences.judge(caller, experience_id, succeeded, body.task_id, record),
        lambda told: Answer(200, judged_json(services, told), (told.experience.id,)),
    )


@router.get("/{experience_id}/history")
async def history(services: Services, caller: Reader, experience_id: ExperienceId, page: Page) -> Response:
    """What it was, newest version first."""
    return reply(await history_page(services, caller, experience_id, page))


@router.get("/{experience_id}/test-case")
async def test_case(request: Request, services: Services, caller: Reader, experience_id: ExperienceId) -> Response:
    """The lesson as given, when, then."""
    found = await services.experiences.get(caller, experience_id)
    note(request, user_id=found.user_id, ids=[str(found.id)])
    return reply(scenario_of(found))


# What the routes share.


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
            raise TooLarge.of(name, f"above {most} characters")


def patch_changes(body: PatchExperience) -> dict[str, Any]:
    try:
        changes = body.changes()
    except ValueError as error:
        raise InvalidFields.of(str(error), "can't be cleared") from None
    if not changes:
        raise InvalidFields.of("body", "names no field to change")
    return changes


async def listed(services: Runtime, chosen: ExperienceFilter, paging: Paging) -> Json:
    """One page of experiences."""
    scope = ["experiences", chosen.tenant, chosen.user_ids, sorted(chosen.statuses), chosen.task_type, chosen.tags]
    rows, total = await services.experiences.page(chosen, paging.after(scope), paging.wanted)
    return page_json(paging, scope, rows, total, lambda one: (one.created_at, one.id), lambda one: shown(services, one))


async def history_page(services: Runtime, caller: Caller, experience_id: UUID, paging: Paging) -> Json:
    """One page of versions."""
    scope = ["experience history", caller.tenant, str(experience_id)]
    page = await services.experiences.history(caller, experience_id, paging.below(scope), paging.wanted)
    return page_json(paging, scope, page.items, page.total, lambda row: version_position(row.version), version_json)
