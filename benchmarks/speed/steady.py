"""Does a steady load make any process grow?

    python -m benchmarks.speed.steady [--minutes N] [--model FOLDER] [--json FILE]

Writes, searches, contexts, working memory and tool calls at a fixed pace, with the memories of old users erased so that the amount of
data stays the same; reads each process's resident memory every few seconds; prints the slope of the least-squares line through what
came after the warm-up, in MiB an hour.  Without --model it runs the bundled one.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.machine import machine
from benchmarks.speed import ours
from benchmarks.speed.rest import Failed, Line
from benchmarks.speed.stack import Stack, rss_kib
from benchmarks.speed.texts import queries, texts

PACE_S = 0.1
SAMPLE_S = 5.0
WARM_UP_SHARE = 0.25  # caches fill and pools open; what grows later grows for ever
USERS_KEPT = 20
WRITES_A_USER = 50
RESULTS = Path(__file__).parents[1] / "results" / "steady.json"


def slope_per_hour(points: list[tuple[float, float]]) -> float:
    """Of the least-squares line through (seconds, MiB)."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return 3600 * sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def turn(line: Line, gateway: Line, number: int) -> None:
    """One beat of the load: five requests of different kinds about one user."""
    user = f"steady-{number // WRITES_A_USER}"
    [text] = texts(f"steady {number}", 1)
    [query] = queries(f"steady {number}", 1, 1, str(number))
    line.ask("POST", "/v1/memories", {"user_id": user, "content": text, "infer": number % 5 == 0})
    line.ask("POST", "/v1/memories/search", {"user_id": user, "query": query})
    line.ask("POST", "/v1/context", {"user_id": user, "query": query})
    line.ask("PUT", f"/v1/working-memory/task-{number % 100}", {"user_id": user, "task_goal": text})
    call = {"name": "memory_search", "arguments": {"query": query, "user_id": user}}
    message = json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call}).encode()
    gateway.raw(
        "POST", "/mcp", message, "accept: application/json, text/event-stream\r\nmcp-protocol-version: 2025-06-18\r\n"
    )
    if number % WRITES_A_USER == 0 and number >= USERS_KEPT * WRITES_A_USER:
        line.raw("DELETE", f"/v1/users/steady-{number // WRITES_A_USER - USERS_KEPT}")


def measure(stack: Stack, minutes: float) -> dict[str, object]:
    line, gateway = stack.line(), Line(stack.gateway_port)
    seen: dict[str, list[tuple[float, float]]] = {}
    begun, sampled, number, failed = time.monotonic(), -SAMPLE_S, 0, 0
    while (now := time.monotonic() - begun) < 60 * minutes:
        if now - sampled >= SAMPLE_S:
            sampled = now
            for name, pid in stack.pids().items():
                seen.setdefault(name, []).append((now, rss_kib(pid) / 1024))
        try:
            turn(line, gateway, number)
        except Failed as error:
            failed += 1
            print(error, file=sys.stderr)
        number += 1
        time.sleep(max(0.0, begun + number * PACE_S - time.monotonic()) if number * PACE_S > now else 0.0)
    kept = {name: [p for p in points if p[0] >= 60 * minutes * WARM_UP_SHARE] for name, points in seen.items()}
    return {
        "minutes": minutes,
        "turns": number,
        "requests": 5 * number,
        "failed": failed,
        "processes": {
            name: {
                "first_mib": round(seen[name][0][1], 1),
                "after_warm_up_mib": round(points[0][1], 1),
                "last_mib": round(points[-1][1], 1),
                "slope_mib_per_hour": round(slope_per_hour(points), 2),
                "samples_mib": [round(mib, 1) for _, mib in seen[name]][:: max(1, len(seen[name]) // 120)],
            }
            for name, points in kept.items()
            if len(points) > 1
        },
    }


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--minutes", type=float, default=60)
    arguments.add_argument("--model", help="folder of a BERT model; default: the bundled model")
    arguments.add_argument("--json", type=Path, default=RESULTS)
    given = arguments.parse_args()
    before = machine()
    with tempfile.TemporaryDirectory(prefix="bench-steady-") as name:
        stack = Stack(Path(name) / "home", given.model)
        stack.start()
        try:
            ours.fill(stack, "steady-0", texts("steady filling", 200))
            measured = measure(stack, given.minutes)
        finally:
            stack.stop()
    told = {"machine": {**before, "load_after": machine()["load"]}, **measured}
    given.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    for process, figures in measured["processes"].items():  # type: ignore[attr-defined]
        print(
            f"{process:10} {figures['first_mib']:8.1f} → {figures['last_mib']:8.1f} MiB, {figures['slope_mib_per_hour']:+.1f} MiB/h"
        )
    print(f"{measured['requests']} requests, {measured['failed']} failed · {given.json}")
    return bool(measured["failed"])


if __name__ == "__main__":
    sys.exit(main())
