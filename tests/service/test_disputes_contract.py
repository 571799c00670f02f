"""More than two that contradict each other: who is flagged, who leads, and what is left when a person decides about two."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from service_running import World, found, indexed, listed
from test_conflicts_contract import memory, queue, resolve, told

CITIES = ("Berlin", "Munich", "Hamburg", "Bremen")


async def disputed(client: httpx.AsyncClient, user: str, *texts: str) -> tuple[list[str], list[str]]:
    """(ids of the memories, ids of the conflicts that the second and later ones raised)"""
    answers = [await told(client, user, text) for text in texts]
    assert [a["status"] for a in answers] == ["created", *["conflict"] * (len(texts) - 1)]
    return [a["memory"]["id"] for a in answers], [a["conflict_id"] for a in answers[1:]]


def homes(count: int) -> tuple[str, ...]:
    return tuple(f"I live in {city}." for city in CITIES[:count])


async def pairs(client: httpx.AsyncClient, user: str) -> list[tuple[str, str]]:
    """Texts of the open conflicts, newest first."""
    return [(one["old"]["content"], one["new"]["content"]) for one in await queue(client, user, state="open")]


async def flags(client: httpx.AsyncClient, ids: list[str]) -> list[str | None]:
    return [(await memory(client, one))["conflict_id"] for one in ids]


@pytest.mark.parametrize("texts", [
    homes(3),
    ("I prefer tea.", "I prefer coffee.", "I prefer water."),
    ("我住在北京。", "我住在上海。", "我住在广州。"),
])  # fmt: skip
async def test_a_third_value_is_flagged_waits_and_leads(
    client: httpx.AsyncClient, user: str, texts: tuple[str, ...]
) -> None:
    ids, conflicts = await disputed(client, user, *texts)
    assert await pairs(client, user) == [(texts[1], texts[2]), (texts[0], texts[1])]
    assert await flags(client, ids) == [conflicts[1]] * 3  # one dispute: all carry its newest conflict
    await indexed(client, user)
    shown = await found(client, user, texts[0], limit=5)  # asked in the words of the oldest
    assert (shown[0], set(shown)) == (texts[2], set(texts))


async def test_what_is_disputed_is_not_updated_over_the_head_of_who_is_asked(
    client: httpx.AsyncClient, user: str
) -> None:
    await told(client, user, "The SSH server listens on port 49222.", occurred_at="2026-05-02T00:00:00Z")
    late = await told(client, user, "The SSH server listens on port 22.", occurred_at="2025-01-02T00:00:00Z")
    third = await told(client, user, "The SSH server listens on port 3000.")
    assert (late["status"], third["status"]) == ("conflict", "conflict")
    assert len(await queue(client, user, state="open")) == 2
    assert {m["state"] for m in await listed(client, user)} == {"active"}


@pytest.mark.parametrize(
    ("which", "keep", "left", "alive"),
    [
        # A against B, B against C: of the other conflict the loser's part goes to who took its place.
        (1, "new", [("A", "C")], "AC"),
        (1, "old", [("A", "B")], "AB"),
        (0, "new", [("B", "C")], "BC"),
        (0, "old", [("A", "C")], "AC"),
        (1, "both", [("A", "C"), ("A", "B")], "ABC"),
        (0, "both", [("A", "C"), ("B", "C")], "ABC"),
    ],
)
async def test_deciding_about_two_leaves_what_the_third_is_against(
    client: httpx.AsyncClient, user: str, which: int, keep: str, left: list[tuple[str, str]], alive: str
) -> None:
    ids, conflicts = await disputed(client, user, *homes(3))
    names = dict(zip(homes(3), "ABC", strict=True))
    answer = await resolve(client, conflicts[which], keep)
    assert answer.status_code == 200, answer.text
    assert sorted((names[a], names[b]) for a, b in await pairs(client, user)) == sorted(left)
    assert "".join(sorted(names[m["content"]] for m in await listed(client, user))) == alive
    waiting = await queue(client, user, state="open")
    for one in waiting:
        texts = [one["old"]["content"], one["new"]["content"]]
        assert all(text.split()[-1].strip(".").lower() in one["reason"] for text in texts), one["reason"]
    carried = dict(zip("ABC", await flags(client, ids), strict=True))
    assert {carried[name] for name in alive} == {waiting[0]["id"]}
    assert {carried[name] for name in set("ABC") - set(alive)} <= {None}
    while waiting:  # and so on until nothing waits, and one or all are left
        assert (await resolve(client, waiting[0]["id"], "new")).status_code == 200
        waiting = await queue(client, user, state="open")
    assert [m["content"] for m in await listed(client, user)] == [homes(3)["ABC".index(max(alive))]]
    assert await flags(client, ids) == [None] * 3


async def test_a_merged_text_takes_the_place_of_both_in_what_still_waits(client: httpx.AsyncClient, user: str) -> None:
    _, conflicts = await disputed(client, user, *homes(3))
    answer = (await resolve(client, conflicts[1], "merged", content="Two cities in turns.")).json()
    (waiting,) = await queue(client, user, state="open")
    assert (waiting["id"], waiting["old"]["content"]) == (conflicts[0], "I live in Berlin.")
    assert waiting["new"]["id"] == answer["merged"]["id"]
    assert waiting["reason"] == "it contradicted a text that this one replaced"  # of which nothing is quoted
    assert await flags(client, [waiting["old"]["id"], waiting["new"]["id"]]) == [conflicts[0]] * 2


async def test_erasing_the_newest_leaves_the_older_two_flagged(client: httpx.AsyncClient, user: str) -> None:
    ids, conflicts = await disputed(client, user, *homes(3))
    assert (await client.delete(f"/v1/memories/{ids[2]}")).status_code == 204
    assert await flags(client, ids[:2]) == [conflicts[0]] * 2
    assert await pairs(client, user) == [homes(2)]


async def test_erasing_the_one_between_sets_its_neighbours_against_each_other(
    client: httpx.AsyncClient, user: str
) -> None:
    ids, _ = await disputed(client, user, *homes(4))
    assert (await client.delete(f"/v1/memories/{ids[1]}")).status_code == 204
    texts = homes(4)
    assert sorted(await pairs(client, user)) == sorted([(texts[0], texts[2]), (texts[2], texts[3])])
    waiting = await queue(client, user, state="open")
    assert "munich" not in str(waiting).lower()
    assert {*await flags(client, [ids[0], ids[2], ids[3]])} == {waiting[0]["id"]}
    for one in waiting:
        assert (await resolve(client, one["id"], "new")).status_code == 200
    assert [m["content"] for m in await listed(client, user)] == [texts[3]]


async def test_neighbours_that_say_nothing_against_each_other_are_left_alone(
    client: httpx.AsyncClient, user: str
) -> None:
    ids, _ = await disputed(client, user, "I prefer tea.", "I prefer coffee.", "I do not prefer coffee.")
    assert (await client.delete(f"/v1/memories/{ids[1]}")).status_code == 204
    assert await queue(client, user) == []
    assert await flags(client, [ids[0], ids[2]]) == [None, None]


async def test_two_decisions_about_one_dispute_at_once_are_taken_one_after_the_other(
    world: World, client: httpx.AsyncClient, user: str
) -> None:
    for _ in range(3):
        ids, conflicts = await disputed(client, user, *homes(4))
        answers = await asyncio.gather(*(resolve(client, one, "new") for one in conflicts))
        assert [a.status_code for a in answers] == [200] * 3
        assert await queue(client, user, state="open") == []
        assert [m["content"] for m in await listed(client, user)] == [homes(4)[-1]]
        assert await flags(client, ids) == [None] * 4
        await client.delete(f"/v1/memories/{ids[-1]}")
    assert await world.sql("SELECT 1 FROM memory WHERE user_id = %s AND conflict_id IS NOT NULL", user) == []


async def test_a_batch_of_three_that_contradict_each_other_is_one_dispute(client: httpx.AsyncClient, user: str) -> None:
    items: list[dict[str, Any]] = [{"user_id": user, "content": text, "kind": "semantic"} for text in homes(3)]
    results = (await client.post("/v1/memories/batch", json={"memories": items})).json()["results"]
    assert [r["status"] for r in results] == ["created", "conflict", "conflict"]
    assert await flags(client, [r["id"] for r in results]) == [results[2]["conflict_id"]] * 3
