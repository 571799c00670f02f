"""How long does a question that was never asked take among 100,000 memories, against embedding it alone?

    python -m benchmarks.speed.hundred_thousand [--memories N] [--rounds N] [--searches N] [--home FOLDER] [--json FILE]

The same texts, model and questions as in benchmarks.speed.run, but spread over many users, skewed as in benchmarks.scale (Zipf's law;
of 100,000 the largest has 13,861), who are asked for by how much they have.  All is embedded by the real model, which takes
six minutes to a quarter of an hour; with --home the stack's folder is kept and filled once.  Writes
benchmarks/results/speed_100k.json, exits with 1 when the bar is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import machine
from benchmarks.scale.corpus import by_weight, shares
from benchmarks.speed import ours, peer
from benchmarks.speed.figures import Series
from benchmarks.speed.load import seconds_of
from benchmarks.speed.run import embedding_alone, said
from benchmarks.speed.stack import Stack
from benchmarks.speed.texts import queries, text_of

RESULTS = Path(__file__).parents[1] / "results" / "speed_100k.json"
BAR = 2.5
WAIT_PAUSE_S = 2.0  # the service closes a connection that is silent for 5


def main() -> int:
    asked = _arguments()
    folder: Any = nullcontext(str(asked.home)) if asked.home else tempfile.TemporaryDirectory(prefix="bench-100k-")
    peer.ensure_installed()
    model, before = peer.model_folder(), machine()
    with folder as name:
        stack = Stack(Path(name) / "home", model)
        stack.start()
        try:
            want = shares(asked.memories)
            _fill(stack, want)
            series = _measure(stack, model, want, asked.rounds, asked.searches)
        finally:
            stack.stop()
    cold, cached, alone = series["cold_ms"], series["cached_ms"], series["embedding_ms"]
    told = {
        "machine": {**before, "load_after": machine()["load"]},
        "memories": asked.memories,
        "users": len(want),
        "largest_user": max(want.values()),
        "cold_over_embedding": round(cold / alone, 2),
        "bar": BAR,
        "series": series.summary(),
    }
    asked.json.write_text(json.dumps(told, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    print(f"cold {cold:.2f} ms, known {cached:.2f} ms, embedding alone {alone:.2f} ms: {cold / alone:.2f} (bar {BAR})")
    return cold / alone > BAR


def _fill(stack: Stack, want: dict[str, int]) -> None:
    """Users' memories mixed, as they would come.  A kept home is not written again."""
    line = stack.line()
    if line.ask("POST", "/v1/memories/search", {"user_id": next(iter(want)), "query": "anything"})["results"]:
        said("the store is filled already")
    else:
        ours.write_all(line, _mixed(want))
    said("waiting for the vectors")
    ours.wait_indexed(line, WAIT_PAUSE_S)


def _mixed(want: dict[str, int]) -> list[tuple[str, str]]:
    """Every user's share spread evenly over the whole."""
    order = sorted((place / count, user, place) for user, count in want.items() for place in range(count))
    return [(user, text_of(user, place)) for _, user, place in order]


def _measure(stack: Stack, model: str, want: dict[str, int], rounds: int, count: int) -> Series:
    """A cold search, the same again, and the embedding alone of another question take turns."""
    embed, line, series = embedding_alone(model, stack.home / "models"), stack.line(), Series()
    for number in range(rounds):
        said(f"round {number + 1} of {rounds}")
        taken: dict[str, list[float]] = {"cold": [], "cached": [], "embedding": []}
        for place, user in enumerate(by_weight(np.random.default_rng([number, count]), want, count)):
            salt = f"{number} {place}"
            [question], [other] = queries(user, 1, want[user], salt), queries(user, 1, want[user], f"alone {salt}")
            ask = partial(ours.search(user), line, question)
            for name, work in (("cold", ask), ("cached", ask), ("embedding", partial(embed, other))):
                taken[name].append(seconds_of(work))
        for name, values in taken.items():
            series.times(f"{name}_ms", values)
    return series


def _arguments() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--memories", type=int, default=100_000)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--searches", type=int, default=60, help="a round")
    arguments.add_argument("--home", type=Path, help="keep the stack here")
    arguments.add_argument("--json", type=Path, default=RESULTS)
    return arguments.parse_args()


if __name__ == "__main__":
    sys.exit(main())
