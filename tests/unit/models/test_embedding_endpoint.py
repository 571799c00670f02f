"""Does the OpenAI-compatible provider get along with a real HTTP server, and distrust its answers?"""

import asyncio
import base64
import json
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memory_service.errors import EmbedderUnavailable, SetupRefused, TextRefused
from memory_service.models.embedders import open_embedder
from memory_service.models.embedding_settings import EmbedderConfig, EmbeddingTunables
from memory_service.models.ports import Embedder, Vector

CONFIG = Path(__file__).parents[3] / "config" / "memory.toml"
DIMENSIONS = 4


def tunables(**changes: Any) -> EmbeddingTunables:
    shipped = EmbeddingTunables(**tomllib.loads(CONFIG.read_text())["embedding"])
    return replace(shipped, remote_retry_base_s=0.01, remote_retry_max_s=0.05, remote_timeout_s=2, **changes)


def vector_of(text: str) -> list[float]:
    return [float(len(text)), 1.0, float(text.count("a")), float(text.count("b"))]


@dataclass(frozen=True)
class Answer:
    """Sent as it is; `vectors` is made into a proper body.  A hang lasts until the server is stopped."""

    status: int = 200
    body: bytes = b""
    vectors: Callable[[list[str]], list[Any]] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    hangs: bool = False


GOOD = Answer(vectors=lambda texts: [vector_of(text) for text in texts])


class Endpoint:
    """Answers with the script's entries in turn, then with `GOOD` for ever; remembers every request's body and key."""

    def __init__(self, script: list[Answer]) -> None:
        self.script = script
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._now = 0
        self.most_at_once = 0

    def answer(self, body: dict[str, Any], key: str | None) -> Answer:
        with self._lock:
            self.requests.append(body)
            self.keys.append(key)
            return self.script.pop(0) if self.script else GOOD

    @contextmanager
    def counted(self) -> Iterator[None]:
        with self._lock:
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        yield
        with self._lock:
            self._now -= 1


@contextmanager
def served(*script: Answer) -> Iterator[tuple[Endpoint, str]]:
    endpoint = Endpoint(list(script))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            answer = endpoint.answer(body, self.headers.get("authorization"))
            with endpoint.counted():
                time.sleep(0.01)
                if answer.hangs:
                    endpoint.stopping.wait(20)
            content = answer.body
            if answer.vectors is not None:
                rows = enumerate(answer.vectors(body["input"]))
                data = [{"object": "embedding", "index": index, "embedding": row} for index, row in rows]
                content = json.dumps({"data": data[::-1], "model": body["model"]}).encode()
            self.send_response(answer.status)
            for name, value in {**answer.headers, "content-length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield endpoint, f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        endpoint.stopping.set()
        server.shutdown()
        server.server_close()
        thread.join(5)


def config(url: str, **changes: Any) -> EmbedderConfig:
    fixed: dict[str, Any] = {"provider": "openai", "model": "some-model", "base_url": url, "dimensions": DIMENSIONS}
    return EmbedderConfig(**{**fixed, **changes})


async def opened(url: str, settings: EmbeddingTunables | None = None, **changes: Any) -> Embedder:
    return await open_embedder(config(url, **changes), settings or tunables(), lambda line: None)


def query(url: str, text: str = "abba", settings: EmbeddingTunables | None = None, **changes: Any) -> Vector:
    async def ask() -> Vector:
        embedder = await opened(url, settings, **changes)
        try:
            return await embedder.embed_query(text)
        finally:
            await embedder.close()

    return asyncio.run(ask())


def unit(text: str) -> Vector:
    vector = np.array(vector_of(text), np.float32)
    return np.asarray(vector / np.linalg.norm(vector), np.float32)


def test_a_query_is_one_request_with_prefix_and_key_and_a_unit_vector_back() -> None:
    with served() as (endpoint, url):
        vector = query(url, query_prefix="query: ", api_key="s3cret")

    np.testing.assert_allclose(vector, unit("query: abba"), rtol=1e-5)
    assert endpoint.keys == ["Bearer s3cret"]
    assert endpoint.requests == [
        {"model": "some-model", "input": ["query: abba"], "encoding_format": "float", "dimensions": DIMENSIONS}
    ]


def test_passages_go_in_batches_and_come_back_in_order_a_few_requests_at_once() -> None:
    texts = ["a" * number + "b" for number in range(50)]

    async def ask(url: str) -> Vector:
        embedder = await opened(url, tunables(remote_batch_rows_max=4, remote_concurrent_requests_max=3))
        try:
            return await embedder.embed_passages(texts)
        finally:
            await embedder.close()

    with served() as (endpoint, url):
        vectors = asyncio.run(ask(url))

    np.testing.assert_allclose(vectors, np.stack([unit(text) for text in texts]), rtol=1e-5)
    assert len(endpoint.requests) == 13
    assert 2 <= endpoint.most_at_once <= 3


def test_base64_answers_are_read() -> None:
    def encoded(texts: list[str]) -> list[str]:
        return [base64.b64encode(np.array(vector_of(text), "<f4").tobytes()).decode() for text in texts]

    with served(Answer(vectors=encoded)) as (_, url):
        np.testing.assert_allclose(query(url), unit("abba"), rtol=1e-5)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_passing_failure_is_tried_again(status: int) -> None:
    with served(Answer(status), Answer(status, b"<html>")) as (endpoint, url):
        np.testing.assert_allclose(query(url), unit("abba"), rtol=1e-5)
    assert len(endpoint.requests) == 3


def test_attempts_end_and_the_error_says_what_was_answered_but_not_where() -> None:
    with served(*[Answer(503)] * 20) as (endpoint, url), pytest.raises(EmbedderUnavailable) as failure:
        query(url)
    assert len(endpoint.requests) == tunables().remote_attempts_max
    assert "503" in failure.value.detail
    assert "127.0.0.1" not in failure.value.detail


def test_retry_after_is_waited_for_but_not_longer_than_allowed() -> None:
    settings = replace(tunables(), remote_retry_max_s=1.2)
    with served(Answer(429, headers={"retry-after": "1"})) as (_, url):
        started = time.monotonic()
        query(url, settings=settings)
        assert 1.0 <= time.monotonic() - started < 2.5
    with served(Answer(429, headers={"retry-after": "3600"})) as (_, url):
        started = time.monotonic()
        query(url)
        assert time.monotonic() - started < 2


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refusal_is_not_tried_again(status: int) -> None:
    with served(Answer(status, b"no")) as (endpoint, url), pytest.raises(EmbedderUnavailable, match=str(status)):
        query(url)
    assert len(endpoint.requests) == 1


def test_a_bad_request_is_tried_once_more_without_the_dimensions_field_only() -> None:
    with served(*[Answer(400, b"no")] * 5) as (endpoint, url), pytest.raises(TextRefused, match="400"):
        query(url)
    assert len(endpoint.requests) == 2


@pytest.mark.parametrize(
    "answer",
    [
        Answer(body=b"not json"),
        Answer(body=b"[]"),
        Answer(body=b'{"data": null}'),
        Answer(body=b'{"data": [{"embedding": "not base64!", "index": 0}]}'),
        Answer(body=b'{"data": [{"embedding": ["x", 1, 2, 3], "index": 0}]}'),
        Answer(body=b'{"data": [{"embedding": [[1, 2], [3, 4]], "index": 0}]}'),
        Answer(body=b'{"data": [{"embedding": 3, "index": 0}]}'),
        Answer(body=b'{"data": [{"index": 0}]}'),
        Answer(body=b'{"data": []}'),
        Answer(body=b'{"data": [{"embedding": [NaN, 1, 2, 3], "index": 0}]}'),
        Answer(vectors=lambda texts: [[1.0, 2.0]]),
        Answer(vectors=lambda texts: [[0.0] * DIMENSIONS]),
        Answer(vectors=lambda texts: [[1.0] * DIMENSIONS] * 2),
        Answer(vectors=lambda texts: [[1e300] * DIMENSIONS]),
        Answer(vectors=lambda texts: [base64.b64encode(np.array([np.nan] * 4, "<f4").tobytes()).decode()]),
        Answer(vectors=lambda texts: [[]]),
    ],
    ids=lambda answer: (answer.body.decode() or "vectors")[:40],
)
def test_a_nonsense_answer_is_embedder_unavailable_and_the_next_good_one_is_taken(answer: Answer) -> None:
    async def ask(url: str) -> Vector:
        embedder = await opened(url)
        try:
            with pytest.raises(EmbedderUnavailable):
                await embedder.embed_query("abba")
            return await embedder.embed_query("abba")
        finally:
            await embedder.close()

    with served(answer) as (endpoint, url):
        np.testing.assert_allclose(asyncio.run(ask(url)), unit("abba"), rtol=1e-5)
    assert len(endpoint.requests) == 2


def test_a_server_that_hangs_is_given_up_within_the_timeout() -> None:
    settings = replace(tunables(), remote_timeout_s=0.3, remote_attempts_max=2)
    with served(*[Answer(hangs=True)] * 2) as (endpoint, url):
        started = time.monotonic()
        with pytest.raises(EmbedderUnavailable, match="in time"):
            query(url, settings=settings)
        assert time.monotonic() - started < 2
    assert len(endpoint.requests) == 2


def test_one_failing_batch_fails_the_call_with_the_port_s_own_error() -> None:
    async def ask(url: str) -> None:
        embedder = await opened(url, tunables(remote_batch_rows_max=1))
        try:
            await embedder.embed_passages(["a", "b", "c"])
        finally:
            await embedder.close()

    with served(GOOD, Answer(401)) as (_, url), pytest.raises(EmbedderUnavailable, match="401"):
        asyncio.run(ask(url))


def test_a_server_that_is_not_there_is_embedder_unavailable_when_the_dimensions_are_known() -> None:
    with served() as (_, url):
        pass
    with pytest.raises(EmbedderUnavailable, match="reached"):
        query(url)


def test_dimensions_are_asked_for_at_start_and_a_silent_endpoint_refuses_the_start() -> None:
    async def asked(url: str) -> int:
        embedder = await opened(url, dimensions=None)
        await embedder.close()
        return embedder.fingerprint.dimensions

    with served() as (_, url):
        assert asyncio.run(asked(url)) == DIMENSIONS
    with pytest.raises(SetupRefused, match="HINDSIGHT_EMBEDDING_DIMENSIONS"):
        asyncio.run(asked(url))


def test_an_endpoint_that_refuses_the_dimensions_field_is_asked_without_it() -> None:
    with served(Answer(400, b"dimensions is not supported")) as (endpoint, url):
        np.testing.assert_allclose(query(url), unit("abba"), rtol=1e-5)
    assert ["dimensions" in request for request in endpoint.requests] == [True, False]


def test_the_same_text_is_asked_once() -> None:
    async def ask(url: str) -> None:
        embedder = await opened(url)
        for _ in range(3):
            await embedder.embed_query("abba")
        await embedder.embed_passages(["abba", "abba"])
        await embedder.close()

    with served() as (endpoint, url):
        asyncio.run(ask(url))
    assert [request["input"] for request in endpoint.requests] == [["abba"], ["abba"]]


@pytest.mark.parametrize("text", ["word " * 50_000, "数据库迁移失败。" * 12_000, "x" * 262_144], ids=["en", "zh", "x"])
def test_long_texts_are_cut_by_a_cautious_estimate_quickly(text: str) -> None:
    async def cut(url: str) -> tuple[list[str], float]:
        embedder = await opened(url)
        started = time.perf_counter()
        pieces = embedder.chunks(text + "\nunique zebra-quantum phrase 77")
        took = time.perf_counter() - started
        await embedder.close()
        return pieces, took

    with served() as (_, url):
        pieces, took = asyncio.run(cut(url))
    allowed = tunables().remote_window_tokens * tunables().remote_bytes_per_token_min
    assert max(len(piece.encode()) for piece in pieces) <= allowed
    assert "unique zebra-quantum phrase 77" in pieces[-1]
    assert took < 2
