"""What do the lanes of one search bring, and what does ranking need to know of it?

Lanes run side by side.  A query that was never asked has to be embedded first, which takes longer than the other lanes do: what
ranking needs of their finds is read meanwhile, and of the vector lane's only what is not known by then.
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice, zip_longest
from typing import Any, Literal

from memory_service.domain import Key, Lane, MemoryFilter
from memory_service.errors import StoreUnavailable
from memory_service.models.ports import Vector
from memory_service.recall.fusion import LaneScores
from memory_service.recall.lanes import LaneResult, Lanes, within
from memory_service.settings import Tunables
from memory_service.stores.postgres import memories
from memory_service.stores.postgres.filters import SqlFilter
from memory_service.stores.postgres.pool import Postgres
from memory_service.stores.postgres.rank_facts import NOTHING_KNOWN, RankFacts, rank_facts
from memory_service.stores.qdrant import VectorHits

Mode = Literal["hybrid", "vector", "keyword"]


@dataclass(slots=True)
class Gathered:
    """What the lanes of one search brought so far.  `early` are facts of `asked`; who is not in them does not pass the filter."""

    scores: dict[Lane, LaneScores]
    degraded: list[str]
    lane_ms: dict[str, float]
    vector: Vector | None = None
    hits: VectorHits | None = None
    asked: frozenset[Key] = frozenset()
    early: RankFacts = field(default_factory=lambda: NOTHING_KNOWN)

    def ids(self, best: int) -> list[Key]:
        """Every candidate, the best of each lane first; of a lane that lists without vectors at most `best`."""
        hits = [hit.key for hit in self.hits.hits] if self.hits else []
        return _interleaved(hits, self.scores.values(), best)


class Gathering:
    """Runs lanes and reads facts.  Raises StoreUnavailable only when Postgres is down."""

    def __init__(self, postgres: Postgres, lanes: Lanes, tunables: Tunables) -> None:
        self._postgres = postgres
        self._lanes = lanes
        self._search = tunables.search
        self._tail_chars = tunables.signals.tail_chars

    async def run(self, query: str, mode: Mode, chosen: MemoryFilter, sql: SqlFilter) -> Gathered:
        """The lanes of the mode, side by side."""
        deadline = self._search.lane_deadline_s
        running: dict[Lane, asyncio.Task[LaneResult[Any]]] = {}
        reminders: asyncio.Task[LaneResult[tuple[LaneScores, LaneScores]]] | None = None
        early: asyncio.Task[tuple[frozenset[Key], RankFacts]] | None = None
        embedded = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            if mode != "keyword":
                vector = self._lanes.first_vector(query, chosen, embedded)
                running["vector"] = group.create_task(within(deadline, vector))
            if mode != "vector":
                running["keyword"] = group.create_task(within(deadline, self._lanes.keyword(query, chosen, sql)))
            if mode == "hybrid":
                reminders = group.create_task(within(deadline, self._lanes.reminders(chosen, sql)))
                early = group.create_task(self._early(running["keyword"], reminders, embedded, sql))
        results: dict[Lane, LaneResult[Any]] = {lane: task.result() for lane, task in running.items()}
        if reminders is not None:
            results |= _both(reminders.result())
        gathered = Gathered(
            scores={lane: r.value for lane, r in results.items() if r.value is not None and lane != "vector"},
            degraded=[lane for lane, r in results.items() if r.value is None],
            lane_ms={lane: round(r.took_ms, 3) for lane, r in results.items()},
        )
        if early is not None:
            gathered.asked, gathered.early = early.result()
        if "vector" in results and results["vector"].value is not None:
            gathered.vector, gathered.hits = results["vector"].value
        if results and len(gathered.degraded) == len(results):
            await self._postgres.read(lambda c: memories.corpus_size(c, chosen.tenant, (), 1))  # Postgres down: say so
        return gathered

    async def _early(
        self,
        keyword: "asyncio.Task[LaneResult[LaneScores]]",
        reminders: "asyncio.Task[LaneResult[tuple[LaneScores, LaneScores]]]",
        embedded: asyncio.Event,
        sql: SqlFilter,
    ) -> tuple[frozenset[Key], RankFacts]:
        """What the other lanes found and its facts, when they end before the query is embedded; otherwise one statement does for all."""
        found, listed = await keyword, await reminders
        if embedded.is_set():
            return frozenset(), NOTHING_KNOWN
        lanes = [scores for scores in (found.value, *(listed.value or ())) if scores is not None]
        ids = _interleaved([], lanes, self._search.keyword_hits)
        with suppress(TimeoutError, StoreUnavailable):
            async with asyncio.timeout(self._search.lane_deadline_s):
                return frozenset(ids), await self._read(sql, ids)
        return frozenset(), NOTHING_KNOWN

    async def facts(self, gathered: Gathered, sql: SqlFilter, ids: Sequence[Key]) -> RankFacts:
        """Of those of `ids` that pass the filter, as they are now or were while the lanes ran."""
        unknown = [one for one in ids if one not in gathered.asked]
        return gathered.early.with_others(await self._read(sql, unknown))

    async def more(self, gathered: Gathered, chosen: MemoryFilter, sql: SqlFilter, limit: int, *, exact: bool) -> bool:
        """A larger fetch of vectors; `exact`: only among ids that pass the filter.  False when the lane failed now."""
        assert gathered.vector is not None
        ids = await self._lanes.matching(sql) if exact else None
        if ids is not None and not ids:
            return False
        more = await within(self._search.lane_deadline_s, self._lanes.vector(gathered.vector, chosen, limit, ids))
        gathered.lane_ms["vector"] = round(gathered.lane_ms["vector"] + more.took_ms, 3)
        if more.value is None:
            gathered.degraded.append("vector")
            return False
        gathered.hits = more.value
        return True

    async def _read(self, sql: SqlFilter, ids: Sequence[Key]) -> RankFacts:
        if not ids:
            return NOTHING_KNOWN
        head, tail = self._search.script_chars, self._tail_chars
        return await self._postgres.read(lambda c: rank_facts(c, ids, sql, head, tail))


def _interleaved(hits: Sequence[Key], lanes: Iterable[LaneScores], best: int) -> list[Key]:
    lists = [hits, *(list(islice(scores, best)) for scores in lanes)]
    ids = dict.fromkeys(chain.from_iterable(zip_longest(*lists)))
    ids.pop(None, None)
    return list(ids)


def _both(reminders: LaneResult[tuple[LaneScores, LaneScores]]) -> dict[Lane, LaneResult[LaneScores]]:
    """The two lanes that one statement brought."""
    structured, recent = reminders.value or (None, None)
    return {
        "structured": LaneResult(structured, reminders.took_ms),
        "recent": LaneResult(recent, reminders.took_ms),
    }
