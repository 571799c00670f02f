"""What does the deterministic summariser go by?

The rules of config/summarise.toml, checked and compiled once.  Nothing here reads a text; `event_types`, `entities`,
`sentences` and `importance` do that.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from memory_service.errors import SetupRefused
from memory_service.settings import tables_of
from memory_service.write.needles import Sieve, Sought, sought

Pattern = re.Pattern[str]
STRENGTHS = ("decisive", "strong", "plain", "weak")  # keys of cue lists and of [weights]


@dataclass(frozen=True, slots=True)
class Cue:
    """`number` is its place in the sieve of all cues."""

    sought: Sought
    weight: float
    number: int = 0


@dataclass(frozen=True, slots=True)
class EventTypeRule:
    """`category` is None for what happened; `denied` patterns switch the type off for the sentence they stand in.

    `numbers` are those of its cues.
    """

    name: str
    category: str | None
    importance: float
    cues: tuple[Cue, ...]
    denied: tuple[Sought, ...]
    numbers: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class EntityRule:
    type: str
    patterns: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class NameRule:
    type: str
    words_max: int
    after_lone: frozenset[str]
    not_names: frozenset[str]


@dataclass(frozen=True, slots=True)
class Limits:
    summary_chars_max: int
    sentence_chars_max: int
    head_chars_max: int
    tail_chars_max: int
    entities_max: int
    quoted_chars_max: int


@dataclass(frozen=True, slots=True)
class ImportanceRule:
    urgent_boost: float
    entity_boost: float
    entity_boost_max: float
    small_talk_penalty: float
    vital_boost: float
    vital: tuple[Pattern, ...]
    urgent: tuple[Pattern, ...]
    small_talk: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class SentenceRule:
    cue_weight: float
    entity_weight: float
    entity_count_max: int
    first_bonus: float
    short_penalty: float
    short_chars: int
    log_penalty: float
    log_line: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class SummaryRules:
    limits: Limits
    score_min: float
    question_weight: float
    question_marks: tuple[Sought, ...]
    question_starts: tuple[Sought, ...]
    event_types: tuple[EventTypeRule, ...]
    sieve: Sieve
    fallback: EventTypeRule
    question: EventTypeRule
    entities: tuple[EntityRule, ...]
    names: NameRule
    importance: ImportanceRule
    sentence: SentenceRule

    @property
    def event_type_names(self) -> tuple[str, ...]:
        """The vocabulary of event types that the summariser itself gives; callers may use others."""
        return (*(rule.name for rule in self.event_types), self.question.name, self.fallback.name)


class _Section:
    """Typed reads from one table; every refusal names file and entry."""

    def __init__(self, path: Path, name: str, table: object) -> None:
        self.path, self.name = path, name
        if not isinstance(table, Mapping):
            raise self.refused("", "must be a table")
        self.table = table

    def refused(self, key: str, problem: str) -> SetupRefused:
        return SetupRefused(f"{self.path}: the entry {'.'.join(filter(None, (self.name, key)))} {problem}.")

    def number(self, key: str) -> float:
        value = self.table.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
            raise self.refused(key, "must be a number of 0 or more")
        return float(value)

    def integer(self, key: str) -> int:
        return int(self.number(key))

    def text(self, key: str) -> str:
        value = self.table.get(key)
        if not isinstance(value, str) or not value.strip():
            raise self.refused(key, "must be a text")
        return value

    def texts(self, key: str) -> list[str]:
        value = self.table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            raise self.refused(key, "must be a list of texts")
        return [str(item) for item in value]

    def phrases(self, key: str) -> tuple[Pattern, ...]:
        """Plain phrases joined into one pattern each would hide which cue matched twice, so each keeps its own."""
        return tuple(self._compiled(key, phrase) for phrase in self.texts(key))

    def sought(self, key: str) -> tuple[Sought, ...]:
        """Phrases of which there are hundreds, so that most must be ruled out without searching."""
        return tuple(sought(pattern) for pattern in self.phrases(key))

    def patterns(self, key: str) -> tuple[Pattern, ...]:
        return tuple(self._compiled(key, f"re:{text}", case=True) for text in self.texts(key))

    def _compiled(self, key: str, phrase: str, *, case: bool = False) -> Pattern:
        # ASCII: \b and \w then see the border in "用Redis缓存".
        flags = re.ASCII if case else re.ASCII | re.IGNORECASE
        try:
            return re.compile(phrase[3:] if phrase.startswith("re:") else literal_pattern(phrase), flags)
        except re.error as problem:
            raise self.refused(key, f"has the bad pattern {phrase!r}: {problem}") from problem


def literal_pattern(phrase: str) -> str:
    """A phrase as a pattern: whole words where it starts or ends in ASCII letters or digits, any spacing inside."""
    body = r"\s{1,3}".join(re.escape(word) for word in phrase.split())
    before = r"(?<![A-Za-z0-9_])" if re.match(r"[A-Za-z0-9_]", phrase) else ""
    after = r"(?![A-Za-z0-9_])" if re.search(r"[A-Za-z0-9_]$", phrase) else ""
    return f"{before}{body}{after}"


def any_of(phrases: Collection[str]) -> re.Pattern[str]:
    """Any of these phrases, the longest first, in normalised text."""
    longest_first = sorted(phrases, key=len, reverse=True)
    return re.compile("|".join(literal_pattern(phrase) for phrase in longest_first), re.ASCII)


def load_summary_rules(path: Path) -> SummaryRules:
    """Read config/summarise.toml.  Raises SetupRefused naming the line or the entry that is wrong."""
    tables = tables_of(path)

    def section(name: str) -> _Section:
        return _Section(path, name, tables.get(name))

    weights, fallback, question = section("weights"), section("fallback"), section("question")
    event_types = [
        _event_type(_Section(path, f"event_type[{i}]", t), weights, section("importance"))
        for i, t in _rows(path, tables, "event_type")
    ]
    cues = [cue.sought for rule in event_types for cue in rule.cues]
    return SummaryRules(
        limits=_limits(section("limits")),
        score_min=weights.number("score_min"),
        question_weight=weights.number("question"),
        question_marks=question.sought("marks"),
        question_starts=question.sought("starts"),
        event_types=_numbered(event_types),
        sieve=Sieve(cues),
        fallback=EventTypeRule(fallback.text("event_type"), None, fallback.number("importance"), (), ()),
        question=EventTypeRule(
            fallback.text("question_event_type"), None, fallback.number("question_importance"), (), ()
        ),
        entities=tuple(_entity(_Section(path, f"entity[{i}]", t)) for i, t in _rows(path, tables, "entity")),
        names=_names(section("names")),
        importance=_importance(section("importance")),
        sentence=_sentence(section("sentence")),
    )


def _rows(path: Path, tables: Mapping[str, object], name: str) -> list[tuple[int, object]]:
    rows = tables.get(name)
    if not isinstance(rows, list) or not rows:
        raise SetupRefused(f"{path}: there must be at least one [[{name}]].")
    return list(enumerate(rows))


def _event_type(section: _Section, weights: _Section, importance: _Section) -> EventTypeRule:
    """A type with `vital = true` has what is vital as strong cues, so that the patterns are written once."""
    cues = [Cue(one, weights.number(strength)) for strength in STRENGTHS for one in section.sought(strength)]
    if section.table.get("vital", False):
        cues += [Cue(one, weights.number("strong")) for one in importance.sought("vital")]
    if not cues:
        raise section.refused("", f"needs at least one cue in {' or '.join(STRENGTHS)}")
    category = section.text("category") if "category" in section.table else None
    return EventTypeRule(
        section.text("name"), category, section.number("importance"), tuple(cues), section.sought("denied")
    )


def _numbered(rules: Sequence[EventTypeRule]) -> tuple[EventTypeRule, ...]:
    """Each cue with its place among the cues of all."""
    places = count()
    numbered = [tuple(replace(cue, number=next(places)) for cue in rule.cues) for rule in rules]
    return tuple(
        replace(rule, cues=cues, numbers=frozenset(cue.number for cue in cues))
        for rule, cues in zip(rules, numbered, strict=True)
    )


def _entity(section: _Section) -> EntityRule:
    known = section.texts("known")
    patterns = section.patterns("patterns")
    if known:
        longest_first = sorted(known, key=len, reverse=True)
        joined = "|".join(r"\s{1,3}".join(map(re.escape, name.split())) for name in longest_first)
        patterns += (
            re.compile(
                rf"(?<![A-Za-z0-9_.@/-])(?:{joined})(?![A-Za-z0-9_@/+#-]|\.[A-Za-z0-9])", re.ASCII | re.IGNORECASE
            ),
        )
    return EntityRule(section.text("type"), patterns)


def _names(section: _Section) -> NameRule:
    return NameRule(
        section.text("type"),
        section.integer("words_max"),
        frozenset(section.texts("after_lone")),
        frozenset(section.texts("not_names")),
    )


def _limits(section: _Section) -> Limits:
    return Limits(
        summary_chars_max=section.integer("summary_chars_max"),
        sentence_chars_max=section.integer("sentence_chars_max"),
        head_chars_max=section.integer("head_chars_max"),
        tail_chars_max=section.integer("tail_chars_max"),
        entities_max=section.integer("entities_max"),
        quoted_chars_max=section.integer("quoted_chars_max"),
    )


def _importance(section: _Section) -> ImportanceRule:
    return ImportanceRule(
        urgent_boost=section.number("urgent_boost"),
        entity_boost=section.number("entity_boost"),
        entity_boost_max=section.number("entity_boost_max"),
        small_talk_penalty=section.number("small_talk_penalty"),
        vital_boost=section.number("vital_boost"),
        vital=section.phrases("vital"),
        urgent=section.phrases("urgent"),
        small_talk=section.phrases("small_talk"),
    )


def _sentence(section: _Section) -> SentenceRule:
    return SentenceRule(
        cue_weight=section.number("cue_weight"),
        entity_weight=section.number("entity_weight"),
        entity_count_max=section.integer("entity_count_max"),
        first_bonus=section.number("first_bonus"),
        short_penalty=section.number("short_penalty"),
        short_chars=section.integer("short_chars"),
        log_penalty=section.number("log_penalty"),
        log_line=section.phrases("log_line"),
    )
