"""Which memories and experiences go into a prompt, how fully, within so many tokens?  Pure and deterministic.

Graded by relevance: the whole text from `full_min`, the summary from `summary_min`, nothing below; the budget bounds the
whole block with its frame.  What is chosen first is the most relevant; a first hit that is too long is cut instead of
leaving the answer empty.  It must not fetch, rank or render markup; `envelope` knows how a block looks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Literal
from uuid import UUID

from memory_service.domain import Kind
from memory_service.recall.envelope import SECTIONS, Labels, SectionName, framed, labels_for, quoted, shortened
from memory_service.settings import Section

CountTokens = Callable[[str], int]
Grade = Literal["full", "summary"]
DropReason = Literal["relevance", "limit", "budget"]


class InjectionNumbers(Section):
    """The table [injection] of config/memory.toml."""

    tokens_default: int
    tokens_max: int
    full_min: float
    summary_min: float
    experiences_max: int
    experience_confidence_min: float
    experience_candidates: int
    memory_candidates: int
    full_chars_max: int
    summary_chars_max: int
    cut_chars_min: int
    cut_share_max: float
    misses_max: int
    age_days_max: int


@dataclass(frozen=True, slots=True)
class Remembered:
    """A memory that was found; `relevance` 0..1 is the calibrated one, without freshness."""

    id: UUID
    kind: Kind
    content: str
    summary: str
    relevance: float
    occurred_at: datetime


@dataclass(frozen=True, slots=True)
class Lesson:
    """An experience that matched: `when` are its conditions as one readable text, `score` 0..1 is compared like a relevance.

    `possibly`: nobody knows yet whether its conditions hold; it comes of something relevant, is marked so and shown in short.
    """

    id: UUID
    when: str
    action: str
    avoid: str | None
    rationale: str | None
    confidence: float
    score: float
    possibly: bool = False


@dataclass(frozen=True, slots=True)
class Injected:
    """`grade` is `full` when relevance earned the whole text and it stands there; `summary` for everything shorter."""

    id: UUID
    grade: Grade
    score: float


@dataclass(frozen=True, slots=True)
class Dropped:
    """What is not shown: too little relevance, more experiences than allowed, or no room."""

    id: UUID
    reason: DropReason


@dataclass(frozen=True, slots=True)
class Injection:
    """`tokens` counts `text` as it is; both are empty when nothing is to be shown.  `items` stand in the text's order."""

    text: str
    tokens: int
    items: tuple[Injected, ...]
    dropped: tuple[Dropped, ...]


@dataclass(frozen=True, slots=True)
class _Entry:
    """A candidate: `place` orders it within its section; `line(full, chars)` writes it with its texts cut to `chars`."""

    id: UUID
    section: SectionName
    score: float
    place: tuple[float, int]
    full_chars: int
    summary_chars: int
    line: Callable[[bool, int], str]
    brief: bool = False


@dataclass(frozen=True, slots=True)
class _Shown:
    entry: _Entry
    line: str
    grade: Grade


@dataclass(frozen=True, slots=True)
class _Budget:
    """What a block may have, and the words that it is written with."""

    tokens: int
    count: CountTokens
    labels: Labels
    numbers: InjectionNumbers

    def fits(self, shown: Sequence[_Shown], share: float = 1.0) -> bool:
        return self.count(_text(shown, self.labels)) <= int(self.tokens * share)


def inject(
    items: Sequence[Remembered],
    experiences: Sequence[Lesson],
    query: str,
    budget_tokens: int,
    count_tokens: CountTokens,
    numbers: InjectionNumbers,
    now: datetime,
) -> Injection:
    """The block for `query` in at most `budget_tokens` of `count_tokens`.  An id that comes twice is shown once."""
    labels = labels_for(query)
    count_tokens = cache(count_tokens)  # the whole block is counted more than once, at 2 ms a thousand tokens
    entries = _unique(
        [_experience(one, labels) for one in experiences] + [_memory(m, labels, numbers, now) for m in items]
    )
    wanted, dropped = _graded(entries, numbers)
    budget = _Budget(budget_tokens, count_tokens, labels, numbers)
    shown = _within_budget(wanted, budget)
    kept = {one.entry.id for one in shown}
    dropped += [Dropped(entry.id, "budget") for entry in wanted if entry.id not in kept]
    if not shown:
        return Injection("", 0, (), tuple(dropped))
    text = _text(shown, labels)
    ordered = [one for name in SECTIONS for one in _in_section(shown, name)]
    injected = tuple(Injected(one.entry.id, one.grade, one.entry.score) for one in ordered)
    return Injection(text, count_tokens(text), injected, tuple(dropped))


def _unique(entries: Sequence[_Entry]) -> list[_Entry]:
    """The most relevant first; equals in the order of sections, then the newer id.  Of one id the first."""
    ordered = sorted(entries, key=lambda e: (-e.score, SECTIONS.index(e.section), -e.id.int))
    return list({entry.id: entry for entry in reversed(ordered)}.values())[::-1]


def _graded(entries: Sequence[_Entry], numbers: InjectionNumbers) -> tuple[list[_Entry], list[Dropped]]:
    wanted: list[_Entry] = []
    dropped: list[Dropped] = []
    experiences = 0
    for entry in entries:
        if not entry.score >= numbers.summary_min:  # NaN is no relevance either
            dropped.append(Dropped(entry.id, "relevance"))
        elif entry.section == "experience" and experiences >= numbers.experiences_max:
            dropped.append(Dropped(entry.id, "limit"))
        else:
            experiences += entry.section == "experience"
            wanted.append(entry)
    return wanted, dropped


def _within_budget(wanted: Sequence[_Entry], budget: _Budget) -> list[_Shown]:
    """Lines are chosen by what each adds; in the end the block is counted as a whole, since counts need not add up."""
    if not wanted:
        return []
    first = _first(wanted[0], budget, alone=len(wanted) == 1)
    if first is None:
        return []
    shown, misses = [first], 0
    left = budget.tokens - budget.count(_text(shown, budget.labels))
    for entry in wanted[1:]:
        if misses >= budget.numbers.misses_max:
            break
        new_section = all(entry.section != one.entry.section for one in shown)
        heading = f"\n## {budget.labels.section(entry.section)}" if new_section else ""
        for one in _variants(entry, budget.numbers):
            cost = max(budget.count(f"{heading}\n{one.line}"), 0)
            if cost <= left:
                shown.append(one)
                left -= cost
                misses = 0
                break
        else:
            misses += 1
    while shown and not budget.fits(shown):
        shown.pop()
    return shown


def _variants(entry: _Entry, numbers: InjectionNumbers) -> list[_Shown]:
    """The fullest first.  A whole text above `full_chars_max` is not tried."""
    found = []
    if _whole(entry, numbers) and entry.full_chars <= numbers.full_chars_max:
        found.append(_Shown(entry, entry.line(True, entry.full_chars), "full"))
    chars = min(entry.summary_chars, numbers.summary_chars_max)
    found.append(_Shown(entry, entry.line(False, chars), "summary"))
    return found


def _whole(entry: _Entry, numbers: InjectionNumbers) -> bool:
    return entry.score >= numbers.full_min and not entry.brief


def _first(entry: _Entry, budget: _Budget, *, alone: bool) -> _Shown | None:
    """The first hit: whole, else cut with a mark, else its summary, else that cut; None when not even a few words fit.

    A cut one leaves room for the others.
    """
    numbers = budget.numbers
    *full, summary = _variants(entry, numbers)
    for one in full:
        if budget.fits([one]):
            return one
    if _whole(entry, numbers):
        longest = min(entry.full_chars, numbers.full_chars_max)
        for share in (1.0,) if alone else (numbers.cut_share_max, 1.0):
            cut = _longest(entry, True, numbers.cut_chars_min, longest, budget, share)
            if cut is not None:
                return cut
    return summary if budget.fits([summary]) else _longest(entry, False, 1, numbers.summary_chars_max, budget)


def _longest(entry: _Entry, full: bool, low: int, high: int, budget: _Budget, share: float = 1.0) -> _Shown | None:
    """The longest cut seen to fit, by bisection between `low` and `high` characters; `low` is tried first."""
    best = None
    high = min(high, entry.full_chars if full else entry.summary_chars)
    chars = low
    while low <= high:
        one = _Shown(entry, entry.line(full, chars), "summary")
        if budget.fits([one], share):
            best, low = one, chars + 1
        else:
            high = chars - 1
        chars = (low + high) // 2
    return best


def _text(shown: Sequence[_Shown], labels: Labels) -> str:
    return framed([(name, [one.line for one in _in_section(shown, name)]) for name in SECTIONS], labels)


def _in_section(shown: Sequence[_Shown], name: SectionName) -> list[_Shown]:
    return sorted((one for one in shown if one.entry.section == name), key=lambda one: one.entry.place)


def _memory(memory: Remembered, labels: Labels, numbers: InjectionNumbers, now: datetime) -> _Entry:
    """Semantic memories are facts, the most relevant first; episodic ones events, the newest first."""
    recent = memory.kind == "episodic"
    age = f" ({_age(memory.occurred_at, now, labels, numbers.age_days_max)})" if recent else ""
    place = -memory.occurred_at.timestamp() if recent else -memory.relevance
    summary = memory.summary.strip() or memory.content
    return _Entry(
        id=memory.id,
        section="recent" if recent else "facts",
        score=memory.relevance,
        place=(place, -memory.id.int),
        full_chars=len(memory.content),
        summary_chars=len(summary),
        line=partial(_memory_line, memory.id, age, memory.content, summary),
    )


def _memory_line(id_: UUID, age: str, content: str, summary: str, full: bool, chars: int) -> str:
    return f"- [{id_}]{age} {quoted(shortened(content if full else summary, chars))}"


def _experience(lesson: Lesson, labels: Labels) -> _Entry:
    """The summary of an experience leaves out why; conditions and action are what it is about."""
    brief = [lesson.when, lesson.action, lesson.avoid or ""]
    longest = [max(map(len, texts)) for texts in (brief, [*brief, lesson.rationale or ""])]
    return _Entry(
        id=lesson.id,
        section="experience",
        score=lesson.score,
        place=(-lesson.score, -lesson.id.int),
        full_chars=longest[1],
        summary_chars=longest[0],
        line=partial(_lesson_line, lesson, labels),
        brief=lesson.possibly,
    )


def _lesson_line(lesson: Lesson, labels: Labels, full: bool, chars: int) -> str:
    parts = [(labels.when, lesson.when), (labels.action, lesson.action), (labels.avoid, lesson.avoid)]
    if full:
        parts.append((labels.because, lesson.rationale))
    said = " · ".join(f"{label} {quoted(shortened(text, chars))}" for label, text in parts if text)
    possibly = f"{labels.possibly} · " if lesson.possibly else ""
    return f"- [{lesson.id}] ({possibly}{labels.confidence} {lesson.confidence:.2f}) {said}"


def _age(at: datetime, now: datetime, labels: Labels, days_max: int) -> str:
    """How long ago, in days; a date when that is long.  What lies ahead is dated too."""
    days = (now - at) // timedelta(days=1)
    if days < 0 or days > days_max:
        return at.date().isoformat()
    return (labels.today, labels.yesterday)[days] if days < 2 else labels.days_ago.format(days=days)
