"""The graph between memories: tied by hand and by related_ids, listed from both ends, gone with either."""

# ruff: noqa: E501 - tables: one case reads best on one line

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from service_running import Backends, World, new_user, numbers, problem_of, serving, write


def tie(source: dict[str, Any], target: dict[str, Any], kind: str = "caused_by", **fields: Any) -> dict[str, Any]:
    return {"source_id": source["id"], "target_id": target["id"], "relation_type": kind, **fields}


async def untie(client: httpx.AsyncClient, body: dict[str, Any]) -> httpx.Response:
    return await client.request("DELETE", "/v1/relations", json=body)


async def related(
    client: httpx.AsyncClient, memory: dict[str, Any], **params: Any
) -> list[tuple[str, str, str, float]]:
    """(id of the other, type, direction, weight) of each relation."""
    answer = await client.get(f"/v1/memories/{memory['id']}/related", params=params)
    assert answer.status_code == 200, answer.text
    page = answer.json()
    assert page["total"] >= len(page["items"])
    return [(i["memory"]["id"], i["relation_type"], i["direction"], i["weight"]) for i in page["items"]]


async def pair(client: httpx.AsyncClient, user: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return await write(client, user, "the outage"), await write(client, user, "the full disk")


async def test_a_relation_is_seen_from_both_ends(client: httpx.AsyncClient, user: str) -> None:
    outage, disk = await pair(client, user)
    answer = await client.post("/v1/relations", json=tie(outage, disk, weight=0.8))
    assert answer.status_code == 201
    assert {name: answer.json()[name] for name in tie(outage, disk)} == tie(outage, disk)
    assert await related(client, outage) == [(disk["id"], "caused_by", "out", 0.8)]
    assert await related(client, disk) == [(outage["id"], "caused_by", "in", 0.8)]
    ((item),) = (await client.get(f"/v1/memories/{outage['id']}/related")).json()["items"]
    assert item["memory"]["content"] == "the full disk"


async def test_saying_it_again_changes_only_the_weight(client: httpx.AsyncClient, user: str) -> None:
    outage, disk = await pair(client, user)
    answers = await asyncio.gather(*(client.post("/v1/relations", json=tie(outage, disk)) for _ in range(8)))
    assert sorted(a.status_code for a in answers) == [200] * 7 + [201]
    assert {a.json()["weight"] for a in answers} == {1.0}
    assert (await client.post("/v1/relations", json=tie(outage, disk, weight=0.2))).json()["weight"] == 0.2
    assert (await client.post("/v1/relations", json=tie(outage, disk))).json()["weight"] == 0.2
    assert await related(client, outage) == [(disk["id"], "caused_by", "out", 0.2)]
    await client.post("/v1/relations", json=tie(outage, disk, "happened_after"))
    await client.post("/v1/relations", json=tie(disk, outage, "caused"))
    assert len(await related(client, outage)) == 3


async def test_delete_takes_back_exactly_one(client: httpx.AsyncClient, user: str) -> None:
    outage, disk = await pair(client, user)
    for kind in ("caused_by", "follows"):
        await client.post("/v1/relations", json=tie(outage, disk, kind))
    assert (await untie(client, tie(outage, disk, weight=1.0))).status_code == 204
    problem_of(await untie(client, tie(outage, disk)), 404)
    problem_of(await untie(client, tie(disk, outage, "follows")), 404)
    assert await related(client, outage) == [(disk["id"], "follows", "out", 1.0)]


async def test_an_idempotency_key_answers_the_first_answer_again(client: httpx.AsyncClient, user: str) -> None:
    outage, disk = await pair(client, user)
    key = {"Idempotency-Key": uuid4().hex}
    first = await client.post("/v1/relations", json=tie(outage, disk), headers=key)
    again = await client.post("/v1/relations", json=tie(outage, disk), headers=key)
    assert (first.status_code, again.status_code, again.content) == (201, 201, first.content)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"weight": 1.1}, "weight"), ({"weight": -0.1}, "weight"), ({"weight": "1"}, "weight"), ({"relation_type": " "}, "relation_type"), ({"relation_type": "x" * 129}, "relation_type"),
        ({"relation_type": "a\0"}, "relation_type"), ({"source_id": "x"}, "source_id"), ({"target_id": 5}, "target_id"), ({"extra": 1}, "extra"), ({"relation_type": None}, "relation_type"),
    ],
)  # fmt: skip
async def test_bad_fields_are_named(client: httpx.AsyncClient, user: str, changed: dict[str, Any], field: str) -> None:
    outage, disk = await pair(client, user)
    problem_of(await client.post("/v1/relations", json=tie(outage, disk) | changed), 422, field)
    problem_of(await untie(client, tie(outage, disk) | changed), 422, field)


async def test_a_memory_is_not_related_to_itself(client: httpx.AsyncClient, user: str) -> None:
    outage, _ = await pair(client, user)
    problem_of(await client.post("/v1/relations", json=tie(outage, outage)), 422, "target_id")


async def test_an_end_that_is_unknown_foreign_or_expired_is_a_404_that_names_it(keyed: World) -> None:
    mine, theirs = new_user("mine"), new_user("theirs")
    async with (
        keyed.with_key(await keyed.new_key("admin", tenant="graphs")) as admin,
        keyed.with_key(await keyed.new_key("writer", tenant="graphs", user_id=mine)) as bound,
        keyed.with_key(await keyed.new_key("admin", tenant="other-graphs")) as stranger,
    ):
        own, foreign = await write(admin, mine, "mine"), await write(admin, theirs, "theirs")
        far = await write(stranger, mine, "far away")
        expired = await write(admin, mine, "over soon")
        await keyed.sql("UPDATE memory SET expires_at = now() WHERE id = %s", UUID(expired["id"]))
        unknown = problem_of(await bound.post("/v1/relations", json=tie(own, {"id": str(uuid4())})), 404, "target_id")
        for other in (foreign, far, expired):
            assert problem_of(await bound.post("/v1/relations", json=tie(own, other)), 404, "target_id") == unknown
            problem_of(await bound.post("/v1/relations", json=tie(other, own)), 404, "source_id")
            problem_of(await untie(bound, tie(own, other)), 404, "target_id")
        assert await keyed.sql("SELECT 1 FROM memory_relations WHERE source_id = %s", UUID(own["id"])) == []


async def test_a_bound_key_ties_its_own_memory_to_one_of_the_pool_and_changes_nothing_there(keyed: World) -> None:
    mine, theirs = new_user("mine"), new_user("theirs")
    async with (
        keyed.with_key(await keyed.new_key("admin", tenant="pools")) as admin,
        keyed.with_key(await keyed.new_key("writer", tenant="pools", user_id=mine)) as bound,
        keyed.with_key(await keyed.new_key("writer", tenant="pools", user_id=theirs)) as other,
    ):
        own, shared = await write(bound, mine, "mine"), await write(admin, "*shared", new_user("pool"), wait=True)
        before = (await admin.get(f"/v1/memories/{shared['id']}")).json()
        for edge in (tie(own, shared), tie(own, shared, "related_to")):
            assert (await bound.post("/v1/relations", json=edge)).status_code == 201
            assert (await bound.post("/v1/relations", json={**edge, "weight": 0.5})).status_code == 200
        assert {(i, d) for i, _, d, _ in await related(bound, own)} == {(shared["id"], "out")}
        assert await related(other, shared) == []  # nobody learns of somebody else's memory from the pool
        refused = problem_of(await bound.post("/v1/relations", json=tie(shared, own)), 404, "source_id")
        assert refused == problem_of(await bound.post("/v1/relations", json=tie({"id": str(uuid4())}, own)), 404)

        assert (await admin.post("/v1/relations", json=tie(shared, own, "said by its keeper"))).status_code == 201
        problem_of(await untie(bound, tie(shared, own, "said by its keeper")), 404, "source_id")
        problem_of(await untie(other, tie(own, shared)), 404, "source_id")
        for edge in (tie(own, shared), tie(own, shared, "related_to")):
            assert (await untie(bound, edge)).status_code == 204
        assert {k for _, k, _, _ in await related(bound, own)} == {"said by its keeper"}
        assert (await admin.get(f"/v1/memories/{shared['id']}")).json() == before
        assert (await admin.get(f"/v1/memories/{shared['id']}/history")).json()["total"] == 1


async def test_a_bound_key_names_memories_of_the_pool_as_related(keyed: World) -> None:
    mine = new_user("mine")
    async with (
        keyed.with_key(await keyed.new_key("admin", tenant="named-pools")) as admin,
        keyed.with_key(await keyed.new_key("writer", tenant="named-pools", user_id=mine)) as bound,
    ):
        shared, foreign = await write(admin, "*shared", new_user("pool")), await write(admin, new_user(), "theirs")
        for n, source in enumerate(
            [await write(bound, mine, "named at once", related_ids=[shared["id"]]), await write(bound, mine, "later")]
        ):
            answer = await bound.patch(f"/v1/memories/{source['id']}", json={"related_ids": [shared["id"]]})
            assert (answer.status_code, answer.json()["related_ids"]) == (200, [shared["id"]])
            assert answer.json()["version"] == 1 + n
            assert await related(bound, source) == [(shared["id"], "related_to", "out", 1.0)]
        named = {"related_ids": [shared["id"], foreign["id"]]}
        problem_of(await bound.patch(f"/v1/memories/{source['id']}", json=named), 422, "related_ids.1")
        await bound.patch(f"/v1/memories/{source['id']}", json={"related_ids": []})
        back = await bound.post(f"/v1/memories/{source['id']}/rollback", json={"version": 2})
        assert back.json()["related_ids"] == [shared["id"]]
        assert (await untie(bound, tie(source, shared, "related_to"))).status_code == 204
        assert (await bound.get(f"/v1/memories/{source['id']}")).json()["related_ids"] == []
        now = (await admin.get(f"/v1/memories/{shared['id']}")).json()
        assert (now["related_ids"], now["version"]) == ([], 1)
        assert (await admin.delete(f"/v1/memories/{shared['id']}")).status_code == 204
        assert await related(bound, source) == []


async def test_a_bound_key_sees_of_the_graph_only_what_it_may_read(keyed: World) -> None:
    mine = new_user("mine")
    async with (
        keyed.with_key(await keyed.new_key("admin", tenant="views")) as admin,
        keyed.with_key(await keyed.new_key("reader", tenant="views", user_id=mine)) as bound,
    ):
        own, foreign = await write(admin, mine, "mine"), await write(admin, new_user(), "a stranger's secret")
        shared = await write(admin, "*shared", new_user("pool"))
        assert (await admin.post("/v1/relations", json=tie(own, shared))).status_code == 201
        await keyed.sql(  # as an older version let an admin do
            "INSERT INTO memory_relations (source_id, target_id, relation_type, tenant) VALUES (%s, %s, 'caused_by', 'views')",
            UUID(own["id"]), UUID(foreign["id"]),
        )  # fmt: skip
        assert len(await related(admin, own)) == 2
        assert await related(bound, own) == [(shared["id"], "caused_by", "out", 1.0)]
        answer = await bound.get(f"/v1/memories/{own['id']}/related")
        assert answer.json()["total"] == 1
        assert "secret" not in answer.text
        problem_of(await bound.get(f"/v1/memories/{foreign['id']}/related"), 404)


async def test_related_ids_are_part_of_the_graph_from_the_write_on(client: httpx.AsyncClient, user: str) -> None:
    outage, disk = await pair(client, user)
    memory = await write(client, user, "the report", related_ids=[outage["id"], disk["id"]])
    assert {(i, k, d) for i, k, d, _ in await related(client, memory)} == {
        (one["id"], "related_to", "out") for one in (outage, disk)
    }
    assert await related(client, disk) == [(memory["id"], "related_to", "in", 1.0)]
    batch = {"memories": [{"user_id": user, "content": "another report", "infer": False, "related_ids": [disk["id"]]}]}
    (result,) = (await client.post("/v1/memories/batch", json=batch)).json()["results"]
    assert await related(client, result) == [(disk["id"], "related_to", "out", 1.0)]


async def test_related_ids_of_a_duplicate_are_not_lost(client: httpx.AsyncClient, user: str) -> None:
    outage, disk = await pair(client, user)
    body = {"user_id": user, "content": "the outage", "infer": False, "related_ids": [disk["id"], outage["id"]]}
    assert (await client.post("/v1/memories", json=body)).json()["duplicate_of"] == outage["id"]
    assert await related(client, outage) == [(disk["id"], "related_to", "out", 1.0)]


async def test_patching_related_ids_changes_the_graph_and_leaves_other_relations(
    client: httpx.AsyncClient, user: str
) -> None:
    outage, disk = await pair(client, user)
    memory = await write(client, user, "the report", related_ids=[outage["id"]])
    await client.post("/v1/relations", json=tie(memory, outage, "about"))
    await client.patch(f"/v1/memories/{memory['id']}", json={"related_ids": [disk["id"]]})
    kept = {(i, k) for i, k, _, _ in await related(client, memory)}
    assert kept == {(disk["id"], "related_to"), (outage["id"], "about")}
    await client.post(f"/v1/memories/{memory['id']}/rollback", json={"version": 1})
    kept = {(i, k) for i, k, _, _ in await related(client, memory)}
    assert kept == {(outage["id"], "related_to"), (outage["id"], "about")}


async def test_untying_what_related_ids_named_takes_it_out_there_too(client: httpx.AsyncClient, user: str) -> None:
    outage, disk = await pair(client, user)
    memory = await write(client, user, "the report", related_ids=[outage["id"], disk["id"]])
    assert (await untie(client, tie(memory, outage, "related_to"))).status_code == 204
    after = (await client.get(f"/v1/memories/{memory['id']}")).json()
    assert (after["related_ids"], after["version"]) == ([disk["id"]], 2)
    newest = (await client.get(f"/v1/memories/{memory['id']}/history")).json()["items"][0]
    assert (newest["cause"], set(newest["changes"])) == ("unrelate", {"related_ids"})


async def test_the_list_pages_over_everything_once(client: httpx.AsyncClient, user: str) -> None:
    hub = await write(client, user, "the hub")
    spokes = [await write(client, user, f"spoke {n}") for n in range(7)]
    many = await write(client, user, "names four at once", related_ids=[s["id"] for s in spokes[:4]] + [hub["id"]])
    for spoke in spokes:
        await client.post("/v1/relations", json=tie(hub, spoke))
    seen: list[str] = []
    cursor: str | None = None
    while True:
        params = {"limit": 3} | ({"cursor": cursor} if cursor else {})
        page = (await client.get(f"/v1/memories/{hub['id']}/related", params=params)).json()
        assert page["total"] == 8
        seen += [i["memory"]["id"] for i in page["items"]]
        if (cursor := page["next_cursor"]) is None:
            break
    assert sorted(seen) == sorted([many["id"], *(s["id"] for s in spokes)])
    assert seen[0] == spokes[-1]["id"]
    assert len(await related(client, many, limit=2)) == 2
    problem_of(await client.get(f"/v1/memories/{hub['id']}/related", params={"cursor": "x"}), 422, "cursor")
    problem_of(await client.get(f"/v1/memories/{hub['id']}/related", params={"limit": 0}), 422, "limit")


async def test_what_is_erased_or_expired_is_out_of_the_graph(world: World, user: str) -> None:
    client = world.client
    hub, gone, over = [await write(client, user, text) for text in ("hub", "goes", "runs out")]
    for other in (gone, over):
        await client.post("/v1/relations", json=tie(hub, other))
        await client.post("/v1/relations", json=tie(other, hub))
    await client.delete(f"/v1/memories/{gone['id']}")
    rows = "SELECT 1 FROM memory_relations WHERE %s IN (source_id, target_id)"
    assert await world.sql(rows, UUID(gone["id"])) == []
    await world.sql("UPDATE memory SET expires_at = now() WHERE id = %s", UUID(over["id"]))
    assert await related(client, hub) == []
    await client.delete(f"/v1/users/{user}")
    assert await world.sql(rows, UUID(hub["id"])) == []


async def test_tying_while_one_end_is_erased_leaves_no_loose_end(world: World, user: str) -> None:
    client = world.client
    for _ in range(10):
        outage, disk = await pair(client, user)
        named = {"user_id": user, "content": f"names {uuid4()}", "infer": False, "related_ids": [disk["id"]]}
        answers = await asyncio.gather(
            client.post("/v1/relations", json=tie(outage, disk)),
            client.post("/v1/memories", json=named),
            client.delete(f"/v1/memories/{disk['id']}"),
        )
        assert answers[0].status_code in (201, 404)
        assert answers[1].status_code in (201, 422)
        assert answers[2].status_code == 204
        rows = await world.sql("SELECT 1 FROM memory_relations WHERE target_id = %s", UUID(disk["id"]))
        assert rows == []
        await client.delete(f"/v1/memories/{outage['id']}")


async def test_two_patches_that_name_each_other_both_succeed(client: httpx.AsyncClient, user: str) -> None:
    one, other = await pair(client, user)
    for _ in range(5):
        answers = await asyncio.gather(
            client.patch(f"/v1/memories/{one['id']}", json={"related_ids": [other["id"]]}),
            client.patch(f"/v1/memories/{other['id']}", json={"related_ids": [one["id"]]}),
        )
        assert [a.status_code for a in answers] == [200, 200]
        await asyncio.gather(*(client.patch(f"/v1/memories/{m['id']}", json={"related_ids": []}) for m in (one, other)))
    assert await related(client, one) == []


async def test_memories_of_two_users_are_not_tied_whoever_asks(client: httpx.AsyncClient, user: str) -> None:
    mine, theirs = await write(client, user, "mine"), await write(client, new_user("other"), "theirs")
    shared = await write(client, "*shared", new_user("pool"))
    problem_of(await client.post("/v1/relations", json=tie(mine, theirs)), 422, "target_id")
    for one, other in ((mine, shared), (shared, theirs)):
        assert (await client.post("/v1/relations", json=tie(one, other))).status_code == 201
    assert {i for i, *_ in await related(client, mine)} == {shared["id"]}


async def test_related_ids_name_no_memory_of_another_user_whoever_asks(client: httpx.AsyncClient, user: str) -> None:
    mine, theirs = await write(client, user, "mine"), await write(client, new_user("other"), "theirs")
    shared = await write(client, "*shared", new_user("pool"))
    named = [mine["id"], shared["id"], theirs["id"]]
    body = {"user_id": user, "content": "the report", "infer": False, "related_ids": named}
    problem_of(await client.post("/v1/memories", json=body), 422, "related_ids.2")
    problem_of(await client.patch(f"/v1/memories/{mine['id']}", json={"related_ids": named[1:]}), 422, "related_ids.1")
    batch = {"memories": [body, {**body, "related_ids": named[:2]}]}
    bad, good = (await client.post("/v1/memories/batch", json=batch)).json()["results"]
    assert (bad["status"], bad["error"]["errors"][0]["field"]) == ("rejected", "related_ids.2")
    assert {i for i, *_ in await related(client, good)} == {mine["id"], shared["id"]}
    assert await related(client, theirs) == []


async def test_a_moved_file_ties_no_memories_of_two_users(client: httpx.AsyncClient, user: str) -> None:
    mine, theirs = await write(client, user, "mine"), await write(client, new_user("other"), "theirs")
    file = (await client.get("/v1/export", params={"user_id": user})).text.splitlines()
    edge = {
        "type": "relation",
        "user_id": user,
        "source_id": mine["id"],
        "target_id": theirs["id"],
        "relation_type": "knows",
        "created_at": mine["created_at"],
    }
    told = (await client.post("/v1/import", content="\n".join([*file[:-1], json.dumps(edge)]).encode())).json()
    assert [one["code"] for one in told["refused"]] == ["unknown_id"]
    assert await related(client, mine) == []


@pytest.fixture
async def small(backends: Backends) -> AsyncIterator[httpx.AsyncClient]:
    """A service in which a memory has at most three relations."""
    settings = backends.new_settings()
    async with serving(settings, tunables=numbers(settings, limits={"relations_max": 3})) as world:
        yield world.client


async def test_a_memory_has_so_many_relations_and_no_more_also_at_once(small: httpx.AsyncClient, user: str) -> None:
    hub, *spokes = [await write(small, user, f"memory {n}") for n in range(8)]
    edges = [tie(hub, one) if n % 2 else tie(one, hub) for n, one in enumerate(spokes)]
    answers = await asyncio.gather(*(small.post("/v1/relations", json=edge) for edge in edges))
    assert sorted(a.status_code for a in answers) == [201] * 3 + [422] * 4
    for edge, answer in zip(edges, answers, strict=True):
        if answer.status_code == 422:
            field = "source_id" if edge["source_id"] == hub["id"] else "target_id"
            assert "3 relations" in problem_of(answer, 422, field)["errors"][0]["message"]
    kept = next(edge for edge, answer in zip(edges, answers, strict=True) if answer.status_code == 201)
    assert (await small.post("/v1/relations", json={**kept, "weight": 0.5})).status_code == 200  # it is there already
    await untie(small, kept)
    assert (await small.post("/v1/relations", json=tie(spokes[0], hub, "again"))).status_code == 201
    assert len(await related(small, hub)) == 3


async def test_everybody_may_point_at_a_memory_of_the_pool_and_it_stays_open_to_others(
    small: httpx.AsyncClient, user: str
) -> None:
    shared, *pooled = [await write(small, "*shared", f"{new_user('pool')} {n}") for n in range(5)]
    for n in range(4):
        one = await write(small, new_user("somebody"), f"a memory {n}")
        assert (await small.post("/v1/relations", json=tie(one, shared))).status_code == 201
    batch = [
        {"user_id": user, "content": f"report {n}", "infer": False, "related_ids": [shared["id"]]} for n in range(5)
    ]
    results = (await small.post("/v1/memories/batch", json={"memories": batch})).json()["results"]
    assert [r["status"] for r in results] == ["created"] * 5
    own = [
        await small.post("/v1/relations", json=tie(shared, one)) for one in pooled
    ]  # its own are its keepers' to bound
    assert [a.status_code for a in own] == [201, 201, 201, 422]
    problem_of(own[-1], 422, "source_id")
    late = await write(small, user, "the latest", related_ids=[shared["id"]])
    assert await related(small, late) == [(shared["id"], "related_to", "out", 1.0)]
    full = [await small.post("/v1/relations", json=tie(late, one)) for one in pooled]  # whoever points has its bound
    assert [a.status_code for a in full] == [201, 201, 422, 422]
    problem_of(full[-1], 422, "source_id")


async def test_related_ids_name_no_memory_that_has_too_many_relations(small: httpx.AsyncClient, user: str) -> None:
    hub, other = await pair(small, user)
    items = [
        {"user_id": user, "content": f"report {n}", "infer": False, "related_ids": [other["id"], hub["id"]][n % 2 :]}
        for n in range(8)
    ]
    results = (await small.post("/v1/memories/batch", json={"memories": items})).json()["results"]
    assert [r["status"] for r in results] == ["created"] * 3 + ["rejected"] * 5
    assert results[3]["error"]["errors"][0]["field"] == "related_ids.0"
    assert results[4]["error"]["errors"][0]["field"] == "related_ids.1"
    body = {"user_id": user, "content": "one more", "infer": False, "related_ids": [hub["id"]]}
    problem_of(await small.post("/v1/memories", json=body), 422, "related_ids.0")
    problem_of(
        await small.patch(f"/v1/memories/{other['id']}", json={"related_ids": [hub["id"]]}), 422, "related_ids.0"
    )
    kept = (await small.get(f"/v1/memories/{results[1]['id']}")).json()["related_ids"]
    again = await small.patch(f"/v1/memories/{results[1]['id']}", json={"related_ids": kept, "category": "fact"})
    assert again.status_code == 200  # what it names already it may go on naming
    assert len(await related(small, hub)) == 3


async def test_a_moved_file_brings_no_more_relations_than_a_memory_can_have(
    small: httpx.AsyncClient, user: str
) -> None:
    hub, *spokes = [await write(small, user, f"memory {n}") for n in range(6)]
    for one in spokes[:3]:
        await small.post("/v1/relations", json=tie(hub, one))
    file = (await small.get("/v1/export", params={"user_id": user})).text.splitlines()[:-1]
    edges = [
        json.dumps({"type": "relation", "user_id": user, **tie(one, hub), "created_at": hub["created_at"]})
        for one in spokes[3:]
    ]
    told = (await small.post("/v1/import", content="\n".join([*file, *edges]).encode())).json()
    assert (told["imported"], [one["code"] for one in told["refused"]]) == (0, ["invalid", "invalid"])
    assert len(await related(small, hub)) == 3
