"""What happens to a summary when one of its sources goes or is changed, and to the sources when their summary goes?

Every memory is erased through `erase`: in the same transaction a summary that told of it is erased too, and one without it takes
its place, or the last ones come back when too few are left.  So no line at which the process dies leaves a text behind.
A source that is corrected is told anew in the same way: what was put right does not live on in the summary.
Whoever erases a summary erases what it was made from: each of these says what it said.
A lesson that quotes an erased memory goes with it, or is made anew without the quotation (experience/erased_sources.py).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol
from uuid import UUID

from memory_service.domain import Clock, Experience, Memory, State
from memory_service.experience.changes import snapshot_of
from memory_service.experience.erased_sources import CAUSE, Telling, without_sources
from memory_service.experience.indexing import lesson_terms
from memory_service.lifecycle.compress_rules import CompressNumbers, TextPatterns
from memory_service.lifecycle.insight_rules import InsightNumbers
from memory_service.lifecycle.summary_facts import facts_of
from memory_service.lifecycle.summary_text import WRITTEN_BY, head_line, rules_text, summary_memory
from memory_service.settings import Heat
from memory_service.shapes import memory_json
from memory_service.stores.postgres import (
    changes,
    compression,
    conflicts,
    experience_index,
    experiences,
    lesson_sources,
    memories,
)
from memory_service.stores.postgres.conflicts import Conflict
from memory_service.stores.postgres.pool import Connection
from memory_service.vocabulary import Vocabulary
from memory_service.write.drafts import differences
from memory_service.write.indexing import indexed_text

ERASED_BY = "erasure"  # the actor of a lesson that was made anew
# What a summary takes from its sources, and where they belong.
TOLD = frozenset({
    "content", "summary", "category", "event_type", "tags", "entities", "outcome", "importance", "confidence", "occurred_at",
    "valid_from", "state", "superseded_by",
})  # fmt: skip


class Rejoin(Protocol):
    """Sets against each other what was against the same erased memory; `torn` were its open conflicts."""

    async def __call__(
        self, connection: Connection, tenant: str, torn: Sequence[Conflict], gone: Collection[UUID], now: datetime
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Disputes:
    """What erasing needs of conflicts; `at_once_max` of them are looked at."""

    rejoin: Rejoin
    at_once_max: int


class Families:
    """Runs inside the caller's transaction.  No model is asked here: the rules word what is made anew."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        heat: Heat,
        numbers: CompressNumbers,
        patterns: TextPatterns,
        insights: InsightNumbers,
        gone_rows_max: int,
        clock: Clock,
        disputes: Disputes,
    ) -> None:
        self._vocabulary = vocabulary
        self._heat = heat
        self._numbers = numbers
        self._patterns = patterns
        self._insights = insights
        self._gone_rows_max = gone_rows_max
        self._clock = clock
        self._disputes = disputes

    async def lock(self, connection: Connection, tenant: str, ids: Sequence[UUID]) -> None:
        """Before any row is locked: whoever changes the summaries of one user does it one after another."""
        await compression.lock_users_of(connection, tenant, ids)

    async def line_up(self, connection: Connection, tenant: str, ids: Sequence[UUID]) -> None:
        """As `lock`, before a change that concerns others only when the memory is in a summary.

        One that comes into a summary between here and the locking of its row is found by Postgres as a deadlock at the
        worst, and the transaction runs again.
        """
        await compression.lock_users_of(connection, tenant, ids, compressed_only=True)

    async def erase(self, connection: Connection, tenant: str, ids: Sequence[UUID]) -> int:
        """Erase these with all that was derived from their texts → how many of these there were, summaries' sources counted."""
        named = await memories.get_many(connection, tenant, ids, lock=True)
        below = await compression.sources_of(connection, tenant, [m.id for m in named], lock=True)
        doomed = {m.id: m for m in (*named, *below)}
        heads = await self._heads(connection, tenant, doomed.values())
        told = await compression.insights_from(connection, tenant, list(doomed))
        learned, seqs = await self._learned_from(connection, tenant, list(doomed))
        torn = await conflicts.open_of(connection, tenant, list(doomed), self._disputes.at_once_max)
        count = await changes.erase(connection, tenant, list(doomed))
        for lesson in learned:
            await self._without(connection, lesson, list(doomed), seqs[lesson.user_id])
        for head in heads:
            await self._remade(connection, head)
        await self._drop_insights(connection, tenant, *told)
        if torn:
            await self._disputes.rejoin(connection, tenant, torn, [*doomed], self._clock())
        return count

    async def unquote(self, connection: Connection, tenant: str, limit: int) -> list[tuple[UUID, str]]:
        """Up to `limit` lessons that still quoted what is erased, now gone or made anew: (id, user).

        Such are left by a version of this software that only took the source out of the list.
        """
        found = await lesson_sources.quoting_erased(connection, tenant, limit)
        for user_id in sorted({lesson.user_id for lesson, _ in found}):
            seq = await experiences.lock_user(connection, tenant, user_id)
            for lesson, gone in await lesson_sources.quoting_erased(connection, tenant, limit):
                if lesson.user_id == user_id:
                    await self._without(connection, lesson, gone, seq)
        return [(lesson.id, lesson.user_id) for lesson, _ in found]

    async def leave(self, connection: Connection, source: Memory) -> None:
        """This source, as it was, is no longer in its summary, which is made anew without it."""
        if source.superseded_by is not None:
            for head in await memories.get_many(connection, source.tenant, [source.superseded_by], lock=True):
                await self._remade(connection, head)

    async def released(self, connection: Connection, before: Memory, after: Memory) -> Memory:
        """What `after` is to be saved as: one that is given an end leaves its summary, which has none."""
        if before.state != "compressed" or after is before or after.expires_at is None:
            return after
        was = await compression.states_before(connection, before.tenant, [before.id])
        return replace(after, state="active" if was.get(before.id) == "active" else "cold", superseded_by=None)

    async def follow(self, connection: Connection, before: Memory, after: Memory) -> None:
        """Once `after` is saved: the summary that told of `before` is made anew when that would read differently."""
        if before.state == "compressed" and TOLD & set(differences(before, after)):
            await self.leave(connection, before)

    async def _heads(self, connection: Connection, tenant: str, doomed: Collection[Memory]) -> list[Memory]:
        """Summaries that tell of the doomed and are not doomed themselves."""
        above = {m.superseded_by for m in doomed if m.state == "compressed" and m.superseded_by is not None}
        above -= {m.id for m in doomed}
        return await memories.get_many(connection, tenant, sorted(above), lock=True) if above else []

    async def _remade(self, connection: Connection, head: Memory) -> None:
        """Under a new id: versions, kept answers and copies of the old text go with the old one."""
        rest = await compression.sources_of(connection, head.tenant, [head.id], lock=True)
        await changes.erase(connection, head.tenant, [head.id])
        now = self._clock()
        if len(rest) < self._numbers.remade_min:
            await self._let_go(connection, rest, now)
            return
        facts = facts_of(rest, self._numbers, self._patterns)
        fresh = summary_memory(
            rest, facts, head_line(facts), rules_text(facts), "rules", now, self._heat, self._numbers
        )
        fresh = replace(
            fresh,
            state=head.state,
            superseded_by=None,
            pinned=head.pinned,
            heat=head.heat,
            heat_at=head.heat_at,
            last_accessed_at=head.last_accessed_at,
            access_count=head.access_count,
        )
        await memories.insert(connection, fresh, indexed_text(fresh, self._vocabulary))
        await compression.point_to(connection, head.tenant, [m.id for m in rest], fresh.id, now)

    async def _let_go(self, connection: Connection, rest: Sequence[Memory], now: datetime) -> None:
        """Too few for a summary: they are again what they were before."""
        if not rest:
            return
        before = await compression.states_before(connection, rest[0].tenant, [m.id for m in rest])
        for memory in rest:
            state: State = "active" if before.get(memory.id) == "active" else "cold"
            after = replace(memory, state=state, superseded_by=None, version=memory.version + 1, updated_at=now)
            await keep(connection, memory, after, "decompress")
            await changes.save_state(connection, after)

    async def _learned_from(
        self, connection: Connection, tenant: str, ids: Sequence[UUID]
    ) -> tuple[list[Experience], dict[str, int]]:
        """Lessons of these memories, which nobody changes until we commit, and the number of this change of each user's."""
        users = {lesson.user_id for lesson in await lesson_sources.learned_from(connection, tenant, ids)}
        seqs = {one: await experiences.lock_user(connection, tenant, one) for one in sorted(users)}
        if not seqs:
            return [], seqs
        learned = await lesson_sources.learned_from(connection, tenant, ids)
        return [lesson for lesson in learned if lesson.user_id in seqs], seqs

    async def _without(self, connection: Connection, lesson: Experience, gone: Sequence[UUID], seq: int) -> None:
        """The lesson goes, or one takes its place that does not quote; under a new id, as with summaries."""
        told = [Telling(cause, tuple(ids)) for cause, ids in
                await lesson_sources.tellings(connection, lesson.tenant, lesson.id)]  # fmt: skip
        after = without_sources(lesson, gone, told, self._clock())
        if after is not None and after.id == lesson.id:
            return  # its sources were taken out with the memories
        tenant, gave_way = lesson.tenant, list[UUID]()
        if after is not None:
            gave_way = await lesson_sources.take_over(connection, tenant, lesson.id, after.id)
        await experiences.erase(connection, tenant, [lesson.id])
        await experience_index.note_gone(connection, tenant, lesson.user_id, [lesson.id], seq, self._gone_rows_max)
        if after is None:
            return
        await experiences.insert(connection, after, lesson_terms(after, self._vocabulary), seq)
        await experiences.keep_version(connection, after, snapshot_of(after), {}, actor=ERASED_BY, cause=CAUSE)
        await lesson_sources.point_to(connection, tenant, gave_way, after.id)
        await changes.enqueue(connection, tenant, [after.id])

    async def _drop_insights(
        self, connection: Connection, tenant: str, facts: Sequence[UUID], lessons: Sequence[UUID]
    ) -> None:
        """An insight says what all of its sources say; when too few are left it would say what one of them said."""
        if not facts and not lessons:
            return
        short = await compression.short_of_sources(connection, tenant, facts, lessons, self._insights.sources_kept_min)
        await changes.erase(connection, tenant, short[0])
        for experience_id, user_id in short[1]:
            seq = await experiences.lock_user(connection, tenant, user_id)
            await experiences.erase(connection, tenant, [experience_id])
            await experience_index.note_gone(connection, tenant, user_id, [experience_id], seq, self._gone_rows_max)


async def keep(connection: Connection, before: Memory, after: Memory, cause: str) -> None:
    """The version that this job replaced."""
    shown, changed = memory_json(before), differences(before, after)
    await changes.keep_version(connection, before, shown, changed, actor=WRITTEN_BY, cause=cause, at=after.updated_at)
