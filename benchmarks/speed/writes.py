"""How fast is a text kept, and how fast can it be found?  Ours and the peer's rounds take turns."""

from __future__ import annotations

import time

from benchmarks.speed import ours
from benchmarks.speed.figures import Series
from benchmarks.speed.load import timed
from benchmarks.speed.peer import Mem0
from benchmarks.speed.stack import Stack
from benchmarks.speed.texts import texts

CLIENTS = 8


def one_client(stack: Stack, peer: Mem0 | None, series: Series, tag: str, count: int) -> None:
    """Durable writes of one client."""
    written = texts(f"one {tag}", count)
    done = timed(stack, ours.write(f"writer-{tag}"), written)
    _no_errors("write", done.errors)
    series.times("write_1.ours_ms", done.seconds)
    ours.wait_indexed(stack.line())  # the next round starts idle
    if peer is not None:
        answer = peer.ask("add", user=f"writer-{tag}", texts=written, clients=1)
        _no_errors("mem0 add", answer["errors"])
        series.times("write_1.mem0_ms", answer["seconds"])


def eight_clients(stack: Stack, peer: Mem0 | None, series: Series, tag: str, count: int) -> None:
    """Writes of eight clients: how many a second are durable, and how many a second can be found by meaning."""
    user, written = f"writers-{tag}", texts(f"eight {tag}", count)
    line = stack.line()
    begun = time.perf_counter()
    done = timed(stack, ours.write(user), written, CLIENTS)
    _no_errors("write", done.errors)
    ours.wait_indexed(line)
    visible_s = time.perf_counter() - begun
    series.add("write_8.ours_per_s", done.per_second)
    series.add("searchable.ours_per_s", count / visible_s)
    missing = [text for text in written if not ours.found_by_vector(line, user, text)]
    series.add("write_8.missing", len(missing))
    if missing:
        raise RuntimeError(f"written and not found: {missing[:3]}")
    if peer is not None:
        answer = peer.ask("add", user=user, texts=written, clients=CLIENTS)
        # Its SQLite is not made for threads and refuses a call now and then; behind a lock it would be slower, so those count as done.
        series.add("write_8.mem0_errors", len(answer["errors"]))
        series.add("write_8.mem0_per_s", count / answer["whole"])  # visible when it returns
        series.add("searchable.mem0_per_s", count / answer["whole"])


def visible(stack: Stack, series: Series, tag: str, count: int) -> None:
    """From the answer to a write until a search by vector finds it, one at a time on an idle service."""
    line = stack.line()
    series.times("visible_ms", [ours.visible_after(line, f"seen-{tag}", text) for text in texts(f"seen {tag}", count)])


def _no_errors(what: str, errors: list[str]) -> None:
    if errors:
        raise RuntimeError(f"{what}: {len(errors)} errors, the first: {errors[0]}")
