"""Which part of a message was written, and what is left of it without that part?  Pure, characters only."""

import re
from collections.abc import Sequence

Span = tuple[int, int]
ALL = 2**31 - 1  # the end of a message that is cut whole, however long it is


def spans_of(content: str, sentences: Sequence[str]) -> tuple[Span, ...]:
    """Where the sentences stand; the whole content when one of them can't be found as it was read."""
    found, text = [], re.sub(r"(?<=[A-Za-z])’(?=[A-Za-z])", "'", content)  # as `triggers` read it, same length
    for sentence in sentences:
        start = text.find(sentence)
        if start < 0:
            return ((0, len(content)),)
        found.append((start, start + len(sentence)))
    return tuple(found)


def merged_spans(spans: Sequence[Span]) -> tuple[Span, ...]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)


def without(content: str, spans: Sequence[Span]) -> str:
    """The content without these parts."""
    if not spans:
        return content
    kept, at = [], 0
    for start, end in spans:
        kept.append(content[at:start].strip())
        at = end
    kept.append(content[at:].strip())
    return " ".join(part for part in kept if part)
