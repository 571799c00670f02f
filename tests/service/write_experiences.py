"""A second process for the test of parallel writers: N lessons for the same conditions at once.

Usage: write_experiences.py DATABASE_URL REDIS_URL QDRANT_URL COLLECTION USER N.  Prints `ready`, then each status.
"""

from __future__ import annotations

import asyncio
import sys

from memory_service.bootstrap import open_runtime
from memory_service.domain import Caller
from memory_service.experience.drafts import NewLesson
from memory_service.settings import Settings
from memory_service.write.service import no_record


async def main(database_url: str, redis_url: str, qdrant_url: str, collection: str, user: str, count: str) -> None:
    settings = Settings(
        database_url=database_url,
        redis_url=redis_url,
        qdrant_url=qdrant_url,
        qdrant_collection=collection,
        embedding_provider="hash",
    )
    condition = {"field": "db.engine", "operator": "eq", "value": "postgres"}
    async with open_runtime(settings) as runtime:
        await runtime.postgres.read(lambda c: c.execute("SELECT 1"))
        print("ready", flush=True)
        lessons = [
            NewLesson(user, [condition], f"theirs {n}", "feedback", start=0.505 + n / 100) for n in range(int(count))
        ]
        caller = Caller("default", "admin")
        for stored in await asyncio.gather(*(runtime.experiences.write(caller, one, no_record) for one in lessons)):
            print(stored.status)


asyncio.run(main(*sys.argv[1:]))
