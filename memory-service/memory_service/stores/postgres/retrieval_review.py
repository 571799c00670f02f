"""Does searching help?  Figures over the log of retrievals, for `hindsight review`.

Each question is one statement over one tenant, or one of its users, and a span of time; every list is bounded.
"""

from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from uuid import UUID

from memory_service.stores.postgres.pool import Connection, fetch_all, fetch_one


@dataclass(frozen=True, slots=True)
class Span:
    """What is looked at: `since` inclusive, `until` exclusive; `user_id` None is every user of the tenant."""

    tenant: str
    user_id: str | None
    since: datetime
    until: datetime

    def parameters(self, **more: Any) -> dict[str, Any]:
        return {"tenant": self.tenant, "user": self.user_id, "since": self.since, "until": self.until, **more}

    def where(self, row: str = "") -> str:
        """Plain comparisons, so that the indexes on (tenant, at) and (tenant, user_id, at) serve."""
        mine = "" if self.user_id is None else f" AND {row}user_id = %(user)s"
        return f"{row}tenant = %(tenant)s{mine} AND {row}at >= %(since)s AND {row}at < %(until)s"


@dataclass(frozen=True, slots=True)
class Rate:
    """Of a week (by its Monday, UTC) or of a source: how many retrievals, how many brought a hit, how many were used."""

    name: date | str
    retrievals: int
    with_hits: int
    used: int


@dataclass(frozen=True, slots=True)
class EmptyQuery:
    """A query that found nothing, by its beginning; for one without words the names of the state's fields."""

    query: str
    times: int
    last_at: datetime


@dataclass(frozen=True, slots=True)
class Unretrieved:
    """A memory that no search has brought so far."""

    id: UUID
    user_id: str
    kind: str
    summary: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Unused:
    """A memory that was brought `times` times and never used."""

    id: UUID
    user_id: str
    kind: str
    summary: str
    times: int
    last_at: datetime


@dataclass(frozen=True, slots=True)
class DegradedLane:
    lane: str
    times: int
    last_at: datetime


async def by_week(connection: Connection, span: Span) -> list[Rate]:
    """The oldest week first."""
    return await _rates(connection, span, "date_trunc('week', at, 'UTC')::date")


async def by_source(connection: Connection, span: Span) -> list[Rate]:
    return await _rates(connection, span, "source")


async def _rates(connection: Connection, span: Span, name: str) -> list[Rate]:
    rows = await fetch_all(
        connection,
        f"""SELECT {name}, count(*), count(*) FILTER (WHERE hit_count > 0),
                   count(*) FILTER (WHERE used_ids <> '{{}}')
            FROM retrieval_log WHERE {span.where()} GROUP BY 1 ORDER BY 1""",
        span.parameters(),
    )
    return [Rate(*row) for row in rows]


async def found_nothing(connection: Connection, span: Span, chars: int, limit: int) -> list[EmptyQuery]:
    """The most frequent first.  Queries count as the same when their first `chars` characters are, whatever the case."""
    rows = await fetch_all(
        connection,
        f"""SELECT min(shown), count(*), max(at) FROM (
                SELECT at, left(CASE WHEN query = '' THEN 'state: ' || COALESCE(filters ->> 'state_fields', '') ELSE query END,
                                %(chars)s) AS shown
                FROM retrieval_log WHERE {span.where()} AND hit_count = 0) AS q
            GROUP BY lower(shown) ORDER BY 2 DESC, 3 DESC LIMIT %(limit)s""",
        span.parameters(chars=chars, limit=limit),
    )
    return [EmptyQuery(*row) for row in rows]


async def degraded_lanes(connection: Connection, span: Span, limit: int) -> list[DegradedLane]:
    """The most often missing first."""
    rows = await fetch_all(
        connection,
        f"""SELECT lane, count(*), max(at) FROM retrieval_log, unnest(degraded) AS lane
            WHERE {span.where()} AND degraded <> '{{}}' GROUP BY lane ORDER BY 2 DESC, lane LIMIT %(limit)s""",
        span.parameters(limit=limit),
    )
    return [DegradedLane(*row) for row in rows]


async def never_retrieved(
    connection: Connection, span: Span, chars: int, counted_max: int, limit: int
) -> tuple[list[Unretrieved], int]:
    """Active memories from before the span that nothing has brought so far, the oldest first; and how many, counted to the bound."""
    mine = "" if span.user_id is None else "AND user_id = %(user)s"
    where = f"""tenant = %(tenant)s {mine} AND state = 'active' AND access_count = 0 AND created_at < %(since)s
                AND (expires_at IS NULL OR expires_at > %(until)s)"""
    parameters = span.parameters(chars=chars, limit=limit, counted_max=counted_max)
    rows = await fetch_all(
        connection,
        f"""SELECT id, user_id, kind, left(COALESCE(summary, content), %(chars)s), created_at FROM memory WHERE {where}
            ORDER BY created_at, id LIMIT %(limit)s""",
        parameters,
    )
    count = await fetch_one(
        connection,
        f"SELECT count(*) FROM (SELECT 1 FROM memory WHERE {where} LIMIT %(counted_max)s) AS bounded",
        parameters,
    )
    return [Unretrieved(*row) for row in rows], count[0] if count else 0


async def never_used(connection: Connection, span: Span, often: int, chars: int, limit: int) -> list[Unused]:
    """Memories that the span's retrievals brought at least `often` times, that none of them was told to have used, and of which
    no feedback ever said so; the most often brought first."""
    rows = await fetch_all(
        connection,
        f"""WITH brought AS (
                SELECT hit.id, count(*) AS times, max(r.at) AS last_at
                FROM retrieval_log r, jsonb_to_recordset(r.hits) AS hit(id uuid, what text)
                WHERE {span.where("r.")} AND hit.what IS DISTINCT FROM 'experience'
                GROUP BY hit.id HAVING count(*) >= %(often)s),
            used AS (
                SELECT DISTINCT one FROM retrieval_log r, unnest(r.used_ids) AS one
                WHERE {span.where("r.")} AND r.used_ids <> '{{}}')
            SELECT m.id, m.user_id, m.kind, left(COALESCE(m.summary, m.content), %(chars)s), b.times, b.last_at
            FROM brought b JOIN memory m ON m.id = b.id AND m.tenant = %(tenant)s
            WHERE m.state = 'active' AND NOT EXISTS (SELECT 1 FROM used u WHERE u.one = b.id)
              AND NOT EXISTS (SELECT 1 FROM memory_feedback f WHERE f.memory_id = b.id AND f.tenant = %(tenant)s
                              AND f.outcome IN ('success', 'failure'))
            ORDER BY b.times DESC, b.last_at DESC LIMIT %(limit)s""",
        span.parameters(often=often, chars=chars, limit=limit),
    )
    return [Unused(*row) for row in rows]
