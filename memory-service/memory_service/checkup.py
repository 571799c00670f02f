"""Is this set-up in order, and if not, what is there to do?  `hindsight doctor`."""

from collections.abc import Callable

from memory_service.bootstrap import open_runtime
from memory_service.errors import SetupRefused, StoreUnavailable
from memory_service.settings import Settings
from memory_service.stores.postgres import outbox
from memory_service.stores.postgres.pool import fetch_one

ADVICE = {
    "postgres": "check HINDSIGHT_DATABASE_URL and that Postgres runs; hindsight up starts one",
    "redis": "check HINDSIGHT_REDIS_URL and that Redis runs; hindsight up starts one",
    "qdrant": "check HINDSIGHT_QDRANT_URL and that Qdrant runs; hindsight up starts one",
}


async def checkup(settings: Settings, say: Callable[[str], None]) -> bool:
    """Print one line a check; True when all are good.  Raises SetupRefused for a configuration that can't be read."""
    good = True
    async with open_runtime(settings, progress=say) as runtime:
        made = runtime.embedder.fingerprint
        say(f"ok    embedding  {made.model} ({made.revision}), {made.dimensions} dimensions")
        state = await runtime.operations.readiness()
        for store, found in state["stores"].items():
            good &= found == "up"
            say(f"{'ok  ' if found == 'up' else 'FAIL'}  {store}" + ("" if found == "up" else f": {ADVICE[store]}"))
        if state["stores"]["postgres"] == "up":
            good &= await _database(runtime.postgres, say)
        if state["stores"]["qdrant"] == "up":
            try:
                await runtime.relay.prepare()
                say("ok    vectors are of the configured model")
            except SetupRefused as error:
                good = False
                say(f"FAIL  {error}")
    return good


async def _database(postgres: object, say: Callable[[str], None]) -> bool:
    try:
        await postgres.read(lambda c: fetch_one(c, "SELECT version_num FROM alembic_version"))  # type: ignore[attr-defined]
        backlog = await postgres.read(outbox.backlog)  # type: ignore[attr-defined]
    except StoreUnavailable:
        return False
    except Exception:
        say("FAIL  the tables are missing: run hindsight migrate")
        return False
    say(f"ok    tables; {backlog.pending} memories wait for their vectors, {backlog.dead} given up")
    return bool(backlog.dead == 0)
