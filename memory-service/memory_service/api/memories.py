"""Routes of long-term memories: write, batch, list, read, change, erase."""

from typing import Annotated, Any, Literal
from uuid import UUID

import orjson
from fastapi import APIRouter, Header, Query, Request, Response

from memory_service.access import require_user
from memory_service.api import cursors
from memory_service.api.answers import Answer, once, reply
from memory_service.api.body import (
    TWICE,
    Repeating,
    check_values,
    parse_json,
    read_body,
    read_bytes,
    shown,
    validated,
    with_own_user,
)
from memory_service.api.contract import ContractRoute, takes
from memory_service.api.dependencies import Reader, Services, Writer, note
from memory_service.api.fields import Identifier, Label, Time
from memory_service.api.problems import problem
from memory_service.api.schemas import PatchMemory, WriteBatch, WriteMemory
from memory_service.bootstrap import Runtime
from memory_service.domain import Caller, Kind, MemoryFilter, Outcome, State
from memory_service.errors import HindsightError, InvalidFields, NotFound, TooLarge
from memory_service.recall.filters import parse_filters
from memory_service.settings import Limits
from memory_service.write.drafts import Draft, Written

router = APIRouter(prefix="/v1/memories", route_class=ContractRoute, tags=["memories"])


@router.post(
    "",
    status_code=201,
    openapi_extra=takes(WriteMemory),
    responses={200: {"description": "a duplicate of duplicate_of"}},
)
async def write(
    request: Request, services: Services, caller: Writer, wait: Annotated[Literal["indexed"] | None, Query()] = None
) -> Response:
    """Write one memory.  201 means committed to Postgres."""
    limits = services.tunables.limits
    draft = checked_draft(await read_body(request, WriteMemory, limits), caller, limits)
    note(request, user_id=draft.user_id)
    if wait is None:
        return await once(
            request, services, caller, lambda record: services.writer.write(caller, draft, record), _written(services)
        )

    async def write_and_wait(record: Any) -> Written:
        written = await services.writer.write(caller, draft, record)
        return await services.writer.wait_indexed(written, limits.wait_indexed_s_max)

    return await once(request, services, caller, write_and_wait, _written(services))


@router.post("/batch", openapi_extra=takes(WriteBatch))
async def write_batch(request: Request, services: Services, caller: Writer) -> Response:
    """Write up to 500 memories; one bad item never spoils the others."""
    limits = services.tunables.limits
    drafts = batch_drafts(await read_batch(request, limits), caller, limits)

    def answer(results: list[Written | HindsightError]) -> Answer:
        ids = tuple(r.memory.id for r in results if isinstance(r, Written))
        return Answer(200, {"results": [_result(i, r) for i, r in enumerate(results)]}, ids)

    return await once(
        request, services, caller, lambda record: services.writer.write_batch(caller, drafts, record), answer
    )


@router.get("")
async def list_memories(
    request: Request,
    services: Services,
    caller: Reader,
    user_id: Annotated[Identifier, Query()],
    limit: Annotated[int | None, Query(ge=1, le=100)] = None,
    top_k: Annotated[int | None, Query(ge=1, le=100, description="alias of limit")] = None,
    cursor: Annotated[str | None, Query(max_length=512)] = None,
    kinds: Annotated[list[Kind] | None, Query()] = None,
    tags: Annotated[list[Label] | None, Query()] = None,
    tag_match: Annotated[Literal["any", "all"], Query()] = "any",
    filters: Annotated[str | None, Query(max_length=65_536, description="JSON")] = None,
    agent_id: Annotated[Identifier | None, Query()] = None,
    session_id: Annotated[Identifier | None, Query()] = None,
    task_id: Annotated[Identifier | None, Query()] = None,
    since: Annotated[Time | None, Query()] = None,
    until: Annotated[Time | None, Query()] = None,
    as_of: Annotated[Time | None, Query()] = None,
    state: Annotated[list[State] | None, Query()] = None,
    outcome: Annotated[Outcome | None, Query()] = None,
    include_cold: Annotated[bool, Query()] = False,
    include_superseded: Annotated[bool, Query()] = False,
    include_shared: Annotated[bool, Query()] = False,
) -> Response:
    """List memories, newest first."""
    require_user(caller, user_id)
    note(request, user_id=user_id)
    limits = services.tunables.limits
    conditions = parse_filters(filters_of_query(filters, limits), limits.filter_conditions_max)
    if outcome is not None:
        conditions += parse_filters({"outcome": {"eq": outcome}}, 1)
    chosen = MemoryFilter(
        tenant=caller.tenant,
        user_ids=user_ids(user_id, include_shared),
        now=services.clock(),
        kinds=tuple(kinds or ()),
        states=tuple(state) if state else states(include_cold, include_superseded),
        tags=tuple(tags or ()),
        tag_match=tag_match,
        agent_id=agent_id,
        session_id=session_id,
        task_id=task_id,
        since=since,
        until=until,
        as_of=as_of,
        conditions=conditions,
    )
    size = limit or top_k or limits.page_items_default
    return reply(await listed(services, chosen, size, cursor))


@router.get("/{memory_id}")
async def read(request: Request, memory_id: str, services: Services, caller: Reader) -> Response:
    """One memory."""
    memory = await services.reader.get(caller, path_id(memory_id))
    note(request, user_id=memory.user_id, ids=[str(memory.id)])
    return reply(services.shown(memory))


@router.patch("/{memory_id}", openapi_extra=takes(PatchMemory))
async def change(
    request: Request,
    memory_id: str,
    services: Services,
    caller: Writer,
    if_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Change only what is named; null clears."""
    limits = services.tunables.limits
    patch = await read_body(request, PatchMemory, limits)
    changes = patch_changes(patch, limits)
    memory = await services.writer.update(caller, path_id(memory_id), changes, version_of(if_match))
    note(request, user_id=memory.user_id, ids=[str(memory.id)])
    return reply(services.shown(memory))


@router.delete("/{memory_id}", status_code=204)
async def erase(
    request: Request,
    memory_id: str,
    services: Services,
    caller: Writer,
    if_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Erase one memory everywhere."""
    memory = await services.writer.delete(caller, path_id(memory_id), version_of(if_match))
    note(request, user_id=memory.user_id, ids=[str(memory.id)])
    return Response(status_code=204)


# What the routes share.


def path_id(text: str) -> UUID:
    """An id from the address; what is no UUID is as unknown as any other."""
    try:
        return UUID(text)
    except ValueError:
        raise NotFound from None


def version_of(if_match: str | None) -> int | None:
    """The version in If-Match, quoted or bare; `*` matches any."""
    if if_match is None or if_match.strip() == "*":
        return None
    text = if_match.strip().removeprefix("W/").strip('"')
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        raise InvalidFields.of("If-Match", "must be a version number")
    return int(text)


def user_ids(user_id: str, include_shared: bool) -> tuple[str, ...]:
    return (user_id, "*shared") if include_shared and user_id != "*shared" else (user_id,)


def states(include_cold: bool, include_superseded: bool) -> tuple[State, ...]:
    chosen: list[State] = ["active"]
    chosen += ["cold"] if include_cold else []
    return (*chosen, "superseded") if include_superseded else tuple(chosen)


def filters_of_query(text: str | None, limits: Limits) -> dict[str, Any]:
    """`filters` of a query string is JSON, held to the same rules as a body."""
    if text is None:
        return {}
    try:
        value = parse_json(text.encode(), limits)
    except HindsightError:
        raise InvalidFields.of("filters", "must be JSON") from None
    if not isinstance(value, dict):
        raise InvalidFields.of("filters", "must be a JSON object")
    if errors := check_values(value, limits, "filters"):
        raise InvalidFields("; ".join(f"{e.field}: {e.message}" for e in errors[:5]), errors=tuple(errors))
    return value


def checked_draft(body: WriteMemory, caller: Caller, limits: Limits) -> Draft:
    """The draft, once its sizes and its user are right."""
    require_user(caller, body.user_id)
    check_sizes(body.content, body.metadata, limits)
    return body.draft()


def check_sizes(content: str | None, metadata: dict[str, Any] | None, limits: Limits) -> None:
    """Raises TooLarge."""
    if content is not None and len(content.encode()) > limits.content_bytes_max:
        raise TooLarge(f"content: above {limits.content_bytes_max} bytes of UTF-8")
    if metadata and len(orjson.dumps(metadata)) > limits.metadata_bytes_max:
        raise TooLarge(f"metadata: above {limits.metadata_bytes_max} bytes of JSON")


async def read_batch(request: Request, limits: Limits) -> list[Any]:
    """The items of a batch, unchecked: each is judged by itself."""
    raw = await read_bytes(request, limits)
    request.state.raw_body = raw
    value = parse_json(raw, limits)
    if isinstance(value, Repeating):
        raise InvalidFields.of(shown((value.repeated,)), TWICE)
    if not isinstance(value, dict) or not isinstance(value.get("memories"), list):
        raise InvalidFields.of("memories", "is required and must be a list")
    for name in value:
        if name != "memories":
            raise InvalidFields.of(name, "is not a field of this request")
    if not 1 <= len(value["memories"]) <= limits.batch_items_max:
        raise InvalidFields.of("memories", f"must have 1 to {limits.batch_items_max} items")
    return value["memories"]  # type: ignore[no-any-return]


def batch_drafts(items: list[Any], caller: Caller, limits: Limits) -> list[Draft | HindsightError]:
    """Each item as a draft, or as what is wrong with it."""
    drafts: list[Draft | HindsightError] = []
    for item in items:
        try:
            draft = validated(WriteMemory, with_own_user(WriteMemory, item, caller), limits)
            drafts.append(checked_draft(draft, caller, limits))
        except HindsightError as error:
            drafts.append(error)
    return drafts


def patch_changes(patch: PatchMemory, limits: Limits) -> dict[str, Any]:
    check_sizes(patch.content, patch.metadata, limits)
    try:
        changes = patch.changes()
    except ValueError as error:
        raise InvalidFields.of(str(error), "can't be cleared") from None
    if not changes:
        raise InvalidFields.of("body", "names no field to change")
    return changes


async def listed(services: Runtime, chosen: MemoryFilter, limit: int, cursor: str | None) -> dict[str, Any]:
    """One page of memories."""
    scope = [
        "memories",
        chosen.tenant,
        chosen.user_ids,
        chosen.kinds,
        chosen.states,
        chosen.tags,
        chosen.tag_match,
        chosen.agent_id,
        chosen.session_id,
        chosen.task_id,
        chosen.since,
        chosen.until,
        chosen.as_of,
        repr(chosen.conditions),
    ]
    after = cursors.decode(cursor, scope) if cursor is not None else None
    rows, total = await services.reader.page(chosen, after, limit + 1)
    page = rows[:limit]
    last = cursors.encode((page[-1].created_at, page[-1].id), scope) if len(rows) > limit else None
    return {"items": [services.shown(m) for m in page], "next_cursor": last, "total": total}


def _written(services: Runtime) -> Any:
    def answer(written: Written) -> Answer:
        shown = services.shown(written.memory)
        ids = (written.memory.id,)
        by = {"inferred_by": written.inferred_by} if written.inferred_by else {}
        if written.status == "duplicate":
            return Answer(
                200,
                {
                    "status": "duplicate",
                    "duplicate_of": str(written.memory.id),
                    "similarity": _rounded(written.similarity),
                    **by,
                    "memory": shown,
                },
                ids,
            )
        return Answer(201, {"status": written.status, **_stood(written), **by, "memory": shown}, ids)

    return answer


def _stood(written: Written) -> dict[str, Any]:
    """What the new memory did to older ones."""
    if written.status == "conflict":
        return {"conflict_id": str(written.memory.conflict_id)}
    return {"superseded": str(written.superseded)} if written.superseded else {}


def _rounded(similarity: float | None) -> float | None:
    """Cosines of float32 vectors can be a little above 1."""
    return None if similarity is None else round(min(similarity, 1.0), 6)


def _result(index: int, result: Written | HindsightError) -> dict[str, Any]:
    if isinstance(result, HindsightError):
        return {"index": index, "status": "rejected", "error": problem(result)}
    shown = {"index": index, "status": result.status, "id": str(result.memory.id), **_stood(result)}
    shown |= {"inferred_by": result.inferred_by} if result.inferred_by else {}
    return {**shown, "duplicate_of": shown["id"]} if result.status == "duplicate" else shown
