"""Does the memory help an agent that does not know the traps?

    python -m benchmarks.loop.run [--embedder bundled|hash] [--per-family N] [--json FILE]

Starts its own stores and memory-service in a temporary folder, lets the agent work through the train tasks with memory (each
finish distils lessons by the rules; no language model), then does every test task twice from the same store: without memory, and
with it but without learning.  Then two more passes over every third test task: with learning going on, and as a control with each
lesson's `action` and `avoid` exchanged, which shows what wrong advice would do to this agent.  Prints the table and writes
benchmarks/results/loop.json.  Needs no network once the bundled model is built.  Exits with 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from benchmarks.loop import apis, files, report, tables
from benchmarks.loop.agent import Memory, NoMemory, Run, work
from benchmarks.loop.memory import LoopMemory
from benchmarks.loop.tasks import SEED, Task, all_tasks
from benchmarks.loop.world import World
from benchmarks.machine import machine
from benchmarks.service_process import service_process
from local_stack import ports
from local_stack.stores import running_stores
from memory_service.foundation import embedding_tunables
from memory_service.migrating import migrate
from memory_service.models.e5_build import ensure_built
from memory_service.models.e5_tokenizer import E5Tokenizer
from memory_service.settings import Settings, load_settings, load_tunables

RESULTS = Path(__file__).parents[1] / "results" / "loop.json"
TOOLS = {**files.TOOLS, **apis.TOOLS, **tables.TOOLS}
READY_S = 120.0
LONG_STEPS = 20  # without memory
CONTROL_EVERY = 3  # of the test tasks also serve as controls
LEARNER, MISLED = "learner", "misled"


@contextmanager
def served(folder: Path, embedder: str) -> Iterator[str]:
    """A memory-service over real stores; its base URL."""
    with running_stores(folder / "stack") as urls:
        port = ports.choose(None, frozenset())
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HINDSIGHT_LLM_")},
            **urls.environment(),
            "HINDSIGHT_EMBEDDING_PROVIDER": embedder,
            "HINDSIGHT_PORT": str(port),
            "HINDSIGHT_LOG_LEVEL": "ERROR",
        }
        migrate(Settings(database_url=urls.database_url), say=lambda _line: None)
        url = f"http://127.0.0.1:{port}"
        with service_process(environment, url, READY_S):
            yield url


async def passes(tasks: Sequence[Task], memory_for: Callable[[Task], Memory]) -> list[Run]:
    """Every task in order, each in a fresh world."""
    return [await work(task, World(TOOLS), memory_for(task)) for task in tasks]


async def exchanged(client: httpx.AsyncClient) -> int:
    """Writes every lesson of the learner for the misled user, with what to do and what to avoid exchanged."""
    written, cursor = 0, None
    while True:
        listed = (
            await client.get(
                "/v1/experiences", params={"user_id": LEARNER, "limit": 100, **({"cursor": cursor} if cursor else {})}
            )
        ).json()
        for lesson in listed["items"]:
            if lesson["avoid"]:
                told = {name: lesson[name] for name in ("conditions", "task_type", "confidence", "rationale")}
                body = {"user_id": MISLED, "action": lesson["avoid"], "avoid": lesson["action"], **told}
                (await client.post("/v1/experiences", json=body)).raise_for_status()
                written += 1
        cursor = listed["next_cursor"]
        if cursor is None:
            return written


async def measure(url: str, per_family: int | None, count_tokens: Callable[[str], int]) -> dict[str, Any]:
    train, test = all_tasks("train", per_family), all_tasks("test", per_family)
    some = test[::CONTROL_EVERY]
    used: list[LoopMemory] = []
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:

        async def with_memory(tasks: Sequence[Task], learn: bool, label: str = "", user: str = LEARNER) -> list[Run]:
            used[:] = [LoopMemory(client, user, count_tokens, learn, label) for _ in tasks]
            ready = iter(used)
            return await passes(tasks, lambda _task: next(ready))

        said(f"{len(train)} train tasks")
        await with_memory(train, learn=True)
        listed = await client.get("/v1/experiences", params={"user_id": LEARNER, "limit": 1})
        lessons = listed.raise_for_status().json()["total"]
        said(f"{len(test)} test tasks, {lessons} lessons")
        off = await passes(test, lambda _task: NoMemory())
        on = await with_memory(test, learn=False)
        advice = {"asked": sum(one.asked for one in used), "degraded": sum(one.degraded for one in used)}
        said(f"{len(some)} of them with every lesson turned round, then while learning goes on")
        turned = await exchanged(client)
        misled = await with_memory(some, learn=False, user=MISLED)
        going_on = await with_memory(some, learn=True, label=" again")
    return {
        "tasks": {"train": len(train), "test": len(test), "long": sum(len(run.steps) >= LONG_STEPS for run in off)},
        "lessons": lessons,
        "advice": advice,
        "figures": report.figures(pairs(off, on)),
        "kinds": report.by_kind(pairs(off, on)),
        "learning_on": report.figures(pairs(off[::CONTROL_EVERY], going_on))["all"],
        "exchanged_lessons": {"lessons": turned, **report.figures(pairs(off[::CONTROL_EVERY], misled))["all"]},
    }


def pairs(off: Sequence[Run], on: Sequence[Run]) -> list[report.Pair]:
    return [report.Pair(*pair) for pair in zip(off, on, strict=True)]


def counter() -> Callable[[str], int]:
    """Counts with the bundled model's tokenizer, which "tokens" mean everywhere in Hindsight."""
    settings = load_settings()
    numbers = embedding_tunables(load_tunables(settings))
    built = ensure_built(
        settings.models_folder,
        lambda line: print(line, file=sys.stderr),
        download_timeout_s=numbers.download_timeout_s,
        lock_timeout_s=numbers.build_lock_timeout_s,
    )
    tokenizer = E5Tokenizer(built.vocabulary())
    return lambda text: len(tokenizer.ids(text))


def said(line: str) -> None:
    print(f"== {line}", file=sys.stderr, flush=True)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--embedder", choices=("bundled", "hash"), default="bundled")
    arguments.add_argument("--per-family", type=int, help="only so many train and test tasks of each family")
    arguments.add_argument("--json", type=Path, default=RESULTS)
    chosen = arguments.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-loop-") as folder, served(Path(folder), chosen.embedder) as url:
        measured = asyncio.run(measure(url, chosen.per_family, counter()))
    told = {
        "machine": machine(),
        "seed": SEED,
        "embedder": chosen.embedder,
        "took_s": round(time.monotonic() - started),
        **measured,
    }
    chosen.json.write_text(json.dumps(told, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    print("\n".join(report.table(told["figures"])))
    for name in ("learning_on", "exchanged_lessons"):
        print(f"{name}: {json.dumps(told[name], ensure_ascii=False)}")
    missed = report.missed(told["figures"])
    print(f"bars missed: {'; '.join(missed) or 'none'} · {told['took_s']} s · {chosen.json}")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
