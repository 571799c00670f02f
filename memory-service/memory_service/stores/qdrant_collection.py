"""What is a collection in Qdrant made like?  Makes it, its payload indexes and its strict mode, and follows the settings later.

The settings are [qdrant] of memory.toml.  What a setting leaves to the server (`server`) is neither sent nor touched.  What
the server can change on a living collection is changed when the settings differ from it; the number of shards is not such a
thing, and a warning says so.  Writes no points, but for a field that those of an older version lack (qdrant_scope.py).
"""

import logging
from dataclasses import asdict
from typing import Any, Literal

from pydantic import Field

from memory_service.domain import Json
from memory_service.models.ports import EmbeddingFingerprint
from memory_service.settings import Section
from memory_service.stores.qdrant_http import CollectionExists, PointRefused, QdrantHttp
from memory_service.stores.qdrant_payload import PAYLOAD_INDEXES, SCOPE
from memory_service.stores.qdrant_scope import fill_scopes

log = logging.getLogger(__name__)
# Strict mode refuses filters over fields without an index, in searches and in deletions.  It bounds nothing else here: the
# service bounds its own requests, and the relay would take a refusal by policy for a memory that can't be indexed.
STRICT = {"enabled": True, "unindexed_filtering_retrieve": False, "unindexed_filtering_update": False}
NOT_STRICT = {"enabled": False}


class QdrantNumbers(Section):
    """[qdrant] of memory.toml: how a collection is laid out and how it is searched."""

    hnsw_m: int = Field(ge=0)
    hnsw_payload_m: int = Field(ge=0)
    hnsw_ef_construct: int = Field(ge=4)
    hnsw_full_scan_kb: int = Field(ge=10)
    search_hnsw_ef: int = Field(ge=0)
    quantization: Literal["server", "int8", "none"]
    quantization_quantile: float = Field(ge=0.5, le=1)
    quantization_rescore: bool
    quantization_oversampling: float = Field(ge=1)
    vectors_on_disk: Literal["server", "yes", "no"]
    strict_mode: bool
    shard_number: int = Field(ge=1)
    replication_factor: int = Field(ge=1)
    write_consistency_factor: int = Field(ge=1)

    def search_params(self) -> Json:
        """`params` of a search.  Without quantised vectors their part has no effect."""
        quantization = {"rescore": self.quantization_rescore, "oversampling": self.quantization_oversampling}
        return {"quantization": quantization, **({"hnsw_ef": self.search_hnsw_ef} if self.search_hnsw_ef else {})}

    def hnsw(self) -> Json:
        return {
            "m": self.hnsw_m,
            "payload_m": self.hnsw_payload_m,
            "ef_construct": self.hnsw_ef_construct,
            "full_scan_threshold": self.hnsw_full_scan_kb,
        }

    def scalar(self) -> Json | None:
        """`quantization_config`, None when the collection has none or the server decides."""
        if self.quantization != "int8":
            return None
        # always_ram: this copy is what every search walks over.
        return {"scalar": {"type": "int8", "quantile": self.quantization_quantile, "always_ram": True}}

    def copies(self) -> Json:
        return {
            "replication_factor": self.replication_factor,
            "write_consistency_factor": self.write_consistency_factor,
        }

    def strict(self) -> Json:
        return STRICT if self.strict_mode else NOT_STRICT


class Collection:
    """One collection by name.  Raises StoreUnavailable when Qdrant can't be reached, PointRefused when it refuses."""

    def __init__(self, http: QdrantHttp, name: str, fingerprint: EmbeddingFingerprint, numbers: QdrantNumbers) -> None:
        self._http = http
        self._path = f"/collections/{name}"
        self._name = name
        self._fingerprint = fingerprint
        self._numbers = numbers

    async def exists(self) -> bool:
        found = await self._http.call("GET", f"{self._path}/exists")
        return bool(found["exists"])

    async def make(self) -> bool:
        """It exists as the settings want it; True when it is new and empty.  A crash may come at any line: the next call goes on.

        Strict mode comes last, so that no filter is refused for an index that is still to be made.
        """
        created = await self._create()
        info = await self._http.call("GET", self._path)
        present = set(info.get("payload_schema") or {})
        if not created and SCOPE not in present and (filled := await fill_scopes(self._http, self._path)):
            log.info("%d points of the collection %s have the field %s now", filled, self._name, SCOPE)
        await self._index_payload(present)
        changes = changed(info.get("config") or {}, self._numbers)
        if changes:
            await self._http.call("PATCH", self._path, changes)
            if not created:
                log.info("the collection %s now follows [qdrant] in %s", self._name, ", ".join(changes))
        self._warn_of_shards(info.get("config") or {})
        return created

    async def drop(self) -> None:
        """Remove it; nothing happens when there is none."""
        if await self.exists():
            await self._http.call("DELETE", self._path)

    async def _create(self) -> bool:
        if await self.exists():
            return False
        try:
            await self._http.call("PUT", self._path, created_as(self._fingerprint, self._numbers))
        except CollectionExists:
            return False
        except PointRefused:
            if await self.exists():  # another process was first; older versions answer 400 to that
                return False
            raise
        return True

    async def _index_payload(self, present: set[str]) -> None:
        for field, schema in PAYLOAD_INDEXES.items():
            if field not in present:
                body = {"field_name": field, "field_schema": schema}
                await self._http.call("PUT", f"{self._path}/index?wait=true", body)

    def _warn_of_shards(self, config: Json) -> None:
        shards = (config.get("params") or {}).get("shard_number")
        if shards is not None and shards != self._numbers.shard_number:
            log.warning(
                "the collection %s has %s shards, [qdrant] shard_number is %s: that only applies to new collections "
                "(hindsight reindex --replace makes one)",
                self._name, shards, self._numbers.shard_number,
            )  # fmt: skip


def created_as(fingerprint: EmbeddingFingerprint, numbers: QdrantNumbers) -> Json:
    """The body that creates a collection for this model."""
    vectors: dict[str, Any] = {"size": fingerprint.dimensions, "distance": "Cosine"}
    if numbers.vectors_on_disk != "server":
        vectors["on_disk"] = numbers.vectors_on_disk == "yes"
    body: Json = {
        "vectors": vectors,
        "metadata": asdict(fingerprint),
        "hnsw_config": numbers.hnsw(),
        "shard_number": numbers.shard_number,
        **numbers.copies(),
    }
    if (scalar := numbers.scalar()) is not None:
        body["quantization_config"] = scalar
    return body


def changed(config: Json, numbers: QdrantNumbers) -> Json:
    """The body that makes a living collection follow the settings; empty when it does.  `config` is the server's own view."""
    changes: Json = {}
    hnsw = config.get("hnsw_config") or {}
    if differing := _differing({"payload_m": hnsw.get("m"), **hnsw}, numbers.hnsw()):  # not set, it is as m
        changes["hnsw_config"] = differing
    if differing := _differing(config.get("params"), numbers.copies()):
        changes["params"] = differing
    scalar, has = numbers.scalar(), (config.get("quantization_config") or {}).get("scalar")
    if scalar is not None and _differing(has, scalar["scalar"]):
        changes["quantization_config"] = scalar
    elif numbers.quantization == "none" and config.get("quantization_config"):
        changes["quantization_config"] = "Disabled"
    if differing := _differing(config.get("strict_mode_config"), numbers.strict()):
        changes["strict_mode_config"] = {**numbers.strict(), **differing}
    on_disk = numbers.vectors_on_disk == "yes"
    vectors = (config.get("params") or {}).get("vectors") or {}
    if numbers.vectors_on_disk != "server" and bool(vectors.get("on_disk")) != on_disk:
        changes["vectors"] = {"": {"on_disk": on_disk}}
    return changes


def _differing(has: Json | None, wanted: Json) -> Json:
    """What of `wanted` is otherwise; something that is off and something that is absent are the same."""
    found = has or {}
    return {key: value for key, value in wanted.items() if found.get(key) != value and (value or found.get(key))}
