"""How fast is something found among 1,000 or 10,000 memories, with a question that was never asked and with one that was?"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.speed import ours
from benchmarks.speed.figures import Series
from benchmarks.speed.load import seconds_of, timed
from benchmarks.speed.peer import Mem0
from benchmarks.speed.stack import Stack
from benchmarks.speed.texts import queries
from benchmarks.speed.writes import CLIENTS, _no_errors

Embed = Callable[[str], object]


def cold(stack: Stack, peer: Mem0 | None, embed: Embed, series: Series, size: int, tag: str, count: int) -> None:
    """Questions never asked before; beside them the embedding alone of other questions of the same kind."""
    asked = queries(SEED, count, size, f"cold {tag}")
    done = timed(stack, ours.search(USER), asked)
    _no_errors("search", done.errors)
    series.times(f"search_{size}.ours_ms", done.seconds)
    others = queries(SEED, count, size, f"alone {tag}")
    series.times(f"embed_{size}.alone_ms", [seconds_of(partial(embed, text)) for text in others])
    if peer is not None:
        answer = peer.ask("search", user=USER, texts=asked, clients=1)
        _no_errors("mem0 search", answer["errors"])
        series.times(f"search_{size}.mem0_ms", answer["seconds"])


def cached(stack: Stack, peer: Mem0 | None, series: Series, size: int, tag: str, count: int) -> None:
    """One question again and again; mem0 remembers no embedding, so for it this is the same work."""
    [asked] = queries(SEED, 1, size, f"again {tag}")
    timed(stack, ours.search(USER), [asked])
    done = timed(stack, ours.search(USER), [asked] * count)
    _no_errors("search", done.errors)
    series.times(f"cached_{size}.ours_ms", done.seconds)
    if peer is not None:
        answer = peer.ask("search", user=USER, texts=[asked] * count, clients=1)
        _no_errors("mem0 search", answer["errors"])
        series.times(f"cached_{size}.mem0_ms", answer["seconds"])


def eight_clients(stack: Stack, peer: Mem0 | None, series: Series, size: int, tag: str, count: int) -> None:
    """Searches a second with eight clients, cold questions."""
    asked = queries(SEED, count, size, f"eight {tag}")
    done = timed(stack, ours.search(USER), asked, CLIENTS)
    _no_errors("search", done.errors)
    series.add(f"search_8_{size}.ours_per_s", done.per_second)
    if peer is not None:
        answer = peer.ask("search", user=USER, texts=asked, clients=CLIENTS)
        _no_errors("mem0 search", answer["errors"])
        series.add(f"search_8_{size}.mem0_per_s", count / answer["whole"])


SEED, USER = "archive", "archivist"
