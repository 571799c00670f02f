"""Which id does an imported thing get here?  Pure.

Its own, unless that belongs to somebody else on this server (another tenant, or another user of this one, when a file is
imported for a user it was not exported from).  Then it gets its twin: an id computed from tenant, user and the old id alone.
So every later chunk, repeat and reference finds the same one without anything being remembered.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

from memory_service.domain import SHARED_USER, Json

What = Literal["memory", "experience", "conflict"]
ID_FIELDS = ("id", "superseded_by", "conflict_id")
ID_LISTS = ("related_ids", "source_memory_ids")


@dataclass(frozen=True, slots=True)
class Owner:
    """Who has an id on this server.  `user_id`, `version` and `detail` (kind, status or state) are told only when it is ours."""

    what: What
    ours: bool
    user_id: str | None = None
    version: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """`there`: what has this id already; None: it is free."""

    id: UUID
    there: Owner | None = None


@dataclass(slots=True)
class Known:
    """What this server knows of the ids of some lines and of their twins.  `erased` says of an id whether we erased it;
    `relations` are those between these ids, `relation_counts` how many of any kind each end has.
    """

    tenant: str
    owners: dict[UUID, Owner] = field(default_factory=dict)
    erased: Mapping[UUID, bool] = field(default_factory=dict)
    relations: Collection[tuple[UUID, UUID, str]] = frozenset()
    relation_counts: Counter[UUID] = field(default_factory=Counter)

    def place(self, old: UUID, user_id: str) -> Place | None:
        """Where the thing of this id goes for this user; None: it was erased and may not come back."""
        twin = twin_of(self.tenant, user_id, old)
        for one in (old, twin):
            if self._is(one, user_id):
                return Place(one, self.owners[one])
        if self.erased.get(old) or self.erased.get(twin):
            return None
        return Place(twin if self._taken(old) else old)

    def reference(self, old: UUID, user_id: str) -> UUID | None:
        """The id that a reference in this user's lines means here; None: what it meant was erased."""
        if self._is(old, user_id) or self._is(old, SHARED_USER):
            return old
        twin = twin_of(self.tenant, user_id, old)
        if self._is(twin, user_id):
            return twin
        if self.erased.get(old) or self.erased.get(twin):
            return None
        return twin if self._taken(old) else old

    def _is(self, one: UUID, user_id: str) -> bool:
        owner = self.owners.get(one)
        return owner is not None and owner.ours and owner.user_id == user_id

    def _taken(self, old: UUID) -> bool:
        """By somebody else, who may have erased it meanwhile."""
        return old in self.owners or old in self.erased


def twin_of(tenant: str, user_id: str, old: UUID) -> UUID:
    """A UUIDv7 with the old id's time, so that ids keep sorting by it, and a hash in place of its random bits."""
    return _hashed(old.int >> 80, f"twin\0{tenant}\0{user_id}\0{old}".encode())


def seed_id(tenant: str, user_id: str, what: What, digest: bytes) -> UUID:
    """The id of a seed, which brings none: the same text for the same user is the same thing.  Sorts before all others."""
    return _hashed(0, f"seed\0{tenant}\0{user_id}\0{what}\0".encode() + digest)


def _hashed(time_bits: int, text: bytes) -> UUID:
    random_bits = int.from_bytes(hashlib.blake2b(text, digest_size=10).digest(), "big")
    value = (time_bits << 80) | random_bits
    value = (value & ~(0xF << 76)) | (0x7 << 76)  # version 7
    return UUID(int=(value & ~(0x3 << 62)) | (0x2 << 62))  # RFC 9562 variant


def references_of(known: Known, ids: Iterable[UUID], user_id: str) -> tuple[UUID, ...]:
    """A list of references as it is here; what was erased is left out."""
    found = (known.reference(one, user_id) for one in ids)
    return tuple(one for one in found if one is not None)


def moved_snapshot(snapshot: Json, known: Known, user_id: str) -> Json:
    """A kept version with its ids as they are here."""
    moved = {name: _moved(name, value, known, user_id) for name, value in snapshot.items()}
    return {**moved, "user_id": user_id} if "user_id" in snapshot else moved


def moved_changes(changes: Json, known: Known, user_id: str) -> Json:
    """{field: {from, to}} with its ids as they are here."""
    return {
        name: {side: _moved(name, value, known, user_id) for side, value in change.items()}
        for name, change in changes.items()
    }


def ids_in(snapshot: Json, changes: Json) -> list[UUID]:
    """The ids that a kept version names."""
    sides = [snapshot, *({name: side} for name, change in changes.items() for side in change.values())]
    named = [side.get(name) for side in sides for name in ID_FIELDS]
    named += [one for side in sides for name in ID_LISTS for one in _list(side.get(name))]
    return [found for found in map(_id, named) if found is not None]


def _moved(name: str, value: Any, known: Known, user_id: str) -> Any:
    if name in ID_FIELDS and (old := _id(value)) is not None:
        moved = known.reference(old, user_id)
        return str(moved) if moved else None
    if name in ID_LISTS:
        ids = [old for old in map(_id, _list(value)) if old is not None]
        return [str(one) for one in references_of(known, ids, user_id)]
    return value


def _id(value: Any) -> UUID | None:
    try:
        return UUID(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
