"""How a memory lives on: versions and rollback, cold storage, pins, feedback and uses."""

# ruff: noqa: E501 - tables: one case reads best on one line

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from service_running import (
    Backends,
    World,
    found,
    indexed,
    listed,
    new_user,
    problem_of,
    proxied,
    search,
    serving,
    write,
)
from test_fuzz import send, values, words

from memory_service.stores.postgres.changes import UNLINK_EXPERIENCES, UNLINK_MEMORIES

MOVES = ("archive", "restore", "pin", "unpin")


async def move(client: httpx.AsyncClient, memory_id: str, verb: str, **fields: Any) -> dict[str, Any]:
    answer = await client.post(f"/v1/memories/{memory_id}/{verb}", **fields)
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


async def feedback(client: httpx.AsyncClient, memory_id: str, outcome: str, **fields: Any) -> dict[str, Any]:
    said = await move(client, memory_id, "feedback", json={"outcome": outcome, **fields})
    return said["memory"]  # type: ignore[no-any-return]


async def history(client: httpx.AsyncClient, memory_id: str, **params: Any) -> dict[str, Any]:
    answer = await client.get(f"/v1/memories/{memory_id}/history", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


async def read(client: httpx.AsyncClient, memory_id: str) -> dict[str, Any]:
    answer = await client.get(f"/v1/memories/{memory_id}")
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


def once() -> dict[str, str]:
    return {"Idempotency-Key": uuid4().hex}


# Versions.


async def test_history_tells_every_version_newest_first_with_actor_cause_and_difference(keyed: World) -> None:
    user, key = new_user(), await keyed.new_key("writer", tenant="historians")
    async with keyed.with_key(key) as client:
        memory = await write(client, user, "first text", tags=["a"])
        await client.patch(f"/v1/memories/{memory['id']}", json={"content": "second text", "importance": 0.9})
        await move(client, memory["id"], "pin")
        page = await history(client, memory["id"])
    assert (page["total"], page["next_cursor"]) == (3, None)
    present, second, first = page["items"]
    assert [i["version"] for i in page["items"]] == [3, 2, 1]
    assert [i["cause"] for i in page["items"]] == ["pin", "update", "write"]
    ((key_id,),) = await keyed.sql("SELECT id FROM api_key WHERE tenant = 'historians'")
    assert {i["actor"] for i in page["items"]} == {f"key:{key_id}"}
    assert present["changes"] == {"pinned": {"from": False, "to": True}}
    assert second["changes"]["content"] == {"from": "first text", "to": "second text"}
    assert second["changes"]["importance"] == {"from": 0.5, "to": 0.9}
    assert first["changes"] == {}
    assert [i["memory"]["content"] for i in page["items"]] == ["second text", "second text", "first text"]
    assert [i["memory"]["version"] for i in page["items"]] == [3, 2, 1]
    assert first["at"] == memory["created_at"]
    assert all(i["at"].endswith("Z") for i in page["items"])


async def test_history_pages_stay_stable_while_versions_come(client: httpx.AsyncClient, user: str) -> None:
    memory = await write(client, user, "counted")
    for number in range(6):
        await client.patch(f"/v1/memories/{memory['id']}", json={"tags": [str(number)]})
    page, seen = await history(client, memory["id"], limit=3), []
    seen += [i["version"] for i in page["items"]]
    assert page["total"] == 7
    await client.patch(f"/v1/memories/{memory['id']}", json={"tags": ["meanwhile"]})
    while page["next_cursor"]:
        page = await history(client, memory["id"], limit=3, cursor=page["next_cursor"])
        seen += [i["version"] for i in page["items"]]
    assert seen == [7, 6, 5, 4, 3, 2, 1]
    other = await write(client, user, "another")
    cursor = (await history(client, memory["id"], limit=1))["next_cursor"]
    for bad in ("forged", cursor[:-2] + "AA"):
        problem_of(await client.get(f"/v1/memories/{memory['id']}/history", params={"cursor": bad}), 422, "cursor")
    problem_of(await client.get(f"/v1/memories/{other['id']}/history", params={"cursor": cursor}), 422, "cursor")


async def test_rollback_says_again_what_a_version_said_as_a_new_version_and_vectors_follow(
    client: httpx.AsyncClient, user: str
) -> None:
    memory = await write(
        client, user, "The flamingo stands in the kitchen", category="birds", metadata={"k": [1, None]}
    )
    await client.patch(
        f"/v1/memories/{memory['id']}",
        json={"content": "A submarine waits in the harbour", "category": None, "metadata": {}, "confidence": 0.4},
    )
    await indexed(client, user)
    back = await move(client, memory["id"], "rollback", json={"version": 1})
    assert (back["version"], back["content"], back["category"]) == (3, memory["content"], "birds")
    assert (back["metadata"], back["confidence"], back["summary"]) == ({"k": [1, None]}, 1.0, memory["summary"])
    await indexed(client, user)
    for mode in ("vector", "keyword"):
        assert await found(client, user, "flamingo kitchen", mode=mode) == [memory["content"]]
    assert await found(client, user, "submarine harbour", mode="keyword") == []
    newest = (await history(client, memory["id"]))["items"][0]
    assert newest["cause"] == "rollback to version 1"
    assert newest["changes"]["content"] == {"from": "A submarine waits in the harbour", "to": memory["content"]}


async def test_rollback_leaves_state_pin_and_heat_as_they_are(client: httpx.AsyncClient, user: str) -> None:
    memory = await write(client, user, "old words")
    await move(client, memory["id"], "archive")
    await client.patch(f"/v1/memories/{memory['id']}", json={"content": "new words"})
    await move(client, memory["id"], "pin")
    back = await move(client, memory["id"], "rollback", json={"version": 1})
    assert (back["content"], back["state"], back["pinned"], back["version"]) == ("old words", "cold", True, 5)
    await move(client, memory["id"], "restore")
    again = await move(client, memory["id"], "rollback", json={"version": 3})  # cold then, active now
    assert (again["content"], again["state"]) == ("new words", "active")


async def test_rolling_back_to_what_is_said_already_changes_nothing(client: httpx.AsyncClient, user: str) -> None:
    memory = await write(client, user, "steady")
    assert (await move(client, memory["id"], "rollback", json={"version": 1}))["version"] == 1
    await client.patch(f"/v1/memories/{memory['id']}", json={"tags": ["x"]})
    assert (await move(client, memory["id"], "rollback", json={"version": 1}))["version"] == 3
    assert (await move(client, memory["id"], "rollback", json={"version": 1}))["version"] == 3


async def test_an_unknown_version_is_404_and_a_stale_if_match_409(client: httpx.AsyncClient, user: str) -> None:
    memory = await write(client, user, "one")
    await client.patch(f"/v1/memories/{memory['id']}", json={"content": "two"})
    address = f"/v1/memories/{memory['id']}/rollback"
    problem_of(await client.post(address, json={"version": 3}), 404)
    stale = await client.post(address, json={"version": 1}, headers={"If-Match": '"1"'})
    assert problem_of(stale, 409)["code"] == "stale_version"
    assert (await client.post(address, json={"version": 1}, headers={"If-Match": '"2"'})).json()["version"] == 3
    for bad, field in (({"version": 0}, "version"), ({"version": "1"}, "version"), ({"version": 2**40}, "version"),
                       ({}, "version"), ({"version": 1, "x": 1}, "x"), ({"version": True}, "version")):  # fmt: skip
        problem_of(await client.post(address, json=bad), 422, field)


async def test_of_a_rollback_and_a_patch_that_saw_the_same_version_one_wins(
    client: httpx.AsyncClient, user: str
) -> None:
    memory = await write(client, user, "at first")
    await client.patch(f"/v1/memories/{memory['id']}", json={"content": "at second"})
    address, seen = f"/v1/memories/{memory['id']}", {"If-Match": "2"}
    answers = await asyncio.gather(
        client.post(f"{address}/rollback", json={"version": 1}, headers=seen),
        client.patch(address, json={"content": "at third"}, headers=seen),
    )
    assert sorted(a.status_code for a in answers) == [200, 409]
    (won,) = [a.json() for a in answers if a.status_code == 200]
    assert await read(client, memory["id"]) | {"index": 0, "heat": 0} == won | {"index": 0, "heat": 0}
    assert (await history(client, memory["id"]))["total"] == 3


async def test_a_rollback_names_no_memory_that_was_erased_meanwhile(world: World, user: str) -> None:
    gone, stays = await write(world.client, user, "will go"), await write(world.client, user, "will stay")
    memory = await write(world.client, user, "names both", related_ids=[gone["id"], stays["id"]])
    await world.client.patch(f"/v1/memories/{memory['id']}", json={"related_ids": []})
    await world.client.delete(f"/v1/memories/{gone['id']}")
    back = await move(world.client, memory["id"], "rollback", json={"version": 1})
    assert back["related_ids"] == [stays["id"]]
    rows = await world.sql("SELECT target_id FROM memory_relations WHERE source_id = %s", UUID(memory["id"]))
    assert rows == [(UUID(stays["id"]),)]


async def test_rolling_back_a_long_text_does_not_change_what_is_found(client: httpx.AsyncClient, user: str) -> None:
    long = "the walrus keeps a diary. " * 400
    memory = await write(client, user, long)
    await client.patch(f"/v1/memories/{memory['id']}", json={"content": "short"})
    await move(client, memory["id"], "rollback", json={"version": 1})
    assert await found(client, user, "walrus diary", mode="keyword") == [long]


# Cold storage and pins.


async def test_an_archived_memory_leaves_every_lane_and_stays_readable(world: World, user: str) -> None:
    client = world.client
    memory = await write(client, user, "the hibernating dormouse", importance=0.95, wait=True)
    cold = await move(client, memory["id"], "archive")
    assert (cold["state"], cold["version"]) == ("cold", 2)
    await indexed(client, user)
    for mode in ("vector", "keyword", "hybrid"):
        assert await found(client, user, "hibernating dormouse", mode=mode) == []
        assert await found(client, user, "hibernating dormouse", mode=mode, include_cold=True) == [memory["content"]]
    assert await listed(client, user) == []
    assert [m["id"] for m in await listed(client, user, include_cold=True)] == [memory["id"]]
    assert (await read(client, memory["id"]))["state"] == "cold"
    assert await payload_of(world, memory["id"]) == ("cold", 2)
    back = await move(client, memory["id"], "restore")
    assert (back["state"], back["version"]) == ("active", 3)
    await indexed(client, user)
    assert await found(client, user, "hibernating dormouse", mode="vector") == [memory["content"]]
    assert await payload_of(world, memory["id"]) == ("active", 3)
    causes = [(i["cause"], i["changes"]) for i in (await history(client, memory["id"]))["items"]]
    assert causes[:2] == [("restore", {"state": {"from": "cold", "to": "active"}}), ("archive", {"state": {"from": "active", "to": "cold"}})]  # fmt: skip


async def payload_of(world: World, memory_id: str) -> tuple[str, int]:
    """(state, version) of the memory's point in Qdrant, asked directly."""
    async with httpx.AsyncClient(trust_env=False) as qdrant:
        answer = await qdrant.post(
            f"{world.settings.qdrant_url}/collections/{world.settings.qdrant_collection}/points",
            json={"ids": [memory_id], "with_payload": True},
        )
    (point,) = answer.json()["result"]
    return point["payload"]["state"], point["payload"]["version"]


async def test_each_move_repeated_answers_the_same_and_adds_no_version(client: httpx.AsyncClient, user: str) -> None:
    memory = await write(client, user, "moved about")
    for expected, verb in ((2, "archive"), (3, "restore"), (4, "pin"), (5, "unpin")):
        for body in ({}, {"json": {}}, {"content": b" "}):
            assert (await move(client, memory["id"], verb, **body))["version"] == expected
    assert (await history(client, memory["id"]))["total"] == 5


async def test_restoring_gives_fresh_heat_and_pinning_keeps_it(backends: Backends) -> None:
    now, user = datetime.now(UTC), new_user()
    async with serving(backends.new_settings(), clock=lambda: now) as world:
        client = world.client
        one, other = await write(client, user, "cools"), await write(client, user, "is pinned")
        await move(client, other["id"], "pin")
        now += timedelta(days=70)
        assert (await read(client, one["id"]))["heat"] == pytest.approx(0.9**10, abs=1e-6)
        assert (await read(client, other["id"]))["heat"] == 1.0
        assert [m["id"] for m in await listed(client, user, filters='{"heat":{"gte":0.9}}')] == [other["id"]]
        await move(client, one["id"], "archive")
        assert (await move(client, one["id"], "restore"))["heat"] == 1.0
        assert (await move(client, other["id"], "unpin"))["heat"] == 1.0
        now += timedelta(days=7)
        assert [(await read(client, m["id"]))["heat"] for m in (one, other)] == [0.9, 0.9]


@pytest.mark.parametrize(
    ("state", "verb"), [("superseded", "archive"), ("compressed", "archive"), ("superseded", "restore")]
)
async def test_what_is_out_of_use_for_another_reason_is_a_conflict(
    world: World, user: str, state: str, verb: str
) -> None:
    memory = await write(world.client, user, "out of use")
    newer = await write(world.client, user, "what replaced it")
    await world.sql(
        "UPDATE memory SET state = %s, superseded_by = %s WHERE id = %s", state, UUID(newer["id"]), UUID(memory["id"])
    )
    problem = problem_of(await world.client.post(f"/v1/memories/{memory['id']}/{verb}"), 409)
    assert problem["code"] == "conflict"
    assert (await read(world.client, memory["id"]))["version"] == 1


async def test_what_a_wrong_update_replaced_is_believed_again_when_that_was_erased(
    client: httpx.AsyncClient, user: str
) -> None:
    body = {"user_id": user, "kind": "semantic", "category": "fact"}
    old = (await client.post("/v1/memories", json={**body, "content": "The SSH port of build-01 is 22."})).json()[
        "memory"
    ]
    told = (await client.post("/v1/memories", json={**body, "content": "The SSH port of build-01 is 49222."})).json()
    assert (told["status"], told["superseded"]) == ("superseded", old["id"])
    problem_of(await client.post(f"/v1/memories/{old['id']}/restore"), 409)
    assert (await client.delete(f"/v1/memories/{told['memory']['id']}")).status_code == 204
    back = await move(client, old["id"], "restore")
    assert (back["state"], back["superseded_by"], back["valid_to"]) == ("active", None, None)
    assert [m["id"] for m in await listed(client, user)] == [old["id"]]
    entries = (await client.get(f"/v1/memories/{old['id']}/history")).json()
    assert "+00:00" not in str(entries)


async def test_a_compressed_memory_can_be_fetched_back(world: World, user: str) -> None:
    memory = await write(world.client, user, "merged into another")
    await world.sql("UPDATE memory SET state = 'compressed', superseded_by = id WHERE id = %s", UUID(memory["id"]))
    back = await move(world.client, memory["id"], "restore")
    assert (back["state"], back["superseded_by"]) == ("active", None)


@pytest.mark.parametrize("verb", MOVES)
async def test_a_move_takes_no_fields_heeds_if_match_and_knows_no_strange_ids(
    client: httpx.AsyncClient, user: str, verb: str
) -> None:
    memory = await write(client, user, f"to {verb}")
    if verb == "unpin":
        await move(client, memory["id"], "pin")
    address = f"/v1/memories/{memory['id']}/{verb}"
    problem_of(await client.post(address, json={"reason": "x"}), 422, "reason")
    problem_of(await client.post(address, json=[]), 422, "body")
    problem_of(await client.post(address, content=b"{"), 400)
    problem_of(await client.post(address, headers={"If-Match": "9"}), 409)
    problem_of(await client.post(address, params={"force": "true"}), 422, "force")
    for unknown in ("x", str(uuid4())):
        problem_of(await client.post(f"/v1/memories/{unknown}/{verb}"), 404)


async def test_after_an_erasure_restore_and_rollback_are_410_and_the_rest_404(
    client: httpx.AsyncClient, user: str
) -> None:
    memory = await write(client, user, "never again")
    await client.delete(f"/v1/memories/{memory['id']}")
    address = f"/v1/memories/{memory['id']}"
    problem_of(await client.post(f"{address}/restore"), 410)
    problem_of(await client.post(f"{address}/rollback", json={"version": 1}), 410)
    for verb in ("archive", "pin", "unpin"):
        problem_of(await client.post(f"{address}/{verb}"), 404)
    problem_of(await client.post(f"{address}/feedback", json={"outcome": "success"}), 404)
    for part in ("history", "related"):
        problem_of(await client.get(f"{address}/{part}"), 404)


async def test_only_who_could_see_an_erased_memory_learns_that_it_was_erased(keyed: World) -> None:
    mine, theirs = new_user("mine"), new_user("theirs")
    async with (
        keyed.with_key(await keyed.new_key("admin", tenant="graves")) as admin,
        keyed.with_key(await keyed.new_key("writer", tenant="graves", user_id=mine)) as bound,
        keyed.with_key(await keyed.new_key("admin", tenant="strangers")) as stranger,
    ):
        own, foreign = await write(admin, mine, "my own grave"), await write(admin, theirs, "their grave")
        for memory in (own, foreign):
            await admin.delete(f"/v1/memories/{memory['id']}")
        unknown = await bound.post(f"/v1/memories/{uuid4()}/restore")
        problem_of(await bound.post(f"/v1/memories/{own['id']}/restore"), 410)
        answer = await bound.post(f"/v1/memories/{foreign['id']}/restore")
        assert (answer.status_code, answer.text) == (404, unknown.text)
        problem_of(await stranger.post(f"/v1/memories/{own['id']}/restore"), 404)


# Feedback and uses.


async def test_each_outcome_moves_heat_and_confidence_as_documented(client: httpx.AsyncClient, user: str) -> None:
    moved = {}
    for outcome in ("success", "failure", "irrelevant", "outdated"):
        memory = await write(client, user, f"judged {outcome}")
        await client.patch(f"/v1/memories/{memory['id']}", json={"confidence": 0.8})
        after = await feedback(client, memory["id"], outcome, note="because I say so")
        moved[outcome] = (round(after["heat"], 3), after["confidence"], after["version"])
    assert moved == {
        "success": (1.1, 0.82, 3),
        "failure": (1.0, 0.6, 3),
        "irrelevant": (0.95, 0.8, 2),
        "outdated": (0.5, 0.4, 3),
    }


async def test_feedback_is_kept_with_its_note_and_confidence_is_versioned(world: World, user: str) -> None:
    memory = await write(world.client, user, "wrong port")
    await feedback(world.client, memory["id"], "failure", note="端口已改 ✓")
    row = "SELECT tenant, user_id, actor, outcome, note, retrieval_id FROM memory_feedback WHERE memory_id = %s"
    assert await world.sql(row, UUID(memory["id"])) == [("default", user, "local", "failure", "端口已改 ✓", None)]
    newest = (await history(world.client, memory["id"]))["items"][0]
    assert (newest["cause"], newest["changes"]) == ("feedback_failure", {"confidence": {"from": 1.0, "to": 0.75}})


async def test_sixteen_feedbacks_at_once_lose_nothing(client: httpx.AsyncClient, user: str) -> None:
    warm, doubted = await write(client, user, "warm"), await write(client, user, "doubted")
    await asyncio.gather(
        *(feedback(client, warm["id"], "success") for _ in range(16)),
        *(feedback(client, doubted["id"], "failure") for _ in range(16)),
    )
    assert (await read(client, warm["id"]))["heat"] == pytest.approx(1 + 16 * 0.1, abs=1e-3)
    after = await read(client, doubted["id"])
    assert after["confidence"] == pytest.approx(0.75**16, abs=1e-4)
    assert after["version"] == 17
    assert [i["version"] for i in (await history(client, doubted["id"]))["items"]] == list(range(17, 0, -1))


async def test_a_repeated_feedback_with_its_key_counts_once_and_a_mere_hit_does_not_count(
    world: World, user: str
) -> None:
    memory, key = await write(world.client, user, "counted once"), once()
    first = await world.client.post(f"/v1/memories/{memory['id']}/feedback", json={"outcome": "success"}, headers=key)
    again = await world.client.post(f"/v1/memories/{memory['id']}/feedback", json={"outcome": "success"}, headers=key)
    assert again.content == first.content
    assert len(await found(world.client, user, "counted once")) == 1
    await world.runtime.retrieval_log.flush()
    after = await read(world.client, memory["id"])
    assert after["heat"] == pytest.approx(1.1, abs=1e-3)
    assert after["access_count"] == 1
    assert after["last_accessed_at"] is not None


@pytest.mark.parametrize("verb", [*MOVES, "rollback"])
async def test_moves_are_idempotent_by_key(client: httpx.AsyncClient, user: str, verb: str) -> None:
    memory, key = await write(client, user, "once"), once()
    await client.patch(f"/v1/memories/{memory['id']}", json={"tags": ["x"]})
    body = {"json": {"version": 1}} if verb == "rollback" else {}
    first = await client.post(f"/v1/memories/{memory['id']}/{verb}", headers=key, **body)
    await client.patch(f"/v1/memories/{memory['id']}", json={"tags": ["y"]})
    again = await client.post(f"/v1/memories/{memory['id']}/{verb}", headers=key, **body)
    assert (first.status_code, again.content) == (200, first.content)


async def test_feedback_on_a_search_marks_what_was_used_at_once(world: World, user: str) -> None:
    memory, other = await write(world.client, user, "the useful lynx"), await write(world.client, user, "the idle lynx")
    asked = await search(world.client, user, "lynx")
    assert {r["id"] for r in asked["results"]} == {memory["id"], other["id"]}
    for _ in range(2):
        await feedback(world.client, memory["id"], "success", retrieval_id=asked["retrieval_id"])
    await feedback(world.client, other["id"], "irrelevant", retrieval_id=asked["retrieval_id"])
    rows = await world.sql("SELECT used_ids FROM retrieval_log WHERE id = %s", UUID(asked["retrieval_id"]))
    assert rows == [([UUID(memory["id"])],)]


async def test_a_retrieval_that_is_foreign_unknown_or_did_not_bring_it_is_named(keyed: World) -> None:
    mine, theirs = new_user("mine"), new_user("theirs")
    async with (
        keyed.with_key(await keyed.new_key("admin", tenant="logs")) as admin,
        keyed.with_key(await keyed.new_key("writer", tenant="logs", user_id=mine)) as bound,
        keyed.with_key(await keyed.new_key("writer", tenant="other-logs")) as stranger,
    ):
        memory, foreign = await write(admin, mine, "a heron"), await write(admin, theirs, "a heron too")
        far = await write(stranger, mine, "a heron far away")
        own = (await search(bound, mine, "heron"))["retrieval_id"]
        empty = (await search(bound, mine, "heron", kinds=["episodic"], filters={"id": {"eq": "x"}}))["retrieval_id"]
        hers = (await search(admin, theirs, "heron"))["retrieval_id"]
        address = f"/v1/memories/{memory['id']}/feedback"
        for bad in (hers, empty, str(uuid4()), (await search(stranger, mine, "heron"))["retrieval_id"]):
            problem_of(await bound.post(address, json={"outcome": "success", "retrieval_id": bad}), 422, "retrieval_id")
        said = {"outcome": "success", "retrieval_id": own}
        problem_of(await admin.post(f"/v1/memories/{foreign['id']}/feedback", json=said), 422, "retrieval_id")
        for unseen in (foreign, far):
            problem_of(await bound.post(f"/v1/memories/{unseen['id']}/feedback", json=said), 404)
        assert (await bound.post(address, json=said)).status_code == 200
        assert (await read(admin, memory["id"]))["heat"] == pytest.approx(1.1, abs=1e-3)
    used = await keyed.sql("SELECT used_ids FROM retrieval_log WHERE tenant = 'logs' AND cardinality(used_ids) > 0")
    assert used == [([UUID(memory["id"])],)]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "outcome"), ({"outcome": "great"}, "outcome"), ({"outcome": "success", "x": 1}, "x"), ({"outcome": "success", "note": " "}, "note"),
        ({"outcome": "success", "note": "a\0b"}, "note"), ({"outcome": "success", "note": "x" * 5000}, "note"), ({"outcome": "success", "retrieval_id": "x"}, "retrieval_id"),
        ({"outcome": "success", "note": 5}, "note"), ({"outcome": None}, "outcome"),
    ],
)  # fmt: skip
async def test_bad_feedback_is_named(client: httpx.AsyncClient, user: str, body: dict[str, Any], field: str) -> None:
    memory = await write(client, user, "judged badly")
    problem_of(await client.post(f"/v1/memories/{memory['id']}/feedback", json=body), 422, field)


async def test_what_a_finished_task_confirms_is_warmer_once_per_task(world: World, user: str) -> None:
    one, other = await write(world.client, user, "confirmed"), await write(world.client, user, "also confirmed")
    shared, foreign = (
        await write(world.client, "*shared", new_user("pool")),
        await write(world.client, new_user(), "not mine"),
    )
    ids = [UUID(m["id"]) for m in (one, other, shared, foreign)]
    judging = world.runtime.judging
    told = await asyncio.gather(*(judging.mark_used("default", user, ids, task_id="t1") for _ in range(8)))
    assert sorted(i for counted in told for i in counted) == sorted(ids[:3])
    assert [round((await read(world.client, str(i)))["heat"], 3) for i in ids] == [1.1, 1.1, 1.1, 1.0]
    assert await judging.mark_used("default", user, ids[:1], task_id="t2") == ids[:1]
    assert await judging.mark_used("elsewhere", user, ids, task_id="t1") == []
    assert await judging.mark_used("default", user, [], task_id="t3") == []
    assert (await read(world.client, one["id"]))["version"] == 1


async def test_uses_and_feedback_at_once_add_up(world: World, user: str) -> None:
    memory = await write(world.client, user, "busy")
    one, judging = UUID(memory["id"]), world.runtime.judging
    await asyncio.gather(
        *(judging.mark_used("default", user, [one], task_id=f"t{n}") for n in range(8)),
        *(feedback(world.client, memory["id"], "success") for _ in range(8)),
        *(world.client.patch(f"/v1/memories/{memory['id']}", json={"tags": [str(n)]}) for n in range(4)),
    )
    assert (await read(world.client, memory["id"]))["heat"] == pytest.approx(1 + 16 * 0.1, abs=1e-3)


async def test_uses_are_noted_in_the_retrieval_that_brought_them(world: World, user: str) -> None:
    memory, stray = await write(world.client, user, "the noted ibex"), await write(world.client, user, "something else")
    asked = await search(world.client, user, "ibex", mode="keyword")
    retrieval, ids = UUID(asked["retrieval_id"]), [UUID(memory["id"]), UUID(stray["id"])]
    await world.runtime.judging.mark_used("default", user, ids, retrieval_id=retrieval)
    await world.runtime.judging.mark_used("default", user, ids, retrieval_id=retrieval)
    assert await world.sql("SELECT used_ids FROM retrieval_log WHERE id = %s", retrieval) == [([UUID(memory["id"])],)]
    assert (await read(world.client, memory["id"]))["heat"] == pytest.approx(1.1, abs=1e-3)


@settings(max_examples=40)
@given(
    body=st.dictionaries(
        st.sampled_from(
            ["outcome", "retrieval_id", "note", "version", "source_id", "target_id", "relation_type", "weight"]
        )
        | words,
        values,
        max_size=4,
    )
)
async def test_no_body_breaks_the_life_of_a_memory(client: httpx.AsyncClient, user: str, body: dict[str, Any]) -> None:
    memory = await write(client, user, f"lived at random {uuid4()}")
    address, tie = (
        f"/v1/memories/{memory['id']}",
        {"source_id": memory["id"], "target_id": str(uuid4()), "relation_type": "x"},
    )
    for verb in MOVES:
        await send(client, "POST", f"{address}/{verb}", body)
    await send(
        client,
        "POST",
        f"{address}/feedback",
        {"outcome": "success", **{k: v for k, v in body.items() if k != "retrieval_id"}},
    )
    await send(client, "POST", f"{address}/rollback", {"version": 1, **body})
    await send(client, "POST", "/v1/relations", {**tie, **body})
    await send(client, "DELETE", "/v1/relations", {**tie, **body})


# What was said of it can be read.


async def given(client: httpx.AsyncClient, memory_id: str, **params: Any) -> dict[str, Any]:
    answer = await client.get(f"/v1/memories/{memory_id}/feedback", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


async def test_feedback_is_read_back_newest_first_with_who_when_and_why(keyed: World) -> None:
    user, tenant = new_user("ana"), "heard"
    key = await keyed.new_key("writer", tenant=tenant)
    async with keyed.with_key(key) as client:
        memory = await write(client, user, "the ibex path is open")
        asked = await search(client, user, "ibex", mode="keyword")
        for said in (
            {"outcome": "success", "retrieval_id": asked["retrieval_id"]},
            {"outcome": "outdated", "note": "封路了 since May"},
        ):
            await client.post(f"/v1/memories/{memory['id']}/feedback", json=said)
        own_key = (await client.get("/v1/keys/self")).json()
        page = await given(client, memory["id"])
    assert (page["total"], page["next_cursor"]) == (2, None)
    newest, oldest = page["items"]
    assert (newest["outcome"], newest["note"], newest["user_id"]) == ("outdated", "封路了 since May", user)
    assert newest["actor"] == f"key:{own_key['id']}" if "id" in own_key else newest["actor"].startswith("key:")
    assert newest["at"] >= oldest["at"]
    assert newest["at"].endswith("Z")
    assert (oldest["note"], oldest["retrieval_id"], oldest["used_in"]) == (None, asked["retrieval_id"], None)


async def test_feedback_pages_over_everything_once_and_tells_confirmed_uses(world: World, user: str) -> None:
    client, memory = world.client, await write(world.client, user, "much spoken of")
    for n in range(4):
        await client.post(f"/v1/memories/{memory['id']}/feedback", json={"outcome": "irrelevant", "note": f"note {n}"})
    await world.runtime.judging.mark_used("default", user, [UUID(memory["id"])], task_id="run-7")
    seen: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        page = await given(client, memory["id"], limit=2, **cursor)
        seen += page["items"]
        assert page["total"] == 5
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert [one["note"] for one in seen] == [None, "note 3", "note 2", "note 1", "note 0"]
    assert (seen[0]["actor"], seen[0]["used_in"]) == ("task", "task:run-7")
    other = await write(client, user, "another")
    address = f"/v1/memories/{other['id']}/feedback"
    problem_of(await client.get(address, params={"cursor": cursor["cursor"]}), 422, "cursor")
    problem_of(await client.get(f"/v1/memories/{uuid4()}/feedback"), 404)
    problem_of(await client.get("/v1/memories/x/feedback"), 404)


async def test_of_a_shared_memory_a_bound_key_reads_no_other_users_feedback(keyed: World) -> None:
    mine, theirs = new_user("mine"), new_user("theirs")
    async with (
        keyed.with_key(await keyed.new_key("admin", tenant="pools")) as admin,
        keyed.with_key(await keyed.new_key("reader", tenant="pools", user_id=mine)) as bound,
    ):
        shared = await write(admin, "*shared", new_user("pool"))
        await admin.post(f"/v1/memories/{shared['id']}/feedback", json={"outcome": "success", "note": "for all"})
        for who in (mine, theirs):
            await keyed.runtime.judging.mark_used("pools", who, [UUID(shared["id"])], task_id=f"of-{who}")
        assert (await given(admin, shared["id"]))["total"] == 3
        page = await given(bound, shared["id"])
        assert (page["total"], {one["used_in"] for one in page["items"]}) == (2, {None, f"task:of-{mine}"})
        assert theirs not in str(page)


async def test_erased_feedback_is_not_read_again(client: httpx.AsyncClient, user: str) -> None:
    memory = await write(client, user, "soon gone")
    await client.post(f"/v1/memories/{memory['id']}/feedback", json={"outcome": "failure", "note": "wrong door"})
    assert (await given(client, memory["id"]))["total"] == 1
    await client.delete(f"/v1/memories/{memory['id']}")
    gone = await client.get(f"/v1/memories/{memory['id']}/feedback")
    assert "wrong door" not in gone.text
    problem_of(gone, 404)


# Erasure and failing stores.


async def test_erasing_a_memory_takes_its_feedback_and_versions_along(world: World, user: str) -> None:
    memory = await write(world.client, user, "the platypus secret")
    key = once()
    body = {"outcome": "outdated", "note": "platypus no more"}
    await world.client.post(f"/v1/memories/{memory['id']}/feedback", json=body, headers=key)
    assert await world.sql("SELECT 1 FROM memory_feedback WHERE note LIKE '%%platypus%%'")
    await world.client.delete(f"/v1/memories/{memory['id']}")
    for table in ("memory_feedback", "memory_version"):
        assert await world.sql(f"SELECT 1 FROM {table} WHERE memory_id = %s", UUID(memory["id"])) == []
    problem_of(await world.client.post(f"/v1/memories/{memory['id']}/feedback", json=body, headers=key), 410)


async def test_erasing_a_user_takes_along_what_it_said_about_the_common_pool(world: World, user: str) -> None:
    shared = await write(world.client, "*shared", new_user("pool"))
    await world.runtime.judging.mark_used("default", user, [UUID(shared["id"])], task_id="t")
    assert await world.sql("SELECT 1 FROM memory_feedback WHERE user_id = %s", user)
    await world.client.delete(f"/v1/users/{user}")
    assert await world.sql("SELECT 1 FROM memory_feedback WHERE user_id = %s", user) == []
    assert (await read(world.client, shared["id"]))["heat"] == pytest.approx(1.1, abs=1e-3)


async def test_with_qdrant_down_moves_and_rollback_answer_and_vectors_follow_later(backends: Backends) -> None:
    settings, user = backends.new_settings(), new_user()
    async with (
        proxied(settings.qdrant_url) as qdrant,
        serving(settings.model_copy(update={"qdrant_url": qdrant.url})) as world,
    ):
        client = world.client
        memory = await write(client, user, "a pelican on the pier", wait=True)
        other = await write(client, user, "a pelican put away", wait=True)
        await client.patch(f"/v1/memories/{memory['id']}", json={"content": "a crane in the marsh"})
        await qdrant.cut()
        back = await move(client, memory["id"], "rollback", json={"version": 1})
        assert (back["content"], back["index"]["state"]) == ("a pelican on the pier", "pending")
        await move(client, other["id"], "archive")
        assert await found(client, user, "pelican") == ["a pelican on the pier"]
        await feedback(client, memory["id"], "success")
        await asyncio.sleep(0.2)
        assert qdrant.refused > 0
        await qdrant.heal()
        await indexed(client, user)
        assert await found(client, user, "pelican pier", mode="vector") == ["a pelican on the pier"]
        assert await payload_of(World(settings, world.app, client), other["id"]) == ("cold", 2)


async def test_with_postgres_down_the_life_of_memories_is_503(backends: Backends) -> None:
    settings = backends.new_settings()
    async with (
        proxied(settings.database_url) as postgres,
        serving(settings.model_copy(update={"database_url": postgres.url})) as world,
    ):
        memory = await write(world.client, new_user(), "unreachable")
        await postgres.cut()
        address = f"/v1/memories/{memory['id']}"
        answers = [
            await world.client.get(f"{address}/history"),
            await world.client.post(f"{address}/archive"),
            await world.client.post(f"{address}/rollback", json={"version": 1}),
            await world.client.post(f"{address}/feedback", json={"outcome": "success"}, headers=once()),
            await world.client.get(f"{address}/related"),
        ]
        for answer in answers:
            assert problem_of(answer, 503)["code"] == "store_unavailable"
        await postgres.heal()
        assert (await read(world.client, memory["id"]))["version"] == 1


@pytest.mark.parametrize("statement", [UNLINK_MEMORIES, UNLINK_EXPERIENCES])
async def test_erasing_looks_only_at_rows_that_name_the_erased(world: World, statement: str) -> None:
    """Once reading the table is forbidden the planner takes the index, unless it can't prove the index's predicate."""
    asked = statement.replace("m.tenant = %(t)s AND", "").replace(
        "tenant = %(t)s AND", ""
    )  # no way around by the tenant
    with psycopg.connect(world.settings.database_url) as connection:
        connection.execute("SET enable_seqscan = off")
        plan = connection.execute(f"EXPLAIN {asked}", {"ids": [uuid4()]}).fetchall()
    text = "\n".join(row[0] for row in plan)
    assert "Bitmap Index Scan" in text
    assert "Seq Scan" not in text
    assert "Index Cond: (source_memory_ids && " in text
