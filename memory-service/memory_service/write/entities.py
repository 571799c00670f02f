"""Which names does a text hold: people, tools, paths, codes, numbers, dates, quoted terms?

Patterns come from config/summarise.toml.  Types claim text in the order of the file, so the port in a URL is no number.
Only the analysed part of a text is searched.  It must not look anything up.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from memory_service.write.rules import NameRule, SummaryRules
from memory_service.write.sentences import QUOTATION

_TRAILING = " \t\n.,;:!?，。；：！？、)]}>'\"”’」』》"
_CAPITALISED = re.compile(r"[A-Z][A-Za-z'’-]{0,40}(?:[ ][A-Z][A-Za-z'’-]{0,40}){0,8}")
_SENTENCE_START = re.compile(r"(?:^|[.!?。！？：:；;\n\"“(（\-*])\s*$")
_NEXT_WORD = re.compile(r"[ ]{1,2}([a-z']{1,20})")
_LOOK_BACK_CHARS = 4
_SHOUTED_CHARS_MIN = 12  # a longer word in capitals is emphasis or a constant


class Entity(NamedTuple):
    name: str
    type: str


def entities(text: str, rules: SummaryRules) -> tuple[Entity, ...]:
    """Distinct entities in order of appearance, at most `entities_max`.  `text` is the analysed part of a content."""
    claimed = bytearray(len(text))
    found: list[tuple[int, Entity]] = []
    for rule in rules.entities:
        for pattern in rule.patterns:
            found.extend(_matches(text, pattern, rule.type, claimed))
    found.extend(_names(text, rules.names, claimed))
    found.extend(_quoted(text, rules.limits.quoted_chars_max, {entity.name for _, entity in found}))
    found.sort(key=lambda at_entity: at_entity[0])
    distinct = {(entity.name.casefold(), entity.type): entity for _, entity in reversed(found)}
    return tuple(reversed(distinct.values()))[: rules.limits.entities_max]


def _matches(text: str, pattern: re.Pattern[str], type_name: str, claimed: bytearray) -> Iterator[tuple[int, Entity]]:
    for match in pattern.finditer(text):
        start, end = match.span(match.lastindex or 0)
        while end > start and text[end - 1] in _TRAILING:
            end -= 1
        if start < end and not any(claimed[start:end]):
            claimed[start:end] = b"\x01" * (end - start)
            yield start, Entity(text[start:end], type_name)


def _quoted(text: str, chars_max: int, taken: set[str]) -> Iterator[tuple[int, Entity]]:
    """A quoted term may hold other entities; one that is exactly another entity is not named twice."""
    for match in QUOTATION.finditer(text):
        term = (match.group(match.lastindex) if match.lastindex else "").strip()
        if 1 < len(term) <= chars_max and term not in taken:
            yield match.start(), Entity(term, "quoted")


def _names(text: str, rule: NameRule, claimed: bytearray) -> Iterator[tuple[int, Entity]]:
    spans = [(match.start(), words) for match in _CAPITALISED.finditer(text) for words in [match.group().split(" ")]]
    inside = {word for start, words in spans if not _starts_sentence(text, start) for word in words}
    for start, words in spans:
        if start and (text[start - 1].isascii() and (text[start - 1].isalnum() or text[start - 1] in "_./@-")):
            continue
        at, kept = _trimmed(words, rule)
        end = start + at + len(" ".join(kept))
        if not kept or any(claimed[start + at : end]):
            continue
        lone_start = len(kept) == 1 and at == 0 and _starts_sentence(text, start)
        if lone_start and not (kept[0] in inside or _verb_follows(text, end, rule)):
            continue
        claimed[start + at : end] = b"\x01" * (end - start - at)
        yield start + at, Entity(" ".join(kept), rule.type)


def _trimmed(words: Sequence[str], rule: NameRule) -> tuple[int, list[str]]:
    """Leading words that are no names are cut; the offset in characters of the rest, and its words up to the next such word."""
    offset = 0
    remaining = list(words)
    while remaining and _is_no_name(remaining[0], rule):
        offset += len(remaining.pop(0)) + 1
    kept: list[str] = []
    for word in remaining[: rule.words_max]:
        if _is_no_name(word, rule):
            break
        kept.append(word)
    if kept and kept[-1].endswith(("'s", "’s")):
        kept[-1] = kept[-1][:-2]
    return offset, [word for word in kept if word]


def _is_no_name(word: str, rule: NameRule) -> bool:
    bare = word.strip("'’-").casefold().replace("’", "'")
    return (
        len(bare) < 2
        or bare in rule.not_names
        or bare.removesuffix("'s") in rule.not_names
        or (word.isupper() and len(word) >= _SHOUTED_CHARS_MIN)
    )


def _starts_sentence(text: str, start: int) -> bool:
    return start == 0 or _SENTENCE_START.search(text[max(0, start - _LOOK_BACK_CHARS) : start]) is not None


def _verb_follows(text: str, end: int, rule: NameRule) -> bool:
    follower = _NEXT_WORD.match(text, end)
    return follower is not None and follower.group(1) in rule.after_lone
