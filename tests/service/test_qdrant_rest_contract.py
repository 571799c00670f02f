"""Does an unmodified Qdrant client get from the local engine what a Qdrant server would answer?

Runs against $QDRANT_URL when it is set, so that the real server can be put in its place; else against
`python -m local_stack.qdrant`. Tests of what only the local process promises (501, kill -9) are skipped there.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from qdrant_client import AsyncQdrantClient, models
from qdrant_client.http.exceptions import UnexpectedResponse

SERVER = os.environ.get("QDRANT_URL")
local_only = pytest.mark.skipif(SERVER is not None, reason="a promise of the local process only")


@dataclass
class Engine:
    """A running local process."""

    port: int
    storage: Path
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(20)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(storage: Path) -> Engine:
    port = free_port()
    command = [sys.executable, "-m", "local_stack.qdrant", "--port", str(port), "--storage", str(storage)]
    engine = Engine(port, storage, subprocess.Popen(command))
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if engine.process.poll() is not None:
            raise AssertionError(f"ended with {engine.process.returncode}")
        try:
            if httpx.get(f"{engine.url}/readyz", trust_env=False).status_code == 200:
                return engine
        except httpx.TransportError:
            time.sleep(0.02)
    raise AssertionError("not ready")


@contextmanager
def running(storage: Path) -> Iterator[Engine]:
    engine = start(storage)
    try:
        yield engine
    finally:
        if engine.process.poll() is None:
            engine.end(signal.SIGTERM)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if SERVER is not None:
        yield SERVER
        return
    with running(tmp_path_factory.mktemp("qdrant")) as engine:
        yield engine.url


def run(url: str, scenario: Callable[[AsyncQdrantClient], Awaitable[None]]) -> None:
    async def inside() -> None:
        client = AsyncQdrantClient(url=url, trust_env=False, check_compatibility=False)  # one request less a test
        try:
            await scenario(client)
        finally:
            await client.close()

    asyncio.run(inside())


@pytest.fixture(scope="module")
def shared(url: str) -> str:
    """The name of a filled collection for tests that change nothing."""
    names: list[str] = []

    async def scenario(client: AsyncQdrantClient) -> None:
        names.append(await filled(client))

    run(url, scenario)
    return names[0]


VECTORS = {
    "text": models.VectorParams(size=4, distance=models.Distance.COSINE, on_disk=False),
    "other": models.VectorParams(size=2, distance=models.Distance.DOT),
}
POINTS = [
    (1, [1.0, 0.0, 0.0, 0.0], {"user": "ann", "tags": ["a", "b"], "n": 1, "at": "2024-01-01T00:00:00Z"}),
    (2, [0.9, 0.1, 0.0, 0.0], {"user": "ann", "tags": ["b"], "n": 2, "at": "2024-02-01T00:00:00Z", "gone": None}),
    (3, [0.0, 1.0, 0.0, 0.0], {"user": "bob", "tags": [], "n": 3.5, "at": "2024-03-01T00:00:00+02:00"}),
    (4, [0.0, 0.0, 1.0, 0.0], {"user": "bob", "deep": [{"k": "x", "v": 1}, {"k": "y", "v": 2}], "n": -4, "ok": True}),
]


async def filled(client: AsyncQdrantClient) -> str:
    """A new collection with POINTS, indexed as the service does it."""
    name = f"c-{uuid.uuid4().hex}"
    await client.create_collection(name, vectors_config=VECTORS)
    indexes: dict[str, models.PayloadSchemaType | models.PayloadSchemaParams] = {
        "user": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True),
        "n": models.PayloadSchemaType.FLOAT,
        "at": models.DatetimeIndexParams(type=models.DatetimeIndexType.DATETIME),
        "text": models.TextIndexParams(type=models.TextIndexType.TEXT, tokenizer=models.TokenizerType.WORD),
    }
    for field, schema in indexes.items():
        await client.create_payload_index(name, field, schema, wait=True)
    points = [models.PointStruct(id=i, vector={"text": v, "other": [1.0, i]}, payload=p) for i, v, p in POINTS]
    answer = await client.upsert(name, points, wait=True)
    assert answer.status == models.UpdateStatus.COMPLETED
    return name


async def ids(client: AsyncQdrantClient, name: str, where: models.Filter) -> list[models.ExtendedPointId]:
    found, _ = await client.scroll(name, scroll_filter=where, limit=100)
    return sorted((point.id for point in found), key=str)


def test_the_clients_own_version_check_is_satisfied(url: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AsyncQdrantClient(url=url, trust_env=False)


def test_the_server_answers_its_probes_and_names_its_version(url: str) -> None:
    with httpx.Client(base_url=url, trust_env=False) as http:
        assert "version" in http.get("/").json()
        for probe in ("/healthz", "/readyz", "/livez"):
            assert http.get(probe).status_code == 200


def test_a_collection_is_created_described_and_deleted(url: str) -> None:
    async def scenario(client: AsyncQdrantClient) -> None:
        name = f"c-{uuid.uuid4().hex}"
        assert not await client.collection_exists(name)
        created = await client.create_collection(
            name,
            vectors_config=VECTORS,
            sparse_vectors_config={"words": models.SparseVectorParams(modifier=models.Modifier.IDF)},
            hnsw_config=models.HnswConfigDiff(m=32, payload_m=16),
            optimizers_config=models.OptimizersConfigDiff(indexing_threshold=5000),
            quantization_config=models.ScalarQuantization(
                scalar=models.ScalarQuantizationConfig(type=models.ScalarType.INT8, always_ram=True)
            ),
            metadata={"fingerprint": "e5@abc", "dims": 4},
        )
        assert created
        info = await client.get_collection(name)
        assert info.status == models.CollectionStatus.GREEN
        assert info.points_count == 0
        assert info.config.metadata == {"fingerprint": "e5@abc", "dims": 4}
        assert info.config.hnsw_config.m == 32
        assert info.config.hnsw_config.payload_m == 16
        assert info.config.optimizer_config.indexing_threshold == 5000
        assert info.config.quantization_config is not None
        assert info.config.params.vectors["text"].size == 4  # type: ignore[index]
        assert name in [found.name for found in (await client.get_collections()).collections]
        with pytest.raises(UnexpectedResponse) as conflict:
            await client.create_collection(name, vectors_config=VECTORS)
        assert conflict.value.status_code == 409
        await client.update_collection(name, metadata={"dims": 5})
        assert (await client.get_collection(name)).config.metadata == {"fingerprint": "e5@abc", "dims": 5}
        assert await client.delete_collection(name)
        assert not await client.collection_exists(name)
        assert not await client.delete_collection(name)

    run(url, scenario)


def test_an_unknown_collection_answers_404_in_qdrants_words(url: str) -> None:
    async def scenario(client: AsyncQdrantClient) -> None:
        for call in (
            client.get_collection("nowhere"),
            client.query_points("nowhere", query=[1.0]),
            client.upsert("nowhere", [models.PointStruct(id=1, vector=[1.0])]),
            client.count("nowhere"),
        ):
            with pytest.raises(UnexpectedResponse) as error:
                await call
            assert error.value.status_code == 404
            assert "Collection `nowhere` doesn't exist!" in error.value.content.decode()

    run(url, scenario)


def test_payload_indexes_are_listed_and_removed(url: str) -> None:
    async def scenario(client: AsyncQdrantClient) -> None:
        name = await filled(client)
        schema = (await client.get_collection(name)).payload_schema
        assert {field: found.data_type for field, found in schema.items()} == {
            "user": models.PayloadSchemaType.KEYWORD,
            "n": models.PayloadSchemaType.FLOAT,
            "at": models.PayloadSchemaType.DATETIME,
            "text": models.PayloadSchemaType.TEXT,
        }
        await client.delete_payload_index(name, "n", wait=True)
        assert "n" not in (await client.get_collection(name)).payload_schema

    run(url, scenario)


def test_a_filtered_search_ranks_by_cosine(url: str) -> None:
    async def scenario(client: AsyncQdrantClient) -> None:
        name = await filled(client)
        ann = models.Filter(must=[models.FieldCondition(key="user", match=models.MatchValue(value="ann"))])
        hits = (
            await client.query_points(
                name,
                query=[2.0, 0.0, 0.0, 0.0],
                using="text",
                query_filter=ann,
                limit=10,
                search_params=models.SearchParams(hnsw_ef=128, exact=False),
            )
        ).points
        assert [hit.id for hit in hits] == [1, 2]
        assert hits[0].score == pytest.approx(1.0)
        assert hits[1].score == pytest.approx(0.9938, abs=1e-3)
        assert hits[0].payload == POINTS[0][2]
        assert hits[0].vector is None
        second = (await client.query_points(name, query=[1.0, 0, 0, 0], using="text", limit=1, offset=1)).points
        assert [hit.id for hit in second] == [2]
        close = await client.query_points(name, query=[1.0, 0, 0, 0], using="text", score_threshold=0.5)
        assert [hit.id for hit in close.points] == [1, 2]
        chosen = await client.query_points(
            name, query=[1.0, 0, 0, 0], using="text", limit=1, with_payload=["user"], with_vectors=["text"]
        )
        assert chosen.points[0].payload == {"user": "ann"}
        assert chosen.points[0].vector == {"text": [1.0, 0.0, 0.0, 0.0]}

    run(url, scenario)


def test_a_search_by_point_id_leaves_the_point_out(url: str) -> None:
    async def scenario(client: AsyncQdrantClient) -> None:
        name = await filled(client)
        hits = (await client.query_points(name, query=1, using="text", limit=2)).points
        assert hits[0].id == 2
        assert 1 not in [hit.id for hit in hits]

    run(url, scenario)


def test_a_batch_of_searches_answers_in_order(url: str) -> None:
    async def scenario(client: AsyncQdrantClient) -> None:
        name = await filled(client)
        requests = [
            models.QueryRequest(query=vector, using="text", limit=1) for vector in ([0, 0, 1.0, 0], [0, 1.0, 0, 0])
        ]
        answers = await client.query_batch_points(name, requests)
        assert [answer.points[0].id for answer in answers] == [4, 3]

    run(url, scenario)


def test_prefetched_lanes_are_fused_by_reciprocal_rank(url: str) -> None:
    async def scenario(client: AsyncQdrantClient) -> None:
        name = f"c-{uuid.uuid4().hex}"
        sparse = {"words": models.SparseVectorParams()}
        await client.create_collection(name, vectors_config={"text": VECTORS["text"]}, sparse_vectors_config=sparse)
        await client.upsert(
            name,
            [
                models.PointStruct(
                    id=1, vector={"text": [1, 0, 0, 0.0], "words": models.SparseVector(indices=[7], values=[0.5])}
                ),
                models.PointStruct(
                    id=2, vector={"text": [0, 1, 0, 0.0], "words": models.SparseVector(indices=[9], values=[1.0])}
                ),
                models.PointStruct(id=3, vector={"text": [0.9, 0.1, 0, 0]}),
            ],
            wait=True,
        )
        hits = await client.query_points(
            name,
            prefetch=[
                models.Prefetch(query=[1.0, 0, 0, 0], using="text", limit=3),
                models.Prefetch(query=models.SparseVector(indices=[7], values=[1.0]), using="words", limit=3),
            ],
            query=models.FusionQuery(fusion=models.Fusion.RRF),
            limit=3,
        )
        assert hits.points[0].id == 1
        stored = await client.retrieve(name, [1], with_vectors=True)
        assert stored[0].vector["words"] == models.SparseVector(indices=[7], values=[0.5])  # type: ignore[index,call-overload]

    run(url, scenario)


CONDITIONS: dict[str, tuple[models.Filter, list[int]]] = {
    "value": (models.Filter(must=[models.FieldCondition(key="user", match=models.MatchValue(value="bob"))]), [3, 4]),
    "bool": (models.Filter(must=[models.FieldCondition(key="ok", match=models.MatchValue(value=True))]), [4]),
    "any": (models.Filter(must=[models.FieldCondition(key="tags", match=models.MatchAny(any=["a", "z"]))]), [1]),
    "except": (
        models.Filter(must=[models.FieldCondition(key="user", match=models.MatchExcept(**{"except": ["bob"]}))]),
        [1, 2],
    ),
    "number range": (models.Filter(must=[models.FieldCondition(key="n", range=models.Range(gt=1, lte=3.5))]), [2, 3]),
    "time range": (
        models.Filter(must=[models.FieldCondition(key="at", range=models.DatetimeRange(gte="2024-02-01T00:00:00Z"))]),
        [2, 3],
    ),
    "time offset": (
        models.Filter(must=[models.FieldCondition(key="at", range=models.DatetimeRange(lt="2024-02-29T22:00:01Z"))]),
        [1, 2, 3],
    ),
    "is empty": (models.Filter(must=[models.IsEmptyCondition(is_empty=models.PayloadField(key="tags"))]), [3, 4]),
    "is null": (models.Filter(must=[models.IsNullCondition(is_null=models.PayloadField(key="gone"))]), [2]),
    "has id": (models.Filter(must=[models.HasIdCondition(has_id=[2, 4, 99])]), [2, 4]),
    "has vector": (models.Filter(must=[models.HasVectorCondition(has_vector="text")]), [1, 2, 3, 4]),
    "values count": (
        models.Filter(must=[models.FieldCondition(key="tags", values_count=models.ValuesCount(gte=2))]),
        [1],
    ),
    "nested": (
        models.Filter(
            must=[
                models.NestedCondition(
                    nested=models.Nested(
                        key="deep",
                        filter=models.Filter(
                            must=[
                                models.FieldCondition(key="k", match=models.MatchValue(value="x")),
                                models.FieldCondition(key="v", match=models.MatchValue(value=1)),
                            ]
                        ),
                    )
                )
            ]
        ),
        [4],
    ),
    "must not": (
        models.Filter(must_not=[models.FieldCondition(key="user", match=models.MatchValue(value="ann"))]),
        [3, 4],
    ),
    "should and must": (
        models.Filter(
            must=[models.FieldCondition(key="user", match=models.MatchValue(value="ann"))],
            should=[
                models.FieldCondition(key="n", match=models.MatchValue(value=2)),
                models.FieldCondition(key="tags", match=models.MatchValue(value="nope")),
            ],
        ),
        [2],
    ),
    "filter in a filter": (
        models.Filter(
            should=[
                models.Filter(must=[models.HasIdCondition(has_id=[1])]),
                models.Filter(must_not=[models.HasIdCondition(has_id=[1, 2, 3])]),
            ]
        ),
        [1, 4],
    ),
    "min should": (
        models.Filter(
            min_should=models.MinShould(
                conditions=[
                    models.FieldCondition(key="user", match=models.MatchValue(value="ann")),
                    models.FieldCondition(key="tags", match=models.MatchValue(value="b")),
                    models.HasIdCondition(has_id=[2]),
                ],
                min_count=3,
            )
        ),
        [2],
    ),
    "nothing": (models.Filter(), [1, 2, 3, 4]),
}


@pytest.mark.parametrize("case", CONDITIONS)
def test_a_filter_selects_what_qdrant_selects(url: str, shared: str, case: str) -> None:
    where, expected = CONDITIONS[case]

    async def scenario(client: AsyncQdrantClient) -> None:
        assert await ids(client, shared, where) == expected
        assert (await client.count(shared, count_filter=where, exact=True)).count == len(expected)

    run(url, scenario)


def test_full_text_conditions_match_words(url: str) -> None:
    async def scenario(client: AsyncQdrantClient) -> None:
        name = await filled(client)
        await client.set_payload(name, {"text": "the quick brown fox"}, points=[1], wait=True)
        await client.set_payload(name, {"text": "a slow fox"}, points=[2], wait=True)
        both = models.Filter(must=[models.FieldCondition(key="text", match=models.MatchText(text="Quick fox"))])
        either = models.Filter(
            must=[models.FieldCondition(key="text", match=models.MatchTextAny(text_any="quick slow"))]
        )
        assert await ids(client, name, both) == [1]
        assert await ids(client, name, either) == [1, 2]

    run(url, scenario)


def test_a_scroll_pages_through_everything_once(url: str) -> None:
    async def scenario(client: AsyncQdrantClient) -> None:
        name = await filled(client)
        seen: list[models.ExtendedPointId] = []
        offset: models.ExtendedPointId | None = None
        for _ in range(5):
            page, offset = await client.scroll(name, limit=3, offset=offset, with_vectors=True)  # type: ignore[assignment]
            seen += [point.id for point in page]
            if offset is None:
                break
        assert seen == [1, 2, 3, 4]
        assert offset is None
        by_number, _ = await client.scroll(name, order_by=models.OrderBy(key="n", direction=models.Direction.DESC))
        assert [point.id for point in by_number] == [3, 2, 1, 4]

    run(url, scenario)


def test_points_are_written_in_batch_form_and_read_by_id(url: str) -> None:
    async def scenario(client: AsyncQdrantClient) -> None:
        name = f"c-{uuid.uuid4().hex}"
        await client.create_collection(name, vectors_config=models.VectorParams(size=2, distance=models.Distance.DOT))
        key = str(uuid.uuid4())
        batch = models.Batch(ids=[7, key], vectors=[[1.0, 0.0], [0.0, 1.0]], payloads=[{"a": 2**53 + 1}, {"字": "值"}])
        await client.upsert(name, batch, wait=True)
        found = await client.retrieve(name, [key, 7, 8], with_vectors=True)
        assert {point.id: (point.payload, point.vector) for point in found} == {
            7: ({"a": 2**53 + 1}, [1.0, 0.0]),
            key: ({"字": "值"}, [0.0, 1.0]),
        }
        hit = (await client.query_points(name, query=[0.0, 3.0], limit=1)).points[0]
        assert hit.id == key
        assert hit.score == pytest.approx(3.0)
        one = httpx.get(f"{url}/collections/{name}/points/{key}", trust_env=False).json()["result"]  # noqa: ASYNC210  # nothing else runs
        assert one["payload"] == {"字": "值"}
        assert httpx.get(f"{url}/collections/{name}/points/8", trust_env=False).status_code == 404  # noqa: ASYNC210

    run(url, scenario)


def test_an_upsert_replaces_the_whole_point(url: str) -> None:
    async def scenario(client: AsyncQdrantClient) -> None:
        name = await filled(client)
        fresh = models.PointStruct(id=1, vector={"text": [0.0, 0, 0, 1.0]}, payload={"user": "eve"})
        await client.upsert(name, [fresh], wait=True)
        found = (await client.retrieve(name, [1], with_vectors=True))[0]
        assert found.payload == {"user": "eve"}
        assert found.vector == {"text": [0.0, 0.0, 0.0, 1.0]}
        assert (await client.count(name)).count == 4

    run(url, scenario)


def test_points_are_deleted_by_id_and_by_filter(url: str) -> None:
    async def scenario(client: AsyncQdrantClient) -> None:
        name = await filled(client)
        await client.delete(name, models.PointIdsList(points=[1, 99]), wait=True)
        bob = models.Filter(must=[models.FieldCondition(key="user", match=models.MatchValue(value="bob"))])
        await client.delete(name, models.FilterSelector(filter=bob), wait=True)
        assert await ids(client, name, models.Filter()) == [2]

    run(url, scenario)


def test_payloads_are_set_overwritten_and_deleted(url: str) -> None:
    async def scenario(client: AsyncQdrantClient) -> None:
        name = await filled(client)
        ann = models.Filter(must=[models.FieldCondition(key="user", match=models.MatchValue(value="ann"))])
        await client.set_payload(name, {"cold": True}, points=ann, wait=True)
        await client.overwrite_payload(name, {"only": 1}, points=[3], wait=True)
        await client.delete_payload(name, keys=["tags", "n"], points=[1], wait=True)
        await client.clear_payload(name, points_selector=[4], wait=True)
        found = {point.id: point.payload for point in await client.retrieve(name, [1, 2, 3, 4])}
        assert found[1] == {"user": "ann", "at": "2024-01-01T00:00:00Z", "cold": True}
        assert found[2] is not None
        assert found[2]["cold"] is True
        assert found[2]["n"] == 2
        assert found[3] == {"only": 1}
        assert found[4] == {}

    run(url, scenario)


def test_vectors_are_updated_and_deleted_alone(url: str) -> None:
    async def scenario(client: AsyncQdrantClient) -> None:
        name = await filled(client)
        await client.update_vectors(name, [models.PointVectors(id=1, vector={"text": [0.0, 0, 0, 1.0]})], wait=True)
        await client.delete_vectors(name, vectors=["other"], points=[1], wait=True)
        found = (await client.retrieve(name, [1], with_vectors=True))[0]
        assert found.vector == {"text": [0.0, 0.0, 0.0, 1.0]}
        assert found.payload == POINTS[0][2]

    run(url, scenario)


def test_a_batch_of_updates_is_applied_in_order(url: str) -> None:
    async def scenario(client: AsyncQdrantClient) -> None:
        name = await filled(client)
        point = models.PointStruct(id=9, vector={"text": [1.0, 0, 0, 0]}, payload={"v": 1})
        await client.batch_update_points(
            name,
            [
                models.UpsertOperation(upsert=models.PointsList(points=[point])),
                models.SetPayloadOperation(set_payload=models.SetPayload(payload={"v": 2}, points=[9])),
                models.DeleteOperation(delete=models.PointIdsList(points=[1, 2, 3])),
            ],
            wait=True,
        )
        assert await ids(client, name, models.Filter()) == [4, 9]
        assert (await client.retrieve(name, [9]))[0].payload == {"v": 2}

    run(url, scenario)


def test_an_alias_is_switched_in_one_step(url: str) -> None:
    async def scenario(client: AsyncQdrantClient) -> None:
        old, new, alias = await filled(client), await filled(client), f"a-{uuid.uuid4().hex}"

        def create(name: str) -> models.CreateAliasOperation:
            return models.CreateAliasOperation(create_alias=models.CreateAlias(collection_name=name, alias_name=alias))

        await client.update_collection_aliases([create(old)])
        await client.delete(old, models.PointIdsList(points=[1]), wait=True)
        assert (await client.count(alias)).count == 3
        drop = models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=alias))
        await client.update_collection_aliases([drop, create(new)])
        assert (await client.count(alias)).count == 4
        assert await client.collection_exists(alias)
        assert [found.alias_name for found in (await client.get_collection_aliases(new)).aliases] == [alias]
        assert (await client.get_collection_aliases(old)).aliases == []
        assert alias in [found.alias_name for found in (await client.get_aliases()).aliases]
        with pytest.raises(UnexpectedResponse) as missing:
            await client.update_collection_aliases([drop, create("nowhere")])
        assert missing.value.status_code == 404
        assert (await client.count(alias)).count == 4, "a refused change must not be half applied"
        await client.delete_collection(new)
        assert not await client.collection_exists(alias)

    run(url, scenario)


def test_facets_count_values(url: str) -> None:
    async def scenario(client: AsyncQdrantClient) -> None:
        name = await filled(client)
        hits = (await client.facet(name, "user", exact=True)).hits
        assert {hit.value: hit.count for hit in hits} == {"ann": 2, "bob": 2}

    run(url, scenario)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "points", {"points": [{"id": 1, "vector": {"text": [1, 2]}}]}),
        ("PUT", "points", {"points": [{"id": 1, "vector": {"unknown": [1, 2]}}]}),
        ("PUT", "points", {"points": [{"id": "abc", "vector": {"text": [1, 2, 3, 4]}}]}),
        ("PUT", "points", {"points": [{"id": -1, "vector": {"text": [1, 2, 3, 4]}}]}),
        ("PUT", "points", {"points": [{"id": 1, "vector": {"text": ["x", 2, 3, 4]}}]}),
        ("POST", "points/query", {"query": [1.0], "using": "text"}),
        ("POST", "points/query", {"query": [1.0, 0, 0, 0], "using": "unknown"}),
        ("POST", "points/scroll", {"limit": 0}),
        ("POST", "points/scroll", {"filter": {"must": [{"key": "at", "range": {"gte": "yesterday"}}]}}),
        ("POST", "points/scroll", {"filter": []}),
        ("POST", "points/scroll", {"filter": {"must": [{"key": "user", "match": {"value": [1]}}]}}),
        ("POST", "points/delete", {}),
    ],
)
def test_malformed_requests_are_refused_and_change_nothing(
    url: str, shared: str, method: str, path: str, body: object
) -> None:
    query = "?wait=true" if method == "PUT" else ""
    with httpx.Client(base_url=f"{url}/collections/{shared}", trust_env=False) as http:
        answer = http.request(method, f"/{path}{query}", json=body)
        assert answer.status_code in ((400,) if SERVER is None else (400, 422)), answer.text
        assert answer.json()["status"]["error"]
        assert http.get("/points/1").json()["result"]["payload"] == POINTS[0][2]


def test_broken_json_answers_400(url: str) -> None:
    answer = httpx.post(f"{url}/collections/x/points/query", content=b'{"query": [', trust_env=False)
    assert answer.status_code in (400, 404)
    assert answer.json()["status"]["error"]


@local_only
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/telemetry", None),
        ("GET", "/collections/{c}/snapshots", None),
        ("POST", "/collections/{c}/points/search/matrix/pairs", {}),
        ("POST", "/collections/{c}/points/query/groups", {"group_by": "user"}),
        ("DELETE", "/collections/{c}/points", None),
        ("POST", "/collections/{c}/points/scroll", {"shard_key": "a"}),
        ("POST", "/collections/{c}/points/scroll", {"filter": {"must": [{"novel": 1}]}}),
        ("POST", "/collections/{c}/points/scroll", {"filter": {"novel": []}}),
        ("POST", "/collections/{c}/points/scroll", {"filter": {"must": [{"key": "a", "match": {"novel": 1}}]}}),
        ("POST", "/collections/{c}/points/scroll", {"filter": {"must": [{"key": "a", "geo_radius": {"radius": 1}}]}}),
        ("POST", "/collections/{c}/points/query", {"query": {"recommend": {"positive": [1]}}}),
        ("POST", "/collections/{c}/points/query", {"query": {"formula": 1}}),
        ("POST", "/collections/{c}/points/query", {"query": {"text": "x", "model": "y"}}),
        ("POST", "/collections/{c}/points/query", {"query": [1, 0, 0, 0], "using": "text", "params": {"novel": 1}}),
        ("POST", "/collections/{c}/points/query?novel=1", {}),
        ("PUT", "/collections/fresh", {"vectors": {"size": 2, "distance": "Dot"}, "shard_number": 3}),
        ("PUT", "/collections/fresh", {"vectors": {"size": 2, "distance": "Dot", "novel": 3}}),
        ("PUT", "/collections/{c}/index", {"field_name": "a", "field_schema": "geo"}),
        ("POST", "/collections/{c}/points/batch", {"operations": [{"novel": {}}]}),
    ],
)
def test_what_is_not_mapped_is_refused_loudly(url: str, shared: str, method: str, path: str, body: object) -> None:
    with httpx.Client(base_url=url, trust_env=False) as http:
        answer = http.request(method, path.replace("{c}", shared), json=body)
        assert answer.status_code == 501, answer.text
        assert "Not implemented" in answer.json()["status"]["error"]
        assert not http.get("/collections/fresh/exists").json()["result"]["exists"]


@local_only
def test_concurrent_writers_lose_nothing(url: str) -> None:
    async def scenario(client: AsyncQdrantClient) -> None:
        name = await filled(client)

        async def write(row: int) -> None:
            point = models.PointStruct(id=1000 + row, vector={"text": [1.0, row, 0, 0]}, payload={"user": "many"})
            await client.upsert(name, [point], wait=True)
            assert (await client.retrieve(name, [1000 + row]))[0].payload == {"user": "many"}

        await asyncio.gather(*(write(row) for row in range(100)))
        assert (await client.count(name)).count == 104

    run(url, scenario)


@local_only
def test_a_clean_stop_exits_with_0_and_everything_is_there_again(tmp_path: Path) -> None:
    names: list[str] = []

    async def prepare(client: AsyncQdrantClient) -> None:
        names.append(await filled(client))
        alias = models.CreateAlias(collection_name=names[0], alias_name="live/字")
        await client.update_collection_aliases([models.CreateAliasOperation(create_alias=alias)])
        await client.update_collection(names[0], metadata={"fingerprint": "f"})

    async def check(client: AsyncQdrantClient) -> None:
        assert (await client.count(names[0])).count == 4
        info = await client.get_collection(names[0])
        assert info.config.metadata == {"fingerprint": "f"}
        assert set(info.payload_schema) == {"user", "n", "at", "text"}
        assert (await client.get_aliases()).aliases[0].alias_name == "live/字"
        hit = (await client.query_points(names[0], query=[1.0, 0, 0, 0], using="text", limit=1)).points[0]
        assert hit.id == 1
        assert hit.payload == POINTS[0][2]

    with running(tmp_path) as engine:
        run(engine.url, prepare)
        assert engine.end(signal.SIGTERM) == 0
    with running(tmp_path) as engine:
        run(engine.url, check)


@local_only
def test_kill_9_loses_no_acknowledged_update(tmp_path: Path) -> None:
    """Killed in the middle of a stream of upserts, deletes and payload changes, right after an acknowledgement."""
    engine = start(tmp_path)
    name = "c"
    acknowledged: list[int] = []

    async def stream(client: AsyncQdrantClient) -> None:
        await client.create_collection(name, vectors_config=models.VectorParams(size=8, distance=models.Distance.DOT))
        for row in range(300):
            await client.upsert(name, [models.PointStruct(id=row, vector=[row] * 8, payload={"r": row})], wait=True)
            acknowledged.append(row)
        await client.delete(name, models.PointIdsList(points=[0]), wait=True)
        await client.set_payload(name, {"r": -1}, points=[1], wait=True)
        engine.process.kill()

    run(engine.url, stream)
    assert engine.process.wait(10) == -signal.SIGKILL
    for _ in range(2):  # the second time proves that replaying the log left it intact
        with running(tmp_path) as again:

            async def check(client: AsyncQdrantClient) -> None:
                found, _ = await client.scroll(name, limit=1000)
                assert {point.id for point in found} == set(acknowledged) - {0}
                assert found[0].payload == {"r": -1}

            run(again.url, check)


@local_only
def test_a_second_process_on_the_same_storage_is_refused(tmp_path: Path) -> None:
    with running(tmp_path) as engine:

        async def prepare(client: AsyncQdrantClient) -> None:
            await filled(client)

        run(engine.url, prepare)
        command = [sys.executable, "-m", "local_stack.qdrant", "--port", str(free_port()), "--storage", str(tmp_path)]
        assert subprocess.run(command, capture_output=True, timeout=20, check=False).returncode != 0
        run(engine.url, prepare)


@local_only
def test_a_storage_without_its_catalog_is_never_emptied(tmp_path: Path) -> None:
    with running(tmp_path) as engine:

        async def prepare(client: AsyncQdrantClient) -> None:
            await filled(client)

        run(engine.url, prepare)
    (tmp_path / "catalog.json").rename(tmp_path / "catalog.saved")
    command = [sys.executable, "-m", "local_stack.qdrant", "--port", str(free_port()), "--storage", str(tmp_path)]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert refused.returncode != 0
    assert "catalog.json is missing" in refused.stderr
    assert len(list((tmp_path / "shards").iterdir())) == 1
