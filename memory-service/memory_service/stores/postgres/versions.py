"""What was a memory before?  The versions that changes replaced, and which ids are spent.

One row of memory_version per replaced version: its snapshot, and when, by whom, why and how it was replaced.  Writing
them is changes.keep_version's work.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from memory_service.domain import Caller, Json
from memory_service.stores.postgres.pool import Connection, fetch_all, fetch_one, uuid_array


@dataclass(frozen=True, slots=True)
class ReplacedVersion:
    """A version that is no longer the present one.  at, actor, cause and changes tell of the change that replaced it."""

    version: int
    at: datetime
    actor: str
    cause: str
    changes: Json
    snapshot: Json


async def replaced_page(
    connection: Connection, tenant: str, memory_id: UUID, below: int, limit: int
) -> tuple[list[ReplacedVersion], int]:
    """Up to `limit` versions under `below`, newest first; and how many replaced versions there are in all."""
    parameters = {"t": tenant, "id": memory_id, "below": below, "limit": limit}
    rows = await fetch_all(
        connection,
        """SELECT version, at, actor, cause, changes, snapshot FROM memory_version
           WHERE tenant = %(t)s AND memory_id = %(id)s AND version < %(below)s ORDER BY version DESC LIMIT %(limit)s""",
        parameters,
    )
    total = await fetch_one(
        connection, "SELECT count(*) FROM memory_version WHERE tenant = %(t)s AND memory_id = %(id)s", parameters
    )
    return [ReplacedVersion(*row) for row in rows], total[0] if total else 0


async def snapshot(connection: Connection, tenant: str, memory_id: UUID, version: int) -> Json | None:
    """The memory as it was at a replaced version; None when there is no such version."""
    row = await fetch_one(
        connection,
        "SELECT snapshot FROM memory_version WHERE tenant = %(t)s AND memory_id = %(id)s AND version = %(version)s",
        {"t": tenant, "id": memory_id, "version": version},
    )
    return row[0] if row else None


async def standing_at(
    connection: Connection, tenant: str, memory_ids: Sequence[UUID], moment: datetime
) -> dict[UUID, Json]:
    """What these memories were at `moment`, of those that changed since: the first version that was replaced after it."""
    rows = await fetch_all(
        connection,
        """SELECT DISTINCT ON (memory_id) memory_id, snapshot FROM memory_version
           WHERE tenant = %(t)s AND memory_id = ANY(%(ids)s::uuid[]) AND at > %(moment)s ORDER BY memory_id, version""",
        {"t": tenant, "ids": uuid_array(memory_ids), "moment": moment},
    )
    return dict(rows)


async def erased_for(connection: Connection, caller: Caller, memory_id: UUID) -> bool:
    """Was this id erased, and may the caller know?  A bound key learns it of its own user's memories only."""
    row = await fetch_one(
        connection,
        f"""SELECT 1 FROM erased WHERE id = %(id)s AND tenant = %(t)s
            AND (%(user)s::text IS NULL OR owner = {OWNER.format(id="%(id)s::uuid", tenant="%(t)s", user="%(user)s")})""",
        {"id": memory_id, "t": caller.tenant, "user": caller.user_id},
    )
    return row is not None


# Salted with the id: rows of one user can't be told to be of one user.
OWNER = "sha256(convert_to({id}::text || E'\\n' || {tenant}::text || E'\\n' || {user}::text, 'UTF8'))"
