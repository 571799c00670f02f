"""Which words mean the same here, and which say nothing?

The vocabulary is the operator's: config/terms.toml (synonyms and abbreviations; empty switches normalisation off) and
config/stop_words.toml.  It is applied before embedding and before keyword terms are built, so a change needs
`hindsight reindex`.  It must not touch the inside of identifiers, paths, URLs or versions, and never translates.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from memory_service.errors import SetupRefused
from memory_service.settings import tables_of

# Scripts written without spaces, and Hangul: CJK ideographs, kana, bopomofo, Hangul, Thai, Lao, Myanmar, Khmer.
UNSPACED = (
    "\u3005-\u3007\u3041-\u3096\u3099-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003ffff\uac00-\ud7a3\u1100-\u11ff\u3131-\u318e\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0edd"
    "\u1000-\u109f\u1780-\u17d3"
)


def _mark_ranges() -> str:
    r"""Combining marks of the spaced scripts as a class body: Python's \w leaves out, for one, the vowels of Devanagari."""
    unspaced = re.compile(f"[{UNSPACED}]")
    ranges: list[list[int]] = []
    for code in range(0x300, 0x1E00):
        if unicodedata.category(chr(code))[0] != "M" or unspaced.match(chr(code)):
            continue
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(f"\\u{first:04x}-\\u{last:04x}" for first, last in ranges)


MARKS = _mark_ranges()
WORD = rf"^\W_{UNSPACED}"  # the body of a class: letters and digits of the spaced scripts
JOINER = r"[._\-/\\:@#+~%&=?$]{1,3}"
# The quantifiers are possessive: a failed match never retries shorter, which keeps scanning linear.
_WORD_RUN = rf"[{WORD}]++(?:(?:[{MARKS}]++|'(?=[{WORD}]))[{WORD}]*+)*+"
COMPOUND = rf"{_WORD_RUN}(?:{JOINER}{_WORD_RUN})*+"

_URL = r"[A-Za-z][A-Za-z0-9+.\-]{0,20}://[!-~]++"
_NOT_JOINED_BEFORE = rf"(?<![{WORD}])(?<![_./\\@#$%&=+~\-])(?<![A-Za-z0-9]:)"
_NOT_JOINED_AFTER = rf"(?![{WORD}_]|{JOINER}[{WORD}_])"
_SPACES = r"[ \t\r\n]{1,3}"

# Bounds of the files, so that a wrong file is refused instead of slowing every write.
VARIANT_CHARS_MAX = 64
ENTRIES_MAX = 5000
PASSES_MAX = 4  # a replacement may complete another variant together with its neighbour


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """`canonical_of` maps a written variant to its canonical form; made by `Vocabulary.of` or `load_vocabulary`.

    A variant with a capital letter matches only as written ("IT" is not "it"); one without matches in any case.
    `stop_words` are dropped from queries; `particles` are single characters whose bigrams are dropped too.
    """

    canonical_of: Mapping[str, str]
    stop_words: frozenset[str]
    particles: frozenset[str]
    _pattern: re.Pattern[str] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(
        cls,
        canonical_of: Mapping[str, str] | None = None,
        stop_words: Iterable[str] = (),
        particles: Iterable[str] = (),
    ) -> "Vocabulary":
        """Raises SetupRefused when a canonical form contains a variant, because normalising twice would then differ."""
        mapping = dict(canonical_of or {})
        made = cls(
            MappingProxyType(mapping),
            frozenset(word.casefold() for word in stop_words),
            frozenset(particles),
            _pattern_of(mapping) if mapping else None,
        )
        for variant, canonical in mapping.items():
            again = made.normalise(canonical)
            if again != canonical:
                raise SetupRefused(
                    f"terms: the entry {variant!r} = {canonical!r} leads on to {again!r}; write the last form in both entries."
                )
        return made

    def normalise(self, text: str) -> str:
        """The text with every variant replaced by its canonical form; unchanged when the vocabulary is empty.  Idempotent."""
        return self.normalise_and_tell(text)[0]

    def normalise_and_tell(self, text: str) -> tuple[str, list[str]]:
        """The normalised text, and the distinct variants that were replaced, as written and in order."""
        if self._pattern is None:
            return text, []
        replaced: dict[str, None] = {}

        def canonical(match: re.Match[str]) -> str:
            if match.lastgroup != "variant":
                return match.group()
            form = self._canonical_of_written(match.group())
            if form is None:
                return match.group()
            replaced[match.group()] = None
            return form

        for _ in range(PASSES_MAX):
            changed = self._pattern.sub(canonical, text)
            if changed == text:
                break
            text = changed
        return text, list(replaced)

    def canonical_word(self, word: str) -> str | None:
        """Canonical form of one whole word, for a part of an identifier; None when it has none."""
        return self._canonical_of_written(word) if self.canonical_of else None

    def _canonical_of_written(self, written: str) -> str | None:
        key = " ".join(written.split())
        return self.canonical_of.get(key) or self.canonical_of.get(key.lower())


def load_vocabulary(terms_path: Path, stop_words_path: Path | None = None) -> Vocabulary:
    """Read both files once.  Raises SetupRefused naming the file and the line or entry that is wrong."""
    tables = _read(terms_path, known={"synonyms", "abbreviations"})
    mapping: dict[str, str] = {}
    for canonical, variants in _table(terms_path, tables, "synonyms").items():
        for variant in _strings(terms_path, f"synonyms.{canonical}", variants):
            _add(terms_path, mapping, f"synonyms.{canonical}", variant, canonical)
    for short, long in _table(terms_path, tables, "abbreviations").items():
        if not isinstance(long, str) or not long.strip():
            raise _refused(terms_path, f"abbreviations.{short}", "must be a text")
        _add(terms_path, mapping, f"abbreviations.{short}", short, long)
    if len(mapping) > ENTRIES_MAX:
        raise SetupRefused(f"{terms_path}: {len(mapping)} variants; at most {ENTRIES_MAX} are supported.")
    if stop_words_path is None:
        return Vocabulary.of(mapping)
    stops = _read(stop_words_path, known={"english", "chinese", "chinese_particles"})
    words = [word for name in ("english", "chinese") for word in _strings(stop_words_path, name, stops.get(name, []))]
    particles = _strings(stop_words_path, "chinese_particles", stops.get("chinese_particles", []))
    return Vocabulary.of(mapping, words, particles)


def _read(path: Path, known: set[str]) -> dict[str, object]:
    tables: dict[str, object] = tables_of(path)
    for name in tables:
        if name not in known:
            raise _refused(path, name, f"is unknown; known are {', '.join(sorted(known))}")
    return tables


def _table(path: Path, tables: dict[str, object], name: str) -> dict[str, object]:
    table = tables.get(name, {})
    if not isinstance(table, dict):
        raise _refused(path, name, "must be a table")
    return table


def _strings(path: Path, entry: str, value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
        raise _refused(path, entry, "must be a list of texts")
    return [str(item) for item in value]


def _add(path: Path, mapping: dict[str, str], entry: str, variant: str, canonical: str) -> None:
    variant, canonical = " ".join(variant.split()), " ".join(canonical.split())
    if not variant or not canonical or len(variant) > VARIANT_CHARS_MAX:
        raise _refused(path, entry, f"the variant must have 1 to {VARIANT_CHARS_MAX} characters")
    if variant in mapping:
        raise _refused(path, entry, f"{variant!r} already stands for {mapping[variant]!r}")
    if variant == canonical:
        raise _refused(path, entry, f"{variant!r} stands for itself")
    mapping[variant] = canonical


def _refused(path: Path, entry: str, problem: str) -> SetupRefused:
    return SetupRefused(f"{path}: the entry {entry} {problem}.")


def _pattern_of(variants: Iterable[str]) -> re.Pattern[str]:
    """One pattern that finds a variant, or else consumes the URL or compound that starts here so that it stays whole."""
    groups: dict[tuple[bool, bool, bool], list[str]] = {}
    spaced = re.compile(f"[{WORD}]")
    for variant in sorted(variants):
        any_case = variant == variant.lower()
        key = (any_case, bool(spaced.match(variant[0])), bool(spaced.match(variant[-1])))
        groups.setdefault(key, []).append(variant)
    branches = []
    for (any_case, bound_before, bound_after), members in sorted(groups.items()):
        before = _NOT_JOINED_BEFORE if bound_before else ""
        after = _NOT_JOINED_AFTER if bound_after else ""
        # The guard stands once, outside: compiling its class for every word, in any case, took a fifth of a second of the start.
        branches.append(f"{before}(?{'i' if any_case else ''}:{_trie(members)}){after}")
    return re.compile(f"(?P<kept>{_URL})|(?P<variant>{'|'.join(branches)})|(?P<word>{COMPOUND})")


def _trie(words: list[str]) -> str:
    """A pattern of the words that share prefixes, longest first; what must follow comes after it."""
    heads: dict[str, list[str]] = {}
    for word in words:
        if word:
            heads.setdefault(word[0], []).append(word[1:])
    branches = [(_SPACES if head == " " else re.escape(head)) + _trie(tails) for head, tails in heads.items()]
    if "" in words:
        branches.append("")
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"
