"""Contradictory facts and preferences: who is flagged, who leads, and how a person decides."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import httpx
import pytest
from service_running import found, indexed, listed, new_user, problem_of, search


async def told(client: httpx.AsyncClient, user: str, content: str, **fields: Any) -> dict[str, Any]:
    answer = await client.post("/v1/memories", json={"user_id": user, "content": content, "kind": "semantic", **fields})
    assert answer.status_code in (200, 201), answer.text
    return answer.json()  # type: ignore[no-any-return]


async def queue(client: httpx.AsyncClient, user: str, **params: Any) -> list[dict[str, Any]]:
    answer = await client.get("/v1/conflicts", params={"user_id": user, **params})
    assert answer.status_code == 200, answer.text
    return answer.json()["items"]  # type: ignore[no-any-return]


async def resolve(client: httpx.AsyncClient, conflict: str, keep: str, **fields: Any) -> httpx.Response:
    return await client.post(f"/v1/conflicts/{conflict}/resolve", json={"keep": keep, **fields})


async def memory(client: httpx.AsyncClient, memory_id: str) -> dict[str, Any]:
    return (await client.get(f"/v1/memories/{memory_id}")).json()  # type: ignore[no-any-return]


async def disputed(client: httpx.AsyncClient, user: str) -> tuple[str, str, str]:
    """(conflict, old memory, new memory)"""
    old = await told(client, user, "I prefer tea.")
    new = await told(client, user, "I prefer coffee.")
    return new["conflict_id"], old["memory"]["id"], new["memory"]["id"]


async def test_a_contradiction_is_stored_and_waits_for_a_person(client: httpx.AsyncClient, user: str) -> None:
    old = await told(client, user, "I prefer tea.")
    answer = await client.post("/v1/memories", json={"user_id": user, "content": "I prefer coffee."})
    assert answer.status_code == 201
    new = answer.json()
    assert (old["status"], new["status"]) == ("created", "conflict")
    (waiting,) = await queue(client, user)
    assert waiting["id"] == new["conflict_id"] == new["memory"]["conflict_id"]
    assert (waiting["user_id"], waiting["state"], waiting["resolution"]) == (user, "open", None)
    assert (waiting["old"]["content"], waiting["new"]["content"]) == ("I prefer tea.", "I prefer coffee.")
    assert waiting["reason"] == 'preference: one text says "tea", the other "coffee"'
    before = await memory(client, old["memory"]["id"])
    assert (before["state"], before["conflict_id"], before["version"]) == ("active", waiting["id"], 2)


async def test_while_it_waits_both_are_found_and_the_new_one_leads(client: httpx.AsyncClient, user: str) -> None:
    await told(client, user, "I prefer tea, tea, tea.", importance=1.0)
    old = await told(client, user, "I prefer tea.", importance=1.0)
    new = await told(client, user, "I prefer coffee.", importance=0.0)
    assert new["status"] == "conflict"
    await indexed(client, user)
    texts = await found(client, user, "do I prefer tea?", limit=10)
    assert texts.index("I prefer coffee.") < texts.index(old["memory"]["content"])


async def test_a_plain_update_supersedes_and_as_of_still_tells_what_was_believed(
    client: httpx.AsyncClient, user: str
) -> None:
    old = (await told(client, user, "The SSH server listens on port 22."))["memory"]
    new = await told(client, user, "The SSH server listens on port 49222.")
    assert (new["status"], new["superseded"]) == ("superseded", old["id"])
    before = await memory(client, old["id"])
    assert (before["state"], before["superseded_by"]) == ("superseded", new["memory"]["id"])
    assert before["valid_to"] == new["memory"]["valid_from"]
    await indexed(client, user)
    assert await found(client, user, "ssh port") == ["The SSH server listens on port 49222."]
    past = {"as_of": old["valid_from"]}
    assert await found(client, user, "ssh port", **past) == ["The SSH server listens on port 22."]
    assert [m["id"] for m in await listed(client, user, **past)] == [old["id"]]
    assert len(await listed(client, user, include_superseded=True)) == 2
    assert await queue(client, user) == []


async def test_what_happened_earlier_but_is_told_later_supersedes_nothing(client: httpx.AsyncClient, user: str) -> None:
    newer = await told(client, user, "The SSH server listens on port 49222.", occurred_at="2026-05-02T00:00:00Z")
    late = await told(client, user, "The SSH server listens on port 22.", occurred_at="2025-01-02T00:00:00Z")
    assert late["status"] == "conflict"
    assert (await memory(client, newer["memory"]["id"]))["state"] == "active"
    (waiting,) = await queue(client, user)
    assert "happened before" in waiting["reason"]


async def test_a_value_that_returns_supersedes_the_one_between(client: httpx.AsyncClient, user: str) -> None:
    for port in (22, 49222, 22):
        last = await told(client, user, f"The SSH server listens on port {port}.")
    assert last["status"] == "superseded"
    assert [m["content"] for m in await listed(client, user)] == ["The SSH server listens on port 22."]
    assert len(await listed(client, user, include_superseded=True)) == 3


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("I like cats.", "I like dogs."),
        ("I live in Berlin.", "My sister lives in Munich."),
        ("我喜欢喝茶。", "我喜欢喝咖啡。"),
        ("The API listens on port 8000.", "The gateway listens on port 8080."),
    ],
)
async def test_unrelated_facts_survive(client: httpx.AsyncClient, user: str, old: str, new: str) -> None:
    assert [(await told(client, user, text))["status"] for text in (old, new)] == ["created", "created"]
    assert len(await listed(client, user)) == 2


async def test_nothing_is_checked_without_infer_nor_among_events_nor_across_users(
    client: httpx.AsyncClient, user: str
) -> None:
    await told(client, user, "I prefer tea.")
    assert (await told(client, user, "I prefer coffee.", infer=False))["status"] == "created"
    assert (await told(client, user, "I prefer coffee, she said.", kind="episodic"))["status"] == "created"
    assert (await told(client, new_user(), "I prefer coffee."))["status"] == "created"
    assert await queue(client, user) == []


async def test_two_contradictory_statements_at_once_do_not_miss_each_other(
    client: httpx.AsyncClient, user: str
) -> None:
    answers = await asyncio.gather(*(told(client, user, f"I prefer {one}.") for one in ("tea", "coffee")))
    assert sorted(a["status"] for a in answers) == ["conflict", "created"]
    assert len(await queue(client, user)) == 1


async def test_a_batch_settles_what_its_own_items_say(client: httpx.AsyncClient, user: str) -> None:
    said = ["The cache TTL is 300 seconds.", "The cache TTL is 600 seconds.", "I prefer tea.", "I prefer coffee."]
    items = [{"user_id": user, "content": text, "kind": "semantic"} for text in said]
    results = (await client.post("/v1/memories/batch", json={"memories": items})).json()["results"]
    assert [r["status"] for r in results] == ["created", "superseded", "created", "conflict"]
    assert results[1]["superseded"] == results[0]["id"]
    shown = {m["content"]: m for m in await listed(client, user, include_superseded=True)}
    assert shown[said[0]]["superseded_by"] == results[1]["id"]
    assert shown[said[2]]["conflict_id"] == shown[said[3]]["conflict_id"] == results[3]["conflict_id"]


async def test_keeping_the_new_one_supersedes_the_old(client: httpx.AsyncClient, user: str) -> None:
    conflict, old, new = await disputed(client, user)
    answer = (await resolve(client, conflict, "new")).json()
    assert (answer["state"], answer["resolution"], answer["resolved_by"]) == ("resolved", "new", "local")
    assert (await memory(client, old))["superseded_by"] == new
    kept = await memory(client, new)
    assert (kept["state"], kept["conflict_id"]) == ("active", None)
    assert await queue(client, user, state="open") == []
    assert [c["id"] for c in await queue(client, user, state="resolved")] == [conflict]


async def test_keeping_the_old_one_supersedes_the_new(client: httpx.AsyncClient, user: str) -> None:
    conflict, old, new = await disputed(client, user)
    await resolve(client, conflict, "old")
    assert (await memory(client, new))["superseded_by"] == old
    assert (await memory(client, old))["state"] == "active"
    await indexed(client, user)
    assert await found(client, user, "what do I prefer?") == ["I prefer tea."]


async def test_keeping_both_lets_both_stand(client: httpx.AsyncClient, user: str) -> None:
    conflict, old, new = await disputed(client, user)
    await resolve(client, conflict, "both")
    for one in (old, new):
        left = await memory(client, one)
        assert (left["state"], left["conflict_id"]) == ("active", None)


async def test_a_merged_text_supersedes_both(client: httpx.AsyncClient, user: str) -> None:
    conflict, old, new = await disputed(client, user)
    answer = (await resolve(client, conflict, "merged", content="I prefer tea at home and coffee at work.")).json()
    merged = answer["merged"]
    assert (merged["kind"], merged["content"]) == ("semantic", "I prefer tea at home and coffee at work.")
    assert {(await memory(client, one))["superseded_by"] for one in (old, new)} == {merged["id"]}
    assert [m["id"] for m in await listed(client, user)] == [merged["id"]]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"keep": "merged"}, "content"),
        ({"keep": "new", "content": "text"}, "content"),
        ({"keep": "merged", "content": " "}, "content"),
        ({"keep": "merged", "content": "a\u0000b"}, "content"),
        ({"keep": "mine"}, "keep"),
        ({}, "keep"),
        ({"keep": "new", "why": "x"}, "why"),
    ],
)
async def test_a_bad_decision_names_the_field_and_changes_nothing(
    client: httpx.AsyncClient, user: str, body: dict[str, Any], field: str
) -> None:
    conflict, _, _ = await disputed(client, user)
    problem_of(await client.post(f"/v1/conflicts/{conflict}/resolve", json=body), 422, field)
    assert [c["state"] for c in await queue(client, user)] == ["open"]


async def test_a_conflict_is_decided_once(client: httpx.AsyncClient, user: str) -> None:
    conflict, _, _ = await disputed(client, user)
    answers = await asyncio.gather(*(resolve(client, conflict, keep) for keep in ("new", "old", "both", "new")))
    assert sorted(a.status_code for a in answers) == [200, 409, 409, 409]


async def test_the_same_idempotency_key_gives_the_first_decision_again(client: httpx.AsyncClient, user: str) -> None:
    conflict, _, _ = await disputed(client, user)
    path, headers = f"/v1/conflicts/{conflict}/resolve", {"Idempotency-Key": str(uuid4())}
    first = await client.post(path, json={"keep": "new"}, headers=headers)
    again = await client.post(path, json={"keep": "new"}, headers=headers)
    assert (first.status_code, first.text) == (again.status_code, again.text)


async def test_a_third_opinion_leaves_the_first_conflict_in_the_queue(client: httpx.AsyncClient, user: str) -> None:
    first, old, _ = await disputed(client, user)
    third = await told(client, user, "I do not prefer coffee.")
    assert third["status"] == "conflict"
    await resolve(client, third["conflict_id"], "both")
    assert [c["id"] for c in await queue(client, user, state="open")] == [first]
    assert (await memory(client, old))["conflict_id"] == first


async def test_an_erased_side_takes_the_conflict_with_it(client: httpx.AsyncClient, user: str) -> None:
    conflict, old, new = await disputed(client, user)
    await client.delete(f"/v1/memories/{old}")
    assert await queue(client, user) == []
    problem_of(await resolve(client, conflict, "new"), 404)
    assert (await memory(client, new))["conflict_id"] is None


async def test_the_queue_pages_without_holes(client: httpx.AsyncClient, user: str) -> None:
    for name in ("Rex", "Bello", "Ada", "Tom", "Kim"):
        await told(client, user, f"My dog is called {name}.")
    assert len(everything := await queue(client, user)) == 4
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        answer = await client.get("/v1/conflicts", params={"user_id": user, "limit": 2, **cursor})
        seen += [c["id"] for c in answer.json()["items"]]
        assert answer.json()["total"] == 4
        if answer.json()["next_cursor"] is None:
            break
        cursor = {"cursor": answer.json()["next_cursor"]}
    assert seen == [c["id"] for c in everything]
    problem_of(await client.get("/v1/conflicts", params={"cursor": "x", "user_id": user}), 422, "cursor")


async def test_every_change_of_a_conflict_is_in_the_history(client: httpx.AsyncClient, user: str) -> None:
    conflict, old, _ = await disputed(client, user)
    await resolve(client, conflict, "new")
    history = (await client.get(f"/v1/memories/{old}/history")).json()["items"]
    assert {h["cause"] for h in history} >= {"conflict", "resolved"}
    assert len({h["version"] for h in history}) == 3


async def test_search_shows_the_conflict(client: httpx.AsyncClient, user: str) -> None:
    conflict, _, _ = await disputed(client, user)
    await indexed(client, user)
    results = (await search(client, user, "what do I prefer?"))["results"]
    assert {r["conflict_id"] for r in results} == {conflict}
