"""How do the tests run the gateway and talk to it? As a real process, or in a thread with all tools; by the real client."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import httpx2
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ContentBlock, TextContent, TextResourceContents

from mcp_gateway.http_transport import open_http_server
from mcp_gateway.settings import GatewaySettings
from mcp_gateway.tools.tool import Tool

START_SECONDS_MAX = 20.0


def clean_environment(**variables: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HINDSIGHT_")}
    return inherited | {"HINDSIGHT_USER_ID": "ana"} | variables


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class GatewayProcess:
    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def log_lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@contextmanager
def gateway_process(service_url: str, log: Path, **variables: str) -> Iterator[GatewayProcess]:
    """`python -m mcp_gateway http` on a free port; ended at the latest on exit."""
    port = free_port()
    environment = clean_environment(HINDSIGHT_SERVICE_URL=service_url, HINDSIGHT_GATEWAY_PORT=str(port), **variables)
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "mcp_gateway", "http"], env=environment, stdout=subprocess.PIPE, stderr=stderr
        )
    try:
        wait_until_healthy(f"http://127.0.0.1:{port}", process)
        yield GatewayProcess(process, f"http://127.0.0.1:{port}/mcp", log)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def wait_until_healthy(base: str, process: subprocess.Popen[bytes] | None = None) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        assert process is None or process.poll() is None, "the gateway ended while starting"
        try:
            if httpx.get(f"{base}/health", trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.05)
    raise AssertionError("the gateway did not start")


@contextmanager
def gateway_thread(service_url: str, tools: Sequence[Tool], **settings: Any) -> Iterator[str]:
    """The same server in a thread of the test process, with any tools; yields its MCP URL."""
    port = free_port()
    chosen = GatewaySettings(service_url=service_url, gateway_port=port, **({"user_id": "ana"} | settings))
    servers: list[Any] = []

    async def serve() -> None:
        async with open_http_server(chosen, tools) as server:
            servers.append(server)
            await server.serve()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    wait_until_healthy(f"http://127.0.0.1:{port}")
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        servers[0].should_exit = True
        thread.join(10)


@asynccontextmanager
async def http_client(url: str, mode: str = "auto", **headers: str) -> AsyncIterator[Client]:
    """The SDK's own client; mode 'legacy' speaks the 2025 protocol that today's desktop clients speak."""
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60) as transport,
        Client(streamable_http_client(url, http_client=transport), mode=mode) as client,
    ):
        yield client


@asynccontextmanager
async def stdio_client(service_url: str, mode: str = "auto", **variables: str) -> AsyncIterator[Client]:
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "mcp_gateway", "stdio"],
        env=clean_environment(HINDSIGHT_SERVICE_URL=service_url, **variables),
    )
    async with Client(parameters, mode=mode) as client:
        yield client


async def call(client: Client, tool: str, arguments: dict[str, Any]) -> Any:
    """The JSON of a successful call."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text_of(result.content)
    return json.loads(text_of(result.content))


async def call_error(client: Client, tool: str, arguments: dict[str, Any]) -> str:
    """The advice of a failed call."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, text_of(result.content)
    return text_of(result.content)


async def read(client: Client, uri: str) -> Any:
    """The JSON of a resource."""
    (contents,) = (await client.read_resource(uri)).contents
    assert isinstance(contents, TextResourceContents)
    return json.loads(contents.text)


def text_of(content: Sequence[ContentBlock]) -> str:
    """The one text block that every result of the gateway consists of."""
    (block,) = content
    assert isinstance(block, TextContent)
    return block.text
