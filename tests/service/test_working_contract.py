"""Working memory as an HTTP client meets it."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from service_running import Backends, World, problem_of, proxied, serving, until, write

OBJECT = {
    "task_id", "user_id", "agent_id", "task_goal", "task_type", "constraints", "confirmed_facts", "pending_items",
    "done_items", "failed_attempts", "tool_call_history", "recent_steps", "variables", "expires_at",
}  # fmt: skip
HOSTILE = ["a:b", "a/b", "{x}", "*", "a b", "%2F", "任务/一", "👩‍💻", "context", "x/steps", "x/context", "a?b#c", "+"]


def path(task: str = "t", rest: str = "") -> str:
    return f"/v1/working-memory/{quote(task, safe='')}{rest}"


async def put(client: httpx.AsyncClient, user: str, task: str = "t", **fields: Any) -> dict[str, Any]:
    answer = await client.put(path(task), json={"user_id": user, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


async def get(client: httpx.AsyncClient, user: str, task: str = "t") -> httpx.Response:
    return await client.get(path(task), params={"user_id": user})


async def test_a_new_task_is_the_object_of_the_contract(client: httpx.AsyncClient, user: str) -> None:
    answer = await put(
        client, user, task_goal="目标", pending_items=["a", {"item": "b", "priority": 1}], done_items=["c"]
    )
    assert set(answer) == OBJECT
    assert answer["pending_items"] == [{"item": "a", "priority": 3}, {"item": "b", "priority": 1}]
    assert (answer["agent_id"], answer["constraints"], answer["done_items"]) == (None, [], ["c"])
    ends_in_s = (datetime.fromisoformat(answer["expires_at"]) - datetime.now(UTC)).total_seconds()
    assert 7_190 < ends_in_s <= 7_200
    again = await get(client, user)
    assert {**again.json(), "expires_at": None} == {**answer, "expires_at": None}
    assert "目标" in again.text


async def test_values_come_back_as_they_were_sent(client: httpx.AsyncClient, user: str) -> None:
    raw = '{"big":9223372036854775807,"f":1.0,"e":[],"o":{},"n":null,"t":true,"字":"𝄞\\n"}'
    body = f'{{"user_id":{json.dumps(user)},"variables":{raw}}}'
    assert (await client.put(path(), content=body.encode())).status_code == 200
    assert raw in (await get(client, user)).text


async def test_patch_appends_merges_sets_and_removes(client: httpx.AsyncClient, user: str) -> None:
    await put(client, user, task_goal="g", constraints=["a"], pending_items=["p", "q"], variables={"x": 1, "y": 2})
    answer = await client.patch(path(), json={
        "user_id": user, "task_type": "ops", "constraints": ["b"], "confirmed_facts": [{"fact": "f", "source": "log"}, "g"],
        "done_items": ["p"], "variables": {"y": 3}, "remove": {"constraints": ["a"], "variables": ["x"]},
    })  # fmt: skip
    body = answer.json()
    assert (body["task_goal"], body["task_type"], body["constraints"]) == ("g", "ops", ["b"])
    assert [(f["fact"], f["source"]) for f in body["confirmed_facts"]] == [("f", "log"), ("g", None)]
    assert (body["pending_items"], body["done_items"], body["variables"]) == (
        [{"item": "q", "priority": 3}],
        ["p"],
        {"y": 3},
    )
    assert all(f["at"].endswith("Z") for f in body["confirmed_facts"])


async def test_parallel_patches_lose_nothing(client: httpx.AsyncClient, user: str) -> None:
    await put(client, user)
    await asyncio.gather(*(client.patch(path(), json={"user_id": user, "constraints": [f"c{i}"]}) for i in range(50)))
    assert sorted((await get(client, user)).json()["constraints"]) == sorted(f"c{i}" for i in range(50))


async def test_a_failed_step_is_history_step_and_failure(client: httpx.AsyncClient, user: str) -> None:
    await put(client, user)
    step = {
        "tool": "curl",
        "arguments": {"url": "x"},
        "status": "error",
        "error": "timeout",
        "duration_ms": 12,
        "reason": "vpn",
    }
    body = (await client.post(path(rest="/steps"), json={"user_id": user, **step})).json()
    (call,), (failure,), (recent,) = body["tool_call_history"], body["failed_attempts"], body["recent_steps"]
    assert set(call) == {"tool", "arguments", "status", "duration_ms", "at"}
    assert (call["status"], call["duration_ms"]) == ("error", 12)
    assert (failure["action"], failure["reason"], failure["error"]) == ('curl {"url": "x"}', "vpn", "timeout")
    assert {k: recent[k] for k in step} == step


async def test_the_same_step_with_one_key_is_noted_once(client: httpx.AsyncClient, user: str) -> None:
    await put(client, user)
    body, headers = {"user_id": user, "tool": "ls", "status": "success"}, {"Idempotency-Key": f"key of {user}"}
    answers = await asyncio.gather(*(client.post(path(rest="/steps"), json=body, headers=headers) for _ in range(10)))
    assert {a.status_code for a in answers} == {200}
    assert len({a.content for a in answers}) == 1
    assert sum(a.headers.get("idempotency-replayed") == "true" for a in answers) == 9
    assert len((await get(client, user)).json()["recent_steps"]) == 1
    other = await client.post(path(rest="/steps"), json={**body, "tool": "cat"}, headers=headers)
    assert problem_of(other, 422)["code"] == "idempotency_mismatch"
    for bad in ("x" * 256, "a\tb"):
        problem_of(
            await client.post(path(rest="/steps"), json=body, headers={"Idempotency-Key": bad}), 422, "Idempotency-Key"
        )


async def test_a_context_fits_its_budget(client: httpx.AsyncClient, user: str) -> None:
    await put(
        client,
        user,
        task_goal="修复登录接口",
        constraints=["不停机"],
        confirmed_facts=[f"fact {i}" for i in range(100)],
    )
    answer = (await client.get(path(rest="/context"), params={"user_id": user, "max_tokens": 120})).json()
    assert set(answer) == {"text", "tokens", "truncated"}
    assert "目标：" in answer["text"]
    assert "不停机" in answer["text"]
    assert answer["tokens"] <= 120
    assert answer["truncated"] is True
    for bad in ("0", "-1", "x", "100001", "1.5"):
        problem_of(
            await client.get(path(rest="/context"), params={"user_id": user, "max_tokens": bad}), 422, "max_tokens"
        )


async def test_a_deleted_task_is_gone(client: httpx.AsyncClient, user: str) -> None:
    await put(client, user)
    assert (await client.delete(path(), params={"user_id": user})).status_code == 204
    problem_of(await get(client, user), 404)
    problem_of(await client.delete(path(), params={"user_id": user}), 404)
    problem_of(await client.patch(path(), json={"user_id": user, "constraints": ["x"]}), 404)
    problem_of(await client.post(path(rest="/steps"), json={"user_id": user, "tool": "ls", "status": "success"}), 404)


async def test_tasks_with_hostile_names_never_meet(client: httpx.AsyncClient, user: str) -> None:
    users = [f"{user}{end}" for end in ("", ":wm", "/", "}", "*", "用户")]
    for owner in users:
        for task in HOSTILE:
            await put(client, owner, task, variables={"at": [owner, task]})
    for owner in users:
        for task in HOSTILE:
            body = (await get(client, owner, task)).json()
            assert (body["task_id"], body["user_id"], body["variables"]) == (task, owner, {"at": [owner, task]})
            noted = await client.post(path(task, "/steps"), json={"user_id": owner, "tool": "ls", "status": "success"})
            assert len(noted.json()["recent_steps"]) == 1
            assert (await client.get(path(task, "/context"), params={"user_id": owner})).json()["text"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"user_id": "u", "nope": 1}, "nope"),
        ({}, "user_id"),
        ({"user_id": " "}, "user_id"),
        ({"user_id": "u" * 129}, "user_id"),
        ({"user_id": "u", "task_goal": "\u200b "}, "task_goal"),
        ({"user_id": "u", "constraints": [""]}, "constraints.0"),
        ({"user_id": "u", "constraints": "x"}, "constraints"),
        ({"user_id": "u", "constraints": None}, "constraints"),
        ({"user_id": "u", "confirmed_facts": ["ok", {"fact": "f", "extra": 1}]}, "confirmed_facts.1.extra"),
        ({"user_id": "u", "confirmed_facts": [{"fact": "f", "at": "yesterday"}]}, "confirmed_facts.0.at"),
        ({"user_id": "u", "confirmed_facts": [7]}, "confirmed_facts.0"),
        ({"user_id": "u", "pending_items": [{"item": "x", "priority": 6}]}, "pending_items.0.priority"),
        ({"user_id": "u", "pending_items": [{"item": "x", "priority": "1"}]}, "pending_items.0.priority"),
        ({"user_id": "u", "recent_steps": ["fine", {"tool": "x"}]}, "recent_steps.1.status"),
        ({"user_id": "u", "recent_steps": [" "]}, "recent_steps.0"),
        ({"user_id": "u", "tool_call_history": [{"tool": "x", "duration_ms": -1}]}, "tool_call_history.0.duration_ms"),
        (
            {"user_id": "u", "tool_call_history": [{"tool": "x", "duration_ms": True}]},
            "tool_call_history.0.duration_ms",
        ),
        ({"user_id": "u", "variables": {"a": {"b\0": 1}}}, "variables.a"),
        ({"user_id": "u", "variables": {"a": 2**63}}, "variables.a"),
        ({"user_id": "u", "variables": []}, "variables"),
        ({"user_id": "u", "ttl_seconds": 59}, "ttl_seconds"),
        ({"user_id": "u", "ttl_seconds": 86_401}, "ttl_seconds"),
        ({"user_id": "u", "ttl_seconds": 60.5}, "ttl_seconds"),
        ({"user_id": "u", "ttl_seconds": True}, "ttl_seconds"),
        ({"user_id": "u", "expires_at": "2030-01-01T00:00:00Z"}, "expires_at"),
        ({"user_id": "u", "task_id": "other"}, "task_id"),
        ({"user_id": "u", "constraints": [f"c{i}" for i in range(101)]}, "constraints"),
    ],
)
async def test_what_is_wrong_with_a_task_is_named(client: httpx.AsyncClient, body: dict[str, Any], field: str) -> None:
    problem_of(await client.put(path(), json=body), 422, field)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"tool": "x", "status": "ok"}, "status"),
        ({"status": "error"}, "tool"),
        ({"tool": " ", "status": "error"}, "tool"),
        ({"tool": "x", "status": "error", "arguments": [1]}, "arguments"),
        ({"tool": "x", "status": "error", "duration_ms": "3"}, "duration_ms"),
        ({"tool": "x", "status": "error", "why": "3"}, "why"),
        ({"tool": "x", "status": "error", "result": {"a": "\ud800"}}, "result.a"),
    ],
)
async def test_what_is_wrong_with_a_step_is_named(
    client: httpx.AsyncClient, user: str, body: dict[str, Any], field: str
) -> None:
    await put(client, user)
    problem_of(await client.post(path(rest="/steps"), content=json.dumps({"user_id": user, **body})), 422, field)


async def test_what_is_wrong_with_a_patch_is_named(client: httpx.AsyncClient, user: str) -> None:
    await put(client, user)
    problem_of(await client.patch(path(), json={"user_id": user}), 422, "body")
    problem_of(await client.patch(path(), json={"user_id": user, "remove": {"nope": ["x"]}}), 422, "remove.nope")
    problem_of(
        await client.patch(path(), json={"user_id": user, "remove": {"variables": "x"}}), 422, "remove.variables"
    )


async def test_ids_in_addresses_are_checked(client: httpx.AsyncClient, user: str) -> None:
    problem_of(await client.get("/v1/working-memory/a%00b", params={"user_id": user}), 422, "task_id")
    problem_of(await client.get(path("x" * 129), params={"user_id": user}), 422, "task_id")
    problem_of(await client.get(path()), 422, "user_id")
    problem_of(await client.get(path(), params={"user_id": user, "nope": 1}), 422, "nope")


async def test_a_task_above_its_bound_is_413(client: httpx.AsyncClient, user: str) -> None:
    problem_of(await client.put(path(), json={"user_id": user, "variables": {"x": "y" * 1_100_000}}), 413)


async def test_keys_decide_who_sees_what(keyed: World, user: str) -> None:
    writer = keyed.with_key(await keyed.new_key("writer"))
    reader = keyed.with_key(await keyed.new_key("reader"))
    stranger = keyed.with_key(await keyed.new_key("admin", tenant="other"))
    bound = keyed.with_key(await keyed.new_key("writer", user_id=f"{user}-other"))
    await put(writer, user)
    assert (await get(reader, user)).status_code == 200
    problem_of(await reader.put(path(), json={"user_id": user}), 403)
    problem_of(await reader.delete(path(), params={"user_id": user}), 403)
    for nobody, status in ((stranger, 404), (bound, 403)):
        problem_of(await get(nobody, user), status)
        problem_of(await nobody.patch(path(), json={"user_id": user, "constraints": ["x"]}), status)
        problem_of(await nobody.delete(path(), params={"user_id": user}), status)
    problem_of(await get(keyed.client, user), 401)
    assert (await get(writer, user)).json()["constraints"] == []


@pytest.mark.parametrize("prefix", ["memory:", ""])
async def test_deleting_a_memory_deletes_its_copies_in_tasks(client: httpx.AsyncClient, user: str, prefix: str) -> None:
    memory = await write(client, user, "the password of the staging box is tr0ub4dor")
    await put(client, user, confirmed_facts=[{"fact": memory["content"], "source": prefix + memory["id"]}, "kept"])
    assert (await client.delete(f"/v1/memories/{memory['id']}")).status_code == 204

    async def gone() -> bool:
        return [f["fact"] for f in (await get(client, user)).json()["confirmed_facts"]] == ["kept"]

    await until(gone)


async def test_with_postgres_down_a_task_goes_on(backends: Backends, user: str) -> None:
    async with proxied(backends.new_settings().database_url) as postgres:
        settings = backends.new_settings(database_url=postgres.url)
        async with serving(settings) as world:
            await put(world.client, user)
            await postgres.cut()
            for step in range(3):
                body = {"user_id": user, "tool": f"t{step}", "status": "success"}
                answer = await world.client.post(
                    path(rest="/steps"), json=body, headers={"Idempotency-Key": f"{user}{step}"}
                )
                assert answer.status_code == 200, answer.text
            assert len((await get(world.client, user)).json()["recent_steps"]) == 3
            problem_of(await world.client.get("/v1/memories", params={"user_id": user}), 503)


async def test_with_redis_down_tasks_say_so_and_come_back(backends: Backends, user: str) -> None:
    async with proxied(backends.urls.redis_url) as redis, serving(backends.new_settings(redis_url=redis.url)) as world:
        await put(world.client, user)
        await redis.cut()
        for answer in (
            await get(world.client, user),
            await world.client.put(path(), json={"user_id": user}),
            await world.client.post(path(rest="/steps"), json={"user_id": user, "tool": "ls", "status": "success"}),
        ):
            assert problem_of(answer, 503)["code"] == "store_unavailable"
            assert int(answer.headers["retry-after"]) >= 1
        assert redis.refused > 0
        assert (await write(world.client, user, "long-term memory goes on"))["content"]
        await redis.heal()
        assert (await get(world.client, user)).status_code == 200
