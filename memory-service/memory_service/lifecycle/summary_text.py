"""How does one memory say what many said?  The text of a summary without a language model, and the memory that holds it.

"weather_api called 10 times, 10 succeeded, 200 ms on average, March 2026.", in English or Chinese as its sources are.  Pure.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import TypeVar

from memory_service.domain import Memory, Outcome, new_id
from memory_service.lifecycle.compress_rules import CompressNumbers
from memory_service.lifecycle.summary_facts import Facts, facts_json
from memory_service.settings import Heat

T = TypeVar("T", bound=Hashable)
WRITTEN_BY = "job:compress"
METADATA_KEY = "compressed"
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip
TAGS_MAX = 64  # the contract's bound on the tags of one memory


def head_line(facts: Facts) -> str:
    """The sentence with the numbers: the summary's `summary`, and what a language model's text is checked against."""
    parts = [
        _subject(facts),
        *_ended(facts),
        *_lasted(facts),
        date_range(facts.first, facts.last, chinese=facts.chinese),
    ]
    return ("，".join(parts) + "。") if facts.chinese else (", ".join(parts) + ".")


def detail_lines(facts: Facts) -> Iterator[str]:
    """What varied: the span of durations, arguments, errors, and what the sources say in their own words."""
    zh = facts.chinese
    if facts.durations is not None and facts.durations.shortest < facts.durations.longest:
        low, high = (duration(ms, chinese=zh) for ms in (facts.durations.shortest, facts.durations.longest))
        yield f"耗时：{low} 到 {high}" if zh else f"Durations: {low} to {high}"
    if facts.arguments:
        told = "; ".join(f"{path}: {_counted(values)}" for path, values in facts.arguments)
        yield f"参数：{told}" if zh else f"Arguments: {told}"
    if facts.errors:
        yield ("错误：" if zh else "Errors: ") + "; ".join(f"{text} ×{count}" for text, count in facts.errors)
    if facts.quotes:
        yield ("原文：" if zh else "In their words:") if len(facts.quotes) > 1 or facts.tools else ""
        yield from (f"- {moment:%Y-%m-%d}: {said}" for moment, said in facts.quotes)


def rules_text(facts: Facts) -> str:
    return "\n".join(line for line in (head_line(facts), *detail_lines(facts)) if line)


def summary_memory(
    sources: Sequence[Memory],
    facts: Facts,
    summary: str,
    content: str,
    by: str,
    now: datetime,
    heat: Heat,
    numbers: CompressNumbers,
) -> Memory:
    """A new active memory, as warm as one that is written now: it tells briefly what would else be forgotten.

    What all sources agree on is the summary's, too; importance is the highest of theirs, confidence the lowest.
    """
    ordered = sorted(sources, key=lambda m: (m.occurred_at, m.id))
    first = ordered[0]
    entities = Counter(one for memory in ordered for one in memory.entities)
    tags = Counter(tag for memory in ordered for tag in memory.tags)
    return Memory(
        id=new_id(),
        tenant=first.tenant,
        kind=first.kind,
        user_id=first.user_id,
        content=content,
        summary=summary,
        created_at=now,
        updated_at=now,
        occurred_at=ordered[-1].occurred_at,
        agent_id=_common(memory.agent_id for memory in ordered),
        session_id=_common(memory.session_id for memory in ordered),
        task_id=_common(memory.task_id for memory in ordered),
        event_type=first.event_type,
        category=_common(memory.category for memory in ordered),
        tags=tuple(tag for tag, _ in tags.most_common(TAGS_MAX)),
        entities=tuple(one for one, _ in entities.most_common(numbers.entities_max)),
        tool_calls=_calls_kept(ordered, numbers.calls_kept_max),
        outcome=_outcome(ordered),
        importance=max(memory.importance for memory in ordered),
        confidence=min(memory.confidence for memory in ordered),
        heat=heat.initial,
        heat_at=now,
        valid_from=min(memory.valid_from or memory.created_at for memory in ordered),
        source_memory_ids=tuple(memory.id for memory in ordered),
        metadata={METADATA_KEY: {**facts_json(facts), "by": by}},
        written_by=WRITTEN_BY,
    )


def date_range(first: datetime, last: datetime, *, chinese: bool) -> str:
    """Of days in UTC: one day, one month, or from one day to another."""
    same_month = (first.year, first.month) == (last.year, last.month)
    if first.date() == last.date():
        return _day(first, chinese=chinese)
    if same_month:
        return f"{first.year}年{first.month}月" if chinese else f"{MONTHS[first.month - 1]} {first.year}"
    return (
        f"{_day(first, chinese=chinese)}至{_day(last, chinese=chinese)}"
        if chinese
        else (f"{_day(first, chinese=False)} to {_day(last, chinese=False)}")
    )


def duration(ms: float, *, chinese: bool) -> str:
    """With the unit in which a person would say it."""
    for unit_ms, english, chinese_unit in ((3_600_000, "h", "小时"), (60_000, "min", "分钟"), (1_000, "s", "秒")):
        if ms >= unit_ms:
            return f"{ms / unit_ms:.1f}".removesuffix(".0") + f" {chinese_unit if chinese else english}"
    shown = f"{ms:.0f}" if ms >= 1 else f"{ms:.2f}"
    return f"{shown} {'毫秒' if chinese else 'ms'}"


def _subject(facts: Facts) -> str:
    zh, tools = facts.chinese, ("、" if facts.chinese else " and ").join(facts.tools)
    if facts.semantic:
        return f"{facts.memories} 条相近的记忆" if zh else f"{facts.memories} similar statements"
    if facts.tools:
        return f"{tools} 调用 {facts.times} 次" if zh else f"{tools} called {facts.times} times"
    said = facts.quotes[0][1].rstrip(" .。!！;；") if facts.quotes else ""
    return f"“{said}”一类的事 {facts.times} 次" if zh else f"“{said}” and the like {facts.times} times"


def _ended(facts: Facts) -> Iterator[str]:
    known, zh = facts.worked + facts.failed, facts.chinese
    if facts.semantic or not known:
        return
    if known < facts.times:
        yield f"已知结果 {known} 次" if zh else f"{known} with a known end"
    yield f"成功 {facts.worked} 次" if zh else f"{facts.worked} succeeded"
    if facts.failed:
        rate = f"{100 * facts.worked / known:.1f}".removesuffix(".0")
        yield f"失败 {facts.failed} 次（成功率 {rate}%）" if zh else f"{facts.failed} failed ({rate}% success)"


def _lasted(facts: Facts) -> Iterator[str]:
    if facts.durations is None or facts.semantic:
        return
    mean = duration(facts.durations.average, chinese=facts.chinese)
    yield f"平均 {mean}" if facts.chinese else f"{mean} on average"


def _day(moment: datetime, *, chinese: bool) -> str:
    if chinese:
        return f"{moment.year}年{moment.month}月{moment.day}日"
    return f"{moment.day} {MONTHS[moment.month - 1]} {moment.year}"


def _counted(values: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{value} ×{count}" if count > 1 else value for value, count in values)


def _common(values: Iterable[T | None]) -> T | None:
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _outcome(ordered: Sequence[Memory]) -> Outcome | None:
    return _common(memory.outcome for memory in ordered)


def _calls_kept(ordered: Sequence[Memory], most: int) -> tuple[dict[str, object], ...]:
    """The newest call of each kind (tool, how it ended, error), so that advice before a call still finds an example."""
    newest: dict[tuple[str, str, str], dict[str, object]] = {}
    for memory in ordered:
        for call in memory.tool_calls:
            kind = (str(call.get("tool")), str(call.get("status")), str(call.get("error") or "")[:80])
            newest.pop(kind, None)
            newest[kind] = dict(call)
    return tuple(newest.values())[-most:] if most else ()
