"""How is the service doing?  Readiness, figures and gauges; asks every store, changes nothing."""

import asyncio
from collections.abc import Awaitable
from dataclasses import asdict

from memory_service.domain import Json
from memory_service.errors import StoreUnavailable
from memory_service.jobs.reembed_state import STATES, ReembedState
from memory_service.jobs.relay import Relay
from memory_service.jobs.retrieval_log import RetrievalLog
from memory_service.metrics import (
    JOB_LAST_SUCCESS,
    OUTBOX_AGE,
    OUTBOX_DEPTH,
    REEMBED_ROWS,
    REEMBED_RUNNING,
    REEMBED_STATE,
    RETRIEVALS_DROPPED,
)
from memory_service.models.ports import Embedder
from memory_service.stores.postgres import job_runs, outbox, stats
from memory_service.stores.postgres.pool import Postgres, fetch_one
from memory_service.stores.qdrant import PointRefused, VectorIndex
from memory_service.stores.redis_client import Redis, ping
from memory_service.timestamps import time_text

PING_S = 2.0


class Operations:
    """What /ready, /metrics and /v1/stats tell."""

    def __init__(
        self,
        postgres: Postgres,
        redis: Redis,
        index: VectorIndex,
        embedder: Embedder,
        relay: Relay,
        retrieval_log: RetrievalLog,
        reembed: ReembedState,
    ) -> None:
        self._postgres = postgres
        self._redis = redis
        self._index = index
        self._embedder = embedder
        self._relay = relay
        self._retrieval_log = retrieval_log
        self._reembed = reembed

    async def readiness(self) -> Json:
        """{ready, stores, embedding, reembed, index}.  Postgres and Redis are needed; without Qdrant searches go on by
        keyword, so it is reported as down and the service stays ready only when its collection is not refused."""
        names = ("postgres", "redis", "qdrant")
        pings = (self._postgres.read(lambda c: fetch_one(c, "SELECT 1")), ping(self._redis), self._index.ping())
        states = dict(zip(names, await asyncio.gather(*map(_state, pings)), strict=True))
        backlog = await self._backlog() if states["postgres"] == "up" else None
        return {
            "ready": all(state == "up" for state in states.values()) and self._relay.state.refused is None,
            "stores": states,
            "embedding": asdict(self._embedder.fingerprint),
            "reembed": await self._reembed.told() if states["postgres"] == "up" else None,
            "index": {"refused": self._relay.state.refused, **(backlog or {})},
        }

    async def stats(self, tenant: str, user_id: str | None) -> Json:
        """Counts of a tenant or one of its users, and how far the index is behind."""
        memories = await self._postgres.read(lambda c: stats.memory_counts(c, tenant, user_id))
        others = await self._postgres.read(lambda c: stats.other_counts(c, tenant, user_id))
        backlog = asdict(await self._postgres.read(lambda c: outbox.backlog(c, tenant)))
        backlog["oldest_s"] = round(backlog["oldest_s"], 3)
        return {
            "user_id": user_id,
            "memories": {kind: {**counts, "total": sum(counts.values())} for kind, counts in memories.items()},
            **others,
            "index": {**backlog, "model": self._embedder.fingerprint.model},
            **({} if user_id is not None else await self._of_tenant(tenant)),
        }

    async def _of_tenant(self, tenant: str) -> Json:
        """What concerns no single user."""
        return {"reconcile": await self._reconciled(tenant), "reembed": await self._reembed.told(tenant)}

    async def _reconciled(self, tenant: str) -> Json | None:
        """How the index last compared with Postgres; None when it never was compared."""
        last = await self._postgres.read(lambda c: job_runs.last_of(c, tenant, "reconcile"))
        if last is None or last.finished_at is None:
            return None
        at = time_text(last.finished_at)
        return {"at": at, "outcome": last.outcome, "repaired": last.done, **last.counts}

    async def refresh_gauges(self) -> None:
        """Bring the gauges up to date before they are read; those of a store that is down keep their value."""
        RETRIEVALS_DROPPED.set(self._retrieval_log.dropped)
        await self._refresh_reembed()
        try:
            found = await self._postgres.read(outbox.backlog)
            ended = await self._postgres.read(job_runs.last_successes)
        except StoreUnavailable:
            return
        for job, at in ended.items():
            JOB_LAST_SUCCESS.labels(job).set(at.timestamp())
        OUTBOX_DEPTH.labels("pending").set(found.pending)
        OUTBOX_DEPTH.labels("dead").set(found.dead)
        OUTBOX_AGE.set(found.oldest_s)

    async def _refresh_reembed(self) -> None:
        change = await self._reembed.told()
        for state in STATES:
            REEMBED_STATE.labels(state).set(change is not None and change["state"] == state)
        REEMBED_RUNNING.set(change is not None and change["running"])
        for what in ("done", "total", "failed"):
            REEMBED_ROWS.labels(what).set(change[what] if change is not None else 0)

    async def _backlog(self) -> Json:
        found = await self._postgres.read(outbox.backlog)
        return {
            "pending": found.pending,
            "dead": found.dead,
            "oldest_s": round(found.oldest_s, 3),
            "last_error": self._relay.state.last_error,
        }


async def _state(ping: Awaitable[object]) -> str:
    try:
        async with asyncio.timeout(PING_S):
            await ping
    except (StoreUnavailable, PointRefused, TimeoutError):
        return "down"
    return "up"
