"""Does a language model see a contradiction or an update where the rules see none?

The rules compare words; "I'm vegetarian" and "I eat meat at every meal" share none.  So what stands near a new statement is shown
to the model, in one question for each new statement and before any transaction.  On any failure, and for whatever can't be
believed, the rules' silence stands.  Statements are untrusted: they travel as JSON, and an answer that flags more of them than
one statement can contradict is dropped whole.  It must not write: what a verdict does is decided by `contradictions`.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from pydantic import Field

from memory_service.domain import Memory
from memory_service.errors import LanguageModelBadAnswer, ModelUnavailable
from memory_service.models.language_data import as_data
from memory_service.models.ports import LanguageModel
from memory_service.models.prompts import read_prompt
from memory_service.settings import Section
from memory_service.write.conflicts import Relation
from memory_service.write.similar import Neighbour
from memory_service.write.summarise import shortened, visible_line

PROMPT = Path(__file__).parent / "prompts" / "conflict.toml"
PURPOSE = "conflict"
FLAGGED: Mapping[str, Relation] = {"contradiction": "contradiction", "update": "update"}
RELATIONS = (*FLAGGED, "more_specific", "unrelated")

# (new text, older text, cosine) → 0..1, calibrated for the embedding model in use.
Relevance = Callable[[str, str, float], float]


class ConflictModelNumbers(Section):
    """[conflict_model] of memory.toml; the reasons stand there."""

    deadline_s: float = Field(gt=0)
    concurrent_max: int = Field(ge=1)
    statements_max: int = Field(ge=0)
    candidates_max: int = Field(ge=1)
    relevance_min: float = Field(ge=0, le=1)
    text_chars_max: int = Field(ge=1)
    reason_chars_max: int = Field(ge=1)
    flagged_max: int = Field(ge=1)


@dataclass(frozen=True, slots=True)
class Opinion:
    """What the model says of one older statement, which read `text` then."""

    relation: Relation
    reason: str
    text: str


# Older memory → what was said of it.
Opinions = Mapping[UUID, Opinion]


class ConflictModel:
    """Asks the configured model.  Raises SetupRefused at start for a broken prompt."""

    def __init__(self, model: LanguageModel, numbers: ConflictModelNumbers, relevance: Relevance) -> None:
        self._model = model
        self._numbers = numbers
        self._relevance = relevance
        self._system, self._user = read_prompt(PROMPT)
        self._schema = _schema(numbers)

    def reads(self, content: str) -> bool:
        """Is this short enough to be a statement?"""
        return len(content) <= self._numbers.text_chars_max

    def candidates(self, new: Memory, older: Sequence[Neighbour]) -> list[Memory]:
        """Whom the model is asked about, out of `older` in its order.

        Left out is what is surely unrelated: another user's, no active statement, too far away, a long story.  Of a new story
        nothing is asked.
        """
        if not self.reads(new.content):
            return []
        mine = {
            one.memory.id: one.memory
            for one in older
            if (one.memory.user_id, one.memory.kind, one.memory.state) == (new.user_id, "semantic", "active")
            and self.reads(one.memory.content)
            and (one.cosine is None or self._near(new, one.memory, one.cosine))
        }
        return list(mine.values())[: self._numbers.candidates_max]

    async def judge(self, asked: Mapping[UUID, tuple[Memory, Sequence[Memory]]]) -> dict[UUID, Opinions]:
        """New id → opinions, of those new statements that the model answered about in time.  A cancellation passes through.

        `asked`: new id → (new statement, its candidates).  Of a large batch only the first `statements_max` are asked about.
        """
        slots = asyncio.Semaphore(self._numbers.concurrent_max)

        async def one(new: Memory, older: Sequence[Memory]) -> Opinions | None:
            async with slots:
                return await self._one(new, older)

        pairs = [(new_id, *pair) for new_id, pair in asked.items() if pair[1]][: self._numbers.statements_max]
        tasks = {new_id: asyncio.create_task(one(new, older)) for new_id, new, older in pairs}
        try:
            if tasks:
                await asyncio.wait(tasks.values(), timeout=self._numbers.deadline_s)
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
        done = {i: task.result() for i, task in tasks.items() if task.done() and not task.cancelled()}
        return {new_id: opinions for new_id, opinions in done.items() if opinions is not None}

    def _near(self, new: Memory, older: Memory, cosine: float) -> bool:
        return self._relevance(new.content, older.content, cosine) >= self._numbers.relevance_min

    async def _one(self, new: Memory, older: Sequence[Memory]) -> Opinions | None:
        shown = [{"number": at, "text": memory.content} for at, memory in enumerate(older, 1)]
        user = self._user.substitute(statements=as_data({"new": new.content, "older": shown}))
        try:
            answer = await self._model.complete_json(
                system=self._system, user=user, schema=self._schema, purpose=PURPOSE
            )
        except (ModelUnavailable, LanguageModelBadAnswer):
            return None
        return believed(answer, older, self._numbers)


def believed(answer: Mapping[str, Any], older: Sequence[Memory], numbers: ConflictModelNumbers) -> Opinions | None:
    """What of the answer holds: a known number, said once, with a reason.  None when nothing of it can be believed.  Pure.

    Whatever a text talked the model into, it can flag no more than `flagged_max`, and no other than what was shown.
    """
    judgements = answer.get("judgements")
    if not isinstance(judgements, list):
        return None
    found: dict[UUID, Opinion] = {}
    seen: set[int] = set()
    for one in judgements:
        number = one.get("number") if isinstance(one, Mapping) else None
        if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= len(older) or number in seen:
            return None
        seen.add(number)
        relation, reason = FLAGGED.get(str(one.get("relation"))), _line(one.get("reason"), numbers.reason_chars_max)
        if relation is not None and reason is not None:
            found[older[number - 1].id] = Opinion(relation, reason, older[number - 1].content)
    return found if len(found) <= numbers.flagged_max else None


def _line(value: object, chars_max: int) -> str | None:
    """One line of visible text; None when there is none."""
    if not isinstance(value, str):
        return None
    line = visible_line(value)
    return shortened(line, chars_max) if any(c.isalnum() for c in line) else None


def _schema(numbers: ConflictModelNumbers) -> dict[str, object]:
    """In the strict form: every key required, none added, every text and list bounded."""
    judgement = {
        "type": "object",
        "properties": {
            "number": {"type": "integer", "minimum": 1, "maximum": numbers.candidates_max},
            "relation": {"type": "string", "enum": list(RELATIONS)},
            "reason": {"type": "string", "maxLength": numbers.reason_chars_max * 5 // 4},
        },
        "required": ["number", "relation", "reason"],
        "additionalProperties": False,
    }
    properties = {"judgements": {"type": "array", "items": judgement, "maxItems": numbers.candidates_max}}
    return {"type": "object", "properties": properties, "required": ["judgements"], "additionalProperties": False}
