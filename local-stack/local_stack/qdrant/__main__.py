"""`python -m local_stack.qdrant --host H --port P --storage DIR`: serves until SIGTERM, then flushes and closes."""

from __future__ import annotations

import argparse
import logging
import signal
from pathlib import Path

import uvicorn

from local_stack.limits import limit
from local_stack.qdrant.app import create_app
from local_stack.qdrant.collections import Collections


def main() -> None:
    """Reads the arguments and serves. One process per storage folder: the engine locks its files."""
    parser = argparse.ArgumentParser(prog="python -m local_stack.qdrant", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=6333)
    parser.add_argument("--storage", type=Path, required=True)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    options.storage.mkdir(mode=0o700, parents=True, exist_ok=True)
    # uvicorn raises the signal again after its clean shutdown; without a handler the exit code would say "killed".
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    uvicorn.run(
        create_app(Collections(options.storage)),
        host=options.host,
        port=options.port,
        http="httptools",
        ws="none",
        access_log=False,
        proxy_headers=False,  # nothing stands before it, and looking for them costs on every request
        log_level="warning",
        timeout_graceful_shutdown=int(limit("qdrant", "shutdown_s")),
    )


if __name__ == "__main__":
    main()
