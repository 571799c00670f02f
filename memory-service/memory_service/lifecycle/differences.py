"""What is wrong with the vectors of one memory?  Pure: its row, its points and its place in the outbox in, a verdict out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from memory_service.stores.postgres.indexed import Expected, OutboxState
from memory_service.stores.qdrant_points import StoredPoint

Kind = Literal["missing", "orphaned", "stale", "incomplete", "given_up", "waiting"]
REPAIRED: tuple[Kind, ...] = ("missing", "orphaned", "stale", "incomplete", "given_up")


@dataclass(frozen=True, slots=True)
class Difference:
    """`waiting` needs no repair: the relay has it on its list."""

    kind: Kind
    user_id: str
    why: str


def judge(row: Expected | None, points: Sequence[StoredPoint], outbox: OutboxState | None) -> Difference | None:
    """None when all is well.  `points` are all that the index holds of it."""
    found = _difference(row, points)
    if found is None or outbox is None:
        return found
    if outbox == "pending":
        return Difference("waiting", found.user_id, found.why)
    return Difference("given_up", found.user_id, f"{found.why}; indexing it was given up after failures")


def _difference(row: Expected | None, points: Sequence[StoredPoint]) -> Difference | None:
    if row is None:
        return Difference("orphaned", points[0].user_id, "vector of nothing that is stored") if points else None
    if not points:
        return Difference("missing", row.user_id, "no vector")
    others = sorted({point.version or 0 for point in points} - {row.version})
    if others:
        told = ", ".join(map(str, others))
        return Difference("stale", row.user_id, f"vector of version {told}, stored is version {row.version}")
    there, wanted = {point.chunk for point in points}, max(point.chunks or 1 for point in points)
    if any(point.chunks is not None for point in points) and there != set(range(wanted)):
        return Difference("incomplete", row.user_id, f"{len(there)} of {wanted} vectors")
    return None
