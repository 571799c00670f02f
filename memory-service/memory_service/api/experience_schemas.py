"""What may a caller send about experiences?  The request bodies of API.md, "Experiences"."""

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field

from memory_service.api.body import Contract
from memory_service.api.fields import Content, Identifier, Label, Query, Share, Text
from memory_service.api.schemas import Ids, Tags
from memory_service.domain import ExperienceOrigin
from memory_service.experience.drafts import NewLesson
from memory_service.experience.trajectory import RunOutcome, StepStatus, Trajectory, step_of

Triples = Annotated[list[Any], Field(min_length=1, description="[{field, operator, value}], 1 to 12 of them")]


class WriteExperience(Contract):
    """POST /v1/experiences: a lesson by hand."""

    user_id: Identifier
    conditions: Triples
    action: Text
    avoid: Text | None = None
    rationale: Text | None = None
    task_type: Label | None = None
    agent_id: Identifier | None = None
    origin: ExperienceOrigin = "feedback"
    confidence: Share = 0.9
    tags: Tags | None = None
    source_memory_ids: Ids | None = None

    def lesson(self) -> NewLesson:
        return NewLesson(
            user_id=self.user_id,
            conditions=self.conditions,
            action=self.action,
            origin=self.origin,
            start=self.confidence,
            avoid=self.avoid,
            rationale=self.rationale,
            task_type=self.task_type,
            agent_id=self.agent_id,
            tags=tuple(self.tags or ()),
            source_memory_ids=tuple(self.source_memory_ids or ()),
        )


class PatchExperience(Contract):
    """PATCH /v1/experiences/{id}: only what is named changes; null clears."""

    conditions: Triples | None = None
    action: Text | None = None
    avoid: Text | None = None
    rationale: Text | None = None
    task_type: Label | None = None
    confidence: Share | None = None
    tags: Tags | None = None
    source_memory_ids: Ids | None = None
    status: Literal["active", "retired"] | None = None

    def changes(self) -> dict[str, Any]:
        """Field names and final values.  Raises ValueError naming a field that can't be cleared."""
        changed: dict[str, Any] = {}
        for name in self.model_fields_set:
            value = getattr(self, name)
            if name in ("tags", "source_memory_ids"):
                value = tuple(dict.fromkeys(value or ()))
            elif value is None and name in NEVER_NULL:
                raise ValueError(name)
            changed[name] = value
        return changed


NEVER_NULL = frozenset({"conditions", "action", "confidence", "status"})


class StepIn(Contract):
    """One tool call of a run; result and error may be any JSON."""

    tool: Annotated[str, Field(min_length=1, max_length=256)]
    arguments: dict[str, Any] | None = None
    status: StepStatus = "success"
    result: Any = None
    error: Any = None
    duration_ms: Annotated[float, Field(ge=0)] | None = None
    reason: str | None = None


class TrajectoryIn(Contract):
    """A finished run."""

    goal: Content
    task_type: Label | None = None
    outcome: RunOutcome
    steps: list[StepIn]
    feedback: str | None = None

    def run(self) -> Trajectory:
        steps = tuple(step_of(step.model_dump()) for step in self.steps)
        return Trajectory(self.goal, self.outcome, steps, self.task_type, self.feedback)


class DistillRun(Contract):
    """POST /v1/experiences/distill"""

    user_id: Identifier
    trajectory: TrajectoryIn
    agent_id: Identifier | None = None
    force: bool = False


class QueryExperiences(Contract):
    """POST /v1/experiences/query: at least one of state, conditions, semantic_query."""

    user_id: Identifier
    state: dict[str, Any] | None = None
    conditions: Triples | None = None
    semantic_query: Query | None = None
    task_type: Label | None = None
    tags: Tags | None = None
    limit: Annotated[int, Field(ge=1, le=100, validation_alias=AliasChoices("limit", "top_k"))] = 3
    min_confidence: Share | None = None
    include_shared: bool = True
    explain: bool = False


class ExperienceFeedback(Contract):
    """POST /v1/experiences/{id}/feedback: it was used, and the task went so."""

    outcome: Literal["success", "failure"]
    task_id: Identifier | None = None
