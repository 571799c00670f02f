"""Does the local engine give back what was deleted?"""

from pathlib import Path

import numpy as np
import pytest
import qdrant_edge as edge

from local_stack.qdrant.collections import Collection, Collections
from local_stack.qdrant.fields import Fields


def filled_and_nearly_emptied(storage: Path) -> Collection:
    """12,000 points, 11,600 of them deleted again, and more writes to come."""
    collections = Collections(storage)
    collections.create("memories", Fields({"vectors": {"size": 64, "distance": "Cosine"}}, "body"))
    collection = collections.get("memories")
    chance = np.random.default_rng(7)
    for start in range(0, 12_000, 3_000):
        ids = range(start + 1, start + 3_001)
        points = [edge.Point(i, chance.random(64, np.float32).tolist(), {}) for i in ids]
        collection.update(edge.UpdateOperation.upsert_points(points))
        collection.update(edge.UpdateOperation.delete_points(list(ids)[:2_900]))
    collection.flush()
    return collection


def kib(storage: Path) -> int:
    return sum(path.stat().st_blocks for path in storage.glob("shards/*/segments/**/*") if path.is_file()) // 2


def test_what_is_deleted_is_reclaimed_in_a_quiet_moment(tmp_path: Path) -> None:
    collection = filled_and_nearly_emptied(tmp_path)
    before = kib(tmp_path)
    collection.flush()
    assert kib(tmp_path) < before / 5
    assert collection.shard.info().points_count == 400


def test_what_is_deleted_is_reclaimed_under_writes_that_never_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection = filled_and_nearly_emptied(tmp_path)
    before, later = kib(tmp_path), collection.reclaimed_at
    for second in (1, 601):
        collection.update(edge.UpdateOperation.delete_points([10_000 + second]))
        monkeypatch.setattr("local_stack.qdrant.collections.monotonic", lambda at=later + second: at)
        collection.flush()
        if second == 1:
            assert kib(tmp_path) >= before
    assert kib(tmp_path) < before / 5
    assert collection.shard.info().points_count == 400
