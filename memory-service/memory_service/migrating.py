"""How does a database get to this version?  Alembic, under a lock, so that several starting services may try at once."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from memory_service.access import DEFAULT_TENANT, key_hash, new_key
from memory_service.domain import utc_now
from memory_service.errors import SetupRefused
from memory_service.settings import PACKAGE, Settings
from memory_service.stores.postgres.schema import REVISION

if TYPE_CHECKING:
    from sqlalchemy import Connection

LOCK = 7_241_001  # any fixed number, the same for every process
BOOTSTRAP_NAME = "HINDSIGHT_API_KEY"


def migrations_folder() -> Path:
    """Inside an installed wheel, else in the checkout.  Raises SetupRefused."""
    for folder in (PACKAGE / "_migrations", PACKAGE.parent.parent / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise SetupRefused("the migrations folder is missing from this installation")


def migrate(settings: Settings, say: Callable[[str], None]) -> None:
    """Upgrade to the newest revision and store the bootstrap key.  Raises SetupRefused when Postgres can't be reached."""
    try:
        revision = REVISION if _is_current(settings) else _upgraded(settings)
    except psycopg.OperationalError as error:
        raise SetupRefused(f"Postgres could not be used: {_reason(error)}") from None
    say(f"database is at revision {revision}" + (f", {BOOTSTRAP_NAME} is an admin key" if settings.api_key else ""))


def _is_current(settings: Settings) -> bool:
    """Is there nothing to do?  Asked first, because importing Alembic costs every start a second of processor time."""
    with psycopg.connect(settings.database_url) as connection:
        there = connection.execute("SELECT to_regclass('alembic_version'), to_regclass('api_key')").fetchone()
        if there is None or None in there:
            return False
        found = connection.execute("SELECT version_num FROM alembic_version").fetchall()
        if found != [(REVISION,)]:
            return False
        if not settings.api_key:
            return True
        digest = key_hash(settings.api_key)
        return connection.execute("SELECT 1 FROM api_key WHERE key_hash = %s", (digest,)).fetchone() is not None


def _upgraded(settings: Settings) -> str:
    """The revision that the migrations led to."""
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import create_engine, text
    from sqlalchemy.exc import OperationalError

    config = Config()
    config.set_main_option("script_location", str(migrations_folder()))
    # Not by SQLAlchemy's own reading of the address: it does not know several hosts, which a failover needs.
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(settings.database_url))
    try:
        with engine.connect() as connection:
            connection.execute(text("SELECT pg_advisory_lock(:lock)"), {"lock": LOCK})
            connection.commit()
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            connection.commit()
            revision = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one()
            if settings.api_key:
                _store_bootstrap_key(connection, settings.api_key)
            connection.execute(text("SELECT pg_advisory_unlock(:lock)"), {"lock": LOCK})
            connection.commit()
        return str(revision)
    except OperationalError as error:
        raise (error.orig if isinstance(error.orig, psycopg.OperationalError) else error) from None
    finally:
        engine.dispose()


def _store_bootstrap_key(connection: "Connection", key_text: str) -> None:
    """The operator's own key: admin of the default tenant, stored as a hash like any other."""
    from sqlalchemy import text

    key, _ = new_key(
        tenant=DEFAULT_TENANT,
        role="admin",
        user_id=None,
        name=BOOTSTRAP_NAME,
        requests_per_minute=None,
        clock=utc_now,
        text=key_text,
    )
    connection.execute(
        text(
            "INSERT INTO api_key (id, tenant, role, name, key_hash, hint, created_at)"
            " VALUES (:id, :tenant, :role, :name, :hash, :hint, :at) ON CONFLICT (key_hash) DO NOTHING"
        ),
        {
            "id": key.id,
            "tenant": key.tenant,
            "role": key.role,
            "name": key.name,
            "hash": key.key_hash,
            "hint": key.hint,
            "at": key.created_at,
        },
    )


def _reason(error: psycopg.OperationalError) -> str:
    """The server's first line; a message of several lines may go on with what was asked."""
    return (str(error).strip().splitlines() or ["no connection"])[0]
