"""How are all vectors of a tenant made anew, beside the running service?  The job `reindex`.

It only says to the relay that everything changed; searches go on with the old vectors meanwhile.
"""

from collections.abc import Callable
from uuid import UUID

from memory_service.lifecycle.report import JobReport, JobRun
from memory_service.stores.postgres import indexed
from memory_service.stores.postgres.indexed import Expected
from memory_service.stores.postgres.pool import Connection, Postgres


class Reindexing:
    """`run` enqueues in pages of `page_rows`, one transaction each."""

    def __init__(self, postgres: Postgres, page_rows: int, nudge: Callable[[], None]) -> None:
        self._postgres = postgres
        self._page_rows = page_rows
        self._nudge = nudge

    async def run(self, run: JobRun) -> JobReport:
        """Done: memories and active experiences that wait for new vectors.  Raises StoreUnavailable."""
        if run.dry_run:
            return JobReport(await self._postgres.read(lambda c: indexed.count(c, run.tenant)))
        done, after = 0, None
        while True:
            found = await self._postgres.transaction(lambda c, after=after: self._page(c, run.tenant, after))  # type: ignore[misc]
            if not found:
                return JobReport(done)
            done, after = done + len(found), found[-1].id
            self._nudge()

    async def _page(self, connection: Connection, tenant: str, after: UUID | None) -> list[Expected]:
        found = await indexed.page(connection, tenant, after, self._page_rows)
        if found:
            await indexed.enqueue_again(connection, tenant, [one.id for one in found])
        return found
