"""What in an argument's value is general, and what belongs to this one run?

Recognises ids, numbers and times, and keeps of a value what a later task can share: a path prefix, a file type, a host, the
type before an id, the way a date is written.  Pure text work; it must not know about lessons.
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_HEX = re.compile(r"(?=[0-9a-fA-F]*\d)(?=[0-9a-fA-F]*[a-fA-F])[0-9a-fA-F]{8,}")
_NUMBER = re.compile(r"[+-]?\d+(?:[.,]\d+)*%?")
_TIME_CHARS = re.compile(r"(?=(?:\D*\d){4})[\d\-/:.TZ+ ]{6,40}")
_CODE = re.compile(r"(?=[A-Z0-9]*\d)(?=[A-Z0-9]*[A-Z])[A-Z0-9]{4,16}")  # booking codes, order numbers
_DIGIT_RUN = re.compile(r"\d{3,}")
_TYPED_ID = re.compile(r"([A-Za-z]+(?:[_\-:][A-Za-z]+){0,4}[_\-:#])([A-Za-z0-9]*\d[A-Za-z0-9]*)")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]{1,20}://[^/\s?#]{1,200})(/[^\s?#]*)?(?:[?#]\S*)?")
_PATH = re.compile(r"(?:[A-Za-z]:)?[^\s?#]*[/\\][^\s?#]*(?:[?#]\S*)?")
_EXTENSION = re.compile(r"\.([A-Za-z][A-Za-z0-9]{0,5})$")
# A setting keeps its digits: utf-16, sha256, v2 are no ids.
_SETTING = re.compile(
    r"(?:^|_)(?:encoding|charset|codec|format|version|mode|algorithm|hash|type|unit|lang|language|locale|timezone|method|order_by|sort"
    r"|level|dialect|separator|delimiter|engine|model|region|protocol)(?:$|_)",
    re.IGNORECASE,
)
_FACTORS = (100, 1000, 10_000, 1_000_000)  # cents, thousandths, basis points, millionths
_LIMIT = re.compile(
    r"(?:limit|size|count|max|top|batch|page|rows|num|length|chunk|per|depth|width|timeout)", re.IGNORECASE
)

_COMMAND = re.compile(r"(?:^|_)(?:cmd|command|shell|bash|script|commandline)(?:$|_)", re.IGNORECASE)
_CONTENT = re.compile(r"(?:^|_)(?:body|content|contents|text|data|payload|message|html|markdown)(?:$|_)", re.IGNORECASE)
_FILE = re.compile(r"[^\s/\\:?#]{1,200}")
_FILE_NAME = re.compile(
    r"(?:^|_)(?:file|filename|path|name|source|src|dest|destination|target|input|output|document|image|attachment)(?:$|_)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Resource:
    """`prefix` ends before the first id; `extension` with its dot, "" without one; `by_id`: an id was cut off."""

    prefix: str
    extension: str
    by_id: bool


def is_setting_name(name: str) -> bool:
    return _SETTING.search(name.rpartition(".")[2]) is not None


def is_limit_name(name: str) -> bool:
    return _LIMIT.search(name.rpartition(".")[2]) is not None


def is_command_name(name: str) -> bool:
    return _COMMAND.search(name.rpartition(".")[2]) is not None


def is_content_name(name: str) -> bool:
    """What is written or sent: it differs from call to call and is seldom the matter."""
    return _CONTENT.search(name.rpartition(".")[2]) is not None


def same_command(failed: str, worked: str) -> bool:
    """Whether two command lines call the same program and, where both name one, the same subcommand: `git push`."""
    one, other = failed.split(), worked.split()
    if not one or not other or one[0] != other[0]:
        return False
    subcommands = [
        parts[1] for parts in (one, other) if len(parts) > 1 and re.fullmatch(r"[a-z][a-z\-]{1,30}", parts[1])
    ]
    return len(subcommands) < 2 or subcommands[0] == subcommands[1]


def file_types(name: str, before: Any, after: Any) -> tuple[str, str] | None:
    """The two extensions of bare file names that differ in them; a dotted word elsewhere is one only with the same stem."""
    if not all(isinstance(value, str) and _FILE.fullmatch(value) for value in (before, after)):
        return None
    found = [_EXTENSION.search(value) for value in (before, after)]
    if found[0] is None or found[1] is None or found[0].group().lower() == found[1].group().lower():
        return None
    same_stem = before[: found[0].start()] == after[: found[1].start()]
    named = _FILE_NAME.search(name.rpartition(".")[2]) is not None
    return (found[0].group().lower(), found[1].group().lower()) if same_stem or named else None


def root_of(value: Any) -> str:
    """The host of a URL with its slash, or the first folder of a path: what resources of one service share.  "" for none."""
    found = resource(value)
    if found is None:
        return ""
    url = _URL.fullmatch(value)
    if url:
        return f"{url.group(1)}/"
    first = re.match(r"(?:[A-Za-z]:)?[/\\]?[^/\\]+[/\\]", found.prefix)
    return first.group() if first else ""


def is_identifier(text: str) -> bool:
    """An id, number, date or code that another run will not meet again."""
    text = text.strip()
    whole = (_UUID, _HEX, _NUMBER, _TIME_CHARS, _CODE)
    return any(pattern.fullmatch(text) for pattern in whole) or (
        " " not in text and _DIGIT_RUN.search(text) is not None
    )


def is_general(name: str, value: Any, chars_max: int) -> bool:
    """Whether another run can have this very value: booleans, short words, settings; no ids, no long texts, no lists."""
    if isinstance(value, bool):
        return True
    if not isinstance(value, str) or not value.strip() or len(value) > chars_max:
        return False
    return is_setting_name(name) or not is_identifier(value)


def type_before_id(value: Any) -> str:
    """`gift_card_` of `gift_card_8190333`; "" when the value is not written so."""
    found = _TYPED_ID.fullmatch(value) if isinstance(value, str) else None
    return found.group(1) if found else ""


def resource(value: Any) -> Resource | None:
    """What is general of a URL or path; None for anything else."""
    if not isinstance(value, str) or len(value) > 1000:
        return None
    url = _URL.fullmatch(value)
    if not url and not _PATH.fullmatch(value):
        return None
    start, path = (url.group(1), url.group(2) or "") if url else ("", re.split(r"[?#]", value, maxsplit=1)[0])
    mark = "\\" if "\\" in path and "/" not in path else "/"
    segments = path.split(mark)
    kept = 0
    while kept < len(segments) and not (segments[kept] and _is_id_segment(segments[kept])):
        kept += 1
    by_id = kept < len(segments)
    last = segments[-1]
    extension = _EXTENSION.search(last)
    if by_id:
        prefix = mark.join(segments[:kept]) + (mark if kept else "")
    elif extension and len(segments) > 1:
        prefix = mark.join(segments[:-1]) + mark
    else:
        prefix = path
    return Resource(f"{start}{prefix}", f".{extension.group(1).lower()}" if extension else "", by_id)


def _is_id_segment(segment: str) -> bool:
    stem = segment.rpartition(".")[0] if _EXTENSION.search(segment) else segment
    return is_identifier(stem) or bool(type_before_id(stem) and _DIGIT_RUN.search(stem))


def written_like(value: Any) -> str:
    """RE2 pattern of how a value is written, whole: digits by number, letters by case.  "" when that says nothing general."""
    if not isinstance(value, str) or not 1 <= len(value) <= 40 or _CODE.fullmatch(value) or _UUID.fullmatch(value):
        return ""
    parts = re.findall(r"\d+|[a-z]+|[A-Z]+|[A-Za-z]+|\s+|[^\w\s]+|\w", value)
    timelike = _TIME_CHARS.fullmatch(value) is not None
    pattern = ""
    for part in parts:
        if part.isdigit():
            pattern += rf"\d{{{len(part)}}}" if timelike else r"\d+"
        elif part.isascii() and part.isalpha():
            pattern += part if timelike else "[a-z]+" if part.islower() else "[A-Z]+"
        elif part.isspace():
            pattern += r"\s+"
        else:
            pattern += re.escape(part)
    return f"^{pattern}$"


def power_of_ten(before: Any, after: Any) -> int:
    """100 for 12.5 and 1250: the same amount in a smaller unit as a whole number; 0 otherwise.

    A text counts when it begins with the number ("12.5 EUR").
    """
    if isinstance(after, bool) or not isinstance(after, int) or not after:
        return 0
    found = (
        re.match(r"[+-]?\d{1,15}(?:\.\d{1,6})?(?![\d.,])", str(before))
        if isinstance(before, str | float | int)
        else None
    )
    if found is None or isinstance(before, bool):
        return 0
    value = Decimal(found.group())
    return next((factor for factor in _FACTORS if value * factor == after), 0)


def words_swapped(before: Any, after: Any, words_max: int) -> tuple[str, str] | None:
    """The one stretch in which two long texts differ, (what stood there, what stands there now); None when more differs, when
    nothing was there before, or when a stretch has more than `words_max` words.
    """
    if not isinstance(before, str) or not isinstance(after, str):
        return None
    old, new = before.split(), after.split()
    shorter = min(len(old), len(new))
    start = next((n for n in range(shorter) if old[n] != new[n]), shorter)
    end = next((n for n in range(shorter - start) if old[-1 - n] != new[-1 - n]), shorter - start)
    was, now = old[start : len(old) - end], new[start : len(new) - end]
    kept = start + end
    if not was or not now or max(len(was), len(now)) > words_max or kept < len(was) + len(now):
        return None
    return " ".join(was), " ".join(now)


def differ_in_writing(failed: Any, worked: Any) -> bool:
    """Whether two values say the same kind of thing in two formats: dates, numbers with units, upper and lower case."""
    if not isinstance(failed, str) or not isinstance(worked, str):
        return False
    one, other = written_like(failed), written_like(worked)
    if not one or not other or one == other:
        return False
    if failed.casefold() == worked.casefold():
        return True
    times = [_TIME_CHARS.fullmatch(value) is not None for value in (failed, worked)]
    bare = [re.sub(r"[^0-9]", "", value) for value in (failed, worked)]
    return (any(times) and all(len(digits) >= 4 for digits in bare)) or (bare[0] == bare[1] != "")
