"""Which drafts of one transaction become rows, and which are merged into a memory that is there?  Pure.

Duplicates inside a batch count too: the second of two equal drafts is merged into the first, which is not written yet.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal
from uuid import UUID

from memory_service.domain import Memory
from memory_service.settings import Limits
from memory_service.stores.postgres.memories import IndexedText
from memory_service.write.drafts import Draft, Written, merge_duplicate
from memory_service.write.duplicates import content_hash
from memory_service.write.similar import Match
from memory_service.write.suspicions import Suspected


@dataclass(frozen=True, slots=True)
class Prepared:
    """A draft on its way: the memory it would become and, perhaps, an older one that means the same.

    `states_something`: others could contradict it; `suspected` are older memories that seem to.
    """

    draft: Draft
    memory: Memory
    text: IndexedText
    match: Match | None = None
    suspected: Suspected | None = None
    states_something: bool = False
    inferred_by: Literal["model", "rules"] | None = None

    @property
    def is_plain(self) -> bool:
        """Unless its text is there already, nothing has to be decided or written beside it."""
        beside = self.match is not None or self.suspected is not None or self.states_something
        return not beside and not self.draft.related_ids


class Plan:
    """What one transaction will do: which drafts become rows and which are merged into which memory."""

    def __init__(self, known: Sequence[Memory], alike: Mapping[UUID, Memory], limits: Limits) -> None:
        self.new: dict[UUID, tuple[Memory, IndexedText | None]] = {}  # no text: it changed and must be made again
        self._limits = limits
        self._before: dict[UUID, Memory] = {m.id: m for m in (*known, *alike.values())}
        self._after: dict[UUID, Memory] = dict(self._before)
        self._known: dict[tuple[str, bytes], list[Memory]] = {}
        self._alike = alike
        for memory in known:
            self._known.setdefault((memory.user_id, content_hash(memory.content)), []).append(memory)

    def place(self, prepared: Prepared, now: datetime) -> Written:
        """Decide about one draft.  Raises InvalidFields or TooLarge for a duplicate that adds too much."""
        key = (prepared.memory.user_id, prepared.text.content_hash)
        for memory in self._known.get(key, ()):
            if not prepared.memory.may_be_of(memory):
                continue
            if prepared.draft.kind in ("auto", memory.kind):  # an explicit other kind is another memory
                return self._merge(memory.id, prepared, 1.0, now)
        match = prepared.match
        if match is not None and match.memory_id in self._alike:
            return self._merge(match.memory_id, prepared, match.cosine, now)
        self.new[prepared.memory.id] = (prepared.memory, prepared.text)
        self._known.setdefault(key, []).append(prepared.memory)
        self._after[prepared.memory.id] = prepared.memory
        return Written("created", prepared.memory)

    def _merge(self, memory_id: UUID, prepared: Prepared, similarity: float | None, now: datetime) -> Written:
        merged = merge_duplicate(self._after[memory_id], prepared.draft, now, self._limits)
        if memory_id not in self._before:  # a duplicate inside the batch: the row is not written yet
            merged = replace(merged, version=1, access_count=0, last_accessed_at=None)
            self.new[memory_id] = (merged, None)
        self._after[memory_id] = merged
        return Written("duplicate", merged, similarity)

    def merged(self) -> list[tuple[Memory, Memory]]:
        """(before, after) of the existing memories that were said again; at most one version more each."""
        pairs = []
        for memory_id, before in self._before.items():
            after = self._after[memory_id]
            if after is not before:
                pairs.append((before, replace(after, version=min(after.version, before.version + 1))))
        return pairs

    def latest(self, memory: Memory) -> Memory:
        """The memory after everything this transaction did to it."""
        before, after = self._before.get(memory.id), self._after[memory.id]
        return replace(after, version=min(after.version, before.version + 1)) if before else after
