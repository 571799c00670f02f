"""What does Qdrant hold?  Points by page and by id, without their vectors.  Reads only; the relay writes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from memory_service.domain import Json
from memory_service.stores.qdrant_http import QdrantHttp
from memory_service.stores.qdrant_payload import SCOPE

PAYLOAD = {"include": ["memory_id", "user_id", "version", "chunk", "chunks", SCOPE]}
TENANTS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class StoredPoint:
    """One chunk of a memory or lesson.  memory_id is None where the payload makes no sense; `chunks`, how many there should
    be of it, is None for points of an older version of this software.  A point without a scope, which no search finds, is of
    no version."""

    point_id: str
    memory_id: UUID | None
    user_id: str
    version: int | None
    chunk: int | None
    chunks: int | None


class StoredPoints:
    """The points under an alias.  Every method raises StoreUnavailable, also when the collection is missing, and PointRefused."""

    def __init__(self, http: QdrantHttp, alias: str) -> None:
        self._http = http
        self._collection = f"/collections/{alias}"

    async def page(self, tenant: str, offset: str | None, limit: int) -> tuple[list[StoredPoint], str | None]:
        """The next `limit` points of a tenant by id, and where the page after it begins (None: this was the last)."""
        return await self._scroll([equals("tenant", tenant)], offset, limit)

    async def of(self, tenant: str, memory_ids: Sequence[UUID], limit: int) -> list[StoredPoint]:
        """All points of these memories, read in pages of `limit`."""
        must = [equals("tenant", tenant), {"key": "memory_id", "match": {"any": [str(i) for i in memory_ids]}}]
        found, offset = await self._scroll(must, None, limit)
        while offset is not None:
            more, offset = await self._scroll(must, offset, limit)
            found += more
        return found

    async def with_ids(self, point_ids: Sequence[UUID]) -> dict[str, StoredPoint]:
        """Those of these points that exist, by id."""
        if not point_ids:
            return {}
        body = {"ids": [str(i) for i in point_ids], "with_payload": PAYLOAD, "with_vector": False}
        found = await self._http.call("POST", f"{self._collection}/points", body)
        return {point.point_id: point for point in map(_point, found)}

    async def tenants(self) -> list[str]:
        """Whose points there are, the first TENANTS_MAX by number of points."""
        found = await self._http.call("POST", f"{self._collection}/facet", {"key": "tenant", "limit": TENANTS_MAX})
        return [str(hit["value"]) for hit in found["hits"]]

    async def _scroll(self, must: list[Json], offset: str | None, limit: int) -> tuple[list[StoredPoint], str | None]:
        body: Json = {"filter": {"must": must}, "limit": limit, "with_payload": PAYLOAD, "with_vector": False}
        if offset is not None:
            body["offset"] = offset
        found = await self._http.call("POST", f"{self._collection}/points/scroll", body)
        following = found.get("next_page_offset")
        return [_point(point) for point in found["points"]], None if following is None else str(following)


def equals(key: str, value: str) -> Json:
    """The condition of a filter."""
    return {"key": key, "match": {"value": value}}


def _point(raw: Json) -> StoredPoint:
    payload = raw.get("payload") or {}
    return StoredPoint(
        str(raw["id"]),
        _uuid(payload.get("memory_id")),
        str(payload.get("user_id", "")),
        _whole(payload.get("version")) if payload.get(SCOPE) else None,
        _whole(payload.get("chunk")),
        _whole(payload.get("chunks")),
    )


def _uuid(value: Any) -> UUID | None:
    try:
        return UUID(value)
    except (ValueError, TypeError, AttributeError):
        return None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
