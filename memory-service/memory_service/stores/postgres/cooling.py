"""Which memories have cooled below a threshold?  Found by an index that knows no rate of cooling.

heat(now) = stored × decay ^ (time / decay_days) falls below a threshold once enough time has passed for the logarithm of the
stored heat.  memory_cooling sorts by steps of that logarithm and then by time, so each step is one short range of the index
whatever the settings are.
"""

from dataclasses import dataclass
from datetime import datetime
from math import log
from typing import Any
from uuid import UUID

from memory_service.stores.postgres.pool import Connection, fetch_all, fetch_one

# As in the migration, word by word: else the index is not used.
STEP = "floor(ln(greatest(heat, 1e-6)) * 10)::integer"
STEP_MIN = -139  # of the heat 1e-6
COOLING = "tenant = %(tenant)s AND state = 'active' AND NOT pinned AND conflict_id IS NULL"
FOUND = f"""
FROM generate_series({STEP_MIN}, (SELECT {STEP} FROM memory WHERE {COOLING} ORDER BY {STEP} DESC LIMIT 1)) AS steps(step)
CROSS JOIN LATERAL (
    SELECT id, user_id, heat * power(%(decay)s, greatest(extract(epoch FROM %(now)s - heat_at)::float8, 0) / %(period_s)s) AS warmth
    FROM memory WHERE {COOLING} AND {STEP} = steps.step
      AND heat_at <= %(now)s - make_interval(secs => greatest(steps.step / 10.0 - %(log_below)s, 0) * %(log_s)s)
      AND heat * power(%(decay)s, greatest(extract(epoch FROM %(now)s - heat_at)::float8, 0) / %(period_s)s) < %(below)s
      AND (expires_at IS NULL OR expires_at > %(now)s)
    {{limit}}) AS found
"""


@dataclass(frozen=True, slots=True)
class Cooled:
    """One that has fallen below; `warmth` is its heat as of now."""

    id: UUID
    user_id: str
    warmth: float


async def cooled(
    connection: Connection, tenant: str, now: datetime, below: float, decay: float, period_s: float, limit: int
) -> list[Cooled]:
    """Up to `limit` active, unpinned memories without an open conflict whose heat is below `below` now."""
    sql = f"SELECT found.* {FOUND.format(limit='LIMIT %(limit)s')} LIMIT %(limit)s"
    rows = await fetch_all(connection, sql, _parameters(tenant, now, below, decay, period_s) | {"limit": limit})
    return [Cooled(*row) for row in rows]


async def cooled_count(
    connection: Connection, tenant: str, now: datetime, below: float, decay: float, period_s: float
) -> int:
    """How many there are.  OFFSET 0 keeps Postgres from joining all at once instead of step by step."""
    row = await fetch_one(
        connection,
        f"SELECT count(*) {FOUND.format(limit='OFFSET 0')}",
        _parameters(tenant, now, below, decay, period_s),
    )
    return row[0] if row else 0


def _parameters(tenant: str, now: datetime, below: float, decay: float, period_s: float) -> dict[str, Any]:
    """`log_s`: seconds in which the logarithm of heat falls by 1."""
    return {
        "tenant": tenant,
        "now": now,
        "below": below,
        "decay": decay,
        "period_s": period_s,
        "log_below": log(below),
        "log_s": period_s / -log(decay),
    }
