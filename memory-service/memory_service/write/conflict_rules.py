"""Which words make a statement that can hold one value only, and which values exclude each other?

The data of config/conflicts.toml, checked and compiled once, for `conflicts`.  Nothing here compares texts.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from memory_service.settings import Section, read_section
from memory_service.terms import stemmed
from memory_service.write.contrasts import Contrasts
from memory_service.write.rules import any_of, literal_pattern

Role = Literal["change", "change_to", "past", "doubt", "several", "ended", "weak", "negation", "flip"]


class ConflictLimits(Section):
    text_chars_max: int = Field(gt=0)
    sentences_max: int = Field(gt=0)
    value_tokens_max: int = Field(gt=0)
    frame_tokens_max: int = Field(gt=0)


class Attribute(Section):
    """A kind of statement; see the file for what the words mean."""

    name: str
    words: tuple[str, ...] = Field(min_length=1)
    changes: Literal["plainly", "asks", "never"]
    needs: Literal["", "domain", "kind", "purpose", "number"] = ""
    value_first: bool = False


class _Marks(Section):
    change: tuple[str, ...]
    change_to: tuple[str, ...]
    past: tuple[str, ...]
    several: tuple[str, ...]
    ended: tuple[str, ...]
    doubt: tuple[str, ...]
    ignored: tuple[str, ...]
    value_after: tuple[str, ...]
    word_starts: tuple[str, ...]
    prepositions: tuple[str, ...]
    origin: tuple[str, ...]
    narrowing: tuple[str, ...]
    many: tuple[str, ...]
    light: tuple[str, ...]
    wishes: tuple[str, ...]
    persons: tuple[tuple[str, ...], ...]
    persons_harmless: tuple[str, ...]


class _Same(Section):
    words: tuple[tuple[str, ...], ...]


class _Kind(Section):
    name: str
    values: tuple[tuple[str, ...], ...] = Field(min_length=2)


class _Opposite(Section):
    one: tuple[str, ...] = Field(min_length=1)
    other: tuple[str, ...] = Field(min_length=1)


class _Negation(Section):
    words: tuple[str, ...]
    characters: tuple[str, ...]
    harmless: tuple[str, ...]


class _File(Section):
    limits: ConflictLimits
    marks: _Marks
    same: _Same
    attribute: tuple[Attribute, ...] = Field(min_length=1)
    kind: tuple[_Kind, ...]
    opposite: tuple[_Opposite, ...]
    negation: _Negation


@dataclass(frozen=True, slots=True)
class Word:
    """What a phrase of the file says: the token that stands for it ("" for none) and its roles."""

    token: str
    roles: frozenset[Role]


@dataclass(frozen=True, slots=True)
class ConflictRules:
    """`phrases` finds every phrase of the file, the longest first, in normalised text; `words` says what each means.

    Weak words that are `prepositions`, and those that name an origin ("from"); tokens that say when or for what (`narrowing`);
    tokens of verbs that can have several objects (`many`), and of words that say how a value is meant (`light`).
    Behind a phrase of `value_after` a character of `word_starts` is the beginning of a word, not a particle.
    `attributes` by token; `kinds`: token → kinds of value that it is one of.
    `persons`: I, you, he …: the first two are whoever takes part, who may also stay unnamed; `not_persons` only look like one.
    """

    limits: ConflictLimits
    phrases: re.Pattern[str]
    words: Mapping[str, Word]
    attributes: Mapping[str, tuple[Attribute, ...]]
    kinds: Mapping[str, frozenset[str]]
    prepositions: frozenset[str]
    origin_words: frozenset[str]
    value_after: frozenset[str]
    word_starts: frozenset[str]
    narrowing: frozenset[str]
    many: frozenset[str]
    light: frozenset[str]
    wishes: frozenset[str]
    persons: tuple[re.Pattern[str], ...]
    not_persons: re.Pattern[str]
    contrasts: Contrasts


def load_conflict_rules(path: Path, contrasts: Contrasts) -> ConflictRules:
    """Read config/conflicts.toml; numerals and `negating` words are those of `contrasts`.

    Raises SetupRefused naming the file and the entry that is wrong.
    """
    file = read_section(path, _File)
    return _compiled(file, contrasts)


def token_of(phrase: str) -> str:
    """The token of a word that nothing gathers: its stem."""
    return stemmed(phrase.casefold())


def _pattern(phrase: str, harmless: Collection[str], negating: Iterable[str]) -> str:
    """The phrase; a harmless one only where it does not go on as a word that negates."""
    longer = [word for word in negating if phrase in harmless and word.startswith(phrase)]
    return f"(?!{'|'.join(map(re.escape, longer))}){literal_pattern(phrase)}" if longer else literal_pattern(phrase)


def _compiled(file: _File, contrasts: Contrasts) -> ConflictRules:
    tokens = _tokens(file)
    roles: dict[str, set[Role]] = {}

    def mark(phrases: Iterable[str], role: Role) -> None:
        for phrase in phrases:
            roles.setdefault(phrase.casefold(), set()).add(role)

    marks = file.marks
    named: tuple[tuple[tuple[str, ...], Role], ...] = (
        (marks.change, "change"), (marks.change_to, "change_to"), (marks.past, "past"), (marks.several, "several"), (marks.ended, "ended"),
        (marks.doubt, "doubt"), (marks.ignored, "weak"), ((*file.negation.words, *file.negation.characters), "negation"),
    )  # fmt: skip
    for phrases, role in named:
        mark(phrases, role)
    for opposite in file.opposite:
        mark(opposite.other, "flip")
    for harmless in file.negation.harmless:
        tokens.setdefault(harmless.casefold(), harmless.casefold())
    words = {
        phrase: Word(
            tokens.get(phrase, phrase if "weak" in roles.get(phrase, ()) else ""), frozenset(roles.get(phrase, ()))
        )
        for phrase in {*tokens, *roles}
    }
    attributes: dict[str, tuple[Attribute, ...]] = {}
    for attribute in file.attribute:
        for token in {tokens[word.casefold()] for word in attribute.words}:
            attributes[token] = (*attributes.get(token, ()), attribute)
    kinds: dict[str, frozenset[str]] = {}
    for kind in file.kind:
        for value in kind.values:
            kinds[tokens[value[0].casefold()]] = kinds.get(tokens[value[0].casefold()], frozenset()) | {kind.name}
    longest_first = sorted(words, key=lambda phrase: (-len(phrase), phrase))
    pattern = re.compile(
        "|".join(_pattern(phrase, file.negation.harmless, contrasts.negating) for phrase in longest_first), re.ASCII
    )

    def tokens_of(phrases: Iterable[str]) -> frozenset[str]:
        return frozenset(tokens.get(phrase.casefold(), token_of(phrase)) for phrase in phrases)

    weak = (frozenset(marks.prepositions), frozenset(marks.origin))
    starts = (frozenset(marks.value_after), frozenset(marks.word_starts))
    return ConflictRules(
        file.limits,
        pattern,
        words,
        attributes,
        kinds,
        *weak,
        *starts,
        tokens_of(marks.narrowing),
        tokens_of(marks.many),
        tokens_of(marks.light),
        tokens_of(marks.wishes),
        tuple(any_of([one.casefold() for one in words]) for words in marks.persons),
        any_of([one.casefold() for one in marks.persons_harmless]),
        contrasts,
    )


def _tokens(file: _File) -> dict[str, str]:
    """phrase → token: the first of the words that say the same."""
    tokens: dict[str, str] = {}
    gathered: list[tuple[str, ...]] = [*file.same.words, *(value for kind in file.kind for value in kind.values)]
    gathered += [(*opposite.one, *opposite.other) for opposite in file.opposite]
    for group in gathered:
        first = tokens.get(group[0].casefold(), token_of(group[0]))
        for phrase in group:
            tokens.setdefault(phrase.casefold(), first)
    for attribute in file.attribute:
        for phrase in attribute.words:
            tokens.setdefault(phrase.casefold(), token_of(phrase))
    return tokens
