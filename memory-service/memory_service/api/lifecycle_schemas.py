"""What may a caller send about the life of a memory?  Bodies of rollback, feedback and relations."""

from typing import Annotated

from pydantic import AfterValidator, Field

from memory_service.api.body import Contract
from memory_service.api.fields import Id, Label, Share, not_blank
from memory_service.domain import FeedbackOutcome
from memory_service.lifecycle.judging import Feedback
from memory_service.lifecycle.relations import Ends

NOTE_CHARS_MAX = 4_096
VERSION_MAX = 2**31 - 1


class Nothing(Contract):
    """POST …/archive, …/restore, …/pin, …/unpin: no body, or an empty object."""


class RollbackMemory(Contract):
    """POST /v1/memories/{id}/rollback"""

    version: Annotated[int, Field(ge=1, le=VERSION_MAX)]


class MemoryFeedback(Contract):
    """POST /v1/memories/{id}/feedback"""

    outcome: FeedbackOutcome
    retrieval_id: Id | None = None
    note: Annotated[str, Field(min_length=1, max_length=NOTE_CHARS_MAX), AfterValidator(not_blank)] | None = None

    def said(self) -> Feedback:
        return Feedback(self.outcome, self.retrieval_id, self.note)


class TieMemories(Contract):
    """POST and DELETE /v1/relations; DELETE heeds no weight."""

    source_id: Id
    target_id: Id
    relation_type: Label
    weight: Share | None = None

    def ends(self) -> Ends:
        return Ends(self.source_id, self.target_id, self.relation_type)
