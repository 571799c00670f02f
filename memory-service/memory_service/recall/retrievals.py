"""What was asked lately, what did it bring, and was it used?  Reads the log of retrievals.

Writing it is jobs/retrieval_log.py's work; what was used is told by lifecycle.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from uuid import UUID

from memory_service.stores.postgres import retrievals
from memory_service.stores.postgres.pool import Postgres
from memory_service.stores.postgres.retrievals import Retrieval, RetrievalFilter


class Retrievals:
    """`flush` writes what this process's log still holds: who has just searched wants to see it."""

    def __init__(self, postgres: Postgres, flush: Callable[[], Awaitable[None]]) -> None:
        self._postgres = postgres
        self._flush = flush

    async def page(
        self, chosen: RetrievalFilter, after: tuple[datetime, UUID] | None, limit: int
    ) -> tuple[list[Retrieval], int]:
        """Newest first, and how many there are in all.  Raises StoreUnavailable."""
        await self._flush()
        return await self._postgres.read(lambda c: retrievals.page(c, chosen, after, limit))
