"""Which of the expressions found are times, and which belong together?  Pure.

Drops what the words around it deny ("May said", "error 2024"), joins pairs ("between May and July", 从三月到五月) and bounds
what is left ("since March", 去年以来, "the week before 9 June").  It reads no expression itself.  The words here are those of
its own grammar; names and numbers are in config/time_expressions.toml.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from memory_service.recall.time_rules import English, Need
from memory_service.recall.time_spans import (
    DAY,
    EARLIEST,
    LATEST,
    Recurring,
    Span,
    Unit,
    When,
    shifted,
    span_of,
    unit_span,
)

ANY_CASE = re.IGNORECASE | re.ASCII  # ASCII: in 我since a word begins after the 我
HEAD_CHARS = 24  # before an expression, for the words that need or bound it
CLAUSE_END = re.compile(
    r"['’]?s? ?(?:$|[?.!,;:)\]。？！，；](?!\w)|(?:and|or|to|until|till|through|when|with|at)\b|[\u4e00-\u9fff])", re.I
)
BETWEEN_WORDS = re.compile(r"(?:\b(between|from)|(从|自|在)) ?(?:the |early |about )?$", ANY_CASE)
JOIN = re.compile(r" ?(?:to|until|till|through|thru|-|–|—|~|～|到|至) ?(?:the )?", ANY_CASE)
AND = re.compile(r" ?(?:and|&|和|与|跟) ?(?:the )?", ANY_CASE)
BOUND_BEFORE = re.compile(
    r"(?:\b(since|after|before|prior to|until|till|up to|by)|(自从|自|截至|截止到?)) ?(?:the |about |around |early )?$",
    ANY_CASE,
)
LISTED = {"or", "/", "、", "或", ","}
FROM_ON = re.compile(r" ?(?:on|onwards?|forward)\b(?! \w+day)", ANY_CASE)
BESIDE = re.compile(r"\b(?:the )?(day|week|weekend|month|year) (before|after|of) (?:the )?$", ANY_CASE)
BOUND_AFTER = re.compile(
    r" ?(?:(之前|以前|前(?![一二两三四五六七八九十几半\d面期者后台端]))|(之后|以后|后(?![一二三四五六七八九十几半\d面期来台端悔]))"
    r"|(以来|至今|开始|起(?![来床飞])))"
)
WEEKDAY_OF = re.compile(r" ?(?:[,(（的]|on|of|in)? ?(?:the )?", ANY_CASE)
BESIDE_UNITS: dict[str, Unit] = {"day": "day", "week": "week", "weekend": "week", "month": "month", "year": "year"}
WEEK_AND_A_DAY = 8 * DAY
SINCE = {"since", "自从", "自"}
BEFORE = {"before", "prior to"}
UNTIL = {"until", "till", "up to", "by", "截至", "截止", "截止到"}


@dataclass(frozen=True, slots=True)
class Found:
    """An expression at text[begin:end]."""

    begin: int
    end: int
    whens: tuple[When, ...]
    need: Need = "nothing"


def supported(found: Sequence[Found], text: str, english: English) -> list[Found]:
    """Without those that are no times: a bare number or a name needs a word like "in" before it."""
    kept: list[Found] = []
    for position, one in enumerate(found):
        head = text[max(one.begin - HEAD_CHARS, 0) : one.begin].lower()
        before = head.removesuffix("the ").removesuffix("about ").removesuffix("around ").split()
        if before and before[-1].strip("(,:\"'#") in english.never_after:
            continue
        last = kept[-1] if kept else None
        follows = last is not None and _follows(last, one, text)
        after = found[position + 1] if position + 1 < len(found) else None
        leads = after is not None and _same_kind(one, after) and _paired(text, one, after)
        if one.need == "nothing" or follows or leads or _has_before(one, head, before, text, english):
            kept.append(one)
    return kept


def _follows(last: Found, one: Found, text: str) -> bool:
    """It shares the "in" of the one before: "in May, June and July"; not "last week, may I …"."""
    gap = text[last.end : one.begin]
    listed = AND.fullmatch(gap) or gap.strip() in LISTED
    return bool(JOIN.fullmatch(gap) or _paired(text, last, one) or (listed and last.need == one.need))


def _paired(text: str, one: Found, after: Found) -> bool:
    """The first of "March to May" or of "between 2021 and 2023"."""
    gap = text[one.end : after.begin]
    told = BETWEEN_WORDS.search(text, max(one.begin - HEAD_CHARS, 0), one.begin)
    return bool(JOIN.fullmatch(gap) and (told or one.need != "year")) or bool(told and AND.fullmatch(gap))


def _has_before(one: Found, head: str, before: Sequence[str], text: str, english: English) -> bool:
    word = before[-1] if before else ""
    ends = CLAUSE_END.match(text, one.end) is not None
    if one.need == "year":
        return word in english.year_after or head.endswith(("在", "prior to "))
    if one.need == "month":
        if word == "from" and FROM_ON.match(text, one.end):
            return True
        return word in english.month_after or (word in english.month_after_at_end and ends) or head.endswith("在")
    if one.need == "date":
        return ends or word in english.month_after or word in english.weekday_after
    if one.need == "weekday":
        return word in english.weekday_after or ends
    return " ".join(head.split()[-2:]) in english.named_after or (head.split() or [""])[-1] in english.named_after


def _same_kind(one: Found, other: Found) -> bool:
    """A pair has two stretches, or two that come back with the same period."""
    a, b = one.whens[0], other.whens[0]
    if isinstance(a, Recurring) and isinstance(b, Recurring):
        return a.period == b.period
    return not any(isinstance(w, Recurring) and w.period == "week" for w in (a, b))


def joined(found: Sequence[Found], text: str, now: datetime) -> list[Found]:
    """Pairs made one, then each bounded by what is said of it."""
    pairs: list[Found] = []
    for one in found:
        last = pairs[-1] if pairs else None
        if last is not None and WEEKDAY_OF.fullmatch(text, last.end, one.begin) and (one_day := _narrowed(last, one)):
            pairs[-1] = replace(last, end=one.end, whens=(one_day,))
            continue
        pair = _pair(last, one) if last and _same_kind(last, one) and _paired(text, last, one) else None
        if last is not None and pair is not None:
            pairs[-1] = replace(last, end=one.end, whens=(pair,))
        else:
            pairs.append(one)
    return [bounded for one in pairs for bounded in [_bounded(one, text, now)] if bounded.whens]


def _narrowed(one: Found, other: Found) -> When | None:
    """Of a weekday beside a date or a week ("last week on Friday", 5月8日周一): the day.  None when neither is a weekday."""
    a, b = one.whens[0], other.whens[0]
    weekdays = [w for w in (a, b) if isinstance(w, Recurring) and w.period == "week"]
    if len(weekdays) != 1:
        return None
    weekday, of = weekdays[0], b if weekdays[0] is a else a
    if isinstance(of, Recurring) or of.end - of.start > WEEK_AND_A_DAY:
        return of
    return next((span for span in weekday.near(of.end) if span.start >= of.start and span.end <= of.end), of)


def _pair(one: Found, other: Found) -> When | None:
    """From the start of one to the end of the other.  Where only one says its year, the other takes the nearest."""
    a, b = one.whens[0], other.whens[0]
    if isinstance(a, Recurring) and isinstance(b, Recurring):
        return Recurring(a.period, a.first, b.last)
    first = a if isinstance(a, Span) else a.latest(b.start) if isinstance(b, Span) else None
    last = b if isinstance(b, Span) else b.next_from(first.start) if first else None
    return span_of(first.start, last.end) if first and last else None


def _bounded(one: Found, text: str, now: datetime) -> Found:
    """ "since", "before" and the like applied; words that say nothing of it are left out of its text."""
    before = BOUND_BEFORE.search(text, max(one.begin - HEAD_CHARS, 0), one.begin)
    after = BOUND_AFTER.match(text, one.end)
    started = BETWEEN_WORDS.search(text, max(one.begin - HEAD_CHARS, 0), one.begin)
    begin, end, word = one.begin, one.end, ""
    if before:
        begin, word = before.start(), (before[1] or before[2]).lower()
    elif started and started[0].strip().lower() in ("from", "the from") and (on := FROM_ON.match(text, one.end)):
        begin, end, word = started.start(), on.end(), "since"
    if after and word in ("", "自", "自从"):
        end, word = after.end(), "before" if after[1] else "after" if after[2] else "since"
    beside = BESIDE.search(text, max(one.begin - HEAD_CHARS, 0), one.begin)
    if beside:
        whens = tuple(near for when in one.whens if (near := _beside(when, beside, now)) is not None)
        return Found(beside.start(), one.end, whens or one.whens)
    if not word:
        return one
    whens = tuple(bound for when in one.whens if (bound := _bound(when, word, now)) is not None)
    return Found(begin, end, whens)


def _beside(when: When, beside: re.Match[str], now: datetime) -> Span | None:
    """ "the week before 9 June 2023"; the week of a day.  None when that says nothing, as the week of a month."""
    span = when if isinstance(when, Span) else when.latest(now)
    unit = BESIDE_UNITS[beside[1].lower()]
    if span is None:
        return None
    if beside[2].lower() == "before":
        return span_of(shifted(span.start, unit, -1), span.start)
    if beside[2].lower() == "after":
        return span_of(span.end, shifted(span.end, unit, 1))
    return unit_span(span.start, unit, 0) if span.end - span.start <= DAY else None


def _bound(when: When, word: str, now: datetime) -> Span | None:
    """One side of a stretch.  Of one that comes back, the last that began."""
    span = when if isinstance(when, Span) else when.latest(now)
    if span is None:
        return None
    if word in SINCE:
        return span_of(span.start, now if now > span.start else LATEST)
    if word in BEFORE:
        return span_of(EARLIEST, span.start)
    if word in UNTIL:
        return span_of(EARLIEST, span.end)
    return span_of(span.end, LATEST)
