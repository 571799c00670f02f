"""How fast does the service answer `experiences/query` by state when one user has 100,000 active experiences in Postgres?

    python benchmarks/experience_queries.py [--experiences 100000] [--queries 300]

Starts Postgres, Redis and Qdrant's engine of its own, fills one user (the realistic workload of condition_index.py), opens the
service's runtime and prints one JSON object: the first query (while conditions are being read), the time until all are read with
the event loop's worst pause meanwhile, queries warm (p50, p95), after a write, after an erasure, and of another user then.
"""

import argparse
import asyncio
import contextlib
import json
import os
import platform
import random
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
from condition_index import SEED, START, realistic, realistic_state, spread

from local_stack.stores import running_stores
from memory_service.bootstrap import Runtime, open_runtime
from memory_service.domain import Caller, new_id
from memory_service.experience.conditions import condition_hash, parse_conditions
from memory_service.experience.conditions_settings import ConditionLimits
from memory_service.experience.drafts import ExperienceQuery, NewLesson
from memory_service.migrating import migrate
from memory_service.settings import Settings, load_tunables
from memory_service.write.service import no_record

TENANT, USER = "default", "big"
COLUMNS = """id, tenant, user_id, conditions, condition_hash, action, origin, confidence, confidence_ledger, created_at,
             updated_at, changed_seq"""


def rows_of(count: int, limits: ConditionLimits) -> Iterator[tuple[Any, ...]]:
    chance, seen = random.Random(SEED), set[bytes]()
    while len(seen) < count:
        conditions = parse_conditions(realistic(chance), limits)
        digest = condition_hash(conditions, tenant=TENANT, user_id=USER, task_type=None)
        if digest in seen:
            continue
        seen.add(digest)
        at, confidence = START + timedelta(seconds=len(seen)), round(chance.random(), 3)
        ledger = json.dumps([{"at": f"{at:%Y-%m-%dT%H:%M:%SZ}", "cause": "started", "delta": confidence}])
        triples = json.dumps([one.as_json() for one in conditions])
        action = f"do number {len(seen)}"
        yield (new_id(), TENANT, USER, triples, digest, action, "success", confidence, ledger, at, at, len(seen))


def fill(url: str, count: int, limits: ConditionLimits) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        with connection.cursor() as cursor, cursor.copy(f"COPY experience ({COLUMNS}) FROM STDIN") as copy:
            for row in rows_of(count, limits):
                copy.write_row(row)
        connection.execute("INSERT INTO experience_change VALUES (%s, %s, %s, 0)", (TENANT, USER, count))
        connection.execute("SELECT setval('experience_change_seq', %s)", (count,))
        connection.execute("ANALYZE experience")


class Pulse:
    """The longest pause of the event loop while it beats, and the most processor time that this process used in one.

    The latter is what held the loop up; the former also counts what other processes of a busy machine took.
    """

    worst_ms = worst_cpu_ms = 0.0

    async def beat(self) -> None:
        while True:
            begun, cpu_begun = time.perf_counter(), time.process_time()
            await asyncio.sleep(0.001)
            self.worst_cpu_ms = max(self.worst_cpu_ms, (time.process_time() - cpu_begun) * 1000)
            self.worst_ms = max(self.worst_ms, (time.perf_counter() - begun) * 1000 - 1)


async def asked(runtime: Runtime, state: dict[str, Any], user: str = USER) -> tuple[float, list[str], int]:
    """(milliseconds, degraded, number of results)"""
    query = ExperienceQuery(TENANT, (user, "*shared"), runtime.clock(), 3, state=state)
    begun = time.perf_counter()
    answer = await runtime.experiences.query(query)
    return (time.perf_counter() - begun) * 1000, answer.degraded, len(answer.results)


async def warm(runtime: Runtime, states: list[dict[str, Any]]) -> tuple[dict[str, float], dict[str, float]]:
    """Wall time, and processor time of this process, which a busy machine does not distort."""
    walls, cpus = [], []
    for state in states:
        begun = time.process_time()
        walls.append((await asked(runtime, state))[0])
        cpus.append((time.process_time() - begun) * 1000)
    return spread(walls), spread(cpus)


async def measured(runtime: Runtime, queries: int) -> dict[str, Any]:
    chance = random.Random(SEED + 1)
    states = [realistic_state(chance, share) for share in (1.0, 0.5, 0.1) for _ in range(queries // 3)]
    pulse = Pulse()
    beating = asyncio.create_task(pulse.beat())
    begun, cpu_begun = time.perf_counter(), time.process_time()
    first_ms, degraded, results = await asked(runtime, states[0])
    report: dict[str, Any] = {"first_query": {"ms": round(first_ms), "degraded": degraded, "results": results}}
    meanwhile = []
    while True:
        took_ms, degraded, _ = await asked(runtime, states[len(meanwhile) % len(states)])
        if not degraded:
            break
        meanwhile.append(took_ms)
        await asyncio.sleep(0.5)
    report["meanwhile"] = {"queries": len(meanwhile), **(spread(meanwhile) if meanwhile else {})}
    report["read_after_s"] = round(time.perf_counter() - begun, 2)
    report["read_cpu_s"] = round(time.process_time() - cpu_begun, 2)
    report["event_loop_worst_pause_ms"] = round(pulse.worst_ms, 1)
    report["event_loop_worst_pause_cpu_ms"] = round(pulse.worst_cpu_ms, 1)
    beating.cancel()  # it would be counted as processor time of the queries
    report["warm"], report["warm_cpu"] = await warm(runtime, states)
    caller = Caller(TENANT, "admin")
    condition = {"field": "f1", "operator": "eq", "value": "new"}
    one = NewLesson(USER, [condition], "do the new thing", "feedback", start=0.9)
    made = (await runtime.experiences.write(caller, one, no_record)).experience
    assert made is not None
    report["first_after_a_write_ms"] = round((await asked(runtime, {"f1": "new"}))[0], 1)
    await runtime.experiences.delete(caller, made.id)
    report["first_after_an_erasure_ms"] = round((await asked(runtime, states[1]))[0], 1)
    report["small_user_after_that_ms"] = round((await asked(runtime, states[1], "small"))[0], 1)
    report["warm_again"], report["warm_again_cpu"] = await warm(runtime, states)
    with contextlib.suppress(asyncio.CancelledError):
        await beating
    return report


async def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--experiences", type=int, default=100_000)
    arguments.add_argument("--queries", type=int, default=300)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_stores(Path(folder)) as urls:
        settings = Settings(
            database_url=urls.database_url,
            redis_url=urls.redis_url,
            qdrant_url=urls.qdrant_url,
            embedding_provider="hash",
        )
        migrate(settings, say=lambda _line: None)
        limits = load_tunables(settings).section("experience_conditions", ConditionLimits)
        fill(urls.database_url, given.experiences, limits)
        async with open_runtime(settings) as runtime:
            report = await measured(runtime, given.queries)
    machine = {"cpus": os.cpu_count(), "load_1_min": round(os.getloadavg()[0], 2), "python": platform.python_version()}
    print(json.dumps({"machine": machine, "experiences": given.experiences, **report}, indent=1))


if __name__ == "__main__":
    asyncio.run(main())
