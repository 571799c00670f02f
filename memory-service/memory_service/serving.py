"""How does the service listen?  uvicorn on uvloop and httptools, with a bounded shutdown.

What never becomes a request (an unknown method, a broken header) is answered here, in the shape of every other problem.
"""

import sys
from contextlib import suppress

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from memory_service.api.problems import MEDIA_TYPE, problem
from memory_service.app import create_app
from memory_service.errors import BadRequest
from memory_service.logs import configure
from memory_service.settings import Settings, load_tunables
from memory_service.shapes import to_json

EXIT_REFUSED = 2


class ProblemProtocol(HttpToolsProtocol):
    """Answers bytes that are no HTTP request; uvicorn itself would answer them in plain text."""

    def send_400_response(self, msg: str) -> None:
        body = to_json(problem(BadRequest(msg)))
        head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        self.transport.write(head.encode("ascii") + body)
        self.transport.close()


def run(settings: Settings) -> None:
    """Serve until SIGTERM.  Exits with 2 and one line when the set-up is refused."""
    configure(settings.log_level)
    numbers = load_tunables(settings)
    app = create_app(settings, tunables=numbers)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=ProblemProtocol,
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
