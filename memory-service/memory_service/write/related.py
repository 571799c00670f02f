"""Which memories may a new or changed one name as related?

Those that the caller may read, of the same user or the common pool (or anybody's, when it is itself of the common pool), and
that have room for one relation more.  Asked before the transaction, so writers at the same moment can go over the bound by what
they write; `POST /v1/relations` counts under a lock.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from memory_service.domain import SHARED_USER, Caller, Clock
from memory_service.errors import HindsightError, InvalidFields
from memory_service.stores.postgres import memories, relations
from memory_service.stores.postgres.pool import Connection, Postgres
from memory_service.write.drafts import Draft


@dataclass(slots=True)
class Known:
    """Those that are there: whose each is and how many relations it has, those promised to earlier drafts included."""

    owners: dict[UUID, str]
    counts: Counter[UUID]
    most: int

    def problem(self, ids: Sequence[UUID], user_id: str, kept: Collection[UUID] = ()) -> InvalidFields | None:
        """The first of `ids` that a memory of this user can't name, as an error naming its place; `kept` ones it names already."""
        for position, one in enumerate(ids):
            if (wrong := self._wrong(one, user_id, kept)) is not None:
                return InvalidFields.of(f"related_ids.{position}", wrong)
        return None

    def promise(self, ids: Sequence[UUID]) -> None:
        """A draft will be tied to these."""
        self.counts.update(set(ids))

    def _wrong(self, one: UUID, user_id: str, kept: Collection[UUID]) -> str | None:
        if one not in self.owners:
            return "there is no such memory"
        if one in kept:
            return None
        if not relations.may_be_tied(user_id, self.owners[one]):
            return "is a memory of another user, and neither is shared"
        if self.owners[one] != SHARED_USER and self.counts[one] >= self.most:  # everybody may point at the common pool
            return f"this memory has {self.most} relations already, which is the most it can have"
        return None


class RelatedMemories:
    """Looks them up, all of a request at once."""

    def __init__(self, postgres: Postgres, most: int, clock: Clock) -> None:
        self._postgres = postgres
        self._most = most
        self._clock = clock

    async def known(self, caller: Caller, ids: Sequence[UUID]) -> Known:
        """Those of `ids` that are there for this caller: nothing and somebody else's memory are alike."""
        if not ids:
            return Known({}, Counter(), self._most)

        async def read(connection: Connection) -> Known:
            rows = await memories.get_many(connection, caller.tenant, ids)
            now = self._clock()
            owners = {r.id: r.user_id for r in rows if caller.may_read(r.user_id) and not r.expired(now)}
            counted = await relations.counts(connection, caller.tenant, list(owners), self._most)
            return Known(owners, Counter(counted), self._most)

        return await self._postgres.read(read)

    async def checked(self, caller: Caller, drafts: Sequence[Draft]) -> list[Draft | HindsightError]:
        """Each draft, or what is wrong with the ids that it names; one question for all of them."""
        known = await self.known(caller, [one for draft in drafts for one in draft.related_ids])
        judged: list[Draft | HindsightError] = []
        for draft in drafts:
            problem = known.problem(draft.related_ids, draft.user_id)
            if problem is None:
                known.promise(draft.related_ids)
            judged.append(problem or draft)
        return judged
