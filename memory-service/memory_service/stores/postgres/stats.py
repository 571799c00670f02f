"""How much is stored?  Counts for /v1/stats."""

from typing import Any

from memory_service.stores.postgres.pool import Connection, fetch_all, fetch_one


async def memory_counts(connection: Connection, tenant: str, user_id: str | None) -> dict[str, dict[str, int]]:
    """{kind: {state: count}} of a tenant, or of one of its users."""
    rows = await fetch_all(
        connection,
        """SELECT kind, state, count(*) FROM memory
           WHERE tenant = %(tenant)s AND (%(user)s::text IS NULL OR user_id = %(user)s)
             AND (expires_at IS NULL OR expires_at > now()) GROUP BY kind, state""",
        {"tenant": tenant, "user": user_id},
    )
    counts: dict[str, dict[str, int]] = {"episodic": {}, "semantic": {}}
    for kind, state, count in rows:
        counts[kind][state] = count
    return counts


async def other_counts(connection: Connection, tenant: str, user_id: str | None) -> dict[str, Any]:
    """Retrievals of the last day, experiences, open conflicts."""
    row = await fetch_one(
        connection,
        """SELECT (SELECT count(*) FROM retrieval_log WHERE tenant = %(tenant)s AND (%(user)s::text IS NULL OR user_id = %(user)s)
                   AND at > now() - interval '1 day'),
                  (SELECT count(*) FROM experience WHERE tenant = %(tenant)s AND (%(user)s::text IS NULL OR user_id = %(user)s)
                   AND status = 'active'),
                  (SELECT count(*) FROM memory_conflict WHERE tenant = %(tenant)s AND (%(user)s::text IS NULL OR user_id = %(user)s)
                   AND state = 'open')""",
        {"tenant": tenant, "user": user_id},
    )
    retrievals, experiences, conflicts = row or (0, 0, 0)
    return {"retrievals_last_day": retrievals, "experiences_active": experiences, "conflicts_open": conflicts}
