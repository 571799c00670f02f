"""How good is one ranking, and how sure is a mean of many?  Pure.

recall@k: the share of a question's evidence among the first k hits.  mrr: 1 / rank of the first evidence.  Confidence intervals
resample users, whose questions resemble each other, and not questions (Efron's bootstrap, percentiles).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence

import numpy as np

DEPTHS = (5, 10, 20)
METRICS = (*(f"recall@{k}" for k in DEPTHS), "mrr")
ROUNDS = 2_000
CLUSTERS_MIN = 5  # with fewer users questions are resampled: two or three users say nothing about the next


def score(ranked: Sequence[Collection[str]], evidence: frozenset[str]) -> dict[str, float]:
    """`ranked`: the refs that each hit stands for, best first.  A ref counts where it is found first."""
    found: set[str] = set()
    first = 0
    counts = [0]
    for rank, refs in enumerate(ranked, 1):
        new = (evidence & set(refs)) - found
        first = first or (rank if new else 0)
        found |= new
        counts.append(len(found))
    told = {f"recall@{k}": counts[min(k, len(counts) - 1)] / len(evidence) for k in DEPTHS}
    return {**told, "mrr": 1 / first if first else 0.0}


def interval(values: Sequence[float], users: Sequence[Hashable]) -> tuple[float, float]:
    """95 % interval of the mean."""
    told = np.asarray(values, dtype=float)
    names = {user: number for number, user in enumerate(dict.fromkeys(users))}
    one = np.array([names[user] for user in users]) if len(names) >= CLUSTERS_MIN else np.arange(len(told))
    sums, counts = np.bincount(one, told), np.bincount(one)
    drawn = np.random.default_rng(0).integers(0, len(sums), (ROUNDS, len(sums)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)
