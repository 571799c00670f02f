"""A chat endpoint on loopback that answers by script: what real ones do, and what they do on a bad day."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Answer:
    """`text` is what the model says, wrapped into a chat completion; `body` is sent as it is instead.

    `hangs` never answers; `drips` sends one byte each 20 ms; `breaks_off_at` closes the connection after so many bytes of
    the body; `slow_s` waits first.
    """

    text: Any = None
    status: int = 200
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    finish: str | None = "stop"
    usage: Any = field(default_factory=lambda: {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120})
    hangs: bool = False
    drips: bool = False
    slow_s: float = 0.0
    breaks_off_at: int | None = None

    def content(self) -> bytes:
        if self.body is not None:
            return self.body
        message = {"role": "assistant", "content": self.text}
        choice = {"index": 0, "message": message, "finish_reason": self.finish}
        return json.dumps({"object": "chat.completion", "choices": [choice], "usage": self.usage}).encode()


def saying(value: Any, **fields: Any) -> Answer:
    """The model says this value as JSON."""
    return Answer(json.dumps(value, ensure_ascii=False), **fields)


Judge = Callable[[dict[str, Any]], Answer]


class Endpoint:
    """Takes the script's answers in turn, then `then` for ever; remembers requests.  A Judge looks at the request first."""

    def __init__(self, script: list[Answer], then: Answer | Judge) -> None:
        self.script = script
        self.then = then
        self.url = ""
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.at: list[float] = []
        self.now = self.most_at_once = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while await self._one(reader, writer):
                pass
        writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in head[1:]) if n}
        request = json.loads(await reader.readexactly(int(headers["content-length"])))
        self.requests.append(request)
        self.headers.append(headers)
        self.paths.append(head[0].split(" ")[1])
        self.at.append(asyncio.get_running_loop().time())
        answer = (
            self.script.pop(0) if self.script else self.then if isinstance(self.then, Answer) else self.then(request)
        )
        self.now += 1
        self.most_at_once = max(self.most_at_once, self.now)
        try:
            return await self._send(answer, writer)
        finally:
            self.now -= 1

    async def _send(self, answer: Answer, writer: asyncio.StreamWriter) -> bool:
        await asyncio.sleep(600 if answer.hangs else answer.slow_s)
        content = answer.content()
        lines = {"content-type": "application/json", "content-length": str(len(content)), **answer.headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        writer.write(f"HTTP/1.1 {answer.status} Scripted\r\n{head}\r\n".encode())
        if answer.drips:
            for byte in content:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.02)
            return True
        writer.write(content[: answer.breaks_off_at])
        await writer.drain()
        return answer.breaks_off_at is None


@asynccontextmanager
async def language_server(*script: Answer, then: Answer | Judge | None = None) -> AsyncIterator[Endpoint]:
    """`then` defaults to repeating the script's last answer."""
    endpoint = Endpoint(list(script), then or (script[-1] if script else saying({})))
    running: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        try:
            await endpoint.serve(reader, writer)
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            running.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    endpoint.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield endpoint
    finally:
        server.close()
        for task in list(running):
            task.cancel()
        if running:
            await asyncio.wait(list(running), timeout=5)
