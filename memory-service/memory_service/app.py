"""The memory-service as an ASGI app: routers, one error handler, background tasks.

`create_app(settings)` builds it; overrides (clock, embedder, tunables) are for tests and go straight to open_runtime.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import Any

from fastapi import FastAPI

from memory_service.api import (
    conflicts,
    context,
    experiences,
    lifecycle,
    maintenance,
    memories,
    moving,
    operations,
    relations,
    retrievals,
    search,
    tasks,
    turns,
    users,
    working,
)
from memory_service.api.contract import install_openapi
from memory_service.api.dispatch import Service
from memory_service.api.middleware import LoopbackHosts, RequestLog
from memory_service.api.problems import install
from memory_service.bootstrap import Runtime, open_runtime
from memory_service.errors import SetupRefused, StoreUnavailable
from memory_service.settings import Settings
from memory_service.stores.postgres import schema

log = logging.getLogger(__name__)
SCHEMA_POLL_S = 0.05
CANCELS_MAX = 5
DESCRIPTION = "Working, episodic and semantic memory for LLM agents, and lessons learned in hindsight."


def create_app(settings: Settings, **overrides: Any) -> FastAPI:
    """Raises SetupRefused, when it starts, for a set-up that must not serve."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with open_runtime(settings, **overrides) as runtime:
            app.state.runtime = runtime
            await checked_start(app, runtime)
            async with background(runtime):
                yield

    app = Service(
        title="Hindsight memory-service",
        version="0.1.0",
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.state.refused = None
    install(app)
    for router in (
        search.router,
        context.router,
        memories.router,
        lifecycle.router,
        relations.router,
        conflicts.router,
        retrievals.router,
        experiences.router,
        working.router,
        turns.router,
        tasks.router,
        users.router,
        moving.router,
        maintenance.router,
        operations.router,
    ):
        # Flat: FastAPI searches the routers that it includes one by one, 0.1 ms a request.
        app.router.routes.extend(router.routes)
    install_openapi(app)
    app.add_middleware(LoopbackHosts, keys_required=lambda: app.state.runtime.access.required())
    app.add_middleware(RequestLog)
    return app


async def checked_start(app: FastAPI, runtime: Runtime) -> None:
    """Raises SetupRefused, and leaves its text in app.state.refused, for what must not serve."""
    try:
        await check_schema(runtime)
        await runtime.access.check_start(runtime.settings)
        with suppress(StoreUnavailable):  # Qdrant may come later; a wrong model may not
            await runtime.relay.prepare()
    except SetupRefused as error:
        app.state.refused = str(error)
        raise


async def check_schema(runtime: Runtime) -> None:
    """Wait while a migration that runs beside us finishes.  With Postgres down the rest is served all the same."""
    deadline = monotonic() + runtime.tunables.limits.schema_wait_s
    with suppress(StoreUnavailable):
        while (found := await runtime.postgres.read(schema.revision)) != schema.REVISION:
            if monotonic() > deadline:
                raise SetupRefused(
                    f"the database is at revision {found or 'none'}, this version needs {schema.REVISION}. Run: hindsight migrate"
                )
            await asyncio.sleep(SCHEMA_POLL_S)


@asynccontextmanager
async def background(runtime: Runtime) -> AsyncIterator[None]:
    """The relay, the retrieval log, the follower of the embedding model and the schedule, until the app stops."""
    running = (runtime.relay.run(), runtime.retrieval_log.run(), runtime.follower.run())
    tasks = [asyncio.create_task(one) for one in running]
    if runtime.settings.jobs:
        tasks.append(asyncio.create_task(runtime.schedule.run()))
    try:
        yield
    finally:
        runtime.relay.stop()
        runtime.follower.stop()
        runtime.schedule.stop()
        runtime.retrieval_log.stop()
        await ended(tasks, runtime.tunables.limits.shutdown_s)
        await runtime.retrieval_log.flush()


async def ended(tasks: Collection[asyncio.Task[None]], grace_s: float) -> None:
    """Give the tasks a moment to end by themselves, then cancel them until they do.

    One cancel may get lost: a driver that is interrupted in the middle of a statement can raise its own error instead.
    """
    _, pending = await asyncio.wait(tasks, timeout=grace_s / 2)
    for _attempt in range(CANCELS_MAX):
        if not pending:
            return
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=grace_s / CANCELS_MAX)
    log.error("%d background tasks did not end", len(pending))
