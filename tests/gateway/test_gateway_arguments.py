"""What happens to arguments that a model got wrong?"""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from gateway_running import GatewayProcess, call, call_error, http_client
from gateway_stand_in import StandIn
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_gateway.arguments import check_arguments
from mcp_gateway.errors import BadArguments
from mcp_gateway.surrogates import neutralise
from mcp_gateway.tools import ALL_TOOLS

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.asyncio
async def test_objects_and_lists_may_arrive_as_json_strings(full_gateway_url: str, service: StandIn) -> None:
    service.working["t"] = {"facts": [], "steps": []}
    async with http_client(full_gateway_url) as client:
        await call(client, "memory_write", {"content": "x", "metadata": '{"a": {"b": [1]}}', "tags": '["t"]'})
        await call(client, "memory_query", {"conditions": '[{"field": "a"}]', "state": '{"s": true}'})
        await call(client, "memory_distill", {"goal": "g", "outcome": "success", "steps": '[{"tool": "t"}]'})
        await call(
            client,
            "task_note",
            {"task_id": "t", "tool": "t", "status": "success", "arguments": '{"x": 1}', "variable": '{"v": 2}'},
        )
    assert service.only("POST", "/v1/memories").body["metadata"] == {"a": {"b": [1]}}
    assert service.only("POST", "/v1/memories").body["tags"] == ["t"]
    assert service.only("POST", "/v1/experiences/query").body["conditions"] == [{"field": "a"}]
    assert service.only("POST", "/v1/experiences/distill").body["trajectory"]["steps"] == [{"tool": "t"}]
    assert service.only("POST", ".*/steps").body["arguments"] == {"x": 1}
    assert service.only("PATCH", ".*").body["variables"] == {"v": 2}


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("tool", "arguments", "advice"),
    [
        ("memory_search", {"query": "q", "limit": 3}, "has no argument 'limit'. Allowed: query, user_id, top_k"),
        ("memory_search", {}, "needs the argument 'query': a string"),
        ("memory_search", {"query": None}, "needs the argument 'query'"),
        ("memory_search", {"query": 5}, "'query' must be a string"),
        ("memory_search", {"query": "q", "top_k": "5"}, "'top_k' must be a whole number"),
        ("memory_search", {"query": "q", "top_k": True}, "'top_k' must be a whole number"),
        ("memory_search", {"query": "q", "top_k": 2.5}, "'top_k' must be a whole number"),
        ("memory_search", {"query": "q", "top_k": 0}, "'top_k' must be between 1 and 100"),
        ("memory_search", {"query": "q", "top_k": 101}, "'top_k' must be between 1 and 100"),
        ("memory_search", {"query": "q", "kinds": ["fact"]}, "'kinds' must be one of: episodic, semantic"),
        ("memory_search", {"query": "q", "tags": "deploy"}, "'tags' must be a list of strings"),
        ("memory_search", {"query": "q", "tags": [1]}, "'tags' must be a list of strings"),
        ("memory_write", {"content": "c", "memory_type": "fact"}, "must be one of: auto, episodic, semantic"),
        ("memory_write", {"content": "c", "importance": 2}, "'importance' must be between 0 and 1"),
        ("memory_write", {"content": "c", "metadata": "not json"}, "'metadata' must be an object"),
        ("memory_write", {"content": "c", "metadata": [1]}, "'metadata' must be an object"),
        ("memory_write", {"content": "c", "metadata": {"n": 2**70}}, "more than 64 bits"),
        ("memory_write", {"content": "a\x00b"}, "'content' contains a NUL"),
        ("memory_write", {"content": "c", "metadata": {"k\x00": 1}}, "'metadata' contains a NUL"),
        ("memory_write", {"content": "c", "tags": ["\x00"]}, "'tags' contains a NUL"),
        ("memory_query", {"conditions": [1]}, "'conditions' must be a list of objects"),
    ],
)
async def test_wrong_arguments_come_back_as_advice(
    tool: str, arguments: dict[str, Any], advice: str, full_gateway_url: str, service: StandIn
) -> None:
    async with http_client(full_gateway_url) as client:
        assert advice in await call_error(client, tool, arguments)
    assert [seen for seen in service.seen if seen.path not in ("/v1/keys/self",)] == []


def test_a_value_nested_too_deeply_is_named() -> None:
    deep: Any = {}
    for _ in range(40):
        deep = {"d": deep}
    tool = next(tool for tool in ALL_TOOLS if tool.name == "memory_write")
    with pytest.raises(BadArguments, match="'metadata' is nested deeper than 32"):
        check_arguments(tool.name, tool.arguments, {"content": "c", "metadata": deep})


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(ALL_TOOLS), st.data())
def test_any_json_is_either_accepted_as_encodable_or_refused_with_a_sentence(tool: Any, data: Any) -> None:
    names = st.sampled_from([argument.name for argument in tool.arguments]) | st.text(st.characters(), max_size=5)
    arguments = data.draw(st.dictionaries(names, json_values, max_size=6))
    try:
        checked = check_arguments(tool.name, tool.arguments, arguments)
    except BadArguments as refusal:
        advice = str(refusal)
    else:
        advice = ""
        json.dumps(checked, allow_nan=False, ensure_ascii=False).encode()
    assert advice.isprintable()
    advice.encode()


async def post(url: str, content: bytes, **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False) as client:
        standard = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        return await client.post(url, content=content, headers=standard | headers)


def tool_call(text: bytes, protocol: str) -> bytes:
    meta = b""
    if protocol == "2026-07-28":
        meta = b'"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}, '
    return (
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {'
        + meta
        + b'"name": "memory_write", "arguments": {"content": "'
        + text
        + b'"}}}'
    )


@pytest.mark.asyncio
@pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("text", [b"half \\ud83d pair", b"\\uDE00", b"\\ud83d\\ud83d\\ude00"])
async def test_half_a_surrogate_pair_is_refused_by_name(
    text: bytes, protocol: str, gateway: GatewayProcess, service: StandIn
) -> None:
    modern = {"mcp-method": "tools/call", "mcp-name": "memory_write"} if protocol == "2026-07-28" else {}
    headers = {"mcp-protocol-version": protocol} | modern
    response = await post(gateway.url, tool_call(text, protocol), **headers)
    assert response.status_code == 200, response.text
    assert "'content' contains a NUL character or half of a surrogate pair" in response.text
    assert service.requests("POST", "/v1/memories") == []


def test_whole_pairs_and_escaped_backslashes_are_left_alone() -> None:
    for text in ('"\\ud83d\\ude00"', '"\\\\ud83d"', '"\\n\\u4e2d"', '"plain"', '"\\\\\\\\ud800 \\ud83d\\ude00"'):
        assert neutralise(text.encode()) == text.encode()
    assert json.loads(neutralise(b'"\\\\\\ud800x"')) == "\\\x00x"
