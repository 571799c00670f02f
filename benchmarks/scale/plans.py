"""Which plan does Postgres choose for each statement of a search, and how long does it take?

The service's own Recall runs in this process over connections that explain each statement before they run it, so what is
explained is what is sent, whatever it looks like by now.  A statement goes by the name of the function in stores/postgres that
sent it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, cast

from benchmarks.scale.corpus import TENANT, Question
from memory_service.bootstrap import open_runtime
from memory_service.domain import MemoryFilter, utc_now
from memory_service.recall.service import SearchRequest
from memory_service.settings import Settings
from memory_service.stores.postgres.pool import Connection, Postgres

STATEMENTS = Path("stores", "postgres")


@dataclass
class Statement:
    """Milliseconds of planning and executing by question; the slowest plan's text."""

    planning_ms: list[float] = field(default_factory=list)
    execution_ms: list[float] = field(default_factory=list)
    buffers: list[int] = field(default_factory=list)
    slowest: str = ""

    def note(self, plan: str) -> None:
        planning, execution = (_milliseconds(plan, kind) for kind in ("Planning", "Execution"))
        if not self.execution_ms or execution > max(self.execution_ms):
            self.slowest = plan
        self.planning_ms.append(planning)
        self.execution_ms.append(execution)
        touched = re.search(r"Buffers: shared(?: hit=(\d+))?(?: read=(\d+))?", plan)
        self.buffers.append(sum(int(count or 0) for count in touched.groups()) if touched else 0)

    def summary(self) -> dict[str, Any]:
        return {
            "planning_p50_ms": round(median(self.planning_ms), 2),
            "execution_p50_ms": round(median(self.execution_ms), 2),
            "execution_max_ms": round(max(self.execution_ms), 2),
            "pages_p50": round(median(self.buffers)),
            "times": len(self.execution_ms),
            "indexes": sorted(set(re.findall(r"(?:using|Scan on) (\w+_memory_\w+)", self.slowest))),
            "scans_the_table": "Seq Scan" in self.slowest,
        }


class Explaining:
    """A connection that explains what it is asked to run."""

    def __init__(self, connection: Connection, noted: dict[str, Statement]) -> None:
        self._connection = connection
        self._noted = noted

    async def execute(self, sql: str, parameters: dict[str, Any] | None = None, **kept: Any) -> Any:
        explained = await self._connection.execute(cast(Any, f"EXPLAIN (ANALYZE, BUFFERS) {sql}"), parameters, **kept)
        plan = "\n".join(str(row[0]) for row in await explained.fetchall())
        self._noted.setdefault(_sender(), Statement()).note(plan)
        return await self._connection.execute(cast(Any, sql), parameters, **kept)


async def explain(settings: Settings, questions: Sequence[Question]) -> dict[str, Statement]:
    """By statement.  Each question is asked once before, so that its pages are in memory."""
    noted: dict[str, Statement] = {}
    async with open_runtime(settings) as runtime:
        for question in questions:
            chosen = MemoryFilter(tenant=TENANT, user_ids=(question.user_id,), now=utc_now())
            request = SearchRequest(question.query, chosen, 10)
            await runtime.recall.find(request)
            async with _explained(runtime.postgres, noted):
                await runtime.recall.find(request)
    return noted


@asynccontextmanager
async def _explained(postgres: Postgres, noted: dict[str, Statement]) -> Any:
    plain = postgres.read

    async def read(work: Callable[[Connection], Awaitable[Any]]) -> Any:
        return await plain(lambda connection: work(cast(Connection, Explaining(connection, noted))))

    postgres.read = read  # type: ignore[method-assign]
    try:
        yield
    finally:
        postgres.read = plain  # type: ignore[method-assign]


def _sender() -> str:
    """The function of stores/postgres that is waiting for this statement."""
    frame = sys._getframe(2)
    while frame.f_back is not None:
        path = Path(frame.f_code.co_filename)
        if path.parent.parts[-2:] == STATEMENTS.parts and path.name != "pool.py":
            return frame.f_code.co_name
        frame = frame.f_back
    return "unknown"


def _milliseconds(plan: str, kind: str) -> float:
    found = re.search(rf"{kind} Time: ([\d.]+) ms", plan)
    return float(found.group(1)) if found else 0.0
