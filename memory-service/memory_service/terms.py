"""Which words is a text found by?

The keyword terms of a memory and of a query, and their Postgres text forms.  We build the tsvector ourselves because no
Postgres parser knows Chinese or keeps error codes whole; so both sides must use this module, and a change to its rules
or to the vocabulary files needs `hindsight reindex`.

Decisions:
- NFKC, case folding, accents of Latin letters folded (not "in addition": one form on both sides costs nothing).
- Latin words are stemmed (Porter2).  Scripts written without spaces (Chinese, Japanese, Thai …) and Korean, whose
  particles are glued on, become character bigrams.
- Every character of such a run must be findable alone.  Indexing all unigrams would double the lexemes, so a run only adds
  its last character as a term and a one-character query is a prefix search: each character begins a bigram or ends a run.
- Identifiers, paths, URLs, versions and error codes are kept whole, in segments and in parts.
- Stop words are dropped from queries only: a query of nothing but stop words must still find its document.
- A term above LEXEME_BYTES_MAX keeps its head and a hash of the whole, so equal long terms still meet.

Must not do I/O (except `load_vocabulary`) and must not look at settings.  Work is linear in the length of the text.
"""

import hashlib
import re
import threading
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache

import Stemmer

from memory_service.vocabulary import (
    COMPOUND,
    JOINER,
    UNSPACED,
    WORD,
    Vocabulary,
    load_vocabulary,
)

__all__ = [
    "Vocabulary",
    "keyword_terms",
    "load_vocabulary",
    "query_terms",
    "spread_terms",
    "stemmed",
    "tsquery_literal",
    "tsvector_literal",
]

# Format constants, not tunables: every stored tsvector was built with them.
LEXEME_BYTES_MAX = 64  # longer terms are hashes, tokens or base64; Postgres itself would take 2046
LEXEME_HEAD_BYTES = 46  # + "~" + 16 hex digits of SHA-256 = 63 bytes
POSITION_MAX = 16383  # Postgres: larger positions are stored as this one
POSITIONS_PER_LEXEME_MAX = 255  # Postgres: MAXNUMPOS - 1
TSVECTOR_BYTES_HARD_MAX = (1 << 20) - 1  # Postgres: MAXSTRPOS, counts lexemes and positions
SPLIT_CHARS_MAX = 256  # a word longer than this is no identifier; it is not searched for camelCase parts

_INVISIBLE = [0x00AD, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF]
# After NFKC what is left of U+0300.. are stress marks; Hebrew points and Arabic vowel marks are optional in writing.
_OPTIONAL_MARKS = [*range(0x300, 0x370), *range(0x591, 0x5BE), *range(0x64B, 0x660), 0x670]


def _folded_letters() -> dict[int, str | None]:
    """Translate table: accented Latin letters → base letters, invisible characters and optional marks → nothing."""
    table: dict[int, str | None] = dict.fromkeys((*_INVISIBLE, *_OPTIONAL_MARKS))
    for code in (*range(0xC0, 0x250), *range(0x1E00, 0x1F00)):
        base = unicodedata.normalize("NFD", chr(code))[0]
        if base != chr(code) and base.isascii():
            table[code] = base
    pairs = {
        "ø": "o",
        "Ø": "O",
        "ł": "l",
        "Ł": "L",
        "đ": "d",
        "Đ": "D",
        "æ": "ae",
        "Æ": "AE",
        "œ": "oe",
        "Œ": "OE",
        "ß": "ss",
        "’": "'",
    }
    table.update({ord(letter): base for letter, base in pairs.items()})
    return table


_FOLD = _folded_letters()
_FOLDABLE = re.compile(f"[{''.join(map(chr, _FOLD))}]")
_TOKEN = re.compile(
    rf"(?P<run>[{UNSPACED}]+)"
    r"|(?P<grouped>(?<![\w.,])\d{1,3}(?:,\d{3}){1,6}(?:\.\d{1,9})?(?![\w,]))"
    rf"|(?P<compound>{COMPOUND})(?P<suffix>(?:\+\+|\#)(?![{WORD}]))?"
    r"|(?P<symbol>[\u2600-\u27bf\U0001f000-\U0001faff])"
)
_STRONG_JOINER = re.compile(r"[/\\:@#+~%&=?$]+")
_WEAK_JOINER = re.compile(r"[._\-]+")
_CASE_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_HEX = re.compile(r"[0-9a-fA-F]{7,}")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_COMPOUND_TERM = re.compile(rf"[{WORD}](?:{JOINER})[{WORD}]")
_FIGURE = re.compile(r"[0-9]")
_ONE_UNSPACED = re.compile(rf"[{UNSPACED}]")

_per_thread = threading.local()  # a PyStemmer object must not be used by two threads at once


def keyword_terms(text: str, vocabulary: Vocabulary) -> list[str]:
    """Terms of a document in reading order, with repeats; empty when it holds no letter, digit or symbol.

    Words that the vocabulary replaced are found by both forms: the canonical one in place, the written one at the end,
    so that a later change of the vocabulary loses nothing.
    """
    canonical, replaced = vocabulary.normalise_and_tell(_fold(text))
    terms = list(_terms(canonical, vocabulary, closing=True))
    for written in replaced:
        terms.extend(_terms(written, vocabulary, closing=True))
    return terms


def query_terms(text: str, vocabulary: Vocabulary, terms_max: int | None = None) -> list[str]:
    """Distinct terms of a query, first occurrence first; at most `terms_max`.  Stop words only when nothing else is left."""
    canonical, replaced = vocabulary.normalise_and_tell(_fold(text))
    terms = dict.fromkeys(_terms(canonical, vocabulary, closing=False))
    for written in replaced:
        terms.update(dict.fromkeys(_terms(written, vocabulary, closing=False)))
    stop_terms = _stop_terms(vocabulary.stop_words)
    telling = [term for term in terms if term not in stop_terms and not _is_particle_bigram(term, vocabulary)]
    return (telling or list(terms))[:terms_max]


def spread_terms(terms: Sequence[str], terms_max: int) -> list[str]:
    """At most `terms_max` of a query's terms, in its order: those with figures first, of the others evenly from all of it.

    What a long query asks for is as often at its end as at its beginning, and of a Chinese run every second bigram still
    covers every character.  Numbers, codes and addresses name one thing.
    """
    if len(terms) <= terms_max:
        return list(terms)
    with_figures = [n for n, term in enumerate(terms) if _FIGURE.search(term)][: terms_max // 2]
    others = sorted(set(range(len(terms))) - set(with_figures))
    room = terms_max - len(with_figures)
    kept = {*with_figures, *(others[n * len(others) // room] for n in range(room))}
    return [terms[n] for n in sorted(kept)]


def _fold(text: str) -> str:
    text = unicodedata.normalize("NFKC", text)
    return text.translate(_FOLD) if _FOLDABLE.search(text) else text


def _terms(text: str, vocabulary: Vocabulary, *, closing: bool) -> Iterator[str]:
    """`closing`: also yield the last character of each unspaced run (documents do, queries do not)."""
    seen: dict[str, list[str]] = {}  # texts repeat their words; splitting one costs more than looking it up
    for match in _TOKEN.finditer(text):
        kind, token = match.lastgroup, match.group()
        if token in seen:
            yield from seen[token]
        elif kind == "compound" and _CASE_PART.fullmatch(token):  # one piece, as most words are: nothing to take apart
            term = _bounded(stemmed(token.casefold()))
            seen[token] = [term]
            yield term
        elif kind == "run":
            yield from _run_terms(token, closing=closing)
        elif kind == "grouped":
            yield _bounded(token.replace(",", ""))
            yield from token.split(",")  # "ids 100,200,300" is a list that looks like one number
        elif kind == "symbol":
            yield token
        else:
            seen[token] = list(_compound_terms(match["compound"], match["suffix"] or "", vocabulary))
            yield from seen[token]


def _run_terms(run: str, *, closing: bool) -> Iterator[str]:
    for start in range(len(run) - 1):
        yield run[start : start + 2]
    if closing or len(run) == 1:
        yield run[-1]


def _compound_terms(token: str, suffix: str, vocabulary: Vocabulary) -> Iterator[str]:
    """Whole, then segments between strong joiners (host, file name), then parts between weak ones, then camelCase parts."""
    if suffix:
        yield _bounded(token.casefold() + suffix)
        if len(token) == 1:  # C++, C#: the bare letter says nothing
            return
    segments = _STRONG_JOINER.split(token)
    if len(segments) > 1:
        yield _bounded(token.casefold())
    for segment in segments:
        parts = _WEAK_JOINER.split(segment)
        if len(parts) > 1:
            yield from _segment_terms(segment.casefold())
        in_compound = len(segments) > 1 or len(parts) > 1
        of_uuid = len(parts) == 5 and _UUID.fullmatch(segment.casefold()) is not None
        for part in parts:
            yield from [part.casefold()] if of_uuid else _part_terms(part)
            if in_compound and (canonical := vocabulary.canonical_word(part)) is not None:
                yield from _terms(_fold(canonical), vocabulary, closing=False)


def _segment_terms(segment: str) -> Iterator[str]:
    yield _bounded(segment)
    if segment[0] == "v" and segment[1].isdigit():
        yield _bounded(segment[1:])  # "v1.2.3" and "version 1.2.3" meet
    elif _UUID.fullmatch(segment) or (segment[0].isdigit() and segment.replace("_", "").isdigit()):
        yield _bounded(segment.replace("-", "").replace("_", ""))


def _part_terms(part: str) -> Iterator[str]:
    yield _bounded(stemmed(part.casefold()))
    if len(part) > SPLIT_CHARS_MAX or not part.isascii() or not part.isalnum():
        return
    pieces = _CASE_PART.findall(part)
    looks_random = len(pieces) > 2 and _HEX.fullmatch(part) is not None
    if len(pieces) < 2 or looks_random:
        return
    for piece in pieces:
        if len(piece) > 1:  # single letters and digits of "k8s" would match everything
            yield _bounded(stemmed(piece.casefold()))


def stemmed(word: str) -> str:
    """The Porter2 stem of a case-folded ASCII word; anything else unchanged."""
    if not word.isascii() or len(word) > LEXEME_BYTES_MAX or not word.replace("'", "").isalpha():
        return word
    stemmer = getattr(_per_thread, "stemmer", None)
    if stemmer is None:
        stemmer = _per_thread.stemmer = Stemmer.Stemmer("english")
    stem: str = stemmer.stemWord(word)
    return stem


def _bounded(term: str) -> str:
    raw = term.encode()
    if len(raw) <= LEXEME_BYTES_MAX:
        return term
    head = raw[:LEXEME_HEAD_BYTES].decode(errors="ignore")
    return f"{head}~{hashlib.sha256(raw).hexdigest()[:16]}"


@lru_cache(maxsize=8)
def _stop_terms(stop_words: frozenset[str]) -> frozenset[str]:
    """Stop words in the form in which they come out of `_terms`."""
    return stop_words | {stemmed(word) for word in stop_words}


def _is_particle_bigram(term: str, vocabulary: Vocabulary) -> bool:
    return len(term) <= 2 and any(character in vocabulary.particles for character in term)


def tsvector_literal(terms: Sequence[str], prefix: str, bytes_max: int) -> str:
    """Text form of a tsvector whose lexemes are `prefix + term`, with positions: `'p:a':1,3 'p:b':2`.

    Stays within `bytes_max` (and Postgres' own 1 MiB) as Postgres counts a tsvector.  When it is too big, in this order:
    positions go; whole compounds go (their parts stay); lexemes go at even distances, so that the head and the tail of a
    text are found alike.  The same terms always give the same literal.
    """
    budget = min(bytes_max, TSVECTOR_BYTES_HARD_MAX)
    positions: dict[str, list[int]] = {}
    for at, term in enumerate(terms, start=1):
        found = positions.setdefault(term, [])
        if at <= POSITION_MAX and len(found) < POSITIONS_PER_LEXEME_MAX:
            found.append(at)
        elif not found:
            found.append(POSITION_MAX)
    sizes = {term: len(prefix.encode()) + len(term.encode()) for term in positions}
    # Postgres aligns a lexeme to 2 bytes, then stores a 2-byte count and 2 bytes per position.
    if sum(size + (size & 1) + 2 + 2 * len(positions[term]) for term, size in sizes.items()) <= budget:
        return " ".join(f"{_quoted(prefix + term)}:{','.join(map(str, at))}" for term, at in positions.items())
    kept = list(sizes)
    if sum(sizes.values()) > budget:
        kept = [term for term in kept if not _COMPOUND_TERM.search(term)] or kept
    return " ".join(_quoted(prefix + term) for term in _evenly(kept, sizes, budget))


def _evenly(terms: Sequence[str], sizes: dict[str, int], budget: int) -> list[str]:
    """The terms, thinned at even distances until their bytes fit."""
    total = sum(sizes[term] for term in terms)
    if total <= budget:
        return list(terms)
    kept: list[str] = []
    passed = used = 0
    for term in terms:
        passed += sizes[term]
        # Keep a term only while the kept bytes lag behind their share of the bytes passed: used ≤ passed × budget / total.
        if (used + sizes[term]) * total <= passed * budget:
            kept.append(term)
            used += sizes[term]
    return kept


def tsquery_literal(terms: Sequence[str], prefix: str) -> str:
    """Text form of a tsquery: any of the terms.  A lone unspaced character is a prefix search.  Empty terms → empty text."""
    return " | ".join(_quoted(prefix + term) + (":*" if _ONE_UNSPACED.fullmatch(term) else "") for term in terms)


def _quoted(lexeme: str) -> str:
    return "'" + lexeme.replace("\\", "\\\\").replace("'", "''") + "'"
