"""Does the relay's embedding use the machine when nobody waits, and leave room when somebody writes?"""

import asyncio
import time
from collections.abc import Sequence

import numpy as np
import pytest

from memory_service.jobs.pacing import Pacing
from memory_service.models.ports import Vector

PROCESSORS, SLICE_CHARS, CALM_S, BURST_S = 4, 4, 0.2, 0.5


class CountingModel:
    """Text "7" becomes the vector [7.0]; `most` is how many calls were under way at once, "bad" fails."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.running = 0
        self.most = 0

    async def embed_passages(self, texts: Sequence[str]) -> Vector:
        self.calls.append(list(texts))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(0.01)
            if "bad" in texts:
                raise RuntimeError("model broke")
            return np.array([[float(text)] for text in texts], np.float32)
        finally:
            self.running -= 1


async def embedded(pacing: Pacing, model: CountingModel, texts: Sequence[str]) -> list[float]:
    return [row[0] for row in (await pacing.embed(model, texts)).tolist()]  # type: ignore[arg-type]


@pytest.mark.asyncio
async def test_every_text_gets_its_own_vector_whatever_runs_beside_it() -> None:
    model, pacing = CountingModel(), Pacing(1, SLICE_CHARS, CALM_S, BURST_S)
    texts = ["1", "22222222", "3", "44", "5", "666", "7", "88"]

    assert await embedded(pacing, model, texts) == [float(text) for text in texts]
    assert model.calls[0] == ["1", "3", "5", "7"]  # alike lengths, within the bound
    assert ["22222222"] in model.calls  # more than the bound, so alone
    assert all(len(call) == 1 or sum(map(len, call)) <= SLICE_CHARS for call in model.calls)


@pytest.mark.asyncio
@pytest.mark.parametrize(("texts", "rows"), [(1, [1]), (3, [1, 1, 1]), (8, [2] * 4), (100, [13, 12] * 4)])
async def test_the_work_is_cut_into_alike_parts_for_all_processors(texts: int, rows: list[int]) -> None:
    model, pacing = CountingModel(), Pacing(PROCESSORS, 14 * 4, CALM_S, BURST_S)
    await embedded(pacing, model, [str(1000 + n) for n in range(texts)])
    assert [len(call) for call in model.calls] == rows


@pytest.mark.asyncio
async def test_in_calm_no_processor_stands_still() -> None:
    model, pacing = CountingModel(), Pacing(PROCESSORS, SLICE_CHARS, CALM_S, BURST_S)
    await embedded(pacing, model, [str(1000 + n) for n in range(30)])
    assert model.most == PROCESSORS + 1


@pytest.mark.asyncio
async def test_after_a_write_half_of_the_processors_are_left_until_it_is_calm_again() -> None:
    model, pacing = CountingModel(), Pacing(PROCESSORS, SLICE_CHARS, CALM_S, BURST_S)
    pacing.disturb()
    await embedded(pacing, model, [str(1000 + n) for n in range(10)])
    assert model.most == PROCESSORS // 2
    await asyncio.sleep(CALM_S)
    await embedded(pacing, model, [str(1000 + n) for n in range(10)])
    assert model.most == PROCESSORS + 1


@pytest.mark.asyncio
async def test_two_batches_share_the_same_room() -> None:
    model, pacing = CountingModel(), Pacing(PROCESSORS, SLICE_CHARS, CALM_S, BURST_S)
    pacing.disturb()
    await asyncio.gather(*(embedded(pacing, model, [str(1000 + n) for n in range(8)]) for _ in range(2)))
    assert model.most == PROCESSORS // 2


@pytest.mark.asyncio
async def test_writes_without_end_never_stop_the_embedding() -> None:
    model, pacing = CountingModel(), Pacing(1, SLICE_CHARS, 60.0, 0.1)
    pacing.disturb()
    pacing.disturb()
    async with asyncio.timeout(5):
        assert len(await embedded(pacing, model, [str(1000 + n) for n in range(10)])) == 10
    assert model.most == 1


@pytest.mark.asyncio
async def test_a_burst_of_writes_is_given_way_to_until_it_is_over() -> None:
    model, pacing = CountingModel(), Pacing(PROCESSORS, SLICE_CHARS, CALM_S, 60.0)
    pacing.disturb()
    embedding = asyncio.create_task(embedded(pacing, model, ["7"]))
    await embedding  # after a single write nothing waits
    for _ in range(2):
        pacing.disturb()
    embedding = asyncio.create_task(embedded(pacing, model, ["8"]))
    await asyncio.sleep(CALM_S / 2)
    assert model.calls == [["7"]]
    assert await embedding == [8.0]
    assert time.monotonic() - pacing._last_write >= CALM_S


@pytest.mark.asyncio
async def test_it_begins_as_soon_as_the_burst_is_over() -> None:
    model, pacing = CountingModel(), Pacing(PROCESSORS, SLICE_CHARS, CALM_S, 60.0)
    for _ in range(2):
        pacing.disturb()
    embedding = asyncio.create_task(embedded(pacing, model, ["7"]))
    await asyncio.sleep(CALM_S * 0.9)
    pacing.disturb()
    over = time.monotonic() + CALM_S
    await embedding
    assert over <= time.monotonic() < over + CALM_S / 2


@pytest.mark.asyncio
async def test_a_burst_that_goes_on_shares_the_machine() -> None:
    model, pacing = CountingModel(), Pacing(PROCESSORS, SLICE_CHARS, CALM_S, BURST_S)

    async def write() -> None:
        while True:
            pacing.disturb()
            await asyncio.sleep(0.01)

    writing, begun = asyncio.create_task(write()), time.monotonic()
    await asyncio.sleep(0.03)
    await embedded(pacing, model, [str(1000 + n) for n in range(10)])
    writing.cancel()
    assert time.monotonic() - begun >= BURST_S
    assert model.most == PROCESSORS // 2


@pytest.mark.asyncio
async def test_what_somebody_waits_for_gives_way_to_no_burst() -> None:
    model, pacing = CountingModel(), Pacing(PROCESSORS, SLICE_CHARS, 60.0, 60.0)
    pacing.disturb()
    pacing.disturb()
    async with asyncio.timeout(5):
        assert (await pacing.embed(model, ["7"], awaited=True)).tolist() == [[7.0]]  # type: ignore[arg-type]


@pytest.mark.asyncio
async def test_one_failure_ends_the_batch_and_frees_its_places() -> None:
    model, pacing = CountingModel(), Pacing(PROCESSORS, SLICE_CHARS, CALM_S, BURST_S)
    with pytest.raises(RuntimeError, match="model broke"):
        await embedded(pacing, model, ["bad", *(str(1000 + n) for n in range(30))])
    await asyncio.sleep(0.05)
    assert len(model.calls) <= 2 * (
        PROCESSORS + 1
    )  # those beside it, and those that took their places before it was heard
    assert await embedded(pacing, model, ["7"]) == [7.0]
