"""How is the embedding model changed while the service runs?  `hindsight reembed`, its rollback, and what ends it.

Here is decided what may be done as things stand; reembed_run.py does it.  Every step is committed before the next one, and
each may be done twice: a run that was killed is taken up by the next one.
"""

from contextlib import AsyncExitStack
from dataclasses import asdict

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from memory_service.errors import SetupRefused
from memory_service.foundation import embedder_config, open_model
from memory_service.models.embedding_settings import EmbedderConfig
from memory_service.models.ports import EmbeddingFingerprint
from memory_service.reembed_run import Deployment, ReembedRun, Say, deployment, processes, set_role, settle
from memory_service.settings import Settings
from memory_service.stores.postgres import embedding_collections
from memory_service.stores.postgres.embedding_collections import Collections, EmbeddingCollection
from memory_service.stores.qdrant import VectorIndex


def wanted_model(
    settings: Settings,
    to: str,
    provider: str | None,
    base_url: str | None,
    revision: str | None,
    dimensions: int | None,
    query_prefix: str | None,
    passage_prefix: str | None,
) -> EmbedderConfig:
    """What the options of the command mean.  Nothing of the configured model is taken over but its provider and its endpoint,
    and the latter only when the provider stays; `-` is the provider's own model."""
    env = embedder_config(settings)
    chosen = provider or env.provider
    same_endpoint = env.base_url if chosen == env.provider else None
    return env.opening({
        "provider": chosen,
        "model": None if to == "-" else to,
        "revision": revision,
        "base_url": base_url or same_endpoint,
        "query_prefix": query_prefix,
        "passage_prefix": passage_prefix,
        "dimensions": dimensions,
    })  # fmt: skip


async def reembed(settings: Settings, wanted: EmbedderConfig, *, skip_failed: bool, progress: Progress) -> None:
    """All vectors anew with `wanted`, then serve with it.  Raises SetupRefused, and has then changed nothing that serves."""
    async with deployment(settings, progress.console.print) as here, AsyncExitStack() as stack:
        active = _active(await here.known())
        embedder = await open_model(wanted, here.tunables, here.say)
        stack.push_async_callback(embedder.close)
        index = here.index(embedder.fingerprint)
        stack.push_async_callback(index.close)
        if index.collection == active.collection:
            await index.serve()  # a run that died in the last moment left the alias behind
            here.say(f"{embedder.fingerprint.model} serves already, there is nothing to do")
            return
        await _begin(here, index, wanted)
        run = ReembedRun(here, embedder, index, progress, skip_failed=skip_failed)
        await run.build()
        await run.switch()


async def rollback(settings: Settings, *, progress: Progress) -> None:
    """Back to the model that served before: its collection gets what has changed since, then the roles are exchanged."""
    async with deployment(settings, progress.console.print) as here:
        second = (await here.known()).second
        if second is None or not second.served:
            raise SetupRefused("there is no earlier model to go back to: nothing is kept")
        wanted = here.env.opening(second.config)
    await reembed(settings, wanted, skip_failed=False, progress=progress)


async def drop_old(settings: Settings, say: Say) -> None:
    """Remove the collection that is kept.  Raises SetupRefused when there is none, or a service still serves with it."""
    async with deployment(settings, say) as here:
        second = (await here.known()).second
        if second is None or second.role != "kept":
            raise SetupRefused("no old collection is kept" + (": one is being built" if second else ""))
        still = [p for p in await processes(here) if p.serves == second.collection]
        if still:
            raise SetupRefused(
                f"{', '.join(p.host for p in still)} still serves with {second.collection}: {still[0].error or 'wait'}"
            )
        await _drop(here, second)
        say(f"dropped {second.collection} ({second.fingerprint['model']})")


async def abandon(settings: Settings, say: Say) -> None:
    """Give up a change of the model that has not been switched to; a collection that had served is kept as before."""
    async with deployment(settings, say) as here:
        second = (await here.known()).second
        if second is None or second.role == "kept":
            raise SetupRefused("no change of the embedding model is under way")
        if second.served:
            await set_role(here, second.collection, "kept")
            say(f"{second.collection} is kept as before")
            return
        await _drop(here, second)
        say(f"dropped {second.collection}, which was not finished")


def _active(known: Collections) -> EmbeddingCollection:
    if known.active is None:
        raise SetupRefused(
            "no model has served here yet: set HINDSIGHT_EMBEDDING_PROVIDER and _MODEL, and start the service"
        )
    return known.active


async def _begin(here: Deployment, index: VectorIndex, wanted: EmbedderConfig) -> None:
    """A second collection for this model: a new one, one that an earlier run began, or the kept one."""
    second = (await here.known()).second
    if second is not None and second.collection != index.collection:
        raise SetupRefused(
            f"{second.collection} ({second.fingerprint['model']}) is "
            + ("kept; first: hindsight reembed --drop-old, or --rollback" if second.role == "kept"
               else "being built; first finish it: the same command again, or give it up: hindsight reembed --abandon")
        )  # fmt: skip
    await here.postgres.transaction(lambda c: embedding_collections.forget_processes(c, here.numbers.silent_s))
    if second is None:
        new = EmbeddingCollection(
            index.collection, "building", wanted.stored(), asdict(index.fingerprint), enqueued=False, served=False
        )
        await here.postgres.transaction(lambda c: embedding_collections.begin(c, new))
        here.say(f"building {index.collection} ({index.fingerprint.model}) beside the one that serves")
    else:
        if second.role == "kept":
            await set_role(here, second.collection, "building")
        here.say(f"going on with {second.collection} ({index.fingerprint.model})")


async def _drop(here: Deployment, second: EmbeddingCollection) -> None:
    """Qdrant first: as long as the row says that there is a second collection, the run may be repeated."""
    index = here.index(EmbeddingFingerprint(**second.fingerprint))
    try:
        await index.drop()
    finally:
        await index.close()
    await set_role(here, second.collection, "dropped")
    await here.postgres.transaction(lambda c: embedding_collections.forget(c, second.collection))
    await settle(here)
    await here.postgres.transaction(embedding_collections.clear_shadow_outbox)


def bar() -> Progress:
    return Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
