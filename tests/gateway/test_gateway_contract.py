"""Does everything the tools send exist in the service's own OpenAPI page?

Each tool is called with all its arguments; what arrives at the stand-in is compared with the schema of the real
application, which is only built here, not started.
"""

from __future__ import annotations

import importlib
import re
from functools import cache
from typing import Any

import pytest
from gateway_running import http_client
from gateway_stand_in import Seen, StandIn

from mcp_gateway.tools import ALL_TOOLS

CALLS: dict[str, dict[str, Any]] = {
    "memory_search": {
        "query": "q",
        "user_id": "u",
        "top_k": 3,
        "kinds": ["episodic"],
        "tags": ["t"],
        "since": "2026-01-01T00:00:00Z",
        "until": "2026-02-01T00:00:00Z",
    },
    "search_episodic_memory": {"task_description": "d", "task_type": "t", "top_k": 2, "user_id": "u"},
    "memory_write": {
        "content": "c",
        "memory_type": "semantic",
        "tags": ["t"],
        "importance": 0.5,
        "outcome": "success",
        "metadata": {"a": 1},
        "related_ids": ["01890a5d-ac96-774b-bcce-b302099a8057"],
        "user_id": "u",
    },
    "memory_update": {"id": "i", "content": "c", "tags": ["t"], "importance": 0.5, "metadata": {}},
    "memory_delete": {"id": "i"},
    "memory_query": {
        "semantic_query": "q",
        "conditions": [{"field": "a", "operator": "eq", "value": 1}],
        "state": {"a": 1},
        "task_type": "t",
        "top_k": 3,
        "min_confidence": 0.5,
        "user_id": "u",
    },
    "memory_distill": {
        "goal": "g",
        "outcome": "success",
        "steps": [{"tool": "t", "arguments": {}, "status": "success"}],
        "task_type": "t",
        "feedback": "f",
        "user_id": "u",
    },
    "memory_feedback": {"id": "i", "outcome": "success", "note": "n"},
    "task_start": {
        "goal": "g",
        "task_type": "t",
        "constraints": ["c"],
        "task_id": "new",
        "state": {"a": 1},
        "user_id": "u",
    },
    "task_note": {
        "task_id": "i",
        "fact": "f",
        "todo": "t",
        "done": "d",
        "variable": {"v": 1},
        "tool": "t",
        "arguments": {"a": 1},
        "status": "error",
        "result": "r",
        "error": "e",
        "user_id": "u",
    },
    "task_advice": {"task_id": "i", "tool": "t", "arguments": {}, "state": {}, "user_id": "u"},
    "task_finish": {"task_id": "i", "outcome": "success", "result": "r", "feedback": "f", "user_id": "u"},
}
# The cursor stays in the gateway; ids go into the path, so their value is looked for in the whole request.
NOT_SENT = {("memory_search", "cursor")}


@cache
def service_openapi() -> dict[str, Any]:
    try:
        app_module = importlib.import_module("memory_service.app")
    except ModuleNotFoundError as missing:
        if missing.name != "memory_service.app":
            raise
        pytest.skip("memory_service.app does not exist yet, so there is no OpenAPI page to compare with")
    settings_module = importlib.import_module("memory_service.settings")
    document: dict[str, Any] = app_module.create_app(settings_module.Settings()).openapi()
    return document


def operation_for(openapi: dict[str, Any], seen: Seen) -> dict[str, Any] | None:
    candidates = [
        (template.count("{"), operations[seen.method.lower()])
        for template, operations in openapi["paths"].items()
        if seen.method.lower() in operations and re.fullmatch(re.sub(r"\{[^}]+\}", "[^/]+", template), seen.path)
    ]
    return min(candidates, key=lambda candidate: candidate[0])[1] if candidates else None


def resolve(openapi: dict[str, Any], schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Every alternative of a schema, with references followed."""
    if "$ref" in schema:
        target: Any = openapi
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        return resolve(openapi, target)
    nested = [*schema.get("anyOf", []), *schema.get("oneOf", []), *schema.get("allOf", [])]
    return [found for member in nested for found in resolve(openapi, member)] or [schema]


def disagreements(openapi: dict[str, Any], schema: dict[str, Any], value: Any, where: str) -> list[str]:
    """Fields that the schema does not have, required ones that are missing, values outside an enumeration."""
    alternatives = resolve(openapi, schema)
    if isinstance(value, dict):
        objects = [one for one in alternatives if "properties" in one]
        if not objects:
            return []
        properties = {name: member for one in objects for name, member in one["properties"].items()}
        required = set.intersection(*(set(one.get("required", [])) for one in objects))
        found = [f"{where}.{name} is not in the service's OpenAPI" for name in value if name not in properties]
        found += [f"{where}.{name} is required" for name in required - set(value)]
        for name in set(value) & set(properties):
            found += disagreements(openapi, properties[name], value[name], f"{where}.{name}")
        return found
    allowed = [one["enum"] for one in alternatives if "enum" in one]
    if isinstance(value, str) and allowed and not any(value in choices for choices in allowed):
        return [f"{where}: {value!r} is not one of {allowed}"]
    return []


async def sent_by(tool: str, url: str, service: StandIn) -> list[Seen]:
    service.working["i"] = {"facts": [], "steps": []}
    async with http_client(url) as client:
        await client.call_tool(tool, CALLS[tool])
    return [
        seen for seen in service.seen if seen.path not in ("/v1/keys/self", "/v1/memories") or seen.method == "POST"
    ]


def test_every_argument_of_every_tool_is_in_the_calls_below() -> None:
    for tool in ALL_TOOLS:
        declared = {argument.name for argument in tool.arguments}
        assert declared - set(CALLS[tool.name]) == {name for owner, name in NOT_SENT if owner == tool.name}


@pytest.mark.asyncio
@pytest.mark.parametrize("tool", [tool.name for tool in ALL_TOOLS])
async def test_every_argument_reaches_the_service(tool: str, full_gateway_url: str, service: StandIn) -> None:
    requests = await sent_by(tool, full_gateway_url, service)
    everything = str([(seen.path, seen.query, seen.body) for seen in requests])
    for name, value in CALLS[tool].items():
        assert str(value) in everything, name


@pytest.mark.asyncio
@pytest.mark.parametrize("tool", [tool.name for tool in ALL_TOOLS])
async def test_what_a_tool_sends_is_in_the_services_openapi(tool: str, full_gateway_url: str, service: StandIn) -> None:
    openapi = service_openapi()
    for seen in await sent_by(tool, full_gateway_url, service):
        operation = operation_for(openapi, seen)
        assert operation is not None, f"{tool} needs {seen.method} {seen.path}, which the service does not have"
        if seen.body is not None:
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            assert disagreements(openapi, schema, seen.body, seen.path) == []


def test_the_comparison_notices_unknown_missing_and_wrong_values() -> None:
    openapi = {
        "components": {"schemas": {"Body": {"properties": {"a": {"enum": ["x"]}, "b": {}}, "required": ["b"]}}},
    }
    reference = {"anyOf": [{"$ref": "#/components/schemas/Body"}, {"type": "null"}]}
    assert disagreements(openapi, reference, {"a": "x", "b": 1}, "p") == []
    assert len(disagreements(openapi, reference, {"a": "y", "c": 1}, "p")) == 3
