"""How are a set's turns written to a running service, and its questions asked?  REST only, and nothing is left behind.

Each turn becomes one episodic memory (POST /v1/memories/batch, infer false), each case a user of its own.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx

from benchmarks.recall.cases import Case, Turn

BATCH = 200
ATTEMPTS_MAX = 5
RETRY_S_MAX = 30.0
POLL_S = 0.1
INDEXED_S_MAX = 3_600.0


class Refused(Exception):
    """The service did not do what was asked; the text has its answer."""


class Service:
    """A memory-service; waits when it is told to."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def ask(self, method: str, path: str, body: object = None, write: bool = False) -> Any:
        """The answer's JSON.  Raises Refused."""
        headers = {"Idempotency-Key": secrets.token_hex(16)} if write else {}
        for _ in range(ATTEMPTS_MAX):
            answer = await self._client.request(method, path, json=body, headers=headers)
            if answer.status_code not in (409, 429, 503) or "retry-after" not in answer.headers:
                break
            await asyncio.sleep(min(float(answer.headers["retry-after"]), RETRY_S_MAX))
        if answer.is_error:
            raise Refused(f"{method} {path} answered {answer.status_code}: {answer.text[:500]}")
        return answer.json() if answer.content else None


@dataclass(slots=True)
class Written:
    """One case in the service.  `refs`: the turns that a memory stands for, more than one where equal texts became one memory.

    `problems` counts what makes a run unclean: turns refused, not indexed, lanes that were degraded.  `cosines_missing`: of the
    twenty nearest memories of each question, those that no answer told the cosine of (compared.py).
    """

    case: Case
    user_id: str
    refs: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    duplicates: int = 0
    cosines_missing: int = 0
    problems: Counter[str] = field(default_factory=Counter)

    def stands_for(self, hit: Mapping[str, Any]) -> set[str]:
        """The turns of a hit; empty when it is none of ours."""
        return self.refs.get(hit["id"], set())


@asynccontextmanager
async def written(service: Service, case: Case) -> AsyncIterator[Written]:
    """The case's turns, indexed; the user is erased afterwards."""
    one = Written(case, f"bench-recall-{secrets.token_hex(4)}-{case.user}"[:128])
    try:
        for start in range(0, len(case.turns), BATCH):
            await _write(service, one, case.turns[start : start + BATCH])
        await _indexed(service, one)
        yield one
    finally:
        await service.ask("DELETE", f"/v1/users/{quote(one.user_id, safe='')}")


async def _write(service: Service, one: Written, turns: list[Turn]) -> None:
    memories = [_memory(one.user_id, turn) for turn in turns]
    answer = await service.ask("POST", "/v1/memories/batch", {"memories": memories}, write=True)
    for result, turn in zip(answer["results"], turns, strict=True):
        if result["status"] == "rejected":
            one.problems["refused"] += 1
        else:
            one.refs[result["id"]].add(turn.ref)
            one.duplicates += result["status"] == "duplicate"


def _memory(user_id: str, turn: Turn) -> dict[str, Any]:
    told = {
        "user_id": user_id,
        "content": turn.content,
        "kind": "episodic",
        "infer": False,
        "occurred_at": turn.occurred_at.isoformat(),
        "metadata": {**turn.metadata, "ref": turn.ref},
    }
    return told | ({"session_id": turn.session_id} if turn.session_id else {})


async def _indexed(service: Service, one: Written) -> None:
    """Until no memory of the user waits for its vector.  Raises Refused when that takes an hour."""
    deadline = time.monotonic() + INDEXED_S_MAX
    path = f"/v1/stats?{httpx.QueryParams(user_id=one.user_id)}"
    while time.monotonic() < deadline:
        index = (await service.ask("GET", path))["index"]
        if not index["pending"]:
            one.problems.update(["not indexed"] * index["dead"])
            return
        await asyncio.sleep(POLL_S)
    raise Refused(f"{one.user_id}: the vectors did not come within {INDEXED_S_MAX:g} s")


async def hits(service: Service, one: Written, query: str, limit: int, **options: Any) -> list[Mapping[str, Any]]:
    """What POST /v1/memories/search brings, best first.

    An answer that names a degraded lane is asked for again, since a busy machine is not what is measured; the last one counts.
    """
    body = {"user_id": one.user_id, "query": query, "limit": limit, **options}
    for attempt in range(1, ATTEMPTS_MAX + 1):
        answer = await service.ask("POST", "/v1/memories/search", body)
        if not answer["degraded"]:
            break
        await asyncio.sleep(POLL_S * attempt)
    one.problems.update(f"{lane} degraded" for lane in answer["degraded"])
    found: list[Mapping[str, Any]] = answer["results"]
    return found
