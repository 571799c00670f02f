"""What does the service say of each hit of a question, as numbers that weights can be fitted to?

A search with `explain` tells a hit's log-odds and what each signal added to it.  Divided by its weight in [signals], what it added
is the feature; what is left is what the lanes say.  Of a gain by the turn before, the answer does not tell whether `before` or
`answered` weighed it; the turns of the set do: it is `answered` when that turn asks and no assistant speaks.
A signal whose weight is 0 adds nothing that its feature could be read from: it stays 0 until it is given a small weight.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.recall.asking import Service, Written, hits
from benchmarks.recall.cases import Case, Question
from memory_service.recall.conversation import ASSISTANTS
from memory_service.settings import Rank, Signals

Array = NDArray[np.float64]
SWITCHES = ("speaker", "assistant")  # signals that add their weight or nothing; `asks` adds a share of it
NAMES = ("before", "answered", "after", "asks", "speaker", "assistant", "time")
LIMIT = 100  # the contract's largest
REMINDERS = ("structured", "recent")  # lanes whose score is the least that a hit is worth
ROUNDED = 1e-4  # explain tells six decimals
COUNTS = ("evidence", "unseen")
RANK_NUDGES = ("importance", "confidence", "heat")


@dataclass(frozen=True, slots=True)
class HitList:
    """The hits of one question, in the order of the answer; arrays have a row a hit.

    `lanes`: log-odds without signals.  `features`: hits × NAMES, what a weight of 1 would add.  `gains`: how many of the `evidence`
    turns it is.  `unseen`: memories of the user that the answer had no room for.  The rest is what the final score is made of:
    `factor` times the relevance, which is `least` at least, plus `nudges`.
    """

    lanes: Array
    features: Array
    gains: Array
    factor: Array
    nudges: Array
    least: Array
    evidence: int
    unseen: int = 0


class OtherService(Exception):
    """The service weighs other signals, or with other weights, than this module and the config that it read know."""


def weights_of(signals: Signals) -> Array:
    """The configured ones, in the order of NAMES."""
    return np.array([getattr(signals, name) for name in NAMES], dtype=np.float64)


async def collected(service: Service, one: Written, signals: Signals, rank: Rank) -> list[HitList]:
    """A list for each question of the case that found anything.  Raises OtherService, Refused."""
    answered = answering(one.case, signals.tail_chars)
    told = []
    for question in one.case.questions:
        found = await hits(service, one, question.query, LIMIT, explain=True)
        told.append(_list(found, one, question, answered, weights_of(signals), rank))
    return told


def answering(case: Case, tail_chars: int) -> set[str]:
    """Refs of turns that answer the one before: it asks near its end, and this one is no assistant's."""
    before = case.before()
    users = [turn for turn in case.turns if turn.ref in before and turn.role.casefold() not in ASSISTANTS]
    return {turn.ref for turn in users if asks(before[turn.ref].content, tail_chars)}


def asks(content: str, tail_chars: int) -> bool:
    return any(mark in content[-tail_chars:] for mark in "?？")


def _list(
    found: Sequence[Mapping[str, Any]],
    one: Written,
    question: Question,
    answered: set[str],
    weights: Array,
    rank: Rank,
) -> HitList:
    known = [hit for hit in found if hit["score_details"]["log_odds"] is not None]
    details = [hit["score_details"] for hit in known]
    refs = [one.stands_for(hit) for hit in known]
    added = [_added(d["signals"], bool(r & answered)) for d, r in zip(details, refs, strict=True)]
    contributions = np.array([[a.get(name, 0.0) for name in NAMES] for a in added], dtype=np.float64)
    contributions = contributions.reshape(len(known), len(NAMES))
    features = np.divide(contributions, weights, out=np.zeros_like(contributions), where=weights != 0)
    _check(contributions, features)
    return HitList(
        lanes=np.array([d["log_odds"] for d in details]) - contributions.sum(axis=1),
        features=features,
        gains=np.array([len(r & question.evidence) for r in refs], dtype=np.float64),
        factor=np.array([rank.relevance_weight + rank.freshness_weight * d["freshness"] for d in details]),
        nudges=np.array([sum(d["nudges"].get(name, 0.0) for name in RANK_NUDGES) for d in details]),
        least=np.array(
            [max((d["lanes"][n]["score"] for n in REMINDERS if n in d["lanes"]), default=0.0) for d in details]
        ),
        evidence=len(question.evidence),
        unseen=max(len(one.refs) - len(known), 0),
    )


def _check(contributions: Array, features: Array) -> None:
    """Raises OtherService when a switch is neither on nor off, or works without a weight: the answers tell no weights."""
    at = [NAMES.index(name) for name in SWITCHES]
    told = np.where(contributions[:, at] != 0, features[:, at], 1.0)
    if not np.allclose(told, 1.0, atol=ROUNDED):
        raise OtherService("the service runs with other weights of [signals] than config/memory.toml has: restart it")


def _added(signals: Mapping[str, float], answers: bool) -> dict[str, float]:
    """By the name of the weight.  Raises OtherService."""
    unknown = signals.keys() - set(NAMES)
    if unknown:
        raise OtherService(f"unknown signals {sorted(unknown)}: benchmarks/recall/lists.py is older than the service")
    return {("answered" if name == "before" and answers else name): value for name, value in signals.items()}


def saved(path: Path, sets: Mapping[str, Sequence[HitList]], weights: Array) -> None:
    """Numbers only, so that fits can be repeated without a service."""
    told = {
        name: [{f: _plain(getattr(one, f)) for f in HitList.__slots__} for one in each] for name, each in sets.items()
    }
    path.write_text(json.dumps({"weights": weights.tolist(), "sets": told}), encoding="utf-8")


def loaded(path: Path) -> tuple[dict[str, list[HitList]], Array]:
    """What `saved` wrote: lists by set, and the weights that were configured then."""
    told = json.loads(path.read_text(encoding="utf-8"))
    return {name: [_hit_list(one) for one in each] for name, each in told["sets"].items()}, np.array(told["weights"])


def _hit_list(told: Mapping[str, Any]) -> HitList:
    arrays = {name: np.array(value, dtype=np.float64) for name, value in told.items() if name not in COUNTS}
    arrays["features"] = arrays["features"].reshape(-1, len(NAMES))
    return HitList(**arrays, evidence=int(told["evidence"]), unseen=int(told["unseen"]))


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value
