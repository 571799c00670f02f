"""Does bounding a term's candidates cost recall?  The same questions, bounded as shipped and without a bound, by words alone.

Both sides are the service's own search; only [search] keyword_per_term differs, and the deadline, which would otherwise cut
the unbounded side off.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean, median
from typing import Any

from benchmarks.scale.corpus import TENANT, Corpus, Question
from memory_service.bootstrap import Runtime, open_runtime
from memory_service.domain import MemoryFilter, utc_now
from memory_service.recall.service import SearchRequest
from memory_service.settings import Settings, Tunables, load_tunables

LIMIT = 10
UNBOUNDED = 2_000_000_000
DEADLINE_S = 120.0


@dataclass
class Compared:
    """Of each question: how much of the unbounded ten the bounded ten has, and where the memory asked for came."""

    shared: list[float] = field(default_factory=list)
    same_first: list[bool] = field(default_factory=list)
    source_bounded: list[bool] = field(default_factory=list)
    source_unbounded: list[bool] = field(default_factory=list)
    bounded_ms: list[float] = field(default_factory=list)
    unbounded_ms: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        return {
            "questions": len(self.shared),
            "of_unbounded_top_10": round(mean(self.shared), 4),
            "same_first": round(mean(self.same_first), 4),
            "source_in_10_bounded": round(mean(self.source_bounded), 4),
            "source_in_10_unbounded": round(mean(self.source_unbounded), 4),
            "bounded_p50_ms": round(median(self.bounded_ms), 2),
            "bounded_max_ms": round(max(self.bounded_ms), 2),
            "unbounded_p50_ms": round(median(self.unbounded_ms), 2),
            "unbounded_max_ms": round(max(self.unbounded_ms), 2),
        }


async def compare(settings: Settings, corpus: Corpus, questions: Sequence[Question]) -> Compared:
    """Asks in process: HTTP adds the same to both."""
    found = Compared()
    shipped = load_tunables(settings)
    async with (
        open_runtime(settings, tunables=_with(shipped)) as bounded,
        open_runtime(settings, tunables=_with(shipped, keyword_per_term=UNBOUNDED)) as unbounded,
    ):
        for question in questions:
            source = corpus.text_of(corpus.texts(question.user_id, question.source, 1)[0])
            ours, ours_ms = await _asked(bounded, question)
            best, best_ms = await _asked(unbounded, question)
            found.shared.append(len({i for i, _ in ours} & {i for i, _ in best}) / max(1, len(best)))
            found.same_first.append(bool(best) and ours[:1] == best[:1])
            found.source_bounded.append(any(content == source for _, content in ours))
            found.source_unbounded.append(any(content == source for _, content in best))
            found.bounded_ms.append(ours_ms)
            found.unbounded_ms.append(best_ms)
    return found


async def _asked(runtime: Runtime, question: Question) -> tuple[list[tuple[str, str]], float]:
    """Ids and contents, best first; milliseconds."""
    chosen = MemoryFilter(tenant=TENANT, user_ids=(question.user_id,), now=utc_now())
    started = time.perf_counter()
    answer = await runtime.recall.find(SearchRequest(question.query, chosen, LIMIT, mode="keyword"))
    took_ms = 1_000 * (time.perf_counter() - started)
    if answer.degraded:
        raise SystemExit(f"degraded: {answer.degraded}")
    return [(str(one.memory.id), one.memory.content) for one in answer.found], took_ms


def _with(numbers: Tunables, **search: Any) -> Tunables:
    changed = numbers.search.model_copy(update={"lane_deadline_s": DEADLINE_S, **search})
    return numbers.model_copy(update={"search": changed})
