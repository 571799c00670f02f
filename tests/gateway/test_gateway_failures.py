"""What does the model read when the service refuses, is slow, breaks or is away?"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from gateway_running import call, call_error, free_port, gateway_process, gateway_thread, http_client
from gateway_stand_in import Answer, BrokenConnection, Drip, Silence, StandIn, problem

from mcp_gateway.tools import ALL_TOOLS

pytestmark = pytest.mark.asyncio

UNKNOWN = "It is unknown whether it was saved. Search before retrying."


@pytest.mark.parametrize(
    ("answer", "advice"),
    [
        (problem(400, "malformed", "The body is broken"), "Nothing was saved. The body is broken."),
        (problem(401, "unauthorized"), "Nothing was saved. The memory service needs an API key that it knows."),
        (problem(403, "forbidden", "readers may not write"), "This key may not do that. readers may not write."),
        (problem(404, "not_found"), "Nothing was saved. This memory service cannot write memories."),
        (problem(409, "conflict", "stale version"), "Nothing was saved. It conflicts with the current state."),
        (problem(409, "running", retry_after="3"), f"still running. {UNKNOWN} Wait 3 s first."),
        (problem(410, "erased"), "Nothing was saved. This id was erased for good"),
        (problem(413, "too_large"), "Nothing was saved. It is too large: content may have at most 256 KiB."),
        (
            problem(422, "invalid", fields=(("content", "must not be blank"),)),
            "Nothing was saved. content: must not be blank.",
        ),
        (
            problem(422, "invalid", fields=(("kind", "is odd"), ("metadata.a.b", "is NaN"))),
            "memory_type: is odd. metadata.a.b: is NaN.",
        ),
        (problem(429, "rate", retry_after="17"), "Nothing was saved. Too many requests. Wait 17 s, then try again."),
        (problem(429, "rate", retry_after="soon"), "Wait a little, then try again."),
        (
            problem(503, "store_down", "Postgres is down"),
            "Nothing was saved. A store that the memory service needs is down.",
        ),
        (
            problem(503, "user_being_erased", "This user is being erased", retry_after="3"),
            "Nothing was saved. All memories of this user are being erased just now. Try again in 3 s.",
        ),
        (problem(500, "internal"), UNKNOWN),
        (Answer(502, "<html>bad gateway</html>"), UNKNOWN),
        (Answer(418, {"detail": "teapot"}), "Nothing was saved. The memory service refused it (HTTP 418). teapot."),
        (Answer(200, ["not", "a", "memory"]), UNKNOWN),
    ],
)
async def test_each_answer_becomes_advice(answer: Answer, advice: str, full_gateway_url: str, service: StandIn) -> None:
    service.misbehave("POST", "/v1/memories", answer)
    async with http_client(full_gateway_url) as client:
        assert advice in await call_error(client, "memory_write", {"content": "x"})


async def test_field_errors_use_the_names_of_the_tool(full_gateway_url: str, service: StandIn) -> None:
    refusal = problem(422, "invalid", fields=(("limit", "too big"), ("query", "is blank")))
    service.misbehave("POST", "/v1/memories/search", refusal)
    service.misbehave("POST", ".*/distill", problem(422, "invalid", fields=(("trajectory.steps", "is empty"),)))
    async with http_client(full_gateway_url) as client:
        episodic = await call_error(client, "search_episodic_memory", {"task_description": " "})
        distill = await call_error(client, "memory_distill", {"goal": "g", "outcome": "success", "steps": []})
    assert episodic == "top_k: too big. task_description: is blank."
    assert distill == "Nothing was saved. steps: is empty."


async def test_no_address_and_no_stack_gets_out(full_gateway_url: str, service: StandIn) -> None:
    leak = "connect to postgresql://hindsight:secret@db:5432/x failed at http://10.0.0.1:8000/v1\n  File x.py, line 3"
    service.misbehave("POST", "/v1/memories", problem(503, "store_down", leak * 10))
    async with http_client(full_gateway_url) as client:
        advice = await call_error(client, "memory_write", {"content": "x"})
    assert "secret" not in advice
    assert "://" not in advice
    assert "\n" not in advice
    assert len(advice) < 600


@pytest.mark.parametrize(
    ("tool", "arguments", "nothing"),
    [
        ("memory_write", {"content": "x"}, "Nothing was saved."),
        ("memory_update", {"id": "i", "content": "x"}, "Nothing was changed."),
        ("memory_delete", {"id": "i"}, "Nothing was deleted."),
        ("memory_search", {"query": "x"}, "The memory service is not reachable."),
    ],
)
async def test_a_service_that_is_away_changed_nothing(
    tool: str, arguments: dict[str, str], nothing: str, tmp_path: Path
) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    with gateway_thread(nobody, ALL_TOOLS) as url:
        async with http_client(url) as client:
            advice = await call_error(client, tool, arguments)
    assert advice.startswith(nothing)
    assert "The memory service is not reachable." in advice
    assert nobody not in advice


@pytest.mark.parametrize("fault", [Silence(), Drip()])
async def test_a_write_without_an_answer_in_time_is_unknown(
    fault: Silence | Drip, service: StandIn, service_url: str
) -> None:
    service.misbehave("POST", "/v1/memories", fault)
    with gateway_thread(service_url, ALL_TOOLS, gateway_upstream_timeout_seconds=0.5) as url:
        async with http_client(url) as client:
            started = time.monotonic()
            advice = await call_error(client, "memory_write", {"content": "x"})
            took = time.monotonic() - started
    assert advice == f"The memory service did not answer in time. {UNKNOWN}"
    assert took < 2
    assert len(service.requests("POST", "/v1/memories")) == 1  # a slow write is not repeated


async def test_a_broken_connection_is_retried_once_with_the_same_key(full_gateway_url: str, service: StandIn) -> None:
    service.misbehave(
        "POST", "/v1/memories", BrokenConnection(), Answer(201, {"status": "created", "memory": {"id": "1"}})
    )
    async with http_client(full_gateway_url) as client:
        assert (await call(client, "memory_write", {"content": "x"}))["id"] == "1"
    first, second = service.requests("POST", "/v1/memories")
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert first.body == second.body


async def test_a_connection_that_stays_broken_is_unknown(full_gateway_url: str, service: StandIn) -> None:
    service.misbehave("POST", "/v1/memories", BrokenConnection())
    async with http_client(full_gateway_url) as client:
        advice = await call_error(client, "memory_write", {"content": "x"})
    assert advice == f"The memory service broke the connection before answering. {UNKNOWN}"
    assert len(service.requests("POST", "/v1/memories")) == 2


@pytest.mark.parametrize(("method", "tool"), [("PATCH", "memory_update"), ("DELETE", "memory_delete")])
async def test_what_has_no_idempotency_key_is_never_retried(
    method: str, tool: str, full_gateway_url: str, service: StandIn
) -> None:
    memory = service.add_memory("x")
    service.misbehave(method, ".*", BrokenConnection())
    async with http_client(full_gateway_url) as client:
        arguments = {"id": memory["id"]} | ({"content": "y"} if tool == "memory_update" else {})
        assert "It is unknown whether it was" in await call_error(client, tool, arguments)
    assert len(service.requests(method, ".*")) == 1


async def test_a_note_that_is_saved_without_its_tool_call_says_so(full_gateway_url: str, service: StandIn) -> None:
    service.working["t"] = {"facts": [], "steps": []}
    service.misbehave("POST", ".*/steps", problem(422, "invalid", fields=(("result", "too long"),)))
    async with http_client(full_gateway_url) as client:
        advice = await call_error(client, "task_note", {"task_id": "t", "fact": "f", "tool": "x", "status": "error"})
    assert advice == "Fact, to-do, done and variable were saved. The tool call: Nothing was saved. result: too long."


async def test_a_degraded_search_says_so(full_gateway_url: str, service: StandIn) -> None:
    service.misbehave("POST", ".*/search", Answer(200, {"results": [], "degraded": ["vector"], "retrieval_id": "r"}))
    async with http_client(full_gateway_url) as client:
        answer = await call(client, "memory_search", {"query": "x"})
    assert answer["degraded"] == ["vector"]
    assert "hits may be missing" in answer["note"]


async def test_an_upstream_body_without_end_is_cut_off(service: StandIn, service_url: str) -> None:
    service.misbehave("POST", ".*/search", Answer(200, {"results": [], "junk": "x" * 20_000}))
    with gateway_thread(service_url, ALL_TOOLS, gateway_upstream_body_bytes_max=10_000) as url:
        async with http_client(url) as client:
            assert "broke the connection" in await call_error(client, "memory_search", {"query": "x"})


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_connecting_takes_less_than_two_seconds_with_the_service_down(mode: str, tmp_path: Path) -> None:
    with gateway_process(f"http://127.0.0.1:{free_port()}", tmp_path / "log") as gateway:
        started = time.monotonic()
        async with http_client(gateway.url, mode) as client:
            assert (await client.list_tools()).tools
            assert time.monotonic() - started < 2


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_connecting_takes_less_than_two_seconds_with_the_service_silent(
    mode: str, service: StandIn, service_url: str, tmp_path: Path
) -> None:
    silence = Silence()
    service.misbehave("GET", "/v1/keys/self", silence)
    with gateway_process(service_url, tmp_path / "log") as gateway:
        started = time.monotonic()
        async with http_client(gateway.url, mode):
            assert time.monotonic() - started < 2
    assert silence.started.is_set()
