"""Routes of a memory's life: history, rollback, cold storage, pins, feedback.  Each answers the memory as it is then."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Header, Query, Request, Response

from memory_service.api import cursors
from memory_service.api.answers import Answer, once, reply
from memory_service.api.body import parse_json, read_body, read_bytes, validated
from memory_service.api.contract import ContractRoute, takes
from memory_service.api.dependencies import Reader, Services, Writer, note
from memory_service.api.lifecycle_schemas import MemoryFeedback, Nothing, RollbackMemory
from memory_service.api.memories import path_id, version_of
from memory_service.bootstrap import Runtime
from memory_service.domain import Caller, Json, Memory
from memory_service.errors import InvalidFields
from memory_service.lifecycle.service import Record
from memory_service.lifecycle.versions import HistoryItem
from memory_service.settings import Limits
from memory_service.timestamps import optional_time

router = APIRouter(prefix="/v1/memories/{memory_id}", route_class=ContractRoute, tags=["memories"])
PAGE_START = datetime(1970, 1, 1, tzinfo=UTC)
GONE = {410: {"description": "the memory was erased; it never comes back"}}
Move = Callable[[Caller, UUID, int | None, Record], Awaitable[Memory]]


@router.get("/history")
async def history(
    request: Request,
    memory_id: str,
    services: Services,
    caller: Reader,
    limit: Annotated[int | None, Query(ge=1, le=100)] = None,
    top_k: Annotated[int | None, Query(ge=1, le=100, description="alias of limit")] = None,
    cursor: Annotated[str | None, Query(max_length=512)] = None,
) -> Response:
    """Every version, newest first, the present one included; `changes` is what made the version."""
    size = limit or top_k or services.tunables.limits.page_items_default
    page = await history_page(services, caller, path_id(memory_id), size, cursor)
    note(request, ids=[memory_id[:64]])
    return reply(page)


@router.post("/rollback", openapi_extra=takes(RollbackMemory), responses=GONE)  # type: ignore[arg-type]
async def rollback(
    request: Request,
    memory_id: str,
    services: Services,
    caller: Writer,
    if_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Say again what an older version said, as a new version; state, pin and heat stay as they are."""
    body = await read_body(request, RollbackMemory, services.tunables.limits)
    one, expected = path_id(memory_id), version_of(if_match)
    return await once(
        request,
        services,
        caller,
        lambda record: services.lifecycle.rollback(caller, one, body.version, expected, record),
        lambda memory: Answer(200, services.shown(memory), (memory.id,)),
    )


@router.post("/archive", openapi_extra=takes(Nothing, required=False))
async def archive(
    request: Request,
    memory_id: str,
    services: Services,
    caller: Writer,
    if_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Into cold storage: out of every search that does not ask for it, still readable by id."""
    return await moved(request, services, caller, services.lifecycle.archive, memory_id, if_match)


@router.post("/restore", openapi_extra=takes(Nothing, required=False), responses=GONE)  # type: ignore[arg-type]
async def restore(
    request: Request,
    memory_id: str,
    services: Services,
    caller: Writer,
    if_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Back from cold storage, as warm as a new one."""
    return await moved(request, services, caller, services.lifecycle.restore, memory_id, if_match)


@router.post("/pin", openapi_extra=takes(Nothing, required=False))
async def pin(
    request: Request,
    memory_id: str,
    services: Services,
    caller: Writer,
    if_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Keep its heat: a pinned memory does not cool."""
    return await moved(request, services, caller, services.lifecycle.pin, memory_id, if_match)


@router.post("/unpin", openapi_extra=takes(Nothing, required=False))
async def unpin(
    request: Request,
    memory_id: str,
    services: Services,
    caller: Writer,
    if_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Let it cool again, from now on."""
    return await moved(request, services, caller, services.lifecycle.unpin, memory_id, if_match)


@router.post("/feedback", openapi_extra=takes(MemoryFeedback))
async def feedback(request: Request, memory_id: str, services: Services, caller: Writer) -> Response:
    """How it served: heat and confidence move; with `retrieval_id` that search remembers that it was used."""
    body = await read_body(request, MemoryFeedback, services.tunables.limits)
    one = path_id(memory_id)
    return await once(
        request,
        services,
        caller,
        lambda record: services.lifecycle.feedback(caller, one, body.said(), record),
        lambda memory: Answer(200, {"memory": services.shown(memory)}, (memory.id,)),
    )


# What the routes share.


async def moved(
    request: Request, services: Runtime, caller: Caller, move: Move, memory_id: str, if_match: str | None
) -> Response:
    """One change of state that needs no body."""
    await read_nothing(request, services.tunables.limits)
    one, expected = path_id(memory_id), version_of(if_match)
    return await once(
        request,
        services,
        caller,
        lambda record: move(caller, one, expected, record),
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


async def history_page(services: Runtime, caller: Caller, memory_id: UUID, limit: int, cursor: str | None) -> Json:
    """One page of versions.  The cursor's position is a version, written as a UUID, which is what cursors carry."""
    scope = ["memory history", caller.tenant, str(memory_id)]
    below = cursors.decode(cursor, scope)[1].int if cursor is not None else None
    page = await services.lifecycle.history(caller, memory_id, below, limit)
    last = cursors.encode((PAGE_START, UUID(int=page.items[-1].version)), scope) if page.more else None
    items = [version_json(services, page.memory, item) for item in page.items]
    return {"items": items, "next_cursor": last, "total": page.total}


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
