"""Does each tool send what the contract says? Real client → gateway → recorded request."""

from __future__ import annotations

import pytest
from gateway_running import GatewayProcess, call, call_error, http_client, read, stdio_client
from gateway_stand_in import Answer, StandIn, problem
from mcp.shared.uri_template import UriTemplate

pytestmark = pytest.mark.asyncio


async def test_memory_search_maps_every_argument(full_gateway_url: str, service: StandIn) -> None:
    async with http_client(full_gateway_url) as client:
        arguments = {
            "query": "咖啡",
            "user_id": "bob",
            "top_k": 7,
            "kinds": ["semantic"],
            "tags": ["x"],
            "since": "2026-01-01T00:00:00Z",
            "until": "2026-02-01T00:00:00Z",
        }
        await call(client, "memory_search", arguments)
    assert service.only("POST", "/v1/memories/search").body == {
        "query": "咖啡",
        "user_id": "bob",
        "limit": 7,
        "kinds": ["semantic"],
        "tags": ["x"],
        "since": "2026-01-01T00:00:00Z",
        "until": "2026-02-01T00:00:00Z",
    }


async def test_memory_search_returns_what_a_model_needs(full_gateway_url: str, service: StandIn) -> None:
    memory = service.add_memory("the whole text", summary="short", tags=["a"], outcome="success", agent_id="planner")
    async with http_client(full_gateway_url) as client:
        answer = await call(client, "memory_search", {"query": "text"})
    (hit,) = answer["results"]
    assert hit == {
        "id": memory["id"],
        "kind": "semantic",
        "score": 0.99,
        "summary": "short",
        "content": "the whole text",
        "occurred_at": "2026-05-01T10:00:00Z",
        "outcome": "success",
        "agent_id": "planner",
        "tags": ["a"],
    }
    assert answer["retrieval_id"] == "r1"


async def test_search_episodic_memory_searches_episodes(full_gateway_url: str, service: StandIn) -> None:
    async with http_client(full_gateway_url) as client:
        await call(client, "search_episodic_memory", {"task_description": "move the table", "task_type": "migration"})
        await call(client, "search_episodic_memory", {"task_description": "move the table", "top_k": 2})
    first, second = service.requests("POST", "/v1/memories/search")
    assert first.body == {"query": "migration: move the table", "kinds": ["episodic"], "user_id": "ana", "limit": 5}
    assert second.body == {"query": "move the table", "kinds": ["episodic"], "user_id": "ana", "limit": 2}


async def test_memory_write_maps_every_argument_and_reports_the_id(full_gateway_url: str, service: StandIn) -> None:
    async with http_client(full_gateway_url) as client:
        arguments = {
            "content": "Ana likes tea",
            "memory_type": "semantic",
            "tags": ["t"],
            "importance": 0.9,
            "outcome": "detour",
            "metadata": {"n": 1, "deep": {"x": None}},
            "related_ids": ["r"],
        }
        answer = await call(client, "memory_write", arguments)
    sent = service.only("POST", "/v1/memories")
    assert sent.body == {
        **{k: v for k, v in arguments.items() if k != "memory_type"},
        "kind": "semantic",
        "user_id": "ana",
    }
    assert answer["status"] == "created"
    assert answer["id"] in service.memories


async def test_each_write_has_its_own_idempotency_key(full_gateway_url: str, service: StandIn) -> None:
    async with http_client(full_gateway_url) as client:
        await call(client, "memory_write", {"content": "same"})
        await call(client, "memory_write", {"content": "same"})
    first, second = service.requests("POST", "/v1/memories")
    assert first.headers["idempotency-key"] != second.headers["idempotency-key"]


async def test_memory_update_changes_only_what_is_given(full_gateway_url: str, service: StandIn) -> None:
    memory = service.add_memory("old")
    async with http_client(full_gateway_url) as client:
        answer = await call(client, "memory_update", {"id": memory["id"], "content": "new", "importance": 1})
        advice = await call_error(client, "memory_update", {"id": memory["id"]})
    assert service.only("PATCH", ".*").body == {"content": "new", "importance": 1}
    assert (answer["status"], answer["version"]) == ("updated", 2)
    assert "at least one of content, tags, importance, metadata" in advice


async def test_memory_delete_erases(full_gateway_url: str, service: StandIn) -> None:
    memory = service.add_memory("secret")
    async with http_client(full_gateway_url) as client:
        assert await call(client, "memory_delete", {"id": memory["id"]}) == {"status": "deleted", "id": memory["id"]}
        assert "Nothing was deleted" in await call_error(client, "memory_delete", {"id": memory["id"]})
    assert service.memories == {}


@pytest.mark.parametrize("hostile", ["a/b", "..", ".", "a?b#c", "%2e%2e", "咖啡", "  x"])
async def test_an_id_stays_one_path_segment(hostile: str, full_gateway_url: str, service: StandIn) -> None:
    async with http_client(full_gateway_url) as client:
        await call_error(client, "memory_delete", {"id": hostile})
    (seen,) = [request for request in service.seen if request.method == "DELETE"]
    assert seen.path.count("/") == 3
    assert seen.path.startswith("/v1/memories/")


async def test_a_blank_id_is_not_sent(full_gateway_url: str, service: StandIn) -> None:
    async with http_client(full_gateway_url) as client:
        assert "'id' must not be blank" in await call_error(client, "memory_delete", {"id": " "})
    assert service.requests("DELETE", ".*") == []


async def test_memory_query_maps_every_argument(full_gateway_url: str, service: StandIn) -> None:
    arguments = {
        "semantic_query": "lock",
        "conditions": [{"field": "db", "operator": "eq", "value": "pg"}],
        "state": {"db": "pg"},
        "task_type": "migration",
        "min_confidence": 0.5,
    }
    async with http_client(full_gateway_url) as client:
        await call(client, "memory_query", arguments)
    assert service.only("POST", "/v1/experiences/query").body == arguments | {"limit": 3, "user_id": "ana"}


async def test_memory_distill_sends_a_trajectory(full_gateway_url: str, service: StandIn) -> None:
    trajectory = {
        "goal": "deploy",
        "outcome": "failure",
        "steps": [{"tool": "kubectl", "arguments": {}, "status": "error", "error": "quota"}],
        "task_type": "deployment",
        "feedback": "too slow",
    }
    async with http_client(full_gateway_url) as client:
        await call(client, "memory_distill", trajectory)
    assert service.only("POST", "/v1/experiences/distill").body == {"user_id": "ana", "trajectory": trajectory}


async def test_memory_feedback_goes_to_the_memory(full_gateway_url: str, service: StandIn) -> None:
    memory = service.add_memory("text")
    async with http_client(full_gateway_url) as client:
        answer = await call(client, "memory_feedback", {"id": memory["id"], "outcome": "outdated", "note": "moved"})
    assert service.only("POST", ".*/feedback").body == {"outcome": "outdated", "note": "moved"}
    assert answer["heat"] == 1.1


async def test_memory_feedback_goes_to_the_experience_when_there_is_no_such_memory(
    full_gateway_url: str, service: StandIn
) -> None:
    async with http_client(full_gateway_url) as client:
        answer = await call(client, "memory_feedback", {"id": "lesson", "outcome": "success", "note": "fine"})
        sent = service.only("POST", "/v1/experiences/lesson/feedback")
        advice = await call_error(client, "memory_feedback", {"id": "lesson", "outcome": "irrelevant"})
    assert sent.body == {"outcome": "success"}
    assert len(service.requests("POST", "/v1/experiences/.*")) == 1  # the second outcome is none of an experience
    assert "keeps no note" in answer["note"]
    assert "must be success or failure" in advice


async def test_the_same_rating_again_has_the_same_idempotency_key(full_gateway_url: str, service: StandIn) -> None:
    memory = service.add_memory("text")
    async with http_client(full_gateway_url) as client:
        for outcome in ("success", "success", "failure"):
            await call(client, "memory_feedback", {"id": memory["id"], "outcome": outcome})
        await call(client, "memory_feedback", {"id": "lesson", "outcome": "success"})
    first, again, other = service.requests("POST", f"/v1/memories/{memory['id']}/feedback")
    lesson = service.only("POST", "/v1/experiences/lesson/feedback")
    keys = [seen.headers["idempotency-key"] for seen in (first, again, other, lesson)]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


async def test_the_same_rating_with_another_note_counts_once_and_says_that_the_note_is_not_kept(
    full_gateway_url: str, service: StandIn
) -> None:
    memory = service.add_memory("text", heat=1.1)
    path = f"/v1/memories/{memory['id']}/feedback"
    rated = Answer(200, {"memory": memory})
    service.misbehave("POST", path, rated, problem(422, "idempotency_mismatch"))  # as the service answers the same key
    async with http_client(full_gateway_url) as client:
        first, again = [
            await call(client, "memory_feedback", {"id": memory["id"], "outcome": "success", "note": note})
            for note in ("it fitted", "it fitted well")
        ]
    one, other = service.requests("POST", path)
    assert one.headers["idempotency-key"] == other.headers["idempotency-key"]
    assert (first["status"], "note" in first) == ("recorded", False)
    assert (again["status"], again["heat"]) == ("recorded", 1.1)
    assert "counts once" in again["note"]


async def test_feedback_on_what_does_not_exist_rates_nothing(full_gateway_url: str, service: StandIn) -> None:
    async with http_client(full_gateway_url) as client:
        advice = await call_error(client, "memory_feedback", {"id": "unknown", "outcome": "success"})
    assert "Nothing was saved. There is no memory or experience with this id" in advice


async def test_task_start_maps_every_argument(full_gateway_url: str, service: StandIn) -> None:
    arguments = {"goal": "g", "task_type": "t", "constraints": ["c"], "task_id": "7", "state": {"a": 1}}
    async with http_client(full_gateway_url) as client:
        answer = await call(client, "task_start", arguments)
    assert service.only("POST", "/v1/tasks").body == arguments | {"user_id": "ana"}
    assert answer["task_id"] == "7"
    assert answer["context"]["text"] == "known"
    assert answer["working_memory"] == {"task_id": "7", "user_id": "ana", "task_goal": "g"}  # nothing that is empty


async def test_task_start_of_a_running_task_says_how_to_go_on(full_gateway_url: str, service: StandIn) -> None:
    async with http_client(full_gateway_url) as client:
        await call(client, "task_start", {"goal": "g", "task_id": "7"})
        advice = await call_error(client, "task_start", {"goal": "g", "task_id": "7"})
        service.misbehave("POST", "/v1/tasks", problem(409, "in_progress", retry_after="1"))
        busy = await call_error(client, "task_start", {"goal": "g", "task_id": "8"})
    assert "Nothing was saved. A task with this task_id is running" in advice
    assert "still running" in busy
    assert "Wait 1 s" in busy


async def test_task_note_patches_and_adds_a_step(full_gateway_url: str, service: StandIn) -> None:
    service.working["a/b"] = {"facts": [], "steps": []}
    async with http_client(full_gateway_url) as client:
        notes = {"fact": "f", "todo": "t", "done": "d", "variable": {"port": 1}}
        step = {"tool": "psql", "arguments": {"q": "x"}, "result": "r", "error": "e"}
        await call(client, "task_note", {"task_id": "a/b", **notes, **step})
    assert service.only("PATCH", "/v1/working-memory/a%2Fb").body == {
        "user_id": "ana",
        "confirmed_facts": ["f"],
        "pending_items": ["t"],
        "done_items": ["d"],
        "remove": {"pending_items": ["d"]},
        "variables": {"port": 1},
    }
    assert service.only("POST", "/v1/working-memory/a%2Fb/steps").body == {"user_id": "ana", **step, "status": "error"}


@pytest.mark.parametrize("note", [{"fact": "f"}, {"tool": "psql", "status": "success"}])
async def test_task_note_with_one_part_sends_one_request(
    note: dict[str, str], full_gateway_url: str, service: StandIn
) -> None:
    service.working["t"] = {"facts": [], "steps": []}
    async with http_client(full_gateway_url) as client:
        await call(client, "task_note", {"task_id": "t", **note})
    assert len([seen for seen in service.seen if seen.path.startswith("/v1/working-memory")]) == 1


async def test_the_first_note_makes_the_working_memory(full_gateway_url: str, service: StandIn) -> None:
    async with http_client(full_gateway_url) as client:
        first = await call(client, "task_note", {"task_id": "new", "fact": "f"})
        second = await call(client, "task_note", {"task_id": "new", "fact": "g"})
    assert "check its task_id" in first["notice"]  # a mistyped id must not split a run unseen
    assert "notice" not in second
    assert service.working["new"]["facts"] == ["f", "g"]
    assert len(service.requests("PUT", ".*")) == 1


async def test_a_call_whose_end_is_not_told_is_not_noted_as_a_success(full_gateway_url: str, service: StandIn) -> None:
    service.working["t"] = {"facts": [], "steps": []}
    async with http_client(full_gateway_url) as client:
        told = await call_error(client, "task_note", {"task_id": "t", "tool": "upload", "fact": "f"})
        await call(client, "task_note", {"task_id": "t", "tool": "upload", "result": "ok"})
    assert "say how the call went" in told
    assert service.only("POST", "/v1/working-memory/t/steps").body["status"] == "success"
    assert service.requests("PATCH", ".*") == []


async def test_task_note_without_a_note_or_with_a_stray_result_is_explained(
    full_gateway_url: str, service: StandIn
) -> None:
    async with http_client(full_gateway_url) as client:
        assert "pass fact, todo, done, variable or tool" in await call_error(client, "task_note", {"task_id": "t"})
        stray = await call_error(client, "task_note", {"task_id": "t", "fact": "f", "result": "r"})
    assert "pass 'tool'" in stray
    assert [seen for seen in service.seen if seen.path.startswith("/v1/working-memory")] == []


async def test_task_advice_and_finish_map_every_argument(full_gateway_url: str, service: StandIn) -> None:
    service.working["t"] = {"facts": [], "steps": []}
    async with http_client(full_gateway_url) as client:
        advice = {"tool": "rm", "arguments": {"path": "/"}, "state": {"s": 1}}
        await call(client, "task_advice", {"task_id": "t", **advice})
        finish = {"outcome": "aborted", "result": "r", "feedback": "f"}
        answer = await call(client, "task_finish", {"task_id": "t", **finish})
    assert answer["episode"]["summary"] == "it ran"
    assert answer["episode"]["id"] in service.memories
    assert "content" not in answer["episode"]
    assert answer["review"] == {"steps": 0}
    assert service.only("POST", "/v1/tasks/t/advice").body == {"user_id": "ana", **advice}
    assert service.only("POST", "/v1/tasks/t/finish").body == {"user_id": "ana", **finish}


@pytest.mark.parametrize("tool", ["task_advice", "task_finish"])
async def test_an_unknown_task_is_explained(tool: str, full_gateway_url: str, service: StandIn) -> None:
    arguments = {"task_id": "t", "tool": "rm"} if tool == "task_advice" else {"task_id": "t", "outcome": "success"}
    async with http_client(full_gateway_url) as client:
        assert "There is no such task" in await call_error(client, tool, arguments)


async def test_unknown_tools_cannot_be_called(gateway: GatewayProcess, service: StandIn) -> None:
    async with http_client(gateway.url) as client:
        with pytest.raises(Exception, match="There is no such tool"):
            await client.call_tool("task_restart", {"task_id": "t"})


async def test_resources_read_the_service(full_gateway_url: str, service: StandIn) -> None:
    memory = service.add_memory("text")
    service.working["a/b"] = {"task_goal": "g"}
    async with http_client(full_gateway_url) as client:
        assert await read(client, f"memory://memories/{memory['id']}") == memory
        assert await read(client, "memory://working/a%2Fb") == {"task_goal": "g"}
        assert await read(client, "memory://stats") == {"memories": 1, "user_id": "ana"}
        for uri in (
            "memory://memories/unknown",
            "memory://memories/",
            "memory://nothing",
            "file:///etc/passwd",
            f"memory://memories/{memory['id']}?user_id=bob",  # an id has its user already
            "memory://stats?offset=1",
            "memory://working/a%2Fb?user_id=bob&user_id=ana",
            "memory://working/a%2Fb?offset=1",
        ):
            with pytest.raises(Exception, match=r"nothing at this URI|Check the URI"):
                await client.read_resource(uri)
    assert service.only("GET", "/v1/working-memory/a%2Fb").query == {"user_id": "ana"}


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("user_id", ["bob", "a+b", "咖啡/=&?#% +"])
async def test_the_working_memory_of_another_user_is_read_by_the_template(
    user_id: str, mode: str, full_gateway_url: str, service: StandIn
) -> None:
    service.working["a/b"] = {"task_goal": "g"}
    async with http_client(full_gateway_url, mode) as client:
        templates = (await client.list_resource_templates()).resource_templates
        (template,) = [one.uri_template for one in templates if "user_id" in one.uri_template]
        uri = UriTemplate.parse(template).expand({"task_id": "a/b", "user_id": user_id})
        assert await read(client, uri) == {"task_goal": "g"}
        assert await read(client, template.format(task_id="a%2Fb", user_id="")) == {"task_goal": "g"}
    theirs, default = service.requests("GET", "/v1/working-memory/a%2Fb")
    assert theirs.query == {"user_id": user_id}
    assert default.query == {"user_id": "ana"}


async def test_the_user_comes_from_the_argument_then_the_setting_then_the_key(
    service: StandIn, service_url: str
) -> None:
    service.keys = {"bound": "carol", "free": None}
    async with stdio_client(service_url, HINDSIGHT_API_KEY="bound", HINDSIGHT_USER_ID="ana") as client:
        await call(client, "memory_write", {"content": "1", "user_id": "bob"})
        await call(client, "memory_write", {"content": "2"})
    async with stdio_client(service_url, HINDSIGHT_API_KEY="bound", HINDSIGHT_USER_ID="") as client:
        await call(client, "memory_write", {"content": "3"})
    async with stdio_client(service_url, HINDSIGHT_API_KEY="free", HINDSIGHT_USER_ID="") as client:
        advice = await call_error(client, "memory_write", {"content": "4"})
    assert [seen.body["user_id"] for seen in service.requests("POST", "/v1/memories")] == ["bob", "ana", "carol"]
    assert "HINDSIGHT_USER_ID" in advice
    assert "'user_id'" in advice


async def test_a_service_without_keys_self_only_loses_the_bound_user(service: StandIn, service_url: str) -> None:
    service.keys = {"bound": "carol"}
    service.has_key_self = False
    async with stdio_client(service_url, HINDSIGHT_API_KEY="bound", HINDSIGHT_USER_ID="") as client:
        assert "Whose memories?" in await call_error(client, "memory_write", {"content": "x"})
        assert (await call(client, "memory_write", {"content": "x", "user_id": "carol"}))["status"] == "created"
