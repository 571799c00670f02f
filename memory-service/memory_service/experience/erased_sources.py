"""What may a lesson still say when a memory that it came from is erased?  Pure.

A lesson that was learned of a run quotes it: error texts in its reason, values in what to avoid.  Those are words of the
memory of that run, and go with it.  Conditions and action stay only while somebody else gave the very same ones: that is
what reinforcing means.  It must not decide about insights, which say what all of their sources say (lifecycle/families.py).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from uuid import UUID

from memory_service.domain import Experience, new_id
from memory_service.scripts import is_chinese

CAUSE = "source_erased"
# Instead of a reason that was a quotation.
REASON = "Another run taught the same; the one that told why was erased."
REASON_ZH = "另一次运行也得出了这条经验；说明原因的那次已被删除。"


@dataclass(frozen=True, slots=True)
class Telling:
    """A version in which somebody told the lesson: the first one there is, or one that reinforced it; its sources then."""

    cause: str
    sources: tuple[UUID, ...]


def without_sources(
    lesson: Experience, gone: Collection[UUID], told: Sequence[Telling], now: datetime
) -> Experience | None:
    """The lesson without the erased memories `gone`: None when nobody else gave it, with another id when its words had to change.

    `told` are its tellings, oldest first.  A lesson by hand (without a rule) is a person's own words and stays as it is.
    """
    left = tuple(one for one in lesson.source_memory_ids if one not in gone)
    kept = replace(lesson, source_memory_ids=left)
    if lesson.rule is None:
        return kept
    first = told[0] if told else Telling("", lesson.source_memory_ids)
    if first.cause == CAUSE:  # its words are nobody's already
        return kept if left else None
    if not set(first.sources) & set(gone):
        return kept
    if not left and not _told_without_source(told):
        return None
    return replace(
        kept,
        id=new_id(),
        avoid=None,
        rationale=REASON_ZH if is_chinese(lesson.action) else REASON,
        source_steps=(),
        version=1,
        updated_at=now,
    )


def _told_without_source(told: Sequence[Telling]) -> bool:
    """Did a person, or a run that no memory tells of, give the same lesson again?"""
    return any(not set(after.sources) - set(before.sources) for before, after in pairwise(told))
