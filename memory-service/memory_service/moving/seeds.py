"""What becomes of a seed, a line that brings no id?  Pure, and as long as reading its text takes.

The rules read it (never a language model: an import of many lines would take hours); its id follows from its text, so the
same seed is the same memory however often it is imported, and once erased it stays away.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from memory_service.domain import Caller, Experience, Memory
from memory_service.experience import store
from memory_service.experience.drafts import NewLesson
from memory_service.experience.store import LessonRules
from memory_service.moving.identity import seed_id
from memory_service.settings import Heat, Write
from memory_service.write.drafts import Draft, complete
from memory_service.write.duplicates import content_hash
from memory_service.write.summarise import SummaryRules, summarise

SeedMemory = Callable[[Caller, Draft, datetime], Memory]


def memory_seeds(rules: SummaryRules, write: Write, heat: Heat) -> SeedMemory:
    """A function that makes the memory of a draft."""

    def made(caller: Caller, draft: Draft, now: datetime) -> Memory:
        reading = summarise(draft.content, rules) if draft.needs_reading else None
        memory = complete(draft, caller.tenant, reading, now, write, heat)
        digest = memory.kind.encode() + content_hash(draft.content)
        return replace(memory, id=seed_id(caller.tenant, draft.user_id, "memory", digest))

    return made


def seed_lesson(caller: Caller, lesson: NewLesson, now: datetime, rules: LessonRules) -> Experience:
    """Raises InvalidFields for bad conditions."""
    made = store.made(caller, lesson, now, rules)
    digest = made.condition_hash + content_hash(made.action)
    return replace(made, id=seed_id(caller.tenant, lesson.user_id, "experience", digest))
