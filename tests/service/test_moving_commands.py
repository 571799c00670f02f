"""Do `hindsight export` and `hindsight import` move a user between running services, and are the seeds found when they apply?"""

# ruff: noqa: E501 - tables: one case reads best on one line

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from click.testing import Result
from service_running import Backends, World, new_user, serving, write, write_many
from test_moving_contract import a_life, exported, things
from test_relay_contract import environment
from typer.testing import CliRunner

from memory_service.__main__ import app as commands
from memory_service.errors import SetupRefused
from memory_service.experience.distill_rules import load_distill_rules
from memory_service.experience.lessons import state_of
from memory_service.experience.review_rules import load_review_rules
from memory_service.experience.trajectory import Step
from memory_service.settings import Settings
from memory_service.vocabulary import load_vocabulary

CONFIG = Path(__file__).parents[2] / "config"
SEEDS = [json.loads(line) for line in (CONFIG / "seed-memories.jsonl").read_text(encoding="utf-8").splitlines()]
SEED_LESSONS = sum("conditions" in one for one in SEEDS)


@asynccontextmanager
async def listening(app: Any) -> AsyncIterator[str]:
    """The app on a real port; its address."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, lifespan="off", log_level="warning"))
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


async def run(settings: Settings, *arguments: str, **changed: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, commands, list(arguments), env=environment(settings, **changed))


async def test_a_user_moves_from_one_server_to_another_by_two_commands(
    world: World, backends: Backends, user: str, tmp_path: Path
) -> None:
    await a_life(world, world.client, user)
    await write_many(world.client, user, [f"one of many {n}" for n in range(300)])
    file = tmp_path / "ana.jsonl"
    async with (
        listening(world.app) as url,
        serving(backends.new_settings()) as other,
        listening(other.app) as other_url,
    ):
        done = await run(world.settings, "export", "--user", user, "-o", str(file), "--url", url)
        assert done.exit_code == 0, done.output
        assert file.stat().st_mode & 0o777 == 0o600
        assert list(tmp_path.iterdir()) == [file]
        before = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        assert things(before) == things(await exported(world.client, user))
        taken = await run(other.settings, "import", str(file), "--url", other_url)
        assert taken.exit_code == 0, taken.output
        assert f"{len(before) - 2} imported, 0 unchanged, 0 refused" in taken.output
        assert things(await exported(other.client, user)) == things(before)
        again = await run(other.settings, "import", str(file), "--url", other_url)
        assert f"0 imported, {len(before) - 2} unchanged, 0 refused" in again.output
        whole = await run(world.settings, "export", "--user", user, "--url", url)
        assert f"{len(before) - 2} lines exported" in whole.output


async def test_lines_are_told_by_their_number_in_the_file_whatever_the_chunks(
    world: World, user: str, tmp_path: Path
) -> None:
    config = small_chunks(tmp_path, client_chunk_lines="3")
    file = tmp_path / "mixed.jsonl"
    lines = [f'{{"content": "fact {n}", "kind": "semantic"}}' if n % 4 else "broken" for n in range(1, 14)]
    file.write_text("\n".join(["", *lines]), encoding="utf-8")
    async with listening(world.app) as url:
        done = await run(world.settings, "import", str(file), "--user", user, "--url", url, CONFIG_DIR=str(config))
    assert done.exit_code == 1
    assert "10 imported, 0 unchanged, 3 refused" in done.output
    assert [line.split(":")[0] for line in done.output.splitlines() if line.startswith("line ")] == [
        "line 5",
        "line 9",
        "line 13",
    ]


async def test_a_line_that_no_request_can_hold_is_told_and_the_rest_goes_on(
    world: World, user: str, tmp_path: Path
) -> None:
    config, file = small_chunks(tmp_path, body_bytes_max="2_000"), tmp_path / "long.jsonl"
    file.write_text(
        "\n".join(['{"content": "before"}', json.dumps({"content": "x" * 9_000}), '{"content": "after"}']),
        encoding="utf-8",
    )
    async with listening(world.app) as url:
        done = await run(world.settings, "import", str(file), "--user", user, "--url", url, CONFIG_DIR=str(config))
    assert "2 imported, 0 unchanged, 1 refused" in done.output
    assert "line 2: too_large" in done.output


async def test_a_file_that_was_cut_off_is_imported_and_noticed(
    world: World, client: Any, user: str, tmp_path: Path
) -> None:
    await write_many(client, user, ["one", "two", "three"])
    text = (await client.get("/v1/export", params={"user_id": user})).text
    file = tmp_path / "cut.jsonl"
    file.write_text("".join(text.splitlines(keepends=True)[:-2]), encoding="utf-8")
    async with listening(world.app) as url:
        done = await run(world.settings, "import", str(file), "--url", url)
    assert done.exit_code == 1
    assert "0 imported, 2 unchanged" in done.output
    assert "cut off" in done.output


def flaky(app: Any, times: int) -> tuple[Callable[..., Any], list[int]]:
    """The app behind a proxy that answers 503 at first and then loses an answer on its way back."""
    seen: list[int] = []

    async def unreliable(scope: Any, receive: Any, send: Any) -> None:
        seen.append(1)
        if len(seen) <= times:
            await send({"type": "http.response.start", "status": 503, "headers": [(b"retry-after", b"0")]})
            await send({"type": "http.response.body", "body": b"{}"})
        elif len(seen) == times + 1:

            async def swallowed(_message: Any) -> None:
                pass

            await app(scope, receive, swallowed)
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"99")]})
            await send({"type": "http.response.body", "body": b"{"})
        else:
            await app(scope, receive, send)

    return unreliable, seen


async def test_an_import_goes_on_when_the_service_is_busy_or_its_answer_was_lost(
    world: World, user: str, tmp_path: Path
) -> None:
    config, file = small_chunks(tmp_path, client_backoff_s="0.01"), tmp_path / "some.jsonl"
    file.write_text("\n".join(f'{{"content": "kept once {n}"}}' for n in range(5)), encoding="utf-8")
    app, seen = flaky(world.app, 2)
    async with listening(app) as url:
        done = await run(world.settings, "import", str(file), "--user", user, "--url", url, CONFIG_DIR=str(config))
    assert done.exit_code == 0, done.output
    assert len(seen) == 4
    assert "0 imported, 5 unchanged" in done.output  # the lost answer was of a request that had been done
    assert (await world.client.get("/v1/memories", params={"user_id": user})).json()["total"] == 5


async def test_an_export_that_breaks_off_leaves_no_file(world: World, tmp_path: Path) -> None:
    async def cut(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send(
            {"type": "http.response.body", "body": b'{"type":"header","counts":{"memory":2}}\n{"type":"memory"}\n'}
        )

    file = tmp_path / "ana.jsonl"
    file.write_text("an older one", encoding="utf-8")
    async with listening(cut) as url:
        done = await run(world.settings, "export", "--user", "ana", "-o", str(file), "--url", url)
    assert isinstance(done.exception, SetupRefused)
    assert "broke off" in str(done.exception)
    assert file.read_text(encoding="utf-8") == "an older one"
    assert list(tmp_path.iterdir()) == [file]


async def test_the_key_of_the_environment_is_sent_and_a_wrong_one_is_told(keyed: World, tmp_path: Path) -> None:
    user, file = new_user(), tmp_path / "x.jsonl"
    key = await keyed.new_key("admin", tenant="commands")
    async with listening(keyed.app) as url, keyed.with_key(key) as client:
        await write(client, user, "behind a key")
        good = await run(keyed.settings, "export", "--user", user, "-o", str(file), "--url", url, API_KEY=key)
        assert good.exit_code == 0, good.output
        for arguments in (("export", "--user", user), ("import", str(file))):
            bad = await run(keyed.settings, *arguments, "--url", url, API_KEY="hs_wrong")
            assert "401" in str(bad.exception)
            assert "hs_wrong" not in str(bad.exception)


async def test_no_service_no_file_or_no_argument_is_told(world: World, tmp_path: Path) -> None:
    config, file = small_chunks(tmp_path, client_backoff_s="0.001"), tmp_path / "f.jsonl"
    file.write_text("{}", encoding="utf-8")
    for arguments, word in (
        (("import", str(file), "--url", "http://127.0.0.1:9"), "can't be reached"),
        (("import", str(tmp_path / "none")), "No such file"),
        (("export", "--user", "u", "--url", "http://127.0.0.1:9"), "can't be reached"),
    ):
        done = await run(world.settings, *arguments, CONFIG_DIR=str(config))
        assert isinstance(done.exception, SetupRefused), done.output
        assert word in str(done.exception)
    assert (await run(world.settings, "import")).exit_code == 2
    assert (await run(world.settings, "import", str(file), "--seeds")).exit_code == 2


def small_chunks(folder: Path, **changed: str) -> Path:
    """A config folder with other numbers."""
    config = folder / "config"
    shutil.copytree(CONFIG, config)
    lines = (config / "memory.toml").read_text(encoding="utf-8").splitlines()
    for name, value in changed.items():
        (at,) = [n for n, line in enumerate(lines) if line.startswith(f"{name} =")]
        lines[at] = f"{name} = {value}"
    (config / "memory.toml").write_text("\n".join(lines), encoding="utf-8")
    return config


# The seeds.

RULES = load_distill_rules(
    CONFIG / "distill.toml",
    load_review_rules(CONFIG / "review.toml"),
    load_vocabulary(CONFIG / "terms.toml", CONFIG / "stop_words.toml"),
)
# tag of the seed: the call that is about to be made, and the error of the one before.
SITUATIONS: list[tuple[str, dict[str, Any], str]] = [
    ("rate-limit", {"url": "https://api.example.com/items"}, "HTTP 429 Too Many Requests, Retry-After: 30"), ("rate-limit", {}, "请求过于频繁，请稍后再试"),
    ("permanent", {"url": "/v1/users/7"}, "404 Not Found"), ("permanent", {"url": "/v1/users"}, "410 Gone: this endpoint has been removed, use /v2/users"), ("permission", {"url": "/admin"}, "403 Forbidden"),
    ("timeout-write", {"method": "POST", "url": "/orders"}, "the request timed out after 30 s"), ("timeout", {"query": "everything"}, "504 Gateway Timeout, deadline exceeded"),
    ("unavailable", {"url": "/x"}, "503 Service Unavailable"), ("unavailable", {"url": "/x"}, "connection refused"),
    ("encoding", {"path": "/data/a.txt"}, "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xb0: invalid start byte"), ("gbk", {"path": "/数据/名单.csv", "encoding": "gbk"}, "UnicodeDecodeError: 'gbk' codec can't decode byte 0x80"),
    ("utf8-chinese", {"path": "/数据/名单.csv", "encoding": "utf-8"}, "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xd0"), ("bom", {"path": "a.json"}, "JSONDecodeError: Unexpected UTF-8 BOM (decode using utf-8-sig)"), ("bom", {"path": "a.csv"}, "KeyError: '\\ufeffname'"),
    ("pagination-cursor", {"cursor": "abc"}, ""), ("pagination-page", {"page": 1}, ""), ("limit-default", {"limit": 100}, ""), ("too-large", {"ids": [1]}, "413 Payload Too Large"), ("large-file", {"path": "/var/log/app.log"}, ""), ("large-file", {"path": "D:\\导出\\订单.CSV"}, ""),
    ("csv-format", {"path": "/in/orders.csv"}, "parse error in line 3: unexpected end of row"), ("timezone", {"since": "2026-03-01"}, ""), ("timezone-range", {"start_date": "2026-03-01", "end_date": "2026-03-31"}, ""),
    ("unknown-field", {"fields": "userName"}, "400: unknown field userName"), ("missing-argument", {"a": 1}, "missing required parameter: region"), ("unsupported", {"url": "/items"}, "415 Unsupported Media Type"), ("conflict", {"id": 3}, "409 Conflict: already exists"),
    ("precondition", {}, "call open_session first"), ("sql-change", {"sql": "  DELETE FROM t WHERE x < 3"}, ""), ("shell-delete", {"command": "rm -rf build/"}, ""), ("command-missing", {"command": "jqq ."}, "bash: jqq: command not found"), ("command-missing", {"command": "jq"}, "'jq' 不是内部或外部命令"),
    ("disk-full", {"path": "/tmp/x"}, "OSError: [Errno 28] No space left on device"),
]  # fmt: skip


@pytest.fixture(scope="module")
async def seeded(backends: Backends) -> AsyncIterator[World]:
    """A service whose common pool holds the seeds, by the command."""
    async with serving(backends.new_settings()) as world, listening(world.app) as url:
        done = await run(world.settings, "import", "--seeds", "--url", url)
        assert done.exit_code == 0, done.output
        assert f"{len(SEEDS)} imported, 0 unchanged, 0 refused" in done.output
        again = await run(world.settings, "import", "--seeds", "--url", url)
        assert f"0 imported, {len(SEEDS)} unchanged, 0 refused" in again.output
        yield world


@pytest.mark.parametrize(
    ("tag", "arguments", "error"), SITUATIONS, ids=[f"{tag}-{n}" for n, (tag, _, _) in enumerate(SITUATIONS)]
)
async def test_a_seed_is_an_exact_match_in_the_situation_it_is_about(
    seeded: World, tag: str, arguments: dict[str, Any], error: str
) -> None:
    past = [Step("some_tool", {}, "error", error=error)] if error else []
    state = state_of(RULES, goal="get it done", task_type=None, tool="some_tool", arguments=arguments, past=past)
    answer = await seeded.client.post(
        "/v1/experiences/query", json={"user_id": new_user(), "state": state, "limit": 20}
    )
    exact = [r["tags"][1] for r in answer.json()["results"] if r["match"] == "exact"]
    assert tag in exact, (state["last_error_class"], exact)
    assert len(exact) <= 4  # a seed that always applies would be noise


async def test_every_seed_lesson_has_a_situation_and_none_applies_to_a_harmless_call(seeded: World) -> None:
    assert {one["tags"][1] for one in SEEDS if "conditions" in one} == {tag for tag, _, _ in SITUATIONS}
    state = state_of(RULES, goal="say hello", task_type=None, tool="greet", arguments={"name": "Ana"}, past=[])
    answer = await seeded.client.post(
        "/v1/experiences/query", json={"user_id": new_user(), "state": state, "limit": 20}
    )
    assert [r for r in answer.json()["results"] if r["match"] == "exact"] == []


async def test_a_lesson_of_ones_own_leads_before_the_seed_for_the_same_case(seeded: World, user: str) -> None:
    own = {
        "user_id": user,
        "conditions": [{"field": "last_error_class", "operator": "eq", "value": "rate_limit"}],
        "action": "wait a minute: this API counts per minute",
    }
    assert (await seeded.client.post("/v1/experiences", json=own)).status_code == 201
    answer = await seeded.client.post(
        "/v1/experiences/query", json={"user_id": user, "state": {"last_error_class": "rate_limit"}}
    )
    assert answer.json()["results"][0]["action"] == own["action"]


async def test_the_rules_among_the_seeds_are_found_by_everybody_who_includes_the_common_pool(
    seeded: World, user: str
) -> None:
    for query, words in (("which errors are worth a retry", "retry"), ("中文文件用什么编码读取", "gb18030")):
        answer = await seeded.client.post(
            "/v1/memories/search", json={"user_id": user, "query": query, "include_shared": True, "mode": "keyword"}
        )
        assert words in json.dumps([r["content"].lower() for r in answer.json()["results"]], ensure_ascii=False), query
