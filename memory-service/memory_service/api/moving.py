"""Routes that move a user's memory: export and import, both as JSON lines."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from starlette.responses import StreamingResponse

from memory_service.access import require_admin, require_user
from memory_service.api.answers import Answer, once
from memory_service.api.body import read_bytes
from memory_service.api.contract import ContractRoute
from memory_service.api.dependencies import Services, Writer, note
from memory_service.api.fields import Identifier
from memory_service.api.moving_lines import LineReader, slices_of
from memory_service.bootstrap import Runtime
from memory_service.domain import Caller
from memory_service.errors import TooLarge
from memory_service.moving.lines import Imported, Line, Refused, json_of
from memory_service.write.service import Record

router = APIRouter(prefix="/v1", route_class=ContractRoute, tags=["moving"])
MEDIA_TYPE = "application/x-ndjson"
LINES = {"content": {MEDIA_TYPE: {"schema": {"type": "string", "description": "one JSON object a line"}}}}


@router.get("/export", response_class=StreamingResponse, responses={200: LINES})
async def export(
    request: Request, user_id: Annotated[Identifier, Query()], services: Services, caller: Writer
) -> Response:
    """Everything of a user as JSON lines.  Admins may export anyone; a user-bound writer its own user."""
    require_user(caller, user_id)
    if caller.user_id is None:
        require_admin(caller)
    note(request, user_id=user_id)
    return StreamingResponse(await services.exports.open(caller, user_id), media_type=MEDIA_TYPE)


@router.post("/import", openapi_extra={"requestBody": {"required": True, **LINES}})
async def take(
    request: Request,
    services: Services,
    caller: Writer,
    user_id: Annotated[Identifier | None, Query(description="import all lines for this user")] = None,
) -> Response:
    """Take in lines of an export, or seeds.  What is here already stays; bad lines are told and stop no other."""
    require_admin(caller)
    require_user(caller, user_id or caller.user_id or "")
    request.state.raw_body = await read_bytes(request, services.tunables.limits)
    note(request, user_id=user_id)
    return await once(
        request,
        services,
        caller,
        lambda record: imported(services, caller, user_id, request.state.raw_body, record),
        lambda result: Answer(200, json_of(result)),
    )


async def imported(services: Runtime, caller: Caller, user_id: str | None, body: bytes, record: Record) -> Imported:
    """Slice after slice, each one transaction; the last carries the kept answer."""
    limits, numbers = services.tunables.limits, services.imports.numbers
    if body.count(b"\n") >= numbers.import_lines_max:
        raise TooLarge(f"the body has more than {numbers.import_lines_max} lines; send it in parts")
    began = services.clock()
    reader = LineReader(caller, user_id, limits, services.imports.rules, numbers, began)
    total = Imported()
    for numbered in slices_of(body, numbers.import_slice_lines):
        lines = await asyncio.to_thread(_read, reader, numbered)
        total.refused += [one for one in lines if isinstance(one, Refused)]
        total.add(await services.imports.take(caller, [one for one in lines if isinstance(one, Line)], began))
    await services.imports.finish(total, record)
    return total


def _read(reader: LineReader, numbered: list[tuple[int, bytes]]) -> list[Any]:
    return [reader.read(raw, number) for number, raw in numbered]
