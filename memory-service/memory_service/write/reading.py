"""What does a language model make of a text, and what of that can be believed?

The model is asked for event type, category, one-sentence summary, entities and importance.  Each is checked by itself: what
is not in the vocabulary, not in the text or not a number gives way to what the rules found (`summarise`).  On any failure
the rules' summary stands, and the reading says so; a text is never lost here.  The text is untrusted: it travels as a JSON
string, so it can neither end its quotation nor speak to the model.
"""

import asyncio
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any, Literal

from pydantic import Field

from memory_service.errors import LanguageModelBadAnswer, ModelUnavailable, SetupRefused
from memory_service.metrics import READINGS
from memory_service.models.language_answers import UnusableAnswer
from memory_service.models.language_data import as_data
from memory_service.models.ports import LanguageModel
from memory_service.settings import Section
from memory_service.write.entities import Entity
from memory_service.write.rules import SummaryRules, literal_pattern
from memory_service.write.summarise import Summary, shortened, visible_line

PROMPT = Path(__file__).parent / "prompts" / "reading.toml"
PURPOSE = "reading"
OTHER_TYPE = "other"
_NUMBER = re.compile(r"\d+")


class ReadingNumbers(Section):
    """[reading] of memory.toml; the reasons stand there."""

    deadline_s: float = Field(gt=0)
    concurrent_max: int = Field(ge=1)
    head_chars_max: int = Field(ge=1)
    tail_chars_max: int = Field(ge=0)
    entities_max: int = Field(ge=0)
    entity_chars_max: int = Field(ge=1)


@dataclass(frozen=True, slots=True)
class Reading:
    """`by` is what read the text; `reason` says why the rules did although a model was asked, or which parts are theirs."""

    summary: Summary
    by: Literal["model", "rules"]
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class ReadingTerms:
    """What the model is asked with and held to.  `category_of` maps an event type to the category that it implies."""

    system: str
    user: Template
    schema: dict[str, Any]
    category_of: Mapping[str, str | None]
    categories: frozenset[str]
    entity_types: frozenset[str]
    summary_chars_max: int
    entities_kept_max: int
    numbers: ReadingNumbers


def load_reading_terms(rules: SummaryRules, numbers: ReadingNumbers) -> ReadingTerms:
    """The prompt beside this module, filled with the operator's vocabulary.  Raises SetupRefused for a broken prompt."""
    category_of: dict[str, str | None] = dict.fromkeys(rules.event_type_names)
    category_of.update({rule.name: rule.category for rule in rules.event_types})
    categories = list(dict.fromkeys(rule.category for rule in rules.event_types if rule.category))
    types = list(dict.fromkeys((*(rule.type for rule in rules.entities), rules.names.type, "quoted", OTHER_TYPE)))
    try:
        prompt = tomllib.loads(PROMPT.read_text(encoding="utf-8"))
        meanings = prompt["event_types"]
        system = Template(prompt["system"].strip()).substitute(
            event_types="\n".join(f"  - {name}: {meanings.get(name, name)}" for name in category_of),
            categories=", ".join(categories),
            entity_types=", ".join(types),
            summary_chars=rules.limits.summary_chars_max,
            entities_max=numbers.entities_max,
        )
        user = Template(prompt["user"].strip())
    except (OSError, ValueError, KeyError) as problem:
        raise SetupRefused(f"{PROMPT}: {problem}") from None
    return ReadingTerms(
        system=system,
        user=user,
        schema=_schema(list(category_of), categories, types, numbers, rules.limits.summary_chars_max),
        category_of=category_of,
        categories=frozenset(categories),
        entity_types=frozenset(types),
        summary_chars_max=rules.limits.summary_chars_max,
        entities_kept_max=rules.limits.entities_max,
        numbers=numbers,
    )


async def read_with_model(content: str, rules_reading: Summary, model: LanguageModel, terms: ReadingTerms) -> Reading:
    """The model's reading of `content`, completed by the rules'.  Never fails; a cancellation passes through."""
    excerpt = excerpted(content, terms.numbers)
    user = terms.user.substitute(text=quoted(excerpt))
    reason = None
    try:
        answer: Mapping[str, Any] = await model.complete_json(
            system=terms.system, user=user, schema=terms.schema, purpose=PURPOSE
        )
    except UnusableAnswer as problem:
        if not problem.answer:
            return Reading(rules_reading, "rules", problem.detail)
        answer, reason = problem.answer, problem.detail
    except (ModelUnavailable, LanguageModelBadAnswer) as problem:
        return Reading(rules_reading, "rules", problem.detail)
    return believed(answer, excerpt, rules_reading, terms, reason)


async def read_all_with_model(
    texts: Sequence[tuple[str, Summary]], model: LanguageModel, terms: ReadingTerms
) -> list[Reading]:
    """Readings of (content, rules' summary) pairs, in order, a few at a time and all before one deadline."""
    slots = asyncio.Semaphore(terms.numbers.concurrent_max)

    async def one(content: str, rules_reading: Summary) -> Reading:
        async with slots:
            return await read_with_model(content, rules_reading, model, terms)

    tasks = [asyncio.create_task(one(content, twin)) for content, twin in texts]
    try:
        if tasks:
            await asyncio.wait(tasks, timeout=terms.numbers.deadline_s)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)  # a cancelled request lets go of its slot before we go on
    late = "the language model had not read it in time"
    readings = [
        task.result() if task.done() and not task.cancelled() else Reading(twin, "rules", late)
        for task, (_, twin) in zip(tasks, texts, strict=True)
    ]
    for reading in readings:
        READINGS.labels(reading.by).inc()
    return readings


def excerpted(content: str, numbers: ReadingNumbers) -> str:
    """The whole of a short text; head and tail of a long one, with a mark between that says how much is left out."""
    left_out = len(content) - numbers.head_chars_max - numbers.tail_chars_max
    if left_out <= 0:
        return content
    tail = content[len(content) - numbers.tail_chars_max :]
    return f"{content[: numbers.head_chars_max]}\n[… {left_out} characters left out …]\n{tail}"


def quoted(text: str) -> str:
    """The text as a JSON value that holds no words with a meaning to chat templates."""
    return as_data({"text": text})


def believed(
    answer: Mapping[str, Any], excerpt: str, twin: Summary, terms: ReadingTerms, reason: str | None = None
) -> Reading:
    """Of the model's answer what holds, of the rules' reading the rest.  Pure."""
    event_type = _event_type(answer.get("event_type"), terms)
    category = _category(answer.get("category"), terms) if "category" in answer else (False, None)
    text = _summary(answer.get("summary"), excerpt, terms)
    importance = _importance(answer.get("importance"))
    named = _entities(answer.get("entities"), excerpt, twin, terms)
    chosen = event_type or twin.event_type
    implied = terms.category_of.get(chosen)
    missing = [
        name
        for name, found in (
            ("event_type", event_type is not None), ("category", category[0]), ("summary", text is not None),
            ("importance", importance is not None), ("entities", named is not None),
        )
        if not found
    ]  # fmt: skip
    if len(missing) == 5:
        return Reading(twin, "rules", reason or "the language model's answer held nothing that can be believed")
    summary = Summary(
        event_type=chosen,
        category=implied if implied is not None else category[1] if category[0] else twin.category,
        text=text if text is not None else twin.text,
        entities=_merged(named or (), twin.entities, terms.entities_kept_max),
        importance=importance if importance is not None else twin.importance,
    )
    return Reading(summary, "model", f"by the rules: {', '.join(missing)}" if missing else None)


def _event_type(value: object, terms: ReadingTerms) -> str | None:
    return value if isinstance(value, str) and value in terms.category_of else None


def _category(value: object, terms: ReadingTerms) -> tuple[bool, str | None]:
    """(can be believed, category): null is an answer too."""
    if value is None:
        return True, None
    return (True, value) if isinstance(value, str) and value in terms.categories else (False, None)


def _summary(value: object, excerpt: str, terms: ReadingTerms) -> str | None:
    """One line of visible text whose every number stands in the text; None otherwise."""
    if not isinstance(value, str):
        return None
    line = visible_line(value)
    numbers = set(_NUMBER.findall(excerpt))
    if not any(c.isalnum() for c in line) or any(n not in numbers for n in _NUMBER.findall(line)):
        return None
    return shortened(line, terms.summary_chars_max)


def _importance(value: object) -> float | None:
    """Clamped to 0..1.  An integer of any size compares, so 10**400 is 1."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or (isinstance(value, float) and math.isnan(value))
    ):
        return None
    return float(min(max(value, 0), 1))


def _entities(value: object, excerpt: str, twin: Summary, terms: ReadingTerms) -> tuple[Entity, ...] | None:
    """Those that stand in the text, in the text's own spelling.  None when there is no list or nothing in it stands there."""
    if not isinstance(value, list):
        return None
    type_of = {entity.name.casefold(): entity.type for entity in twin.entities}
    found: dict[str, Entity] = {}
    for one in value[: terms.numbers.entities_max]:
        name, said = (one.get("name"), one.get("type")) if isinstance(one, Mapping) else (one, None)
        written = _as_written(name, excerpt, terms.numbers.entity_chars_max)
        if written is None:
            continue
        key = written.casefold()
        kind = said if isinstance(said, str) and said in terms.entity_types else type_of.get(key, OTHER_TYPE)
        found.setdefault(key, Entity(written, kind))
    return tuple(found.values()) if found or not value else None


def _as_written(name: object, excerpt: str, chars_max: int) -> str | None:
    """The name where it stands as whole words, in any case and spacing; None when it does not, or is no name."""
    if not isinstance(name, str) or not 1 < len(name.strip()) <= chars_max or not any(c.isalnum() for c in name):
        return None
    match = re.search(literal_pattern(name.strip()), excerpt, re.IGNORECASE)
    return " ".join(match.group().split()) if match else None


def _merged(first: Sequence[Entity], then: Sequence[Entity], most: int) -> tuple[Entity, ...]:
    """The model knows people and things; the rules miss no path, code or number."""
    taken = {entity.name.casefold() for entity in first}
    return (*first, *(entity for entity in then if entity.name.casefold() not in taken))[:most]


def _schema(
    event_types: list[str],
    categories: list[str],
    entity_types: list[str],
    numbers: ReadingNumbers,
    summary_chars_max: int,
) -> dict[str, Any]:
    """In the strict form: every key required, none added.

    Every text and list is bounded: under a grammar a small model repeats itself until a bound or the token limit ends it.
    """
    entity = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": numbers.entity_chars_max},
            "type": {"type": "string", "enum": entity_types},
        },
        "required": ["name", "type"],
        "additionalProperties": False,
    }
    properties = {
        "event_type": {"type": "string", "enum": event_types},
        "category": {"type": ["string", "null"], "enum": [*categories, None]},
        # A little more than is kept: whoever stops at a bound stops inside a word, and `shortened` looks for its beginning.
        "summary": {"type": "string", "maxLength": summary_chars_max * 5 // 4},
        "entities": {"type": "array", "items": entity, "maxItems": numbers.entities_max},
        "importance": {"type": "number", "minimum": 0, "maximum": 1},
    }
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
