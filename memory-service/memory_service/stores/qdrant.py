"""How are vectors kept in Qdrant?  One point per chunk of a memory or a lesson, derived from Postgres and rebuildable from it.

The collection's name carries a hash of the embedding fingerprint, and a vector knows its fingerprint (models/switching.py),
so that vectors of two models never meet, also while the model is being changed.  The alias (settings) points to the
collection in use for people and backups; nothing here reads through it.  Only jobs/relay writes here.  How a collection is made
is qdrant_collection.py's work, what a point carries is qdrant_payload.py's.
"""

import hashlib
from collections.abc import Sequence
from copy import copy
from dataclasses import asdict, dataclass
from typing import NamedTuple, get_args
from uuid import UUID

import numpy as np

from memory_service.domain import Json, Key, MemoryFilter, State
from memory_service.errors import SetupRefused
from memory_service.models.ports import EmbeddingFingerprint, Vector
from memory_service.models.switching import fingerprint_of
from memory_service.stores.qdrant_collection import Collection, QdrantNumbers
from memory_service.stores.qdrant_http import PointRefused, QdrantHttp
from memory_service.stores.qdrant_payload import (
    EXPERIENCE_KIND,
    MEMORY_KINDS,
    SCOPE,
    VERSION_FIELD,
    point_id,
    points_of,
    points_of_experience,
    scope_of,
)
from memory_service.stores.qdrant_points import StoredPoints
from memory_service.timestamps import time_text

__all__ = [
    "FingerprintMismatch",
    "PointRefused",
    "VectorHit",
    "VectorHits",
    "VectorIndex",
    "point_id",
    "points_of",
    "points_of_experience",
]

MISMATCH_ADVICE = (
    "Either configure the former again and change the model while it serves: hindsight reembed --to MODEL. Or rebuild the "
    "vectors with the new model from Postgres while nothing serves: hindsight reindex --replace"
)
STATES: tuple[State, ...] = get_args(State)
HIT_PAYLOAD = {"include": ["memory_id", VERSION_FIELD]}


class VectorHit(NamedTuple):
    """The best chunk of one memory; `version` is the memory's version that the vector was made from."""

    key: Key
    version: int
    cosine: float

    @property
    def memory_id(self) -> UUID:
        return UUID(bytes=self.key)


@dataclass(frozen=True, slots=True)
class StoredVector:
    """A memory's vector as it is in the index (unit length), and the memory's version that it was made from."""

    memory_id: UUID
    version: int
    vector: Vector


@dataclass(frozen=True, slots=True)
class VectorHits:
    """`points` counts the chunks that came back, so that the caller knows whether there are more."""

    hits: list[VectorHit]
    points: int


class FingerprintMismatch(SetupRefused):
    """The collection in use was made with another embedding model or other prefixes."""


class VectorIndex:
    """The collection in use and the few operations on it.  A search goes to the collection of its vector's model.

    Every method raises StoreUnavailable when Qdrant can't be reached, and PointRefused when it refuses what was sent.
    """

    def __init__(
        self,
        url: str,
        alias: str,
        fingerprint: EmbeddingFingerprint,
        timeout_s: float,
        numbers: QdrantNumbers,
        api_key: str | None = None,
    ) -> None:
        self.alias = alias
        self._numbers = numbers
        self._params = numbers.search_params()
        self._http = QdrantHttp(url, api_key, timeout_s)
        self.retarget(fingerprint)

    def retarget(self, fingerprint: EmbeddingFingerprint) -> None:
        """From now on the collection in use is this one."""
        self.fingerprint = fingerprint
        self.collection = collection_name(self.alias, fingerprint)
        self._points = f"/collections/{self.collection}/points"
        self._made = Collection(self._http, self.collection, fingerprint, self._numbers)
        self.stored = StoredPoints(self._http, self.collection)

    def of(self, fingerprint: EmbeddingFingerprint) -> "VectorIndex":
        """The collection of this model over the same connections, whatever is in use; it is not closed by itself."""
        other = copy(self)
        other.retarget(fingerprint)
        return other

    async def close(self) -> None:
        await self._http.close()

    async def ping(self) -> None:
        await self._http.call("GET", f"/collections/{self.collection}/exists")

    async def ensure(self, *, known_active: bool = False) -> bool:
        """Make sure that the alias serves vectors of the configured fingerprint; True when the collection is new and empty.

        Raises FingerprintMismatch when the alias serves another model's vectors, unless Postgres knows this one as the
        active one: then the alias was left behind by a switch that was cut off.
        """
        serving = await self._serving()
        if serving is not None and serving != self.collection and not known_active:
            raise FingerprintMismatch(await self._mismatch(serving))
        created = await self.make()
        if serving != self.collection:
            await self._point_alias(moved=serving is not None)
        return created

    async def make(self) -> bool:
        """The collection exists with its indexes, whatever the alias serves; True when it is new and empty."""
        return await self._made.make()

    async def serve(self) -> None:
        """Point the alias here, in one step for whoever reads through it."""
        serving = await self._serving()
        if serving != self.collection:
            await self._point_alias(moved=serving is not None)

    async def exists(self) -> bool:
        return await self._made.exists()

    async def drop(self) -> None:
        """Remove the collection; nothing happens when there is none."""
        await self._made.drop()

    async def missing(self, *, known_active: bool = False) -> bool:
        """Is there no collection to search in?  Raises FingerprintMismatch when there is another model's, as `ensure`."""
        serving = await self._serving()
        if serving is not None and serving != self.collection and not known_active:
            raise FingerprintMismatch(await self._mismatch(serving))
        return serving is None or not await self.exists()

    async def replace(self) -> str | None:
        """For a rebuild: a fresh collection under the alias, whatever it served before; the old one's name, now dropped."""
        serving = await self._serving()
        if await self.exists():
            await self.drop()
            serving = None if serving == self.collection else serving
        await self.make()
        await self._point_alias(moved=await self._serving() is not None)
        if serving is not None:
            await self._http.call("DELETE", f"/collections/{serving}")
        return serving

    async def count(self) -> int:
        """Points in the collection, exactly."""
        found = await self._http.call("POST", f"{self._points}/count", {"exact": True})
        return int(found["count"])

    async def upsert(self, points: Sequence[Json]) -> None:
        """Write points and wait until they are searchable."""
        await self._http.call("PUT", f"{self._points}?wait=true", {"points": list(points)})

    async def delete_chunks(self, memory_ids: Sequence[UUID], keep: Sequence[str] = ()) -> None:
        """Remove all points of these memories except those named in `keep`."""
        chosen: Json = {"must": [_any("memory_id", [str(i) for i in memory_ids])]}
        if keep:
            chosen["must_not"] = [{"has_id": list(keep)}]
        await self._http.call("POST", f"{self._points}/delete?wait=true", {"filter": chosen})

    async def search(
        self, vector: Vector, chosen: MemoryFilter, limit: int, ids: Sequence[UUID] | None = None
    ) -> VectorHits:
        """The nearest `limit` chunks, as their memories.  `ids`: only points of these memories.

        `chosen` narrows as far as the payload can tell; Postgres has the last word on every hit.
        """
        found = await self._http.call("POST", f"{self._of(vector)}/query", self._query(vector, chosen, limit, ids))
        return VectorHits(_best_chunks(found["points"]), len(found["points"]))

    async def search_many(self, asked: Sequence[tuple[Vector, MemoryFilter]], limit: int) -> list[list[VectorHit]]:
        """The nearest `limit` chunks of each of many vectors, all of one model, in one request."""
        searches = [self._query(vector, chosen, limit, None) for vector, chosen in asked]
        points = self._of(asked[0][0]) if asked else self._points
        found = await self._http.call("POST", f"{points}/query/batch", {"searches": searches})
        return [_best_chunks(one["points"]) for one in found]

    async def search_experiences(
        self, vector: Vector, tenant: str, user_ids: Sequence[str], limit: int
    ) -> list[VectorHit]:
        """The nearest `limit` chunks of active lessons, as their experiences."""
        must = [_any(SCOPE, [scope_of(tenant, user, EXPERIENCE_KIND) for user in user_ids])]
        found = await self._http.call("POST", f"{self._of(vector)}/query", self._nearest(vector, must, limit))
        return _best_chunks(found["points"])

    def _of(self, vector: Vector) -> str:
        """The points of the vector's own model; a plain array is one of the model in use."""
        made = fingerprint_of(vector)
        return self._points if made is None else f"/collections/{collection_name(self.alias, made)}/points"

    def _query(self, vector: Vector, chosen: MemoryFilter, limit: int, ids: Sequence[UUID] | None) -> Json:
        return self._nearest(vector, _narrow(chosen, ids), limit)

    def _nearest(self, vector: Vector, must: list[Json], limit: int) -> Json:
        return {
            "query": np.asarray(vector),
            "filter": {"must": must},
            "limit": limit,
            "params": self._params,
            "with_payload": HIT_PAYLOAD,
        }

    async def vectors_of(self, memory_ids: Sequence[UUID]) -> list[StoredVector]:
        """The vectors of these memories' texts, of those that are one chunk: one chunk does not speak for a longer text."""
        body = {"ids": [str(i) for i in memory_ids], "with_vector": True, "with_payload": [VERSION_FIELD, "chunks"]}
        found = await self._http.call("POST", self._points, body)
        return [
            StoredVector(UUID(point["id"]), point["payload"][VERSION_FIELD], np.asarray(point["vector"], np.float32))
            for point in found
            if point["payload"].get("chunks", 1) == 1
        ]

    async def _serving(self) -> str | None:
        found = await self._http.call("GET", "/aliases")
        return next((a["collection_name"] for a in found["aliases"] if a["alias_name"] == self.alias), None)

    async def _point_alias(self, *, moved: bool) -> None:
        create = {"create_alias": {"collection_name": self.collection, "alias_name": self.alias}}
        drop = {"delete_alias": {"alias_name": self.alias}}
        await self._http.call("POST", "/collections/aliases", {"actions": [drop, create] if moved else [create]})

    async def _mismatch(self, serving: str) -> str:
        info = await self._http.call("GET", f"/collections/{serving}")
        made = info.get("config", {}).get("metadata") or {}
        return (
            f"the vectors in Qdrant ({serving}) were made with {_described(made)}, "
            f"but {_described(asdict(self.fingerprint))} is configured. {MISMATCH_ADVICE}"
        )


def mismatch(active: str, made: Json, configured: EmbeddingFingerprint) -> FingerprintMismatch:
    """Postgres knows `active` as the collection in use, and it was not made with the configured model."""
    return FingerprintMismatch(
        f"the vectors in use ({active}) were made with {_described(made)}, "
        f"but {_described(asdict(configured))} is configured. {MISMATCH_ADVICE}"
    )


def collection_name(alias: str, fingerprint: EmbeddingFingerprint) -> str:
    return f"{alias}_{fingerprint_hash(fingerprint)}"


def fingerprint_hash(fingerprint: EmbeddingFingerprint) -> str:
    """Eight hex digits that differ for every differing fingerprint."""
    return hashlib.sha256(repr(sorted(asdict(fingerprint).items())).encode()).hexdigest()[:8]


def _best_chunks(points: Sequence[Json]) -> list[VectorHit]:
    """One hit a memory, with its best chunk's cosine."""
    best: dict[Key, VectorHit] = {}
    for point in points:
        payload = point["payload"]
        hit = VectorHit(bytes.fromhex(payload["memory_id"].replace("-", "")), payload[VERSION_FIELD], point["score"])
        if hit.key not in best or best[hit.key].cosine < hit.cosine:
            best[hit.key] = hit
    return list(best.values())


def _narrow(chosen: MemoryFilter, ids: Sequence[UUID] | None) -> list[Json]:
    states = STATES if chosen.as_of is not None else chosen.states
    must = [_any(SCOPE, [scope_of(chosen.tenant, user, state) for user in chosen.user_ids for state in states])]
    if ids is not None:
        must.append(_any("memory_id", [str(i) for i in ids]))
    if chosen.kinds and not {*MEMORY_KINDS} <= {*chosen.kinds}:
        must.append(_any("kind", chosen.kinds))
    named = {"agent_id": chosen.agent_id, "session_id": chosen.session_id, "task_id": chosen.task_id}
    must += [_any(name, (value,)) for name, value in named.items() if value is not None]
    if chosen.tags:
        alternatives = [chosen.tags] if chosen.tag_match == "any" else [(tag,) for tag in chosen.tags]
        must += [_any("tags", tags) for tags in alternatives]
    bounds = {"gte": chosen.since, "lt": chosen.until}
    given = {name: time_text(moment) for name, moment in bounds.items() if moment is not None}
    if given:
        must.append({"key": "occurred_at", "range": given})
    return must


def _any(key: str, values: Sequence[str]) -> Json:
    return {"key": key, "match": {"value": values[0]} if len(values) == 1 else {"any": list(values)}}


def _described(made: Json) -> str:
    if not made:
        return "an unknown embedding model"
    prefixes = f"prefixes {made['query_prefix']!r}/{made['passage_prefix']!r}"
    return f"{made['model']} (revision {made['revision']}, {made['dimensions']} dimensions, {prefixes})"
