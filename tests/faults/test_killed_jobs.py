"""Does a maintenance job that is killed leave anything half done, or its lock behind?

Each case kills the process inside a job, starts another, and runs the job again at once.
"""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from local_stack.stores import Stores

SETTLE_S = 60.0
LINES = [
    ("decay", "memory_service.stores.postgres.changes:keep_version", "after", 2),
    ("decay", "memory_service.stores.postgres.changes:save_state", "after", 3),
    ("decay", "memory_service.stores.postgres.job_runs:finish", "before", 1),
    ("purge", "memory_service.stores.postgres.changes:erase", "before", 1),
    ("purge", "memory_service.stores.postgres.changes:erase", "after", 1),
    ("reconcile", "memory_service.stores.postgres.indexed:enqueue_again", "before", 1),
    ("reconcile", "memory_service.stores.postgres.indexed:enqueue_again", "after", 1),
]


def sql(stores: Stores, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(stores.urls.database_url, autocommit=True) as connection:
        cursor = connection.execute(statement, values or None)  # type: ignore[arg-type]
        return cursor.fetchall() if cursor.description else []


async def settled(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(SETTLE_S):
        while (await client.get("/v1/stats")).json()["index"]["pending"]:
            await asyncio.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("job", "place", "moment", "number"), LINES, ids=lambda one: str(one).rpartition(".")[2])
async def test_a_job_killed_at_any_line_can_be_run_again_at_once_and_does_the_rest(
    serve: Any, stores: Stores, job: str, place: str, moment: str, number: int
) -> None:
    user = f"u-{uuid4().hex}"
    async with serve() as service:
        items = [{"user_id": user, "content": f"note {i} of the old mill", "infer": False} for i in range(5)]
        written = (await service.client.post("/v1/memories/batch", json={"memories": items})).json()["results"]
        ids = [one["id"] for one in written]
        await settled(service.client)
    sql(stores, "UPDATE memory SET heat = 0.01 WHERE user_id = %s", user)
    if job == "purge":
        sql(stores, "UPDATE memory SET expires_at = now() - interval '1 second' WHERE user_id = %s", user)
    if job == "reconcile":
        sql(stores, "UPDATE memory SET version = 7 WHERE user_id = %s", user)
    async with serve(die=(place, moment, number), HINDSIGHT_JOBS="false") as service:
        with pytest.raises(httpx.TransportError):
            await service.client.post(f"/v1/maintenance/{job}")
        assert await service.gone() == -9
    half = sql(stores, "SELECT state, version FROM memory WHERE user_id = %s", user)
    assert len(set(half)) <= 1  # one batch: all of it or nothing
    async with serve(HINDSIGHT_JOBS="false") as service:
        answer = await service.client.post(f"/v1/maintenance/{job}")
        assert answer.status_code == 200, answer.text
        runs = (await service.client.get("/v1/maintenance", params={"job": job})).json()["items"]
        assert runs[0]["outcome"] == "success"
        assert (runs[1]["outcome"], runs[1]["error"][:11]) == ("failure", "interrupted")
        await settled(service.client)
        left = sql(stores, "SELECT state, version FROM memory WHERE user_id = %s", user)
        kept = sql(stores, "SELECT count(*) FROM memory_version WHERE memory_id = ANY(%s::uuid[])", ids)
        if job == "decay":
            assert (left, kept) == ([("cold", 2)] * 5, [(5,)])
        if job == "purge":
            assert (left, kept) == ([], [(0,)])
        if job == "reconcile":
            assert left == [("active", 7)] * 5
        check = (await service.client.post("/v1/maintenance/reconcile", params={"dry_run": "true"})).json()
        assert not [item for item in check["items"] if item["id"] in ids], check
