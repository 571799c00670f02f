"""What does a client see when it connects?"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from gateway_running import GatewayProcess, http_client, stdio_client, text_of
from gateway_stand_in import StandIn
from mcp.client import Client

from mcp_gateway.arguments import check_arguments, input_schema
from mcp_gateway.tools import ALL_TOOLS
from mcp_gateway.tools.tool import Tool

LISTED = [
    "memory_search",
    "search_episodic_memory",
    "memory_write",
    "memory_update",
    "memory_delete",
    "memory_query",
    "memory_distill",
    "memory_feedback",
    "task_start",
    "task_note",
    "task_advice",
    "task_finish",
]
# API.md, "MCP tools": names and defaults; "!" marks what has no default and no question mark there.
CONTRACT = {
    "memory_search": "query! user_id top_k=5 kinds tags since until cursor",
    "search_episodic_memory": "task_description! task_type top_k=5 user_id",
    "memory_write": "content! memory_type=auto tags importance outcome metadata related_ids user_id",
    "memory_update": "id! content tags importance metadata",
    "memory_delete": "id!",
    "memory_query": "semantic_query conditions state task_type top_k=3 min_confidence user_id",
    "memory_distill": "goal! outcome! steps! task_type feedback user_id",
    "memory_feedback": "id! outcome! note",
    "task_start": "goal! task_type constraints task_id state user_id",
    "task_note": "task_id! fact todo done variable tool arguments status result error user_id",
    "task_advice": "task_id! tool! arguments state user_id",
    "task_finish": "task_id! outcome! result feedback user_id",
}


@asynccontextmanager
async def connect(transport: str, mode: str, gateway: GatewayProcess, service_url: str) -> AsyncIterator[Client]:
    opened = http_client(gateway.url, mode) if transport == "http" else stdio_client(service_url, mode)
    async with opened as client:
        yield client


@pytest.mark.asyncio
@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_every_transport_and_protocol_lists_the_same(
    transport: str, mode: str, gateway: GatewayProcess, service: StandIn, service_url: str
) -> None:
    async with connect(transport, mode, gateway, service_url) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == LISTED
        assert [resource.uri for resource in (await client.list_resources()).resources] == ["memory://stats"]
        templates = (await client.list_resource_templates()).resource_templates
        assert [template.uri_template for template in templates] == [
            "memory://memories/{id}",
            "memory://working/{task_id}",
            "memory://working/{task_id}?user_id={user_id}",
        ]
        assert [prompt.name for prompt in (await client.list_prompts()).prompts] == [
            "recall_before_task",
            "save_lessons",
        ]


def test_arguments_and_defaults_are_those_of_the_contract() -> None:
    assert sorted(CONTRACT) == sorted(tool.name for tool in ALL_TOOLS)
    for tool in ALL_TOOLS:
        declared = []
        for argument in tool.arguments:
            default = "" if argument.default is None else f"={argument.default}"
            declared.append(f"{argument.name}{'!' if argument.required else ''}{default}")
        assert sorted(declared) == sorted(CONTRACT[tool.name].split()), tool.name


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for member in value.values():
            yield from nodes(member)
    elif isinstance(value, list):
        for member in value:
            yield from nodes(member)


@pytest.mark.parametrize("tool", ALL_TOOLS, ids=lambda tool: tool.name)
def test_schemas_are_flat(tool: Any) -> None:
    schema = input_schema(tool.arguments)
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert set(schema["required"]) <= set(schema["properties"])
    for node in nodes(schema):
        assert not {"anyOf", "oneOf", "allOf", "$ref", "$defs"} & set(node)
        assert isinstance(node.get("type", "object"), str | dict)  # never a list of types, so never a null union
        assert node.get("type") != "null"


def test_annotations_say_what_a_tool_does() -> None:
    assert {tool.name for tool in ALL_TOOLS if tool.read_only} == {
        "memory_search",
        "search_episodic_memory",
        "memory_query",
        "task_advice",
    }
    assert {tool.name for tool in ALL_TOOLS if tool.destructive} == {"memory_update", "memory_delete"}
    assert {tool.name for tool in ALL_TOOLS if tool.idempotent} == {"memory_delete", "memory_feedback"}


@pytest.mark.parametrize("tool", ALL_TOOLS, ids=lambda tool: tool.name)
def test_descriptions_have_an_example_that_the_tool_takes(tool: Tool) -> None:
    assert len(tool.description) < 700
    example = tool.description.split("Example: ")[1]
    arguments, _ = json.JSONDecoder().raw_decode(example)
    assert check_arguments(tool.name, tool.arguments, arguments).items() >= arguments.items()


def test_distilling_is_not_asked_for_after_a_finish() -> None:
    (distill,) = [tool for tool in ALL_TOOLS if tool.name == "memory_distill"]
    assert "Not needed after task_finish" in distill.description


@pytest.mark.asyncio
async def test_prompts_lead_through_the_task_loop(gateway: GatewayProcess, service: StandIn) -> None:
    async with http_client(gateway.url) as client:
        recall = await client.get_prompt("recall_before_task", {"task": "升级集群"})
        save = await client.get_prompt("save_lessons")
        with pytest.raises(Exception, match="needs the argument 'task'"):
            await client.get_prompt("recall_before_task")
    steps = text_of([recall.messages[0].content])
    loop = [steps.index(tool) for tool in ("task_start", "task_advice", "task_note", "task_finish")]
    assert loop == sorted(loop)
    assert "升级集群" in steps
    lessons = text_of([save.messages[0].content])
    assert lessons.index("task_finish") < lessons.index("memory_distill") < lessons.index("memory_write")
    for text in (steps, lessons):
        assert not set(re.findall(r"\b(?:memory|task|search)_[a-z_]+\b", text)) - {*LISTED, "task_id", "task_type"}
