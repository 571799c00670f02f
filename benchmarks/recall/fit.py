"""Which weights should [signals] have, and what is each signal worth?

    python -m benchmarks.recall.fit NAME=PATH[,noise=N][,roles=user][,limit=N] … [--base-url URL] [--lists FILE] [--write]

Writes the sets to a service, searches with `explain` and fits the weights to what it says (weights.py).  Prints them beside those
of config/memory.toml; for each set what the order of its hits is worth with both, with weights fitted to the other sets only, and
without each signal.  --lists keeps the numbers, and reads them when the file is there: then no service is needed.  The service must
run with the config that is read here.  --write puts the weights into config/memory.toml; nothing else changes it.

Only the hits of an answer are put into another order: what a signal brings into the answer, or keeps out, is not seen.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.recall import numbers_file, results
from benchmarks.recall.asking import Refused, Service, written
from benchmarks.recall.cases import BadSet
from benchmarks.recall.lists import NAMES, Array, HitList, OtherService, collected, loaded, saved, weights_of
from benchmarks.recall.run import address, client, said
from benchmarks.recall.sets import Chosen, cases_of, parsed
from benchmarks.recall.weights import fit, judged, seen, without
from memory_service.recall.calibration import Relevance
from memory_service.settings import Settings, Tunables, load_tunables

SECTION = "signals"
METRICS = ("recall@10", "mrr")


async def lists_of(asked: httpx.AsyncClient, chosen: Sequence[Chosen], numbers: Tunables) -> dict[str, list[HitList]]:
    """By the set's name in tables.  Raises Refused, BadSet, OtherService."""
    service, told = Service(asked), {}
    for one_set in chosen:
        cases = cases_of(one_set)
        told[one_set.called] = each = list[HitList]()
        said(f"{one_set.called}: {len(cases)} users")
        for case in cases:
            async with written(service, case) as one:
                each += await collected(service, one, numbers.signals, numbers.rank)
                if one.problems:
                    raise Refused(f"{one_set.called}, {case.user}: {dict(one.problems)}")
    return told


def worth(sets: Mapping[str, Sequence[HitList]], configured: Array, temperature: float) -> dict[str, Any]:
    """For each set: with the configured weights, with those fitted to all, to the others only, and without each signal."""
    fitted = _fitted(sets, configured)
    untold = [name for name, there in zip(NAMES, seen(sets), strict=True) if not there]
    told: dict[str, Any] = {"configured": _named(configured), "fitted": _named(fitted), "untold": untold, "sets": {}}
    for label, each in sets.items():
        others = {name: lists for name, lists in sets.items() if name != label}
        held_out = _fitted(others, configured) if others else None
        told["sets"][label] = {
            "questions": len(each),
            **judged(each, configured, temperature),
            "fitted": judged(each, fitted, temperature),
            "held_out": None if held_out is None else judged(each, held_out, temperature),
            "held_out_weights": None if held_out is None else _named(held_out),
            "without": {
                **{n: judged(each, without(configured, n), temperature) for n in NAMES if n != "answered"},
                "all of them": judged(each, np.zeros_like(configured), temperature),
            },
        }
    return told


def _fitted(sets: Mapping[str, Sequence[HitList]], configured: Array) -> Array:
    """A weight that no hit tells of stays as it is configured."""
    return np.where(seen(sets), fit(sets), configured)


def _named(weights: Array) -> dict[str, float]:
    return {name: round(float(weight), 3) for name, weight in zip(NAMES, weights, strict=True)}


def page(told: Mapping[str, Any]) -> list[str]:
    """For a terminal."""
    heads = [f"without {label}" for label in told["sets"]]
    widths = [len(head) + 2 for head in heads]
    lines = [f"{'':<12}{'configured':>12}{'fitted':>12}" + "".join(f"  {head}" for head in heads)]
    for name in NAMES:
        fitted = "not told" if name in told["untold"] else f"{told['fitted'][name]:.2f}"
        cells = [f"{told['configured'][name]:>12.2f}", f"{fitted:>12}"]
        for one, width in zip(told["sets"].values(), widths, strict=True):
            held_out = one["held_out_weights"]
            cells.append(f"{held_out[name]:>{width}.2f}" if held_out else f"{'-':>{width}}")
        lines.append(f"{name:<12}{''.join(cells)}")
    for label, one in told["sets"].items():
        lines += [
            "",
            f"{label}, {one['questions']} questions ({', '.join(METRICS)} of the answers' first hundred, put in order)",
        ]
        orders = {"configured": one, "fitted to all": one["fitted"], "fitted to others": one["held_out"]}
        orders |= {f"without {name}": order for name, order in one["without"].items()}
        lines += [f"  {name:<20}{_figures(order)}" for name, order in orders.items() if order]
    return lines


def _figures(order: Mapping[str, float]) -> str:
    return "".join(f"{100 * order[metric]:>8.1f}" for metric in METRICS)


def _given() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS
    )
    arguments.add_argument("sets", nargs="*", metavar="NAME=PATH")
    arguments.add_argument("--base-url")
    arguments.add_argument("--key", help="of an admin, when the service has keys")
    arguments.add_argument("--lists", type=Path, help="numbers of the hits: read when there, else written")
    arguments.add_argument("--results", type=Path, help="keep what the signals are worth in this file")
    arguments.add_argument("--write", action="store_true", help="put the weights into config/memory.toml")
    return arguments.parse_args()


def main() -> int:
    given = _given()
    settings = Settings()
    numbers = load_tunables(settings)
    temperature = numbers.section("relevance", Relevance).rank_temperature

    async def ask(url: str) -> dict[str, list[HitList]]:
        async with client(url, given.key) as asked:
            return await lists_of(asked, chosen, numbers)

    try:
        configured = weights_of(numbers.signals)
        if given.lists and given.lists.exists():
            sets, configured = loaded(given.lists)
        else:
            chosen = [parsed(text) for text in given.sets]
            if not chosen:
                raise BadSet("name a set, or --lists with a file that is there")
            with address(given.base_url) as url:
                sets = asyncio.run(ask(url))
            if given.lists:
                saved(given.lists, sets, configured)
    except (BadSet, OtherService, Refused, httpx.TransportError) as problem:
        raise SystemExit(f"{problem!s}" or repr(problem)) from None
    told = {**worth(sets, configured, temperature), "machine": results.machine()}
    print("\n".join(page(told)))
    if given.results:
        results.keep(given.results, "signals", told)
    if given.write:
        path = settings.config_folder / "memory.toml"
        numbers_file.write(path, SECTION, told["fitted"])
        print(f"written to {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
