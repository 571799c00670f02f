"""What would a language model and a shop answer? Two real HTTP servers on loopback, scripted by functions.

The chat server speaks OpenAI's API with tool calls and keeps every request; its script gets the request and is the model.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Json = Any


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class ChatServer:
    """`requests` are (headers, body) as they came in."""

    url: str
    script: Callable[[Json], Answer]
    requests: list[tuple[dict[str, str], Json]] = field(default_factory=list)

    def prompts(self) -> list[str]:
        """The first message of every conversation, in order."""
        firsts = [body["messages"] for _, body in self.requests if len(body["messages"]) == 2]
        return [messages[0]["content"] for messages in firsts]


def said(content: str | None = None, *calls: tuple[str, Json]) -> Answer:
    """A chat completion: text, or calls of tools with their arguments (a string is sent as it is)."""
    message: dict[str, Json] = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = [
            {
                "id": f"call_{number}",
                "type": "function",
                "function": {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given)},
            }
            for number, (name, given) in enumerate(calls)
        ]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    return Answer(200, json.dumps({"object": "chat.completion", "choices": [choice]}).encode())


@contextmanager
def running_chat(script: Callable[[Json], Answer]) -> Iterator[ChatServer]:
    chat = ChatServer("", script)

    def answer(handler: BaseHTTPRequestHandler) -> Answer:
        body = json.loads(handler.rfile.read(int(handler.headers["content-length"])))
        chat.requests.append(({name.lower(): value for name, value in handler.headers.items()}, body))
        return chat.script(body) if handler.path == "/v1/chat/completions" else Answer(404, b"{}")

    with _serving(answer) as address:
        chat.url = f"{address}/v1"
        yield chat


@contextmanager
def running_shop() -> Iterator[str]:
    """GET /orders and /invoices: 415 for every format but json; the default is xml, as its documents don't say."""

    def answer(handler: BaseHTTPRequestHandler) -> Answer:
        parts = urlsplit(handler.path)
        if parse_qs(parts.query).get("format") != ["json"]:
            return Answer(415, b"unsupported format, use format=json")
        return Answer(200, json.dumps({"shop": parts.path, "ids": [1, 2, 3]}).encode())

    with _serving(answer) as address:
        yield address


@contextmanager
def _serving(answer: Callable[[BaseHTTPRequestHandler], Answer]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            given = answer(self)
            self.send_response(given.status)
            for name, value in ({"Content-Length": str(len(given.body))} | given.headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(given.body)

        do_GET = do_POST = handle_any  # noqa: N815 (http.server names them)

        def log_message(self, *arguments: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
