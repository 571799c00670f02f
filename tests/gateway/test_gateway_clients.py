"""Do the configurations in the README work as they are written? Each is read from the page and used by the real client."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from gateway_running import GatewayProcess, call, clean_environment, http_client
from gateway_stand_in import StandIn
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

README = Path(__file__).parents[2] / "README.md"
KEY = "hs_your_key"
EXECUTABLES = Path(sys.executable).parent


def section() -> str:
    """The README's part about MCP clients."""
    return README.read_text().split("\n## MCP clients\n")[1].split("\n## ")[0]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", section(), re.DOTALL)


def servers() -> list[dict[str, Any]]:
    return [json.loads(block)["mcpServers"]["hindsight"] for block in blocks("json")]


def test_the_page_has_configurations_for_both_transports() -> None:
    assert len([server for server in servers() if "url" in server]) == 2
    assert len([server for server in servers() if "command" in server]) == 2


@pytest.mark.asyncio
@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("server", [server for server in servers() if "command" in server])
async def test_stdio_configurations_connect(
    server: dict[str, Any], mode: str, service: StandIn, service_url: str
) -> None:
    service.keys = {KEY: None}
    parameters = StdioServerParameters(
        command=str(EXECUTABLES / server["command"]),
        args=server["args"],
        env=clean_environment() | server["env"] | {"HINDSIGHT_SERVICE_URL": service_url},
    )
    async with Client(parameters, mode=mode) as client:
        assert (await call(client, "memory_write", {"content": "x"}))["status"] == "created"
    assert service.only("POST", "/v1/memories").body["user_id"] == "ana"


@pytest.mark.asyncio
@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("server", [server for server in servers() if "url" in server])
async def test_http_configurations_connect(
    server: dict[str, Any], mode: str, gateway: GatewayProcess, service: StandIn
) -> None:
    service.keys = {KEY: None}
    assert server["url"] == "http://127.0.0.1:8080/mcp"
    async with http_client(gateway.url, mode, **server["headers"]) as client:
        assert (await call(client, "memory_write", {"content": "x"}))["status"] == "created"


@pytest.mark.asyncio
async def test_the_python_example_and_the_curl_line_run(gateway: GatewayProcess, service: StandIn) -> None:
    service.keys = {KEY: None}
    service.add_memory("ana likes coffee")
    (example,) = blocks("python")
    (curl,) = [block for block in blocks("bash") if block.startswith("curl")]

    async def output(*command: str) -> str:
        process = await asyncio.create_subprocess_exec(*command, stdout=-1, env=clean_environment(NO_PROXY="*"))
        text, _ = await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode == 0
        return text.decode()

    here = "http://127.0.0.1:8080/mcp", gateway.url
    assert "ana likes coffee" in await output(sys.executable, "-c", example.replace(*here))
    assert "memory_search" in await output("bash", "-c", curl.replace(*here))


def test_every_setting_of_the_gateway_that_users_need_is_on_the_page() -> None:
    text = section()
    for name in (
        "SERVICE_URL",
        "USER_ID",
        "API_KEY",
        "GATEWAY_HOST",
        "GATEWAY_PORT",
        "ALLOWED_HOSTS",
        "ALLOWED_ORIGINS",
    ):
        assert f"HINDSIGHT_{name}" in text
