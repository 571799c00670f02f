"""What does a cosine mean?  Pure.

Cosines of different models, and of one model in different scripts, are not comparable: with multilingual-e5-small an English
pair that belongs together has about .82, a Chinese pair that does not has .82 too.  A logistic curve per model and per
(query script, passage script) turns them into a relevance 0..1 that means the same everywhere.  docs/CALIBRATION.md has
the method; benchmarks/calibration.py fits the curves.  A cosine alone decides nothing where the keyword lane
answered too: the hybrid curve weighs both.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from memory_service.recall.scripts import Script, script_of
from memory_service.settings import Section

PairScript = Literal["latin", "cjk", "latin_cjk", "cjk_latin"]  # query script first where they differ
PAIR_SCRIPTS: tuple[PairScript, ...] = ("latin", "cjk", "latin_cjk", "cjk_latin")
OTHER_MODELS = "default"
Matrix = npt.NDArray[np.float64]
RIDGE = 1.0  # in pairs: as much as one pair that says nothing
NEWTON_ROUNDS_MAX = 100
_EXPONENT_MAX = 500.0  # math.exp overflows at 709; the result is 0 or 1 long before


class Curve(Section):
    """dense: 1 / (1 + exp(-slope × (cosine - midpoint))); hybrid: the same with `hybrid_…` and + keyword_gain × keyword score.

    Evidence adds up as log-odds: a shared rare word lifts a middling cosine, and no shared word costs little.  A weighted
    mean can't do that: natural questions share few words with what answers them (median keyword score .25 in English, .13
    in Chinese, 0 across), so that it keeps related pairs below .75.
    """

    midpoint: float
    slope: float
    hybrid_midpoint: float
    hybrid_slope: float
    keyword_gain: float


class ScriptCurves(Section):
    """The curves of one embedding model."""

    latin: Curve
    cjk: Curve
    latin_cjk: Curve
    cjk_latin: Curve

    def of(self, script: PairScript) -> Curve:
        return {"latin": self.latin, "cjk": self.cjk, "latin_cjk": self.latin_cjk, "cjk_latin": self.cjk_latin}[script]


class Relevance(Section):
    """The table [relevance] of config/memory.toml: curves by the model's name, `default` for models nobody measured."""

    models: dict[str, ScriptCurves]

    def curves(self, model: str) -> ScriptCurves:
        return self.models.get(model) or self.models[OTHER_MODELS]


def pair_script(query: Script, passage: Script | None) -> PairScript:
    """A passage whose script is not known is taken to be written like the query."""
    if passage is None or query == passage:
        return query
    return "latin_cjk" if query == "latin" else "cjk_latin"


def pair_script_of(query: str, passage: str | None) -> PairScript:
    return pair_script(script_of(query), None if passage is None else script_of(passage))


def relevance(cosine: float, script: PairScript, curves: ScriptCurves, keyword: float | None = None) -> float:
    """0..1; a higher cosine or keyword score never means less, and a cosine that is no number means nothing.

    `keyword` 0..1 is the keyword lane's score, 0 when it answered without this memory, None when the lane did not answer.
    """
    if math.isnan(cosine):
        return 0.0
    curve = curves.of(script)
    if keyword is None:
        return logistic(curve.slope * (cosine - curve.midpoint))
    return logistic(curve.hybrid_slope * (cosine - curve.hybrid_midpoint) + curve.keyword_gain * keyword)


def logistic(log_odds: float) -> float:
    return 1.0 / (1.0 + math.exp(min(max(-log_odds, -_EXPONENT_MAX), _EXPONENT_MAX)))


@dataclass(frozen=True, slots=True)
class Bin:
    """Of `count` pairs with a relevance in [low, high): what the curve promised on average and what share was related."""

    low: float
    high: float
    count: int
    promised: float
    related: float


Pairs = Sequence[tuple[float, float]]
"""(cosine, keyword score) of each."""


def fit_curve(related: Pairs, other: Pairs, keyword_gain: float | None = None) -> Curve:
    """The curves that most likely made these labels, both sides weighing the same.

    A given `keyword_gain` is taken instead of fitted, for pairs that share too few words to tell; then the hybrid curve is the
    dense one with it.

    Platt's targets (1999) instead of 0 and 1, and a light ridge, keep the slopes finite when the sides do not overlap.
    Raises ValueError when a side is empty or the related pairs do not have the higher cosines.
    """
    if not related or not other:
        raise ValueError("both sides need at least one pair")
    rows = np.array([*related, *other], dtype=np.float64)
    labels = np.arange(len(rows)) < len(related)
    targets = np.where(labels, (len(related) + 1) / (len(related) + 2), 1 / (len(other) + 2))
    weights = np.where(labels, 0.5 / len(related), 0.5 / len(other)) * len(rows)
    if rows[labels, 0].mean() <= rows[~labels, 0].mean():
        raise ValueError("related pairs must have the higher cosines")
    slope, offset = _fitted(rows[:, :1], targets, weights)
    if keyword_gain is None:
        hybrid_slope, gain, hybrid_offset = _fitted(rows, targets, weights)
    else:
        hybrid_slope, gain, hybrid_offset = slope, keyword_gain, offset
    return Curve(
        midpoint=-offset / slope,
        slope=slope,
        hybrid_midpoint=-hybrid_offset / hybrid_slope,
        hybrid_slope=hybrid_slope,
        keyword_gain=max(gain, 0.0),
    )


def _fitted(rows: Matrix, targets: Matrix, weights: Matrix) -> tuple[float, ...]:
    """Weighted logistic regression by Newton's method on standardised columns → the columns' slopes, then the offset."""
    mean, spread = rows.mean(axis=0), rows.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    design = np.column_stack([(rows - mean) / spread, np.ones(len(rows))])
    ridge = np.diag([RIDGE] * rows.shape[1] + [1e-9])
    beta = np.zeros(design.shape[1])
    for _ in range(NEWTON_ROUNDS_MAX):
        promised = 1.0 / (1.0 + np.exp(-np.clip(design @ beta, -_EXPONENT_MAX, _EXPONENT_MAX)))
        gradient = design.T @ (weights * (targets - promised)) - ridge @ beta
        hessian = (design * (weights * promised * (1 - promised))[:, None]).T @ design + ridge
        step = np.linalg.solve(hessian, gradient)
        beta += np.clip(step, -1.0, 1.0)  # a flat start can't throw the slope to infinity
        if np.abs(step).max() < 1e-9:
            break
    slopes = beta[:-1] / spread
    return (*map(float, slopes), float(beta[-1] - slopes @ mean))


def reliability(pairs: Sequence[tuple[float, bool]], edges: Sequence[float]) -> list[Bin]:
    """Pairs (relevance, related?) sorted into bins; related and other pairs weigh the same in total, as in `fit_curve`."""
    positives = sum(related for _, related in pairs) or 1
    negatives = len(pairs) - positives or 1
    bins = []
    for low, high in pairwise(edges):
        inside = [(p, r) for p, r in pairs if low <= p < high or (high == edges[-1] and p == high)]
        weights: Mapping[bool, float] = {True: 1 / positives, False: 1 / negatives}
        mass = sum(weights[r] for _, r in inside)
        promised = sum(p * weights[r] for p, r in inside) / mass if mass else 0.0
        bins.append(
            Bin(low, high, len(inside), promised, sum(weights[r] for _, r in inside if r) / mass if mass else 0.0)
        )
    return bins
