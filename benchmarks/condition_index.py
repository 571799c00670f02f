"""How fast are a user's experiences matched against a state, and what does the index cost?

    python benchmarks/condition_index.py [--experiences 100000] [--searches 400] [--check 200]

Prints one JSON object: the machine's facts, and per workload the build time, memory, p50 and p95 of a search, of an add and of
a remove, and how many matches there were.  `--check` compares so many experiences' answers with plain evaluation first.
Everything is made from a fixed seed.  Nothing is read or written.
"""

import argparse
import json
import os
import platform
import random
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from memory_service.experience.condition_index import ConditionIndex, Entry
from memory_service.experience.conditions import parse_conditions
from memory_service.experience.conditions_settings import ConditionLimits
from memory_service.experience.matching import Evaluator
from memory_service.settings import load_settings, load_tunables

SEED = 20260504
START = datetime(2026, 1, 1, tzinfo=UTC)
LIMIT = 10
FIELDS = 40
HEADS, TAILS = ("read", "write", "list", "fetch", "parse", "send"), ("_file", "_url", "_row", "_mail", "_log")
WORDS = [head + tail for head in HEADS for tail in TAILS]
Triple = dict[str, Any]
State = dict[str, Any]


def field_name(number: int) -> str:
    """A third of the fields lies deeper in the state, as tool arguments do."""
    return f"arguments.f{number}" if number % 3 == 0 else f"f{number}"


def vocabulary(number: int) -> list[str]:
    """From 5 to 200 values a field, the low numbers being the everyday ones with few."""
    return [f"{WORDS[n % len(WORDS)]}/{number}/{n}" for n in range(5 + 5 * number)]


# What a field holds: texts, numbers, times or lists, as its number says; operators follow.
def kind_of(number: int) -> str:
    return ("text", "text", "number", "text", "list", "time", "text", "number")[number % 8]


def value_of(chance: random.Random, number: int) -> Any:
    kind = kind_of(number)
    if kind == "number":
        return round(chance.lognormvariate(3, 1), 1)
    if kind == "time":
        return (START + timedelta(minutes=chance.randrange(500_000))).isoformat()
    words = vocabulary(number)
    common = words[
        min(int(chance.expovariate(6 / len(words))), len(words) - 1)
    ]  # a few values are usual, most are rare
    return [common, *chance.sample(words, 3)] if kind == "list" else common


def realistic_triple(chance: random.Random) -> Triple:
    number = min(int(chance.expovariate(0.06)), FIELDS - 1)
    kind, value = kind_of(number), value_of(chance, number)
    if kind in ("number", "time"):
        operator = chance.choice(("gt", "gte", "lt", "lte", "exists"))
    elif kind == "list":
        operator, value = chance.choice(("contains", "contains", "not_contains", "exists")), value[0]
    else:
        operator = chance.choices(
            ("eq", "in", "ne", "nin", "starts_with", "contains", "matches", "exists"), (50, 10, 6, 3, 10, 8, 6, 7)
        )[0]
    shaped: dict[str, Callable[[], Any]] = {
        "exists": lambda: chance.random() < 0.8,
        "in": lambda: [value_of(chance, number) for _ in range(3)],
        "nin": lambda: [value_of(chance, number) for _ in range(3)],
        "starts_with": lambda: value.split("/")[0] + "/",
        "matches": lambda: rf"^{value.split('_')[0]}.*/\d*{value[-1]}$",
    }
    return {"field": field_name(number), "operator": operator, "value": shaped.get(operator, lambda: value)()}


def realistic(chance: random.Random) -> list[Triple]:
    """One to five triples, three on average."""
    return [realistic_triple(chance) for _ in range(chance.randint(1, 5))]


def realistic_state(chance: random.Random, share: float) -> State:
    state: State = {"arguments": {}}
    for number in range(FIELDS):
        if chance.random() < share:
            holder = state["arguments"] if number % 3 == 0 else state
            holder[f"f{number}"] = value_of(chance, number)
    return state


def shared(chance: random.Random) -> list[Triple]:
    """All experiences have the same eq triple, so nothing is gained by looking it up."""
    return [{"field": "tool", "operator": "eq", "value": "bash"}, *[realistic_triple(chance) for _ in range(2)]]


def patterned(chance: random.Random) -> list[Triple]:
    """Each has its own pattern on the same field and nothing else: no index helps, each pattern has to run."""
    return [{"field": field_name(0), "operator": "matches", "value": f"^x{chance.randrange(10**9)}"}]


WORKLOADS: dict[str, tuple[Callable[[random.Random], list[Triple]], Callable[[random.Random], State]]] = {
    "realistic, state with all fields": (realistic, lambda chance: realistic_state(chance, 1.0)),
    "realistic, state with half of the fields": (realistic, lambda chance: realistic_state(chance, 0.5)),
    "realistic, state with a tenth of the fields": (realistic, lambda chance: realistic_state(chance, 0.1)),
    "one eq shared by all, nothing else known": (shared, lambda chance: {"tool": "bash"}),
    "one eq shared by all, all fields known": (shared, lambda chance: {"tool": "bash", **realistic_state(chance, 1.0)}),
    "one eq shared by all, another tool": (shared, lambda chance: {"tool": "python", **realistic_state(chance, 1.0)}),
}
EXTREME = {
    "only distinct patterns on one field": (patterned, lambda chance: {"arguments": {"f0": "x123 in a file name"}})
}


def entries_of(make: Callable[[random.Random], list[Triple]], count: int, limits: ConditionLimits) -> Iterator[Entry]:
    chance = random.Random(SEED)
    for number in range(count):
        conditions = parse_conditions(make(chance), limits)
        yield Entry(
            UUID(int=chance.getrandbits(128)), conditions, round(chance.random(), 3), START + timedelta(seconds=number)
        )


def milliseconds(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return (time.perf_counter() - begun) * 1000


def spread(times_ms: list[float]) -> dict[str, float]:
    ordered = sorted(times_ms)
    return {f"p{share}_ms": round(ordered[int(len(ordered) * share / 100)], 3) for share in (50, 95)} | {
        "max_ms": round(ordered[-1], 3)
    }


def checked(index: ConditionIndex, entries: list[Entry], state: State, evaluator: Evaluator) -> None:
    """Exits when the index says something else than evaluating every experience."""
    hits = index.search(state, exact_max=len(entries), partial_max=len(entries))
    found = {hit.id: hit.match.kind for hit in (*hits.exact, *hits.partial)}
    for entry in entries:
        kind = evaluator.match(entry.conditions, state).kind
        if found.get(entry.id) != kind:
            sys.exit(f"the index says {found.get(entry.id)} where evaluation says {kind}: {entry.conditions}")


def measure(name: str, count: int, searches: int, check: int, limits: ConditionLimits) -> dict[str, Any]:
    make, make_state = (WORKLOADS | EXTREME)[name]
    evaluator, chance = Evaluator(limits), random.Random(SEED + 1)
    if check:
        few = list(entries_of(make, check, limits))
        checked(ConditionIndex(evaluator, few), few, make_state(random.Random(SEED)), evaluator)
    entries = list(entries_of(make, count, limits))
    index = ConditionIndex(evaluator)
    cpu_begun = time.thread_time()
    build_ms = milliseconds(lambda: [index.add(entry) for entry in entries])
    build_cpu_s = time.thread_time() - cpu_begun
    states = [make_state(chance) for _ in range(searches)]
    times, cpu_times, exact, partial = [], [], 0, 0
    for state in states:
        begun, cpu_begun = time.perf_counter(), time.thread_time()
        hits = index.search(state, exact_max=LIMIT, partial_max=LIMIT)
        times.append((time.perf_counter() - begun) * 1000)
        cpu_times.append((time.thread_time() - cpu_begun) * 1000)  # what a busy machine does not distort
        exact, partial = exact + hits.exact_total, partial + hits.partial_total
    some = chance.sample(entries, min(searches, count))
    removed = [milliseconds(lambda entry=entry: index.remove(entry.id)) for entry in some]  # type: ignore[misc]
    added = [milliseconds(lambda entry=entry: index.add(entry)) for entry in some]  # type: ignore[misc]
    return {
        "workload": name,
        "experiences": count,
        "triples_each": round(sum(len(entry.conditions) for entry in entries) / count, 2),
        "build_s": round(build_ms / 1000, 2),
        "build_cpu_s": round(build_cpu_s, 2),
        "search": spread(times),
        "search_cpu": spread(cpu_times),
        "add": spread(added),
        "remove": spread(removed),
        "exact_matches_mean": round(exact / searches, 1),
        "partial_matches_mean": round(partial / searches, 1),
    }


def bytes_each(count: int, limits: ConditionLimits) -> dict[str, float]:
    """Python's and numpy's allocations per experience of the realistic workload."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    index = ConditionIndex(Evaluator(limits), entries_of(realistic, count, limits))
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return {"experiences": len(index), "bytes_each": round((after - before) / count)}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--experiences", type=int, default=100_000)
    arguments.add_argument("--searches", type=int, default=400)
    arguments.add_argument("--check", type=int, default=200)
    arguments.add_argument("--only", default="", help="only workloads whose name contains this")
    arguments.add_argument("--extreme", action="store_true", help="also the workload that no index can help")
    given = arguments.parse_args()
    limits = load_tunables(load_settings()).section("experience_conditions", ConditionLimits)
    names = [name for name in (*WORKLOADS, *(EXTREME if given.extreme else ())) if given.only in name]
    report = {
        "machine": {
            "cpus": os.cpu_count(),
            "load_1_min": round(os.getloadavg()[0], 2),
            "platform": platform.platform(),
            "python": platform.python_version(),
        },
        "memory": bytes_each(min(given.experiences, 20_000), limits),
        "workloads": [measure(name, given.experiences, given.searches, given.check, limits) for name in names],
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
