"""Which words, patterns and numbers do the distillation rules go by?

config/distill.toml, checked and compiled once.  Nothing here looks at a run.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from memory_service.errors import SetupRefused
from memory_service.experience.review_rules import ReviewRules
from memory_service.experience.word_breaks import WordBreaks, all_chinese
from memory_service.secrets import Secrets, load_secrets
from memory_service.settings import Section, read_section
from memory_service.terms import Vocabulary, query_terms

OTHER_ERROR = "other"
NO_ERROR = "none"


class DistillLimits(Section):
    lessons_max: int = Field(gt=0)
    text_chars_max: int = Field(ge=100)
    quote_chars_max: int = Field(ge=40)
    goal_chars_max: int = Field(ge=40)
    said_chars_max: int = Field(ge=0)
    lookahead_steps_max: int = Field(gt=0)
    between_steps_max: int = Field(gt=0)
    changed_arguments_max: int = Field(gt=0)
    reworded_words_max: int = Field(gt=0)
    evidence_steps_max: int = Field(gt=0)
    decisive_steps: int = Field(gt=0)
    decisive_steps_long: int = Field(gt=0)
    decisive_long_steps: int = Field(gt=0)
    goal_terms: int = Field(gt=0, le=8)
    feedback_goal_words: int = Field(gt=0, le=20)
    feedback_said_words: int = Field(ge=0, le=20)
    goal_terms_state_max: int = Field(gt=0)
    prose_words: int = Field(gt=0)
    value_chars_max: int = Field(gt=0)
    error_chars_each_end: int = Field(ge=100)
    last_error_chars_max: int = Field(gt=0)
    tools_named_max: int = Field(gt=0)
    permanent_repeats_min: int = Field(gt=1)


class Confidences(Section):
    success: float = Field(ge=0, le=1)
    failure: float = Field(ge=0, le=1)
    detour: float = Field(ge=0, le=1)
    feedback: float = Field(ge=0, le=1)


class DecisiveWeights(Section):
    early: float
    new_specifics: float
    code: float


class ToolKinds(Section):
    wait: frozenset[str]
    think: frozenset[str]


class MessageStarts(Section):
    procedural: tuple[str, ...]
    plan: tuple[str, ...]
    output: tuple[str, ...]
    request: tuple[str, ...]


class FeedbackWords(Section):
    """By which a sentence of feedback is read; see distill/told.py."""

    judging: frozenset[str]
    beside_verdict: frozenset[str]
    judging_zh: frozenset[str]
    verdict_phrases_zh: tuple[str, ...]
    instructing: frozenset[str]
    before_instruction: frozenset[str]
    instructing_zh: tuple[str, ...]
    doubt: frozenset[str]
    doubt_zh: tuple[str, ...]
    wanted_after_not: frozenset[str]
    wanted_after_not_zh: tuple[str, ...]
    conditional_zh: tuple[str, ...]


class _Goal(Section):
    generic: tuple[str, ...]
    doing: tuple[str, ...]
    breaks_zh: tuple[str, ...]
    whole_zh: tuple[str, ...]


class _Advice(Section):
    empty: tuple[str, ...]


class _ErrorClass(Section):
    name: str = Field(pattern=r"^[a-z_]+$")
    permanent: bool
    patterns: tuple[str, ...] = Field(min_length=1)


class _File(Section):
    limits: DistillLimits
    confidence: Confidences
    decisive: DecisiveWeights
    tools: ToolKinds
    messages: MessageStarts
    goal: _Goal
    feedback: FeedbackWords
    advice: _Advice
    error_class: tuple[_ErrorClass, ...] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class ErrorClass:
    name: str
    permanent: bool
    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class DistillRules:
    """Everything the finders need; `review` numbers and the vocabulary of search terms are shared with their owners."""

    limits: DistillLimits
    confidence: Confidences
    decisive: DecisiveWeights
    tools: ToolKinds
    messages: MessageStarts
    generic_goal_terms: frozenset[str]
    doing_terms: frozenset[str]  # what any task does and when: telling nothing of what it is about
    word_breaks: WordBreaks
    feedback: FeedbackWords
    secrets: Secrets
    empty_advice: tuple[str, ...]
    error_classes: tuple[ErrorClass, ...]
    review: ReviewRules
    vocabulary: Vocabulary

    def error_class(self, text: str) -> str:
        """Name of the first class with a match; "other" for an error that none knows, "none" for no error."""
        if not text.strip():
            return NO_ERROR
        chars = self.limits.error_chars_each_end
        if len(text) > 2 * chars:
            text = f"{text[:chars]}\n{text[-chars:]}"  # a traceback says it in its last line, a page in its first
        return next((known.name for known in self.error_classes if known.pattern.search(text)), OTHER_ERROR)

    def is_permanent(self, name: str) -> bool:
        return any(known.permanent for known in self.error_classes if known.name == name)


def load_distill_rules(path: Path, review: ReviewRules, vocabulary: Vocabulary) -> DistillRules:
    """Read config/distill.toml and, beside it, secrets.toml.  Raises SetupRefused naming the file and the entry that is wrong."""
    file = read_section(path, _File)
    classes = tuple(
        ErrorClass(
            known.name,
            known.permanent,
            _compiled(path, known.name, "|".join(f"(?:{p})" for p in known.patterns), re.IGNORECASE),
        )
        for known in file.error_class
    )
    return DistillRules(
        limits=file.limits,
        confidence=file.confidence,
        decisive=file.decisive,
        tools=file.tools,
        messages=file.messages,
        generic_goal_terms=_stems(file.goal.generic, vocabulary),
        doing_terms=_stems(file.goal.doing, vocabulary),
        word_breaks=WordBreaks((*file.goal.breaks_zh, *filter(all_chinese, file.goal.doing)), file.goal.whole_zh),
        feedback=file.feedback,
        secrets=load_secrets(path.with_name("secrets.toml")),
        empty_advice=file.advice.empty,
        error_classes=classes,
        review=review,
        vocabulary=vocabulary,
    )


def _stems(listed: tuple[str, ...], vocabulary: Vocabulary) -> frozenset[str]:
    return frozenset(term for word in listed for term in query_terms(word, vocabulary))


def _compiled(path: Path, entry: str, pattern: str, flags: int = 0) -> re.Pattern[str]:
    try:
        return re.compile(pattern, flags)
    except re.error as problem:
        raise SetupRefused(f"{path}: the entry {entry} has the bad pattern {pattern!r}: {problem}") from problem
