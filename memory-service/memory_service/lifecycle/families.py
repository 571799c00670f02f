"""What happens to a summary when one of its sources goes or is changed, and to the sources when their summary goes?

Every memory is erased through `erase`: in the same transaction a summary that told of it is erased too, and one without it takes
its place, or the last ones come back when too few are left.  So no line at which the process dies leaves a text behind.
A source that is corrected is told anew in the same way: what was put right does not live on in the summary.
Whoever erases a summary erases what it was made from: each of these says what it said.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from memory_service.domain import Clock, Memory, State
from memory_service.lifecycle.compress_rules import CompressNumbers, TextPatterns
from memory_service.lifecycle.insight_rules import InsightNumbers
from memory_service.lifecycle.summary_facts import facts_of
from memory_service.lifecycle.summary_text import WRITTEN_BY, head_line, rules_text, summary_memory
from memory_service.settings import Heat
from memory_service.shapes import memory_json
from memory_service.stores.postgres import changes, compression, experience_index, experiences, memories
from memory_service.stores.postgres.pool import Connection
from memory_service.vocabulary import Vocabulary
from memory_service.write.drafts import differences
from memory_service.write.indexing import indexed_text

# What a summary takes from its sources, and where they belong.
TOLD = frozenset({
    "content", "summary", "category", "event_type", "tags", "entities", "outcome", "importance", "confidence", "occurred_at",
    "valid_from", "state", "superseded_by",
})  # fmt: skip


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
    ) -> None:
        self._vocabulary = vocabulary
        self._heat = heat
        self._numbers = numbers
        self._patterns = patterns
        self._insights = insights
        self._gone_rows_max = gone_rows_max
        self._clock = clock

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
        count = await changes.erase(connection, tenant, list(doomed))
        for head in heads:
            await self._remade(connection, head)
        await self._drop_insights(connection, tenant, *told)
        return count

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
