"""What becomes of a memory that is put away, fetched back, pinned or judged?  Pure: memory, `now` and numbers in, memory out.

A memory that would not change comes back as it is; one that changes in what a reader sees is one version further.  Heat
alone makes no version: it moves with every use, and a version hides the vector until it is applied anew.
"""

from dataclasses import replace
from datetime import datetime

from memory_service.domain import FeedbackOutcome, Memory
from memory_service.errors import Conflict
from memory_service.lifecycle.feedback_settings import FeedbackNumbers
from memory_service.lifecycle.heat import heat_at
from memory_service.settings import Heat

CONFIDENCE_DIGITS = 6  # steps below this are no change


def archived(memory: Memory, now: datetime) -> Memory:
    """Into cold storage.  Raises Conflict for one that is out of use for another reason."""
    if memory.state in ("superseded", "compressed"):
        raise Conflict(f"a {memory.state} memory is out of every search already and can't be archived")
    if memory.state == "cold":
        return memory
    return _next(replace(memory, state="cold"), now)


def restored(memory: Memory, now: datetime, heat: Heat) -> Memory:
    """Back into every search, as warm as a new one, from cold storage or out of a summary.

    Raises Conflict for one that is no longer believed because another memory replaced it; when that one was erased, it is
    believed again.
    """
    if memory.state == "superseded" and memory.superseded_by is not None:
        raise Conflict(
            "the memory is no longer believed since another one replaced it; change that one, or write it anew"
        )
    if memory.state == "active":
        return memory
    warmth = max(_warmth(memory, now, heat), heat.initial)
    ended = None if memory.state == "superseded" else memory.valid_to
    return _next(replace(memory, state="active", heat=warmth, heat_at=now, superseded_by=None, valid_to=ended), now)


def pinned(memory: Memory, now: datetime, heat: Heat) -> Memory:
    """It keeps the heat that it has now."""
    if memory.pinned:
        return memory
    return _next(replace(memory, pinned=True, heat=_warmth(memory, now, heat), heat_at=now), now)


def unpinned(memory: Memory, now: datetime) -> Memory:
    """It cools again, from now on: the time it was pinned does not count."""
    if not memory.pinned:
        return memory
    return _next(replace(memory, pinned=False, heat_at=now), now)


def judged(memory: Memory, outcome: FeedbackOutcome, now: datetime, heat: Heat, numbers: FeedbackNumbers) -> Memory:
    """The memory after feedback.  success and failure mean that it was used, so the access time is renewed.

    No outcome changes the state: one voice must not hide a memory.  What cools for it falls below `cold_below` sooner.
    """
    warmth, sure = _warmth(memory, now, heat), memory.confidence
    if outcome == "success":
        warmth, sure = warmth + heat.use_gain, sure + (1 - sure) * numbers.success_confidence_share
    elif outcome == "failure":
        sure *= 1 - numbers.failure_confidence_share
    elif outcome == "irrelevant":
        warmth = max(warmth - numbers.irrelevant_heat_loss, 0.0)
    else:
        warmth *= 1 - numbers.outdated_heat_share
        sure *= 1 - numbers.outdated_confidence_share
    used = outcome in ("success", "failure")
    after = replace(memory, heat=warmth, heat_at=now, last_accessed_at=now if used else memory.last_accessed_at)
    sure = round(sure, CONFIDENCE_DIGITS)
    return after if sure == round(memory.confidence, CONFIDENCE_DIGITS) else _next(replace(after, confidence=sure), now)


def _warmth(memory: Memory, now: datetime, heat: Heat) -> float:
    return heat_at(memory.heat, memory.heat_at, now, heat, pinned=memory.pinned)


def _next(memory: Memory, now: datetime) -> Memory:
    return replace(memory, version=memory.version + 1, updated_at=now)
