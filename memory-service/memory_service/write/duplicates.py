"""Do two texts say the same?

Same text after normalisation, or vectors close and no differing number, version, date, name, negation or opposite, and no
word of the one in the place of a word of the other.
Vectors alone can't tell "port 5432" from "port 5433" or "enabled" from "disabled".  When in doubt the answer is no: a
missed duplicate costs a row, a wrong merge loses a memory.  It must not embed or look up anything.
"""

import hashlib
import re
import unicodedata
from dataclasses import dataclass
from decimal import Decimal

from memory_service.terms import stemmed
from memory_service.vocabulary import COMPOUND
from memory_service.write.contrasts import Contrasts, load_contrasts

__all__ = ["Contrasts", "content_hash", "load_contrasts", "normalise_text", "same_meaning"]

_INVISIBLE = re.compile("[\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufe00-\ufe0f\ufeff]")
_CURLY = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"'})

_DATE = re.compile(r"(?<!\d)(\d{4})(?:[-/.]|\s?年\s?)(\d{1,2})(?:[-/.]|\s?月\s?)(\d{1,2})(?:\s?[日号])?(?!\d)")
_VERSION_MARK = re.compile(r"(?<![a-z0-9_.])v(?=\d)", re.ASCII)
_COMPOUND = re.compile(COMPOUND)
_IDENTIFIER_SIGN = re.compile(r"[0-9_/\\@:#=+]|[^\W\d_]{2}\.[^\W\d_]")
_CAPITALISED = re.compile(r"(?<![A-Za-z0-9_])[A-Z][A-Za-z0-9'-]{0,60}", re.ASCII)
_WORD = re.compile(r"[a-z0-9][a-z0-9']{0,60}|[\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3]")
_SAME_HEAD_CHARS = 6  # "allerg"
_MAGNITUDES = {"百": 100, "千": 1000, "万": 10_000, "亿": 100_000_000}
_DIGITS = {sign: value for value, sign in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}


def normalise_text(text: str) -> str:
    """NFKC, case-folded, invisible characters removed, every run of white space one space.  Idempotent."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(_INVISIBLE.sub("", folded).split())


def content_hash(text: str) -> bytes:
    """32 bytes: SHA-256 of the normalised text."""
    return hashlib.sha256(normalise_text(text).encode()).digest()


def same_meaning(a: str, b: str, cosine: float, threshold: float, contrasts: Contrasts) -> bool:
    """True when `cosine` is above `threshold` (both calibrated alike) and nothing decisive differs.  Symmetric."""
    return cosine > threshold and difference(a, b, contrasts) is None


def difference(a: str, b: str, contrasts: Contrasts) -> str | None:
    """What keeps two close texts apart, as a word for logs and `explain`; None when nothing does."""
    folded_a, folded_b = normalise_text(a), normalise_text(b)
    if folded_a == folded_b:
        return None
    if max(len(folded_a), len(folded_b)) > contrasts.chars_max:
        return "length"
    one, other = _features(a, folded_a, contrasts), _features(b, folded_b, contrasts)
    if one.quantities != other.quantities:
        return "number"
    if one.dates != other.dates:
        return "date"
    if one.identifiers != other.identifiers:
        return "identifier"
    if one.negations != other.negations:
        return "negation"
    if one.tools != other.tools or _names_differ(one, other):
        return "name"
    for group, left, right in zip(contrasts.groups, one.group_values, other.group_values, strict=True):
        if left != right and (group.always or (left and right)):
            return group.name
    if _swapped(one.content, other.content):
        return "word"  # one was swapped for another: cats and dogs, he and she, billing and payments
    return "order" if _order_differs(one, other) else None


@dataclass(frozen=True, slots=True)
class _Features:
    """`quantities`: per unit ("" for none) the values in reading order, so that swapped numbers are seen.

    `negations`: those that negate, and all: no list knows every word in which 不 is harmless, and a wrong merge loses a memory.
    """

    text: str
    quantities: dict[str, list[str]]
    dates: list[str]
    identifiers: frozenset[str]
    negations: tuple[int, int]
    tools: frozenset[int]
    names: list[str]
    chinese_names: frozenset[str]
    words: list[str]
    content: frozenset[str]
    group_values: tuple[frozenset[int], ...]
    order_matters: bool


def _features(original: str, normalised: str, contrasts: Contrasts) -> _Features:
    folded = normalised.translate(_CURLY)
    rest, dates = _taken_dates(folded)
    rest, quantities = _taken_quantities(rest, contrasts)
    return _Features(
        text=folded,
        quantities=quantities,
        dates=dates,
        identifiers=frozenset(token for token in _COMPOUND.findall(rest) if _IDENTIFIER_SIGN.search(token)),
        negations=(
            len(contrasts.negation.findall(contrasts.not_negating.sub(" ", folded))),
            len(contrasts.negation.findall(folded)),
        ),
        tools=frozenset(i for i, pattern in enumerate(contrasts.tools) if pattern.search(folded)),
        names=_latin_names(original, contrasts),
        chinese_names=frozenset(contrasts.chinese_name.findall(folded)),
        words=_words(folded, contrasts),
        content=_content_words(rest, contrasts),
        group_values=tuple(group.values_in(folded) for group in contrasts.groups),
        order_matters=contrasts.order.search(folded) is not None,
    )


def _taken_dates(text: str) -> tuple[str, list[str]]:
    dates = [f"{year}-{int(month)}-{int(day)}" for year, month, day in _DATE.findall(text)]
    return _DATE.sub(" ", text), dates


def _taken_quantities(text: str, contrasts: Contrasts) -> tuple[str, dict[str, list[str]]]:
    """The text without its numbers, and the numbers.  Number words count like digits: 三次, 3 次, three times."""
    text = _VERSION_MARK.sub("", contrasts.not_numeral.sub(" ", text))
    text = contrasts.english_number.sub(lambda word: contrasts.english_numbers[word.group()], text)
    text = contrasts.chinese_number.sub(lambda numeral: arabic(numeral.group()), text)
    quantities: dict[str, list[str]] = {}
    for match in contrasts.quantity.finditer(text):
        unit = contrasts.unit_of.get(match["unit"] or "", "")
        quantities.setdefault(unit, []).append(_value(match))
    return contrasts.quantity.sub(" ", text), quantities


def _value(match: re.Match[str]) -> str:
    """Without separators; with a magnitude multiplied out.  3.10 and 3.1 stay different, because they may be versions."""
    digits = match["value"].replace(",", "")
    times = _MAGNITUDES.get(match["magnitude"] or "", 1000 if match["k"] else 1)
    if times == 1 or digits.count(".") > 1:
        return digits.lstrip("0") or "0"
    return format((Decimal(digits) * times).quantize(Decimal("0.000001")).normalize(), "f")


def arabic(numeral: str) -> str:
    """一百二十 → 120, 二〇二六 → 2026, 3 万 is handled by the caller.  第 is dropped: "第三次" and "第3次" are the same."""
    numeral = numeral.removeprefix("第")
    if all(sign in _DIGITS for sign in numeral):
        return "".join(str(_DIGITS[sign]) for sign in numeral)
    total = section = digit = 0
    for sign in numeral:
        if sign in _DIGITS:
            digit = _DIGITS[sign]
        elif sign in "十百千":
            section += (digit or 1) * {"十": 10, "百": 100, "千": 1000}[sign]
            digit = 0
        else:
            total = (total + section + digit or 1) * _MAGNITUDES[sign]
            section = digit = 0
    return str(total + section + digit)


def _latin_names(original: str, contrasts: Contrasts) -> list[str]:
    text = unicodedata.normalize("NFKC", original).translate(_CURLY)
    words = (match.group().casefold().removesuffix("'s") for match in _CAPITALISED.finditer(text))
    return [stemmed(word) for word in words if not _is_no_name(word, contrasts)]


def _is_no_name(word: str, contrasts: Contrasts) -> bool:
    """Sentence starters, units, and tools, whose spellings are compared on their own."""
    return (
        word in contrasts.common or word in contrasts.unit_of or any(tool.fullmatch(word) for tool in contrasts.tools)
    )


def _words(folded: str, contrasts: Contrasts) -> list[str]:
    return [stemmed(word.removesuffix("'s")) for word in _WORD.findall(folded) if word not in contrasts.common]


def _content_words(text: str, contrasts: Contrasts) -> frozenset[str]:
    """What is left when numbers (taken out before), tools, whose spellings are compared on their own, and function words go."""
    for tool in contrasts.tools:
        text = tool.sub(" ", text)
    words = (word.removesuffix("'s") for word in _WORD.findall(text) if word not in contrasts.function_words)
    return frozenset(stemmed(word) for word in words)


def _swapped(one: frozenset[str], other: frozenset[str]) -> bool:
    """Each text has a word that the other lacks.  Forms of one word that the stemmer keeps apart (allergic, allergy) are one."""
    left, right = one - other, other - one
    heads = {word[:_SAME_HEAD_CHARS] for word in left if len(word) >= _SAME_HEAD_CHARS}
    heads &= {word[:_SAME_HEAD_CHARS] for word in right if len(word) >= _SAME_HEAD_CHARS}
    return all(any(word[:_SAME_HEAD_CHARS] not in heads for word in side) for side in (left, right))


def _names_differ(one: _Features, other: _Features) -> bool:
    """A name of one that the other has not even in small letters, or the same names in another order."""
    if set(one.names) - set(other.words) or set(other.names) - set(one.words):
        return True
    if any(name not in other.text for name in one.chinese_names) or any(
        name not in one.text for name in other.chinese_names
    ):
        return True
    shared = set(one.names) & set(other.names)
    return _first_order(one.names, shared) != _first_order(other.names, shared)


def _order_differs(one: _Features, other: _Features) -> bool:
    if not (one.order_matters and other.order_matters):
        return False
    shared = set(one.words) & set(other.words)
    return _first_order(one.words, shared) != _first_order(other.words, shared)


def _first_order(words: list[str], among: set[str]) -> list[str]:
    return [word for word in dict.fromkeys(words) if word in among]
