"""What is known of memories that are to be ranked, with everything that a test does not name filled in."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

import numpy as np

from memory_service.domain import Key
from memory_service.stores.postgres.rank_facts import ROW, RankFacts, microseconds

NOW = datetime(2026, 6, 1, tzinfo=UTC)


class Known(NamedTuple):
    """One memory of RankFacts."""

    id: Key
    version: int = 1
    occurred_at: datetime = NOW
    heat_at: datetime = NOW
    importance: float = 0.5
    confidence: float = 0.5
    heat: float = 0.5
    semantic: bool = False
    pinned: bool = False
    asks: bool = False
    conflict_id: UUID | None = None
    head: str = "some words"
    user_id: str = ""
    session_id: str | None = None
    speaker: str | None = None
    role: str | None = None


def key(number: int) -> Key:
    return UUID(int=number).bytes


def columns(known: Sequence[Known]) -> RankFacts:
    times = [
        one._replace(occurred_at=microseconds(one.occurred_at), heat_at=microseconds(one.heat_at)) for one in known
    ]  # type: ignore[arg-type]
    numbers = [tuple(getattr(one, name) for name in ROW.names or ()) for one in times]
    texts = ("conflict_id", "head", "user_id", "session_id", "speaker", "role")
    return RankFacts(np.array(numbers, ROW), *([getattr(one, name) for one in known] for name in texts))
