"""What did past runs take?  The table run_effort: the newest runs of each user and task type, nothing older.

Values are {column: number}, since the meaning of an effort belongs to experience/baseline.py.
"""

from collections.abc import Mapping
from datetime import datetime

from memory_service.stores.postgres.pool import Connection, execute, fetch_all

COLUMNS = (
    "steps", "tool_calls", "repeated_calls", "argument_chars", "untouched_goal_terms", "closing_chars", "duration_ms",
)  # fmt: skip


async def newest(
    connection: Connection, tenant: str, user_id: str, task_type: str | None, limit: int
) -> list[dict[str, float | None]]:
    """The newest `limit` runs, oldest first."""
    rows = await fetch_all(
        connection,
        f"""SELECT {", ".join(COLUMNS)} FROM run_effort
            WHERE tenant = %(t)s AND user_id = %(u)s AND task_type = %(type)s ORDER BY id DESC LIMIT %(limit)s""",
        {"t": tenant, "u": user_id, "type": task_type or "", "limit": limit},
    )
    return [dict(zip(COLUMNS, row, strict=True)) for row in reversed(rows)]


async def add(
    connection: Connection,
    tenant: str,
    user_id: str,
    task_type: str | None,
    effort: Mapping[str, float | None],
    at: datetime,
    keep: int,
) -> None:
    """Keep one run and drop what is older than the newest `keep`."""
    parameters = {"t": tenant, "u": user_id, "type": task_type or "", "at": at, "keep": keep, **effort}
    await execute(
        connection,
        f"""INSERT INTO run_effort (tenant, user_id, task_type, at, {", ".join(COLUMNS)})
            VALUES (%(t)s, %(u)s, %(type)s, %(at)s, {", ".join(f"%({name})s" for name in COLUMNS)})""",
        parameters,
    )
    await execute(
        connection,
        """DELETE FROM run_effort WHERE tenant = %(t)s AND user_id = %(u)s AND task_type = %(type)s AND id <=
           (SELECT id FROM run_effort WHERE tenant = %(t)s AND user_id = %(u)s AND task_type = %(type)s
            ORDER BY id DESC OFFSET %(keep)s LIMIT 1)""",
        parameters,
    )
