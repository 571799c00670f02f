"""How does an agent use Hindsight? A whole agent in 250 lines: it works on a task with tools and learns from doing it.

    start a task        what is known about such tasks goes into the prompt
    before a tool call  ask for advice; a call that is warned about goes back to the model once, with the warning
    after it            record the call and how it went
    finish              the run becomes an episode, is reviewed, and its lessons are there next time

It needs only httpx and any chat endpoint that speaks OpenAI's API with tool calls. When the memory service is down it
works on without memory. It must not keep anything itself, and must not leave a task open, however it ends.

    python examples/agent_loop.py "Save all orders of http://127.0.0.1:9000/orders in orders.json" --task-type export
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TextIO
from urllib.parse import quote, urlsplit

import httpx
from agent_tools import TOOLS, ToolFailed

Json = Any

ATTEMPTS_MAX = 3
WAIT_SECONDS_MAX = 20.0  # a Retry-After beyond this ends the task instead
CALLS_MAX = 8  # of tools in one answer of the model
SHOWN_CHARS_MAX = 8_000  # of a tool's result in the conversation
NOTED_CHARS_MAX = 2_000  # of a result or error in working memory

GIVE_UP = {
    "type": "function",
    "function": {
        "name": "give_up",
        "description": "End the task without a result.",
        "parameters": {"type": "object", "properties": {"reason": {"type": "string"}}, "required": ["reason"]},
    },
}
SYSTEM = """You work on one task with tools. Call one tool at a time and read its result before the next.
When the task is done, answer with the result in plain text and call no tool. If it can't be done, call give_up."""


class ChatFailed(Exception):
    """The model's endpoint gave no usable answer; the message is a sentence for a person."""


# -- the memory ----------------------------------------------------------------------------------------------------------


class Hindsight:
    """One task in the memory service. A call answers {} when the service can't be used: memory helps, it never stops."""

    def __init__(self, url: str, key: str | None, user_id: str) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=30, trust_env=False)
        self._user_id = user_id
        self._task = ""

    def start(self, goal: str, task_type: str | None) -> dict[str, Json]:
        started = self._post("/v1/tasks", {"goal": goal} | ({"task_type": task_type} if task_type else {}))
        self._task = quote(str(started.get("task_id", "")), safe="")
        return started

    def advice(self, tool: str, arguments: Json) -> dict[str, Json]:
        return self._post(f"/v1/tasks/{self._task}/advice", {"tool": tool, "arguments": arguments})

    def speaks_against(self, advice: dict[str, Json]) -> bool:
        """A lesson that applies, or an earlier task's failure while nothing like it ever worked. What failed in this
        task is in the conversation already."""
        earlier = {hint["type"] for hint in advice.get("hints", ()) if quote(hint["source_id"], safe="") != self._task}
        return "experience" in earlier or ("failed_before" in earlier and "worked_before" not in earlier)

    def record(self, step: dict[str, Json]) -> None:
        self._post(f"/v1/working-memory/{self._task}/steps", step)

    def finish(self, outcome: str, result: str) -> dict[str, Json]:
        return self._post(f"/v1/tasks/{self._task}/finish", {"outcome": outcome, "result": result[:NOTED_CHARS_MAX]})

    def _post(self, path: str, body: dict[str, Json]) -> dict[str, Json]:
        """Sent again once after a broken connection; the key makes sure that it counts once."""
        if not self._task and path != "/v1/tasks":
            return {}
        headers = {"Idempotency-Key": uuid.uuid4().hex, "Content-Type": "application/json"}
        body = {"user_id": self._user_id, **body}
        reason = "did not answer"
        for _ in range(2):
            try:
                response = self._http.post(path, content=json.dumps(body), headers=headers)
                answer = response.json()
                if response.is_success and isinstance(answer, dict):
                    return answer
                reason = f"answered {response.status_code}: {response.text[:300]}"
                break
            except httpx.TransportError:
                continue
            except ValueError:
                reason = "answered something that is not JSON"
                break
        say(f"memory: {path} {reason}; going on without")
        return {}


# -- the model -----------------------------------------------------------------------------------------------------------


class Chat:
    """An OpenAI-compatible chat endpoint."""

    def __init__(self, base_url: str, model: str, key: str | None) -> None:
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        here = urlsplit(base_url).hostname in ("localhost", "127.0.0.1", "::1")
        self._http = httpx.Client(headers=headers, timeout=120, trust_env=not here)
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        self._model = model

    def answer(self, messages: list[Json]) -> dict[str, Json]:
        """The assistant's message. Raises ChatFailed; busy and broken endpoints are asked a few times."""
        request = {
            "model": self._model,
            "messages": messages,
            "tools": [*(tool.declared() for tool in TOOLS.values()), GIVE_UP],
        }
        content = json.dumps(request)
        reason = ""
        for attempt in range(ATTEMPTS_MAX):
            wait = 0.5 * 2**attempt
            try:
                response = self._http.post(self._url, content=content)
            except httpx.TransportError as failure:
                reason = f"can't be reached ({type(failure).__name__})"
            else:
                if response.is_success:
                    return _message(response)
                reason = f"answered {response.status_code}"
                if response.status_code != 429 and response.status_code < 500:
                    raise ChatFailed(f"The model's endpoint {reason}: {response.text[:300]}")
                wait = _retry_after(response, wait)
            if attempt + 1 == ATTEMPTS_MAX or wait > WAIT_SECONDS_MAX:
                break
            time.sleep(wait)
        raise ChatFailed(f"The model's endpoint {reason}.")


def _message(response: httpx.Response) -> dict[str, Json]:
    """The message, with only what the next request has to repeat."""
    try:
        message = response.json()["choices"][0]["message"]
        calls = [_call(call) for call in (message.get("tool_calls") or [])[:CALLS_MAX]]
        content = message.get("content") or ""
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ChatFailed("The model's endpoint answered something that is no chat completion.") from None
    if not isinstance(content, str) or not (content.strip() or calls):
        raise ChatFailed("The model answered nothing.")
    return {"role": "assistant", "content": content} | ({"tool_calls": calls} if calls else {})


def _call(call: Json) -> dict[str, Json]:
    function = {"name": str(call["function"]["name"]), "arguments": call["function"].get("arguments") or "{}"}
    return {"id": str(call.get("id") or uuid.uuid4()), "type": "function", "function": function}


def _retry_after(response: httpx.Response, otherwise: float) -> float:
    given = response.headers.get("retry-after", "")
    return float(given) if given.isascii() and given.isdigit() else otherwise


# -- the loop ------------------------------------------------------------------------------------------------------------


@dataclass
class Agent:
    chat: Chat
    memory: Hindsight
    folder: Path
    steps_max: int

    def work(self, goal: str, known: str) -> tuple[str, str]:
        """(outcome, result). Raises ChatFailed."""
        system = f"{SYSTEM}\n\n{known}" if known else SYSTEM
        messages: list[Json] = [{"role": "system", "content": system}, {"role": "user", "content": goal}]
        warned: set[str] = set()
        for _ in range(self.steps_max):
            said = self.chat.answer(messages)
            messages.append(said)
            if "tool_calls" not in said:
                return "success", said["content"]
            for call in said["tool_calls"]:
                name, text = call["function"]["name"], call["function"]["arguments"]
                arguments = _arguments(text)
                if name == "give_up":
                    return "failure", str((arguments or {}).get("reason") or "gave up")
                content = self._call(name, arguments, said["content"], warned)
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": content[:SHOWN_CHARS_MAX]})
        return "failure", f"not done after {self.steps_max} answers of the model"

    def _call(self, name: str, arguments: dict[str, Json] | None, reason: str, warned: set[str]) -> str:
        """What the model reads: the result, the error, or, once for each call, what is known against it."""
        if name not in TOOLS or arguments is None:
            return f"Error: no such tool, or its arguments are no JSON object. Tools: {', '.join(TOOLS)}"
        advice = self.memory.advice(name, arguments)
        call = json.dumps([name, arguments], sort_keys=True)
        if call not in warned and self.memory.speaks_against(advice):
            warned.add(call)
            say(f"advice before {name}: {advice['text']}")
            return f"Not called yet. {advice['text']}\nCall it again unchanged to do it all the same."
        started = time.monotonic()
        step: dict[str, Json] = {"tool": name, "arguments": arguments}
        try:
            content = TOOLS[name].run(self.folder, arguments)
            step |= {"status": "success", "result": content[:NOTED_CHARS_MAX]}
        except ToolFailed as failure:
            content = f"Error: {failure}"
            step |= {"status": "error", "error": str(failure)[:NOTED_CHARS_MAX]}
        step["duration_ms"] = round((time.monotonic() - started) * 1000)
        self.memory.record(step | ({"reason": reason[:NOTED_CHARS_MAX]} if reason.strip() else {}))
        say(f"{name} {json.dumps(arguments, ensure_ascii=False)[:200]}: {content[:200]}")
        return content


def _arguments(text: Json) -> dict[str, Json] | None:
    try:
        given = json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        return None
    return given if isinstance(given, dict) else None


def say(line: str, *, file: TextIO = sys.stderr) -> None:
    print(line.encode("utf-8", "replace").decode(), file=file, flush=True)


def stop(*_signal: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> int:
    """0 when the task is done, 1 when not, 2 for a wrong call, 130 when stopped."""
    parser = argparse.ArgumentParser(description="An agent that learns from its tasks through Hindsight.")
    parser.add_argument("goal", help="the task, in words")
    parser.add_argument("--task-type", help="kind of task, e.g. export; lessons are looked for among the same kind")
    parser.add_argument("--folder", type=Path, default=Path("agent-work"), help="all it may read and write")
    parser.add_argument("--user", default=os.environ.get("HINDSIGHT_USER_ID", "agent"), help="whose memories")
    parser.add_argument("--model", help="default: OPENAI_MODEL, or HINDSIGHT_LLM_MODEL")
    parser.add_argument("--steps", type=int, default=25, help="answers of the model at most")
    given = parser.parse_args()
    # One family of variables or the other, never mixed: the key of one endpoint must not go to another.
    family = "OPENAI" if os.environ.get("OPENAI_BASE_URL") else "HINDSIGHT_LLM"
    base_url, model = os.environ.get(f"{family}_BASE_URL"), given.model or os.environ.get(f"{family}_MODEL")
    if not base_url or not model:
        parser.error("set OPENAI_BASE_URL and OPENAI_MODEL (or HINDSIGHT_LLM_BASE_URL and HINDSIGHT_LLM_MODEL)")
    given.folder.mkdir(parents=True, exist_ok=True)
    service = os.environ.get("HINDSIGHT_SERVICE_URL", "http://127.0.0.1:8000")
    memory = Hindsight(service, os.environ.get("HINDSIGHT_API_KEY"), given.user)
    agent = Agent(Chat(base_url, model, os.environ.get(f"{family}_API_KEY")), memory, given.folder, given.steps)
    signal.signal(signal.SIGTERM, stop)
    outcome, result = "aborted", "stopped"
    try:
        started = memory.start(given.goal, given.task_type)
        outcome, result = agent.work(given.goal, started.get("context", {}).get("text", ""))
    except ChatFailed as failure:
        outcome, result = "failure", str(failure)
    except KeyboardInterrupt:
        return 130
    finally:
        learned = memory.finish(outcome, result)
        say(f"{outcome}; episode {learned.get('episode', {}).get('id')}, lessons {learned.get('experiences', [])}")
    say(result, file=sys.stdout)
    return 0 if outcome == "success" else 1


if __name__ == "__main__":
    sys.exit(main())
