"""What do several memories tell together?  Counts, rates, durations, the range of dates, what varied.  Pure.

Numbers come from tool_calls and outcomes where there are any, else from words of the text.  It must not word anything.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from memory_service.domain import Json, Memory
from memory_service.experience.trajectory import flat_arguments, text_of
from memory_service.lifecycle.compress_rules import CompressNumbers, TextPatterns
from memory_service.scripts import is_chinese
from memory_service.timestamps import time_text
from memory_service.write.drafts import plain_summary
from memory_service.write.duplicates import normalise_text


@dataclass(frozen=True, slots=True)
class Durations:
    """Of `count` that are known, in milliseconds."""

    count: int
    average: float
    shortest: float
    longest: float


@dataclass(frozen=True, slots=True)
class Facts:
    """`times` are calls where there are tool calls, else memories.  worked + failed are those whose end is known."""

    memories: int
    tools: tuple[str, ...]
    times: int
    worked: int
    failed: int
    durations: Durations | None
    first: datetime
    last: datetime
    arguments: tuple[tuple[str, tuple[tuple[str, int], ...]], ...]
    errors: tuple[tuple[str, int], ...]
    quotes: tuple[tuple[datetime, str], ...]
    chinese: bool
    semantic: bool


def facts_of(sources: Sequence[Memory], numbers: CompressNumbers, patterns: TextPatterns) -> Facts:
    """`sources` are of one kind, at least one, in any order."""
    ordered = sorted(sources, key=lambda m: (m.occurred_at, m.id))
    calls = [call for memory in ordered for call in memory.tool_calls]
    ended = [end for call in calls if (end := patterns.ended(str(call.get("status")))) is not None]
    if not calls:
        ended = [end for memory in ordered if (end := _ended(memory, patterns)) is not None]
    semantic = ordered[0].kind == "semantic"
    return Facts(
        memories=len(ordered),
        tools=tuple(sorted({str(call.get("tool")) for call in calls if call.get("tool")})),
        times=len(calls) or len(ordered),
        worked=sum(ended),
        failed=len(ended) - sum(ended),
        durations=_durations(ordered, calls, patterns),
        first=ordered[0].occurred_at,
        last=ordered[-1].occurred_at,
        arguments=_arguments(calls, numbers),
        errors=_most(
            (plain_summary(text_of(call["error"]), numbers.value_chars_max) for call in calls if call.get("error")),
            numbers.values_max,
        ),
        quotes=_quotes(ordered, numbers, everything=semantic),
        chinese=is_chinese("\n".join(memory.summary for memory in ordered)),
        semantic=semantic,
    )


def facts_json(facts: Facts) -> Json:
    """For the summary's metadata, where filters find it."""
    told: Json = {"memories": facts.memories, "times": facts.times, "worked": facts.worked, "failed": facts.failed}
    if facts.worked + facts.failed:
        told["success_rate"] = round(facts.worked / (facts.worked + facts.failed), 4)
    if facts.durations is not None:
        told["duration_ms"] = {
            "average": round(facts.durations.average, 3),
            "shortest": facts.durations.shortest,
            "longest": facts.durations.longest,
        }
    first, last = (time_text(moment) for moment in (facts.first, facts.last))
    return {**told, "tools": list(facts.tools), "first": first, "last": last}


def _ended(memory: Memory, patterns: TextPatterns) -> bool | None:
    if memory.outcome is not None:
        return memory.outcome != "failure"
    return patterns.ended(memory.content)


def _durations(ordered: Sequence[Memory], calls: Sequence[Json], patterns: TextPatterns) -> Durations | None:
    known = [float(call["duration_ms"]) for call in calls if isinstance(call.get("duration_ms"), int | float)]
    if not calls:
        known = [ms for memory in ordered if (ms := patterns.duration_ms(memory.content)) is not None]
    return Durations(len(known), sum(known) / len(known), min(known), max(known)) if known else None


def _arguments(calls: Sequence[Json], numbers: CompressNumbers) -> tuple[tuple[str, tuple[tuple[str, int], ...]], ...]:
    """The most frequent values of each argument; those that most calls have first."""
    found: dict[str, Counter[str]] = {}
    for call in calls:
        arguments = call.get("arguments")
        for path, value in flat_arguments(arguments if isinstance(arguments, dict) else {}).items():
            shown = plain_summary(text_of(value), numbers.value_chars_max)
            found.setdefault(path, Counter())[shown] += 1
    paths = sorted(found, key=lambda path: (-found[path].total(), path))[: numbers.arguments_max]
    return tuple((path, tuple(found[path].most_common(numbers.values_max))) for path in paths)


def _quotes(
    ordered: Sequence[Memory], numbers: CompressNumbers, *, everything: bool
) -> tuple[tuple[datetime, str], ...]:
    """One of each text; of events a few, evenly over the time, of facts all, which must not be lost."""
    distinct: dict[str, tuple[datetime, str]] = {}
    for memory in ordered:
        said = memory.content if everything and len(memory.content) <= numbers.quote_chars_max else memory.summary
        distinct.setdefault(normalise_text(said), (memory.occurred_at, plain_summary(said, numbers.quote_chars_max)))
    kept = list(distinct.values())
    if everything or len(kept) <= numbers.quotes_max:
        return tuple(kept)
    step = len(kept) / numbers.quotes_max
    return tuple(kept[int(at * step)] for at in range(numbers.quotes_max))


def _most(texts: Iterable[str], most: int) -> tuple[tuple[str, int], ...]:
    return tuple(Counter(texts).most_common(most))
