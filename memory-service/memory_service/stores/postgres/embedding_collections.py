"""Which collection of vectors serves, and which second one is being built or kept?  One row a collection, at most two that live.

Each live collection has an outbox: index_outbox is the active one's, shadow_outbox the second one's, which a trigger
fills in the transaction of every change.  `switch` exchanges the roles; whoever works an outbox off says for which collection,
and gets nothing when that is no longer its own (stores/postgres/outbox.py).
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal
from uuid import UUID

import orjson

from memory_service.domain import Json
from memory_service.stores.postgres.pool import Connection, execute, fetch_all, fetch_one

Role = Literal["active", "building", "ready", "kept", "dropped"]
SECOND: tuple[Role, ...] = ("building", "ready", "kept")
RUN_LOCK = "reembed"  # the session lock of whoever changes the model


@dataclass(frozen=True, slots=True)
class EmbeddingCollection:
    """`config` opens its model (models/embedding_settings.chosen); `fingerprint` is as asdict() of one gives it."""

    collection: str
    role: Role
    config: Json
    fingerprint: Json
    enqueued: bool
    served: bool


@dataclass(frozen=True, slots=True)
class ServingProcess:
    """What a running service said of itself a moment ago."""

    host: str
    serves: str
    prepared: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Collections:
    """All rows, by what they are."""

    rows: tuple[EmbeddingCollection, ...] = ()

    @property
    def active(self) -> EmbeddingCollection | None:
        return next((r for r in self.rows if r.role == "active"), None)

    @property
    def second(self) -> EmbeddingCollection | None:
        return next((r for r in self.rows if r.role in SECOND), None)


async def read(connection: Connection) -> Collections:
    """Empty also for a database that is not migrated yet."""
    there = await fetch_one(connection, "SELECT to_regclass('embedding_collection') IS NOT NULL")
    if not there or not there[0]:
        return Collections()
    rows = await fetch_all(
        connection,
        "SELECT collection, role, config, fingerprint, enqueued, served FROM embedding_collection ORDER BY since",
    )
    return Collections(tuple(EmbeddingCollection(*row) for row in rows))


async def register(connection: Connection, new: EmbeddingCollection) -> None:
    """The first one of a deployment, by whoever starts first."""
    await _insert(connection, new, "ON CONFLICT DO NOTHING")


async def replace_active(connection: Connection, new: EmbeddingCollection) -> None:
    """`new` serves, whatever did before (a rebuild in place)."""
    await execute(
        connection,
        "UPDATE embedding_collection SET role = 'dropped', since = now() WHERE role = 'active' AND collection <> %(name)s",
        {"name": new.collection},
    )
    await _put(connection, new)


async def begin(connection: Connection, new: EmbeddingCollection) -> None:
    """A second collection, as `building`.  From this commit on, and not before, changes are put into shadow_outbox.

    What is left there of an earlier one goes first.
    """
    await execute(connection, "DELETE FROM shadow_outbox")
    await _put(connection, new)


async def _put(connection: Connection, new: EmbeddingCollection) -> None:
    await _insert(
        connection,
        new,
        """ON CONFLICT (collection) DO UPDATE SET role = excluded.role, config = excluded.config,
           enqueued = excluded.enqueued, served = excluded.served OR embedding_collection.served, since = now()""",
    )


async def _insert(connection: Connection, new: EmbeddingCollection, otherwise: str) -> None:
    await execute(
        connection,
        "INSERT INTO embedding_collection (collection, role, config, fingerprint, enqueued, served)"
        " VALUES (%(name)s, %(role)s, %(config)s::jsonb, %(fingerprint)s::jsonb, %(enqueued)s, %(served)s) "
        + otherwise,
        {
            "name": new.collection,
            "role": new.role,
            "config": orjson.dumps(new.config).decode(),
            "fingerprint": orjson.dumps(new.fingerprint).decode(),
            "enqueued": new.enqueued,
            "served": new.served,
        },
    )


async def set_enqueued(connection: Connection, collection: str, enqueued: bool) -> None:
    await execute(
        connection,
        "UPDATE embedding_collection SET enqueued = %(enqueued)s WHERE collection = %(name)s",
        {"name": collection, "enqueued": enqueued},
    )


async def set_role(connection: Connection, collection: str, role: Role) -> None:
    await execute(
        connection,
        "UPDATE embedding_collection SET role = %(role)s, since = now() WHERE collection = %(name)s",
        {"name": collection, "role": role},
    )


async def forget(connection: Connection, collection: str) -> None:
    """One that never served is no name that an environment may still hold."""
    await execute(
        connection, "DELETE FROM embedding_collection WHERE collection = %(name)s AND NOT served", {"name": collection}
    )


async def clear_shadow_outbox(connection: Connection) -> None:
    """When there is no second collection and every transaction that saw one has ended."""
    await execute(connection, "DELETE FROM shadow_outbox")


async def switch(connection: Connection, new: str, lock_timeout_ms: int) -> None:
    """The second collection becomes the active one, the active one is kept.  Raises LockNotAvailable: try again.

    Its locks are waited for shorter than Postgres waits before it ends somebody of a deadlock, so it never ends a writer.

    Both outboxes then hold what either held, each row at a new change, so that a worker of the old roles which still has
    one in its hands can't remove it.  Writers put their changes into both all the time, so nothing else has to be moved.
    """
    await execute(connection, "SELECT set_config('lock_timeout', %(ms)s, true)", {"ms": f"{lock_timeout_ms}ms"})
    await execute(
        connection, "UPDATE embedding_collection SET role = 'dropped' WHERE collection = %(new)s", {"new": new}
    )
    await execute(connection, "UPDATE embedding_collection SET role = 'kept', since = now() WHERE role = 'active'")
    await execute(
        connection,
        "UPDATE embedding_collection SET role = 'active', served = true, since = now() WHERE collection = %(new)s",
        {"new": new},
    )
    await execute(
        connection,
        """INSERT INTO index_outbox (memory_id, tenant, user_id, sweep)
           SELECT memory_id, tenant, NULLIF(user_id, ''), sweep FROM shadow_outbox ORDER BY memory_id
           ON CONFLICT (memory_id) DO UPDATE SET seq = nextval('index_outbox_seq')""",
    )
    await execute(
        connection,
        """UPDATE index_outbox SET seq = nextval('index_outbox_seq'), leased_until = NULL, state = 'pending', attempts = 0,
           available_at = now(), error = NULL""",
    )


async def settled(connection: Connection, horizon: str) -> bool:
    """Have all transactions ended that `horizon` saw running?"""
    row = await fetch_one(
        connection, "SELECT pg_snapshot_xmin(pg_current_snapshot()) >= %(horizon)s::text::xid8", {"horizon": horizon}
    )
    return bool(row and row[0])


async def horizon(connection: Connection) -> str:
    """Transactions that run now have a smaller number."""
    row = await fetch_one(connection, "SELECT pg_snapshot_xmax(pg_current_snapshot())::text")
    return str(row[0]) if row else "0"


async def report(connection: Connection, process: UUID, said: ServingProcess) -> None:
    """A service tells what it serves and what it has loaded."""
    await execute(
        connection,
        """INSERT INTO embedding_process (process, host, serves, prepared, error)
           VALUES (%(process)s, %(host)s, %(serves)s, %(prepared)s, %(error)s)
           ON CONFLICT (process) DO UPDATE SET serves = excluded.serves, prepared = excluded.prepared, error = excluded.error,
               seen_at = now()""",
        {
            "process": process,
            "host": said.host,
            "serves": said.serves,
            "prepared": said.prepared,
            "error": said.error,
        },
    )


async def leave(connection: Connection, process: UUID) -> None:
    await execute(connection, "DELETE FROM embedding_process WHERE process = %(process)s", {"process": process})


async def processes(connection: Connection, fresh_s: float) -> list[ServingProcess]:
    """Those that were heard of in the last `fresh_s` seconds."""
    rows = await fetch_all(
        connection,
        "SELECT host, serves, prepared, error FROM embedding_process WHERE seen_at > now() - %(fresh)s ORDER BY host",
        {"fresh": timedelta(seconds=fresh_s)},
    )
    return [ServingProcess(*row) for row in rows]


async def forget_processes(connection: Connection, silent_s: float) -> None:
    await execute(
        connection,
        "DELETE FROM embedding_process WHERE seen_at < now() - %(silent)s",
        {"silent": timedelta(seconds=silent_s)},
    )
