"""How does the service listen?  uvicorn on uvloop and httptools, with a bounded shutdown."""

import sys
from contextlib import suppress

import uvicorn

from memory_service.app import create_app
from memory_service.logs import configure
from memory_service.settings import Settings, load_tunables

EXIT_REFUSED = 2


def run(settings: Settings) -> None:
    """Serve until SIGTERM.  Exits with 2 and one line when the set-up is refused."""
    configure(settings.log_level)
    numbers = load_tunables(settings)
    app = create_app(settings, tunables=numbers)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        timeout_graceful_shutdown=max(1, int(numbers.limits.shutdown_s)),
    )
    server = uvicorn.Server(config)
    with suppress(SystemExit):  # uvicorn exits by itself, with 3, when the start was refused
        server.run()
    if app.state.refused is not None:
        print(f"hindsight: {app.state.refused}", file=sys.stderr)
        sys.exit(EXIT_REFUSED)
    if not server.started:
        sys.exit(1)
