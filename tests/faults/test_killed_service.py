"""Is anything acknowledged ever lost when the service dies, and does anything erased come back?

Each case kills the process at one line between two stores, starts another, and compares what was promised with what is there.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import uuid4

import httpx
import pytest

SETTLE_S = 60.0
# Every line of a write and of the relay at which a crash leaves the stores in different states.
WRITE_LINES = [
    ("memory_service.stores.postgres.memories:insert", "before"),
    ("memory_service.stores.postgres.memories:insert", "after"),
    ("memory_service.stores.postgres.idempotency:finish", "after"),
    ("memory_service.write.service:MemoryWriter.write", "after"),
]
# The same of a write without a key, which shares its transaction with others.
SHARED_LINES = [
    ("memory_service.stores.postgres.keeping:keep_new", "before"),
    ("memory_service.stores.postgres.keeping:keep_new", "after"),  # committed, not answered
    (
        "memory_service.write.shared_commit:SharedCommit._keep_together",
        "after",
    ),  # their requests were told, nobody has an answer yet
]
RELAY_LINES = [
    ("memory_service.jobs.relay:Relay._apply", "before"),  # claimed, nothing done yet
    ("memory_service.stores.qdrant:VectorIndex.upsert", "before"),
    ("memory_service.stores.qdrant:VectorIndex.upsert", "after"),
    ("memory_service.stores.postgres.outbox:complete", "before"),
    ("memory_service.stores.postgres.outbox:complete", "after"),
]
ERASE_LINES = [
    ("memory_service.stores.postgres.changes:erase", "before"),
    ("memory_service.stores.postgres.changes:erase", "after"),
    ("memory_service.stores.qdrant:VectorIndex.delete_chunks", "before"),
    ("memory_service.stores.qdrant:VectorIndex.delete_chunks", "after"),
]

# Of the erasure of a user.
FORGET_LINES = [
    ("memory_service.stores.postgres.erasing:close", "after"),
    ("memory_service.write.turn_service:Turns.erase_user", "after"),
    ("memory_service.stores.postgres.changes:erase", "before"),
    ("memory_service.stores.postgres.changes:erase", "after"),
    ("memory_service.stores.postgres.changes:erase_user_rest", "before"),
    ("memory_service.stores.postgres.changes:erase_user_rest", "after"),
]


def identifier(line: tuple[str, str]) -> str:
    return f"{line[0].rpartition(':')[2]} {line[1]}"


def body(user: str, content: str) -> dict[str, Any]:
    return {"user_id": user, "content": content, "infer": False, "kind": "episodic"}


async def contents(client: httpx.AsyncClient, user: str) -> list[str]:
    page = (await client.get("/v1/memories", params={"user_id": user, "limit": 100})).json()
    return [item["content"] for item in page["items"]]


async def settled(client: httpx.AsyncClient) -> None:
    """Every outbox row is worked off."""
    async with asyncio.timeout(SETTLE_S):
        while (await client.get("/v1/stats")).json()["index"]["pending"]:
            await asyncio.sleep(0.1)


async def found(client: httpx.AsyncClient, user: str, query: str) -> list[str]:
    answer = (await client.post("/v1/memories/search", json={"user_id": user, "query": query, "mode": "vector"})).json()
    assert answer["degraded"] == []
    return [hit["content"] for hit in answer["results"]]


@pytest.mark.parametrize("line", WRITE_LINES, ids=identifier)
async def test_a_write_killed_at_any_line_can_be_repeated_and_is_there_once(serve: Any, line: tuple[str, str]) -> None:
    user, key = f"u-{uuid4().hex}", uuid4().hex
    async with serve(die=(*line, 1)) as service:
        for number in range(20):
            try:
                await service.client.post(
                    "/v1/memories",
                    json=body(user, f"the key is under stone {number}"),
                    headers={"Idempotency-Key": f"{key}-{number}"},
                )
            except httpx.TransportError:
                break
        assert await service.gone() == -9
    async with serve() as service:
        before = await contents(service.client, user)
        async with asyncio.timeout(SETTLE_S):  # the claim of the dead process runs out
            while True:
                answer = await service.client.post(
                    "/v1/memories", json=body(user, "the key is under stone 0"), headers={"Idempotency-Key": f"{key}-0"}
                )
                if answer.status_code != 409:
                    break
                await asyncio.sleep(0.5)
        assert answer.status_code == 201, answer.text
        after = await contents(service.client, user)
        assert after.count("the key is under stone 0") == 1
        assert set(before) <= set(after)
        await settled(service.client)
        assert "the key is under stone 0" in await found(service.client, user, "the key is under stone 0")


@pytest.mark.parametrize("line", SHARED_LINES, ids=identifier)
async def test_writes_killed_while_they_share_a_transaction_are_kept_whole_or_not_at_all(
    serve: Any, line: tuple[str, str]
) -> None:
    user = f"u-{uuid4().hex}"
    acknowledged: list[str] = []

    async def post(client: httpx.AsyncClient, content: str) -> None:
        try:
            answer = await client.post("/v1/memories", json=body(user, content))
        except httpx.TransportError:
            return
        assert answer.status_code in (200, 201), answer.text
        acknowledged.append(content)

    texts = [f"the boat lies at pier {number}" for number in range(40)]
    async with serve(die=(*line, 2)) as service:
        await post(service.client, texts[0])
        await asyncio.gather(*(post(service.client, text) for text in texts[1:]))
        assert await service.gone() == -9
    first = len(acknowledged)
    assert 0 < first < len(texts)
    async with serve() as service:
        assert set(acknowledged) <= set(await contents(service.client, user))
        await asyncio.gather(*(post(service.client, text) for text in texts))  # what the callers do then
        assert len(acknowledged) == first + len(texts)
        assert sorted(await contents(service.client, user)) == sorted(texts)
        await eventually_found(service.client, user, texts)


@pytest.mark.parametrize("line", RELAY_LINES, ids=identifier)
async def test_a_relay_killed_at_any_line_loses_no_vector(serve: Any, line: tuple[str, str]) -> None:
    user = f"u-{uuid4().hex}"
    acknowledged = []
    async with serve(die=(*line, 2)) as service:  # at the first, the reply that acknowledges may be on its way still
        for number in range(50):
            try:
                answer = await service.client.post(
                    "/v1/memories", json=body(user, f"note number {number} about topic {number}")
                )
            except httpx.TransportError:
                break
            acknowledged.append(answer.json()["memory"]["content"])
            await asyncio.sleep(0.05)
        assert await service.gone() == -9
    assert acknowledged
    async with serve() as service:
        assert set(acknowledged) <= set(await contents(service.client, user))
        await eventually_found(service.client, user, acknowledged)


async def eventually_found(client: httpx.AsyncClient, user: str, wanted: list[str]) -> None:
    """A lease of the dead process holds a row for a minute at most; Postgres is told that the minute is over."""
    await settled(client)
    for content in wanted:
        assert content in await found(client, user, content)


@pytest.mark.parametrize("line", ERASE_LINES, ids=identifier)
async def test_an_erasure_killed_at_any_line_leaves_all_or_nothing_and_never_a_vector(
    serve: Any, line: tuple[str, str]
) -> None:
    user = f"u-{uuid4().hex}"
    async with serve(die=(*line, 1)) as service:
        written = await service.client.post(
            "/v1/memories", params={"wait": "indexed"}, json=body(user, "the secret of the old mill")
        )
        memory_id = written.json()["memory"]["id"]
        acknowledged = False
        try:
            acknowledged = (await service.client.delete(f"/v1/memories/{memory_id}")).status_code == 204
        except httpx.TransportError:
            assert "changes:erase" in line[0]
        assert await service.gone() == -9
    async with serve() as service:
        await settled(service.client)
        gone = (await service.client.get(f"/v1/memories/{memory_id}")).status_code == 404
        assert gone or not acknowledged
        assert (
            "the secret of the old mill" in await found(service.client, user, "the secret of the old mill")
        ) is not gone


@pytest.mark.parametrize("line", FORGET_LINES, ids=identifier)
async def test_erasing_a_user_killed_at_any_line_shuts_nobody_out_and_is_done_when_sent_again(
    serve: Any, line: tuple[str, str]
) -> None:
    user, old = f"u-{uuid4().hex}", "the secret of the old mill"
    async with serve(die=(*line, 1)) as service:
        await service.client.post("/v1/memories", params={"wait": "indexed"}, json=body(user, old))
        said = [{"role": "user", "content": "Where is the mill?"}]
        await service.client.post("/v1/turns", json={"user_id": user, "session_id": "s", "messages": said})
        await service.client.put("/v1/working-memory/t", json={"user_id": user, "task_goal": "find the mill"})
        with pytest.raises(httpx.TransportError):
            await service.client.delete(f"/v1/users/{user}")
        assert await service.gone() == -9
    async with serve() as service:
        async with asyncio.timeout(SETTLE_S):  # Postgres sees at once that the process is gone
            while (answer := await service.client.post("/v1/memories", json=body(user, "new"))).status_code == 503:
                await asyncio.sleep(0.1)
        assert answer.status_code == 201, answer.text
        again = await service.client.delete(f"/v1/users/{user}")
        assert again.status_code == 200, again.text
        assert again.json()["memories"] in (1, 2)  # with the new one
        after = await service.client.post("/v1/memories", json=body(user, "newer"))
        assert after.status_code == 201, after.text
        assert await contents(service.client, user) == ["newer"]
        missing = await service.client.get("/v1/working-memory/t", params={"user_id": user})
        assert missing.status_code == 404
        await settled(service.client)
        assert await found(service.client, user, old) in ([], ["newer"])


async def test_kill_9_under_load_loses_nothing_acknowledged(serve: Any) -> None:
    user = f"u-{uuid4().hex}"
    acknowledged: list[str] = []

    async def writer(client: httpx.AsyncClient, name: int) -> None:
        for number in range(10_000):
            content = f"writer {name} says {number}"
            try:
                answer = await client.post("/v1/memories", json=body(user, content))
            except httpx.TransportError:
                return
            if answer.status_code == 201:
                acknowledged.append(content)

    for _round in range(2):
        async with serve() as service:
            tasks = [asyncio.create_task(writer(service.client, name + 100 * _round)) for name in range(8)]
            await asyncio.sleep(1.5)
            service.kill()
            await asyncio.gather(*tasks)
    assert len(acknowledged) > 50
    async with serve() as service:
        there: set[str] = set()
        cursor: str | None = None
        while True:
            params = {"user_id": user, "limit": 100} | ({"cursor": cursor} if cursor else {})
            page = (await service.client.get("/v1/memories", params=params)).json()
            there |= {item["content"] for item in page["items"]}
            if (cursor := page["next_cursor"]) is None:
                break
        assert set(acknowledged) <= there


async def test_a_restart_of_every_store_loses_nothing_acknowledged(serve: Any, stores: Any) -> None:
    user = f"u-{uuid4().hex}"
    async with serve() as service:
        for number, store in enumerate(("postgres", "redis", "qdrant")):
            content = f"written before {store} was killed"
            assert (
                await service.client.post("/v1/memories", params={"wait": "indexed"}, json=body(user, content))
            ).status_code == 201
            await service.client.put(f"/v1/working-memory/t{number}", json={"user_id": user, "task_goal": content})
            await asyncio.sleep(1.2)  # AOF everysec: what Redis acknowledged is on disk a second later
            stores.kill(store)
            stores.restart(store)
        async with asyncio.timeout(SETTLE_S):
            while (await service.client.get("/ready")).status_code != 200:
                await asyncio.sleep(0.2)
        await settled(service.client)
        for number, store in enumerate(("postgres", "redis", "qdrant")):
            content = f"written before {store} was killed"
            assert content in await found(service.client, user, content)
            task = await service.client.get(f"/v1/working-memory/t{number}", params={"user_id": user})
            assert json.loads(task.text)["task_goal"] == content
