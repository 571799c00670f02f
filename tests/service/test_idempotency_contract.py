"""Idempotency-Key: the first answer again, whatever happened to the first request."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import httpx
import pytest
from service_running import Backends, World, listed, new_user, numbers, problem_of, serving, until


def key() -> dict[str, str]:
    return {"Idempotency-Key": uuid4().hex}


def body_of(user: str, content: str = "exactly once", **fields: Any) -> dict[str, Any]:
    return {"user_id": user, "content": content, "infer": False, **fields}


async def test_the_same_key_and_body_get_the_first_answer_again(client: httpx.AsyncClient, user: str) -> None:
    headers = key()
    first = await client.post("/v1/memories", json=body_of(user), headers=headers)
    second = await client.post("/v1/memories", json=body_of(user), headers=headers)
    assert (first.status_code, second.status_code) == (201, 201)
    assert second.content == first.content
    assert second.headers["idempotency-replayed"] == "true"
    (memory,) = await listed(client, user)
    assert memory["access_count"] == 0


async def test_twenty_at_once_with_one_key_write_once(client: httpx.AsyncClient, user: str) -> None:
    headers = key()

    async def send() -> httpx.Response:
        while True:
            answer = await client.post("/v1/memories", json=body_of(user, infer=True), headers=headers)
            if answer.status_code != 409:
                return answer
            assert problem_of(answer, 409)["code"] == "request_in_progress"
            assert int(answer.headers["retry-after"]) >= 1
            await asyncio.sleep(0.05)

    answers = await asyncio.gather(*(send() for _ in range(20)))
    assert {a.status_code for a in answers} == {201}
    assert len({a.content for a in answers}) == 1
    assert (await listed(client, user))[0]["access_count"] == 0


async def test_another_body_is_422(client: httpx.AsyncClient, user: str) -> None:
    headers = key()
    await client.post("/v1/memories", json=body_of(user), headers=headers)
    for again in (
        await client.post("/v1/memories", json=body_of(user, "something else"), headers=headers),
        await client.post("/v1/memories?wait=indexed", json=body_of(user), headers=headers),
        await client.post("/v1/memories/batch", json={"memories": [body_of(user)]}, headers=headers),
    ):
        assert problem_of(again, 422)["code"] == "idempotency_mismatch"
    assert len(await listed(client, user)) == 1


async def test_a_first_request_that_failed_frees_the_key(client: httpx.AsyncClient, user: str) -> None:
    headers = key()
    problem_of(await client.post("/v1/memories", json=body_of(user, related_ids=[str(uuid4())]), headers=headers), 422)
    assert (await client.post("/v1/memories", json=body_of(user), headers=headers)).status_code == 201


@pytest.mark.parametrize("bad", [b"", b"x" * 256, "é".encode(), b"a\tb"])
async def test_a_bad_key_is_named(client: httpx.AsyncClient, user: str, bad: bytes) -> None:
    problem_of(
        await client.post("/v1/memories", json=body_of(user), headers=[(b"Idempotency-Key", bad)]),
        422,
        "Idempotency-Key",
    )


async def test_a_replay_after_the_memory_was_erased_is_410_and_writes_nothing(world: World, user: str) -> None:
    headers = key()
    first = await world.client.post("/v1/memories", json=body_of(user, "forget this word: heliotrope"), headers=headers)
    await world.client.delete(f"/v1/memories/{first.json()['memory']['id']}")
    answer = await world.client.post(
        "/v1/memories", json=body_of(user, "forget this word: heliotrope"), headers=headers
    )
    assert "heliotrope" not in problem_of(answer, 410)["detail"]
    assert await listed(world.client, user) == []
    assert await world.sql("SELECT 1 FROM idempotency_key WHERE response LIKE '%%heliotrope%%'") == []


async def test_a_batch_replays_too_and_is_410_when_one_of_its_memories_was_erased(
    client: httpx.AsyncClient, user: str
) -> None:
    headers, body = key(), {"memories": [body_of(user, "one"), body_of(user, " "), body_of(user, "two")]}
    first = await client.post("/v1/memories/batch", json=body, headers=headers)
    assert [r["status"] for r in first.json()["results"]] == ["created", "rejected", "created"]
    assert (await client.post("/v1/memories/batch", json=body, headers=headers)).content == first.content
    assert (await client.delete(f"/v1/memories/{first.json()['results'][0]['id']}")).status_code == 204
    problem_of(await client.post("/v1/memories/batch", json=body, headers=headers), 410)


async def test_a_duplicates_answer_is_kept_as_well(client: httpx.AsyncClient, user: str) -> None:
    await client.post("/v1/memories", json=body_of(user))
    headers = key()
    first = await client.post("/v1/memories", json=body_of(user), headers=headers)
    second = await client.post("/v1/memories", json=body_of(user), headers=headers)
    assert (first.status_code, second.status_code) == (200, 200)
    assert second.content == first.content
    assert (await listed(client, user))[0]["access_count"] == 1


async def test_keys_of_two_callers_do_not_meet(keyed: World) -> None:
    headers = key()
    for tenant in ("tenant-i", "tenant-j"):
        async with keyed.with_key(await keyed.new_key(tenant=tenant)) as client:
            answer = await client.post("/v1/memories", json=body_of(new_user(), f"of {tenant}"), headers=headers)
            assert answer.status_code == 201
            assert "idempotency-replayed" not in answer.headers


async def test_a_claim_whose_process_died_is_taken_over_after_its_lease(backends: Backends) -> None:
    settings, headers, user = backends.new_settings(), key(), new_user()
    quick = numbers(settings, limits={"idempotency_lease_s": 0.5})
    async with serving(settings, tunables=quick) as world:
        first = await world.client.post("/v1/memories", json=body_of(user), headers=headers)
        # What a process leaves that was killed between its claim and its commit.
        await world.sql("DELETE FROM memory")
        await world.sql(
            "UPDATE idempotency_key SET status = NULL, response = NULL, memory_ids = '{}', leased_until = now() + interval '0.5 s'"
        )
        early = await world.client.post("/v1/memories", json=body_of(user), headers=headers)
        assert problem_of(early, 409)["code"] == "request_in_progress"

        async def taken_over() -> Any:
            answer = await world.client.post("/v1/memories", json=body_of(user), headers=headers)
            return answer if answer.status_code == 201 else None

        taken = await until(taken_over)
        assert taken.json()["memory"]["id"] != first.json()["memory"]["id"]
        assert len(await listed(world.client, user)) == 1


async def test_a_long_first_request_keeps_its_claim_and_a_taken_over_one_can_not_answer(
    backends: Backends, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, headers, user = backends.new_settings(), key(), new_user()
    quick = numbers(settings, limits={"idempotency_lease_s": 0.3})
    async with serving(settings, tunables=quick) as world:
        original, gate = world.runtime.postgres.transaction, asyncio.Event()
        claimed = 0

        async def held(work: Any) -> Any:
            nonlocal claimed
            claimed += 1
            if claimed == 2:  # the write of the first request, after its claim
                await gate.wait()
            return await original(work)

        monkeypatch.setattr(world.runtime.relay, "step", lambda: asyncio.sleep(60))
        await asyncio.sleep(1.2)  # the relay's own transactions are over
        monkeypatch.setattr(world.runtime.postgres, "transaction", held)
        first = asyncio.create_task(world.client.post("/v1/memories", json=body_of(user), headers=headers))
        await asyncio.sleep(1.0)  # three leases long
        assert claimed == 2
        second = await world.client.post("/v1/memories", json=body_of(user), headers=headers)
        assert problem_of(second, 409)["code"] == "request_in_progress"
        await world.sql("UPDATE idempotency_key SET claim = gen_random_uuid()")  # as another process's take-over would
        gate.set()
        problem_of(await first, 409)
        assert await world.sql("SELECT count(*) FROM memory") == [(0,)]
