"""What becomes of the other conflicts when one is decided, and which conflict does each memory carry?  Pure.

A value that contradicts several is set against the newest of them only, so disputes are chains: A against B, B against C.
When a person ends B, whoever it was against is against the one that took its place.  All memories of one dispute carry its
newest open conflict: by that the ranking knows that they belong together.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from memory_service.domain import Memory, new_id
from memory_service.stores.postgres.conflicts import Conflict

# The reason of a conflict whose side was replaced by a text that the rules say nothing about.
INHERITED = "it contradicted a text that this one replaced"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two memories that are to be set against each other, and the open conflict that is to be about them; None: a new one."""

    one: UUID
    other: UUID
    conflict: Conflict | None = None


def inherited(
    decided: Conflict, successors: Mapping[UUID, UUID], waiting: Sequence[Conflict]
) -> tuple[list[Pair], list[Conflict]]:
    """(what is to be set against what, conflicts that are over), once `decided` is.

    `waiting` are the other open conflicts of its two sides; `successors` says which side gave way to what.  Where both stand,
    each of them has to do with whom the other is against: whether it contradicts him is for the caller to see.
    """
    sides = {decided.old_id, decided.new_id}
    known = {frozenset((one.old_id, one.new_id)) for one in waiting}
    pairs: list[Pair] = []
    over: list[Conflict] = []
    for conflict in waiting:
        side = conflict.old_id if conflict.old_id in sides else conflict.new_id
        other = conflict.new_id if side == conflict.old_id else conflict.old_id
        heir = successors.get(side)
        if heir is None and not successors:
            heir = next(one for one in sides if one != side)
            if heir != other and frozenset((heir, other)) not in known:
                pairs.append(Pair(heir, other))
        elif heir is not None and (heir == other or frozenset((heir, other)) in known):
            over.append(conflict)
        elif heir is not None:
            pairs.append(Pair(heir, other, conflict))
        else:
            continue
        known.add(frozenset((heir, other)))
    return pairs, over


def set_against(pair: Pair, rows: Mapping[UUID, Memory], reason: str | None, now: datetime) -> Conflict | None:
    """The conflict of this pair, the older memory as `old`; None when it is a new one and `reason` tells of no contradiction."""
    old, new = sorted((rows[pair.one], rows[pair.other]), key=lambda memory: memory.id.int)  # UUIDv7: by time
    if pair.conflict is not None:
        return replace(pair.conflict, old_id=old.id, new_id=new.id, reason=reason or INHERITED)
    if reason is None:
        return None
    return Conflict(new_id(), old.tenant, old.user_id, old.id, new.id, reason, "open", None, now, None, None)


def carried(members: Collection[UUID], waiting: Sequence[Conflict]) -> dict[UUID, UUID | None]:
    """The newest open conflict of each member's dispute, None for one that is in none any more."""
    head = {one: one for conflict in waiting for one in (conflict.old_id, conflict.new_id)}

    def found(one: UUID) -> UUID:
        while head[one] != one:
            head[one] = head[head[one]]
            one = head[one]
        return one

    for conflict in waiting:
        head[found(conflict.old_id)] = found(conflict.new_id)
    newest: dict[UUID, Conflict] = {}
    for conflict in sorted(waiting, key=lambda one: (one.created_at, one.id)):
        newest[found(conflict.new_id)] = conflict
    return {one: newest[found(one)].id if one in head else None for one in members}
