"""Which API keys exist?  Only sha256 hashes are stored; the keys are long random strings, so a plain hash is enough."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from memory_service.domain import Role
from memory_service.stores.postgres.pool import Connection, execute, fetch_all, fetch_one


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One row of api_key."""

    id: UUID
    tenant: str
    role: Role
    user_id: str | None
    name: str
    key_hash: bytes
    hint: str
    requests_per_minute: int | None
    created_at: datetime
    revoked_at: datetime | None = None


COLUMNS = "id, tenant, role, user_id, name, key_hash, hint, requests_per_minute, created_at, revoked_at"


async def find(connection: Connection, key_hash: bytes) -> ApiKey | None:
    """The active key with this hash."""
    row = await fetch_one(
        connection, f"SELECT {COLUMNS} FROM api_key WHERE key_hash = %(h)s AND revoked_at IS NULL", {"h": key_hash}
    )
    return ApiKey(*row) if row else None


async def any_active(connection: Connection) -> bool:
    """Does any key exist that was not revoked?"""
    row = await fetch_one(connection, "SELECT EXISTS (SELECT 1 FROM api_key WHERE revoked_at IS NULL)")
    return bool(row and row[0])


async def add(connection: Connection, key: ApiKey) -> bool:
    """Store a key; False when that very key was stored before."""
    parameters: dict[str, Any] = {name: getattr(key, name) for name in COLUMNS.split(", ")}
    names = ", ".join(f"%({name})s" for name in parameters)
    return (
        await execute(
            connection,
            f"INSERT INTO api_key ({COLUMNS}) VALUES ({names}) ON CONFLICT (key_hash) DO NOTHING",
            parameters,
        )
        == 1
    )


async def every(connection: Connection) -> list[ApiKey]:
    """All keys, revoked ones too, the oldest first."""
    return [
        ApiKey(*row) for row in await fetch_all(connection, f"SELECT {COLUMNS} FROM api_key ORDER BY created_at, id")
    ]


async def revoke(connection: Connection, key_id: UUID, at: datetime) -> bool:
    """Revoke one; False when there is no active key of that id."""
    return (
        await execute(
            connection,
            "UPDATE api_key SET revoked_at = %(at)s WHERE id = %(id)s AND revoked_at IS NULL",
            {"id": key_id, "at": at},
        )
        == 1
    )
