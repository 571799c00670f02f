"""How do several clients do the same thing at once, and how long does each call take?"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.speed.rest import Line
from benchmarks.speed.stack import Stack

Call = Callable[[Line, str], object]


@dataclass
class Timed:
    """Seconds of each call, of all of them together, and what went wrong."""

    seconds: list[float]
    whole: float
    errors: list[str] = field(default_factory=list)

    @property
    def per_second(self) -> float:
        return len(self.seconds) / self.whole


def seconds_of(work: Callable[[], object]) -> float:
    """How long one call takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def timed(stack: Stack, call: Call, texts: Sequence[str], clients: int = 1) -> Timed:
    """`call(line, text)` for each text, spread over `clients` threads with a kept connection each."""
    seconds, errors = [0.0] * len(texts), list[str]()
    lines = [stack.line() for _ in range(clients)]
    for line in lines:
        line.raw("GET", "/health")  # connected, and its buffers are there
    gate = threading.Barrier(clients + 1)

    def client(first: int) -> None:
        gate.wait()
        for at in range(first, len(texts), clients):
            begun = time.perf_counter()
            try:
                call(lines[first], texts[at])
            except Exception as error:
                errors.append(f"{type(error).__name__}: {error}"[:200])
            seconds[at] = time.perf_counter() - begun

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    gate.wait()
    begun = time.perf_counter()
    for thread in threads:
        thread.join()
    whole = time.perf_counter() - begun
    for line in lines:
        line.close()
    return Timed(seconds, whole, errors)
