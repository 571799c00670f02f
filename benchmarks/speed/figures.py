"""What is a median, a percentile, a ratio of two interleaved series?  Pure."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, max(0, math.ceil(share * len(ranked)) - 1))]


class Series:
    """Figures by name, one a round; what is reported is the median over the rounds."""

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = defaultdict(list)
        self.raw: dict[str, list[float]] = defaultdict(list)

    def add(self, name: str, value: float) -> None:
        self.values[name].append(value)

    def times(self, name: str, seconds: Iterable[float]) -> None:
        """One round's calls: its median becomes `name` in milliseconds, all calls together give the percentiles."""
        taken = [1000 * one for one in seconds]
        self.add(name, statistics.median(taken))
        self.raw[name] += taken

    def __getitem__(self, name: str) -> float:
        return statistics.median(self.values[name])

    def __contains__(self, name: str) -> bool:
        return bool(self.values.get(name))

    def p95(self, name: str) -> float:
        return percentile(self.raw[name], 0.95)

    def undisturbed(self, name: str) -> float:
        """The tenth percentile of the calls: what one takes when nobody is in its way."""
        return percentile(self.raw[name], 0.1)

    def summary(self) -> dict[str, dict[str, float | list[float]]]:
        """For the JSON: each name's median, spread over rounds, and percentiles of single calls where there are any."""
        told: dict[str, dict[str, float | list[float]]] = {}
        for name, values in sorted(self.values.items()):
            told[name] = {"median": round(self[name], 4), "rounds": [round(one, 4) for one in values]}
            if name in self.raw:
                told[name] |= {
                    "p50": round(percentile(self.raw[name], 0.5), 4),
                    "p95": round(self.p95(name), 4),
                    "calls": len(self.raw[name]),
                }
        return told
