"""Which figures are promised, and are they met?  Pure: a Series in, rows out.  The bars are those of the project's issue 5."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.speed.figures import Series


@dataclass(frozen=True)
class Bar:
    """`least`: the value must be at least `bar`; `most`: at most.  `value` needs the series named in `needs`."""

    name: str
    sense: Literal["least", "most"]
    bar: float
    goal: float
    unit: str
    needs: tuple[str, ...]
    value: Callable[[Series], float]

    def met(self, value: float, limit: float) -> bool:
        return value >= limit if self.sense == "least" else value <= limit


def bars(small: int, large: int) -> list[Bar]:
    """In the order of the issue; `small` and `large` are the sizes that were filled (1,000 and 10,000)."""
    return [
        _ratio("durable write ack, 1 client, against mem0 add", 8, 20, "write_1.mem0_ms", "write_1.ours_ms"),
        _ratio("the same with 8 clients, 0 errors, all found", 15, 36, "write_8.ours_per_s", "write_8.mem0_per_s"),
        _ratio("searchable throughput, 8 clients", 3, 5, "searchable.ours_per_s", "searchable.mem0_per_s"),
        _ratio(f"search p50 at {small:,}, cold query", 1.3, 2, f"search_{small}.mem0_ms", f"search_{small}.ours_ms"),
        _ratio(f"search p50 at {large:,}, cold query", 4, 8, f"search_{large}.mem0_ms", f"search_{large}.ours_ms"),
        _ratio(f"searches/s at {large:,}, 8 clients", 8, 14, f"search_8_{large}.ours_per_s", f"search_8_{large}.mem0_per_s"),
        _ratio(f"search at {large:,}, cached embedding", 10, 20, f"cached_{large}.mem0_ms", f"cached_{large}.ours_ms"),
        *(
            _over(f"cold search at {size:,} over embedding alone", 2.5, 1.6, f"search_{size}.ours_ms", f"embed_{size}.alone_ms")
            for size in (small, large)
        ),
        _over("working memory get over raw redis-py", 5, 3.5, "working_get.ours_ms", "working_get.redis_ms"),
        _over("working memory set over raw redis-py", 5, 3.5, "working_set.ours_ms", "working_set.redis_ms"),
        Bar(
            "MCP call minus the REST call, over a no-op GET", "most", 3, 2, "x",
            ("mcp.tool_ms", "mcp.rest_ms", "mcp.noop_ms"),
            lambda s: (s["mcp.tool_ms"] - s["mcp.rest_ms"]) / s["mcp.noop_ms"],
        ),
        _over("start to first answered search, against mem0", 0.5, 0.3, "start.ours_s", "start.mem0_s"),
        _over("idle RSS of service and gateway, against mem0", 0.6, 0.5, "rss.ours_mib", "rss.mem0_mib"),
        Bar(
            "ack → visible in vector search, idle, p95", "most", 250, 100, "ms",
            ("visible_ms",),
            lambda s: s.p95("visible_ms"),
        ),
    ]  # fmt: skip


def _ratio(name: str, bar: float, goal: float, over: str, under: str) -> Bar:
    return Bar(name, "least", bar, goal, "x", (over, under), lambda s: s[over] / s[under])


def _over(name: str, bar: float, goal: float, over: str, under: str) -> Bar:
    return Bar(name, "most", bar, goal, "x", (over, under), lambda s: s[over] / s[under])


def judged(series: Series, small: int, large: int) -> list[dict[str, Any]]:
    """A row for each bar whose series were measured."""
    rows = []
    for bar in bars(small, large):
        if not all(name in series for name in bar.needs):
            continue
        value = bar.value(series)
        rows.append(
            {
                "what": bar.name, "sense": bar.sense, "bar": bar.bar, "goal": bar.goal, "unit": bar.unit, "value": round(value, 3),
                "met": bar.met(value, bar.bar), "goal_met": bar.met(value, bar.goal),
                "from": {name: round(series[name], 4) for name in bar.needs},
            }
        )  # fmt: skip
    return rows


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Markdown, a line a bar."""
    lines = ["| what | bar | goal | measured | from | |", "|---|---|---|---|---|---|"]
    for row in rows:
        sign, unit = ("≥" if row["sense"] == "least" else "≤"), (" ms" if row["unit"] == "ms" else " ×")
        verdict = "goal" if row["goal_met"] else "bar" if row["met"] else "**missed**"
        made = ", ".join(f"{name.replace('_', ' ')} {_number(value)}" for name, value in row["from"].items())
        lines.append(
            f"| {row['what']} | {sign} {row['bar']:g}{unit} | {row['goal']:g} | {_number(row['value'])} | {made} | {verdict} |"
        )
    return lines


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
