"""Routes of a memory's life: history, rollback, cold storage, pins, feedback.  Each answers the memory as it is then."""

from collections.abc import Awaitable, Callable
from uuid import UUID

from fastapi import APIRouter, Request, Response

from memory_service.api.answers import Answer, once, reply
from memory_service.api.body import parse_json, read_body, read_bytes, validated
from memory_service.api.contract import ContractRoute, takes
from memory_service.api.dependencies import Reader, Services, Writer, note
from memory_service.api.lifecycle_schemas import MemoryFeedback, Nothing, RollbackMemory
from memory_service.api.paging import Page, Paging, page_json, version_position
from memory_service.api.targets import IfMatch, MemoryId
from memory_service.bootstrap import Runtime
from memory_service.domain import Caller, Json, Memory
from memory_service.errors import InvalidFields
from memory_service.lifecycle.service import Record
from memory_service.lifecycle.versions import HistoryItem
from memory_service.settings import Limits
from memory_service.stores.postgres.feedback import Given
from memory_service.timestamps import optional_time, time_text

router = APIRouter(prefix="/v1/memories/{memory_id}", route_class=ContractRoute, tags=["memories"])
GONE = {410: {"description": "the memory was erased; it never comes back"}}
Move = Callable[[Caller, UUID, int | None, Record], Awaitable[Memory]]


@router.get("/history")
async def history(request: Request, services: Services, caller: Reader, memory_id: MemoryId, page: Page) -> Response:
    """Every version, newest first, the present one included; `changes` is what made the version."""
    note(request, ids=[str(memory_id)])
    return reply(await history_page(services, caller, memory_id, page))


@router.post("/rollback", openapi_extra=takes(RollbackMemory), responses=GONE)  # type: ignore[arg-type]
async def rollback(
    request: Request, services: Services, caller: Writer, memory_id: MemoryId, expected: IfMatch
) -> Response:
    """Say again what an older version said, as a new version; state, pin and heat stay as they are."""
    body = await read_body(request, RollbackMemory, services.tunables.limits)
    return await once(
        request,
        services,
        caller,
        lambda record: services.lifecycle.rollback(caller, memory_id, body.version, expected, record),
        lambda memory: Answer(200, services.shown(memory), (memory.id,)),
    )


@router.post("/archive", openapi_extra=takes(Nothing, required=False))
async def archive(
    request: Request, services: Services, caller: Writer, memory_id: MemoryId, expected: IfMatch
) -> Response:
    """Into cold storage: out of every search that does not ask for it, still readable by id."""
    return await moved(request, services, caller, services.lifecycle.archive, memory_id, expected)


@router.post("/restore", openapi_extra=takes(Nothing, required=False), responses=GONE)  # type: ignore[arg-type]
async def restore(
    request: Request, services: Services, caller: Writer, memory_id: MemoryId, expected: IfMatch
) -> Response:
    """Back from cold storage, as warm as a new one."""
    return await moved(request, services, caller, services.lifecycle.restore, memory_id, expected)


@router.post("/pin", openapi_extra=takes(Nothing, required=False))
async def pin(request: Request, services: Services, caller: Writer, memory_id: MemoryId, expected: IfMatch) -> Response:
    """Keep its heat: a pinned memory does not cool."""
    return await moved(request, services, caller, services.lifecycle.pin, memory_id, expected)


@router.post("/unpin", openapi_extra=takes(Nothing, required=False))
async def unpin(
    request: Request, services: Services, caller: Writer, memory_id: MemoryId, expected: IfMatch
) -> Response:
    """Let it cool again, from now on."""
    return await moved(request, services, caller, services.lifecycle.unpin, memory_id, expected)


@router.post("/feedback", openapi_extra=takes(MemoryFeedback))
async def feedback(request: Request, services: Services, caller: Writer, memory_id: MemoryId) -> Response:
    """How it served: heat and confidence move; with `retrieval_id` that search remembers that it was used."""
    body = await read_body(request, MemoryFeedback, services.tunables.limits)
    return await once(
        request,
        services,
        caller,
        lambda record: services.judging.feedback(caller, memory_id, body.said(), record),
        lambda memory: Answer(200, {"memory": services.shown(memory)}, (memory.id,)),
    )


@router.get("/feedback")
async def feedback_given(
    request: Request, services: Services, caller: Reader, memory_id: MemoryId, page: Page
) -> Response:
    """How it served so far: who said what and when, newest first, and which finished tasks used it."""
    note(request, ids=[str(memory_id)])
    return reply(await feedback_page(services, caller, memory_id, page))


# What the routes share.


async def moved(
    request: Request, services: Runtime, caller: Caller, move: Move, memory_id: UUID, expected: int | None
) -> Response:
    """One change of state that needs no body."""
    await read_nothing(request, services.tunables.limits)
    return await once(
        request,
        services,
        caller,
        lambda record: move(caller, memory_id, expected, record),
        lambda memory: Answer(200, services.shown(memory), (memory.id,)),
    )


async def read_nothing(request: Request, limits: Limits) -> None:
    """No body, or {}; a field is refused by name.  The raw bytes stay for the Idempotency-Key."""
    raw = await read_bytes(request, limits)
    request.state.raw_body = raw
    if not raw.strip():
        return
    value = parse_json(raw, limits)
    if not isinstance(value, dict):
        raise InvalidFields.of("body", "must be a JSON object, or empty")
    validated(Nothing, value, limits)


async def history_page(services: Runtime, caller: Caller, memory_id: UUID, paging: Paging) -> Json:
    """One page of versions."""
    scope = ["memory history", caller.tenant, str(memory_id)]
    page = await services.lifecycle.history(caller, memory_id, paging.below(scope), paging.wanted)
    return page_json(
        paging,
        scope,
        page.items,
        page.total,
        lambda item: version_position(item.version),
        lambda item: version_json(services, page.memory, item),
    )


async def feedback_page(services: Runtime, caller: Caller, memory_id: UUID, paging: Paging) -> Json:
    """One page of what was said of a memory."""
    scope = ["memory feedback", caller.tenant, caller.user_id, str(memory_id)]
    rows, total = await services.judging.page(caller, memory_id, paging.after(scope), paging.wanted)
    return page_json(paging, scope, rows, total, lambda one: (one.at, one.id), given_json)


def given_json(given: Given) -> Json:
    """`used_in` is the finished task or the retrieval that confirmed a use; null for what somebody said."""
    return {
        "at": time_text(given.at),
        "user_id": given.user_id,
        "actor": given.actor,
        "outcome": given.outcome,
        "note": given.note,
        "retrieval_id": str(given.retrieval_id) if given.retrieval_id else None,
        "used_in": given.occasion,
    }


def version_json(services: Runtime, memory: Memory, item: HistoryItem) -> Json:
    """One version; an older one is shown as it was stored, heat included."""
    return {
        "version": item.version,
        "at": optional_time(item.at),
        "actor": item.actor,
        "cause": item.cause,
        "changes": item.changes,
        "memory": services.shown(memory) if item.snapshot is None else item.snapshot,
    }
