"""How fast is mem0 in its own process?  A child in .venv-bench: one JSON command a line in, one JSON answer a line out.

Times are taken in here, around mem0's own calls, so neither the pipe nor JSON counts against it.  Runs without the rest of
this repository; mem0's configuration is its documented local one: Hugging Face embedder, Qdrant in a folder, `infer=False`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

os.environ.update(
    MEM0_TELEMETRY="False", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1"
)

FILL_ROWS = 256


class Peer:
    """mem0 with its defaults.  Several clients are threads, without a lock of ours: torch and SQLite release the interpreter's."""

    def __init__(self, model: str, folder: str) -> None:
        import torch
        from mem0 import Memory

        torch.set_num_threads(1)
        torch.set_num_interop_threads(1)
        self._memory = Memory.from_config(
            {
                "embedder": {
                    "provider": "huggingface",
                    "config": {"model": model, "embedding_dims": 384, "model_kwargs": {"device": "cpu"}},
                },
                "vector_store": {
                    "provider": "qdrant",
                    "config": {
                        "path": f"{folder}/qdrant",
                        "collection_name": "bench",
                        "embedding_model_dims": 384,
                        "on_disk": True,
                    },
                },
                "llm": {"provider": "openai", "config": {"api_key": "never called: infer is False", "model": "none"}},
                "history_db_path": f"{folder}/history.db",
            }
        )

    def add(self, user: str, texts: list[str], clients: int) -> dict[str, Any]:
        return self._spread(lambda text: self._memory.add(text, user_id=user, infer=False), texts, clients)

    def search(self, user: str, texts: list[str], clients: int) -> dict[str, Any]:
        return self._spread(lambda text: self._memory.search(text, filters={"user_id": user}, top_k=5), texts, clients)

    def fill(self, user: str, texts: list[str]) -> dict[str, Any]:
        """What `add` leaves behind for each text, embedded in batches: filling is not measured."""
        import hashlib
        import uuid
        from datetime import UTC, datetime

        memory = self._memory
        for start in range(0, len(texts), FILL_ROWS):
            part = texts[start : start + FILL_ROWS]
            at = datetime.now(UTC).isoformat()
            payloads = [
                {
                    "user_id": user, "role": "user", "data": text, "hash": hashlib.md5(text.encode()).hexdigest(),
                    "created_at": at, "updated_at": at, "text_lemmatized": text.lower(),
                }
                for text in part
            ]  # fmt: skip
            vectors = memory.embedding_model.embed_batch(part)
            memory.vector_store.insert(vectors=vectors, payloads=payloads, ids=[str(uuid.uuid4()) for _ in part])
        return {"filled": len(texts)}

    def count(self, user: str) -> dict[str, Any]:
        found = self._memory.vector_store.client.count("bench", count_filter=None)
        return {"count": found.count}

    def rss(self) -> dict[str, Any]:
        with open("/proc/self/status") as file:
            line = next(line for line in file if line.startswith("VmRSS"))
        return {"kib": int(line.split()[1])}

    def _spread(self, work: Any, texts: list[str], clients: int) -> dict[str, Any]:
        """Seconds of each call and of all, and what went wrong."""
        seconds: list[float] = [0.0] * len(texts)
        errors: list[str] = []

        def client(first: int) -> None:
            for at in range(first, len(texts), clients):
                begun = time.perf_counter()
                try:
                    work(texts[at])
                except Exception as error:
                    errors.append(f"{type(error).__name__}: {error}"[:200])
                seconds[at] = time.perf_counter() - begun

        begun = time.perf_counter()
        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(client, range(clients)))
        return {"seconds": seconds, "whole": time.perf_counter() - begun, "errors": errors}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--folder", required=True)
    chosen = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not look like an answer
    peer = Peer(chosen.model, chosen.folder)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        answer = getattr(peer, command.pop("do"))(**command)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
