"""Does the example agent learn? It runs as a process against a scripted model behind a real endpoint and the real stack."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from agent_tools import TOOLS, ToolFailed
from chat_server import Answer, ChatServer, running_chat, running_shop, said
from stack_running import Stack, free_ports

EXAMPLES = Path(__file__).parents[2] / "examples"
RUN_S = 60


@dataclass
class Bench:
    """Everything an agent's run needs, for a user of its own."""

    stack: Stack
    chat: ChatServer
    folder: Path
    user_id: str = field(default_factory=lambda: f"agent-{uuid4().hex[:12]}")

    def command(self, goal: str, *options: str) -> list[str]:
        fixed = ["--task-type", "export", "--folder", str(self.folder), "--user", self.user_id]
        return [sys.executable, str(EXAMPLES / "agent_loop.py"), goal, *fixed, *options]

    def environment(self, **variables: str) -> dict[str, str]:
        given = {"OPENAI_BASE_URL": self.chat.url, "OPENAI_MODEL": "scripted", "OPENAI_API_KEY": "sk-test"}
        return self.stack.environment | given | {"HINDSIGHT_SERVICE_URL": self.stack.service} | variables

    def run(self, goal: str, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
        ran = subprocess.run(
            self.command(goal, *options),
            env=self.environment(**variables),
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )
        assert "Traceback" not in ran.stderr, ran.stderr
        return ran

    def episodes(self) -> list[dict[str, Any]]:
        query = {"user_id": self.user_id, "kinds": "episodic"}
        return httpx.get(f"{self.stack.service}/v1/memories", params=query).json()["items"]  # type: ignore[no-any-return]

    def experiences(self) -> list[dict[str, Any]]:
        query = {"user_id": self.user_id}
        return httpx.get(f"{self.stack.service}/v1/experiences", params=query).json()["items"]  # type: ignore[no-any-return]


@pytest.fixture
def bench(stack: Stack, tmp_path: Path) -> Iterator[Bench]:
    with running_chat(lambda request: said("done")) as chat:
        yield Bench(stack, chat, tmp_path / "work")


@pytest.fixture(scope="module")
def shop() -> Iterator[str]:
    with running_shop() as address:
        yield address


def results(request: Any) -> list[str]:
    return [message["content"] for message in request["messages"] if message["role"] == "tool"]


def exporter(shop: str, *, reads_its_prompt: bool = True) -> Callable[[Any], Answer]:
    """A model that asks for XML, unless its prompt speaks of JSON, and knows what to do after a 415 or a warning."""

    def model(request: Any) -> Answer:
        seen = results(request)
        page = {"url": f"{shop}/orders"}
        if not seen:
            knows = reads_its_prompt and "json" in request["messages"][0]["content"]
            return said(None, ("http_get", page | {"params": {"format": "json" if knows else "xml"}}))
        if "ids" in seen[-1]:
            return said("keep it", ("write_file", {"path": "orders.txt", "content": seen[-1]}))
        if "wrote" in seen[-1]:
            return said("saved them")
        return said("the error names the format", ("http_get", page | {"params": {"format": "json"}}))

    return model


def test_the_second_run_gets_the_lesson_of_the_first_in_its_prompt(bench: Bench, shop: str) -> None:
    bench.chat.script = exporter(shop)
    first = bench.run("Save all orders of the shop in orders.txt")
    assert (first.returncode, first.stdout) == (0, "saved them\n"), first.stderr
    assert (bench.folder / "orders.txt").read_text() == '{"shop": "/orders", "ids": [1, 2, 3]}'
    assert [one["outcome"] for one in bench.episodes()] == ["detour"]
    lessons = [one["id"] for one in bench.experiences()]

    second = bench.run("Save all orders of the shop since May in orders.txt")
    assert second.stdout == "saved them\n", second.stderr
    without, with_lesson = bench.chat.prompts()
    assert "json" not in without
    assert [one for one in lessons if one in with_lesson], with_lesson
    assert "http_get" in with_lesson
    assert "use format=json" in with_lesson
    assert len(bench.chat.requests) == 4 + 3  # the detour is not repeated
    assert all(headers["authorization"] == "Bearer sk-test" for headers, _ in bench.chat.requests)
    assert [one["outcome"] for one in bench.episodes()] == ["success", "detour"]


def test_a_call_that_a_lesson_speaks_against_comes_back_once_with_it(bench: Bench, shop: str) -> None:
    bench.chat.script = exporter(shop)
    bench.run("Save all orders of the shop in orders.txt")
    bench.chat.requests.clear()
    bench.chat.script = exporter(shop, reads_its_prompt=False)
    assert bench.run("Save all orders of the shop in orders.txt").returncode == 0
    warning = results(bench.chat.requests[1][1])[0]
    assert warning.startswith("Not called yet.")
    assert [one for one in bench.experiences() if one["action"] in warning.replace('\\"', '"')], warning
    assert "use format=json" in warning

    def stubborn(request: Any) -> Answer:
        if any("415" in content for content in results(request) if content.startswith("Error")):
            return said(None, ("give_up", {"reason": "no format works"}))
        return said(None, ("http_get", {"url": f"{shop}/orders", "params": {"format": "xml"}}))

    bench.chat.requests.clear()
    bench.chat.script = stubborn
    ended = bench.run("Save all orders of the shop in orders.txt")
    assert (ended.returncode, ended.stdout) == (1, "no format works\n")
    assert [text.split(" ")[0] for text in results(bench.chat.requests[-1][1])] == ["Not", "Error:"]


JUNK = {
    "a page": Answer(200, b"<html>welcome</html>"),
    "an empty object": Answer(200, b"{}"),
    "no choices": Answer(200, b'{"choices": []}'),
    "choices of another shape": Answer(200, b'{"choices": {"0": 1}}'),
    "no message": Answer(200, b'{"choices": [{"message": null}]}'),
    "a number for content": Answer(200, b'{"choices": [{"message": {"content": 7}}]}'),
    "nothing said": Answer(200, b'{"choices": [{"message": {"content": " "}}]}'),
    "calls of another shape": Answer(200, b'{"choices": [{"message": {"tool_calls": ["http_get"]}}]}'),
    "depth": Answer(200, b"[" * 100_000),
    "nothing": Answer(200, b""),
    "401": Answer(401, b'{"error": "no key"}'),
    "500": Answer(500, b"oops"),
    "429 for an hour": Answer(429, b"{}", {"Retry-After": "3600"}),
}


@pytest.mark.parametrize("junk", JUNK)
def test_a_broken_endpoint_ends_the_task_as_a_failure(junk: str, bench: Bench) -> None:
    bench.chat.script = lambda request: JUNK[junk]
    ended = bench.run("Count the orders")
    assert ended.returncode == 1
    assert ended.stdout.startswith("The model"), ended.stderr
    assert len(bench.chat.requests) == (3 if junk == "500" else 1)
    (episode,) = bench.episodes()
    assert episode["outcome"] == "failure"
    assert "Count the orders" in episode["content"]


def test_an_endpoint_that_is_not_there_ends_the_task_as_a_failure(bench: Bench) -> None:
    nowhere = f"http://127.0.0.1:{free_ports(1)[0]}/v1"
    ended = bench.run("Count the orders", OPENAI_BASE_URL=nowhere)
    assert (ended.returncode, ended.stdout) == (1, "The model's endpoint can't be reached (ConnectError).\n")
    assert [one["outcome"] for one in bench.episodes()] == ["failure"]


def test_a_busy_endpoint_is_waited_for(bench: Bench) -> None:
    answers = iter((Answer(429, b"{}", {"Retry-After": "1"}), Answer(503, b""), said("three orders")))
    bench.chat.script = lambda request: next(answers)
    started = time.monotonic()
    assert bench.run("Count the orders").stdout == "three orders\n"
    assert time.monotonic() - started > 1
    assert [one["outcome"] for one in bench.episodes()] == ["success"]


def test_calls_that_make_no_sense_are_answered_and_not_run(bench: Bench) -> None:
    calls = (
        ("rm", {"path": "/"}),
        ("read_file", "{not json"),
        ("read_file", "[1]"),
        ("read_file", {}),
        ("read_file", {"path": "\ud800"}),
        ("http_get", {"url": "http://[", "params": {"a": [{}]}}),
    )
    bench.chat.script = lambda request: said("no") if results(request) else said("what?\ud800", *calls)
    ended = bench.run("Count the orders")
    assert (ended.returncode, ended.stdout) == (0, "no\n"), ended.stderr
    answers = results(bench.chat.requests[1][1])
    assert len(answers) == len(calls)
    assert all(answer.startswith("Error: ") for answer in answers), answers


def test_a_model_that_never_ends_is_ended(bench: Bench) -> None:
    bench.chat.script = lambda request: said(None, ("list_files", {}))
    ended = bench.run("Count the orders", "--steps", "3")
    assert (ended.returncode, ended.stdout) == (1, "not done after 3 answers of the model\n")
    assert [one["outcome"] for one in bench.episodes()] == ["failure"]


def test_stopping_the_agent_ends_its_task(bench: Bench) -> None:
    def slow(request: Any) -> Answer:
        time.sleep(3)
        return said("too late")

    bench.chat.script = slow
    process = subprocess.Popen(bench.command("Count the orders"), env=bench.environment(), stderr=subprocess.PIPE)
    while not bench.chat.requests and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=RUN_S)
    assert process.returncode == 130
    assert b"Traceback" not in log
    (episode,) = bench.episodes()
    assert "aborted" in episode["content"]


def test_without_the_memory_service_the_agent_works_on(bench: Bench, shop: str) -> None:
    bench.chat.script = exporter(shop)
    nowhere = f"http://127.0.0.1:{free_ports(1)[0]}"
    ended = bench.run("Save all orders of the shop in orders.txt", HINDSIGHT_SERVICE_URL=nowhere)
    assert (ended.returncode, ended.stdout) == (0, "saved them\n")
    assert "going on without" in ended.stderr


def test_a_key_goes_only_to_the_endpoint_of_its_family(bench: Bench) -> None:
    ours = {"HINDSIGHT_LLM_BASE_URL": bench.chat.url, "HINDSIGHT_LLM_MODEL": "m", "HINDSIGHT_LLM_API_KEY": ""}
    assert bench.run("Count the orders", OPENAI_BASE_URL="", **ours).returncode == 0
    ((headers, body),) = bench.chat.requests
    assert "authorization" not in headers
    assert body["model"] == "m"
    unset = bench.run("Count the orders", OPENAI_BASE_URL="")
    assert unset.returncode == 2
    assert "set OPENAI_BASE_URL" in unset.stderr


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "link/secret", "a/../../secret", "\0"])
def test_files_outside_of_the_folder_are_out_of_reach(path: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    for tool, given in (("read_file", {}), ("write_file", {"content": "x"}), ("list_files", {})):
        with pytest.raises(ToolFailed):
            TOOLS[tool].run(folder, {"path": path, **given})
    assert (tmp_path / "secret").read_text() == "s"


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/",
        "http://example.com/",
        "http://10.0.0.1/",
        "file:///etc/passwd",
        "http://127.0.0.1.evil/",
        "",
    ],
)
def test_pages_of_other_machines_are_out_of_reach(url: str, tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="only http:// addresses of this machine"):
        TOOLS["http_get"].run(tmp_path, {"url": url})
