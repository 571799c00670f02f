"""Who may do what: keys, roles, tenants, bound users, rates, and a service without any key."""

# ruff: noqa: E501 - tables: one case reads best on one line

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid4

import httpx
import pytest
from service_running import Backends, World, indexed, new_user, numbers, problem_of, serving, until, write
from test_relay_contract import environment
from typer.testing import CliRunner

from memory_service.__main__ import app as commands
from memory_service.errors import SetupRefused
from memory_service.stores.session_buffer import SessionKey

SECRET, SESSION = "the-kraken-sleeps", "night"
TOLD = {"field": "sea", "operator": "eq", "value": SECRET}
OPEN = {("GET", "/health"), ("GET", "/ready")}
WRITES = {("POST", "/v1/memories"), ("POST", "/v1/memories/batch"), ("PATCH", "/v1/memories/{memory_id}"), ("DELETE", "/v1/memories/{memory_id}"), ("DELETE", "/v1/users/{user_id}"),
          ("POST", "/v1/turns"), ("PUT", "/v1/working-memory/{task_id}"), ("PATCH", "/v1/working-memory/{task_id}"), ("DELETE", "/v1/working-memory/{task_id}"), ("POST", "/v1/working-memory/{task_id}/steps"),
          ("POST", "/v1/tasks"), ("POST", "/v1/tasks/{task_id}/finish"),
          *((verb, "/v1/relations") for verb in ("POST", "DELETE")), *(("POST", f"/v1/memories/{{memory_id}}/{move}") for move in ("rollback", "archive", "restore", "pin", "unpin", "feedback")), ("POST", "/v1/conflicts/{conflict_id}/resolve"),
          ("POST", "/v1/experiences"), ("POST", "/v1/experiences/distill"), ("PATCH", "/v1/experiences/{experience_id}"), ("DELETE", "/v1/experiences/{experience_id}"), ("POST", "/v1/experiences/{experience_id}/feedback")}  # fmt: skip
ADMINS = {
    ("DELETE", "/v1/users/{user_id}"),
    ("GET", "/v1/export"),
    ("POST", "/v1/import"),
    ("POST", "/v1/maintenance/{job}"),
}  # of keys that are bound to no user
WRITES |= ADMINS
BY_ID = ("{memory_id}", "{experience_id}", "{conflict_id}")
BY_ID_IN_BODY = ("/v1/relations",)


@dataclass(frozen=True)
class Victim:
    """Somebody's data, of which others must see and change nothing."""

    user: str
    memory_id: str
    task_id: str
    experience_id: str
    conflict_id: str = field(default_factory=lambda: str(uuid4()))
    friend_id: str = field(
        default_factory=lambda: str(uuid4())
    )  # a memory of another user that the first one is tied to

    def stolen_lines(self) -> str:
        """An import that says it is about the victim's things."""
        at = {"created_at": "2026-01-01T00:00:00Z", "user_id": self.user}
        planted = {
            "type": "memory",
            "id": self.memory_id,
            "kind": "episodic",
            "version": 99,
            "content": "by a stranger",
            "summary": "s",
            "occurred_at": at["created_at"],
            "updated_at": at["created_at"],
            **at,
        }
        tie = {
            "type": "relation",
            "source_id": self.memory_id,
            "target_id": self.friend_id,
            "relation_type": "stolen",
            **at,
        }
        return f"{json.dumps(planted)}\n{json.dumps(tie)}\n"

    def request(self, method: str, path: str) -> dict[str, Any]:
        """The request that a nosy caller would send to this route; KeyError for a route that this table does not know yet."""
        in_query, own = {"params": {"user_id": self.user}}, {"user_id": self.user}
        bodies: dict[tuple[str, str], dict[str, Any]] = {
            ("POST", "/v1/memories"): {"json": {**own, "content": "by a stranger", "related_ids": [self.memory_id]}},
            ("POST", "/v1/memories/batch"): {"json": {"memories": [{**own, "content": SECRET, "related_ids": [self.memory_id]}]}},
            ("POST", "/v1/memories/search"): {"json": {**own, "query": "sleeps", "limit": 100, "include_shared": True, "include_cold": True, "filters": {"id": {"eq": self.memory_id}}}},
            ("POST", "/v1/context"): {"json": {**own, "query": "sleeps", "state": {"sea": SECRET}, "include_shared": True, "include_cold": True, "max_tokens": 9000}},
            ("GET", "/v1/memories"): {"params": {**own, "include_shared": "true"}}, ("GET", "/v1/memories/{memory_id}"): {}, ("DELETE", "/v1/memories/{memory_id}"): {},
            ("PATCH", "/v1/memories/{memory_id}"): {"json": {"content": "changed by a stranger"}}, ("DELETE", "/v1/users/{user_id}"): {},
            ("PUT", "/v1/working-memory/{task_id}"): {"json": {**own, "task_goal": "by a stranger"}}, ("PATCH", "/v1/working-memory/{task_id}"): {"json": {**own, "done_items": ["by a stranger"]}},
            ("POST", "/v1/turns"): {"json": {**own, "session_id": SESSION, "task_id": self.task_id, "messages": [{"role": "user", "content": "That's all for today, said a stranger."}]}},
            ("POST", "/v1/working-memory/{task_id}/steps"): {"json": {**own, "tool": "t", "status": "error"}}, ("GET", "/v1/working-memory/{task_id}"): in_query,
            ("DELETE", "/v1/working-memory/{task_id}"): in_query, ("GET", "/v1/working-memory/{task_id}/context"): in_query, ("GET", "/v1/stats"): in_query, ("GET", "/v1/retrievals"): {"params": {**own, "limit": 100}},
            ("POST", "/v1/experiences"): {"json": {**own, "conditions": [{**TOLD, "value": "calm"}], "action": "by a stranger", "source_memory_ids": [self.memory_id]}},
            ("POST", "/v1/experiences/distill"): {"json": {**own, "trajectory": {"goal": "by a stranger", "outcome": "failure", "steps": [{"tool": "kraken", "status": "error", "error": "asleep"}]}}},
            ("POST", "/v1/experiences/query"): {"json": {**own, "state": {"sea": SECRET}, "conditions": [TOLD], "semantic_query": "sleeps", "limit": 100}},
            ("GET", "/v1/experiences"): {"params": {**own, "include_shared": "true"}}, ("GET", "/v1/experiences/{experience_id}"): {}, ("DELETE", "/v1/experiences/{experience_id}"): {},
            ("PATCH", "/v1/experiences/{experience_id}"): {"json": {"action": "changed by a stranger"}}, ("POST", "/v1/experiences/{experience_id}/feedback"): {"json": {"outcome": "failure"}},
            ("GET", "/v1/experiences/{experience_id}/history"): {}, ("GET", "/v1/experiences/{experience_id}/test-case"): {},
            **{("POST", f"/v1/memories/{{memory_id}}/{move}"): {} for move in ("archive", "restore", "pin", "unpin")}, ("POST", "/v1/memories/{memory_id}/rollback"): {"json": {"version": 1}},
            ("POST", "/v1/memories/{memory_id}/feedback"): {"json": {"outcome": "failure", "note": "by a stranger"}}, ("GET", "/v1/memories/{memory_id}/feedback"): {}, ("GET", "/v1/memories/{memory_id}/history"): {}, ("GET", "/v1/memories/{memory_id}/related"): {},
            **{(verb, "/v1/relations"): {"json": {"source_id": self.memory_id, "target_id": self.friend_id, "relation_type": "told_by", "weight": 0.5}} for verb in ("POST", "DELETE")},
            ("GET", "/v1/conflicts"): {"params": own}, ("POST", "/v1/conflicts/{conflict_id}/resolve"): {"json": {"keep": "both"}},
            ("POST", "/v1/tasks"): {"json": {**own, "goal": "by a stranger"}}, ("POST", "/v1/tasks/{task_id}/advice"): {"json": {**own, "tool": "kraken", "state": {"sea": SECRET}}},
            ("POST", "/v1/tasks/{task_id}/finish"): {"json": {**own, "outcome": "aborted"}},
            ("GET", "/v1/maintenance"): {}, ("POST", "/v1/maintenance/{job}"): {"params": {"dry_run": "true"}},
            ("GET", "/v1/export"): in_query, ("POST", "/v1/import"): {**in_query, "content": self.stolen_lines()},
            ("GET", "/health"): {}, ("GET", "/ready"): {}, ("GET", "/metrics"): {}, ("GET", "/v1/keys/self"): {},
        }  # fmt: skip
        filled = (
            path.replace("{memory_id}", self.memory_id)
            .replace("{experience_id}", self.experience_id)
            .replace("{conflict_id}", self.conflict_id)
            .replace("{user_id}", quote(self.user, safe=""))
            .replace("{task_id}", quote(self.task_id, safe=""))
            .replace("{job}", "decay")
        )
        return {"method": method, "url": filled, **bodies[method, path]}


async def new_victim(world: World, client: httpx.AsyncClient) -> Victim:
    user, task = new_user("victim"), new_user("task")
    memory = await write(client, user, f"{SECRET} in the deep", metadata={"k": SECRET}, wait=True)
    await client.patch(f"/v1/memories/{memory['id']}", json={"category": SECRET})
    await indexed(client, user)
    stored = await client.put(
        f"/v1/working-memory/{task}", json={"user_id": user, "task_goal": SECRET, "constraints": [SECRET]}
    )
    assert stored.status_code == 200
    lesson = await client.post(
        "/v1/experiences", json={"user_id": user, "conditions": [TOLD], "action": f"{SECRET}, so whisper"}
    )
    assert lesson.status_code == 201
    said = [{"user_id": user, "content": f"My dog is called {name}.", "kind": "semantic"} for name in (SECRET, "Rex")]
    conflict = [(await client.post("/v1/memories", json=one)).json() for one in said][1]["conflict_id"]
    friend = await write(client, user, f"{SECRET}, said a friend")
    tie = {"source_id": memory["id"], "target_id": friend["id"], "relation_type": "told_by"}
    assert (await client.post("/v1/relations", json=tie)).status_code == 201
    said_of_it = {"outcome": "irrelevant", "note": f"{SECRET} was not asked for"}
    assert (await client.post(f"/v1/memories/{memory['id']}/feedback", json=said_of_it)).status_code == 200
    waiting = {"user_id": user, "session_id": SESSION, "messages": [{"role": "user", "content": f"{SECRET}?"}]}
    assert (await client.post("/v1/turns", json=waiting)).json()["buffered"] == 1
    asked = await client.post("/v1/memories/search", json={"user_id": user, "query": SECRET})
    assert asked.status_code == 200
    await world.runtime.retrieval_log.flush()  # now, since it counts accesses of the memory
    return Victim(user, memory["id"], task, lesson.json()["experience"]["id"], conflict, friend["id"])


async def state_of(world: World, victim: Victim, client: httpx.AsyncClient) -> Any:
    """Everything that must not change."""
    rows = await world.sql(
        """SELECT tenant, version, content, category, metadata, access_count, heat, confidence, state, pinned,
                  (SELECT jsonb_agg(r ORDER BY r) FROM memory_relations r WHERE m.id IN (r.source_id, r.target_id))
           FROM memory m WHERE user_id = %s AND tenant = 'victims'""",
        victim.user,
    )
    lessons = await world.sql(
        "SELECT id, version, action, confidence, status FROM experience WHERE user_id = %s AND tenant = 'victims'",
        victim.user,
    )
    working = (await client.get(f"/v1/working-memory/{victim.task_id}", params={"user_id": victim.user})).json()
    buffer = await world.runtime.redis.hgetall(SessionKey("victims", victim.user, SESSION).buffer)
    return rows, lessons, buffer, {name: value for name, value in working.items() if name != "expires_at"}


async def routes_of(client: httpx.AsyncClient) -> list[tuple[str, str]]:
    page = (await client.get("/openapi.json")).json()
    return [(method.upper(), path) for path, methods in page["paths"].items() for method in methods]


@asynccontextmanager
async def owner_and(keyed: World, **key: Any) -> AsyncIterator[tuple[httpx.AsyncClient, httpx.AsyncClient]]:
    """An admin of the victims' tenant, and somebody else."""
    async with (
        keyed.with_key(await keyed.new_key("admin", tenant="victims")) as owner,
        keyed.with_key(await keyed.new_key(**key)) as other,
    ):
        yield owner, other


@pytest.mark.parametrize("role", ["reader", "writer", "admin"])
async def test_another_tenants_ids_are_unknown_on_every_route(keyed: World, role: Any) -> None:
    async with owner_and(keyed, role=role, tenant="thieves") as (owner, thief):
        victim = await new_victim(keyed, owner)
        before, walked = await state_of(keyed, victim, owner), await routes_of(owner)
        for method, path in walked:
            answer = await thief.request(**victim.request(method, path))
            assert SECRET not in answer.text, (method, path)
            assert answer.status_code in (200, 201, 204, 403, 404, 422), (method, path, answer.text)
            if any(name in path for name in BY_ID):
                nobody = Victim(victim.user, str(uuid4()), "t", str(uuid4()))
                unknown = await thief.request(**nobody.request(method, path))
                assert (answer.status_code, answer.text) == (unknown.status_code, unknown.text), (method, path)
                assert answer.status_code == (403 if role == "reader" and method != "GET" else 404)
        assert len(walked) >= 29
        assert await state_of(keyed, victim, owner) == before
        assert (len(before[0]), len(before[1])) == (4, 1)


@pytest.mark.parametrize("role", ["reader", "writer", "admin"])
async def test_a_bound_key_touches_no_other_user_on_any_route(keyed: World, role: Any) -> None:
    async with owner_and(keyed, role=role, tenant="victims", user_id=new_user("bound")) as (owner, bound):
        victim = await new_victim(keyed, owner)
        before = await state_of(keyed, victim, owner)
        for method, path in await routes_of(owner):
            answer = await bound.request(**victim.request(method, path))
            assert SECRET not in answer.text, (method, path)
            if path == "/v1/memories/batch" and role != "reader":
                assert answer.json()["results"][0]["error"]["status"] == 403
            elif any(name in path for name in (*BY_ID, *BY_ID_IN_BODY)):
                assert answer.status_code == (403 if role == "reader" and method != "GET" else 404), (method, path)
            elif (method, path) not in OPEN and path not in ("/metrics", "/v1/keys/self"):
                problem_of(answer, 403)
        assert await state_of(keyed, victim, owner) == before


async def test_a_bound_key_works_for_its_own_user(keyed: World) -> None:
    mine = new_user("mine")
    async with keyed.with_key(await keyed.new_key("writer", tenant="bounds", user_id=mine)) as client:
        memory = await write(client, mine, "my own", wait=True)
        assert (await client.get(f"/v1/memories/{memory['id']}")).status_code == 200
        assert (await client.get("/v1/stats")).json()["user_id"] == mine
        assert (await client.get("/v1/keys/self")).json() == {"tenant": "bounds", "role": "writer", "user_id": mine}
        assert (await client.delete(f"/v1/users/{mine}")).json()["memories"] == 1


def without_user(request: dict[str, Any]) -> dict[str, Any]:
    """The same request with no `user_id` in its query, its body or the items of its batch."""
    request = json.loads(json.dumps(request))
    named = [request.get("params", {}), request.get("json", {}), *request.get("json", {}).get("memories", ())]
    for one in named:
        one.pop("user_id", None)
    return request


async def test_a_bound_key_need_not_name_its_user_on_any_route(keyed: World) -> None:
    async with keyed.with_key(await keyed.new_key("admin", tenant="victims")) as owner:
        walked = await routes_of(owner)
        for method, path in walked:
            mine = await new_victim(keyed, owner)
            request = without_user(mine.request(method, path))
            async with keyed.with_key(await keyed.new_key("writer", tenant="victims", user_id=mine.user)) as bound:
                answer = await bound.request(**request)
            if path in ("/v1/maintenance/{job}", "/v1/maintenance", "/v1/import"):
                problem_of(answer, 403)  # for admins only, or about the whole tenant
            else:
                assert answer.status_code < 300, (method, path, answer.text)
    assert len(walked) >= 29


async def test_a_key_that_is_bound_to_nobody_must_name_the_user(keyed: World) -> None:
    async with keyed.with_key(await keyed.new_key("writer")) as free:
        for answer in (
            await free.post("/v1/memories", json={"content": "whose?"}),
            await free.post("/v1/turns", json={"session_id": "s", "messages": [{"role": "user", "content": "hi"}]}),
            await free.get("/v1/memories"),
            await free.get("/v1/working-memory/t"),
        ):
            assert problem_of(answer, 422)["errors"][0]["field"] == "user_id"


async def test_each_role_may_do_what_its_name_says(keyed: World) -> None:
    keys = {role: await keyed.new_key(role, tenant="roles") for role in ("reader", "writer", "admin")}  # type: ignore[arg-type]
    async with keyed.with_key(keys["admin"]) as admin:
        for method, path in await routes_of(admin):
            mine = await new_victim(keyed, admin)
            for role, key in keys.items():
                async with keyed.with_key(key) as client:
                    answer = await client.request(**mine.request(method, path))
                needs_admin = (method, path) in ADMINS
                refused = (role == "reader" and (method, path) in WRITES) or (role == "writer" and needs_admin)
                assert (answer.status_code == 403) == refused, (role, method, path, answer.text)
                gone = role == "admin" and (
                    method == "DELETE" or path.endswith("/resolve")
                )  # the writer did it already
                assert refused or gone or answer.status_code < 300, (role, method, path, answer.text)


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        "Basic aGk6aG8=",
        "bearer hs_x",
        "Bearer hs_" + "x" * 5000,
        "Bearer é",
        "hs_naked",
    ],
)
async def test_without_a_valid_key_every_route_but_the_open_ones_is_401(
    keyed: World, authorization: str | None
) -> None:
    headers = [] if authorization is None else [(b"Authorization", authorization.encode())]
    somebody, shapes = Victim(new_user(), str(uuid4()), "t", str(uuid4())), set()
    async with keyed.with_key(await keyed.new_key("admin")) as admin:
        walked = await routes_of(admin)
    for method, path in [*walked, ("GET", "/openapi.json")]:
        request = (
            {"method": "GET", "url": "/openapi.json"} if path == "/openapi.json" else somebody.request(method, path)
        )
        answer = await keyed.client.request(**request, headers=headers)
        if (method, path) in OPEN:
            assert answer.status_code == 200
            assert set(answer.json()) in ({"ready"}, {"status"})
        else:
            problem_of(answer, 401)
            assert answer.headers["www-authenticate"].startswith("Bearer")
            shapes.add(answer.text)
    assert len(shapes) == 1


async def test_a_valid_key_sees_the_details_of_ready(keyed: World) -> None:
    async with keyed.with_key(await keyed.new_key("reader")) as client:
        assert {"ready", "stores"} <= set((await client.get("/ready")).json())


async def test_a_revoked_key_stops_working_within_the_cache_time(backends: Backends, user: str) -> None:
    settings = backends.new_settings()
    async with serving(settings, tunables=numbers(settings, limits={"auth_cache_s": 0.3})) as world:
        stays, goes = await world.new_key("admin"), await world.new_key("writer")
        async with world.with_key(goes) as client, world.with_key(stays) as other:
            assert (await client.get("/v1/stats")).status_code == 200
            await world.sql("UPDATE api_key SET revoked_at = now() WHERE role = 'writer'")
            await asyncio.sleep(0.35)
            problem_of(await client.get("/v1/stats"), 401)
            assert (await other.get("/v1/stats")).status_code == 200


async def test_a_rate_limit_answers_429_with_retry_after(keyed: World) -> None:
    async with (
        keyed.with_key(await keyed.new_key("reader", rate=3)) as slow,
        keyed.with_key(await keyed.new_key("reader")) as free,
    ):
        answers = await asyncio.gather(*(slow.get("/v1/stats") for _ in range(8)))
        limited = [a for a in answers if a.status_code == 429]
        assert len(limited) == 5
        assert problem_of(limited[0], 429)["code"] == "rate_limited"
        assert 1 <= int(limited[0].headers["retry-after"]) <= 60
        assert (await free.get("/v1/stats")).status_code == 200


async def test_without_a_key_no_rate_is_limited_and_everybody_here_is_admin(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/keys/self")).json() == {"tenant": "default", "role": "admin", "user_id": None}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.com", "127.0.0.1.example.com"])
async def test_without_a_key_another_address_than_loopback_is_refused(backends: Backends, host: str) -> None:
    settings = backends.new_settings().model_copy(update={"host": host})
    with pytest.raises(SetupRefused, match="hindsight keys create"):
        async with serving(settings):
            pass


async def test_the_last_revoked_key_does_not_open_a_network_address(backends: Backends) -> None:
    settings = backends.new_settings(host="0.0.0.0")
    await asyncio.to_thread(
        CliRunner().invoke, commands, ["keys", "create", "--role", "admin"], env=environment(settings)
    )
    async with serving(settings, tunables=numbers(settings, limits={"auth_cache_s": 0.1})) as world:
        problem_of(await world.client.get("/v1/stats"), 401)
        await world.sql("UPDATE api_key SET revoked_at = now()")
        await asyncio.sleep(0.15)
        problem_of(await world.client.get("/v1/stats"), 401)


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8000", "127.0.0.1:8000", "127.0.0.9", "[::1]:8000", "[::1]", "LOCALHOST"]
)
async def test_names_of_this_machine_are_served_without_a_key(client: httpx.AsyncClient, host: str) -> None:
    assert (await client.get("/v1/stats", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "10.0.0.1:8000",
        "",
        "localhost@evil.example",
        "[::2]:80",
    ],
)
async def test_a_foreign_host_name_is_refused_without_a_key(client: httpx.AsyncClient, host: str) -> None:
    problem_of(await client.get("/v1/stats", headers={"Host": host}), 403)


@pytest.mark.parametrize("host", ["x", "10.0.0.1:8000", ""])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_health_is_open_under_any_name_also_while_no_key_exists(
    client: httpx.AsyncClient, method: str, host: str
) -> None:
    asked = {"Host": host, "Origin": "http://evil.example"}
    assert (await client.request(method, "/health", headers=asked)).status_code == 200
    for path in ("/ready", "/metrics", "/openapi.json", "/health/", "/healthy", "/v1/memories?user_id=x"):
        assert (await client.request(method, path, headers={"Host": host})).status_code == 403


async def test_a_foreign_host_name_is_fine_with_a_key(keyed: World) -> None:
    async with keyed.with_key(await keyed.new_key("reader")) as client:
        assert (await client.get("/v1/stats", headers={"Host": "memory-service:8000"})).status_code == 200


async def test_keys_are_shown_once_listed_without_themselves_and_revoked(backends: Backends) -> None:
    settings = backends.new_settings()

    async def run(*arguments: str) -> Any:
        return await asyncio.to_thread(CliRunner().invoke, commands, ["keys", *arguments], env=environment(settings))

    created = await run(
        "create", "--role", "reader", "--tenant", "团队", "--user", "ana/1", "--name", "ci", "--rate", "60"
    )
    assert created.exit_code == 0, created.output
    key = created.stdout.strip()
    assert key.startswith("hs_")
    assert len(key) > 40
    async with serving(settings, tunables=numbers(settings, limits={"auth_cache_s": 0.0})) as world:
        stored = await world.sql("SELECT tenant, role, user_id, key_hash, requests_per_minute FROM api_key")
        assert [(t, r, u, bytes(h), n) for t, r, u, h, n in stored] == [
            ("团队", "reader", "ana/1", hashlib.sha256(key.encode()).digest(), 60)
        ]
        async with world.with_key(key) as client:
            assert (await client.get("/v1/keys/self")).json() == {
                "tenant": "团队",
                "role": "reader",
                "user_id": "ana/1",
            }
        table = await run("list")
        assert table.exit_code == 0
        assert key not in table.output
        (line,) = [one for one in table.stdout.splitlines() if "团队" in one]
        assert "active" in line
        assert "ci" in line
        assert "ana/1" in line
        key_id = line.split()[0]
        for bad in ("x", str(uuid4())):
            assert (await run("revoke", bad)).exit_code == 2
        assert (await run("revoke", str(UUID(key_id)))).exit_code == 0
        assert (await run("revoke", key_id)).exit_code == 2
        assert "revoked" in (await run("list")).stdout

        async def nobody() -> bool:
            return (
                await world.client.get("/v1/keys/self")
            ).status_code == 200  # no key is left, so loopback is open again

        await until(nobody)
    for arguments in (
        ("--role", "owner"),
        ("--tenant", ""),
        ("--user", "a\nb"),
        ("--rate", "0"),
        ("--tenant", "x" * 129),
    ):
        refused = await run("create", *arguments)
        assert refused.exit_code != 0, arguments
    assert (
        len(
            await asyncio.to_thread(
                lambda: (CliRunner().invoke(commands, ["keys", "list"], env=environment(settings))).stdout.splitlines()
            )
        )
        == 2
    )


async def test_without_keys_a_foreign_page_can_not_write_through_a_visitors_browser(world: World, user: str) -> None:
    body = {"user_id": user, "content": "planted", "infer": False}
    for origin in ("http://evil.example", "https://localhost.evil.example", "null"):
        headers = {"Origin": origin, "Content-Type": "text/plain"}
        problem_of(await world.client.post("/v1/memories", content=json.dumps(body), headers=headers), 403)
    own = await world.client.post("/v1/memories", json=body, headers={"Origin": "http://localhost:3000"})
    assert own.status_code == 201
