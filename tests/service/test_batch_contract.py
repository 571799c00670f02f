"""POST /v1/memories/batch: one bad item never spoils the others."""

# ruff: noqa: E501 - tables: one case reads best on one line

from __future__ import annotations

from typing import Any

import httpx
import pytest
from service_running import World, found, indexed, listed, new_user, problem_of, write


async def batch(client: httpx.AsyncClient, items: list[Any]) -> list[dict[str, Any]]:
    answer = await client.post("/v1/memories/batch", json={"memories": items})
    assert answer.status_code == 200, answer.text
    return answer.json()["results"]  # type: ignore[no-any-return]


async def test_each_item_is_answered_in_its_place(client: httpx.AsyncClient, user: str) -> None:
    old = await write(client, user, "known already")
    items: list[Any] = [
        {"user_id": user, "content": "fine"},
        {"user_id": user, "content": " "},
        7,
        {"user_id": user, "content": "Known  ALREADY"},
        {"user_id": user, "content": "x" * 262_145},
        {"user_id": user, "content": "bad\x00"},
        {"user_id": user, "content": "fine"},
        {"user_id": user, "content": "dangling", "related_ids": ["019abcde-0000-7000-8000-000000000000"]},
        None,
        {"user_id": user, "content": "also fine", "wrong": 1},
        {"user_id": user, "content": "the last one"},
    ]
    results = await batch(client, items)
    assert [r["index"] for r in results] == list(range(len(items)))
    assert [r["status"] for r in results] == [
        "created", "rejected", "rejected", "duplicate", "rejected", "rejected", "duplicate", "rejected", "rejected", "rejected", "created",
    ]  # fmt: skip
    assert results[3]["id"] == results[3]["duplicate_of"] == old["id"]
    assert results[6]["id"] == results[0]["id"]
    statuses = [r["error"]["status"] for r in results if r["status"] == "rejected"]
    assert statuses == [422, 422, 413, 422, 422, 422, 422]
    assert results[1]["error"]["errors"][0]["field"] == "content"
    assert results[4]["error"]["errors"][0]["field"] == "content"
    assert results[7]["error"]["errors"][0]["field"] == "related_ids.0"
    assert results[9]["error"]["errors"][0]["field"] == "wrong"
    assert {m["content"] for m in await listed(client, user)} == {"fine", "known already", "the last one"}


async def test_500_items_are_written_and_found(client: httpx.AsyncClient, user: str) -> None:
    results = await batch(
        client, [{"user_id": user, "content": f"lot number {n} of zebrawood", "infer": n % 2 == 0} for n in range(500)]
    )
    assert {r["status"] for r in results} == {"created"}
    assert len({r["id"] for r in results}) == 500
    await indexed(client, user)
    assert (await found(client, user, "lot number 417", mode="keyword"))[0] == "lot number 417 of zebrawood"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "memories"), ({"memories": []}, "memories"), ({"memories": {}}, "memories"), ({"memories": [{}] * 501}, "memories"),
        ({"memories": [{}], "infer": True}, "infer"), ({"memories": None}, "memories"),
    ],
    ids=lambda value: str(value)[:30],
)  # fmt: skip
async def test_a_bad_envelope_is_refused_whole(client: httpx.AsyncClient, body: dict[str, Any], field: str) -> None:
    problem_of(await client.post("/v1/memories/batch", json=body), 422, field)


async def test_both_kinds_and_users_may_mix(world: World, user: str) -> None:
    other = new_user()
    results = await batch(world.client, [
        {"user_id": user, "content": "same", "kind": "semantic"}, {"user_id": other, "content": "same", "kind": "episodic"},
        {"user_id": user, "content": "same", "kind": "episodic"}, {"user_id": user, "content": "same"},
    ])  # fmt: skip
    assert [r["status"] for r in results] == ["created", "created", "created", "duplicate"]
    assert len(await world.sql("SELECT 1 FROM semantic_memory WHERE user_id = %s", user)) == 1
    assert len(await world.sql("SELECT 1 FROM episodic_memory WHERE user_id = ANY(%s)", [user, other])) == 2


async def test_duplicates_inside_a_batch_are_merged(client: httpx.AsyncClient, user: str) -> None:
    results = await batch(client, [
        {"user_id": user, "content": "twice", "tags": ["a"], "metadata": {"x": 1}}, {"user_id": user, "content": "Twice", "tags": ["b"], "metadata": {"x": 2, "y": 3}},
    ])  # fmt: skip
    assert results[0]["id"] == results[1]["id"]
    (memory,) = await listed(client, user)
    assert (memory["tags"], memory["metadata"], memory["version"], memory["content"]) == (
        ["a", "b"],
        {"x": 1, "y": 3},
        1,
        "twice",
    )
