"""Routes of the graph between memories: tie, untie, list."""

from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request, Response

from memory_service.api.answers import Answer, once, reply
from memory_service.api.body import read_body
from memory_service.api.contract import ContractRoute, takes
from memory_service.api.dependencies import Reader, Services, Writer, note
from memory_service.api.lifecycle_schemas import TieMemories
from memory_service.api.paging import Page, Paging, page_json
from memory_service.api.targets import MemoryId
from memory_service.bootstrap import Runtime
from memory_service.domain import Caller, Json
from memory_service.lifecycle.relations import Tied
from memory_service.stores.postgres.relations import Related
from memory_service.timestamps import time_text

router = APIRouter(prefix="/v1", route_class=ContractRoute, tags=["relations"])
KNOWN: dict[int | str, dict[str, Any]] = {
    200: {"description": "it was there already; a weight that was given is set"},
    404: {"description": "one of the memories is unknown, or someone else's"},
}


@router.post("/relations", status_code=201, openapi_extra=takes(TieMemories), responses=KNOWN)
async def tie(request: Request, services: Services, caller: Writer) -> Response:
    """Say that one memory belongs to another."""
    body = await read_body(request, TieMemories, services.tunables.limits)
    return await once(
        request,
        services,
        caller,
        lambda record: services.relations.tie(caller, body.ends(), body.weight, record),
        lambda tied: Answer(201 if tied.new else 200, tied_json(tied), (body.source_id, body.target_id)),
    )


@router.delete("/relations", status_code=204, openapi_extra=takes(TieMemories), responses={404: KNOWN[404]})
async def untie(request: Request, services: Services, caller: Writer) -> Response:
    """Take it back."""
    body = await read_body(request, TieMemories, services.tunables.limits)
    await services.relations.untie(caller, body.ends())
    note(request, ids=[str(body.source_id), str(body.target_id)])
    return Response(status_code=204)


@router.get("/memories/{memory_id}/related")
async def related(request: Request, services: Services, caller: Reader, memory_id: MemoryId, page: Page) -> Response:
    """What a memory is tied to, in both directions, the latest relation first."""
    note(request, ids=[str(memory_id)])
    return reply(await related_page(services, caller, memory_id, page))


async def related_page(services: Runtime, caller: Caller, memory_id: UUID, paging: Paging) -> Json:
    scope = ["related", caller.tenant, str(memory_id)]
    rows, total = await services.relations.page(caller, memory_id, paging.after(scope), paging.wanted)
    return page_json(
        paging, scope, rows, total, lambda one: (one.created_at, one.place), lambda one: related_json(services, one)
    )


def related_json(services: Runtime, one: Related) -> Json:
    """`direction` is out when the asked memory is the source."""
    shown = services.shown(one.memory)
    return {"memory": shown, "relation_type": one.relation_type, "direction": one.direction, "weight": one.weight}


def tied_json(tied: Tied) -> Json:
    relation = tied.relation
    return {
        "source_id": str(relation.source_id),
        "target_id": str(relation.target_id),
        "relation_type": relation.relation_type,
        "weight": relation.weight,
        "created_at": time_text(relation.created_at),
    }
