"""Which memories may be compressed, and which stand behind a summary?

A source is a row with state 'compressed' whose superseded_by is its summary's id: that row, not the summary's list, says what
belongs together.  Statements only; lifecycle/compressing.py and lifecycle/families.py decide.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from memory_service.domain import Kind, Memory, Outcome, State
from memory_service.stores.postgres.memories import SELECTED, memory_from_row
from memory_service.stores.postgres.pool import Connection, execute, fetch_all

COMPRESSED_INTO = "compressed_into"  # the relation from a source to its summary
# Causes of versions by which nobody touched the memory: it only aged.
AGEING_CAUSES = ("decay", "archive", "compress", "decompress")


@dataclass(frozen=True, slots=True)
class Asked:
    """Which memories a pass looks for.  `untouched_before`: nobody read, used or changed it since."""

    tenant: str
    now: datetime
    state: State
    untouched_before: datetime
    heat_below: float
    decay: float
    decay_s: float
    importance_below: float
    exempt_types: tuple[str, ...]
    content_chars_max: int
    events_only: bool

    def parameters(self) -> dict[str, object]:
        return {
            "t": self.tenant, "now": self.now, "state": self.state, "before": self.untouched_before, "heat": self.heat_below,
            "decay": self.decay, "decay_s": self.decay_s, "importance": self.importance_below,
            "exempt": list(self.exempt_types), "chars": self.content_chars_max, "events": self.events_only,
            "ageing": list(AGEING_CAUSES),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """What grouping needs of a memory; of its text only the beginning of its summary, which tells the language."""

    id: UUID
    version: int
    kind: Kind
    event_type: str | None
    category: str | None
    outcome: Outcome | None
    tools: list[str]
    all_calls_worked: bool | None
    occurred_at: datetime
    head: str
    summary_id: UUID | None


COLUMNS = """m.id, m.version, m.kind, m.event_type, m.category, m.outcome,
    ARRAY(SELECT DISTINCT c ->> 'tool' FROM jsonb_array_elements(m.tool_calls) AS c WHERE c ->> 'tool' IS NOT NULL ORDER BY 1),
    (SELECT bool_and(c ->> 'status' = 'success') FROM jsonb_array_elements(m.tool_calls) AS c),
    m.occurred_at, left(m.summary, 200)"""
# What was made of others is not merged again; what ends, waits for a person or is kept warm by one is left alone.
WAITING = """m.tenant = %(t)s AND m.state = %(state)s AND NOT m.pinned AND m.conflict_id IS NULL AND m.expires_at IS NULL
    AND m.source_memory_ids = '{}' AND char_length(m.content) <= %(chars)s AND m.importance < %(importance)s
    AND m.occurred_at <= %(before)s AND GREATEST(m.created_at, m.heat_at, m.last_accessed_at) <= %(before)s
    AND m.heat * power(%(decay)s::float8, extract(epoch FROM GREATEST(%(now)s - m.heat_at, interval '0')) / %(decay_s)s) < %(heat)s
    AND (NOT %(events)s OR (m.kind = 'episodic' AND (m.event_type IS NOT NULL OR m.tool_calls <> '[]')))
    AND (m.event_type IS NULL OR m.event_type <> ALL(%(exempt)s))
    AND NOT EXISTS (SELECT FROM memory_version v WHERE v.memory_id = m.id
                    AND (CASE WHEN %(events)s THEN v.cause = 'restore' ELSE v.at > %(before)s AND v.cause <> ALL(%(ageing)s) END))"""
# A summary that somebody changed by hand stays as that person wrote it.
JOINABLE = """s.tenant = %(t)s AND s.user_id = %(u)s AND s.state IN ('active', 'cold') AND s.expires_at IS NULL AND s.conflict_id IS NULL
    AND s.metadata ? 'compressed' AND s.source_memory_ids <> '{}'
    AND NOT EXISTS (SELECT FROM memory_version v WHERE v.memory_id = s.id AND v.cause IN ('update', 'rollback'))"""


async def users_waiting(connection: Connection, asked: Asked, after: str, limit: int) -> list[str]:
    """Users with something to compress, in the order of their ids, beginning after `after`."""
    rows = await fetch_all(
        connection,
        f"""SELECT m.user_id FROM memory m WHERE {WAITING} AND m.user_id > %(after)s
            GROUP BY m.user_id ORDER BY m.user_id LIMIT %(limit)s""",
        {**asked.parameters(), "after": after, "limit": limit},
    )
    return [row[0] for row in rows]


async def waiting(
    connection: Connection,
    asked: Asked,
    user_id: str,
    limit: int,
    after: tuple[datetime, UUID] | None = None,
    skip: int = 0,
) -> list[Row]:
    """What a user has to compress, oldest first by (occurred_at, id): beginning after `after`, or after the first `skip`."""
    position = "AND (m.occurred_at, m.id) > (%(after_at)s, %(after_id)s)" if after else ""
    rows = await fetch_all(
        connection,
        f"""SELECT {COLUMNS}, NULL::uuid FROM memory m WHERE {WAITING} AND m.user_id = %(u)s {position}
            ORDER BY m.occurred_at, m.id LIMIT %(limit)s OFFSET %(skip)s""",
        {
            **asked.parameters(), "u": user_id, "limit": limit, "skip": skip, "after_at": after[0] if after else None,
            "after_id": after[1] if after else None,
        },
    )  # fmt: skip
    return [Row(*row) for row in rows]


async def waiting_count(connection: Connection, asked: Asked, user_id: str) -> int:
    """How much a user has to compress."""
    rows = await fetch_all(
        connection,
        f"SELECT count(*) FROM memory m WHERE {WAITING} AND m.user_id = %(u)s",
        {**asked.parameters(), "u": user_id},
    )
    return int(rows[0][0])


async def in_summaries(
    connection: Connection, tenant: str, user_id: str, since: datetime, until: datetime, limit: int
) -> list[Row]:
    """Sources of the summaries that others may join, of that time; newest first."""
    rows = await fetch_all(
        connection,
        f"""SELECT {COLUMNS}, m.superseded_by FROM memory m JOIN memory s ON s.id = m.superseded_by AND {JOINABLE}
            WHERE m.tenant = %(t)s AND m.user_id = %(u)s AND m.state = 'compressed'
              AND m.occurred_at BETWEEN %(since)s AND %(until)s ORDER BY m.occurred_at DESC, m.id LIMIT %(limit)s""",
        {"t": tenant, "u": user_id, "since": since, "until": until, "limit": limit},
    )
    return [Row(*row) for row in rows]


async def lock_user(connection: Connection, tenant: str, user_id: str) -> None:
    """Line up with everybody who takes this user's summaries apart or puts them together.  First of all locks."""
    await connection.execute(f"SELECT pg_advisory_xact_lock({LINE})", {"t": tenant, "u": user_id})


async def lock_users_of(
    connection: Connection, tenant: str, ids: Sequence[UUID], *, compressed_only: bool = False
) -> None:
    """The same for the users of these memories, in one order for everybody; or only of those that are in a summary."""
    await connection.execute(
        f"""SELECT pg_advisory_xact_lock(k.line) FROM (SELECT DISTINCT {LINE.replace("%(u)s", "m.user_id")} AS line
            FROM memory m WHERE m.tenant = %(t)s AND m.id = ANY(%(ids)s)
              AND (NOT %(only)s OR m.state = 'compressed') ORDER BY line) AS k""",
        {"t": tenant, "ids": list(ids), "only": compressed_only},
    )


LINE = "hashtextextended(%(t)s::text || E'\\n' || %(u)s::text, 7)"


async def sources_of(
    connection: Connection, tenant: str, summary_ids: Sequence[UUID], *, lock: bool = False
) -> list[Memory]:
    """The memories behind these summaries, in the order of ids."""
    rows = await fetch_all(
        connection,
        f"""SELECT {SELECTED} FROM memory m WHERE m.tenant = %(t)s AND m.state = 'compressed'
              AND m.superseded_by = ANY(%(ids)s) ORDER BY m.id {"FOR UPDATE OF m" if lock else ""}""",
        {"t": tenant, "ids": list(summary_ids)},
    )
    return [memory_from_row(row) for row in rows]


async def states_before(connection: Connection, tenant: str, ids: Sequence[UUID]) -> dict[UUID, str]:
    """What these were before they were compressed."""
    rows = await fetch_all(
        connection,
        """SELECT DISTINCT ON (memory_id) memory_id, snapshot ->> 'state' FROM memory_version
           WHERE tenant = %(t)s AND memory_id = ANY(%(ids)s) AND cause = 'compress' ORDER BY memory_id, version DESC""",
        {"t": tenant, "ids": list(ids)},
    )
    return {row[0]: row[1] for row in rows}


async def point_to(connection: Connection, tenant: str, ids: Sequence[UUID], summary_id: UUID, at: datetime) -> None:
    """These sources are in this summary now: pointers and relations."""
    parameters = {"t": tenant, "ids": list(ids), "summary": summary_id, "type": COMPRESSED_INTO, "at": at}
    await execute(
        connection,
        "UPDATE memory SET superseded_by = %(summary)s WHERE tenant = %(t)s AND id = ANY(%(ids)s) AND state = 'compressed'",
        parameters,
    )
    await execute(
        connection,
        """INSERT INTO memory_relations (source_id, target_id, relation_type, tenant, created_at)
           SELECT id, %(summary)s, %(type)s, %(t)s, %(at)s FROM unnest(%(ids)s::uuid[]) AS x(id) ON CONFLICT DO NOTHING""",
        parameters,
    )


async def insights_from(connection: Connection, tenant: str, ids: Sequence[UUID]) -> tuple[list[UUID], list[UUID]]:
    """(memories, experiences) that an insight made of these and others."""
    parameters = {"t": tenant, "ids": list(ids)}
    made = (
        "source_memory_ids && %(ids)s::uuid[] AND source_memory_ids <> '{}'"  # the index holds only rows with sources
    )
    facts = await fetch_all(
        connection, f"SELECT id FROM memory WHERE tenant = %(t)s AND {made} AND metadata ? 'insight'", parameters
    )
    lessons = await fetch_all(
        connection, f"SELECT id FROM experience WHERE tenant = %(t)s AND {made} AND origin = 'insight'", parameters
    )
    return [row[0] for row in facts], [row[0] for row in lessons]


async def short_of_sources(
    connection: Connection, tenant: str, memories: Sequence[UUID], experiences: Sequence[UUID], least: int
) -> tuple[list[UUID], list[tuple[UUID, str]]]:
    """Those of these insights that fewer than `least` memories still bear out: (memories, (experience, user))."""
    few = "SELECT id, user_id FROM {} WHERE tenant = %(t)s AND id = ANY(%(ids)s) AND cardinality(source_memory_ids) < %(least)s"
    parameters = {"t": tenant, "least": least}
    rows = await fetch_all(connection, few.format("memory"), {**parameters, "ids": list(memories)})
    lessons = await fetch_all(connection, few.format("experience"), {**parameters, "ids": list(experiences)})
    return [row[0] for row in rows], [(row[0], row[1]) for row in lessons]
