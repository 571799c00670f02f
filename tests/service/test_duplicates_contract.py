"""What counts as the same memory, and what a second write of it does."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import httpx
import pytest
from service_running import World, listed, new_user, write


async def again(client: httpx.AsyncClient, user: str, content: str, **fields: Any) -> httpx.Response:
    return await client.post("/v1/memories", json={"user_id": user, "content": content, "infer": False, **fields})


async def test_a_duplicate_answers_200_with_the_existing_memory(client: httpx.AsyncClient, user: str) -> None:
    first = await write(client, user, "The cache is Valkey")
    answer = await again(client, user, "The cache is Valkey")
    assert answer.status_code == 200
    body = answer.json()
    assert (body["status"], body["duplicate_of"], body["similarity"]) == ("duplicate", first["id"], 1.0)
    assert body["memory"]["id"] == first["id"]
    assert body["memory"]["access_count"] == first["access_count"] + 1
    assert body["memory"]["last_accessed_at"] is not None
    assert body["memory"]["version"] == 1
    assert len(await listed(client, user)) == 1


@pytest.mark.parametrize(
    "variant",
    [
        "the CACHE is valkey",
        "  The  cache\tis\nValkey ",
        "Ｔｈｅ cache is Ｖａｌｋｅｙ",
        "The cache is Val\u00adkey",
        "The cache is\u00a0Valkey",
    ],
)
async def test_text_is_compared_after_nfkc_case_and_space_folding(
    client: httpx.AsyncClient, user: str, variant: str
) -> None:
    await write(client, user, "The cache is Valkey")
    assert (await again(client, user, variant)).status_code == 200


@pytest.mark.parametrize("other", ["The cache is Valkey.", "The cache isn't Valkey", "The cache is Valkey 8"])
async def test_another_text_is_another_memory(client: httpx.AsyncClient, user: str, other: str) -> None:
    await write(client, user, "The cache is Valkey")
    assert (await again(client, user, other)).status_code == 201


@pytest.mark.parametrize("infer", [True, False])
async def test_what_two_people_say_of_themselves_is_two_memories_and_no_contradiction(
    client: httpx.AsyncClient, user: str, infer: bool
) -> None:
    async def say(speaker: object, content: str) -> dict[str, Any]:
        body = {
            "user_id": user,
            "content": content,
            "kind": "semantic",
            "infer": infer,
            "metadata": {"speaker": speaker},
        }
        return (await client.post("/v1/memories", params={"wait": "indexed"}, json=body)).json()  # type: ignore[no-any-return]

    said = [("Caroline", "I have two kids and I love camping."), ("Melanie", "I have two kids and I love camping."),
            ("Caroline", "I live in Berlin."), ("Melanie", "I live in Hamburg.")]  # fmt: skip
    assert [(await say(*one))["status"] for one in said] == ["created"] * 4
    again = [await say(" caroline", said[0][1]), await say(None, said[1][1]), await say(7, said[1][1])]
    assert [one["status"] for one in again] == ["duplicate"] * 3
    if infer:
        assert (await say("Melanie", "I live in Bremen."))["status"] == "conflict"


async def test_another_explicit_kind_is_another_memory(client: httpx.AsyncClient, user: str) -> None:
    await write(client, user, "kinds", kind="semantic")
    assert (await again(client, user, "kinds", kind="auto")).json()["status"] == "duplicate"
    assert (await again(client, user, "kinds", kind="semantic")).json()["status"] == "duplicate"
    assert (await again(client, user, "kinds", kind="episodic")).json()["status"] == "created"
    assert len(await listed(client, user)) == 2


async def test_another_users_memory_does_not_count(client: httpx.AsyncClient, user: str) -> None:
    await write(client, user, "mine")
    assert (await again(client, new_user(), "mine")).status_code == 201
    assert (await again(client, user, "mine", agent_id="another")).status_code == 200


async def test_new_tags_and_new_metadata_keys_are_added(world: World, user: str) -> None:
    first = await write(world.client, user, "labels", tags=["a"], metadata={"k": 1})
    body = (await again(world.client, user, "labels", tags=["b", "a"], metadata={"k": 2, "l": [None]})).json()
    assert body["memory"]["tags"] == ["a", "b"]
    assert body["memory"]["metadata"] == {"k": 1, "l": [None]}
    assert body["memory"]["version"] == 2
    read = (await world.client.get(f"/v1/memories/{first['id']}")).json()
    assert (read["tags"], read["metadata"], read["version"]) == (["a", "b"], {"k": 1, "l": [None]}, 2)
    ((cause, changes),) = await world.sql(
        "SELECT cause, changes FROM memory_version WHERE memory_id = %s", UUID(first["id"])
    )
    assert cause == "duplicate"
    assert changes["tags"] == {"from": ["a"], "to": ["a", "b"]}


async def test_an_expired_memory_is_no_duplicate(world: World, user: str) -> None:
    first = await write(world.client, user, "short lived", expires_at="2126-01-01T00:00:00Z")
    await world.sql("UPDATE memory SET expires_at = now() - interval '1 s' WHERE id = %s", UUID(first["id"]))
    assert (await again(world.client, user, "short lived")).status_code == 201


@pytest.mark.parametrize("state", ["superseded", "compressed"])
async def test_a_memory_that_is_no_longer_believed_is_no_duplicate(world: World, user: str, state: str) -> None:
    first = await write(world.client, user, "overtaken")
    await world.sql("UPDATE memory SET state = %s WHERE id = %s", state, UUID(first["id"]))
    assert (await again(world.client, user, "overtaken")).status_code == 201


async def test_a_cold_duplicate_is_restored(world: World, user: str) -> None:
    first = await write(world.client, user, "cold")
    await world.sql("UPDATE memory SET state = 'cold', heat = 0.2 WHERE id = %s", UUID(first["id"]))
    body = (await again(world.client, user, "cold")).json()
    assert (body["status"], body["memory"]["state"], body["memory"]["version"]) == ("duplicate", "active", 2)
    assert body["memory"]["heat"] >= 0.99
    assert len(await listed(world.client, user)) == 1


async def test_fifty_equal_writes_at_once_make_one_memory(world: World, user: str) -> None:
    async def single(n: int) -> list[str]:
        body = (
            await again(world.client, user, "At The Same Time" if n % 2 else "at the same time", tags=[f"t{n % 5}"])
        ).json()
        return [body["status"]]

    async def batch() -> list[str]:
        items = [
            {"user_id": user, "content": text, "infer": False}
            for text in ("AT THE SAME TIME", "at the same  time", f"other {new_user()}")
        ]
        results = (await world.client.post("/v1/memories/batch", json={"memories": items})).json()["results"]
        return [r["status"] for r in results[:2]]

    statuses = [
        s
        for group in await asyncio.gather(*(single(n) for n in range(40)), *(batch() for _ in range(5)))
        for s in group
    ]
    assert len(statuses) == 50
    assert statuses.count("created") == 1
    assert statuses.count("duplicate") == 49
    rows = await world.sql("SELECT tags FROM memory WHERE user_id = %s AND lower(content) LIKE 'at the same%%'", user)
    assert len(rows) == 1
    assert sorted(rows[0][0]) == ["t0", "t1", "t2", "t3", "t4"]


async def test_the_same_meaning_in_other_words_is_a_duplicate_only_with_infer(
    client: httpx.AsyncClient, user: str
) -> None:
    text = "Production deployments of the billing service always run on Thursday evening after the backup has finished"
    first = (await client.post("/v1/memories?wait=indexed", json={"user_id": user, "content": text})).json()["memory"]
    close = text.replace("always run", "always run,")
    body = (await client.post("/v1/memories", json={"user_id": user, "content": close})).json()
    assert (body["status"], body.get("duplicate_of")) == ("duplicate", first["id"])
    assert 0.95 < body["similarity"] <= 1
    assert (await again(client, user, text.replace("always run", "always  run;"))).json()["status"] == "created"


async def test_a_differing_number_is_never_a_duplicate(client: httpx.AsyncClient, user: str) -> None:
    text = "The staging database of the billing service listens on port {} behind the load balancer in Frankfurt"
    await client.post("/v1/memories?wait=indexed", json={"user_id": user, "content": text.format(5432)})
    answer = (await client.post("/v1/memories", json={"user_id": user, "content": text.format(5433)})).json()
    assert answer["status"] == "superseded"  # another port: the old one is no longer believed, and is still there
    assert len(await listed(client, user, include_superseded=True)) == 2


async def test_erased_text_may_be_written_again(client: httpx.AsyncClient, user: str) -> None:
    first = await write(client, user, "comes back")
    await client.delete(f"/v1/memories/{first['id']}")
    assert (await again(client, user, "comes back")).status_code == 201
