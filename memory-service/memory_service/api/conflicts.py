"""Routes of contradictory facts and preferences that wait for a person."""

from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from memory_service.access import require_user
from memory_service.api import cursors
from memory_service.api.answers import Answer, once, reply
from memory_service.api.body import Contract, read_body
from memory_service.api.contract import ContractRoute, takes
from memory_service.api.dependencies import Reader, Services, Writer
from memory_service.api.fields import Content, Identifier
from memory_service.api.memories import check_sizes, path_id
from memory_service.bootstrap import Runtime
from memory_service.domain import Caller, Json
from memory_service.stores.postgres.conflicts import ConflictState
from memory_service.timestamps import optional_time, time_text
from memory_service.write.resolving import Disputed

router = APIRouter(prefix="/v1/conflicts", route_class=ContractRoute, tags=["conflicts"])


class ResolveConflict(Contract):
    """POST /v1/conflicts/{id}/resolve: `content` with merged, and only then."""

    keep: Literal["new", "old", "both", "merged"]
    content: Content | None = None


@router.get("")
async def list_conflicts(
    services: Services,
    caller: Reader,
    user_id: Annotated[Identifier | None, Query()] = None,
    state: Annotated[ConflictState | None, Query()] = None,
    limit: Annotated[int | None, Query(ge=1, le=100)] = None,
    top_k: Annotated[int | None, Query(ge=1, le=100, description="alias of limit")] = None,
    cursor: Annotated[str | None, Query(max_length=512)] = None,
) -> Response:
    """The queue, newest first; without `state` resolved ones too."""
    if user_id is not None:
        require_user(caller, user_id)
    size = limit or top_k or services.tunables.limits.page_items_default
    return reply(await listed(services, caller, user_id, state, size, cursor))


@router.post("/{conflict_id}/resolve", openapi_extra=takes(ResolveConflict))
async def resolve(request: Request, conflict_id: str, services: Services, caller: Writer) -> Response:
    """Decide: keep the new one, the old one, both, or a merged text."""
    body = await read_body(request, ResolveConflict, services.tunables.limits)
    check_sizes(body.content, None, services.tunables.limits)
    one = path_id(conflict_id)
    return await once(
        request,
        services,
        caller,
        lambda record: services.conflicts.resolve(caller, one, body.keep, body.content, record),
        lambda disputed: Answer(200, disputed_json(services, disputed), ids_of(disputed)),
    )


async def listed(
    services: Runtime, caller: Caller, user_id: str | None, state: ConflictState | None, limit: int, cursor: str | None
) -> Json:
    """One page of conflicts."""
    scope = ["conflicts", caller.tenant, caller.user_id, user_id, state]
    after = cursors.decode(cursor, scope) if cursor is not None else None
    rows, total = await services.conflicts.page(caller, user_id, state, after, limit + 1)
    page = rows[:limit]
    last = page[-1].conflict if len(rows) > limit else None
    return {
        "items": [disputed_json(services, one) for one in page],
        "next_cursor": cursors.encode((last.created_at, last.id), scope) if last else None,
        "total": total,
    }


def disputed_json(services: Runtime, disputed: Disputed) -> Json:
    """`merged` is there when a person wrote it."""
    conflict = disputed.conflict
    return {
        "id": str(conflict.id),
        "user_id": conflict.user_id,
        "old": services.shown(disputed.old),
        "new": services.shown(disputed.new),
        **({"merged": services.shown(disputed.merged)} if disputed.merged else {}),
        "reason": conflict.reason,
        "state": conflict.state,
        "resolution": conflict.resolution,
        "created_at": time_text(conflict.created_at),
        "resolved_at": optional_time(conflict.resolved_at),
        "resolved_by": conflict.resolved_by,
    }


def ids_of(disputed: Disputed) -> tuple[UUID, ...]:
    """Whose texts the answer carries."""
    both = (disputed.old.id, disputed.new.id)
    return (*both, disputed.merged.id) if disputed.merged else both
