"""How are the vectors rebuilt from Postgres?  `hindsight reindex`."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import asdict

from memory_service.bootstrap import Runtime, open_runtime
from memory_service.errors import SetupRefused, StoreUnavailable
from memory_service.foundation import embedder_config, open_model
from memory_service.reembedding import bar
from memory_service.settings import Settings, load_tunables
from memory_service.stores.postgres import embedding_collections, outbox
from memory_service.stores.postgres.embedding_collections import EmbeddingCollection

POLL_S = 0.2


async def reindex(settings: Settings, *, replace: bool) -> None:
    """Enqueue every memory and work the outbox off; running services help.  `replace` makes a collection of the configured
    model and drops the old one first; services that run then change over to it, and search by words until it is filled.

    Raises FingerprintMismatch when the collection is another model's and `replace` was not asked for, SetupRefused when
    it was and `hindsight reembed` has a second collection.
    """
    async with AsyncExitStack() as stack:
        progress = stack.enter_context(bar())
        say, numbers, embedder = progress.console.print, load_tunables(settings), None
        if replace:  # the model that the environment names, not the one that serves
            embedder = await open_model(embedder_config(settings), numbers, say)
            stack.push_async_callback(embedder.close)
        runtime = await stack.enter_async_context(open_runtime(settings, embedder=embedder, progress=say))
        if replace:
            await _replace(settings, runtime, say)
        else:
            await runtime.relay.prepare()
        runtime.relay.state.ready = True
        total = await runtime.relay.enqueue_all()
        task = progress.add_task("indexing", total=total)
        await _work(runtime, lambda left: progress.update(task, completed=max(total - left, 0)))
        points = await runtime.index.count()
        backlog = await runtime.postgres.read(outbox.backlog)
        say(
            f"{total} memories, {points} vectors"
            + (f", {backlog.dead} given up (see index_outbox)" if backlog.dead else "")
        )


async def _replace(settings: Settings, runtime: Runtime, say: Callable[[str], None]) -> None:
    """Postgres first: whoever looks while there is no collection yet makes it and fills it."""
    index = runtime.index
    if (second := (await runtime.postgres.read(embedding_collections.read)).second) is not None:
        raise SetupRefused(
            f"hindsight reembed has a second collection ({second.collection}, {second.role}); first: hindsight reembed "
            + ("--drop-old" if second.role == "kept" else "--abandon")
        )
    config = embedder_config(settings).stored()
    new = EmbeddingCollection(
        index.collection, "active", config, asdict(index.fingerprint), enqueued=False, served=True
    )
    await runtime.postgres.transaction(lambda c: embedding_collections.replace_active(c, new))
    dropped = await index.replace()
    say(f"new collection {index.collection}" + (f", dropped {dropped}" if dropped else ""))
    await runtime.relay.prepare()


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
