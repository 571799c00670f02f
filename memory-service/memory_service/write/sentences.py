"""Where does a sentence end, and what in it is somebody else's words?

Splits English, Chinese and mixed text into bounded sentences and blanks quotations.  It must not judge sentences.
"""

import re
from collections.abc import Iterator

from memory_service.write.rules import Limits

# A full stop ends a sentence only before white space and not after a known abbreviation, so "v1.2", "app.log" and
# "e.g. this" stay whole.  Closing quotes and brackets belong to the sentence they follow.
_END = re.compile(r"[。！？!?；]{1,5}[”’」』）)\"']{0,2}|\.{1,3}[\"')”’]{0,2}(?=\s|$)|\n")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:e\.g|i\.e|etc|vs|cf|approx|mr|mrs|ms|dr|prof|st|no|fig|jr|sr|inc|ltd|[A-Z])$", re.IGNORECASE
)
_ABBREVIATION_CHARS = 8
QUOTATION = re.compile(
    r"“([^“”\n]{1,300})”|‘([^‘’\n]{1,300})’|「([^「」\n]{1,300})」|『([^『』\n]{1,300})』|《([^《》\n]{1,100})》|\"([^\"\n]{1,300})\"|`([^`\n]{1,200})`"
    r"|(?<![A-Za-z0-9_])'([^'\n]{1,300}(?:'(?=[a-z])[^'\n]{1,300}){0,6})'(?![A-Za-z0-9_])"
)
_VISIBLE = re.compile(r"\w")


def analysed_part(text: str, limits: Limits) -> str:
    """Head and tail of a long text with a line break between; the whole of a short one.  Same apostrophes everywhere."""
    if len(text) > limits.head_chars_max + limits.tail_chars_max:
        text = f"{text[: limits.head_chars_max]}\n{text[len(text) - limits.tail_chars_max :]}"
    return re.sub(r"(?<=[A-Za-z])’(?=[A-Za-z])", "'", text)


def sentences(text: str, chars_max: int) -> list[str]:
    """Stripped sentences with a letter or digit in them, in order; one longer than `chars_max` is cut into pieces."""
    found: list[str] = []
    for sentence in _raw_sentences(text):
        stripped = sentence.strip()
        for start in range(0, len(stripped), chars_max):
            piece = stripped[start : start + chars_max].strip()
            if _VISIBLE.search(piece):
                found.append(piece)
    return found


def _raw_sentences(text: str) -> Iterator[str]:
    start = 0
    for end in _END.finditer(text):
        before = text[max(start, end.start() - _ABBREVIATION_CHARS) : end.start()]
        if end.group().startswith(".") and _ABBREVIATION.search(before):
            continue
        yield text[start : end.end()]
        start = end.end()
    yield text[start:]


def without_quotations(sentence: str) -> str:
    """The sentence with the inside of quotations blanked, same length; unchanged when it is nothing but a quotation."""
    blanked = QUOTATION.sub(lambda quoted: " " * len(quoted.group()), sentence)
    return blanked if _VISIBLE.search(blanked) else sentence
