"""How does a running service change its embedding model?  It follows Postgres, where `hindsight reembed` says what is wanted.

While a second collection is `ready`, its model is loaded beside the one that serves, and Postgres is told when it is.  When
the roles were exchanged, searches and the relay go over to it between two requests.  Until then, and when a model can't be
loaded, the service serves on with its own collection.  What was erased is removed from the second collection too, which
needs no model: also from one that is only kept.  Safe to kill at any line: a start reads where things stand.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from uuid import uuid4

from memory_service.domain import Json
from memory_service.errors import SetupRefused, StoreUnavailable
from memory_service.jobs.relay import Relay
from memory_service.models.ports import Embedder, EmbeddingFingerprint
from memory_service.models.switching import SwitchingEmbedder
from memory_service.settings import Section
from memory_service.stores.postgres import embedding_collections, outbox
from memory_service.stores.postgres.embedding_collections import Collections, EmbeddingCollection, ServingProcess
from memory_service.stores.postgres.outbox import Worked
from memory_service.stores.postgres.pool import Postgres
from memory_service.stores.qdrant import PointRefused, VectorIndex

log = logging.getLogger(__name__)
# Opens the model that a stored configuration names; raises SetupRefused.
OpenStored = Callable[[Json], Awaitable[Embedder]]


class ReembedNumbers(Section):
    """[reembed] of memory.toml."""

    poll_s: float
    repeat_s: float
    silent_s: float
    close_after_s: float
    load_retry_s: float
    settle_wait_s: float
    load_wait_s: float
    caught_up_rows: int
    switch_lock_ms: int
    switch_attempts_max: int
    counted_every_s: float
    counted_tenants_max: int
    told_wait_s: float


class ModelFollower:
    """`run` as one task per process."""

    def __init__(
        self,
        postgres: Postgres,
        index: VectorIndex,
        embedder: SwitchingEmbedder,
        relay: Relay,
        open_stored: OpenStored,
        numbers: ReembedNumbers,
    ) -> None:
        self._postgres = postgres
        self._index = index
        self._embedder = embedder
        self._relay = relay
        self._open_stored = open_stored
        self._numbers = numbers
        self._process = uuid4()
        self._host = f"{socket.gethostname()}:{os.getpid()}"
        self._stopping = asyncio.Event()
        self._loading: tuple[str, asyncio.Task[Embedder]] | None = None
        self._loaded: tuple[str, Embedder] | None = None
        self._refused: tuple[str, str, float] | None = None
        self._leaving: list[tuple[float, Embedder]] = []
        self._said: ServingProcess | None = None
        self._said_at = 0.0

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        """Look every `poll_s` until stopped.  A store that is down is waited for; nothing here ends the process."""
        while not self._stopping.is_set():
            try:
                await self.step()
            except StoreUnavailable:
                pass  # the relay tells of it
            except Exception:
                log.exception("following the embedding model failed")
            with suppress(TimeoutError):
                async with asyncio.timeout(self._numbers.poll_s):
                    await self._stopping.wait()
        await self._close()

    async def step(self) -> None:
        """Look once.  Raises StoreUnavailable."""
        known = await self._postgres.read(embedding_collections.read)
        active, second = known.active, known.second
        wanted = [c for c in (active, second) if c is not None and self._wants(c)]
        await self._load(wanted[0] if wanted else None)
        if active is not None and self._loaded is not None and self._loaded[0] == active.collection:
            self._switch(self._loaded[1])
        await self._report(known)
        if second is not None:
            await self._erase(second)
        await self._close_left()

    def _wants(self, one: EmbeddingCollection) -> bool:
        return one.role in ("active", "ready") and one.collection != self._index.collection

    async def _load(self, wanted: EmbeddingCollection | None) -> None:
        """Begin, or look at, the loading of a model; it never holds up the rest."""
        if self._loaded is not None and (wanted is None or self._loaded[0] != wanted.collection):
            self._leave(self._loaded[1])
            self._loaded = None
        if self._loading is None and wanted is not None and self._loaded is None:
            refused = self._refused
            if refused is None or refused[0] != wanted.collection or refused[2] < monotonic():
                log.info("loading the embedding model of %s", wanted.collection)
                self._loading = (wanted.collection, asyncio.create_task(self._open(wanted)))
        if self._loading is None:
            return
        collection, task = self._loading
        done, _ = await asyncio.wait([task], timeout=0)
        if not done:
            return
        self._loading = None
        try:
            self._loaded, self._refused = (collection, task.result()), None
        except Exception as error:
            text = str(error) if isinstance(error, SetupRefused) else type(error).__name__
            log.warning("the embedding model of %s can't be loaded: %s", collection, text)
            self._refused = (collection, text, monotonic() + self._numbers.load_retry_s)

    async def _open(self, wanted: EmbeddingCollection) -> Embedder:
        """Raises SetupRefused, also when what is opened here makes other vectors than what was opened there."""
        embedder = await self._open_stored(wanted.config)
        if self._index.of(embedder.fingerprint).collection == wanted.collection:
            return embedder
        made = embedder.fingerprint
        await embedder.close()
        raise SetupRefused(
            f"{made.model} is here at revision {made.revision}, which is not the one of {wanted.collection}"
        )

    def _switch(self, to: Embedder) -> None:
        """Between two requests: nothing is awaited in here."""
        before = self._embedder.switch(to)
        self._index.retarget(to.fingerprint)
        self._loaded = None
        self._leave(before)
        self._relay.state.ready, self._relay.state.refused = False, None  # it looks at the new collection first
        self._relay.nudge()
        log.info("serving with the embedding model %s now (%s)", to.fingerprint.model, self._index.collection)

    async def _report(self, known: Collections) -> None:
        """Tell who serves what while it matters."""
        matters = known.second is not None or self._loading is not None or self._refused is not None
        prepared = self._loaded[0] if self._loaded else None
        error = self._refused[1] if self._refused else None
        said = ServingProcess(self._host, self._index.collection, prepared, error)
        if not matters or (said == self._said and self._said_at > monotonic() - self._numbers.repeat_s):
            return
        await self._postgres.transaction(lambda c: embedding_collections.report(c, self._process, said))
        self._said, self._said_at = said, monotonic()

    async def _erase(self, second: EmbeddingCollection) -> None:
        """Remove the vectors of what was erased from the collection that is not served."""
        made = EmbeddingFingerprint(**second.fingerprint)
        index, worked, numbers = self._index.of(made), Worked(second.collection, "shadow_outbox"), self._relay.numbers
        while rows := await self._postgres.transaction(
            lambda c: outbox.claim_erased(c, worked, numbers.batch_rows_max, numbers.lease_s)
        ):
            try:
                await index.delete_chunks([row.memory_id for row in rows])
            except (StoreUnavailable, PointRefused):  # or there is no such collection yet, or any more
                await self._postgres.transaction(lambda c, r=rows: outbox.put_back(c, worked, r, numbers.backoff_s))  # type: ignore[misc]
                return
            done = set(await self._postgres.transaction(lambda c, r=rows: outbox.complete(c, worked, r)))  # type: ignore[misc]
            if left := [row for row in rows if row.memory_id not in done]:
                await self._postgres.transaction(lambda c, r=left: outbox.give_back(c, worked, r))  # type: ignore[misc]

    def _leave(self, embedder: Embedder) -> None:
        """Requests that began with it may still be using it."""
        self._leaving.append((monotonic() + self._numbers.close_after_s, embedder))

    async def _close_left(self) -> None:
        due = [embedder for at, embedder in self._leaving if at <= monotonic()]
        self._leaving = [(at, embedder) for at, embedder in self._leaving if at > monotonic()]
        for embedder in due:
            await embedder.close()

    async def _close(self) -> None:
        """At the end: everything that was opened here and does not serve.  What serves is closed with the rest of the service."""
        if self._loading is not None:
            self._loading[1].cancel()
        if self._loaded is not None:
            self._leave(self._loaded[1])
        for _, embedder in self._leaving:
            await embedder.close()
        with suppress(StoreUnavailable):
            await self._postgres.transaction(lambda c: embedding_collections.leave(c, self._process))
