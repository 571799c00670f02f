"""How are new memories kept with a single question to Postgres?

`keep_new` is the common case of a write: texts that nobody has yet.  The function in the database (migration 0006) takes the
texts' locks, looks for the same texts and inserts what is new with its outbox rows: one statement, which is one transaction.
It waits for nobody, so one memory can't hold up those beside it.  What it leaves out is for `memories.py`.  Nothing is kept while one
of the users is being erased.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from memory_service.domain import Memory
from memory_service.stores.postgres.erasing import gate_of
from memory_service.stores.postgres.memories import COLUMNS, IndexedText
from memory_service.stores.postgres.pool import Connection, fetch_all, fetch_one, uuid_array


@dataclass(frozen=True, slots=True)
class NewMemory:
    """A memory that is to be kept, and the key of its text's lock, which must be its own among those that are kept together."""

    memory: Memory
    text: IndexedText
    lock: int


async def keep_new(connection: Connection, new: Sequence[NewMemory], now: datetime) -> set[UUID]:
    """Ids of those that are durable when this returns.

    The others were left out: a live memory of the user has the same text, or somebody is writing it at this moment, or a user of
    these is being erased.  Who asks again, not knowing whether the first time was heard, must ask without those that
    `kept_before` finds.
    """
    given = orjson.dumps([{"lock": one.lock, "row": _row(one.memory, one.text)} for one in new]).decode()
    gates = sorted({gate_of(one.memory.tenant, one.memory.user_id) for one in new})
    row = await fetch_one(  # the gates first (`erasing.admit`); each statement inside the function sees what was committed until then
        connection,
        """SELECT hindsight_keep_new(CASE WHEN (
               SELECT bool_and(pg_try_advisory_xact_lock_shared(key)) FROM unnest(%(gates)s::bigint[]) AS key
           ) THEN %(given)s::json END, %(now)s)""",
        {"given": given, "gates": "{" + ",".join(map(str, gates)) + "}", "now": now},
    )
    return set(row[0] or ()) if row else set()


async def kept_before(connection: Connection, new: Sequence[NewMemory]) -> set[UUID]:
    """Ids of those that are there, whatever became of them since: for who asks again."""
    rows = await fetch_all(
        connection,
        """SELECT m.id FROM unnest(%(tenants)s::text[], %(ids)s::uuid[]) AS asked(tenant, id)
        JOIN memory m ON m.id = asked.id AND m.tenant = asked.tenant""",
        {"tenants": [one.memory.tenant for one in new], "ids": uuid_array([one.memory.id for one in new])},
    )
    return {row[0] for row in rows}


def _row(memory: Memory, text: IndexedText) -> dict[str, Any]:
    """The columns as json_populate_record reads them; entities and times are for orjson to write."""
    row = {name: value for name in COLUMNS if (value := getattr(memory, name)) is not None}
    row["heat_at"] = memory.heat_at or memory.created_at
    row["content_hash"] = f"\\x{text.content_hash.hex()}"
    row["search_terms"] = text.search_terms
    row["term_count"] = text.term_count
    return row
