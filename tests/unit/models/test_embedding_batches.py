"""Do concurrent requests share runs of the model, and stay out of each other's way?"""

import asyncio
import threading
import time
from collections.abc import Sequence

import numpy as np
import pytest

from memory_service.errors import EmbedderUnavailable
from memory_service.models.batching import (
    BatchBounds,
    EmbedderObserver,
    MicroBatcher,
    VectorCache,
    embed_through,
)
from memory_service.models.ports import EmbeddingFingerprint, Vector

PRINT = EmbeddingFingerprint("m", "1", 1, "", "")


class FakeModel:
    """Text "7" becomes the vector [7.0].  While the gate is closed, runs wait; "bad" raises."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.started = threading.Event()

    def encode(self, texts: Sequence[str]) -> Vector:
        self.batches.append(list(texts))
        self.started.set()
        assert self.gate.wait(10)
        if "bad" in texts:
            raise RuntimeError("model broke")
        return np.array([[float(text)] for text in texts], np.float32)


def lane(model: FakeModel, *, workers: int = 1, rows: int = 8, cost: int = 1000, waiting: int = 100) -> MicroBatcher:
    return MicroBatcher("query", model.encode, len, BatchBounds(workers, rows, cost, waiting), EmbedderObserver())


async def blocked(model: FakeModel, batcher: MicroBatcher) -> asyncio.Task[list[Vector]]:
    """A first run that holds the only worker until the gate opens."""
    model.gate.clear()
    model.started.clear()
    first = asyncio.create_task(batcher.embed(["0"]))
    await asyncio.to_thread(model.started.wait, 5)
    return first


@pytest.mark.asyncio
async def test_a_lone_request_runs_at_once() -> None:
    model = FakeModel()
    batcher = lane(model)
    started = time.perf_counter()

    assert [vector.tolist() for vector in await batcher.embed(["7"])] == [[7.0]]

    assert time.perf_counter() - started < 0.5
    assert model.batches == [["7"]]
    await batcher.close()


@pytest.mark.asyncio
async def test_requests_that_arrive_while_the_model_is_busy_share_the_next_run() -> None:
    model = FakeModel()
    batcher = lane(model)
    first = await blocked(model, batcher)
    later = [asyncio.create_task(batcher.embed([str(number)])) for number in range(1, 6)]
    await asyncio.sleep(0)
    model.gate.set()

    answers = await asyncio.gather(first, *later)

    assert [answer[0].tolist() for answer in answers] == [[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]]
    assert model.batches == [["0"], ["1", "2", "3", "4", "5"]]
    await batcher.close()


@pytest.mark.asyncio
async def test_a_run_stays_within_rows_and_cost_and_a_huge_text_runs_alone() -> None:
    model = FakeModel()
    batcher = lane(model, rows=3, cost=6)
    first = await blocked(model, batcher)
    later = asyncio.gather(*(batcher.embed([text]) for text in ("1", "2", "3", "4", "1" * 30, "55", "66", "77", "8")))
    await asyncio.sleep(0)
    model.gate.set()
    await asyncio.gather(first, later)

    assert model.batches[1:] == [["1", "2", "3"], ["4"], ["1" * 30], ["55", "66", "77"], ["8"]]
    await batcher.close()


@pytest.mark.asyncio
async def test_cancelling_one_waiter_does_not_fail_the_others_and_its_text_is_not_run() -> None:
    model = FakeModel()
    batcher = lane(model)
    first = await blocked(model, batcher)
    doomed = asyncio.create_task(batcher.embed(["1"]))
    kept = asyncio.create_task(batcher.embed(["2"]))
    await asyncio.sleep(0)
    doomed.cancel()
    await asyncio.sleep(0)
    model.gate.set()

    assert [vector.tolist() for vector in await kept] == [[2.0]]
    await first
    with pytest.raises(asyncio.CancelledError):
        await doomed
    assert model.batches == [["0"], ["2"]]
    await batcher.close()


@pytest.mark.asyncio
async def test_cancelling_a_running_request_leaves_its_batch_mates_their_vectors() -> None:
    model = FakeModel()
    batcher = lane(model)
    first = await blocked(model, batcher)
    doomed, kept = (asyncio.create_task(batcher.embed([text])) for text in ("1", "2"))
    await asyncio.sleep(0)
    model.started.clear()
    model.gate.set()
    await first
    doomed.cancel()

    assert [vector.tolist() for vector in await kept] == [[2.0]]
    await batcher.close()


@pytest.mark.asyncio
async def test_a_model_failure_is_embedder_unavailable_and_the_lane_goes_on() -> None:
    model = FakeModel()
    batcher = lane(model)

    with pytest.raises(EmbedderUnavailable) as failure:
        await batcher.embed(["bad", "1"])
    assert isinstance(failure.value.__cause__, RuntimeError)
    assert [vector.tolist() for vector in await batcher.embed(["5"])] == [[5.0]]
    await batcher.close()


@pytest.mark.asyncio
async def test_a_full_queue_refuses_with_a_time_to_come_back() -> None:
    model = FakeModel()
    batcher = lane(model, waiting=2)
    first = await blocked(model, batcher)
    waiting = asyncio.create_task(batcher.embed(["1", "2"]))
    await asyncio.sleep(0)

    with pytest.raises(EmbedderUnavailable) as refusal:
        await batcher.embed(["3"])
    assert refusal.value.retry_after_s
    model.gate.set()
    await asyncio.gather(first, waiting)
    await batcher.close()


@pytest.mark.asyncio
async def test_one_request_may_have_more_rows_than_the_queue() -> None:
    batcher = lane(FakeModel(), waiting=4, rows=2, workers=2)

    vectors = await batcher.embed([str(number) for number in range(50)])

    assert [vector.tolist() for vector in vectors] == [[float(number)] for number in range(50)]
    await batcher.close()


@pytest.mark.asyncio
async def test_closing_fails_what_waits_and_refuses_what_comes() -> None:
    model = FakeModel()
    batcher = lane(model)
    first = await blocked(model, batcher)
    waiting = asyncio.create_task(batcher.embed(["1"]))
    await asyncio.sleep(0)
    closing = asyncio.create_task(batcher.close())
    await asyncio.sleep(0)
    model.gate.set()
    await closing

    assert [vector.tolist() for vector in await first] == [[0.0]]
    with pytest.raises(EmbedderUnavailable):
        await waiting
    with pytest.raises(EmbedderUnavailable):
        await batcher.embed(["2"])


@pytest.mark.asyncio
async def test_the_observer_hears_of_every_run() -> None:
    heard: list[tuple[str, int]] = []
    observer = EmbedderObserver(batch=lambda role, rows, seconds: heard.append((role, rows)))
    batcher = MicroBatcher("passage", FakeModel().encode, len, BatchBounds(1, 8, 100, 100), observer)

    await batcher.embed(["1", "2", "3"])

    assert heard == [("passage", 3)]
    await batcher.close()


@pytest.mark.asyncio
async def test_a_known_text_is_not_embedded_again_and_a_repeated_one_only_once() -> None:
    asked: list[list[str]] = []
    counted: list[tuple[int, int]] = []

    async def embed(texts: list[str]) -> list[Vector]:
        asked.append(texts)
        return [np.array([float(text)], np.float32) for text in texts]

    cache = VectorCache(PRINT, 10)
    observer = EmbedderObserver(cache=lambda role, hits, misses: counted.append((hits, misses)))
    first = await embed_through(cache, observer, "query", ["1", "2", "1"], embed)
    second = await embed_through(cache, observer, "query", ["2", "3"], embed)

    assert [vector.tolist() for vector in (*first, *second)] == [[1.0], [2.0], [1.0], [2.0], [3.0]]
    assert asked == [["1", "2"], ["3"]]
    assert counted == [(1, 2), (1, 1)]


def test_the_cache_tells_roles_and_models_apart_and_forgets_the_least_used() -> None:
    cache, other = VectorCache(PRINT, 2), VectorCache(EmbeddingFingerprint("m", "2", 1, "", ""), 2)
    assert len({cache.key("query", "a"), cache.key("passage", "a"), other.key("query", "a")}) == 3

    keys = [cache.key("query", text) for text in "abc"]
    cache.put(keys[0], np.ones(1, np.float32))
    cache.put(keys[1], np.ones(1, np.float32))
    assert cache.get(keys[0]) is not None
    cache.put(keys[2], np.ones(1, np.float32))

    assert [cache.get(key) is not None for key in keys] == [True, False, True]
    assert len(cache) == 2


def test_a_caller_can_not_change_a_remembered_vector() -> None:
    cache = VectorCache(PRINT, 2)
    source = np.ones(1, np.float32)
    kept = cache.put(cache.key("query", "a"), source)
    source[0] = 5

    with pytest.raises(ValueError, match="read-only"):
        kept[0] = 7
    assert kept.tolist() == [1.0]


@pytest.mark.asyncio
async def test_a_request_of_many_rows_lets_a_short_one_go_after_one_run() -> None:
    model = FakeModel()
    batcher = lane(model, rows=4)
    first = await blocked(model, batcher)
    long = asyncio.create_task(batcher.embed([str(number) for number in range(10, 30)]))
    await asyncio.sleep(0)
    short = asyncio.create_task(batcher.embed(["99"]))
    await asyncio.sleep(0)
    model.gate.set()

    assert [vector.tolist() for vector in await short] == [[99.0]]
    assert [vector.tolist() for vector in await long] == [[float(number)] for number in range(10, 30)]
    await first
    assert "99" in model.batches[2]
    assert len(model.batches[2]) == 4  # beside rows of the long one
    await batcher.close()


@pytest.mark.asyncio
async def test_two_requests_of_many_rows_take_turns() -> None:
    model = FakeModel()
    batcher = lane(model, rows=2)
    first = await blocked(model, batcher)
    both = [asyncio.create_task(batcher.embed([str(start + n) for n in range(6)])) for start in (10, 20)]
    await asyncio.sleep(0)
    model.gate.set()
    await asyncio.gather(first, *both)

    assert [batch[0][0] for batch in model.batches[1:]] == ["1", "2", "1", "2", "1", "2"]
    await batcher.close()


@pytest.mark.asyncio
async def test_texts_of_alike_length_run_together_and_answers_keep_their_order() -> None:
    model = FakeModel()
    batcher = lane(model, rows=3, waiting=4)
    first = await blocked(model, batcher)
    mixed = asyncio.create_task(batcher.embed(["1", "22222", "3", "44444", "5", "66666"]))
    await asyncio.sleep(0)
    model.gate.set()
    await first

    assert [vector.tolist() for vector in await mixed] == [[1.0], [22222.0], [3.0], [44444.0], [5.0], [66666.0]]
    assert model.batches[1] == ["1", "3", "5"]  # though no more than four may wait
    assert all(len({len(text) for text in batch}) == 1 for batch in model.batches)
    await batcher.close()
