"""What does a cosine mean?  Pure.

Cosines of different models, and of one model in different scripts, are not comparable: with multilingual-e5-small an English
pair that belongs together has about .82, a Chinese pair that does not has .82 too.  A logistic curve per model and per
(query script, passage script) turns them into a relevance 0..1 that means the same everywhere.  docs/CALIBRATION.md has
the method; benchmarks/calibration.py fits the curves.  A cosine alone decides nothing where the keyword lane
answered too: the hybrid curve weighs both.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from memory_service.models.ports import Embedder
from memory_service.scripts import Script, script_of
from memory_service.settings import Section

PairScript = Literal["latin", "cjk", "latin_cjk", "cjk_latin"]  # query script first where they differ
PAIR_SCRIPTS: tuple[PairScript, ...] = ("latin", "cjk", "latin_cjk", "cjk_latin")
OTHER_MODELS = "default"
Matrix = npt.NDArray[np.float64]
Vector = npt.NDArray[np.float64]
Number = TypeVar("Number", float, Vector)
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

    def log_odds(self, cosine: Number, keyword: Number | None, cosine_weight: float) -> Number:
        """Of one memory, or of many at once; `keyword` None: the keyword lane did not answer."""
        if keyword is None:
            return cosine_weight * self.slope * (cosine - self.midpoint)
        return cosine_weight * self.hybrid_slope * (cosine - self.hybrid_midpoint) + self.keyword_gain * keyword

    def cautious(self, gain_max: float, log_odds: float) -> "Curve":
        """The same with every log-odds moved by `log_odds`, and keywords that add no more than `gain_max`."""
        return Curve(
            midpoint=self.midpoint - log_odds / self.slope,
            slope=self.slope,
            hybrid_midpoint=self.hybrid_midpoint - log_odds / self.hybrid_slope,
            hybrid_slope=self.hybrid_slope,
            keyword_gain=min(self.keyword_gain, gain_max),
        )


class KeywordCurve(Section):
    """Relevance by the keyword score alone, of a memory whose cosine nobody knows: 1 / (1 + exp(-slope × (score - midpoint)))."""

    midpoint: float
    slope: float

    def log_odds(self, score: Number) -> Number:
        """Of one memory, or of many at once."""
        return self.slope * (score - self.midpoint)


class ScriptCurves(Section):
    """The curves of one embedding model."""

    latin: Curve
    cjk: Curve
    latin_cjk: Curve
    cjk_latin: Curve

    def of(self, script: PairScript) -> Curve:
        curve: Curve = getattr(self, script)
        return curve


class Relevance(Section):
    """The table [relevance] of config/memory.toml: curves by the model's name, `default` for models nobody measured."""

    rank_temperature: float
    rank_cosine_cjk: float
    other_script_prior: float
    keyword_gain_max: float
    keyword: KeywordCurve
    models: dict[str, ScriptCurves]

    def curves(self, model: str) -> ScriptCurves:
        """As they are used: the measured ones with the two cautions of the table."""
        measured = self.models.get(model) or self.models[OTHER_MODELS]
        across = math.log(self.other_script_prior / (1.0 - self.other_script_prior))
        one, other = (self.keyword_gain_max, 0.0), (self.keyword_gain_max, across)
        return ScriptCurves(
            latin=measured.latin.cautious(*one),
            cjk=measured.cjk.cautious(*one),
            latin_cjk=measured.latin_cjk.cautious(*other),
            cjk_latin=measured.cjk_latin.cautious(*other),
        )


@dataclass(frozen=True, slots=True)
class Reading:
    """How the scores of one query are read: by the curves of the model in use, and in the script that the query is written in."""

    query: Script
    curves: ScriptCurves
    keyword: KeywordCurve
    temperature: float = 1.0
    cosine_weight: float = 1.0

    def relevance(self, passage: Script | None, cosine: float | None, keyword: float | None) -> float:
        """0..1.  None: the vector lane does not know this memory; the keyword lane did not answer."""
        return logistic(self._log_odds(passage, cosine, keyword))

    def rank_log_odds(self, passage: Script | None, cosine: float | None, keyword: float | None) -> float:
        """The same evidence for ranking, before the logistic function; `cosine_weight` is what cosines count against keywords."""
        return self._log_odds(passage, cosine, keyword, self.cosine_weight)

    def all_log_odds(
        self, passages: Sequence[Script | None], cosines: Sequence[float | None], keywords: Sequence[float] | None
    ) -> tuple[Vector, Vector]:
        """What `rank_log_odds` says of many memories, and the log-odds of their `relevance`.

        `keywords` None: the keyword lane did not answer.
        """
        same = np.array([one is None or one == self.query for one in passages], dtype=bool)
        own = self.curves.of(self.query)
        other = self.curves.of(pair_script(self.query, "cjk" if self.query == "latin" else "latin"))
        known = np.array([one is not None for one in cosines], dtype=bool)
        cosine = np.array([math.nan if one is None else one for one in cosines], dtype=np.float64)
        words = None if keywords is None else np.asarray(keywords, dtype=np.float64)
        without = np.full(len(cosine), -math.inf) if words is None else self.keyword.log_odds(words)

        def weighing(cosine_weight: float) -> Vector:
            odds = np.where(
                same, own.log_odds(cosine, words, cosine_weight), other.log_odds(cosine, words, cosine_weight)
            )
            return np.where(known, np.where(np.isnan(cosine), -math.inf, odds), without)

        plain = weighing(1.0)
        return plain if self.cosine_weight == 1.0 else weighing(self.cosine_weight), plain

    def spreads(self, log_odds: Vector) -> Vector:
        """Log-odds over `temperature`, so that good and excellent hits stay apart, whose relevances are all near 1, and
        freshness decides between neighbours only."""
        return logistics(log_odds / self.temperature)

    def _log_odds(
        self, passage: Script | None, cosine: float | None, keyword: float | None, cosine_weight: float = 1.0
    ) -> float:
        if cosine is not None:
            return log_odds(cosine, pair_script(self.query, passage), self.curves, keyword, cosine_weight)
        return -math.inf if keyword is None else self.keyword.log_odds(keyword)


@dataclass(frozen=True, slots=True)
class Readings:
    """Makes the Reading of each query."""

    curves: ScriptCurves
    keyword: KeywordCurve
    temperature: float
    cosine_cjk: float

    @classmethod
    def of(cls, table: Relevance, model: str) -> "Readings":
        return cls(table.curves(model), table.keyword, table.rank_temperature, table.rank_cosine_cjk)

    def of_query(self, query: str) -> Reading:
        return self._reading(query, self.curves)

    def _reading(self, query: str, curves: ScriptCurves) -> Reading:
        script = script_of(query)
        weight = self.cosine_cjk if script == "cjk" else 1.0
        return Reading(script, curves, self.keyword, self.temperature, weight)


@dataclass(frozen=True, slots=True)
class FollowingReadings(Readings):
    """Readings of whichever model serves when the query comes: it can be exchanged while the service runs."""

    table: Relevance
    embedder: Embedder
    of_model: dict[str, ScriptCurves] = field(default_factory=dict)

    @classmethod
    def of_current(cls, table: Relevance, embedder: Embedder) -> "FollowingReadings":
        curves = table.curves(embedder.fingerprint.model)
        return cls(curves, table.keyword, table.rank_temperature, table.rank_cosine_cjk, table, embedder)

    def of_query(self, query: str) -> Reading:
        model = self.embedder.fingerprint.model
        curves = self.of_model.get(model) or self.of_model.setdefault(model, self.table.curves(model))
        return self._reading(query, curves)


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
    return logistic(log_odds(cosine, script, curves, keyword))


def log_odds(
    cosine: float, script: PairScript, curves: ScriptCurves, keyword: float | None = None, cosine_weight: float = 1.0
) -> float:
    """The same before the logistic function, with the share of the cosine times `cosine_weight`."""
    if math.isnan(cosine):
        return -math.inf
    return curves.of(script).log_odds(cosine, keyword, cosine_weight)


def logistic(x: float) -> float:
    return 0.0 if x == -math.inf else 1.0 / (1.0 + math.exp(min(max(-x, -_EXPONENT_MAX), _EXPONENT_MAX)))


def logistics(x: Vector) -> Vector:
    """`logistic` of each."""
    return np.where(x == -math.inf, 0.0, 1.0 / (1.0 + np.exp(np.clip(-x, -_EXPONENT_MAX, _EXPONENT_MAX))))


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
