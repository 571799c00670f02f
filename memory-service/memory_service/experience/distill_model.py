"""What does a language model learn from a run, and what of that can be believed?

The model is shown the run, masked and cut, and answers with lessons by JSON schema; `distill/believed.py` judges each triple
and each lesson.  On any failure there are none, with the reason, and the rules' lessons stand alone: a run is never lost here.
The run is untrusted: it travels as one JSON value, so it can neither end its quotation nor speak to the model.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any, Literal

from memory_service.errors import LanguageModelBadAnswer, ModelUnavailable
from memory_service.experience.conditions import OPERATORS
from memory_service.experience.conditions_settings import ConditionLimits
from memory_service.experience.distill.believed import FIELDS, Believer
from memory_service.experience.distill.run_view import view_of
from memory_service.experience.distill.shown_run import CountTokens, ShownRun, shown_run
from memory_service.experience.distill_model_settings import DistillModelNumbers
from memory_service.experience.distill_rules import DistillRules
from memory_service.experience.lessons import Lesson, Rejected
from memory_service.experience.review import Review
from memory_service.experience.trajectory import Trajectory
from memory_service.metrics import DISTILLATIONS
from memory_service.models.language_answers import UnusableAnswer
from memory_service.models.language_data import as_data
from memory_service.models.ports import LanguageModel
from memory_service.models.prompts import read_prompt

PROMPT = Path(__file__).parent / "prompts" / "distill.toml"
PURPOSE = "distillation"
FIELD_CHARS_MAX = 120  # of a condition's field and value in an answer: a longer one is prose
VALUES_MAX = 8
EVIDENCE_MAX = 8

DistilledBy = Literal["model", "rules"]


@dataclass(frozen=True, slots=True)
class Told:
    """`lessons` are the model's, judged; `by` is "model" when one of them holds; `reason` says why the rules stand alone."""

    lessons: tuple[Lesson | Rejected, ...] = ()
    by: DistilledBy = "rules"
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class DistillTerms:
    """What the model is asked with and held to."""

    system: str
    user: Template
    schema: dict[str, Any]
    numbers: DistillModelNumbers
    limits: ConditionLimits
    rules: DistillRules


def load_distill_terms(rules: DistillRules, numbers: DistillModelNumbers, limits: ConditionLimits) -> DistillTerms:
    """The prompt beside this module, filled with the operator's vocabulary.  Raises SetupRefused for a broken prompt."""
    system, user = read_prompt(
        PROMPT,
        lessons_max=numbers.lessons_max,
        conditions_max=numbers.conditions_max,
        error_classes=", ".join((*(known.name for known in rules.error_classes), "other", "none")),
        operators=", ".join(OPERATORS),
    )
    return DistillTerms(system, user, _schema(numbers), numbers, limits, rules)


class ModelDistiller:
    """Asks the configured model."""

    def __init__(self, model: LanguageModel, terms: DistillTerms, count_tokens: CountTokens) -> None:
        self._model = model
        self._terms = terms
        self._count_tokens = count_tokens

    async def lessons_of(self, trajectory: Trajectory, review: Review) -> Told:
        """Of an `analysed` trajectory.  Never fails and ends within `deadline_s`; a cancellation passes through."""
        told = await self._told(trajectory, review)
        DISTILLATIONS.labels(told.by).inc()
        return told

    async def _told(self, trajectory: Trajectory, review: Review) -> Told:
        terms = self._terms
        if not trajectory.steps:
            return Told(reason="a run without steps is not shown to the language model")
        run = view_of(trajectory, review, terms.rules)
        shown = await asyncio.to_thread(shown_run, run, terms.numbers, self._count_tokens)
        reason = None
        try:
            async with asyncio.timeout(terms.numbers.deadline_s):
                answer = await self._asked(shown)
        except TimeoutError:
            return Told(reason="the language model had not answered in time")
        except UnusableAnswer as problem:
            if not problem.answer:
                return Told(reason=problem.detail)
            answer, reason = problem.answer, problem.detail
        except (ModelUnavailable, LanguageModelBadAnswer) as problem:
            return Told(reason=problem.detail)
        lessons = await asyncio.to_thread(
            lambda: Believer(run, shown.steps, terms.numbers, terms.limits).believed(answer.get("lessons"))
        )
        return _judged(answer, lessons, reason)

    async def _asked(self, shown: ShownRun) -> Mapping[str, Any]:
        terms = self._terms
        user = terms.user.substitute(run=as_data(shown.data))
        return await self._model.complete_json(system=terms.system, user=user, schema=terms.schema, purpose=PURPOSE)


def _judged(answer: Mapping[str, Any], lessons: Sequence[Lesson | Rejected], reason: str | None) -> Told:
    if any(isinstance(one, Lesson) for one in lessons):
        return Told(tuple(lessons), "model")
    if answer.get("lessons") == []:
        reason = "the language model found no lesson in it"
    return Told(tuple(lessons), "rules", reason or "the language model's lessons did not hold")


def _schema(numbers: DistillModelNumbers) -> dict[str, Any]:
    """In the strict form: every key required, none added, every text and list bounded (small models repeat themselves).

    `field` is no enum, since arguments have any name; `value` lists what JSON conditions can hold.
    """
    word = {"type": "string", "maxLength": FIELD_CHARS_MAX}
    plain = [word, {"type": "number"}, {"type": "boolean"}]
    value = {"anyOf": [*plain, {"type": "array", "items": {"anyOf": plain}, "maxItems": VALUES_MAX}]}
    condition = _object({
        "field": {**word, "description": f"one of {', '.join(FIELDS)}"},
        "operator": {"type": "string", "enum": list(OPERATORS)},
        "value": value,
    })  # fmt: skip
    text = {"type": "string", "maxLength": numbers.texts_chars_max}
    lesson = _object({
        "conditions": {"type": "array", "items": condition, "maxItems": numbers.conditions_max},
        "action": text,
        "avoid": text,
        "rationale": text,
        "evidence": {"type": "array", "items": {"type": "integer"}, "maxItems": EVIDENCE_MAX},
    })  # fmt: skip
    return _object({"lessons": {"type": "array", "items": lesson, "maxItems": numbers.lessons_max}})


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
