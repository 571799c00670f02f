"""How much of the labelled evidence does search find?

    python -m benchmarks.recall.run SET --data PATH [--base-url URL] [--noise N] [--roles user] [--limit N] [--json FILE]

Every turn of the set becomes a memory, every question a search; its answers are compared with the turns that people marked as
evidence, and with what BM25, the vectors alone and their fusion find in the same turns.  No language model.  Without --base-url a
stack of its own is started in a temporary folder.  `--results benchmarks/results/recall.json` keeps the figures in the committed
file and in docs/BENCHMARKS.md.  The sets and their licences are their authors': get them from there.  Exits with 2 when turns
were refused, not indexed, or lanes were degraded: such a run is not comparable.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from benchmarks.recall import results
from benchmarks.recall.asking import Refused, Service, written
from benchmarks.recall.cases import BadSet, Case
from benchmarks.recall.compared import Row, Words, rows
from benchmarks.recall.sets import SETS, Chosen, cases_of
from benchmarks.speed.stack import Stack
from memory_service.settings import Settings
from memory_service.vocabulary import Vocabulary, load_vocabulary

TIMEOUT_S = 120.0


@contextmanager
def address(given: str | None) -> Iterator[str]:
    """The base URL that was given, or that of a stack for as long as it is needed."""
    if given:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="bench-recall-") as name:
        stack = Stack(Path(name) / "home", None)
        said("starting a stack")
        stack.start()
        try:
            yield f"http://127.0.0.1:{stack.port}"
        finally:
            stack.stop()


def client(base_url: str, key: str | None) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.AsyncClient(base_url=base_url, headers=headers, timeout=TIMEOUT_S, trust_env=False)


def vocabulary() -> Vocabulary:
    """That of the service, so that BM25 here is no worse for its words."""
    folder = Settings().config_folder
    return load_vocabulary(folder / "terms.toml", folder / "stop_words.toml")


async def measure(asked: httpx.AsyncClient, cases: list[Case]) -> dict[str, Any]:
    """The figures of a set.  Raises Refused."""
    service, words, started = Service(asked), vocabulary(), time.monotonic()
    told: list[Row] = []
    problems: Counter[str] = Counter()
    duplicates = missing = 0
    for number, case in enumerate(cases, 1):
        async with written(service, case) as one:
            told += await rows(service, one, Words(case, words))
            problems += one.problems
            duplicates += one.duplicates
            missing += one.cosines_missing
        if number == len(cases) or number % max(len(cases) // 10, 1) == 0:
            said(f"{number} of {len(cases)} users, {len(told)} questions")
    return {
        "turns": sum(len(case.turns) for case in cases),
        "duplicates": duplicates,
        "unscored": sum(case.unscored for case in cases),
        "cosines_missing": missing,
        **results.figures(told, problems),
        "took_s": round(time.monotonic() - started),
    }


def said(line: str) -> None:
    print(f"== {line}", file=sys.stderr, flush=True)


def _given() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS
    )
    arguments.add_argument("set", choices=SETS)
    arguments.add_argument("--data", type=Path, required=True, help="the file or folder, as its authors publish it")
    arguments.add_argument("--base-url", help="of a running service; its users bench-recall-… are erased afterwards")
    arguments.add_argument("--key", help="of an admin, when the service has keys")
    arguments.add_argument("--noise", type=int, default=0, help="memdaily: unrelated lines added to each user")
    arguments.add_argument("--roles", choices=("all", "user"), default="all", help="beam: whose messages are written")
    arguments.add_argument("--limit", type=int, default=0, help="at most so many users")
    arguments.add_argument("--label", default="", help="what tables call the set")
    arguments.add_argument("--json", type=Path, help="write the figures there")
    arguments.add_argument("--results", type=Path, help="keep the figures in this file, beside those of other sets")
    return arguments.parse_args()


def main() -> int:
    given = _given()
    chosen = Chosen(given.set, given.data, given.noise, given.roles, given.limit, given.label)

    async def run(url: str) -> dict[str, Any]:
        async with client(url, given.key) as asked:
            return await measure(asked, cases)

    try:
        before, cases = results.machine(), cases_of(chosen)
        said(f"{chosen.called}: {len(cases)} users, {sum(len(case.turns) for case in cases)} turns")
        with address(given.base_url) as url:
            told = {**asyncio.run(run(url)), "machine": before}
    except (BadSet, Refused, httpx.TransportError) as problem:
        raise SystemExit(f"{problem!s}" or repr(problem)) from None
    print("\n".join([*results.categories(told), "", *results.table({chosen.called: told})]))
    if given.json:
        given.json.write_text(json.dumps(told, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    if told["problems"]:
        print(f"not a clean run: {told['problems']}")
        return 2
    if given.results:
        results.keep(given.results, "sets", {chosen.called: told})
    return 0


if __name__ == "__main__":
    sys.exit(main())
