"""What does a language model make of dialogue that is about to be written, and what of that can be believed?

The model gets the drafts that the rules made, numbered, with the dialogue around them.  It may label and summarise each,
turn a statement into a sentence that stands for itself, and point out facts that the rules missed.  It can take nothing
away: whatever it says of a number that is not there, says wrongly or leaves out, the draft is stored as the rules made it,
marked so.  No storing, no triggers.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template
from typing import Any, Literal

from pydantic import Field

from memory_service.domain import Entity
from memory_service.errors import LanguageModelBadAnswer, ModelUnavailable
from memory_service.metrics import READINGS
from memory_service.models.language_answers import UnusableAnswer
from memory_service.models.language_data import as_data
from memory_service.models.ports import LanguageModel
from memory_service.models.prompts import read_prompt
from memory_service.settings import Section
from memory_service.write.contrasts import Contrasts
from memory_service.write.drafts import Draft
from memory_service.write.duplicates import content_hash, normalise_text
from memory_service.write.reading import ReadingTerms, believed, excerpted
from memory_service.write.rules import SummaryRules
from memory_service.write.summarise import Summary, summarise
from memory_service.write.triggers import Message
from memory_service.write.turns import CAUSE, STATED, cut_middle

PROMPT = Path(__file__).parent / "prompts" / "turns.toml"
PURPOSE = "turns"
SAID = "said"  # metadata key: the words of a statement that the model made to stand for itself
_NUMBER = re.compile(r"\d+")
_WORD = re.compile(r"[a-z0-9]+|[^\W\da-z_]")  # Latin words whole, other scripts by character
NOTHING = "the language model's answer held nothing that can be believed"


class TurnReadingNumbers(Section):
    """[turn_reading] of memory.toml; the reasons stand there."""

    deadline_s: float = Field(gt=0)
    notes_max: int = Field(ge=1)
    dialogue_messages_max: int = Field(ge=1)
    message_chars_max: int = Field(ge=1)
    statement_chars_max: int = Field(ge=1)
    kept_words_share_min: float = Field(ge=0, le=1)
    facts_max: int = Field(ge=0)
    quote_chars_min: int = Field(ge=1)


@dataclass(frozen=True, slots=True)
class TurnTerms:
    """What the model is asked with and held to."""

    system: str
    user: Template
    schema: dict[str, Any]
    numbers: TurnReadingNumbers
    reading: ReadingTerms
    contrasts: Contrasts
    rules: SummaryRules


@dataclass(frozen=True, slots=True)
class ReadDraft:
    """A draft as it will be stored, and what read it; `reason` says why the rules did although a model was asked."""

    draft: Draft
    by: Literal["model", "rules"]
    reason: str | None = None


def load_turn_terms(
    rules: SummaryRules, reading: ReadingTerms, contrasts: Contrasts, numbers: TurnReadingNumbers
) -> TurnTerms:
    """The prompt beside this module with the operator's vocabulary.  Raises SetupRefused for a broken prompt."""
    item = reading.schema["properties"]
    system, user = read_prompt(
        PROMPT,
        event_types=", ".join(reading.category_of),
        categories=", ".join(sorted(reading.categories)),
        entity_types=", ".join(sorted(reading.entity_types)),
        summary_chars=reading.summary_chars_max,
        entities_max=reading.numbers.entities_max,
        facts_max=numbers.facts_max,
    )
    sentence = {"type": "string", "maxLength": numbers.statement_chars_max}
    memory = {
        "number": {"type": "integer", "minimum": 0, "maximum": numbers.notes_max},
        "content": {"type": ["string", "null"], "maxLength": numbers.statement_chars_max},
        "kind": {"type": ["string", "null"], "enum": ["semantic", "episodic", None]},
        **item,
    }
    fact = {"quote": sentence, "content": sentence}
    lists = {
        "memories": {"type": "array", "items": _object(memory), "maxItems": numbers.notes_max},
        "facts": {"type": "array", "items": _object(fact), "maxItems": numbers.facts_max},
    }
    return TurnTerms(system, user, _object(lists), numbers, reading, contrasts, rules)


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


async def read_drafts(
    drafts: Sequence[Draft], dialogue: Sequence[Message], model: LanguageModel, terms: TurnTerms
) -> list[ReadDraft]:
    """The drafts in order, read by the model where it can be believed, then the facts that it found.  Never fails.

    At most `deadline_s`; a cancellation passes through.
    """
    user = terms.user.substitute(data=as_data(question(drafts, dialogue, terms)))
    reason = None
    try:
        async with asyncio.timeout(terms.numbers.deadline_s):
            answer: Mapping[str, Any] = await model.complete_json(
                system=terms.system, user=user, schema=terms.schema, purpose=PURPOSE
            )
    except UnusableAnswer as problem:
        answer, reason = problem.answer or {}, problem.detail
    except (ModelUnavailable, LanguageModelBadAnswer) as problem:
        answer, reason = {}, problem.detail
    except TimeoutError:
        answer, reason = {}, "the language model had not read it in time"
    read = await asyncio.to_thread(believed_drafts, answer, drafts, dialogue, terms, reason)
    for one in read:
        READINGS.labels(one.by).inc()
    return read


def question(drafts: Sequence[Draft], dialogue: Sequence[Message], terms: TurnTerms) -> dict[str, Any]:
    """What the model is shown: the end of the dialogue, and of each draft an excerpt."""
    numbers = terms.numbers
    lines = [
        {"role": one.role, "text": cut_middle(one.content, numbers.message_chars_max)}
        for one in dialogue[-numbers.dialogue_messages_max :]
        if one.role != "system"
    ]
    notes = [
        {"number": at, "trigger": causes(one)[0], "text": excerpted(one.content, terms.reading.numbers)}
        for at, one in enumerate(drafts[: numbers.notes_max])
    ]
    return {"dialogue": lines, "notes": notes}


def believed_drafts(
    answer: Mapping[str, Any],
    drafts: Sequence[Draft],
    dialogue: Sequence[Message],
    terms: TurnTerms,
    reason: str | None = None,
) -> list[ReadDraft]:
    """Of the model's answer what holds.  Pure."""
    items: dict[int, Mapping[str, Any]] = {}
    for one in _mappings(answer.get("memories")):
        number = one.get("number")
        if isinstance(number, int) and not isinstance(number, bool):
            items.setdefault(number, one)
    said = " ".join((*(draft.content for draft in drafts), *(message.content for message in dialogue)))
    read = [_read(draft, items.get(at), said, terms, reason) for at, draft in enumerate(drafts)]
    return read + _facts(answer.get("facts"), drafts, terms)


def _read(draft: Draft, item: Mapping[str, Any] | None, said: str, terms: TurnTerms, reason: str | None) -> ReadDraft:
    if item is None:
        return ReadDraft(draft, "rules", reason or NOTHING)
    twin = summarise(draft.content, terms.rules)
    reading = believed(item, excerpted(draft.content, terms.reading.numbers), twin, terms.reading, reason)
    content = None
    if _is_stated(draft):
        content = sentence_of(item.get("content"), draft.content, said, terms)
    kind = item.get("kind")
    if draft.kind == "auto" and kind in ("semantic", "episodic"):
        draft = replace(draft, kind=kind)
    if reading.by == "rules" and content is None:
        return ReadDraft(draft, "rules", reading.reason)
    draft = _labelled(draft, reading.summary)
    if content is not None and content_hash(content) != content_hash(draft.content):
        draft = replace(draft, content=content, summary=None, metadata={**draft.metadata, SAID: draft.content})
    return ReadDraft(draft, "model", reading.reason)


def _labelled(draft: Draft, summary: Summary) -> Draft:
    return replace(
        draft,
        summary=summary.text,
        event_type=summary.event_type,
        category=summary.category,
        entities=tuple(Entity(one.name, one.type) for one in summary.entities),
        importance=summary.importance,
    )


def sentence_of(value: object, written: str, said: str, terms: TurnTerms) -> str | None:
    """The model's sentence for what was `written`, if it says the same; None otherwise.

    It must be one visible line that keeps the numbers, the negations and most words of the statement, and brings no number
    that was not said.
    """
    if not isinstance(value, str):
        return None
    line = " ".join(value.split())
    if not line.isprintable() or not 0 < len(line) <= terms.numbers.statement_chars_max:
        return None
    before, after = normalise_text(written), normalise_text(line)
    numbers = set(_NUMBER.findall(after))
    if not set(_NUMBER.findall(before)) <= numbers <= set(_NUMBER.findall(f"{said} {written}")):
        return None
    if _negations(before, terms.contrasts) != _negations(after, terms.contrasts):
        return None
    words = set(_WORD.findall(before))
    kept = len(words & set(_WORD.findall(after))) / len(words) if words else 0.0
    return line if kept >= terms.numbers.kept_words_share_min else None


def _negations(text: str, contrasts: Contrasts) -> int:
    return len(contrasts.negation.findall(contrasts.not_negating.sub(" ", text)))


def _facts(value: object, drafts: Sequence[Draft], terms: TurnTerms) -> list[ReadDraft]:
    """Statements that the model found in what happened: each with the user's own words, which must stand in his lines."""
    found: list[ReadDraft] = []
    taken = {content_hash(draft.content) for draft in drafts}
    for one in _mappings(value)[: terms.numbers.facts_max]:
        quote = one.get("quote")
        if not isinstance(quote, str) or len(quote.strip()) < terms.numbers.quote_chars_min:
            continue
        source = next(
            (draft for draft in drafts if draft.kind == "episodic" and _users_words(quote, draft.content)), None
        )
        content = sentence_of(one.get("content"), quote, quote, terms) or " ".join(quote.split())
        if source is None or not content.isprintable() or content_hash(content) in taken:
            continue
        taken.add(content_hash(content))
        draft = replace(source, content=content, kind="semantic", outcome=None, summary=None)
        found.append(ReadDraft(draft, "model"))
    return found


def _users_words(quote: str, content: str) -> bool:
    """Does the quote stand in a line that the user said?"""
    wanted = normalise_text(quote)
    return any(wanted in normalise_text(line) for line in content.split("\n") if line.startswith("user"))


def _is_stated(draft: Draft) -> bool:
    return draft.kind != "episodic" and any(cause in STATED for cause in causes(draft))


def causes(draft: Draft) -> list[str]:
    """The triggers that caused a draft, never empty for one of `turns`."""
    return list(draft.metadata.get(CAUSE, ())) or [""]


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []
