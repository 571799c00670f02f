"""Do two texts say the same?

Same text after normalisation; or vectors close, and the same words in the same order but for the few that say nothing, with
numbers, dates, units and names of tools in whatever spelling.
Vectors can't tell "port 5432" from "port 5433", "enabled" from "disabled", or who owes whom, and no list of contrasts is ever
complete.  When in doubt the answer is no: a missed duplicate costs a row, a wrong merge loses a memory.  It must not embed
or look up anything.
"""

import hashlib
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from memory_service.write.contrasts import Contrasts, load_contrasts

__all__ = ["Contrasts", "content_hash", "load_contrasts", "normalise_text", "same_meaning", "with_digits"]

_INVISIBLE = re.compile("[\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufe00-\ufe0f\ufeff]")
_CURLY = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"'})

_DATE = re.compile(r"(?<!\d)(\d{4})(?:[-/.]|\s?年\s?)(\d{1,2})(?:[-/.]|\s?月\s?)(\d{1,2})(?:\s?[日号])?(?!\d)")
_VERSION_MARK = re.compile(r"(?<![a-z0-9_.])v(?=\d)", re.ASCII)
_SHORTENED = re.compile(r"\b(wo|ca|sha|[a-z]{2,8})n't\b")
_WHOLE = {"wo": "will", "ca": "can", "sha": "shall"}
_UNSPACED = "\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"  # scripts in which each sign is compared by itself
_UNSPACED_SIGN, _TWO_LETTERS = re.compile(rf"[{_UNSPACED}]"), re.compile(r"[^\W\d_]{2}")
_SPELT = re.compile("\ue000[^\ue001]*\ue001")  # what one spelling was put in the place of several
_TOKEN = re.compile(rf"{_SPELT.pattern}|[^\W{_UNSPACED}]+(?:'[^\W{_UNSPACED}]+)*|[{_UNSPACED}]|[^\w\s\ue000\ue001]+")
_CLAUSE_END, _QUOTES = frozenset(",.;:!。、"), frozenset("\"'`「」『』《》")
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
    """What keeps two close texts apart: length, number or word; None when nothing does."""
    folded_a, folded_b = normalise_text(a), normalise_text(b)
    if folded_a == folded_b:
        return None
    if max(len(folded_a), len(folded_b)) > contrasts.chars_max:
        return "length"
    apart = _first_apart(_tokens(folded_a, contrasts), _tokens(folded_b, contrasts))
    if apart is None:
        return None
    return "number" if any(_SPELT.match(token.text) for token in apart) else "word"


@dataclass(frozen=True, slots=True)
class _Token:
    """`empty`: it may be missing in the other text.  `mark`: it is punctuation, which may also stand where a word is missing."""

    text: str
    empty: bool
    mark: bool = False


_NOTHING = _Token("", empty=False)


def _first_apart(one: list[_Token], other: list[_Token]) -> tuple[_Token, _Token] | None:
    """The first two places at which the texts say something else, going through both at once."""
    i = j = 0
    while i < len(one) or j < len(other):
        left, right = one[i] if i < len(one) else _NOTHING, other[j] if j < len(other) else _NOTHING
        if left.text == right.text:
            i, j = i + 1, j + 1
        elif left.empty and (not right.empty or left.mark or _next(one, i) == right.text):
            i += 1
        elif right.empty and (not left.empty or right.mark or _next(other, j) == left.text):
            j += 1
        else:
            return left, right
    return None


def _next(tokens: list[_Token], place: int) -> str:
    return tokens[place + 1].text if place + 1 < len(tokens) else ""


def _tokens(folded: str, contrasts: Contrasts) -> list[_Token]:
    """Words, signs of unspaced scripts and runs of other signs, each with whether it says anything."""
    text = _spelt_alike(folded.translate(_CURLY), contrasts)
    empty_at = {match.start(): match.end() for match in contrasts.empty_chinese.finditer(text)}
    tokens: list[_Token] = []
    emptied_to = 0
    for match in _TOKEN.finditer(text):
        if match.start() in empty_at and match.start() > 0:  # what a text begins with is what it is about: 的士
            emptied_to = empty_at[match.start()]
        mark = _is_punctuation(match, text)
        empty = mark or match.start() < emptied_to or _is_empty(match, text, contrasts)
        tokens.append(_Token(match.group(), empty, mark))
    return tokens


def _is_empty(match: re.Match[str], text: str, contrasts: Contrasts) -> bool:
    word, rest = match.group(), text[match.end() : match.end() + 3].lstrip()
    if word in contrasts.empty_endings:
        return not rest or rest[0] in _CLAUSE_END or rest[0] in "!?"
    if word in ("a", "an"):
        return bool(_TWO_LETTERS.match(rest))  # the article of a word, not a name: vitamin A, key a
    return word in contrasts.empty_words


def _is_punctuation(match: re.Match[str], text: str) -> bool:
    """Ends a clause or quotes: directly behind a word, and nothing but space or an unspaced script behind it."""
    signs = set(match.group())
    if signs <= _QUOTES:
        return True
    before, behind = text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
    attached = bool(before) and not before.isspace()
    ends = not behind or behind.isspace() or _UNSPACED_SIGN.match(behind) is not None
    return (
        signs <= _CLAUSE_END | _QUOTES
        and len(signs & _CLAUSE_END) == 1
        and attached
        and ends
        and ".." not in match.group()
    )


def _spelt_alike(text: str, contrasts: Contrasts) -> str:
    """Numbers, dates, units, versions, tools and "don't" in one spelling.  Number words count like digits: 三次, 3 次, three times."""
    text = _SHORTENED.sub(lambda short: f"{_WHOLE.get(short[1], short[1])} not", text)
    text = _DATE.sub(lambda date: f"\ue000{date[1]}-{int(date[2])}-{int(date[3])}\ue001", text)
    text = _VERSION_MARK.sub("", text)
    kept = re.compile(f"{_SPELT.pattern}|{contrasts.not_numeral.pattern}")
    text = _between(kept, text, lambda part: _numbers_in(part, contrasts))
    for number, tool in enumerate(contrasts.tools):
        text = tool.sub(f"\ue000tool {number}\ue001", text)
    return text


def _between(skipped: re.Pattern[str], text: str, change: Callable[[str], str]) -> str:
    """`text` with what lies between the matches of `skipped` changed."""
    parts, end = [], 0
    for match in skipped.finditer(text):
        parts += [change(text[end : match.start()]), match.group()]
        end = match.end()
    return "".join([*parts, change(text[end:])])


def with_digits(text: str, contrasts: Contrasts) -> str:
    """Folded text with its number words as digits: 五岁 → 5岁, two cups → 2 cups."""
    text = contrasts.english_number.sub(lambda word: contrasts.english_numbers[word.group()], text)
    return contrasts.chinese_number.sub(lambda numeral: _arabic(numeral.group()), text)


def _numbers_in(text: str, contrasts: Contrasts) -> str:
    def one_spelling(match: re.Match[str]) -> str:
        return f"\ue000{_value(match)} {contrasts.unit_of.get(match['unit'] or '', '')}\ue001"

    return contrasts.quantity.sub(one_spelling, with_digits(text, contrasts))


def _value(match: re.Match[str]) -> str:
    """Without separators; with a magnitude multiplied out.  3.10 and 3.1 stay different, because they may be versions."""
    digits = match["value"].replace(",", "")
    times = _MAGNITUDES.get(match["magnitude"] or "", 1000 if match["k"] else 1)
    if times == 1 or digits.count(".") > 1:
        return digits.lstrip("0") or "0"
    return format((Decimal(digits) * times).quantize(Decimal("0.000001")).normalize(), "f")


def _arabic(numeral: str) -> str:
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
