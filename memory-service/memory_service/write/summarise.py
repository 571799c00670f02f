"""What is this text, in one sentence and a few labels?

The deterministic twin of a language model: event type, category, one-sentence summary, entities and importance, by the
rules of config/summarise.toml, for English, Chinese and mixed text.  Same text, same answer.  It must not do I/O and must
not decide where the memory goes; `routing` does that.

Long texts are read at their head and tail only (limits in the rules); every pattern sees a bounded piece, so the work is
linear in the length of the text.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from memory_service.write.entities import Entity, entities
from memory_service.write.event_types import Reading, cue_weight, read_event_type
from memory_service.write.importance import importance
from memory_service.write.rules import SummaryRules, load_summary_rules
from memory_service.write.sentences import analysed_part, sentences, without_quotations

__all__ = ["Entity", "Summary", "SummaryRules", "load_summary_rules", "shortened", "summarise"]

_CUT_AT = re.compile(r"[\s，,、；;：:)）]")
_ELLIPSIS = "…"
_UNSHOWN = ("Cc", "Cs", "Zl", "Zp", "Cn", "Co")


@dataclass(frozen=True, slots=True)
class Summary:
    """`text` is the one-sentence summary, on one line; `category` is None when the text holds no lasting knowledge; importance is 0..1."""

    event_type: str
    category: str | None
    text: str
    entities: tuple[Entity, ...]
    importance: float


def summarise(content: str, rules: SummaryRules) -> Summary:
    """Read `content`, which may be of any length and is not blank."""
    text = analysed_part(content, rules.limits)
    parts = sentences(text, rules.limits.sentence_chars_max)
    reading = read_event_type(parts, rules)
    found = entities(text, rules)
    return Summary(
        event_type=reading.event_type.name,
        category=reading.category,
        text=_one_sentence(content, parts, reading, found, rules),
        entities=found,
        importance=importance(without_quotations(text), reading.event_type, len(found), rules.importance),
    )


def kind_of_text(content: str, rules: SummaryRules) -> Summary:
    """Event type and category alone, which tell where the text belongs, for a text that is to be stored as it is given.

    The rest is left empty: names, sentence and importance are most of the work.
    """
    reading = read_event_type(sentences(analysed_part(content, rules.limits), rules.limits.sentence_chars_max), rules)
    return Summary(reading.event_type.name, reading.category, "", (), 0.0)


def _one_sentence(
    content: str, parts: Sequence[str], reading: Reading, found: Sequence[Entity], rules: SummaryRules
) -> str:
    """Short content as it is on one line; else its most informative sentence, cut at a word when that is too long."""
    chars_max = rules.limits.summary_chars_max
    if len(content) <= chars_max:
        return " ".join(content.split())
    if not parts:  # nothing but symbols
        return shortened(" ".join(content[: chars_max * 4].split()), chars_max)
    worth = [_worth(part, position, reading, found, rules) for position, part in enumerate(parts)]
    return shortened(" ".join(parts[worth.index(max(worth))].split()), chars_max)


def _worth(part: str, position: int, reading: Reading, found: Sequence[Entity], rules: SummaryRules) -> float:
    rule = rules.sentence
    named = sum(1 for entity in found if entity.name in part)
    worth = rule.cue_weight * cue_weight(part, reading.event_type) + rule.entity_weight * min(
        named, rule.entity_count_max
    )
    if position == 0:
        worth += rule.first_bonus
    if len(part) < rule.short_chars:
        worth -= rule.short_penalty
    if any(pattern.search(part) for pattern in rule.log_line):
        worth -= rule.log_penalty
    return worth


def visible_line(text: str) -> str:
    """What a model wrote, on one line: controls, surrogates and unassigned characters are spaces, and white space is folded."""
    shown = "".join(" " if unicodedata.category(c) in _UNSHOWN else c for c in text)
    return " ".join(shown.split())


def shortened(line: str, chars_max: int) -> str:
    """At most `chars_max` characters; cut at the last word or clause end in the second half, marked by an ellipsis."""
    if len(line) <= chars_max:
        return line
    head = line[: chars_max - len(_ELLIPSIS)]
    cuts = [match.start() for match in _CUT_AT.finditer(head) if match.start() > chars_max // 2]
    return (head[: cuts[-1]] if cuts else head).rstrip() + _ELLIPSIS
