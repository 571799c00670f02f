"""What is written about a request? One JSON line on stderr: who-knows-which id, what, how it ended, how long.

Must never write to stdout, and never contents, keys or exception messages (a validation error quotes its input).
"""

from __future__ import annotations

import logging
import sys
import traceback
from datetime import UTC, datetime

import orjson

REQUESTS = logging.getLogger("mcp_gateway.requests")


class JsonLines(logging.Formatter):
    """Exceptions are reduced to their type and place in the code."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "logger": record.name,
            # Half a surrogate pair, which JSON has no bytes for, must not cost the line.
            "message": record.getMessage().encode(errors="backslashreplace").decode(),
        }
        fields = getattr(record, "fields", None)
        if isinstance(fields, dict):
            line |= fields
        if record.exc_info and record.exc_info[0] is not None:
            frames = traceback.extract_tb(record.exc_info[2])
            line["exception"] = record.exc_info[0].__name__
            line["where"] = [f"{frame.filename}:{frame.lineno}" for frame in frames[-3:]]
        return orjson.dumps(line, default=str, option=orjson.OPT_UTC_Z).decode()


def configure_logging() -> None:
    """Libraries speak up from WARNING, requests are always logged."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    # What our lines don't tell need not be looked up for each of them ("Optimization" in logging's documentation).
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None
    logging.getLogger("mcp_gateway").setLevel(logging.INFO)


def log_request(**fields: str | float | None) -> None:
    REQUESTS.info("request", extra={"fields": {name: value for name, value in fields.items() if value is not None}})
