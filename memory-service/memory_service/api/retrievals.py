"""The route of the log of retrievals: what was asked, what came back, and was it used?"""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from memory_service.access import require_user
from memory_service.api.answers import reply
from memory_service.api.contract import ContractRoute
from memory_service.api.dependencies import Reader, Services
from memory_service.api.fields import Identifier, Time
from memory_service.api.paging import Page, Paging, page_json
from memory_service.bootstrap import Runtime
from memory_service.domain import Json
from memory_service.stores.postgres.retrievals import Retrieval, RetrievalFilter, RetrievalSource
from memory_service.timestamps import time_text

router = APIRouter(prefix="/v1/retrievals", route_class=ContractRoute, tags=["operations"])


@router.get("")
async def list_retrievals(
    services: Services,
    caller: Reader,
    page: Page,
    user_id: Annotated[Identifier | None, Query()] = None,
    source: Annotated[list[RetrievalSource] | None, Query()] = None,
    since: Annotated[Time | None, Query()] = None,
    until: Annotated[Time | None, Query()] = None,
    used: Annotated[bool | None, Query()] = None,
) -> Response:
    """What was asked, newest first: of one user, or of all whom the key may act for."""
    if user_id is not None:
        require_user(caller, user_id)
    sources = tuple(sorted(set(source or ())))
    chosen = RetrievalFilter(caller.tenant, user_id or caller.user_id, sources, since, until, used)
    return reply(await listed(services, chosen, page))


async def listed(services: Runtime, chosen: RetrievalFilter, paging: Paging) -> Json:
    """One page of the log."""
    span = [chosen.since, chosen.until]
    scope = ["retrievals", chosen.tenant, chosen.user_id, chosen.sources, span, chosen.used]
    rows, total = await services.retrievals.page(chosen, paging.after(scope), paging.wanted)
    return page_json(paging, scope, rows, total, lambda one: (one.at, one.id), retrieval_json)


def retrieval_json(one: Retrieval) -> Json:
    """`hits` as they were answered, without what was erased since; `hit_count` counts that too."""
    return {
        "id": str(one.id),
        "user_id": one.user_id,
        "at": time_text(one.at),
        "source": one.source,
        "query": one.query,
        "filters": one.filters,
        "hits": one.hits,
        "hit_count": one.hit_count,
        "degraded": one.degraded,
        "took_ms": one.took_ms,
        "injected_tokens": one.injected_tokens,
        "used_ids": [str(used) for used in one.used_ids],
        "used": bool(one.used_ids),
        "task_id": one.task_id,
    }
