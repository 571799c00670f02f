"""What comes into the experience service, and what goes out?  Frozen values; nothing here decides."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from memory_service.domain import Experience, ExperienceOrigin, Json
from memory_service.experience.distill_model import DistilledBy
from memory_service.experience.review import Review
from memory_service.stores.postgres.experiences import ExperienceVersion

WriteStatus = Literal["created", "reinforced", "superseded_other", "rejected"]
MatchWord = Literal["exact", "partial", "semantic"]


@dataclass(frozen=True, slots=True)
class NewLesson:
    """A lesson to be stored.  `conditions` are raw triples; `start` is a person's confidence, or None for the origin's.

    `learned`: a rule found it, so a lesson that a person retired does not come back by it.
    """

    user_id: str
    conditions: Sequence[Mapping[str, Any]]
    action: str
    origin: ExperienceOrigin
    start: float | None = None
    avoid: str | None = None
    rationale: str | None = None
    task_type: str | None = None
    agent_id: str | None = None
    tags: tuple[str, ...] = ()
    source_memory_ids: tuple[UUID, ...] = ()
    source_steps: tuple[int, ...] = ()
    rule: str | None = None
    learned: bool = False


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of one lesson.  `experience` is None only for a finding that was refused; `reason` says why."""

    status: WriteStatus
    experience: Experience | None = None
    reason: str | None = None
    refused: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Distilled:
    """A reviewed run and its lessons.  `by`: whether a language model's lessons are among them; `reason`: why not, when one was asked.

    `erased`: the memory of the run is erased, so nothing was learned of it and nothing that quotes it may be kept.
    """

    review: Review
    stored: tuple[Stored, ...]
    by: DistilledBy = "rules"
    reason: str | None = None
    erased: bool = False


@dataclass(frozen=True, slots=True)
class ExperienceQuery:
    """A query as the API understood it.  `conditions` are raw triples that a result must carry."""

    tenant: str
    user_ids: tuple[str, ...]
    now: datetime
    limit: int
    state: Mapping[str, Any] | None = None
    conditions: Sequence[Mapping[str, Any]] | None = None
    semantic_query: str | None = None
    task_type: str | None = None
    tags: tuple[str, ...] = ()
    min_confidence: float | None = None


@dataclass(frozen=True, slots=True)
class Advised:
    """One result.  `failed` are triples that the state contradicts, which only a semantic result can have.

    `score` orders results; `relevance` 0..1 is how likely the lesson speaks of what was asked, 0 when nothing was asked by text.
    """

    experience: Experience
    match: MatchWord
    score: float
    confidence: float
    matched: tuple[Json, ...] = ()
    missing: tuple[Json, ...] = ()
    failed: tuple[Json, ...] = ()
    lanes: Mapping[str, float] = field(default_factory=dict)
    relevance: float = 0.0


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """`degraded` names lanes that failed or were late."""

    results: list[Advised]
    degraded: list[str]


@dataclass(frozen=True, slots=True)
class Judged:
    """`repeated`: this task had spoken about the experience before, and nothing moved."""

    experience: Experience
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class HistoryPage:
    items: list[ExperienceVersion]
    total: int
