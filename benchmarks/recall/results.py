"""What is kept of a run, and what of it stands in docs/BENCHMARKS.md?

recall.json has an entry for each set, with the machine and the day, and one for the worth of the signals (fit.py).  The docs show
it between two marks; without the file there is nothing between them.
"""

from __future__ import annotations

import json
import os
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.recall.compared import BASELINES, SEARCH, Row
from benchmarks.recall.scores import METRICS, interval

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "recall.json"
DOCS = ROOT / "docs" / "BENCHMARKS.md"
BEGIN, END = "<!-- recall: written by python -m benchmarks.recall.run and fit -->", "<!-- recall: end -->"
MAIN = "recall@10"


def machine() -> dict[str, Any]:
    """What a figure may depend on."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }


def figures(rows: Sequence[Row], problems: Mapping[str, int]) -> dict[str, Any]:
    """Means, intervals and the lead over the best baseline; shares of 1."""
    users = [row.user for row in rows]
    methods = {method: {m: fmean(_values(rows, method, m)) for m in METRICS} for method in (SEARCH, *BASELINES)}
    told: dict[str, Any] = {
        "users": len(set(users)),
        "questions": len(rows),
        "methods": {method: _rounded(means) for method, means in methods.items()},
        "interval": {m: _pair(interval(_values(rows, SEARCH, m), users)) for m in METRICS},
        "lead": {m: _lead(rows, methods, m) for m in METRICS},
        "categories": {},
        "problems": {name: count for name, count in Counter(problems).items() if count},
    }
    for category in sorted({row.category for row in rows}):
        some = [row for row in rows if row.category == category]
        means = {method: fmean(_values(some, method, MAIN)) for method in (SEARCH, *BASELINES)}
        told["categories"][category] = {"questions": len(some), MAIN: _rounded(means)}
    return told


def _values(rows: Sequence[Row], method: str, metric: str) -> list[float]:
    return [row.scores[method][metric] for row in rows]


def _lead(rows: Sequence[Row], methods: Mapping[str, Mapping[str, float]], metric: str) -> dict[str, Any]:
    """Over the baseline that is best by this metric; the interval is that of the differences of the same questions."""
    best = max(BASELINES, key=lambda method: methods[method][metric])
    pairs = zip(_values(rows, SEARCH, metric), _values(rows, best, metric), strict=True)
    differences = [ours - theirs for ours, theirs in pairs]
    return {
        "over": best,
        "mean": round(fmean(differences), 4),
        "interval": _pair(interval(differences, [row.user for row in rows])),
    }


def _pair(limits: tuple[float, float]) -> list[float]:
    return [round(limit, 4) for limit in limits]


def _rounded(means: Mapping[str, float]) -> dict[str, float]:
    return {name: round(mean, 4) for name, mean in means.items()}


def table(sets: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Markdown, percent: ours and the best baseline of each metric."""
    metrics = ("recall@5", MAIN, "recall@20", "mrr")
    heads = ["set", "users", "questions", *metrics, f"lead in {MAIN} [95 %]", "best baseline"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for label, told in sets.items():
        cells = [label, str(told["users"]), str(told["questions"])]
        for metric in metrics:
            best = told["methods"][told["lead"][metric]["over"]][metric]
            cells.append(f"{_percent(told['methods'][SEARCH][metric])} ({_percent(best)})")
        lead = told["lead"][MAIN]
        low, high = lead["interval"]
        cells += [f"{100 * lead['mean']:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]", lead["over"]]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def categories(told: Mapping[str, Any]) -> list[str]:
    """Lines for a terminal: recall@10 of every method by category."""
    methods = (SEARCH, *BASELINES)
    lines = ["  ".join([f"{MAIN:<28}", f"{'n':>5}", *(f"{method:>24}" for method in methods)])]
    groups = {"all": {"questions": told["questions"], MAIN: {m: told["methods"][m][MAIN] for m in methods}}}
    for name, group in {**groups, **told["categories"]}.items():
        cells = [
            f"{name or '-':<28}",
            f"{group['questions']:>5}",
            *(f"{_percent(group[MAIN][m]):>24}" for m in methods),
        ]
        lines.append("  ".join(cells))
    return lines


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def signals_table(told: Mapping[str, Any]) -> list[str]:
    """Markdown: what recall@10 and mrr lose, in points, where a signal is left out of the order of the hits."""
    sets = told["sets"]
    heads = ["left out", "weight", *sets]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name in next(iter(sets.values()))["without"]:
        weight = told["configured"].get(name)
        cells = [name, "" if weight is None else f"{weight:g}"]
        for one in sets.values():
            without = one["without"][name]
            cells.append(f"{100 * (without[MAIN] - one[MAIN]):+.1f}, {100 * (without['mrr'] - one['mrr']):+.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def below(sets: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """One line: the categories in which the best baseline finds more, by recall@10."""
    found = []
    for label, told in sets.items():
        for category, group in told["categories"].items():
            best = max(BASELINES, key=lambda method: group[MAIN][method])
            ours, theirs = group[MAIN][SEARCH], group[MAIN][best]
            if ours < theirs:
                figures_told = f"{_percent(ours)} against {_percent(theirs)} ({best}, {group['questions']} questions)"
                found.append(f"{label}, {category}: {figures_told}")
    return [f"Categories in which a baseline finds more: {'; '.join(found) or 'none'}."]


def machines(sets: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """One line for all sets that were measured alike."""
    told = [one["machine"] for one in sets.values()]
    kinds = {f"{one['processors']} processors, Python {one['python']}" for one in told}
    days = sorted({one["at"][:10] for one in told})
    return [f"{'; '.join(sorted(kinds))}, {' to '.join(dict.fromkeys([days[0], days[-1]]))}."]


def section(kept: Mapping[str, Any]) -> list[str]:
    """What the docs show of recall.json."""
    told = []
    if kept.get("sets"):
        told += [*table(kept["sets"]), "", *below(kept["sets"]), *machines(kept["sets"])]
    if kept.get("signals"):
        told += ["", "What the order of the hits loses in points without a signal (recall@10, mrr):", ""]
        told += signals_table(kept["signals"])
    return told


def keep(path: Path, group: str, entry: Mapping[str, Any]) -> None:
    """Put `entry` into a group of the file, in the place of what was there by the same name; renews the docs if it is theirs."""
    kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    kept[group] = {**kept.get(group, {}), **entry}
    path.write_text(json.dumps(kept, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    if path.resolve() == RESULTS:
        DOCS.write_text(renewed(DOCS.read_text(encoding="utf-8"), kept), encoding="utf-8")


def renewed(page: str, kept: Mapping[str, Any]) -> str:
    """The docs with this section in the place of the last one.  Raises ValueError when the marks are not there."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no {BEGIN} and {END} in the page")
    return "\n".join([head + BEGIN, *section(kept), END]) + tail
