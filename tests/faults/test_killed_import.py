"""Is a user whole after an import that was killed, on either side and anywhere, and run again?

What the second server exports must be line for line what the first one did: ids, times, versions, relations, lessons, conflicts.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import httpx
import psycopg
import pytest

from local_stack.stores import Stores
from memory_service.migrating import migrate
from memory_service.settings import Settings

HERE = Path(__file__).parent
COMMAND_S, SETTLE_S = 90.0, 60.0
KINDS = {"memory", "experience", "version", "experience_version", "relation", "conflict"}
QUICK = {
    "import_slice_lines": 20, "client_chunk_lines": 50, "client_attempts_max": 3, "client_backoff_s": 0.05, "idempotency_lease_s": 2.0,
}  # fmt: skip
MOVING = "memory_service.moving.service:Imports"
POSTGRES = "memory_service.stores.postgres"
SERVER_LINES = [
    (f"{MOVING}.take", "before", 4),
    (f"{MOVING}.take", "after", 4),
    (f"{MOVING}._write", "after", 3),
    (f"{POSTGRES}.memories:insert_many", "after", 2),
    (f"{POSTGRES}.imports:add_versions", "before", 1),
    (f"{POSTGRES}.imports:add_relations", "after", 1),
    (f"{POSTGRES}.imports:add_conflicts", "before", 1),
    (f"{POSTGRES}.imports:insert_experiences", "after", 1),
    (f"{POSTGRES}.imports:add_lesson_versions", "before", 2),
    (f"{MOVING}.finish", "before", 1),
    (f"{MOVING}.finish", "after", 1),
]


def quick_config(folder: Path) -> str:
    """A config folder with small slices and chunks and short waits."""
    shutil.copytree(Settings().config_folder, folder)
    text = (folder / "memory.toml").read_text(encoding="utf-8")
    for name, value in QUICK.items():
        text, count = re.subn(rf"(?m)^{name} = \S+", f"{name} = {value}", text)
        assert count == 1, name
    (folder / "memory.toml").write_text(text, encoding="utf-8")
    return str(folder)


@pytest.fixture
def empty(stores: Stores, tmp_path: Path) -> dict[str, str]:
    """The environment of a server with nothing in it: a database of its own, migrated."""
    name = f"moved_{uuid4().hex[:12]}"
    with psycopg.connect(stores.urls.database_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    url = urlunsplit(urlsplit(stores.urls.database_url)._replace(path=f"/{name}"))
    migrate(Settings(database_url=url), say=lambda _line: None)
    return {
        "HINDSIGHT_DATABASE_URL": url,
        "HINDSIGHT_QDRANT_COLLECTION": name,
        "HINDSIGHT_CONFIG_DIR": quick_config(tmp_path / "config"),
        "HINDSIGHT_JOBS": "false",
    }


async def a_life(client: httpx.AsyncClient, user: str) -> None:
    """Something in every table: memories with versions, relations, lessons with a history, an open conflict."""
    items = [{"user_id": user, "content": f"line {n} of the logbook: 第{n}天", "infer": False, "metadata": {"深": [n, None]}}
             for n in range(70)]  # fmt: skip
    ids = [one["id"] for one in (await client.post("/v1/memories/batch", json={"memories": items})).json()["results"]]
    for n, one in enumerate(ids[:25]):
        patch = {"summary": f"changed once {n}", "related_ids": [ids[-n - 1]]}
        assert (await client.patch(f"/v1/memories/{one}", json=patch)).status_code == 200
    for n in range(25):
        edge = {"source_id": ids[n], "target_id": ids[n + 1], "relation_type": "follows", "weight": 0.25}
        assert (await client.post("/v1/relations", json=edge)).status_code in (200, 201)
    for action, confidence in (("take an umbrella", 0.5), ("stay at home", 0.8), ("wait", 0.85)):
        for sky in ("grey", "black", "green"):
            conditions = [{"field": "sky", "operator": "eq", "value": sky}]
            lesson = {"user_id": user, "conditions": conditions, "action": action, "confidence": confidence}
            made = (await client.post("/v1/experiences", json={**lesson, "source_memory_ids": ids[:2]})).json()
            await client.post(f"/v1/experiences/{made['experience']['id']}/feedback", json={"outcome": "success"})
    for likes in ("light mode", "dark mode"):
        told = {"user_id": user, "content": f"I prefer {likes} in my editor.", "kind": "semantic"}
        status = (await client.post("/v1/memories", json=told)).json()["status"]
    assert status == "conflict"


async def exported(client: httpx.AsyncClient, user: str) -> list[dict[str, Any]]:
    answer = await client.get("/v1/export", params={"user_id": user})
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert lines[-1] == {"type": "end", "lines": len(lines) - 2}
    assert set(lines[0]["counts"]) == KINDS
    assert all(lines[0]["counts"].values()), lines[0]["counts"]
    return lines[1:-1]


@pytest.fixture
async def moving(serve: Any, tmp_path: Path) -> tuple[str, Path, list[dict[str, Any]]]:
    """A user, the file of its export, and the lines of it."""
    user, file = f"u-{uuid4().hex}", tmp_path / "user.jsonl"
    async with serve() as service:
        await a_life(service.client, user)
        text = (await service.client.get("/v1/export", params={"user_id": user})).text
        file.write_text(text, encoding="utf-8")
        return user, file, await exported(service.client, user)


async def importing(
    file: Path, url: str, environment: dict[str, str], die: tuple[str, str, int] | None = None
) -> tuple[int, str]:
    """`hindsight import FILE`: exit status and what it said."""
    command = [sys.executable, "-m", "memory_service"]
    if die is not None:
        command = [sys.executable, str(HERE / "serve_and_die.py"), die[0], die[1], str(die[2])]
    done = await asyncio.to_thread(
        subprocess.run,
        [*command, "import", str(file), "--url", url],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
    )
    return done.returncode, done.stdout + done.stderr


def rows(environment: dict[str, str]) -> dict[str, int]:
    tables = ("memory", "memory_version", "memory_relations", "experience", "experience_version", "memory_conflict")
    with psycopg.connect(environment["HINDSIGHT_DATABASE_URL"]) as connection:
        return {t: connection.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in tables}  # type: ignore[index,call-overload]


async def is_whole(
    client: httpx.AsyncClient, user: str, lines: list[dict[str, Any]], environment: dict[str, str]
) -> None:
    """The same lines, each once, and every memory has its vector."""
    there = await exported(client, user)
    assert Counter(json.dumps(one, sort_keys=True) for one in there) == Counter(
        json.dumps(one, sort_keys=True) for one in lines
    )
    kinds = Counter(one["type"] for one in lines)
    assert sum(rows(environment).values()) == sum(kinds.values()), (rows(environment), kinds)
    async with asyncio.timeout(SETTLE_S):
        while (await client.get("/v1/stats")).json()["index"]["pending"]:
            await asyncio.sleep(0.1)
    differs = (await client.post("/v1/maintenance/reconcile", params={"dry_run": "true"})).json()
    assert differs["done"] == 0, differs


async def test_an_import_whose_server_and_then_whose_command_is_killed_goes_on_and_is_whole(
    serve: Any, empty: dict[str, str], moving: tuple[str, Path, list[dict[str, Any]]]
) -> None:
    user, file, lines = moving
    async with serve(die=(f"{MOVING}._write", "after", 3), **empty) as service:
        with pytest.raises(httpx.TransportError):
            await service.client.post("/v1/import", content=file.read_bytes())
        assert await service.gone() == -9
    half = rows(empty)
    assert 0 < half["memory"] < sum(one["type"] == "memory" for one in lines)
    async with serve(**empty) as service:
        url = str(service.client.base_url)
        code, said = await importing(file, url, empty, die=("memory_service.importing:_sent", "after", 2))
        assert code == -9, said
        code, said = await importing(file, url, empty)
        assert (code, "0 refused" in said) == (0, True), said
        await is_whole(service.client, user, lines, empty)


@pytest.mark.slow
async def test_a_command_that_loses_its_server_says_how_to_go_on_and_may_be_killed_before_and_after_each_chunk(
    serve: Any, empty: dict[str, str], moving: tuple[str, Path, list[dict[str, Any]]]
) -> None:
    user, file, lines = moving
    async with serve(die=(f"{MOVING}._write", "after", 4), **empty) as service:
        code, said = await importing(file, str(service.client.base_url), empty)
        assert (code, "run the command again to go on" in said) == (2, True), said
        assert await service.gone() == -9
    async with serve(**empty) as service:
        url = str(service.client.base_url)
        for chunk in (1, 2, 3):
            for moment in ("before", "after"):
                code, said = await importing(file, url, empty, die=("memory_service.importing:_sent", moment, chunk))
                assert code == -9, said
        code, said = await importing(file, url, empty)
        assert (code, "0 refused" in said) == (0, True), said
        await is_whole(service.client, user, lines, empty)
        code, said = await importing(file, url, empty)
        assert f"0 imported, {len(lines)} unchanged, 0 refused" in said


@pytest.mark.slow
@pytest.mark.parametrize("line", SERVER_LINES, ids=lambda one: f"{one[0].rpartition(':')[2]}-{one[1]}-{one[2]}")
async def test_an_import_killed_at_any_line_of_the_server_can_be_sent_again_with_the_same_key(
    serve: Any, empty: dict[str, str], moving: tuple[str, Path, list[dict[str, Any]]], line: tuple[str, str, int]
) -> None:
    user, file, lines = moving
    whole, key = file.read_bytes(), {"Idempotency-Key": uuid4().hex}
    async with serve(die=line, **empty) as service:
        with pytest.raises(httpx.TransportError):
            await service.client.post("/v1/import", content=whole, headers=key)
        assert await service.gone() == -9
    async with serve(**empty) as service:
        async with asyncio.timeout(SETTLE_S):  # the claim of the dead process runs out
            while (answer := await service.client.post("/v1/import", content=whole, headers=key)).status_code == 409:
                assert int(answer.headers["retry-after"]) >= 1
                await asyncio.sleep(0.3)
        assert answer.status_code == 200, answer.text
        told = answer.json()
        assert (told["imported"] + told["unchanged"], told["refused"], told["ids"]) == (len(lines), [], {})
        await is_whole(service.client, user, lines, empty)


@pytest.mark.slow
@pytest.mark.parametrize("pauses", [(0.2, 0.5, 0.9, 1.4, 2.0)])
async def test_an_import_of_many_killed_again_and_again_at_no_chosen_line_ends_whole(
    serve: Any, empty: dict[str, str], tmp_path: Path, pauses: tuple[float, ...]
) -> None:
    """The server by chance; each time a new one takes the same file up from its beginning."""
    user, file = f"u-{uuid4().hex}", tmp_path / "many.jsonl"
    async with serve() as service:
        for start in range(0, 3_000, 500):
            items = [{"user_id": user, "content": f"note {start + n} of many", "infer": False} for n in range(500)]
            await service.client.post("/v1/memories/batch", json={"memories": items})
        await a_life(service.client, user)
        file.write_text((await service.client.get("/v1/export", params={"user_id": user})).text, encoding="utf-8")
        lines = await exported(service.client, user)
    seen = [0]
    for pause in pauses:
        async with serve(**empty) as service:
            url = str(service.client.base_url)
            sending = asyncio.create_task(importing(file, url, empty))
            async with asyncio.timeout(SETTLE_S):
                while rows(empty)["memory"] <= seen[-1] and not sending.done():
                    await asyncio.sleep(0.05)
            await asyncio.sleep(pause)
            service.kill()
            await sending
        seen.append(rows(empty)["memory"])
    assert seen[1] > 0
    assert seen == sorted(seen)  # nothing that was committed went away
    async with serve(**empty) as service:
        code, said = await importing(file, str(service.client.base_url), empty)
        assert code == 0, said
        await is_whole(service.client, user, lines, empty)
