"""What was a memory, who changed it and why, and what does going back to a version change?  Pure.

memory_version keeps each replaced version together with the change that replaced it.  A reader wants the change that made
a version, so each entry of the history is put together from a version and the one beneath it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from memory_service.domain import Entity, Json, Memory
from memory_service.stores.postgres.versions import ReplacedVersion
from memory_service.timestamps import parse_time

FIRST_CAUSE = "write"
# What PATCH may change; state, pin, heat and validity belong to the memory's life, not to what it says.
TEXTS = ("content", "summary", "category", "event_type", "outcome", "importance", "confidence")
READERS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(TEXTS, lambda value: value),
    "tags": tuple,
    "entities": lambda value: tuple(Entity(e["name"], e["type"]) for e in value),
    "occurred_at": parse_time,
    "expires_at": lambda value: None if value is None else parse_time(value),
    "related_ids": lambda value: tuple(map(UUID, value)),
    "metadata": lambda value: value,
}


@dataclass(frozen=True, slots=True)
class HistoryItem:
    """One version.  at, actor, cause and changes tell of the change that made it; `snapshot` is None for the present one.

    actor and cause are None where they were not remembered.
    """

    version: int
    at: datetime | None
    actor: str | None
    cause: str | None
    changes: Json
    snapshot: Json | None


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """Up to the asked number of versions, newest first; `more` tells whether older ones follow."""

    memory: Memory
    items: list[HistoryItem]
    total: int
    more: bool


def history_page(
    memory: Memory, replaced: Sequence[ReplacedVersion], replaced_total: int, limit: int, *, first: bool
) -> HistoryPage:
    """The page from `replaced` (newest first, at least `limit` + 1 rows when there are so many).

    `first`: the page begins with the present version.
    """
    shown = [(memory.version, None), *((row.version, row.snapshot) for row in replaced)]
    makers: list[ReplacedVersion | None] = [*replaced, None]
    if not first:
        shown, makers = shown[1:], makers[1:]
    entries = [
        _item(memory, version, snapshot, maker) for (version, snapshot), maker in zip(shown, makers, strict=True)
    ]
    return HistoryPage(memory, entries[:limit], replaced_total + 1, len(entries) > limit)


def _item(memory: Memory, version: int, snapshot: Json | None, maker: ReplacedVersion | None) -> HistoryItem:
    if version == 1:
        return HistoryItem(version, memory.created_at, memory.written_by, FIRST_CAUSE, {}, snapshot)
    if maker is None or maker.version != version - 1:  # imported without its past
        return HistoryItem(version, None, None, None, {}, snapshot)
    return HistoryItem(version, maker.at, maker.actor, maker.cause, maker.changes, snapshot)


def as_it_was(memory: Memory, snapshot: Json, now: datetime) -> Memory:
    """The memory with what it said at that version; its life (state, heat, validity) stays that of now."""
    return replace(memory, **content_of(snapshot, now), version=int(snapshot["version"]))


def content_of(snapshot: Json, now: datetime) -> dict[str, Any]:
    """A patch that brings back what the memory said: the fields that PATCH may change.

    An end of life that has passed meanwhile is left out: going back must not make the memory vanish.
    """
    patch = {name: read(snapshot[name]) for name, read in READERS.items() if name in snapshot}
    if patch.get("expires_at") is not None and patch["expires_at"] <= now:
        del patch["expires_at"]
    return patch
