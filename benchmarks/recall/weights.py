"""Which weights of the signals put the evidence first?  Pure numpy, deterministic.

Listwise softmax regression: ListNet's top-one loss (Cao, Qin, Liu, Tsai and Li 2007), the cross entropy between the share of the
evidence that each hit is and the softmax of the hits' log-odds.  What the lanes say keeps its weight of 1, since thresholds and
curves are made for it; only what the signals add is fitted.  A set counts with the square root of its questions, so that a large one
does not decide alone.  The loss is convex; Newton's method finds its one minimum.

An answer holds the first hundred hits, which lean towards what the configured weights favour: fitted to them alone, these weights
come out too small.  So the user's other memories take part as well, without signals and with the least that the lanes say of any hit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.recall.lists import NAMES, Array, HitList
from benchmarks.recall.scores import DEPTHS

# × the squares of the weights: keeps one that hardly a question tells near 0.  Ten times as much costs held-out sets up to 2 points of
# recall@10, since queries seldom name a time, and it tells much.
RIDGE = 0.0005
STEPS_MAX = 100
CONVERGED = 1e-9
SUFFICIENT = 1e-4  # Armijo's constant


def fit(sets: Mapping[str, Sequence[HitList]], ridge: float = RIDGE) -> Array:
    """Weights in the order of NAMES.  Questions of which no evidence was found teach nothing and are left out."""
    items = [(one, len(each) ** -0.5) for each in sets.values() for one in each if one.gains.any()]
    whole = sum(weight for _, weight in items) or 1.0
    at = np.zeros(len(NAMES))
    value, slope, curve = _loss(at, items, whole, ridge)
    for _ in range(STEPS_MAX):
        step = np.linalg.solve(curve, slope)
        fall, share = float(slope @ step), 1.0
        if fall < CONVERGED:
            break
        while True:
            tried = _loss(at - share * step, items, whole, ridge)
            if tried[0] <= value - SUFFICIENT * share * fall or share < CONVERGED:
                break
            share /= 2
        at = at - share * step
        value, slope, curve = tried
    return at


def _loss(at: Array, items: Sequence[tuple[HitList, float]], whole: float, ridge: float) -> tuple[float, Array, Array]:
    """Value, gradient and Hessian."""
    value, slope, curve = ridge * float(at @ at), 2 * ridge * at, 2 * ridge * np.eye(len(at))
    for one, weight in items:
        odds = one.lanes + one.features @ at
        top = odds.max()
        odds = odds - top
        share = np.exp(odds)
        total = share.sum() + one.unseen * np.exp(one.lanes.min() - top)
        share = share / total
        wanted = one.gains / one.gains.sum()
        mean = share @ one.features
        part = weight / whole
        value -= part * float(wanted @ odds - np.log(total))
        slope = slope + part * (mean - wanted @ one.features)
        curve = curve + part * ((one.features * share[:, None]).T @ one.features - np.outer(mean, mean))
    return value, slope, curve


def seen(sets: Mapping[str, Sequence[HitList]]) -> NDArray[np.bool_]:
    """Of each weight whether any hit tells of it; about the others a fit says nothing."""
    found = np.zeros(len(NAMES), dtype=bool)
    for each in sets.values():
        for one in each:
            found |= one.features.any(axis=0)
    return found


def order(one: HitList, weights: Array, temperature: float) -> NDArray[np.intp]:
    """Positions of the hits as the service would order them with these weights (recall/ranking.py), best first."""
    relevance = 1 / (1 + np.exp(-(one.lanes + one.features @ weights) / temperature))
    scores = one.factor * np.maximum(relevance, one.least) + one.nudges
    return np.argsort(-scores, kind="stable")


def judged(each: Sequence[HitList], weights: Array, temperature: float) -> dict[str, float]:
    """Means of the metrics over a set, in the order that these weights give; evidence that was not among the hits is not found."""
    sums = {f"recall@{k}": 0.0 for k in DEPTHS} | {"mrr": 0.0}
    for one in each:
        gains = one.gains[order(one, weights, temperature)]
        for k in DEPTHS:
            sums[f"recall@{k}"] += float(gains[:k].sum()) / one.evidence
        first = np.flatnonzero(gains)
        sums["mrr"] += 1 / (int(first[0]) + 1) if len(first) else 0.0
    return {name: round(total / len(each), 4) for name, total in sums.items()}


def without(weights: Array, name: str) -> Array:
    """The same with a signal left out; `before` and `answered` are one signal with two weights."""
    out = {"before", "answered"} if name == "before" else {name}
    return np.where([n in out for n in NAMES], 0.0, weights)
