"""Does everything of a user survive a move?  Export and import: same tenant, another, another server, twice, broken off, hostile."""

# ruff: noqa: E501 - tables: one case reads best on one line

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from service_running import (
    Backends,
    World,
    found,
    is_uuid7,
    listed,
    new_user,
    numbers,
    problem_of,
    proxied,
    search,
    serving,
    until,
    write,
    write_many,
)
from test_fuzz import values, words

from memory_service.api.moving_schemas import (
    ConflictIn,
    ExperienceIn,
    ExperienceVersionIn,
    MemoryIn,
    RelationIn,
    VersionIn,
)
from memory_service.moving.settings import MovingNumbers
from memory_service.stores.postgres import exports

MODELS = {"memory": MemoryIn, "experience": ExperienceIn, "version": VersionIn, "experience_version": ExperienceVersionIn, "relation": RelationIn, "conflict": ConflictIn}  # fmt: skip
WET = [{"field": "sky", "operator": "eq", "value": "grey"}]
TIME = "2026-03-01T10:00:00Z"


async def exported(client: httpx.AsyncClient, user: str) -> list[dict[str, Any]]:
    """The lines of an export, which is whole."""
    answer = await client.get("/v1/export", params={"user_id": user})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert lines[0]["type"] == "header"
    assert lines[-1] == {"type": "end", "lines": len(lines) - 2}
    return lines


def body_of(lines: Iterable[Any]) -> bytes:
    return b"".join((one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n" for one in lines)


async def sent(client: httpx.AsyncClient, lines: Iterable[Any], **params: str) -> dict[str, Any]:
    answer = await client.post("/v1/import", content=body_of(lines), params=params)
    assert answer.status_code == 200, answer.text
    assert set(answer.json()) == {"imported", "unchanged", "refused", "ids"}
    return answer.json()  # type: ignore[no-any-return]


def things(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without header and end."""
    return lines[1:-1]


def renamed(lines: list[dict[str, Any]], ids: dict[str, str]) -> list[dict[str, Any]]:
    text = json.dumps(lines)
    for old, new in ids.items():
        text = text.replace(old, new)
    return json.loads(text)  # type: ignore[no-any-return]


def in_order(lines: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(one, sort_keys=True) for one in lines)


async def a_life(world: World, client: httpx.AsyncClient, user: str, tenant: str = "default") -> dict[str, Any]:
    """A user with something in every table and every state; the ids."""
    old = await write(
        client, user, "The staging port is 22.", kind="semantic", tags=["db"], metadata={"深": [1, None, True]}
    )
    new = await write(
        client,
        user,
        "部署端口是 49222。",
        kind="semantic",
        entities=[{"name": "端口", "type": "thing"}],
        related_ids=[old["id"]],
    )
    call = {"tool": "http_get", "arguments": {"url": "/x"}, "status": "error", "error": "404", "duration_ms": 1.5}
    event = await write(
        client,
        user,
        "The call failed.",
        kind="episodic",
        tool_calls=[call],
        outcome="failure",
        occurred_at="2024-02-29T23:59:59.123456+05:30",
        session_id="s/1",
        task_id="t 1",
        agent_id="代理",
    )
    for n in range(3):
        await client.patch(
            f"/v1/memories/{old['id']}", json={"summary": f"the port, take {n}", "related_ids": [new["id"]]}
        )
    conflict = str(uuid4())
    await world.sql(
        "UPDATE memory SET state = 'superseded', superseded_by = %s, valid_to = now() WHERE id = %s",
        new["id"],
        old["id"],
    )
    await world.sql(
        "UPDATE memory SET state = 'cold', heat = 0.123456789012345, heat_at = '2025-01-01T00:00:00.000001Z', pinned = true, access_count = 7, last_accessed_at = now(), conflict_id = %s WHERE id = %s",
        conflict,
        event["id"],
    )
    await world.sql(
        "UPDATE memory SET source_memory_ids = ARRAY[%s, %s]::uuid[], state = 'compressed' WHERE id = %s",
        old["id"],
        new["id"],
        event["id"],
    )
    await world.sql(
        "INSERT INTO memory_relations (source_id, target_id, relation_type, weight, tenant, created_at) VALUES (%s, %s, 'caused_by', 0.25, %s, '2025-05-05T05:05:05Z')",
        event["id"],
        old["id"],
        tenant,
    )
    await world.sql(
        "INSERT INTO memory_conflict (id, tenant, user_id, old_id, new_id, reason, created_at) VALUES (%s, %s, %s, %s, %s, 'two ports', now())",
        conflict,
        tenant,
        user,
        old["id"],
        new["id"],
    )
    first = (
        await client.post(
            "/v1/experiences",
            json={
                "user_id": user,
                "conditions": WET,
                "action": "take an umbrella",
                "confidence": 0.5,
                "source_memory_ids": [event["id"]],
            },
        )
    ).json()["experience"]
    second = (
        await client.post(
            "/v1/experiences", json={"user_id": user, "conditions": WET, "action": "stay at home", "confidence": 0.8}
        )
    ).json()["experience"]
    for outcome in ("success", "failure"):
        await client.post(f"/v1/experiences/{second['id']}/feedback", json={"outcome": outcome})
    return {"old": old["id"], "new": new["id"], "event": event["id"], "conflict": conflict, "first": first["id"], "second": second["id"]}  # fmt: skip


LIFE_COUNTS = {"memory": 3, "experience": 2, "version": 3, "experience_version": 5, "relation": 3, "conflict": 1}


async def test_an_export_has_a_header_every_row_and_an_end(world: World, client: httpx.AsyncClient, user: str) -> None:
    ids = await a_life(world, client, user)
    lines = await exported(client, user)
    header = lines[0]
    assert (header["format"], header["format_version"], header["user_id"]) == ("hindsight-export", 1, user)
    assert header["exported_at"].endswith("Z")
    assert header["model"]["model"]
    assert header["counts"] == LIFE_COUNTS
    assert {name: sum(one["type"] == name for one in lines) for name in LIFE_COUNTS} == LIFE_COUNTS
    event = next(one for one in lines if one.get("id") == ids["event"])
    assert (event["heat"], event["heat_at"]) == (0.123456789012345, "2025-01-01T00:00:00.000001Z")
    assert event["occurred_at"] == "2024-02-29T18:29:59.123456Z"
    assert '"tenant"' not in json.dumps(lines)


def test_every_exported_field_is_known_to_the_import() -> None:
    for name, model in MODELS.items():
        assert set(exports.NAMES[name]) | {"type"} == set(model.model_fields) - (
            {"task_id"} if name == "version" else set()
        ), name


async def test_no_column_of_what_is_exported_is_left_out(world: World) -> None:
    untold = {
        "memory": {"tenant", "content_hash", "search_terms", "term_count"},
        "experience": {"tenant", "condition_hash", "search_terms", "term_count", "changed_seq"},
    }
    tables = {
        "memory": "memory",
        "experience": "experience",
        "version": "memory_version",
        "experience_version": "experience_version",
        "relation": "memory_relations",
        "conflict": "memory_conflict",
    }
    for name, table in tables.items():
        columns = {
            row[0]
            for row in await world.sql(
                "SELECT column_name FROM information_schema.columns WHERE table_name = %s", table
            )
        }
        told = {
            {"version": {"id": "memory_id"}, "experience_version": {"id": "experience_id"}}.get(name, {}).get(one, one)
            for one in exports.NAMES[name]
        }
        assert columns - untold.get(name, {"tenant"}) == told - ({"user_id"} if name == "relation" else set()), name


async def test_importing_into_the_same_tenant_changes_nothing(
    world: World, client: httpx.AsyncClient, user: str
) -> None:
    await a_life(world, client, user)
    before = await exported(client, user)
    told = await sent(client, before)
    assert told == {"imported": 0, "unchanged": len(before) - 2, "refused": [], "ids": {}}
    assert things(await exported(client, user)) == things(before)


async def test_another_server_gets_the_same_ids_and_exports_the_same_lines(
    world: World, client: httpx.AsyncClient, backends: Backends, user: str
) -> None:
    ids = await a_life(world, client, user)
    before = await exported(client, user)
    async with serving(backends.new_settings()) as other:
        assert await sent(other.client, before) == {
            "imported": len(before) - 2,
            "unchanged": 0,
            "refused": [],
            "ids": {},
        }
        assert await sent(other.client, before) == {
            "imported": 0,
            "unchanged": len(before) - 2,
            "refused": [],
            "ids": {},
        }
        after = await exported(other.client, user)
        assert things(after) == things(before)
        assert "部署端口是 49222。" in await found(other.client, user, "部署端口", mode="keyword")
        await until(lambda: _nothing_pending(other))
        assert "部署端口是 49222。" in await found(other.client, user, "部署端口是 49222。", mode="vector")
        query = await other.client.post("/v1/experiences/query", json={"user_id": user, "state": {"sky": "grey"}})
        assert [(r["id"], r["match"]) for r in query.json()["results"]] == [(ids["second"], "exact")]
        history = (await other.client.get(f"/v1/experiences/{ids['second']}/history")).json()
        assert [one["cause"] for one in history["items"]] == ["feedback_failure", "feedback_success", "created"]


async def _nothing_pending(world: World) -> bool:
    return await world.sql("SELECT count(*) FROM index_outbox") == [(0,)]


async def test_another_tenant_of_this_server_gets_new_ids_and_everything_follows(keyed: World) -> None:
    user = new_user()
    async with (
        keyed.with_key(await keyed.new_key("admin", tenant="from")) as one,
        keyed.with_key(await keyed.new_key("admin", tenant="to")) as other,
    ):
        ids = await a_life(keyed, one, user, "from")
        before = await exported(one, user)
        told = await sent(other, before)
        assert (told["imported"], told["unchanged"], told["refused"]) == (len(before) - 2, 0, [])
        assert set(told["ids"]) == set(ids.values())
        assert all(is_uuid7(new) for new in told["ids"].values())
        after = await exported(other, user)
        assert in_order(things(after)) == in_order(renamed(things(before), told["ids"]))
        again = await sent(other, before)
        assert (again["imported"], again["unchanged"], again["ids"]) == (0, len(before) - 2, told["ids"])
        assert things(await exported(one, user)) == things(before)


async def test_chunks_of_one_line_each_lead_to_the_same_as_one_body(keyed: World) -> None:
    user = new_user()
    async with (
        keyed.with_key(await keyed.new_key("admin", tenant="whole")) as one,
        keyed.with_key(await keyed.new_key("admin", tenant="parts")) as other,
    ):
        await a_life(keyed, one, user, "whole")
        before = await exported(one, user)
        ids: dict[str, str] = {}
        for line in before:
            told = await sent(other, [line])
            assert told["refused"] == []
            ids |= told["ids"]
        assert in_order(things(await exported(other, user))) == in_order(renamed(things(before), ids))


async def test_a_file_can_be_imported_for_another_user_and_then_is_somebody_elses(
    world: World, client: httpx.AsyncClient, user: str
) -> None:
    await a_life(world, client, user)
    before, heir = await exported(client, user), new_user("heir")
    told = await sent(client, before, user_id=heir)
    assert (told["imported"], told["refused"], len(told["ids"])) == (len(before) - 2, [], 6)
    after = await exported(client, heir)
    assert in_order(things(after)) == in_order(renamed(things(before), {**told["ids"], user: heir}))
    assert (await sent(client, before, user_id=heir))["imported"] == 0
    assert things(await exported(client, user)) == things(before)


async def test_the_higher_version_wins_and_what_it_replaces_is_kept(client: httpx.AsyncClient, user: str) -> None:
    memory = await write(client, user, "version one")
    early = await exported(client, user)
    await client.patch(f"/v1/memories/{memory['id']}", json={"content": "version two"})
    late = await exported(client, user)
    assert (await sent(client, early))["imported"] == 0
    (there,) = await listed(client, user)
    assert there["content"] == "version two"
    newer = {**next(one for one in late if one["type"] == "memory"), "version": 5, "content": "version five"}
    assert (await sent(client, [newer]))["imported"] == 1
    (there,) = await listed(client, user)
    assert (there["content"], there["version"]) == ("version five", 5)
    kept = [one for one in await exported(client, user) if one["type"] == "version"]
    assert [(one["version"], one["snapshot"]["content"], one["cause"]) for one in kept][-1] == (
        2,
        "version two",
        "imported",
    )
    assert await found(client, user, "five", mode="keyword") == ["version five"]


async def test_what_was_erased_here_is_refused_and_so_is_what_belongs_to_it(
    world: World, client: httpx.AsyncClient, user: str
) -> None:
    ids = await a_life(world, client, user)
    before = await exported(client, user)
    assert (await client.delete(f"/v1/memories/{ids['old']}")).status_code == 204
    assert (await client.delete(f"/v1/experiences/{ids['second']}")).status_code == 204
    told = await sent(client, before)
    refused = {(r["id"], r["code"]) for r in told["refused"]}
    assert (ids["old"], "gone") in refused
    assert (ids["second"], "gone") in refused
    assert {code for _, code in refused} == {"gone"}
    assert all(
        before[r["line"] - 1].get("id", before[r["line"] - 1].get("source_id")) == r["id"] for r in told["refused"]
    )
    assert ids["old"] not in json.dumps(await exported(client, user))
    erased = await client.delete(f"/v1/users/{user}")
    assert erased.status_code == 200
    told = await sent(client, before)
    assert (told["imported"], told["unchanged"]) == (0, 0)
    assert {r["code"] for r in told["refused"]} == {"gone"}
    assert await listed(client, user) == []


async def test_the_erased_of_another_tenant_stays_away_from_this_one_too_when_it_was_imported(keyed: World) -> None:
    user = new_user()
    async with (
        keyed.with_key(await keyed.new_key("admin", tenant="a1")) as one,
        keyed.with_key(await keyed.new_key("admin", tenant="a2")) as other,
    ):
        memory = await write(one, user, "twice here")
        before = await exported(one, user)
        twin = (await sent(other, before))["ids"][memory["id"]]
        await one.delete(f"/v1/users/{user}")  # the owner erases its own: the copy is the other tenant's
        assert [m["id"] for m in await listed(other, user)] == [twin]
        assert (await sent(other, before))["unchanged"] == 1
        await other.delete(f"/v1/memories/{twin}")
        told = await sent(other, before)
        assert [(r["id"], r["code"]) for r in told["refused"]] == [(memory["id"], "gone")]


async def test_one_lesson_stays_active_for_the_same_conditions_whatever_is_imported(
    client: httpx.AsyncClient, backends: Backends
) -> None:
    user, rival = new_user(), new_user("rival")

    async def lesson(whose: str, action: str, confidence: float) -> str:
        answer = await client.post(
            "/v1/experiences", json={"user_id": whose, "conditions": WET, "action": action, "confidence": confidence}
        )
        return str(answer.json()["experience"]["id"])

    weak, strong, middle = (
        await lesson(user, "weak", 0.3),
        await lesson(rival, "strong", 0.9),
        await lesson(new := new_user(), "middle", 0.6),
    )
    async with serving(backends.new_settings()) as other:
        for whose in (user, rival, new):
            told = await sent(other.client, await exported(client, whose), user_id=user)
            assert told["refused"] == []
            state = await other.client.post("/v1/experiences/query", json={"user_id": user, "state": {"sky": "grey"}})
            assert len(state.json()["results"]) == 1
        rows = {
            str(i): (s, str(b) if b else None)
            for i, s, b in await other.sql("SELECT id, status, superseded_by FROM experience")
        }
        assert rows == {weak: ("superseded", strong), strong: ("active", None), middle: ("superseded", strong)}
        assert state.json()["results"][0]["action"] == "strong"


async def test_a_broken_off_import_keeps_its_slices_and_the_next_one_completes_it(
    world: World, client: httpx.AsyncClient, backends: Backends, user: str
) -> None:
    await write_many(client, user, [f"memory number {n}" for n in range(120)])
    before = await exported(client, user)
    settings = backends.new_settings()
    async with (
        proxied(settings.database_url) as proxy,
        serving(settings.model_copy(update={"database_url": proxy.url})) as other,
    ):
        stored, seen = other.runtime.imports._stored, 0

        async def dying(*arguments: Any) -> Any:
            nonlocal seen
            seen += 1
            if seen == 3:
                await proxy.cut()
            return await stored(*arguments)

        object.__setattr__(
            other.runtime.imports,
            "numbers",
            other.runtime.imports.numbers.model_copy(update={"import_slice_lines": 25}),
        )
        other.runtime.imports._stored = dying  # type: ignore[method-assign]
        problem_of(await other.client.post("/v1/import", content=body_of(before)), 503)
        await proxy.heal()
        assert await other.sql("SELECT count(*) FROM memory") == [
            (49,)
        ]  # two slices, of which one begins with the header
        told = await sent(other.client, before)
        assert (told["imported"], told["unchanged"], told["refused"]) == (71, 49, [])
        assert things(await exported(other.client, user)) == things(before)


async def test_the_same_file_by_eight_at_once_is_stored_once(
    client: httpx.AsyncClient, backends: Backends, world: World, user: str
) -> None:
    await a_life(world, client, user)
    before = await exported(client, user)
    async with serving(backends.new_settings()) as other:
        told = await asyncio.gather(*(sent(other.client, before) for _ in range(8)))
        assert sum(one["imported"] for one in told) == len(before) - 2
        assert all(one["refused"] == [] for one in told)
        assert things(await exported(other.client, user)) == things(before)


async def test_two_tenants_that_import_the_same_new_ids_at_once_both_succeed(
    keyed: World, client: httpx.AsyncClient, user: str
) -> None:
    await write_many(client, user, [f"shared file {n}" for n in range(30)])
    before = await exported(client, user)
    async with (
        keyed.with_key(await keyed.new_key("admin", tenant="race1")) as one,
        keyed.with_key(await keyed.new_key("admin", tenant="race2")) as other,
    ):
        told = await asyncio.gather(sent(one, before), sent(other, before))
        assert [(t["imported"], t["refused"]) for t in told] == [(30, []), (30, [])]
        assert sorted(len(t["ids"]) for t in told) == [0, 30]


async def test_an_idempotency_key_gives_the_first_answer_again(client: httpx.AsyncClient, user: str) -> None:
    body, headers = body_of([{"content": "once", "kind": "semantic"}]), {"Idempotency-Key": str(uuid4())}
    one, two = [
        await client.post("/v1/import", params={"user_id": user}, content=body, headers=headers) for _ in range(2)
    ]
    assert (one.json()["imported"], two.text, two.headers["idempotency-replayed"]) == (1, one.text, "true")
    assert (
        problem_of(
            await client.post("/v1/import", params={"user_id": user}, content=body + b"{}", headers=headers), 422
        )["code"]
        == "idempotency_mismatch"
    )


MEMORY = {"type": "memory", "id": "019a0000-0000-7000-8000-000000000001", "kind": "semantic", "user_id": "u", "content": "c", "summary": "s", "occurred_at": TIME, "created_at": TIME, "updated_at": TIME}  # fmt: skip
ITSELF = str(uuid4())
LEDGER = [{"at": TIME, "cause": "given", "delta": 0.9}]
LESSON = {"type": "experience", "id": "019a0000-0000-7000-8000-000000000002", "user_id": "u", "conditions": WET, "action": "a", "origin": "feedback", "confidence": 0.9, "confidence_ledger": LEDGER, "created_at": TIME, "updated_at": TIME}  # fmt: skip
DEEP = b'{"type":"memory","metadata":' + b'{"a":' * 5000 + b"1" + b"}" * 5001
BAD = [
    (b"{", "malformed"), (b"\xff\xfe", "malformed"), (b"[1]", "invalid"), (b"null", "invalid"), (b'"x"', "invalid"), (DEEP, "invalid"),
    ({}, "unknown_type"), ({"type": "nope"}, "unknown_type"), ({"type": 1}, "unknown_type"), ({"type": None, "content": "x"}, "unknown_type"), ({"type": ["memory"]}, "unknown_type"),
    ({"type": "header", "format": "hindsight-export", "format_version": 2}, "unsupported_format"), ({"type": "header"}, "invalid"),
    ({**MEMORY, "id": "no"}, "invalid"), ({**MEMORY, "id": None}, "invalid"), ({**MEMORY, "id": 7}, "invalid"), ({**MEMORY, "kind": "auto"}, "invalid"), ({**MEMORY, "more": 1}, "invalid"), ({**MEMORY, "tenant": "x"}, "invalid"),
    ({**MEMORY, "content": ""}, "invalid"), ({**MEMORY, "content": "\u200b "}, "invalid"), ({**MEMORY, "content": "a\0b"}, "invalid"), ({**MEMORY, "content": "\ud800"}, "invalid"), ({**MEMORY, "content": "x" * 262_145}, "too_large"), ({**MEMORY, "content": "汉" * 90_000}, "too_large"),
    ({**MEMORY, "metadata": {"a": "x" * 70_000}}, "too_large"), ({**MEMORY, "metadata": {"a\0": 1}}, "invalid"), ({**MEMORY, "metadata": {"n": 2**63}}, "invalid"), (json.dumps({**MEMORY, "heat": float("nan")}).encode(), "invalid"), ({**MEMORY, "heat": -1}, "invalid"), (json.dumps({**MEMORY, "heat": 1.0}).replace("1.0", "1e999").encode(), "invalid"),
    ({**MEMORY, "version": 0}, "invalid"), ({**MEMORY, "version": 2**31}, "invalid"), ({**MEMORY, "version": True}, "invalid"), ({**MEMORY, "access_count": -1}, "invalid"), ({**MEMORY, "importance": 2}, "invalid"), ({**MEMORY, "state": "dead"}, "invalid"), ({**MEMORY, "created_at": "yesterday"}, "invalid"),
    ({**MEMORY, "user_id": ""}, "invalid"), ({**MEMORY, "user_id": "a\nb"}, "invalid"), ({**MEMORY, "user_id": 5}, "invalid"), ({**MEMORY, "user_id": "x" * 129}, "invalid"), ({**MEMORY, "tags": ["x"] * 65}, "invalid"), ({**MEMORY, "related_ids": ["x"]}, "invalid"), ({**MEMORY, "tool_calls": [{}]}, "invalid"),
    ({**LESSON, "conditions": []}, "invalid"), ({**LESSON, "conditions": [{"field": "a", "operator": "like", "value": 1}]}, "invalid"), ({**LESSON, "conditions": [{"field": "a", "operator": "matches", "value": "(("}]}, "invalid"), ({**LESSON, "conditions": WET * 13}, "invalid"),
    ({**LESSON, "confidence_ledger": []}, "invalid"), ({**LESSON, "confidence_ledger": [{"at": "x", "cause": "given", "delta": 0.9}]}, "invalid"), ({**LESSON, "confidence": 0.5}, "invalid"), ({**LESSON, "action": "x" * 8_001}, "too_large"), ({**LESSON, "status": "gone"}, "invalid"), ({**LESSON, "condition_hash": "00"}, "invalid"),
    ({"type": "relation", "user_id": "u", "source_id": str(uuid4()), "target_id": str(uuid4()), "relation_type": "x", "created_at": TIME}, "unknown_id"), ({"type": "relation", "user_id": "u", "source_id": str(uuid4()), "target_id": str(uuid4()), "relation_type": "", "created_at": TIME}, "invalid"),
    ({"type": "version", "id": str(uuid4()), "version": 1, "user_id": "u", "at": TIME, "actor": "a", "cause": "c", "snapshot": {"content": "x"}}, "unknown_id"), ({"type": "version", "id": str(uuid4()), "version": 1, "user_id": "u", "at": TIME, "actor": "a", "cause": "c", "snapshot": {"content": ["x"]}}, "invalid"), ({"type": "version", "id": str(uuid4()), "version": 1, "user_id": "u", "at": TIME, "actor": "a", "cause": "c", "snapshot": {"content": "x"}, "changes": {"content": 1}}, "invalid"),
    ({"type": "conflict", "id": str(uuid4()), "user_id": "u", "old_id": str(uuid4()), "new_id": str(uuid4()), "reason": "r", "created_at": TIME}, "unknown_id"), ({"type": "conflict", "id": str(uuid4()), "user_id": "u", "reason": "r", "created_at": TIME}, "invalid"),
    ({**MEMORY, "superseded_by": MEMORY["id"]}, "invalid"), ({**MEMORY, "related_ids": [MEMORY["id"]]}, "invalid"), ({**MEMORY, "source_memory_ids": [MEMORY["id"]]}, "invalid"), ({**MEMORY, "conflict_id": MEMORY["id"]}, "invalid"),
    ({**MEMORY, "valid_from": "2026-01-02T00:00:00Z", "valid_to": "2026-01-01T00:00:00Z"}, "invalid"), ({**MEMORY, "expires_at": "2020-01-01T00:00:00Z"}, "expired"), ({"content": "a seed", "expires_at": "2020-01-01T00:00:00Z"}, "expired"), ({**LESSON, "superseded_by": LESSON["id"]}, "invalid"),
    ({"type": "relation", "user_id": "u", "source_id": ITSELF, "target_id": ITSELF, "relation_type": "x", "created_at": TIME}, "invalid"), ({"type": "conflict", "id": str(uuid4()), "user_id": "u", "old_id": ITSELF, "new_id": ITSELF, "reason": "r", "created_at": TIME}, "invalid"),
    ({"type": "conflict", "id": str(uuid4()), "user_id": "u", "old_id": ITSELF, "new_id": str(uuid4()), "reason": "r", "created_at": TIME, "state": "resolved", "resolved_at": TIME}, "invalid"), ({"type": "conflict", "id": str(uuid4()), "user_id": "u", "old_id": ITSELF, "new_id": str(uuid4()), "reason": "r", "created_at": TIME, "resolution": "new"}, "invalid"),
    ({"content": "a seed", "id": str(uuid4())}, "invalid"), ({"content": ""}, "invalid"), ({"content": 1}, "invalid"), ({"content": "x", "tags": "x"}, "invalid"), ({"conditions": WET}, "invalid"), ({"conditions": "x", "action": "y"}, "invalid"),
]  # fmt: skip


async def test_bad_lines_are_told_one_by_one_and_never_stop_the_rest(client: httpx.AsyncClient, user: str) -> None:
    lines: list[Any] = []
    for n, (bad, _) in enumerate(BAD):
        whose = (
            {"user_id": user}
            if isinstance(bad, dict) and bad.get("user_id", "u") == "u" and bad.get("type") != "header"
            else {}
        )
        lines += [
            {**bad, **whose}
            if isinstance(bad, dict)
            else bad.replace(b'"user_id": "u"', json.dumps({"user_id": user})[1:-1].encode()),
            {"user_id": user, "content": f"good line {n}", "infer": False},
        ]
    told = await sent(client, lines)
    assert [(r["line"], r["code"]) for r in told["refused"]] == [(2 * n + 1, code) for n, (_, code) in enumerate(BAD)]
    assert all(r["detail"] for r in told["refused"])
    assert told["imported"] == len(BAD)
    assert (await client.get("/v1/memories", params={"user_id": user})).json()["total"] == len(BAD)
    assert (await client.get("/v1/experiences", params={"user_id": user})).json()["total"] == 0


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ({**MEMORY, "superseded_by": MEMORY["id"]}, "superseded_by"),
        ({**MEMORY, "valid_from": "2026-01-02T00:00:00Z", "valid_to": "2026-01-01T00:00:00Z"}, "valid_to"),
        ({**MEMORY, "expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
        (
            {"type": "conflict", "id": ITSELF, "old_id": ITSELF, "new_id": ITSELF, "reason": "r", "created_at": TIME},
            "new_id",
        ),
        (
            {
                "type": "conflict",
                "id": ITSELF,
                "old_id": ITSELF,
                "new_id": MEMORY["id"],
                "reason": "r",
                "created_at": TIME,
                "state": "resolved",
                "resolution": "new",
            },
            "resolved_at",
        ),
    ],
)
async def test_a_line_that_contradicts_itself_is_told_by_its_field(
    client: httpx.AsyncClient, user: str, line: dict[str, Any], field: str
) -> None:
    told = await sent(client, [{"user_id": user, "content": "good"}, {**line, "user_id": user}])
    assert told["imported"] == 1
    ((number, detail),) = [(one["line"], one["detail"]) for one in told["refused"]]
    assert (number, detail.split(":")[0]) == (2, field)


async def test_a_version_line_can_not_stand_in_the_way_of_a_later_change(client: httpx.AsyncClient, user: str) -> None:
    memory = await write(client, user, "as it is")
    lesson = (await client.post("/v1/experiences", json={"user_id": user, "conditions": WET, "action": "a"})).json()[
        "experience"
    ]
    ahead = {"user_id": user, "at": TIME, "actor": "a", "cause": "c"}
    told = await sent(client, [
        {"type": "version", "id": memory["id"], "version": 1, "snapshot": {"content": "false"}, **ahead},
        {"type": "experience_version", "id": lesson["id"], "version": 2, "snapshot": {}, **ahead},
        {"type": "version", "id": lesson["id"], "version": 1, "snapshot": {"content": "x"}, **ahead},
    ])  # fmt: skip
    assert [r["code"] for r in told["refused"]] == ["invalid", "invalid", "unknown_id"]
    assert (await client.patch(f"/v1/memories/{memory['id']}", json={"content": "changed"})).status_code == 200
    assert (
        await client.post(f"/v1/experiences/{lesson['id']}/feedback", json={"outcome": "success"})
    ).status_code == 200


async def test_an_id_that_is_something_else_is_refused(client: httpx.AsyncClient, user: str) -> None:
    memory = await write(client, user, "semantic or not", kind="semantic")
    told = await sent(
        client,
        [
            {**MEMORY, "id": memory["id"], "kind": "episodic", "version": 9, "user_id": user},
            {**LESSON, "id": memory["id"], "version": 9, "user_id": user},
        ],
    )
    assert [r["code"] for r in told["refused"]] == ["conflict", "conflict"]
    assert (await client.get(f"/v1/memories/{memory['id']}")).json()["version"] == 1


async def test_seeds_without_ids_are_imported_once_and_stay_away_once_erased(
    client: httpx.AsyncClient, user: str
) -> None:
    seeds = [
        {"content": "Dates in reports are ISO 8601."}, {"content": "日志文件用 UTF-8 编码。", "kind": "semantic", "tags": ["日志"]},
        {"conditions": WET, "action": "take an umbrella", "tags": ["weather"]},
    ]  # fmt: skip
    assert (await sent(client, seeds, user_id=user))["imported"] == 3
    before = await exported(client, user)
    assert await sent(client, seeds, user_id=user) == {"imported": 0, "unchanged": 3, "refused": [], "ids": {}}
    assert things(await exported(client, user)) == things(before)
    said = await client.post("/v1/memories", json={"user_id": user, "content": "Dates in reports are ISO 8601."})
    assert said.json()["status"] == "duplicate"
    lesson = next(one for one in before if one["type"] == "experience")
    assert [v["version"] for v in (await client.get(f"/v1/experiences/{lesson['id']}/history")).json()["items"]] == [1]
    assert all(is_uuid7(one["id"]) for one in before if one["type"] in ("memory", "experience"))
    for one in before:
        if one["type"] in ("memory", "experience"):
            path = "memories" if one["type"] == "memory" else "experiences"
            assert (await client.delete(f"/v1/{path}/{one['id']}")).status_code == 204
    assert [r["code"] for r in (await sent(client, seeds, user_id=user))["refused"]] == ["gone"] * 3


async def test_a_seed_that_was_said_already_is_not_stored_beside_it(client: httpx.AsyncClient, user: str) -> None:
    await write(client, user, "The build  takes TEN minutes.")
    told = await sent(
        client, [{"content": "the build takes ten minutes."}, {"content": "x y"}, {"content": "X  Y"}], user_id=user
    )
    assert (told["imported"], told["unchanged"]) == (1, 2)


async def test_who_may_export_and_import(keyed: World) -> None:
    mine = new_user("mine")
    rights = {
        ("reader", None): (403, 403), ("writer", None): (403, 403), ("admin", None): (200, 200),
        ("reader", mine): (403, 403), ("writer", mine): (200, 403), ("admin", mine): (200, 200),
    }  # fmt: skip
    for (role, user), expected in rights.items():
        async with keyed.with_key(await keyed.new_key(role, tenant="rights", user_id=user)) as client:  # type: ignore[arg-type]
            one = await client.get("/v1/export", params={"user_id": mine})
            two = await client.post("/v1/import", params={"user_id": mine}, content=b"")
            assert (one.status_code, two.status_code) == expected, (role, user)
    async with keyed.with_key(await keyed.new_key("admin", tenant="rights", user_id=mine)) as bound:
        problem_of(await bound.get("/v1/export", params={"user_id": "other"}), 403)
        problem_of(await bound.post("/v1/import", params={"user_id": "other"}, content=b""), 403)
        told = await sent(
            bound,
            [
                {"content": "own", "kind": "semantic"},
                {"user_id": "other", "content": "x"},
                {**MEMORY, "user_id": "other"},
            ],
        )
        assert (told["imported"], [r["code"] for r in told["refused"]]) == (1, ["forbidden", "forbidden"])


async def test_a_bound_admin_can_not_reach_another_users_memory_by_its_id(keyed: World) -> None:
    mine, other = new_user("mine"), new_user("other")
    async with (
        keyed.with_key(await keyed.new_key("admin", tenant="reach")) as admin,
        keyed.with_key(await keyed.new_key("admin", tenant="reach", user_id=mine)) as bound,
    ):
        theirs = await write(admin, other, "theirs alone")
        hostile = {**MEMORY, "id": theirs["id"], "user_id": mine, "version": 9, "content": "planted"}
        told = await sent(bound, [
            hostile,
            {"type": "relation", "user_id": mine, "source_id": theirs["id"], "target_id": theirs["id"], "relation_type": "x", "created_at": TIME},
            {"type": "version", "id": theirs["id"], "version": 1, "user_id": mine, "at": TIME, "actor": "a", "cause": "c", "snapshot": {"content": "x"}},
        ])  # fmt: skip
        assert set(told["ids"]) == {theirs["id"]}
        assert (await admin.get(f"/v1/memories/{theirs['id']}")).json() == {
            **theirs,
            "index": (await admin.get(f"/v1/memories/{theirs['id']}")).json()["index"],
        }
        assert await keyed.sql("SELECT count(*) FROM memory_relations WHERE source_id = %s", theirs["id"]) == [(0,)]
        assert await keyed.sql("SELECT count(*) FROM memory_version WHERE memory_id = %s", theirs["id"]) == [(0,)]


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({}, "user_id"),
        ({"user_id": ""}, "user_id"),
        ({"user_id": "a", "limit": "1"}, "limit"),
        ({"user_id": "a\0"}, "user_id"),
    ],
)
async def test_a_bad_address_of_an_export_names_the_parameter(
    client: httpx.AsyncClient, params: dict[str, str], field: str
) -> None:
    problem_of(await client.get("/v1/export", params=params), 422, field)


async def test_too_long_a_body_is_413(client: httpx.AsyncClient, user: str) -> None:
    problem_of(await client.post("/v1/import", content=b"\n" * 20_001), 413)
    problem_of(await client.post("/v1/import", content=b"x" * 16_777_217), 413)
    told = await sent(client, [b"", b"  ", b"\xef\xbb\xbf".replace(b"\xef\xbb\xbf", b"")])
    assert told == {"imported": 0, "unchanged": 0, "refused": [], "ids": {}}


async def test_windows_line_ends_and_a_byte_order_mark_are_no_fault(client: httpx.AsyncClient, user: str) -> None:
    body = b"\xef\xbb\xbf" + b'{"content": "one"}\r\n\r\n{"content": "two"}'
    answer = await client.post("/v1/import", content=body, params={"user_id": user})
    assert (answer.json()["imported"], answer.json()["refused"]) == (2, [])


async def test_what_expired_and_what_others_have_is_in_no_export(client: httpx.AsyncClient, user: str) -> None:
    await write(client, user, "for now", expires_at="2200-01-01T00:00:00Z")
    gone = await write(client, user, "not for long", expires_at="2200-01-01T00:00:00Z")
    await write(client, new_user(), "another's")
    await client.patch(f"/v1/memories/{gone['id']}", json={"content": "hardly any more"})
    await client.patch(f"/v1/memories/{gone['id']}", json={"expires_at": "2020-01-01T00:00:00Z"})
    lines = await exported(client, user)
    assert [one["type"] for one in lines] == ["header", "memory", "end"]


async def test_an_empty_user_has_a_header_and_an_end(client: httpx.AsyncClient, user: str) -> None:
    assert [one["type"] for one in await exported(client, user)] == ["header", "end"]


async def test_an_export_is_of_one_moment_however_slowly_it_is_taken(backends: Backends, user: str) -> None:
    settings = backends.new_settings()
    async with serving(settings, tunables=_moving(settings, export_page_rows=5)) as world:
        await write_many(world.client, user, [f"steady {n}" for n in range(60)])
        caller = await world.runtime.access.caller(None)
        pieces = await world.runtime.exports.open(caller, user)
        text = await anext(pieces)
        await world.client.delete(f"/v1/users/{user}")
        async for piece in pieces:
            text += piece
        lines = [json.loads(line) for line in text.splitlines()]
        assert sum(one["type"] == "memory" for one in lines) == 60
        assert lines[-1] == {"type": "end", "lines": 60}


async def test_a_reader_that_stalls_is_given_up_and_frees_its_connection(backends: Backends, user: str) -> None:
    settings = backends.new_settings()
    async with serving(
        settings, tunables=_moving(settings, export_page_rows=1, export_stall_s=0.2, exports_at_once_max=1)
    ) as world:
        await write_many(world.client, user, [f"unread {n}" for n in range(30)])
        caller = await world.runtime.access.caller(None)
        pieces = await world.runtime.exports.open(caller, user)
        await anext(pieces)
        assert problem_of(await world.client.get("/v1/export", params={"user_id": user}), 429)["code"] == "rate_limited"
        await asyncio.sleep(0.5)
        assert len(await exported(world.client, user)) == 32
        with pytest.raises(TimeoutError):
            [piece async for piece in pieces]
        assert await world.sql(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'"
        ) == [(0,)]


async def test_with_postgres_down_an_export_and_an_import_are_503(backends: Backends, user: str) -> None:
    settings = backends.new_settings()
    async with (
        proxied(settings.database_url) as proxy,
        serving(settings.model_copy(update={"database_url": proxy.url})) as world,
    ):
        await write(world.client, user, "before the fault")
        await proxy.cut()
        problem_of(await world.client.get("/v1/export", params={"user_id": user}), 503)
        problem_of(await world.client.post("/v1/import", content=b'{"content": "x"}', params={"user_id": user}), 503)
        assert proxy.refused
        await proxy.heal()
        assert (await search(world.client, user, "fault", mode="keyword"))["results"]


@pytest.mark.slow
async def test_five_thousand_memories_pass_through_in_bounded_pieces(
    client: httpx.AsyncClient, world: World, backends: Backends, user: str
) -> None:
    text = "a fact with some words that make it as long as a usual one, number "
    made = [{"content": f"{text}{n}", "infer": False, "kind": "semantic"} for n in range(5_000)]
    for start in range(0, len(made), 2_500):
        assert (await sent(client, made[start : start + 2_500], user_id=user))["imported"] == 2_500
    caller = await world.runtime.access.caller(None)
    pieces, largest = [], 0
    async for piece in await world.runtime.exports.open(caller, user):
        pieces.append(piece)
        largest = max(largest, len(piece))
    assert largest < 200_000  # a page, not the export
    body = b"".join(pieces)
    assert body.count(b"\n") == 5_002
    async with serving(backends.new_settings()) as other:
        answer = await other.client.post("/v1/import", content=body, timeout=120)
        assert (answer.json()["imported"], answer.json()["refused"]) == (5_000, [])


async def test_import_asks_as_few_questions_for_many_lines_as_for_few(
    world: World, client: httpx.AsyncClient, user: str
) -> None:
    """Per slice, not per line."""
    from memory_service.stores.postgres import imports as statements

    asked = 0
    owners = statements.owners

    async def counting(*arguments: Any) -> Any:
        nonlocal asked
        asked += 1
        return await owners(*arguments)

    statements.owners = counting  # type: ignore[assignment]
    try:
        await sent(client, [{"content": f"line {n}", "infer": False} for n in range(1_000)], user_id=user)
    finally:
        statements.owners = owners  # type: ignore[assignment]
    assert asked == 5


def _moving(settings: Any, **changed: Any) -> Any:
    shipped = numbers(settings)
    assert set(changed) <= set(MovingNumbers.model_fields)
    extra = {**(shipped.model_extra or {}), "moving": {**(shipped.model_extra or {})["moving"], **changed}}
    return type(shipped).model_validate({**shipped.model_dump(), **extra})


def test_twins_are_the_same_whenever_they_are_asked_for() -> None:
    from memory_service.moving.identity import twin_of

    old = UUID("019a0000-0000-7000-8000-000000000001")
    assert twin_of("t", "u", old) == twin_of("t", "u", old) != twin_of("t", "v", old) != twin_of("s", "u", old)
    assert twin_of("t", "u", old).hex[:12] == old.hex[:12]


def hostile(whole: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A good line with some of its fields, or others, set to anything."""
    return st.dictionaries(st.sampled_from(sorted(whole)) | st.sampled_from(sorted(MODELS[whole["type"]].model_fields)) | words, values, max_size=3).map(lambda bad: {**whole, **bad})  # fmt: skip


REFERRING = [
    {"type": "relation", "user_id": "u", "source_id": MEMORY["id"], "target_id": MEMORY["id"], "relation_type": "x", "created_at": TIME},
    {"type": "version", "id": MEMORY["id"], "version": 1, "user_id": "u", "at": TIME, "actor": "a", "cause": "c", "snapshot": {"content": "x"}, "changes": {}},
    {"type": "experience_version", "id": LESSON["id"], "version": 1, "user_id": "u", "at": TIME, "actor": "a", "cause": "c", "snapshot": {}},
    {"type": "conflict", "id": "019a0000-0000-7000-8000-000000000003", "user_id": "u", "old_id": MEMORY["id"], "new_id": MEMORY["id"], "reason": "r", "created_at": TIME},
]  # fmt: skip
MANY = st.lists(
    st.one_of(*(hostile(whole) for whole in (MEMORY, LESSON, *REFERRING)), values), min_size=20, max_size=40
)


@settings(max_examples=15)
@given(lines=MANY)
async def test_no_line_breaks_an_import_and_each_is_accounted_for(client: httpx.AsyncClient, lines: list[Any]) -> None:
    user = new_user("fuzz")
    told = await sent(client, [json.dumps(one).encode() for one in lines], user_id=user)
    silent = sum(isinstance(one, dict) and one.get("type") in ("header", "end") for one in lines)
    assert told["imported"] + told["unchanged"] + len(told["refused"]) in range(len(lines) - silent, len(lines) + 1)
    await exported(client, user)
