"""What would the service answer? A small HTTP server on loopback that keeps the contract's shapes and records requests.

It stores memories and working memories for real, refuses what the contract does not have (an unknown field is a 422
and is remembered in `violations`), and can be told to misbehave: an error, silence, a broken connection.
"""

from __future__ import annotations

import json
import re
import select
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from gateway_contract import CONTRACT, ID, KEYED_POSTS

Json = Any


@dataclass(frozen=True)
class Seen:
    method: str
    path: str
    query: dict[str, str]
    body: Json
    headers: dict[str, str]


@dataclass(frozen=True)
class Answer:
    status: int
    body: Json = None
    headers: dict[str, str] = field(default_factory=dict)


class Silence:
    """Answers nothing for a while; `closed` is set when the client gives up first."""

    def __init__(self, seconds: float = 20.0) -> None:
        self.seconds = seconds
        self.started = threading.Event()
        self.closed = threading.Event()


class BrokenConnection:
    """Reads the request, then hangs up without a byte."""


class Drip:
    """Starts an answer and never ends it, one byte at a time."""


Behaviour = Answer | Silence | BrokenConnection | Drip


def problem(
    status: int, code: str, detail: str = "", fields: tuple[tuple[str, str], ...] = (), *, retry_after: str = ""
) -> Answer:
    body = {
        "type": f"urn:hindsight:problem:{code}",
        "title": code,
        "status": status,
        "detail": detail,
        "code": code,
        "errors": [{"field": name, "message": message} for name, message in fields],
    }
    return Answer(
        status,
        body,
        {"Content-Type": "application/problem+json"} | ({"Retry-After": retry_after} if retry_after else {}),
    )


class StandIn:
    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.seen: list[Seen] = []
        self.violations: list[str] = []
        self.memories: dict[str, dict[str, Json]] = {}
        self.working: dict[str, dict[str, Json]] = {}
        self.experiences = {"lesson"}
        self.keys: dict[str, str | None] = {}
        self.has_key_self = True
        self._scripts: list[tuple[str, re.Pattern[str], list[Behaviour]]] = []

    def misbehave(self, method: str, path: str, *behaviours: Behaviour) -> None:
        """The next requests to `path` meet these, in order; the last one stays."""
        self._scripts.append((method, re.compile(path), list(behaviours)))

    def add_memory(self, content: str, user_id: str = "ana", **fields: Json) -> dict[str, Json]:
        memory_id = str(uuid.uuid4())
        memory = {
            "id": memory_id,
            "kind": "semantic",
            "user_id": user_id,
            "content": content,
            "summary": content[:80],
            "tags": [],
            "metadata": {},
            "importance": 0.5,
            "outcome": None,
            "version": 1,
            "occurred_at": "2026-05-01T10:00:00Z",
        } | {name: value for name, value in fields.items() if value is not None}
        self.memories[memory_id] = memory
        return memory

    def requests(self, method: str, path: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.method == method and re.fullmatch(path, seen.path)]

    def only(self, method: str, path: str) -> Seen:
        (seen,) = self.requests(method, path)
        return seen

    # -- answering -----------------------------------------------------------------------------------------------

    def behaviour(self, seen: Seen) -> Behaviour:
        for method, pattern, behaviours in self._scripts:
            if method == seen.method and pattern.fullmatch(seen.path):
                return behaviours.pop(0) if len(behaviours) > 1 else behaviours[0]
        return self._check_contract(seen) or self._check_key(seen) or self._route(seen)

    def _check_key(self, seen: Seen) -> Answer | None:
        if not self.keys:
            return None
        key = seen.headers.get("authorization", "").removeprefix("Bearer ")
        return None if key in self.keys else problem(401, "unauthorized", "no or unknown key")

    def _check_contract(self, seen: Seen) -> Answer | None:
        for (method, pattern), declared in CONTRACT.items():
            if method == seen.method and re.fullmatch(pattern, seen.path):
                names = declared.split()
                required = {name[:-1] for name in names if name.endswith("!")}
                given = set(seen.body or {})
                unknown = given - {name.rstrip("!") for name in names}
                missing = required - given
                if unknown or missing:
                    self.violations.append(f"{method} {seen.path}: unknown {unknown}, missing {missing}")
                    return problem(422, "invalid", fields=tuple((name, "wrong") for name in unknown | missing))
                keyed = method == "POST" and KEYED_POSTS.fullmatch(seen.path) and not seen.path.endswith("query")
                if keyed and "idempotency-key" not in seen.headers:
                    self.violations.append(f"{method} {seen.path}: no Idempotency-Key")
                if "x-request-id" not in seen.headers:
                    self.violations.append(f"{method} {seen.path}: no X-Request-ID")
                return None
        self.violations.append(f"{seen.method} {seen.path} is not in the contract")
        return problem(404, "not_found")

    def _route(self, seen: Seen) -> Answer:
        for pattern, handler in self._handlers().items():
            method, path = pattern.split(" ")
            match = re.fullmatch(path, seen.path)
            if method == seen.method and match:
                return handler(seen, *[unquote(part) for part in match.groups()])
        return problem(404, "not_found")

    def _handlers(self) -> dict[str, Callable[..., Answer]]:
        return {
            "GET /v1/keys/self": self._key_self,
            "GET /v1/memories": lambda seen: problem(422, "invalid", fields=(("user_id", "is required"),)),
            "GET /v1/stats": lambda seen: Answer(
                200, {"memories": len(self.memories), "user_id": seen.query.get("user_id")}
            ),
            "POST /v1/memories": self._write,
            "POST /v1/memories/search": self._search,
            f"GET /v1/memories/{ID}": self._get,
            f"PATCH /v1/memories/{ID}": self._patch,
            f"DELETE /v1/memories/{ID}": self._delete,
            f"POST /v1/memories/{ID}/feedback": lambda seen, i: (
                Answer(200, {"memory": self.memories[i] | {"heat": 1.1}})
                if i in self.memories
                else problem(404, "not_found")
            ),
            f"POST /v1/experiences/{ID}/feedback": lambda seen, i: (
                Answer(200, {"experience": {"id": i, "confidence": 0.85}})
                if i in self.experiences
                else problem(404, "not_found")
            ),
            "POST /v1/experiences/query": lambda seen: Answer(200, {"results": []}),
            "POST /v1/experiences/distill": lambda seen: Answer(200, {"review": {"steps": 1}, "experiences": []}),
            "POST /v1/tasks": self._start,
            f"POST /v1/tasks/{ID}/advice": lambda seen, i: (
                Answer(200, {"hints": [], "text": ""}) if i in self.working else problem(404, "not_found")
            ),
            f"POST /v1/tasks/{ID}/finish": self._finish,
            f"PUT /v1/working-memory/{ID}": self._put_working,
            f"GET /v1/working-memory/{ID}": lambda seen, i: (
                Answer(200, self.working[i]) if i in self.working else problem(404, "not_found")
            ),
            f"PATCH /v1/working-memory/{ID}": self._patch_working,
            f"POST /v1/working-memory/{ID}/steps": self._step,
        }

    def _key_self(self, seen: Seen) -> Answer:
        if not self.has_key_self:
            return problem(404, "not_found")
        user_id = self.keys.get(seen.headers.get("authorization", "").removeprefix("Bearer "))
        return Answer(200, {"tenant": "default", "role": "writer", "user_id": user_id})

    def _write(self, seen: Seen) -> Answer:
        fields = dict(seen.body)
        kind = fields.pop("kind", "auto")
        memory = self.add_memory(
            fields.pop("content"), fields.pop("user_id"), kind=None if kind == "auto" else kind, **fields
        )
        return Answer(201, {"status": "created", "memory": memory})

    def _search(self, seen: Seen) -> Answer:
        mine = [memory for memory in self.memories.values() if memory["user_id"] == seen.body["user_id"]]
        hits = [memory | {"score": round(0.99 - n / 1000, 3), "lanes": ["keyword"]} for n, memory in enumerate(mine)]
        return Answer(
            200,
            {"results": hits[: seen.body.get("limit", 5)], "degraded": [], "retrieval_id": "r1", "took_ms": 1},
        )

    def _get(self, seen: Seen, memory_id: str) -> Answer:
        return Answer(200, self.memories[memory_id]) if memory_id in self.memories else problem(404, "not_found")

    def _patch(self, seen: Seen, memory_id: str) -> Answer:
        if memory_id not in self.memories:
            return problem(404, "not_found")
        memory = self.memories[memory_id]
        memory |= seen.body | {"version": memory["version"] + 1}
        return Answer(200, memory)

    def _delete(self, seen: Seen, memory_id: str) -> Answer:
        return Answer(204) if self.memories.pop(memory_id, None) else problem(404, "not_found")

    def _start(self, seen: Seen) -> Answer:
        task_id = seen.body.get("task_id") or str(uuid.uuid4())
        if task_id in self.working:
            return problem(409, "conflict", "the task is running")
        working = {"task_id": task_id, "user_id": seen.body["user_id"], "task_goal": seen.body["goal"]}
        working |= {"facts": [], "steps": [], "variables": {}, "agent_id": None}
        self.working[task_id] = working
        context = {"text": "known", "tokens": 1, "items": [], "retrieval_id": "r1", "degraded": []}
        return Answer(201, {"task_id": task_id, "working_memory": working, "context": context})

    def _finish(self, seen: Seen, task_id: str) -> Answer:
        if task_id not in self.working:
            return problem(404, "not_found")
        steps = len(self.working[task_id]["steps"])
        episode = self.add_memory(f"task {task_id}", seen.body["user_id"], kind="episodic", summary="it ran")
        return Answer(200, {"episode": episode, "review": {"steps": steps}, "experiences": []})

    def _put_working(self, seen: Seen, task_id: str) -> Answer:
        self.working[task_id] = {"task_id": task_id, "facts": [], "steps": [], **seen.body}
        return Answer(200, self.working[task_id])

    def _patch_working(self, seen: Seen, task_id: str) -> Answer:
        if task_id not in self.working:
            return problem(404, "not_found")
        self.working[task_id]["facts"] += seen.body.get("confirmed_facts", [])
        return Answer(200, self.working[task_id])

    def _step(self, seen: Seen, task_id: str) -> Answer:
        if task_id not in self.working:
            return problem(404, "not_found")
        self.working[task_id]["steps"].append(seen.body)
        return Answer(201, self.working[task_id])


def _handler_for(stand_in: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # One packet per answer: two small ones would meet Nagle and delayed acknowledgement, 40 ms a request.
        wbufsize = -1

        def handle_any(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            raw = self.rfile.read(length)
            parts = urlsplit(self.path)
            seen = Seen(
                self.command,
                parts.path,
                {name: values[0] for name, values in parse_qs(parts.query).items()},
                json.loads(raw) if raw else None,
                {name.lower(): value for name, value in self.headers.items()},
            )
            stand_in.seen.append(seen)
            self.obey(stand_in.behaviour(seen))

        def obey(self, behaviour: Behaviour) -> None:
            self.close_connection = not isinstance(behaviour, Answer)
            match behaviour:
                case Answer(status, body, headers):
                    content = b"" if body is None else json.dumps(body, ensure_ascii=False).encode()
                    self.send_response(status)
                    for name, value in ({"Content-Type": "application/json"} | headers).items():
                        self.send_header(name, value)
                    if status != 204:
                        self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)
                    self.wfile.flush()
                case Silence():
                    self.wait_for_hang_up(behaviour)
                case Drip():
                    self.drip()
                case BrokenConnection():
                    self.connection.shutdown(socket.SHUT_RDWR)

        def wait_for_hang_up(self, silence: Silence) -> None:
            silence.started.set()
            deadline = time.monotonic() + silence.seconds
            while time.monotonic() < deadline:
                readable, _, _ = select.select([self.connection], [], [], 0.05)
                if readable and self.connection.recv(1, socket.MSG_PEEK) == b"":
                    silence.closed.set()
                    return

        def drip(self) -> None:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n")
            try:
                for _ in range(200):
                    self.wfile.write(b" ")
                    self.wfile.flush()
                    time.sleep(0.1)
            except OSError:
                return

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815 (http.server names them)

        def log_message(self, *arguments: object) -> None:
            return

    return Handler


@contextmanager
def running_stand_in() -> Iterator[tuple[StandIn, str]]:
    stand_in = StandIn()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_for(stand_in))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield stand_in, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
