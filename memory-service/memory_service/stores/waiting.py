"""Are the stores up that the start decides by?  Waits for Postgres and Qdrant, for whoever starts them beside the service.

Without them a start can't tell a wrong schema or a wrong model, and serves what it can.  Must not decide what a missing store means.
"""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from urllib.parse import urlsplit

import psycopg

POLL_S = 0.02
CONNECT_TIMEOUT_S = 2  # of one attempt


async def stores_up(database_url: str, qdrant_url: str, patience_s: float) -> bool:
    """Return once both take connections, or False after `patience_s`."""
    deadline = monotonic() + patience_s
    for attempt in (_postgres(database_url), _qdrant(qdrant_url)):
        while not await _answers(attempt):
            if monotonic() > deadline:
                return False
            await asyncio.sleep(POLL_S)
    return True


async def _answers(attempt: Callable[[], Awaitable[None]]) -> bool:
    try:
        await attempt()
    except (OSError, psycopg.OperationalError):  # refused, or still starting up
        return False
    return True


def _postgres(url: str) -> Callable[[], Awaitable[None]]:
    async def attempt() -> None:
        connection = await psycopg.AsyncConnection.connect(url, connect_timeout=CONNECT_TIMEOUT_S)
        await connection.close()

    return attempt


def _qdrant(url: str) -> Callable[[], Awaitable[None]]:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)

    async def attempt() -> None:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            _, writer = await asyncio.open_connection(parts.hostname, port)
        writer.close()

    return attempt
