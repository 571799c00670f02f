"""How are vectors kept in Qdrant?  One point per chunk of a memory, derived from Postgres and rebuildable from it.

The collection's name carries a hash of the embedding fingerprint and the alias (settings) points to the one in use, so
that vectors of two models never meet.  Only jobs/relay writes here.  Point id: the memory's id for its first chunk, a
UUIDv5 of it for the others.
"""

import hashlib
import warnings
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid5

import httpx
from qdrant_client import AsyncQdrantClient, models
from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse

from memory_service.domain import Memory, MemoryFilter
from memory_service.errors import SetupRefused, StoreUnavailable
from memory_service.models.ports import EmbeddingFingerprint, Vector

KEYWORD_FIELDS = (
    "memory_id", "kind", "state", "agent_id", "session_id", "task_id", "tags", "category", "event_type", "outcome",
)  # fmt: skip
VERSION_FIELD = "version"
# With int8 quantisation (config/qdrant.yaml) the best hits are scored again with the full vectors: thresholds mean cosines.
SEARCH = models.SearchParams(quantization=models.QuantizationSearchParams(rescore=True, oversampling=2.0))
HIT_PAYLOAD = models.PayloadSelectorInclude(include=["memory_id", VERSION_FIELD])


@dataclass(frozen=True, slots=True)
class VectorHit:
    """The best chunk of one memory; `version` is the memory's version that the vector was made from."""

    memory_id: UUID
    version: int
    cosine: float


@dataclass(frozen=True, slots=True)
class VectorHits:
    """`points` counts the chunks that came back, so that the caller knows whether there are more."""

    hits: list[VectorHit]
    points: int


class FingerprintMismatch(SetupRefused):
    """The collection in use was made with another embedding model or other prefixes."""


class PointRefused(Exception):
    """Qdrant is up and refused what was sent: a fault of these points, not of the connection."""


class VectorIndex:
    """The collection in use and the few operations on it.  Raises StoreUnavailable when Qdrant can't be reached."""

    def __init__(
        self, url: str, alias: str, fingerprint: EmbeddingFingerprint, timeout_s: float, api_key: str | None = None
    ) -> None:
        self.alias = alias
        self.fingerprint = fingerprint
        self.collection = f"{alias}_{fingerprint_hash(fingerprint)}"
        with warnings.catch_warnings():  # the client warns of a key over http; inside one host or network that is meant
            warnings.filterwarnings("ignore", message="Api key is used with an insecure connection")
            self._client = self._open(url, api_key, timeout_s)

    @staticmethod
    def _open(url: str, api_key: str | None, timeout_s: float) -> AsyncQdrantClient:
        return AsyncQdrantClient(url=url, api_key=api_key, timeout=max(1, int(timeout_s)), check_compatibility=False)

    async def close(self) -> None:
        await self._client.close()

    async def ping(self) -> None:
        async with _reached():
            await self._client.collection_exists(self.alias)

    async def ensure(self) -> bool:
        """Make sure that the alias serves vectors of the configured fingerprint; True when the collection is new and empty.

        Raises FingerprintMismatch when the alias serves another model's vectors.
        """
        async with _reached():
            serving = await self._serving()
            if serving is not None and serving != self.collection:
                raise FingerprintMismatch(await self._mismatch(serving))
            created = await self._create()
            await self._index_payload()
            if serving is None:
                await self._point_alias()
            return created

    async def replace(self) -> str | None:
        """For a rebuild: a fresh collection under the alias, whatever it served before; the old one's name, now dropped."""
        async with _reached():
            serving = await self._serving()
            if await self._client.collection_exists(self.collection):
                await self._client.delete_collection(self.collection)
            await self._create()
            await self._index_payload()
            await self._point_alias()
            if serving is not None and serving != self.collection:
                await self._client.delete_collection(serving)
            return serving

    async def count(self) -> int:
        """Points in the collection, exactly."""
        async with _reached():
            return (await self._client.count(self.alias, exact=True)).count

    async def upsert(self, points: Sequence[models.PointStruct]) -> None:
        """Write points and wait until they are searchable.  Raises PointRefused for what Qdrant does not take."""
        async with _reached():
            await self._client.upsert(self.alias, points=list(points), wait=True)

    async def delete_chunks(self, memory_ids: Sequence[UUID], keep: Sequence[str] = ()) -> None:
        """Remove all points of these memories except those named in `keep`."""
        chosen = models.Filter(
            must=[models.FieldCondition(key="memory_id", match=models.MatchAny(any=[str(i) for i in memory_ids]))],
            must_not=[models.HasIdCondition(has_id=list(keep))] if keep else None,
        )
        async with _reached():
            await self._client.delete(self.alias, points_selector=models.FilterSelector(filter=chosen), wait=True)

    async def search(
        self, vector: Vector, chosen: MemoryFilter, limit: int, ids: Sequence[UUID] | None = None
    ) -> VectorHits:
        """The nearest `limit` chunks, as their memories.  `ids`: only points of these memories.

        `chosen` narrows as far as the payload can tell; Postgres has the last word on every hit.
        """
        async with _reached():
            found = await self._client.query_points(
                self.alias,
                query=vector.tolist(),
                query_filter=_narrow(chosen, ids),
                limit=limit,
                search_params=SEARCH,
                with_payload=HIT_PAYLOAD,
            )
        return VectorHits(_best_chunks(found.points), len(found.points))

    async def search_many(self, asked: Sequence[tuple[Vector, MemoryFilter]], limit: int) -> list[list[VectorHit]]:
        """The nearest `limit` chunks of each of many vectors, in one request."""
        requests = [
            models.QueryRequest(
                query=vector.tolist(),
                filter=_narrow(chosen, None),
                limit=limit,
                params=SEARCH,
                with_payload=HIT_PAYLOAD,
            )
            for vector, chosen in asked
        ]
        async with _reached():
            found = await self._client.query_batch_points(self.alias, requests=requests)
        return [_best_chunks(response.points) for response in found]

    async def _serving(self) -> str | None:
        aliases = await self._client.get_aliases()
        return next((a.collection_name for a in aliases.aliases if a.alias_name == self.alias), None)

    async def _point_alias(self) -> None:
        create = models.CreateAliasOperation(
            create_alias=models.CreateAlias(collection_name=self.collection, alias_name=self.alias)
        )
        drop = models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=self.alias))
        present = await self._serving() is not None
        await self._client.update_collection_aliases([drop, create] if present else [create])

    async def _create(self) -> bool:
        if await self._client.collection_exists(self.collection):
            return False
        try:
            await self._client.create_collection(
                self.collection,
                vectors_config=models.VectorParams(size=self.fingerprint.dimensions, distance=models.Distance.COSINE),
                metadata=asdict(self.fingerprint),
            )
        except UnexpectedResponse as error:
            if error.status_code == 409 or await self._client.collection_exists(self.collection):
                return False  # another process was first
            raise
        return True

    async def _index_payload(self) -> None:
        """Make the payload indexes that are missing; a crash may have come between the collection and these."""
        info = await self._client.get_collection(self.collection)
        present = set(info.payload_schema or {})
        wanted: dict[str, Any] = {
            "user_id": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True),
            "occurred_at": models.PayloadSchemaType.DATETIME,
            **dict.fromkeys(("tenant", *KEYWORD_FIELDS), models.PayloadSchemaType.KEYWORD),
        }
        for field, schema in wanted.items():
            if field not in present:
                await self._client.create_payload_index(self.collection, field, schema)

    async def _mismatch(self, serving: str) -> str:
        info = await self._client.get_collection(serving)
        made = (info.config.metadata or {}) if info.config else {}
        return (
            f"the vectors in Qdrant ({serving}) were made with {_described(made)}, "
            f"but {_described(asdict(self.fingerprint))} is configured. Either configure the former again, or rebuild the "
            "vectors with the new model from Postgres: hindsight reindex --replace"
        )


def fingerprint_hash(fingerprint: EmbeddingFingerprint) -> str:
    """Eight hex digits that differ for every differing fingerprint."""
    return hashlib.sha256(repr(sorted(asdict(fingerprint).items())).encode()).hexdigest()[:8]


def points_of(memory: Memory, vectors: Vector) -> list[models.PointStruct]:
    """One point per row of `vectors` (chunks, dimensions), with the payload that filters may narrow by."""
    payload = {
        "tenant": memory.tenant, "user_id": memory.user_id, "memory_id": str(memory.id), VERSION_FIELD: memory.version,
        "kind": memory.kind, "state": memory.state, "agent_id": memory.agent_id, "session_id": memory.session_id,
        "task_id": memory.task_id, "tags": list(memory.tags), "category": memory.category, "event_type": memory.event_type,
        "outcome": memory.outcome, "occurred_at": _iso(memory.occurred_at),
    }  # fmt: skip
    present = {key: value for key, value in payload.items() if value is not None}
    return [
        models.PointStruct(
            id=str(point_id(memory.id, chunk)), vector=vector.tolist(), payload={**present, "chunk": chunk}
        )
        for chunk, vector in enumerate(vectors)
    ]


def point_id(memory_id: UUID, chunk: int) -> UUID:
    return memory_id if chunk == 0 else uuid5(memory_id, str(chunk))


def _best_chunks(points: Sequence[models.ScoredPoint]) -> list[VectorHit]:
    """One hit a memory, with its best chunk's cosine."""
    best: dict[UUID, VectorHit] = {}
    for point in points:
        payload = point.payload or {}
        hit = VectorHit(UUID(payload["memory_id"]), payload[VERSION_FIELD], point.score)
        if hit.memory_id not in best or best[hit.memory_id].cosine < hit.cosine:
            best[hit.memory_id] = hit
    return list(best.values())


def _narrow(chosen: MemoryFilter, ids: Sequence[UUID] | None) -> models.Filter:
    must: list[Any] = [_any("user_id", chosen.user_ids), _any("tenant", (chosen.tenant,))]
    if ids is not None:
        must.append(_any("memory_id", [str(i) for i in ids]))
    if chosen.as_of is None:
        must.append(_any("state", chosen.states))
    if chosen.kinds:
        must.append(_any("kind", chosen.kinds))
    scopes = {"agent_id": chosen.agent_id, "session_id": chosen.session_id, "task_id": chosen.task_id}
    must += [_any(name, (value,)) for name, value in scopes.items() if value is not None]
    if chosen.tags:
        must += (
            [_any("tags", chosen.tags)] if chosen.tag_match == "any" else [_any("tags", (tag,)) for tag in chosen.tags]
        )
    if chosen.since is not None or chosen.until is not None:
        must.append(
            models.FieldCondition(key="occurred_at", range=models.DatetimeRange(gte=chosen.since, lt=chosen.until))
        )
    return models.Filter(must=must)


def _any(key: str, values: Sequence[str]) -> models.FieldCondition:
    if len(values) == 1:
        return models.FieldCondition(key=key, match=models.MatchValue(value=values[0]))
    return models.FieldCondition(key=key, match=models.MatchAny(any=list(values)))


def _iso(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def _described(made: dict[str, Any]) -> str:
    if not made:
        return "an unknown embedding model"
    prefixes = f"prefixes {made['query_prefix']!r}/{made['passage_prefix']!r}"
    return f"{made['model']} (revision {made['revision']}, {made['dimensions']} dimensions, {prefixes})"


@asynccontextmanager
async def _reached() -> AsyncIterator[None]:
    """Name what went wrong: not reachable, or reachable and refusing."""
    try:
        yield
    except UnexpectedResponse as error:
        # A wrong key or a missing collection is a set-up that somebody will mend: no point is to blame.
        if (
            error.status_code is not None
            and error.status_code < 500
            and error.status_code not in (401, 403, 404, 408, 429)
        ):
            raise PointRefused(f"qdrant answered {error.status_code}") from error
        raise StoreUnavailable("qdrant") from error
    except (ResponseHandlingException, ApiException, httpx.HTTPError) as error:
        raise StoreUnavailable("qdrant") from error
