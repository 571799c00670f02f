"""How far is a change of the embedding model?  What /ready, /v1/stats and the metrics tell of `hindsight reembed`.

Reads Postgres only, so every service tells the same, whichever process does the work.  Who asks must not fail over this:
`ReembedState.told` answers None when Postgres can't say.
"""

import asyncio
from dataclasses import dataclass
from time import monotonic
from typing import Literal

from memory_service.domain import Json
from memory_service.errors import StoreUnavailable
from memory_service.jobs.following import ReembedNumbers
from memory_service.stores.postgres import embedding_collections, locks, outbox
from memory_service.stores.postgres.embedding_collections import RUN_LOCK, Collections, EmbeddingCollection
from memory_service.stores.postgres.pool import Connection, Postgres
from memory_service.stores.postgres.reembed_progress import vectors_wanted

State = Literal["building", "switching", "finished"]
STATES: tuple[State, ...] = ("building", "switching", "finished")


@dataclass(frozen=True, slots=True)
class Counted:
    """`total` memories and lessons have vectors; of the second collection's, `pending` are out of date, `failed` given up."""

    total: int
    pending: int
    failed: int


@dataclass(frozen=True, slots=True)
class Change:
    """From which model to which.  `kept`: the old vectors are still there, so a rollback embeds only what is pending."""

    state: State
    before: EmbeddingCollection
    after: EmbeddingCollection
    kept: bool


def change_of(known: Collections) -> Change | None:
    """The change under way, else the last one; None when no model was ever replaced."""
    active, second = known.active, known.second
    if active is None:
        return None
    if second is not None and second.role != "kept":
        return Change("switching" if second.role == "ready" else "building", active, second, kept=False)
    if second is not None:
        return Change("finished", second, active, kept=True)
    dropped = [row for row in known.rows if row.role == "dropped" and row.served]
    return Change("finished", dropped[-1], active, kept=False) if dropped else None


def change_json(change: Change, counted: Counted, *, running: bool) -> Json:
    """For people and monitors.  A finished change has nothing left to do; what a rollback would have to embed is `behind`."""
    finished = change.state == "finished"
    behind = 0 if finished else min(counted.pending + counted.failed, counted.total)
    return {
        "state": change.state,
        "running": running,
        "from": _model(change.before),
        "to": _model(change.after),
        "done": counted.total - behind,
        "total": counted.total,
        "failed": 0 if finished else counted.failed,
        "rollback": {"possible": change.kept, "behind": counted.pending if change.kept else 0},
    }


class ReembedState:
    """Asked by every scrape and probe, so counts are kept for `counted_every_s`."""

    def __init__(self, postgres: Postgres, numbers: ReembedNumbers) -> None:
        self._postgres = postgres
        self._numbers = numbers
        self._kept: dict[str | None, tuple[float, Change, Counted]] = {}

    async def told(self, tenant: str | None = None) -> Json | None:
        """Over all tenants, or one; None when no model was replaced, or when that can't be told within `told_wait_s`."""
        try:
            async with asyncio.timeout(self._numbers.told_wait_s):
                return await self._postgres.read(lambda c: self._read(c, tenant))
        except (StoreUnavailable, TimeoutError):
            return None

    async def _read(self, connection: Connection, tenant: str | None) -> Json | None:
        change = change_of(await embedding_collections.read(connection))
        if change is None:
            self._kept.clear()
            return None
        running = await locks.is_held(connection, RUN_LOCK)
        kept = self._kept.get(tenant)
        if kept is None or kept[0] < monotonic() or kept[1] != change:
            backlog = await outbox.backlog(connection, tenant, "shadow_outbox")
            counted = Counted(await vectors_wanted(connection, tenant), backlog.pending, backlog.dead)
            kept = (monotonic() + self._numbers.counted_every_s, change, counted)
            if len(self._kept) >= self._numbers.counted_tenants_max:
                self._kept.clear()
            self._kept[tenant] = kept
        return change_json(change, kept[2], running=running)


def _model(one: EmbeddingCollection) -> Json:
    made = one.fingerprint
    return {"model": made["model"], "revision": made["revision"], "dimensions": made["dimensions"]}
