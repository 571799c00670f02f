"""Routes for operators: health, readiness, metrics, figures, and what the caller's key is."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from memory_service.access import require_user
from memory_service.api.answers import reply
from memory_service.api.contract import ContractRoute
from memory_service.api.dependencies import Reader, Services, reader_of
from memory_service.api.fields import Identifier
from memory_service.errors import HindsightError

router = APIRouter(route_class=ContractRoute, tags=["operations"])


@router.get("/health")
async def health() -> Response:
    """The process is up.  Touches nothing."""
    return reply({"status": "ok"})


@router.get("/ready")
async def ready(request: Request, services: Services) -> Response:
    """Each store's state; 503 when one that is needed is down.  Details need a key once any exists."""
    state = await services.operations.readiness()
    status = 200 if state["ready"] else 503
    try:
        await reader_of(request)
    except HindsightError:
        return reply({"ready": state["ready"]}, status)
    return reply(state, status)


@router.get("/metrics")
async def metrics(services: Services, _caller: Reader) -> Response:
    """Prometheus."""
    await services.operations.refresh_gauges()
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


@router.get("/v1/stats")
async def stats(services: Services, caller: Reader, user_id: Annotated[Identifier | None, Query()] = None) -> Response:
    """How much is stored and how far the index is, of the tenant or one user."""
    if user_id is not None:
        require_user(caller, user_id)
    return reply(await services.operations.stats(caller.tenant, user_id or caller.user_id))


@router.get("/v1/keys/self")
async def own_key(caller: Reader) -> Response:
    """Tenant, role and bound user of the key in use."""
    return reply({"tenant": caller.tenant, "role": caller.role, "user_id": caller.user_id})


@router.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request, _caller: Reader) -> Response:
    """This service's own description."""
    return reply(request.app.openapi())
