"""Which pieces of patterns do the languages share?  Pure.  It reads nothing itself."""

import re
from collections.abc import Callable, Iterable
from datetime import datetime

from memory_service.recall.time_rules import Reading, Rule
from memory_service.recall.time_spans import When, day_start, later, span_of

NUMBER = "#"  # the cue of texts with a digit
SHIFTS = {"last": -1, "past": -1, "previous": -1, "prior": -1, "this": 0, "current": 0, "next": 1, "coming": 1}
PARTS = {
    "early": "early",
    "beginning": "start",
    "start": "start",
    "mid": "mid",
    "middle": "mid",
    "late": "late",
    "end": "end",
    "first week": "start",
    "last week": "end",
}
PART_CUES = frozenset(word for name in PARTS for word in name.split())
# "the end may come", "start 2,000 servers": those need "of".
PART = r"(?P<part>(?:early|mid|late)(?=[ -])|(?:beginning|start|middle|end|first week|last week)(?= of\b))(?: of|-| in)?(?: the)? ?"
NO_PART = "(?P<part>(?!))"
YEAR = r"(?P<year>\d{4})"
BEFORE, AFTER = r"(?<![\w./:#@-])", r"(?!\w|[./:-]\w)"
Read = Callable[[re.Match[str], datetime], Reading | None]


def rules_of(cues: Iterable[str], *made: tuple[str, Read], also: Iterable[str] = ()) -> list[Rule]:
    """A pattern with PART becomes two: an optional beginning slows each position of the text, and few texts have one."""
    rules = []
    for pattern, read in made:
        if PART in pattern:
            rules.append(Rule(frozenset(cues), _compiled(pattern), read, PART_CUES))
        rules.append(Rule(frozenset(cues), _compiled(pattern.replace(PART, NO_PART)), read, frozenset(also)))
    return rules


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII | re.IGNORECASE)


def vague_span(now: datetime, fewest: int, most: int) -> When | None:
    """At least and at most so many days ago."""
    today = day_start(now)
    return span_of(later(today, -most), later(today, 1 - fewest))
