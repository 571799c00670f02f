"""How long does a search take, asked over REST by one client after the other size's?

Rounds go through all sizes before the next begins.  A figure is the median over the rounds of a round's median, in milliseconds
as the client sees them; the query's embedding is computed by the stand-in, which takes no time worth speaking of.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import httpx
import numpy as np

from benchmarks.scale.corpus import OWNER, SEED, Corpus, Question, by_weight, uniformly
from benchmarks.scale.stack import Store

LIMIT = 10
WARMING = 20


@dataclass(frozen=True)
class Way:
    """A mode of search and who asks."""

    mode: str
    users: str  # by_weight, uniform or owner

    @property
    def name(self) -> str:
        return f"{self.mode}, {self.users}"


WAYS = [Way(mode, users) for mode in ("hybrid", "keyword", "vector") for users in ("by_weight", "uniform", "owner")]


@dataclass
class Timed:
    """Milliseconds of each search, by round; `empty` and `degraded` count answers."""

    rounds: list[list[float]] = field(default_factory=list)
    server_ms: list[float] = field(default_factory=list)
    empty: int = 0
    degraded: int = 0

    def summary(self) -> dict[str, object]:
        medians = [median(times) for times in self.rounds]
        every = [one for times in self.rounds for one in times]
        return {
            "p50_ms": round(median(medians), 2),
            "p50_ms_of_rounds": [round(one, 2) for one in medians],
            "p95_ms": round(float(np.percentile(every, 95)), 2),
            "service_p50_ms": round(median(self.server_ms), 2),
            "searches": len(every),
            "empty": self.empty,
            "degraded": self.degraded,
        }


def measure(
    stores: Sequence[Store], corpus: Corpus, rounds: int, searches: int, ways: Sequence[Way] = tuple(WAYS)
) -> dict[str, dict[str, Timed]]:
    """By way and size."""
    found: dict[str, dict[str, Timed]] = {way.name: {} for way in ways}
    with httpx.Client(timeout=60) as client:
        for number in range(-1, rounds):  # the first round is not counted
            for way in ways:
                for store in stores:
                    if way.users == "owner" and OWNER not in store.want:
                        continue
                    asked = questions(corpus, store, way, number, searches if number >= 0 else WARMING)
                    timed = found[way.name].setdefault(store.name, Timed())
                    _ask(client, store, way, asked, timed if number >= 0 else Timed())
    return {way: by_size for way, by_size in found.items() if by_size}


def questions(corpus: Corpus, store: Store, way: Way, number: int, count: int) -> list[Question]:
    """Other ones in each round, the same ones in each run."""
    chance = np.random.default_rng([SEED, number + 1, *way.name.encode()])
    draw = {"by_weight": by_weight, "uniform": uniformly, "owner": lambda *_given: [OWNER] * count}[way.users]
    users = draw(chance, store.want, count)
    return [corpus.question(chance, user, store.want[user]) for user in users]


def _ask(client: httpx.Client, store: Store, way: Way, asked: Sequence[Question], timed: Timed) -> None:
    times: list[float] = []
    for question in asked:
        body = {"user_id": question.user_id, "query": question.query, "limit": LIMIT, "mode": way.mode}
        started = time.perf_counter()
        answer = client.post(f"{store.url}/v1/memories/search", json=body)
        times.append(1_000 * (time.perf_counter() - started))
        if answer.status_code != 200:
            raise SystemExit(f"{store.name}, {way.name}: {answer.status_code} {answer.text[:500]}")
        said = answer.json()
        timed.server_ms.append(said["took_ms"])
        timed.empty += not said["results"]
        timed.degraded += bool(said["degraded"])
    timed.rounds.append(times)
