"""How is the gateway started? `python -m mcp_gateway [http|stdio]`, the same as `hindsight-mcp`."""

from __future__ import annotations

import argparse
import asyncio
import sys

from pydantic import ValidationError

from mcp_gateway.http_transport import serve_http
from mcp_gateway.logs import configure_logging
from mcp_gateway.settings import GatewaySettings
from mcp_gateway.stdio_transport import serve_stdio

try:
    import uvloop
except ImportError:  # there is none for Windows
    uvloop = None  # type: ignore[assignment]


def main() -> None:
    parser = argparse.ArgumentParser(prog="hindsight-mcp", description="MCP gateway of the Hindsight memory service.")
    parser.add_argument("transport", nargs="?", choices=("http", "stdio"), default="http", help="default: http")
    transport = parser.parse_args().transport
    configure_logging()
    try:
        settings = GatewaySettings()
    except ValidationError as problem:
        for error in problem.errors(include_url=False, include_input=False):
            name = "_".join(str(part) for part in error["loc"]).upper()
            print(f"hindsight-mcp: HINDSIGHT_{name}: {error['msg']}", file=sys.stderr)
        sys.exit(2)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop if uvloop else None) as runner:
            runner.run(serve_stdio(settings) if transport == "stdio" else serve_http(settings))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
