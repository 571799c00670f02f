"""How does the service listen?  uvicorn on uvloop and httptools, with a bounded shutdown."""

import asyncio
import gc
import socket
import sys
from contextlib import suppress

import uvicorn

from memory_service.app import create_app
from memory_service.logs import configure
from memory_service.settings import Settings, load_tunables
from memory_service.stores.waiting import stores_up
from memory_service.wire import ServiceProtocol

EXIT_REFUSED = 2


class SettledServer(uvicorn.Server):
    """Once it serves, what the start made is no garbage: collections leave it out."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        gc.freeze()
        gc.enable()


def run(settings: Settings, stores_wait_s: float = 0.0) -> None:
    """Serve until SIGTERM.  Exits with 2 and one line when the set-up is refused."""
    configure(settings.log_level)
    numbers = load_tunables(settings)
    if stores_wait_s:
        asyncio.run(stores_up(settings.database_url, settings.qdrant_url, stores_wait_s))
    app = create_app(settings, tunables=numbers)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=ServiceProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        timeout_graceful_shutdown=max(1, int(numbers.limits.shutdown_s)),
    )
    server = SettledServer(config)
    with suppress(SystemExit):  # uvicorn exits by itself, with 3, when the start was refused
        server.run()
    if app.state.refused is not None:
        print(f"hindsight: {app.state.refused}", file=sys.stderr)
        sys.exit(EXIT_REFUSED)
    if not server.started:
        sys.exit(1)
