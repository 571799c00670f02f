"""How are the vectors rebuilt from Postgres?  `hindsight reindex`."""

import asyncio
from collections.abc import Callable

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from memory_service.bootstrap import Runtime, open_runtime
from memory_service.errors import StoreUnavailable
from memory_service.settings import Settings
from memory_service.stores.postgres import outbox

POLL_S = 0.2


async def reindex(settings: Settings, *, replace: bool) -> None:
    """Enqueue every memory and work the outbox off; running services help.  `replace` drops the old collection first.

    Raises FingerprintMismatch when the collection is another model's and `replace` was not asked for.
    """
    with Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    ) as progress:
        async with open_runtime(settings, progress=progress.console.print) as runtime:
            if replace:
                dropped = await runtime.index.replace()
                progress.console.print(
                    f"new collection {runtime.index.collection}" + (f", dropped {dropped}" if dropped else "")
                )
            else:
                await runtime.index.ensure()
            runtime.relay.state.ready = True
            total = await runtime.relay.enqueue_all()
            task = progress.add_task("indexing", total=total)
            await _work(runtime, lambda left: progress.update(task, completed=max(total - left, 0)))
            points = await runtime.index.count()
            backlog = await runtime.postgres.read(outbox.backlog)
            progress.console.print(
                f"{total} memories, {points} vectors"
                + (f", {backlog.dead} given up (see index_outbox)" if backlog.dead else "")
            )


async def _work(runtime: Runtime, show: Callable[[int], None]) -> None:
    """Until nothing is pending; rows that another process holds are waited for."""
    while True:
        try:
            await runtime.relay.step()
        except StoreUnavailable:
            await asyncio.sleep(POLL_S)
        backlog = await runtime.postgres.read(outbox.backlog)
        show(backlog.pending)
        if backlog.pending == 0:
            return
        if runtime.relay.state.claimed == 0:
            await asyncio.sleep(POLL_S)
