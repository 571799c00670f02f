"""Is a collection made, changed and asked as [qdrant] says, and does all that the service asks pass strict mode?

Runs against $QDRANT_URL when it is set, else against the local engine.  What a single local node can't have (shards, copies)
is checked by the request's body in tests/unit/stores/test_qdrant_collection.py.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import numpy as np
import pytest
from service_running import Backends

from memory_service.domain import Memory, MemoryFilter, new_id
from memory_service.errors import StoreUnavailable
from memory_service.foundation import open_index
from memory_service.models.ports import EmbeddingFingerprint
from memory_service.settings import Settings, load_tunables
from memory_service.stores.qdrant import PointRefused, VectorIndex, points_of
from memory_service.stores.qdrant_collection import QdrantNumbers
from memory_service.stores.qdrant_payload import PAYLOAD_INDEXES
from memory_service.stores.qdrant_scope import fill_scopes

FINGERPRINT = EmbeddingFingerprint("test/model", "1", 4, "", "")
NOW = datetime(2026, 5, 1, tzinfo=UTC)
local_only = pytest.mark.skipif("QDRANT_URL" in os.environ, reason="a promise of the local process only")


@pytest.fixture
def url(backends: Backends) -> str:
    return os.environ.get("QDRANT_URL", backends.urls.qdrant_url)


@pytest.fixture
def alias() -> str:
    return f"settings-{uuid4().hex[:8]}"


@pytest.fixture
async def http(url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
        yield client


def shipped(**changed: Any) -> QdrantNumbers:
    return load_tunables(Settings()).section("qdrant", QdrantNumbers).model_copy(update=changed)


async def opened(url: str, alias: str, **changed: Any) -> VectorIndex:
    """The index of a starting service."""
    index = VectorIndex(url, alias, FINGERPRINT, 5.0, shipped(**changed))
    await index.ensure()
    return index


async def config_of(http: httpx.AsyncClient, index: VectorIndex) -> dict[str, Any]:
    info = (await http.get(f"/collections/{index.collection}")).json()["result"]
    return {**info["config"], "payload_schema": info["payload_schema"]}


def memory() -> Memory:
    """One with a value in every field that a filter may name."""
    return Memory(
        id=new_id(), tenant="t", kind="episodic", user_id="ann", content="c", summary="s", created_at=NOW, updated_at=NOW,
        occurred_at=NOW, agent_id="a", session_id="s", task_id="k", event_type="e", category="c", tags=("x", "y"), outcome="success",
    )  # fmt: skip


def vector(*numbers: float) -> Any:
    return np.asarray(numbers, np.float32)


async def test_every_field_that_a_filter_may_name_is_indexed_and_the_user_is_the_tenant(
    url: str, alias: str, http: httpx.AsyncClient
) -> None:
    index = await opened(url, alias)
    schema = (await config_of(http, index))["payload_schema"]
    assert {name: found["data_type"] for name, found in schema.items()} == {
        name: given["type"] for name, given in PAYLOAD_INDEXES.items()
    }
    assert [name for name, given in PAYLOAD_INDEXES.items() if given.get("is_tenant")] == ["user_id"]
    if "QDRANT_URL" in os.environ:
        assert schema["user_id"]["params"]["is_tenant"] is True
    await index.close()


async def test_strict_mode_is_on_and_refuses_a_filter_over_a_field_without_an_index(
    url: str, alias: str, http: httpx.AsyncClient
) -> None:
    index = await opened(url, alias)
    points = f"/collections/{index.collection}/points"
    unindexed = {"must": [{"key": "chunk", "match": {"value": 0}}]}
    refused = [
        await http.post(f"{points}/query", json={"query": [1, 0, 0, 0], "filter": unindexed}),
        await http.post(f"{points}/query/batch", json={"searches": [{"query": [1, 0, 0, 0], "filter": unindexed}]}),
        await http.post(f"{points}/scroll", json={"filter": {"should": [{"must_not": unindexed["must"]}]}}),
        await http.post(f"{points}/count", json={"filter": unindexed, "exact": True}),
        await http.post(f"{points}/delete", json={"filter": unindexed}),
        await http.post(f"{points}/payload", json={"filter": unindexed, "payload": {"a": 1}}),
    ]
    assert [answer.status_code for answer in refused] == [400] * len(refused), [a.text for a in refused]
    said = [answer.json()["status"]["error"] for answer in refused]
    assert all('Index required but not found for "chunk"' in one for one in said), said
    with pytest.raises(PointRefused):
        await index._http.call("POST", f"{points}/query", {"query": [1, 0, 0, 0], "filter": unindexed})
    await index.close()


async def test_all_that_the_service_asks_passes_strict_mode(url: str, alias: str) -> None:
    index = await opened(url, alias)
    stored = memory()
    await index.upsert(points_of(stored, vector(1, 0, 0, 0)[None]))
    everything = MemoryFilter(
        tenant="t", user_ids=("ann", "*shared"), now=NOW, kinds=("episodic", "semantic"), tags=("x", "y"), tag_match="all",
        agent_id="a", session_id="s", task_id="k", since=NOW - timedelta(days=1), until=NOW + timedelta(days=1),
    )  # fmt: skip
    for chosen in (everything, replace(everything, tag_match="any"), replace(everything, as_of=NOW)):
        found = await index.search(vector(1, 0, 0, 0), chosen, 5, [stored.id, new_id()])
        assert [hit.memory_id for hit in found.hits] == [stored.id]
    assert [len(hits) for hits in await index.search_many([(vector(1, 0, 0, 0), everything)], 5)] == [1]
    assert await index.search_experiences(vector(1, 0, 0, 0), "t", ("ann",), 5) == []
    assert (await index.stored.page("t", None, 10))[0][0].memory_id == stored.id
    assert len(await index.stored.of("t", [stored.id], 10)) == 1
    assert await index.stored.tenants() == ["t"]
    assert len(await index.vectors_of([stored.id])) == 1
    await index.delete_chunks([stored.id], keep=[str(new_id())])
    assert await index.count() == 0
    await index.close()


async def test_a_filter_with_as_many_ids_as_a_search_may_name_passes(url: str, alias: str) -> None:
    index = await opened(url, alias)
    many = load_tunables(Settings()).search.exact_ids_max
    ids = [UUID(int=number) for number in range(1, many + 1)]
    chosen = MemoryFilter(tenant="t", user_ids=("ann",), now=NOW)
    assert (await index.search(vector(1, 0, 0, 0), chosen, many, ids)).points == 0
    await index.close()


async def test_without_strict_mode_nothing_is_refused(url: str, alias: str, http: httpx.AsyncClient) -> None:
    index = await opened(url, alias, strict_mode=False)
    unindexed = {"must": [{"key": "chunk", "match": {"value": 0}}]}
    answer = await http.post(f"/collections/{index.collection}/points/scroll", json={"filter": unindexed})
    assert answer.status_code == 200, answer.text
    await index.close()


async def test_the_graph_and_the_quantisation_are_as_set(url: str, alias: str, http: httpx.AsyncClient) -> None:
    index = await opened(
        url, alias, hnsw_m=8, hnsw_payload_m=24, hnsw_ef_construct=50, hnsw_full_scan_kb=2_000, quantization="int8",
        quantization_quantile=0.95, vectors_on_disk="yes",
    )  # fmt: skip
    config = await config_of(http, index)
    graph = {"m": 8, "payload_m": 24, "ef_construct": 50, "full_scan_threshold": 2_000}
    assert graph.items() <= config["hnsw_config"].items()
    assert {"type": "int8", "quantile": 0.95, "always_ram": True}.items() <= config["quantization_config"][
        "scalar"
    ].items()
    assert config["params"]["vectors"]["on_disk"] is True
    assert (config["params"]["shard_number"], config["params"]["replication_factor"]) == (1, 1)
    await index.close()


async def test_a_service_that_starts_with_other_settings_changes_the_living_collection(
    url: str, alias: str, http: httpx.AsyncClient
) -> None:
    first = await opened(url, alias, strict_mode=False)
    stored = memory()
    await first.upsert(points_of(stored, vector(1, 0, 0, 0)[None]))
    await first.close()
    second = await opened(url, alias, hnsw_ef_construct=64, quantization="int8")
    config = await config_of(http, second)
    assert config["hnsw_config"]["ef_construct"] == 64
    assert config["hnsw_config"]["m"] == 16
    assert config["quantization_config"]["scalar"]["type"] == "int8"
    assert config["strict_mode_config"]["enabled"] is True
    assert await second.count() == 1
    await second.close()
    third = await opened(url, alias, hnsw_ef_construct=64, quantization="none", strict_mode=False)
    config = await config_of(http, third)
    assert not config.get("quantization_config")
    assert config["strict_mode_config"]["enabled"] is False
    chosen = MemoryFilter(tenant="t", user_ids=("ann",), now=NOW)
    assert [hit.memory_id for hit in (await third.search(vector(1, 0, 0, 0), chosen, 5)).hits] == [stored.id]
    await third.close()


async def test_a_collection_of_an_older_version_gets_what_it_lacks(
    url: str, alias: str, http: httpx.AsyncClient
) -> None:
    """It has no tenant index, no strict mode and two payload indexes: what a crash or an upgrade leaves behind."""
    index = VectorIndex(url, alias, FINGERPRINT, 5.0, shipped())
    made = await http.put(f"/collections/{index.collection}", json={"vectors": {"size": 4, "distance": "Cosine"}})
    assert made.status_code == 200
    for field in ("tenant", "kind"):
        await http.put(f"/collections/{index.collection}/index", json={"field_name": field, "field_schema": "keyword"})
    assert await index.ensure() is False
    config = await config_of(http, index)
    assert set(config["payload_schema"]) == set(PAYLOAD_INDEXES)
    assert config["strict_mode_config"]["enabled"] is True
    await index.close()


async def test_points_of_an_older_version_get_the_scope_that_searches_narrow_by(
    url: str, alias: str, http: httpx.AsyncClient
) -> None:
    """More points than a page, of users and tenants whose names could be taken for one another."""
    index = await opened(url, alias)
    points, kept = f"/collections/{index.collection}/points", {}
    for tenant, user, state in (("t", "a/b", "active"), ("t/a", "b", "active"), ("t", "安娜", "cold")):
        many = [replace(memory(), id=new_id(), tenant=tenant, user_id=user, state=state) for _ in range(250)]
        kept[tenant, user, state] = {one.id for one in many}
        await index.upsert([point for one in many for point in points_of(one, vector(1, 0, 0, 0)[None])])
    lesson = points_of(memory(), vector(1, 0, 0, 0)[None])[0]
    lesson["payload"] |= {"kind": "experience"}
    await index.upsert([lesson, {"id": str(uuid4()), "vector": [1, 0, 0, 0], "payload": {}}])
    await http.post(f"{points}/payload/delete?wait=true", json={"keys": ["scope"], "filter": {}})
    await http.delete(f"/collections/{index.collection}/index/scope")
    assert {p.version for p in (await index.stored.page("t", None, 10))[0]} == {None}
    assert await index.ensure() is False
    for (tenant, user, state), ids in kept.items():
        chosen = MemoryFilter(tenant=tenant, user_ids=(user,), now=NOW, states=(state,))
        assert {hit.memory_id for hit in (await index.search(vector(1, 0, 0, 0), chosen, 1000)).hits} == ids
        assert {p.version for p in (await index.stored.of(tenant, [*ids][:3], 10))} == {1}
    assert [str(h.memory_id) for h in await index.search_experiences(vector(1, 0, 0, 0), "t", ("ann",), 9)] == [
        lesson["id"]
    ]
    assert await index.count() == 752
    await index.close()


async def test_a_point_that_is_written_while_scopes_are_filled_keeps_its_own(
    url: str, alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = await opened(url, alias)
    stored = memory()
    await index.upsert(points_of(stored, vector(1, 0, 0, 0)[None]))
    sent = index._http.call

    async def archived_meanwhile(method: str, path: str, body: Any = None) -> Any:
        if "/points/batch" in path:
            monkeypatch.undo()
            await index.upsert(points_of(replace(stored, state="cold"), vector(1, 0, 0, 0)[None]))
        return await sent(method, path, body)

    monkeypatch.setattr(index._http, "call", archived_meanwhile)
    assert await fill_scopes(index._http, f"/collections/{index.collection}") == 1
    for state, found in (("active", 0), ("cold", 1)):
        chosen = MemoryFilter(tenant="t", user_ids=("ann",), now=NOW, states=(state,))
        assert len((await index.search(vector(1, 0, 0, 0), chosen, 5)).hits) == found
    await index.close()


async def test_a_service_that_starts_with_the_same_settings_changes_nothing(
    url: str, alias: str, http: httpx.AsyncClient
) -> None:
    """No PATCH: a server may answer it by rebuilding its graph."""
    first = await opened(url, alias)
    sent: list[str] = []
    second = VectorIndex(url, alias, FINGERPRINT, 5.0, shipped())
    plain = second._http.call

    async def noting(method: str, path: str, body: Any = None) -> Any:
        sent.append(method)
        return await plain(method, path, body)

    second._http.call = noting  # type: ignore[method-assign]
    assert await second.ensure() is False
    assert set(sent) == {"GET"}
    for index in (first, second):
        await index.close()


@local_only
async def test_the_local_engine_refuses_what_a_single_node_cannot_have(url: str, alias: str) -> None:
    for changed in ({"shard_number": 2}, {"replication_factor": 2}, {"write_consistency_factor": 2}):
        index = VectorIndex(url, alias, FINGERPRINT, 5.0, shipped(**changed))
        with pytest.raises(StoreUnavailable):
            await index.ensure()
        assert not await index.exists()
        await index.close()


async def test_the_service_opens_its_index_with_the_shipped_settings(url: str, alias: str) -> None:
    settings = Settings(qdrant_url=url, qdrant_collection=alias)
    index = open_index(settings, load_tunables(settings), FINGERPRINT)
    assert index._params == {"quantization": {"rescore": True, "oversampling": 2.0}, "hnsw_ef": 128}
    await index.close()
