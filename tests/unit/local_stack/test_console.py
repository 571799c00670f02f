"""Does a person see what matters of a child's log, and nothing broken?"""

from __future__ import annotations

import io
import json
import shlex
from pathlib import Path

import pytest
from rich.console import Console

from local_stack.console import Follower, Screen, curl, worth_showing


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("building layer 3 of 12", "building layer 3 of 12"),
        ('{"level": "info", "event": "building the model"}', "building the model"),
        ('{"message": "built", "took_ms": 3}', "built"),
        ('{"event": "request", "route": "/health", "request_id": "1"}', ""),
        ('{"level": "info"}', ""),
        ("{broken", "{broken"),
        ("   ", ""),
    ],
)
def test_a_log_line_is_shown_as_a_person_reads_it(line: str, shown: str) -> None:
    assert worth_showing(line) == shown


def test_following_a_log_gives_each_whole_line_once(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    follower = Follower(log)
    assert follower.lines() == []
    log.write_bytes(b"one\ntw")
    assert follower.lines() == ["one"]
    with log.open("ab") as file:
        file.write("o 字\n".encode())
    assert follower.lines() == ["two 字"]
    log.write_bytes(b"new\n")
    assert follower.lines() == ["new"]


def test_a_curl_line_survives_a_pipe_and_a_shell() -> None:
    line = curl("http://127.0.0.1:8000/v1/memories", {"user_id": "me", "content": "x" * 200}, authorised=True)
    out = io.StringIO()
    Screen(Console(file=out, width=40)).facts([("write", line)])
    (printed,) = out.getvalue().splitlines()
    words = shlex.split(printed)[1:]
    assert words[:3] == ["curl", "-s", "http://127.0.0.1:8000/v1/memories"]
    assert json.loads(words[-1])["content"] == "x" * 200
    assert "Authorization: Bearer $HINDSIGHT_API_KEY" in words


def test_markup_in_a_message_is_printed_as_it_is() -> None:
    out = io.StringIO()
    Screen(Console(file=out)).error("[bold]not markup[/bold] :smile: [/oops]")
    assert out.getvalue() == "[bold]not markup[/bold] :smile: [/oops]\n"
