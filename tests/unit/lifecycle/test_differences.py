"""What is wrong with the vectors of one memory, as a pure decision."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from memory_service.lifecycle.differences import judge
from memory_service.stores.postgres.indexed import Expected
from memory_service.stores.qdrant_points import StoredPoint

ONE = uuid4()
ROW = Expected(ONE, "ana", 3)


def point(chunk: int | None = 0, chunks: int | None = 1, version: int | None = 3, of: UUID = ONE) -> StoredPoint:
    return StoredPoint(str(uuid4()), of, "ana", version, chunk, chunks)


@pytest.mark.parametrize(
    "points", [[point()], [point(0, 3), point(1, 3), point(2, 3)], [point(0, None), point(4, None)]]
)
def test_all_is_well_when_every_chunk_is_there_at_the_rows_version(points: list[StoredPoint]) -> None:
    assert judge(ROW, points, None) is None


def test_nothing_stored_and_nothing_indexed_is_well_too() -> None:
    assert judge(None, [], None) is None


@pytest.mark.parametrize(
    ("row", "points", "kind", "why"),
    [
        (ROW, [], "missing", "no vector"),
        (None, [point()], "orphaned", "vector of nothing that is stored"),
        (ROW, [point(version=1)], "stale", "vector of version 1, stored is version 3"),
        (ROW, [point(version=7)], "stale", "vector of version 7, stored is version 3"),
        (ROW, [point(0, 2), point(1, 2, version=2)], "stale", "vector of version 2, stored is version 3"),
        (ROW, [point(version=None)], "stale", "vector of version 0, stored is version 3"),
        (ROW, [point(0, 3), point(2, 3)], "incomplete", "2 of 3 vectors"),
        (ROW, [point(0, 1), point(1, 1)], "incomplete", "2 of 1 vectors"),
    ],
)
def test_each_difference_has_a_name_and_a_reason(row: Any, points: list[StoredPoint], kind: str, why: str) -> None:
    found = judge(row, points, None)
    assert found is not None
    assert (found.kind, found.user_id, found.why) == (kind, "ana", why)


def test_what_the_relay_has_on_its_list_only_waits_and_what_it_gave_up_is_tried_again() -> None:
    waiting, dead = judge(ROW, [], "pending"), judge(ROW, [], "dead")
    assert waiting is not None
    assert waiting.kind == "waiting"
    assert dead is not None
    assert dead.kind == "given_up"
    assert judge(ROW, [point()], "pending") is None
