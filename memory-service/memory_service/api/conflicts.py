"""Routes of contradictory facts and preferences that wait for a person."""

from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from memory_service.access import require_user
from memory_service.api.answers import Answer, once, reply
from memory_service.api.body import Contract, read_body
from memory_service.api.contract import ContractRoute, takes
from memory_service.api.dependencies import Reader, Services, Writer
from memory_service.api.fields import Content, Identifier
from memory_service.api.memory_drafts import check_sizes
from memory_service.api.paging import Page, Paging, page_json
from memory_service.api.targets import ConflictId
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
    page: Page,
    user_id: Annotated[Identifier | None, Query()] = None,
    state: Annotated[ConflictState | None, Query()] = None,
) -> Response:
    """The queue, newest first; without `state` resolved ones too."""
    if user_id is not None:
        require_user(caller, user_id)
    return reply(await listed(services, caller, user_id, state, page))


@router.post("/{conflict_id}/resolve", openapi_extra=takes(ResolveConflict))
async def resolve(request: Request, services: Services, caller: Writer, conflict_id: ConflictId) -> Response:
    """Decide: keep the new one, the old one, both, or a merged text."""
    body = await read_body(request, ResolveConflict, services.tunables.limits)
    check_sizes(body.content, None, services.tunables.limits)
    return await once(
        request,
        services,
        caller,
        lambda record: services.conflicts.resolve(caller, conflict_id, body.keep, body.content, record),
        lambda disputed: Answer(200, disputed_json(services, disputed), ids_of(disputed)),
    )


async def listed(
    services: Runtime, caller: Caller, user_id: str | None, state: ConflictState | None, paging: Paging
) -> Json:
    """One page of conflicts."""
    scope = ["conflicts", caller.tenant, caller.user_id, user_id, state]
    rows, total = await services.conflicts.page(caller, user_id, state, paging.after(scope), paging.wanted)
    return page_json(
        paging,
        scope,
        rows,
        total,
        lambda one: (one.conflict.created_at, one.conflict.id),
        lambda one: disputed_json(services, one),
    )


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
        "found_by": conflict.found_by,
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
