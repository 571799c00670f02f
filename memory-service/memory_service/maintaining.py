"""How is a maintenance job run from the command line?  `hindsight job`, beside or without a running service."""

from collections.abc import Callable

from memory_service.bootstrap import open_runtime
from memory_service.errors import HindsightError
from memory_service.jobs.runner import Finished, told
from memory_service.jobs.schedule import summary
from memory_service.settings import Settings


async def run_job(
    settings: Settings, name: str, *, tenant: str | None, dry_run: bool, say: Callable[[str], None]
) -> bool:
    """Run it for one tenant, or one after the other; a line each, and one for each thing named.  False when one failed.

    Raises NotFound naming the jobs.  What it enqueues for the index is worked off by the running service, or its next start.
    """
    good = True
    async with open_runtime(settings) as runtime:
        job = runtime.schedule.job(name)
        for one in [tenant] if tenant is not None else await runtime.schedule.tenants(job):
            try:
                finished = await runtime.schedule.run_now(name, one, dry_run=dry_run, started_by="command")
            except HindsightError as error:
                say(f"{name}, tenant {one}: failed: {told(error)}")
                good = False
            else:
                say(f"{name}, tenant {one}: {summary(job, finished)}")
                _list(finished, say)
    return good


def _list(finished: Finished, say: Callable[[str], None]) -> None:
    for item in finished.report.items:
        say(f"  {item.id}  {item.user_id}  {item.why}")
    more = finished.report.done - len(finished.report.items)
    if finished.report.items and more > 0:
        say(f"  … and {more} more")
    for name, count in finished.report.counts.items():
        if count:  # a row of zeros hides the one figure that matters
            say(f"  {name.replace('_', ' ')}: {count}")
