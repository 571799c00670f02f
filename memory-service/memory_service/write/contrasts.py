"""Which spellings are one, and which words say nothing?

The data of config/contrasts.toml, checked and compiled once, for `duplicates`.  Nothing here compares texts.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from memory_service.errors import SetupRefused
from memory_service.settings import tables_of
from memory_service.write.rules import any_of

Pattern = re.Pattern[str]
_NUMERALS = "零〇一二两三四五六七八九十百千万亿"


@dataclass(frozen=True, slots=True)
class Contrasts:
    """All patterns expect normalised (case-folded) text.  `chars_max`: longer texts are the same only when equal.

    `negating` words begin like one in which a negation is harmless, and negate.
    """

    chars_max: int
    negation: Pattern
    not_negating: Pattern
    negating: tuple[str, ...]
    english_numbers: Mapping[str, str]
    english_number: Pattern
    chinese_number: Pattern
    not_numeral: Pattern
    unit_of: Mapping[str, str]
    quantity: Pattern
    tools: tuple[Pattern, ...]
    empty_words: frozenset[str]
    empty_chinese: Pattern
    empty_endings: frozenset[str]


def load_contrasts(path: Path) -> Contrasts:
    """Read config/contrasts.toml.  Raises SetupRefused naming the line or the entry that is wrong."""
    tables = tables_of(path)
    read = _Reader(path, tables)
    numbers, negating = read.counts("numbers.english"), read.texts("negation.negating")
    units = {spelling: names[0] for names in read.lists("numbers.units") for spelling in names}
    return Contrasts(
        chars_max=read.count("limits.chars_max"),
        negation=_negation(read.texts("negation.words"), read.texts("negation.characters")),
        not_negating=_harmless(read.texts("negation.harmless"), negating),
        negating=tuple(negating),
        english_numbers=numbers,
        english_number=any_of(list(numbers)),
        chinese_number=_chinese_number(read.text("numbers.chinese_measures")),
        not_numeral=any_of(read.texts("numbers.chinese_harmless")),
        unit_of=units,
        quantity=_quantity(list(units)),
        tools=tuple(any_of(names) for names in read.lists("names.tools")),
        empty_words=frozenset(read.texts("empty.words")),
        empty_chinese=any_of(read.texts("empty.chinese")),
        empty_endings=frozenset(read.texts("empty.chinese_endings")),
    )


class _Reader:
    def __init__(self, path: Path, tables: Mapping[str, object]) -> None:
        self.path, self.tables = path, tables

    def refused(self, entry: str, problem: str) -> SetupRefused:
        return SetupRefused(f"{self.path}: the entry {entry} {problem}.")

    def _value(self, entry: str) -> object:
        value: object = self.tables
        for key in entry.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    def text(self, entry: str) -> str:
        value = self._value(entry)
        if not isinstance(value, str) or not value:
            raise self.refused(entry, "must be a text")
        return value

    def texts(self, entry: str) -> list[str]:
        return self._texts(entry, self._value(entry))

    def _texts(self, entry: str, value: object) -> list[str]:
        if not isinstance(value, list) or not value or not all(isinstance(item, str) and item for item in value):
            raise self.refused(entry, "must be a list of texts")
        return [item.casefold() for item in value]

    def lists(self, entry: str) -> list[list[str]]:
        value = self._value(entry)
        if not isinstance(value, list) or not value:
            raise self.refused(entry, "must be a list of lists of texts")
        return [self._texts(entry, item) for item in value]

    def count(self, entry: str) -> int:
        value = self._value(entry)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.refused(entry, "must be a whole number above 0")
        return value

    def counts(self, entry: str) -> dict[str, str]:
        value = self._value(entry)
        if not isinstance(value, Mapping) or not all(
            isinstance(n, int) and not isinstance(n, bool) for n in value.values()
        ):
            raise self.refused(entry, "must map words to whole numbers")
        return {str(word).casefold(): str(number) for word, number in value.items()}


def _harmless(words: Sequence[str], unless: Sequence[str]) -> Pattern:
    """Words in which a negation negates nothing, where they do not go on as one of `unless`."""
    return re.compile(f"(?!{'|'.join(map(re.escape, unless))})(?:{any_of(words).pattern})")


def _negation(words: Sequence[str], characters: Sequence[str]) -> Pattern:
    endings = "|".join(re.escape(word[1:]) for word in words if word.startswith("*"))
    whole = "|".join(re.escape(word) for word in words if not word.startswith("*"))
    signs = "".join(map(re.escape, characters))
    ended = rf"|(?:{endings})(?![a-z])" if endings else ""
    return re.compile(rf"(?<![a-z0-9_-])(?:{whole})(?![a-z0-9_-]){ended}|[{signs}]", re.ASCII)


def _chinese_number(measures: str) -> Pattern:
    """Not right after a digit: the 万 of "3 万元" is a magnitude."""
    numeral = rf"[{_NUMERALS}]"
    return re.compile(
        rf"(?<!\d)(?<!\d )(?<!{numeral})(?:第?{numeral}{{1,16}}(?=[{re.escape(measures)}])|第{numeral}{{1,16}}|{numeral}{{2,16}})"
    )


def _quantity(units: Sequence[str]) -> Pattern:
    """Groups: value, magnitude, unit.  A unit in Latin letters must end there: "5 m" is not in "5 min"."""
    latin = sorted((re.escape(unit) for unit in units if unit.isascii() and unit.isalpha()), key=len, reverse=True)
    other = sorted(
        (re.escape(unit) for unit in units if not (unit.isascii() and unit.isalpha())), key=len, reverse=True
    )
    return re.compile(
        r"(?<![a-z0-9_.])(?P<value>\d{1,15}(?:,\d{3}){0,6}(?:\.\d{1,15}){0,4})"
        r"(?![a-z0-9_]*_)(?:\s?(?P<magnitude>[万亿千百])|\s?(?P<k>[kK])(?![a-z0-9]))?"
        rf"(?:[\s-]?(?P<unit>(?:{'|'.join(latin)})(?![a-z0-9_])|{'|'.join(other)})|(?![a-z0-9_]))",
        re.ASCII,
    )
