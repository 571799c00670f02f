"""GET, PATCH and DELETE of one memory, and erasing a user."""

# ruff: noqa: E501 - tables: one case reads best on one line

from __future__ import annotations

from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid4

import httpx
import pytest
from service_running import World, found, indexed, listed, new_user, problem_of, search, until, write, write_many

BAD_IDS = ["x", "0", "019abcde-0000-7000-8000-000000000000", "'; DROP TABLE memory;--", "a%2Fb", "中文", "0" * 4000]
# Of nothing.  Fixed, because all processes of a test run must give its cases the same names.
UNKNOWN_ID = "019abcde-0000-7000-8000-000000000001"


@pytest.mark.parametrize("bad", BAD_IDS, ids=lambda text: text[:12])
@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
async def test_an_id_that_is_none_answers_like_an_unknown_one(client: httpx.AsyncClient, method: str, bad: str) -> None:
    body: dict[str, Any] = {"json": {"content": "x"}} if method == "PATCH" else {}
    unknown = await client.request(method, f"/v1/memories/{uuid4()}", **body)
    answer = await client.request(method, f"/v1/memories/{quote(bad, safe='%')}", **body)
    assert problem_of(answer, 404) == problem_of(unknown, 404)


@pytest.mark.parametrize("path", ["/v1/memories/{}", "/v1/users/{}"])
@pytest.mark.parametrize("bad", ["a%00b", "%ED%A0%80", "%FF"])
async def test_an_address_that_no_store_can_hold_is_422(client: httpx.AsyncClient, path: str, bad: str) -> None:
    problem_of(await client.delete(path.format(bad)), 422, "memory_id" if "memories" in path else "user_id")


async def test_patch_changes_only_what_it_names_and_raises_the_version(client: httpx.AsyncClient, user: str) -> None:
    before = await write(
        client, user, "the content", tags=["a"], category="c", metadata={"k": 1, "l": 2}, importance=0.9
    )
    answer = await client.patch(f"/v1/memories/{before['id']}", json={"tags": ["b", "b"], "metadata": {"m": None}})
    assert answer.status_code == 200, answer.text
    after = answer.json()
    changed = {name for name in before if before[name] != after[name]}
    assert changed <= {"tags", "metadata", "version", "updated_at", "index", "heat"}
    assert (after["tags"], after["metadata"], after["version"]) == (["b"], {"m": None}, 2)
    assert after["updated_at"] > before["updated_at"]
    assert (await client.get(f"/v1/memories/{before['id']}")).json()["tags"] == ["b"]


async def test_a_patch_that_says_what_the_memory_says_makes_no_version(world: World, user: str) -> None:
    other = await write(world.client, user, "other")
    memory = await write(
        world.client, user, "We deploy with Docker in Berlin since 2024.", tags=["a", "b"], category="c", event_type="e", entities=["x"], outcome="success",
        metadata={"n": 1, "b": True, "l": [1.5, None], "aa": {"z": 1, "y": 2}}, importance=0.7, expires_at="2126-01-01T00:00:00Z", occurred_at="2026-01-01T10:00:00.123456+02:00",
        related_ids=[other["id"]], wait=True,
    )  # fmt: skip
    path = f"/v1/memories/{memory['id']}"
    before = (await world.client.get(path)).json()
    same = {name: before[name] for name in (
        "content", "summary", "category", "event_type", "tags", "entities", "outcome", "importance", "confidence", "occurred_at", "expires_at", "related_ids", "metadata",
    )}  # fmt: skip
    same["metadata"] = dict(reversed(same["metadata"].items()))
    marks = "SELECT xmin::text, updated_at FROM memory WHERE id = %s"
    marked = await world.sql(marks, UUID(memory["id"]))
    for body in (same, {"content": same["content"]}, {"tags": ["a", "b", "a"]}, *({name: same[name]} for name in same)):
        answer = await world.client.patch(path, json=body, headers={"If-Match": "1"})
        assert (answer.status_code, answer.json() | {"heat": before["heat"]}) == (200, before), body
    assert (await world.client.get(f"{path}/history")).json()["total"] == 1
    assert await world.sql(marks, UUID(memory["id"])) == marked
    assert await world.sql("SELECT 1 FROM index_outbox WHERE memory_id = %s", UUID(memory["id"])) == []
    problem_of(await world.client.patch(path, json=same, headers={"If-Match": "2"}), 409)


@pytest.mark.parametrize(("old", "new"), [(1, True), (1, 1.0), (0, False), ([1], [True]), ({"a": 0}, {"a": False})])
async def test_metadata_that_only_python_takes_for_the_same_is_changed(
    client: httpx.AsyncClient, user: str, old: Any, new: Any
) -> None:
    memory = await write(client, user, "kept value for value", metadata={"k": old})
    for version, value in ((2, new), (2, new), (3, old)):
        answer = (await client.patch(f"/v1/memories/{memory['id']}", json={"metadata": {"k": value}})).json()
        assert (answer["version"], repr(answer["metadata"]["k"])) == (version, repr(value))
    changes = (await client.get(f"/v1/memories/{memory['id']}/history")).json()["items"][0]["changes"]
    assert set(changes) == {"metadata"}
    assert [repr(changes["metadata"][end]["k"]) for end in ("from", "to")] == [repr(new), repr(old)]


async def test_null_clears(client: httpx.AsyncClient, user: str) -> None:
    memory = await write(
        client, user, "full", tags=["a"], category="c", event_type="e", entities=["x"], outcome="success", metadata={"k": 1},
        expires_at="2126-01-01T00:00:00Z", related_ids=[(await write(client, user, "other"))["id"]],
    )  # fmt: skip
    names = ("category", "event_type", "tags", "entities", "outcome", "expires_at", "related_ids", "metadata")
    after = (await client.patch(f"/v1/memories/{memory['id']}", json=dict.fromkeys(names))).json()
    assert [after[name] for name in names] == [None, None, [], [], None, None, [], {}]


@pytest.mark.parametrize("name", ["content", "summary", "importance", "confidence", "occurred_at"])
async def test_what_a_memory_can_not_be_without_can_not_be_cleared(
    client: httpx.AsyncClient, user: str, name: str
) -> None:
    memory = await write(client, user, "x")
    problem_of(await client.patch(f"/v1/memories/{memory['id']}", json={name: None}), 422, name)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "body"), ({"kind": "semantic"}, "kind"), ({"user_id": "x"}, "user_id"), ({"version": 3}, "version"), ({"heat": 1}, "heat"),
        ({"content": " "}, "content"), ({"tags": [""]}, "tags.0"), ({"confidence": 2}, "confidence"), ({"metadata": []}, "metadata"),
        ({"expires_at": "x"}, "expires_at"), ({"related_ids": [UNKNOWN_ID]}, "related_ids.0"), ({"state": "cold"}, "state"), ({"pinned": True}, "pinned"),
    ],
    ids=str,
)  # fmt: skip
async def test_a_bad_patch_is_named_and_changes_nothing(
    client: httpx.AsyncClient, user: str, body: dict[str, Any], field: str
) -> None:
    memory = await write(client, user, "x")
    problem_of(await client.patch(f"/v1/memories/{memory['id']}", json=body), 422, field)
    assert (await client.get(f"/v1/memories/{memory['id']}")).json()["version"] == 1


async def test_content_above_256_kib_is_413_in_a_patch_too(client: httpx.AsyncClient, user: str) -> None:
    memory = await write(client, user, "x")
    problem_of(await client.patch(f"/v1/memories/{memory['id']}", json={"content": "x" * 262_145}), 413, "content")


@pytest.mark.parametrize("shape", ["{}", '"{}"', 'W/"{}"', " {} "])
async def test_if_match_takes_the_version_quoted_or_bare(client: httpx.AsyncClient, user: str, shape: str) -> None:
    memory = await write(client, user, "x")
    path, body = f"/v1/memories/{memory['id']}", {"category": "new"}
    stale = await client.patch(path, json=body, headers={"If-Match": shape.format(2)})
    assert problem_of(stale, 409)["code"] == "stale_version"
    assert (await client.patch(path, json=body, headers={"If-Match": shape.format(1)})).json()["version"] == 2
    problem_of(await client.patch(path, json=body, headers={"If-Match": shape.format(1)}), 409)


@pytest.mark.parametrize("bad", ["abc", '""', "-1", "1.0", "²", "9" * 30, '"1', '1"', "W/1", '""1""'])
async def test_a_strange_if_match_is_named(client: httpx.AsyncClient, user: str, bad: str) -> None:
    memory = await write(client, user, "x")
    answer = await client.patch(
        f"/v1/memories/{memory['id']}", json={"category": "c"}, headers=[(b"If-Match", bad.encode())]
    )
    problem_of(answer, 422, "If-Match")


async def test_parallel_patches_each_make_a_version(world: World, user: str) -> None:
    import asyncio

    memory = await write(world.client, user, "x")
    path = f"/v1/memories/{memory['id']}"
    answers = await asyncio.gather(*(world.client.patch(path, json={"category": f"c{n}"}) for n in range(12)))
    assert sorted(a.json()["version"] for a in answers) == list(range(2, 14))
    kept = await world.sql(
        "SELECT version FROM memory_version WHERE memory_id = %s ORDER BY version", UUID(memory["id"])
    )
    assert [row[0] for row in kept] == list(range(1, 13))


async def test_new_text_is_found_and_the_old_text_no_more(client: httpx.AsyncClient, user: str) -> None:
    memory = await write(client, user, "The flamingo stands in the kitchen", wait=True)
    await client.patch(f"/v1/memories/{memory['id']}", json={"content": "A submarine waits in the harbour"})
    await indexed(client, user)
    for mode in ("vector", "keyword"):
        assert await found(client, user, "submarine harbour", mode=mode) == ["A submarine waits in the harbour"]
    assert await found(client, user, "flamingo", mode="keyword") == []
    assert (await client.get(f"/v1/memories/{memory['id']}")).json()["summary"] == "A submarine waits in the harbour"


async def test_a_version_keeps_what_the_memory_was(world: World, user: str) -> None:
    memory = await write(world.client, user, "first text", metadata={"v": 1})
    await world.client.patch(f"/v1/memories/{memory['id']}", json={"content": "second text"})
    ((version, actor, cause, changes, snapshot),) = await world.sql(
        "SELECT version, actor, cause, changes, snapshot FROM memory_version WHERE memory_id = %s", UUID(memory["id"])
    )
    assert (version, actor, cause) == (1, "local", "update")
    assert changes["content"] == {"from": "first text", "to": "second text"}
    assert (snapshot["content"], snapshot["metadata"]) == ("first text", {"v": 1})


async def test_delete_is_204_then_404_and_leaves_nothing_behind(world: World, user: str) -> None:
    memory = await write(world.client, user, "the platypus secret", wait=True)
    path = f"/v1/memories/{memory['id']}"
    await world.client.patch(path, json={"category": "animals"})
    answer = await world.client.delete(path)
    assert (answer.status_code, answer.content) == (204, b"")
    for again in (
        await world.client.delete(path),
        await world.client.get(path),
        await world.client.patch(path, json={"category": "x"}),
    ):
        problem_of(again, 404)
    assert await listed(world.client, user) == []
    for mode in ("vector", "keyword", "hybrid"):
        assert await found(world.client, user, "platypus secret", mode=mode) == []
    one = UUID(memory["id"])
    assert await world.sql("SELECT 1 FROM memory_version WHERE memory_id = %s", one) == []
    assert await world.sql("SELECT 1 FROM erased WHERE id = %s AND tenant = 'default'", one) == [(1,)]

    async def applied() -> bool:
        return not await world.sql("SELECT 1 FROM index_outbox WHERE memory_id = %s", one)

    await until(applied)
    assert await points_of(world, memory["id"]) == 0


async def test_erasing_a_user_counts_and_can_be_repeated(world: World, user: str) -> None:
    others = new_user("neighbour")
    await write(world.client, others, "stays")
    await write_many(world.client, user, ["a", "b", "c"], wait=True)
    changed = await write(world.client, user, "d")
    await world.client.patch(f"/v1/memories/{changed['id']}", json={"category": "x"})
    task = await world.client.put("/v1/working-memory/t1", json={"user_id": user, "task_goal": "forget me"})
    assert task.status_code == 200
    await found(world.client, user, "a")
    await world.runtime.retrieval_log.flush()
    first = (await world.client.delete(f"/v1/users/{user}")).json()
    assert first == {
        "user_id": user,
        "memories": 4,
        "versions": 1,
        "conflicts": 0,
        "experiences": 0,
        "retrievals": 1,
        "working_memory": 1,
        "task_runs": 0,
        "sessions": 0,
    }
    second = (await world.client.delete(f"/v1/users/{user}")).json()
    assert set(second.values()) == {user, 0}
    assert await listed(world.client, user) == []
    problem_of(await world.client.get("/v1/working-memory/t1", params={"user_id": user}), 404)
    assert len(await listed(world.client, others)) == 1
    for table in ("memory", "memory_version", "retrieval_log"):
        assert await world.sql(f"SELECT 1 FROM {table} WHERE user_id = %s", user) == []
    assert await world.sql("SELECT count(*) FROM erased WHERE id = %s", UUID(changed["id"])) == [(1,)]

    async def no_points() -> bool:
        return await points_of(world, user, field="user_id") == 0

    await until(no_points)


async def points_of(world: World, value: str, field: str = "memory_id") -> int:
    """Points in Qdrant, asked directly."""
    async with httpx.AsyncClient(trust_env=False) as qdrant:
        answer = await qdrant.post(
            f"{world.settings.qdrant_url}/collections/{world.settings.qdrant_collection}/points/count",
            json={"exact": True, "filter": {"must": [{"key": field, "match": {"value": value}}]}},
        )
    return int(answer.json()["result"]["count"])


async def test_a_summary_that_a_person_wrote_survives_a_change_of_the_content(
    client: httpx.AsyncClient, user: str
) -> None:
    kept = await write(client, user, "the first text", summary="my own sentence")
    made = await write(client, user, "another first text")
    for memory in (kept, made):
        await client.patch(f"/v1/memories/{memory['id']}", json={"content": "the second text entirely"})
    assert (await client.get(f"/v1/memories/{kept['id']}")).json()["summary"] == "my own sentence"
    assert (await client.get(f"/v1/memories/{made['id']}")).json()["summary"] == "the second text entirely"


async def test_an_erasure_heeds_if_match(client: httpx.AsyncClient, user: str) -> None:
    memory = await write(client, user, "not to be erased by somebody who saw an older version")
    await client.patch(f"/v1/memories/{memory['id']}", json={"tags": ["new"]})
    address = f"/v1/memories/{memory['id']}"
    problem_of(await client.delete(address, headers={"If-Match": "1"}), 409)
    assert (await client.delete(address, headers={"If-Match": "2"})).status_code == 204


async def test_labels_that_the_rules_made_follow_a_changed_content(client: httpx.AsyncClient, user: str) -> None:
    body = {"user_id": user, "content": "The quota is 5 GB."}
    memory = (await client.post("/v1/memories", json=body)).json()["memory"]
    assert memory["entities"] == [{"name": "5 GB", "type": "quantity"}]
    url, text = f"/v1/memories/{memory['id']}", "I prefer a quota of 6 GB at Hetzner."
    changed = (await client.patch(url, json={"content": text})).json()
    fresh = (await client.post("/v1/memories", json={"user_id": user + "2", "content": text})).json()["memory"]
    for name in ("entities", "summary", "category", "event_type"):
        assert changed[name] == fresh[name], name
    named = await client.patch(url, json={"content": "The quota is 7 GB.", "entities": ["mine"], "category": "rule"})
    assert named.json()["entities"] == [{"name": "mine", "type": "other"}]
    assert named.json()["category"] == "rule"


async def test_labels_that_the_caller_gave_stay_when_the_content_changes(client: httpx.AsyncClient, user: str) -> None:
    given = {"entities": ["quota"], "category": "rule", "summary": "How much room there is", "event_type": "rule"}
    body = {"user_id": user, "content": "The quota is 5 GB.", **given}
    memory = (await client.post("/v1/memories", json=body)).json()["memory"]
    changed = (await client.patch(f"/v1/memories/{memory['id']}", json={"content": "The quota is 6 GB."})).json()
    for name in ("entities", "category", "summary", "event_type"):
        assert changed[name] == memory[name], name
    plain = {"user_id": user, "content": "Some note.", "infer": False}
    memory = (await client.post("/v1/memories", json=plain)).json()["memory"]
    changed = (await client.patch(f"/v1/memories/{memory['id']}", json={"content": "I prefer 6 GB."})).json()
    assert (changed["entities"], changed["category"], changed["event_type"]) == ([], None, None)


async def test_as_of_tells_what_a_changed_memory_said_then(client: httpx.AsyncClient, user: str) -> None:
    written = await write(client, user, "The kestrel nests in the old tower.", tags=["old"], wait=True)
    path = f"/v1/memories/{written['id']}"
    second = (await client.patch(path, json={"content": "The kestrel nests in the barn.", "tags": ["new"]})).json()
    third = (await client.patch(path, json={"content": "The kestrel has left."})).json()
    await indexed(client, user)
    for moment, text, tags, version in (
        (written["updated_at"], "The kestrel nests in the old tower.", ["old"], 1),
        (second["updated_at"], "The kestrel nests in the barn.", ["new"], 2),
        (third["updated_at"], "The kestrel has left.", ["new"], 3),
    ):
        for mode in ("hybrid", "vector", "keyword"):
            (hit,) = (await search(client, user, "kestrel", mode=mode, as_of=moment))["results"]
            assert (hit["content"], hit["tags"], hit["version"]) == (text, tags, version)
        (item,) = await listed(client, user, as_of=moment)
        assert (item["content"], item["version"]) == (text, version)
    (now,) = (await search(client, user, "kestrel"))["results"]
    assert now["content"] == "The kestrel has left."
