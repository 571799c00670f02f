"""How are API keys made, listed and revoked from the command line?"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

from memory_service.access import new_key
from memory_service.api.body import text_problem
from memory_service.api.fields import printable
from memory_service.domain import Role, utc_now
from memory_service.errors import SetupRefused
from memory_service.settings import Settings, load_tunables
from memory_service.stores.postgres import keys
from memory_service.stores.postgres.pool import Postgres


async def create(
    settings: Settings, *, role: Role, tenant: str, user_id: str | None, name: str, rate: int | None
) -> str:
    """The new key's text, which is not stored.  Raises SetupRefused for a tenant or user that no request could name."""
    for option, text in (("--tenant", tenant), ("--user", user_id)):
        if text is not None and (len(text) > 128 or text_problem(text) or not _is_printable(text)):
            raise SetupRefused(f"{option} must be 1 to 128 printable characters")
    key, text = new_key(tenant=tenant, role=role, user_id=user_id, name=name, requests_per_minute=rate, clock=utc_now)
    async with _opened(settings) as postgres:
        await postgres.transaction(lambda c: keys.add(c, key))
    return text


async def listing(settings: Settings) -> list[str]:
    """One line a key."""
    async with _opened(settings) as postgres:
        found = await postgres.read(keys.every)
    lines = [f"{'id':36}  {'key':9}  {'role':6}  {'tenant':16}  {'user':16}  {'state':8}  name"]
    for k in found:
        state = "revoked" if k.revoked_at else "active"
        lines.append(f"{k.id}  {k.hint:9}  {k.role:6}  {k.tenant:16}  {k.user_id or '-':16}  {state:8}  {k.name}")
    return lines


async def revoke(settings: Settings, key_id: UUID) -> bool:
    """False when there is no active key of that id."""
    async with _opened(settings) as postgres:
        return await postgres.transaction(lambda c: keys.revoke(c, key_id, utc_now()))


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[Postgres]:
    postgres = Postgres(settings.database_url, load_tunables(settings).stores)
    await postgres.open()
    try:
        yield postgres
    finally:
        await postgres.close()


def _is_printable(text: str) -> bool:
    try:
        return bool(printable(text))
    except ValueError:
        return False
