"""How does a second collection of vectors come to serve?  The steps of `hindsight reembed` from its row in Postgres to the switch.

It is made from Postgres by a relay of its own in this process, which follows shadow_outbox; then the services load the model,
and Postgres exchanges the roles (stores/postgres/embedding_collections.py).  Which model, and what a person is told when
there is nothing to do, is decided by reembedding.py.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic

from rich.progress import Progress, TaskID

from memory_service.errors import SetupRefused, StoreUnavailable
from memory_service.foundation import embedder_config, open_index
from memory_service.jobs.following import ReembedNumbers
from memory_service.jobs.relay import Relay
from memory_service.models.embedding_settings import EmbedderConfig
from memory_service.models.ports import Embedder, EmbeddingFingerprint
from memory_service.settings import Settings, Tunables, load_tunables
from memory_service.stores.postgres import embedding_collections, outbox, schema
from memory_service.stores.postgres.embedding_collections import RUN_LOCK, Collections, Role, ServingProcess
from memory_service.stores.postgres.locks import session
from memory_service.stores.postgres.pool import Postgres
from memory_service.stores.qdrant import VectorIndex
from memory_service.vocabulary import load_vocabulary

WORK_POLL_S = 0.2
PAGE_ROWS = 1_000
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Deployment:
    """What a run works with."""

    settings: Settings
    tunables: Tunables
    numbers: ReembedNumbers
    postgres: Postgres
    env: EmbedderConfig
    say: Say

    async def known(self) -> Collections:
        return await self.postgres.read(embedding_collections.read)

    def index(self, made: EmbeddingFingerprint) -> VectorIndex:
        return open_index(self.settings, self.tunables, made)


@asynccontextmanager
async def deployment(settings: Settings, say: Say) -> AsyncIterator[Deployment]:
    """Raises SetupRefused while another run is at work, or when the tables are not those of this version."""
    tunables = load_tunables(settings)
    postgres = Postgres(settings.database_url, tunables.stores)
    await postgres.open()
    try:
        found = await postgres.read(schema.revision)
        if found != schema.REVISION:
            raise SetupRefused(
                f"the database is at revision {found or 'none'}, not {schema.REVISION}. Run: hindsight migrate"
            )
        async with session(postgres) as locks:
            if not await locks.take(RUN_LOCK):
                raise SetupRefused("another hindsight reembed is running")
            numbers = tunables.section("reembed", ReembedNumbers)
            yield Deployment(settings, tunables, numbers, postgres, embedder_config(settings), say)
    finally:
        await postgres.close()


async def settle(here: Deployment) -> None:
    """Until every transaction has ended that did not see the roles as they are now."""
    horizon = await here.postgres.read(embedding_collections.horizon)
    deadline = monotonic() + here.numbers.settle_wait_s
    while not await here.postgres.read(lambda c: embedding_collections.settled(c, horizon)):
        if monotonic() > deadline:
            raise SetupRefused(
                f"a transaction has been open in Postgres for over {here.numbers.settle_wait_s:.0f} s (see pg_stat_activity); "
                "run the same command again when it has ended"
            )
        await asyncio.sleep(WORK_POLL_S)


async def set_role(here: Deployment, collection: str, role: Role) -> None:
    await here.postgres.transaction(lambda c: embedding_collections.set_role(c, collection, role))


async def processes(here: Deployment) -> list[ServingProcess]:
    return await here.postgres.read(lambda c: embedding_collections.processes(c, here.numbers.silent_s))


class ReembedRun:
    """From a second collection that Postgres knows to the one that serves."""

    def __init__(
        self, here: Deployment, embedder: Embedder, index: VectorIndex, progress: Progress, *, skip_failed: bool
    ) -> None:
        self._here = here
        self._index = index
        self._progress = progress
        self._skip_failed = skip_failed
        folder = here.settings.config_folder
        vocabulary = load_vocabulary(folder / "terms.toml", folder / "stop_words.toml")
        self._relay = Relay(
            here.postgres, index, embedder, vocabulary, here.tunables.relay, _no_copies, queue="shadow_outbox"
        )

    async def build(self) -> None:
        """Until the second collection is as fresh as the one that serves."""
        here, task = self._here, self._progress.add_task("embedding", total=None)
        while True:
            await self._fill()
            await here.postgres.transaction(lambda c: outbox.try_again(c, "shadow_outbox"))
            if await self._work(task):
                break
        dead = (await self._backlog()).dead
        if dead and not self._skip_failed:
            raise SetupRefused(
                f"{dead} could not be embedded (the table shadow_outbox has the reasons: state dead); nothing was "
                "switched. The same command tries them again, --skip-failed goes on without them, --abandon gives up"
            )

    async def _fill(self) -> None:
        """Put everything into the collection's outbox, once.  A collection that is lost begins anew."""
        here, name = self._here, self._index.collection
        second = (await here.known()).second
        if second is not None and second.enqueued and not await self._index.exists():
            await here.postgres.transaction(lambda c: embedding_collections.set_enqueued(c, name, False))
            second = None
        if second is None or not second.enqueued:
            await settle(here)
            await self._index.drop()  # what a run left that was given up: nobody has removed the erased from it since
            await self._index.make()
            await self._enqueue()
            await here.postgres.transaction(lambda c: embedding_collections.set_enqueued(c, name, True))
        await self._index.make()

    async def _enqueue(self) -> None:
        """In pages that give way to writers, who never wait longer for one than its rows take."""
        here, after, failures = self._here, None, 0
        while True:
            try:
                after, count = await here.postgres.transaction(
                    lambda c, start=after: outbox.enqueue_page(
                        c, "shadow_outbox", start, PAGE_ROWS, here.numbers.switch_lock_ms
                    )  # type: ignore[misc]
                )
            except StoreUnavailable:
                failures += 1
                if failures > here.numbers.switch_attempts_max:
                    raise
                continue
            if count == 0:
                return

    async def _work(self, task: TaskID) -> bool:
        """Work off until little is left; False when the collection was lost meanwhile."""
        here, total, told = self._here, 0, None
        while True:
            progressed = await self._step()
            pending = (await self._backlog()).pending
            total = max(total, pending + self._relay.state.applied)
            self._progress.update(task, total=total, completed=total - pending)
            if pending == 0 or (not self._more() and pending <= here.numbers.caught_up_rows and not await self._held()):
                return True
            if not progressed:
                if not await self._there():
                    return False
                if (error := self._relay.state.last_error) not in (None, told):
                    here.say(f"waiting: {error}")
                    told = error
                await asyncio.sleep(WORK_POLL_S)

    def _more(self) -> bool:
        """Did the last batch leave some that were due already?"""
        return self._relay.state.claimed == self._here.tunables.relay.batch_rows_max

    async def _held(self) -> int:
        """Rows that failed and wait for another attempt, or that a run which died still has a lease on."""
        return await self._here.postgres.read(lambda c: outbox.held(c, "shadow_outbox"))

    async def _step(self) -> bool:
        """One batch; False when nothing could be done."""
        self._relay.state.ready = True
        try:
            await self._relay.step()
        except StoreUnavailable:
            return False
        return self._relay.state.claimed > 0

    async def _there(self) -> bool:
        try:
            return await self._index.exists()
        except StoreUnavailable:
            return True  # not reachable is not lost

    async def _backlog(self) -> outbox.Backlog:
        return await self._here.postgres.read(lambda c: outbox.backlog(c, queue="shadow_outbox"))

    async def switch(self) -> None:
        """The services load the model, the roles are exchanged, the alias follows; until all of them serve with it."""
        here, name = self._here, self._index.collection
        await set_role(here, name, "ready")
        here.say("waiting for the services to load the model")
        await self._until(lambda p: name in (p.prepared, p.serves), refuse=True)
        for attempt in range(here.numbers.switch_attempts_max):
            try:
                await here.postgres.transaction(
                    lambda c: embedding_collections.switch(c, name, here.numbers.switch_lock_ms)
                )
                break
            except StoreUnavailable:
                if attempt + 1 == here.numbers.switch_attempts_max:
                    raise
                await self._step()
        await self._index.serve()
        await self._until(lambda p: p.serves == name, refuse=False)
        here.say(
            f"{self._index.fingerprint.model} serves now. The old collection is kept: hindsight reembed --rollback goes back, "
            "--drop-old removes it. Set the new model in the environment of the services at the next occasion."
        )

    async def _until(self, good: Callable[[ServingProcess], bool], *, refuse: bool) -> None:
        """Until all running services are so; the second collection is kept fresh meanwhile."""
        here, numbers = self._here, self._here.numbers
        heard, deadline = monotonic() + 2 * numbers.poll_s, monotonic() + numbers.load_wait_s
        while monotonic() < deadline:
            await self._step()
            found = await processes(here)
            failed = [p for p in found if p.error is not None and not good(p)]
            if failed and refuse:
                raise SetupRefused(
                    f"{failed[0].host} can't load the model: {failed[0].error}. Nothing was switched; put that right and run "
                    "the same command again, or give up: hindsight reembed --abandon"
                )
            if monotonic() > heard and all(map(good, found)):
                return
            await asyncio.sleep(WORK_POLL_S)
        waiting = ", ".join(p.host for p in await processes(here) if not good(p))
        raise SetupRefused(
            f"{waiting} did not change over within {numbers.load_wait_s:.0f} s"
            + (": nothing was switched" if refuse else "")
        )


async def _no_copies(_tenant: str, _user_id: str, _memory_id: str) -> None:
    """Working memory is the business of the services' relay, which gets the same row."""
