"""Which requests does the benchmark send?  One function a kind of request, each taking a connection and a text."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from benchmarks.speed.load import Call
from benchmarks.speed.rest import Line
from benchmarks.speed.stack import Stack

BATCH = 500
VISIBLE_MAX_S = 120.0


def write(user: str) -> Call:
    """A durable write: answered when Postgres has committed."""
    return lambda line, text: line.ask("POST", "/v1/memories", {"user_id": user, "content": text, "infer": False})


def search(user: str, **options: Any) -> Call:
    """A search whose lanes all answered: a degraded one would be too fast."""

    def call(line: Line, text: str) -> object:
        found = line.ask("POST", "/v1/memories/search", {"user_id": user, "query": text, **options})
        if found["degraded"]:
            raise RuntimeError(f"degraded: {found['degraded']}")
        return found

    return call


def fill(stack: Stack, user: str, texts: Sequence[str]) -> None:
    """Write in batches and wait until all are in the vector index.  Not measured."""
    line = stack.line()
    write_all(line, [(user, text) for text in texts])
    wait_indexed(line)


def write_all(line: Line, written: Sequence[tuple[str, str]]) -> None:
    """Users' texts in batches; all of them are kept when it returns."""
    for start in range(0, len(written), BATCH):
        part = [{"user_id": user, "content": text, "infer": False} for user, text in written[start : start + BATCH]]
        answer = line.ask("POST", "/v1/memories/batch", {"memories": part})
        refused = [one for one in answer["results"] if one["status"] != "created"]
        if refused:
            raise RuntimeError(f"not written: {refused[:2]}")


def wait_indexed(line: Line, pause_s: float = 0.04) -> None:
    """Until no memory waits for its vector.  /ready counts what waits and, unlike /v1/stats, not what is stored; still ask seldom."""
    deadline = time.monotonic() + VISIBLE_MAX_S * 10
    while time.monotonic() < deadline:
        if line.ask("GET", "/ready")["index"]["pending"] == 0:
            return
        time.sleep(pause_s)
    raise RuntimeError("the vectors did not come in time")


def found_by_vector(line: Line, user: str, text: str) -> bool:
    """Whether a search by meaning alone, with the text as its query, brings that very text first."""
    asked = {"user_id": user, "query": text, "mode": "vector", "limit": 3}
    results = line.ask("POST", "/v1/memories/search", asked)["results"]
    return any(result["content"] == text for result in results)


def visible_after(line: Line, user: str, text: str) -> float:
    """Seconds from the answer to a write until a search by vector finds it.  The query is embedded beforehand."""
    found_by_vector(line, user, text)
    line.ask("POST", "/v1/memories", {"user_id": user, "content": text, "infer": False})
    begun = time.perf_counter()
    while not found_by_vector(line, user, text):
        if time.perf_counter() - begun > VISIBLE_MAX_S:
            raise RuntimeError("not visible in time")
        time.sleep(0.002)
    return time.perf_counter() - begun
