"""Routes of long-term memories: write, batch, list, read, change, erase."""

from time import monotonic
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from memory_service.api.answers import Answer, once, reply
from memory_service.api.body import read_body
from memory_service.api.contract import ContractRoute, takes
from memory_service.api.dependencies import Reader, Services, Writer, note
from memory_service.api.memory_drafts import batch_drafts, checked_draft, patch_changes, read_batch
from memory_service.api.memory_list import Listed, listed
from memory_service.api.paging import Page
from memory_service.api.problems import problem
from memory_service.api.schemas import PatchMemory, WriteBatch, WriteMemory
from memory_service.api.targets import IfMatch, MemoryId
from memory_service.bootstrap import Runtime
from memory_service.errors import HindsightError
from memory_service.write.drafts import Written

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
    draft = checked_draft(await read_body(request, WriteMemory, limits), caller, limits, services.clock())
    note(request, user_id=draft.user_id)
    if wait is None:
        return await once(
            request, services, caller, lambda record: services.writer.write(caller, draft, record), _written(services)
        )

    async def write_and_wait(record: Any) -> Written:
        ends = monotonic() + limits.wait_indexed_s_max  # of the whole answer: the write may have waited for Qdrant too
        written = await services.writer.write(caller, draft, record)
        return await services.writer.wait_indexed(written, max(ends - monotonic(), 0.0))

    return await once(request, services, caller, write_and_wait, _written(services))


@router.post("/batch", openapi_extra=takes(WriteBatch))
async def write_batch(request: Request, services: Services, caller: Writer) -> Response:
    """Write up to 500 memories; one bad item never spoils the others."""
    limits = services.tunables.limits
    drafts = batch_drafts(await read_batch(request, limits), caller, limits, services.clock())

    def answer(results: list[Written | HindsightError]) -> Answer:
        ids = tuple(r.memory.id for r in results if isinstance(r, Written))
        return Answer(200, {"results": [_result(i, r) for i, r in enumerate(results)]}, ids)

    return await once(
        request, services, caller, lambda record: services.writer.write_batch(caller, drafts, record), answer
    )


@router.get("")
async def list_memories(request: Request, services: Services, chosen: Listed, page: Page) -> Response:
    """List memories, newest first."""
    note(request, user_id=chosen.user_ids[0])
    return reply(await listed(services, chosen, page))


@router.get("/{memory_id}")
async def read(request: Request, services: Services, caller: Reader, memory_id: MemoryId) -> Response:
    """One memory."""
    memory = await services.reader.get(caller, memory_id)
    note(request, user_id=memory.user_id, ids=[str(memory.id)])
    return reply(services.shown(memory))


@router.patch("/{memory_id}", openapi_extra=takes(PatchMemory))
async def change(
    request: Request, services: Services, caller: Writer, memory_id: MemoryId, expected: IfMatch
) -> Response:
    """Change only what is named; null clears."""
    limits = services.tunables.limits
    changes = patch_changes(await read_body(request, PatchMemory, limits), limits)
    memory = await services.writer.update(caller, memory_id, changes, expected)
    note(request, user_id=memory.user_id, ids=[str(memory.id)])
    return reply(services.shown(memory))


@router.delete("/{memory_id}", status_code=204)
async def erase(
    request: Request, services: Services, caller: Writer, memory_id: MemoryId, expected: IfMatch
) -> Response:
    """Erase one memory everywhere."""
    memory = await services.writer.delete(caller, memory_id, expected)
    note(request, user_id=memory.user_id, ids=[str(memory.id)])
    return Response(status_code=204)


# What the routes share.


def _written(services: Runtime) -> Any:
    def answer(written: Written) -> Answer:
        shown = services.shown(written.memory)
        ids = (written.memory.id,)
        by = _by(written)
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


def _by(written: Written) -> dict[str, str]:
    """What read the text, and what compared it with older statements: a language model or the rules."""
    told = {"inferred_by": written.inferred_by, "compared_by": written.compared_by}
    return {name: by for name, by in told.items() if by is not None}


def _rounded(similarity: float | None) -> float | None:
    """Cosines of float32 vectors can be a little above 1."""
    return None if similarity is None else round(min(similarity, 1.0), 6)


def _result(index: int, result: Written | HindsightError) -> dict[str, Any]:
    if isinstance(result, HindsightError):
        return {"index": index, "status": "rejected", "error": problem(result)}
    shown = {"index": index, "status": result.status, "id": str(result.memory.id), **_stood(result)}
    shown |= _by(result)
    return {**shown, "duplicate_of": shown["id"]} if result.status == "duplicate" else shown
