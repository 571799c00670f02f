"""The task loop as an agent meets it: start, advice, finish, and what is left when something dies on the way."""

# ruff: noqa: E501 - tables: one case reads best on one line

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from service_running import Backends, World, is_uuid7, listed, new_user, problem_of, proxied, serving, until, write

from memory_service.domain import utc_now
from memory_service.settings import Settings, Tunables, load_tunables
from memory_service.stores.postgres.tasks import user_mark
from memory_service.stores.redis import TaskKey

GOAL = "Export all users of the shop API as CSV"
OLD, NEW = {"url": "https://shop/v1/users"}, {"url": "https://shop/v2/users", "page": 1}
GONE = {"tool": "http_get", "arguments": OLD, "status": "error", "error": "410 Gone", "reason": "the docs name it"}
CURED = {"tool": "http_get", "arguments": NEW, "status": "success", "result": {"users": 2}, "duration_ms": 9}


def path(task: str, verb: str) -> str:
    return f"/v1/tasks/{quote(task, safe='')}/{verb}"


async def begin(client: httpx.AsyncClient, user: str, task: str | None = "t", **fields: Any) -> dict[str, Any]:
    named = {} if task is None else {"task_id": task}
    answer = await client.post("/v1/tasks", json={"user_id": user, "goal": GOAL, **named, **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()  # type: ignore[no-any-return]


async def note(client: httpx.AsyncClient, user: str, step: dict[str, Any], task: str = "t") -> dict[str, Any]:
    answer = await client.post(f"/v1/working-memory/{quote(task, safe='')}/steps", json={"user_id": user, **step})
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


async def ask(client: httpx.AsyncClient, user: str, task: str = "t", **fields: Any) -> dict[str, Any]:
    planned = {"tool": "http_get", "arguments": OLD, **fields}
    answer = await client.post(path(task, "advice"), json={"user_id": user, **planned})
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


async def end(client: httpx.AsyncClient, user: str, task: str = "t", outcome: str = "success", **fields: Any) -> Any:
    answer = await client.post(path(task, "finish"), json={"user_id": user, "outcome": outcome, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def teach(client: httpx.AsyncClient, user: str, action: str = "use /v2/users", **fields: Any) -> str:
    lesson = {
        "user_id": user, "conditions": [{"field": "arguments.url", "operator": "contains", "value": "/v1/users"}],
        "action": action, "avoid": "calling /v1/users", **fields,
    }  # fmt: skip
    answer = await client.post("/v1/experiences", json=lesson)
    assert answer.status_code == 201, answer.text
    return answer.json()["experience"]["id"]  # type: ignore[no-any-return]


async def lesson_of(client: httpx.AsyncClient, experience_id: str) -> dict[str, Any]:
    return (await client.get(f"/v1/experiences/{experience_id}")).json()  # type: ignore[no-any-return]


async def episodes(client: httpx.AsyncClient, user: str) -> list[dict[str, Any]]:
    return [one for one in await listed(client, user) if one["event_type"] == "task_episode"]


async def until_indexed(client: httpx.AsyncClient, user: str) -> None:
    async def done() -> bool:
        return all(one["index"]["state"] == "indexed" for one in await listed(client, user))

    await until(done)


async def expire(world: World, user: str, task: str = "t") -> None:
    """What Redis does when the life of the task is over."""
    assert await world.runtime.redis.delete(TaskKey("default", user, task).task) == 1


async def left_ms(world: World, user: str, task: str = "t") -> int:
    return int(await world.runtime.redis.pttl(TaskKey("default", user, task).task))


def changed(settings: Settings, **tasks: Any) -> Tunables:
    shipped = load_tunables(settings)
    return shipped.model_copy(update={"tasks": {**(shipped.model_extra or {})["tasks"], **tasks}})


# start


async def test_a_start_makes_the_working_memory_and_answers_the_first_injection(
    client: httpx.AsyncClient, user: str
) -> None:
    answer = await begin(client, user, task=None, task_type="export", constraints=["read only"], agent_id="a")
    assert set(answer) == {"task_id", "working_memory", "context"}
    assert set(answer["context"]) == {"text", "tokens", "items", "retrieval_id", "degraded"}
    assert is_uuid7(answer["task_id"])
    held = answer["working_memory"]
    assert (held["task_goal"], held["task_type"], held["constraints"], held["agent_id"]) == (
        GOAL,
        "export",
        ["read only"],
        "a",
    )
    read = await client.get(f"/v1/working-memory/{answer['task_id']}", params={"user_id": user})
    assert {**read.json(), "expires_at": None} == {**held, "expires_at": None}


async def test_the_first_injection_brings_memories_and_matching_experiences(
    client: httpx.AsyncClient, user: str
) -> None:
    known = await write(
        client, user, "Exporting all users of the shop API as CSV needs the key of the reporting account", wait=True
    )
    lesson = await teach(client, user, conditions=[{"field": "shop", "operator": "eq", "value": "eu"}])
    context = (await begin(client, user, state={"shop": "eu"}))["context"]
    assert {(item["id"], item["what"]) for item in context["items"]} == {
        (known["id"], "memory"),
        (lesson, "experience"),
    }
    assert known["id"] in context["text"]
    assert 0 < context["tokens"] <= 1_500
    small = (await begin(client, user, "small", state={"shop": "eu"}, max_tokens=1))["context"]
    assert (small["text"], small["items"]) == ("", [])


async def test_at_most_three_memories_are_injected(client: httpx.AsyncClient, user: str) -> None:
    for number in range(6):
        await write(client, user, f"Export all users of the shop API as CSV, part {number}", wait=True)
    items = (await begin(client, user))["context"]["items"]
    assert [item["what"] for item in items] == ["memory"] * 3


async def test_a_live_task_is_409_and_resume_gives_its_state_and_a_fresh_context(
    client: httpx.AsyncClient, user: str
) -> None:
    await begin(client, user)
    await note(client, user, GONE)
    again = await client.post("/v1/tasks", json={"user_id": user, "goal": "other", "task_id": "t"})
    assert problem_of(again, 409)["code"] == "task_exists"
    known = await write(client, user, "Export all users of the shop API as CSV: page size is 100", wait=True)
    resumed = await client.post("/v1/tasks", json={"user_id": user, "goal": "other", "task_id": "t", "resume": True})
    assert resumed.status_code == 200
    body = resumed.json()
    assert (body["working_memory"]["task_goal"], len(body["working_memory"]["failed_attempts"])) == (GOAL, 1)
    assert known["id"] in body["context"]["text"]


async def test_resume_starts_a_task_that_does_not_live(client: httpx.AsyncClient, user: str) -> None:
    assert (await begin(client, user, resume=True))["task_id"] == "t"


async def test_resume_takes_up_a_task_made_by_hand(world: World, client: httpx.AsyncClient, user: str) -> None:
    await client.put("/v1/working-memory/t", json={"user_id": user, "task_goal": "by hand"})
    body = {"user_id": user, "goal": GOAL, "task_id": "t"}
    problem_of(await client.post("/v1/tasks", json=body), 409)
    resumed = await client.post("/v1/tasks", json={**body, "resume": True})
    assert (resumed.status_code, resumed.json()["working_memory"]["task_goal"]) == (200, "by hand")
    assert await world.sql("SELECT goal FROM task_run WHERE user_id = %s", user) == [("by hand",)]


async def test_of_sixteen_starts_at_once_one_begins_and_the_others_are_told(
    world: World, client: httpx.AsyncClient, user: str
) -> None:
    bodies = [{"user_id": user, "goal": f"goal {n}", "task_id": "t"} for n in range(16)]
    answers = await asyncio.gather(*(client.post("/v1/tasks", json=body) for body in bodies))
    assert sorted(a.status_code for a in answers) == [201] + [409] * 15
    (winner,) = [a.json()["working_memory"]["task_goal"] for a in answers if a.status_code == 201]
    held = (await client.get("/v1/working-memory/t", params={"user_id": user})).json()
    assert held["task_goal"] == winner
    assert await world.sql("SELECT goal FROM task_run WHERE user_id = %s", user) == [(winner,)]


async def test_one_idempotency_key_starts_one_task(client: httpx.AsyncClient, user: str) -> None:
    headers, body = {"Idempotency-Key": f"start of {user}"}, {"user_id": user, "goal": GOAL}
    answers = [await client.post("/v1/tasks", json=body, headers=headers) for _ in range(3)]
    assert [a.status_code for a in answers] == [201] * 3
    assert len({a.content for a in answers}) == 1
    problem_of(await client.post("/v1/tasks", json={**body, "goal": "x"}, headers=headers), 422)


async def test_a_start_cut_off_between_redis_and_postgres_is_taken_up_by_its_key_by_resume_and_by_finish(
    world: World, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dies(_question: Any) -> Any:
        raise RuntimeError("killed")

    for way in ("key", "resume", "finish"):
        user, headers = new_user(), {"Idempotency-Key": f"cut off {new_user()}"}
        body = {"user_id": user, "goal": GOAL, "task_id": "t"}
        with monkeypatch.context() as patch:
            patch.setattr(world.runtime.tasks, "_build_context", dies)
            assert (await client.post("/v1/tasks", json=body, headers=headers)).status_code == 500
        assert await world.sql("SELECT 1 FROM task_run WHERE user_id = %s", user) == []
        problem_of(await client.post("/v1/tasks", json=body), 409)
        if way == "key":
            assert (await client.post("/v1/tasks", json=body, headers=headers)).status_code == 201
        elif way == "resume":
            assert (await client.post("/v1/tasks", json={**body, "resume": True})).status_code == 200
        else:
            assert (await end(client, user))["episode"]["task_id"] == "t"
        assert await world.sql("SELECT goal FROM task_run WHERE user_id = %s", user) == [(GOAL,)]


async def test_a_context_that_fails_is_named_and_does_not_keep_a_task_from_starting(
    backends: Backends, user: str
) -> None:
    async with (
        proxied(backends.urls.qdrant_url) as qdrant,
        serving(backends.new_settings(qdrant_url=qdrant.url)) as world,
    ):
        await qdrant.cut()
        answer = await begin(world.client, user)
        assert qdrant.refused > 0
        assert answer["context"]["degraded"]


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("goal", {"goal": " "}), ("goal", {"goal": None}), ("goal", {"goal": "a\0b"}), ("task_id", {"task_id": ""}),
        ("task_id", {"task_id": "a\nb"}), ("task_id", {"task_id": "x" * 129}), ("constraints.0", {"constraints": [""]}),
        ("constraints", {"constraints": [f"c{n}" for n in range(101)]}), ("constraints", {"constraints": "one"}),
        ("state", {"state": []}), ("state.deep", {"state": {"deep": "\ud800"}}), ("max_tokens", {"max_tokens": 0}),
        ("max_tokens", {"max_tokens": 1_000_000}), ("resume", {"resume": "yes"}), ("user_id", {"user_id": None}),
        ("unknown", {"unknown": 1}), ("task_type", {"task_type": "\u200b"}),
    ],
)  # fmt: skip
async def test_a_bad_start_names_its_field(
    client: httpx.AsyncClient, user: str, field: str, body: dict[str, Any]
) -> None:
    import json

    raw = json.dumps({"user_id": user, "goal": GOAL, **body})
    problem_of(await client.post("/v1/tasks", content=raw), 422, field)


async def test_a_finished_task_id_may_be_started_anew(world: World, client: httpx.AsyncClient, user: str) -> None:
    await begin(client, user)
    await note(client, user, GONE)
    first = await end(client, user)
    anew = await begin(client, user, goal="Another goal")
    assert (anew["working_memory"]["failed_attempts"], anew["working_memory"]["task_goal"]) == ([], "Another goal")
    assert await left_ms(world, user) > 7_000_000
    second = await end(client, user, outcome="failure")
    assert second["episode"]["id"] != first["episode"]["id"]
    assert len(await episodes(client, user)) == 2


# advice


async def test_advice_tells_this_tasks_failures_then_earlier_runs_then_experiences(
    client: httpx.AsyncClient, user: str
) -> None:
    await begin(client, user, "earlier")
    await note(client, user, GONE, "earlier")
    await note(client, user, CURED, "earlier")
    answer = await end(client, user, "earlier")
    episode = answer["episode"]["id"]
    for learned in answer["experiences"]:  # they would tell the same as the episode
        await client.delete(f"/v1/experiences/{learned['id']}")
    lesson = await teach(client, user, action="ask for pages", avoid="asking for all at once")
    await begin(client, user)
    await note(client, user, GONE)
    given = await ask(client, user)
    kinds = [(hint["type"], hint["source_id"]) for hint in given["hints"]]
    assert kinds == [
        ("failed_before", "t"),
        ("failed_before", episode),
        ("worked_before", episode),
        ("experience", lesson),
    ]
    assert given["hints"][3]["confidence"] == pytest.approx(0.9)
    assert all("confidence" not in hint for hint in given["hints"][:3])
    assert given["degraded"] == []
    assert given["text"].startswith("<hindsight>")
    assert all(hint["text"] in given["text"] for hint in given["hints"])


async def test_what_a_lesson_says_is_not_told_as_a_case_too(client: httpx.AsyncClient, user: str) -> None:
    for number in range(3):
        await begin(client, user, f"earlier {number}")
        await note(client, user, GONE, f"earlier {number}")
        await note(client, user, CURED, f"earlier {number}")
        await end(client, user, f"earlier {number}")
    await begin(client, user)
    given = (await ask(client, user, arguments={"url": "https://shop/v1/orders"}))["hints"]
    assert [hint["type"] for hint in given] == ["experience"]
    [merged] = (await ask(client, user, arguments={"url": "https://shop/v1/users", "verbose": True}))["hints"][:1]
    assert merged["type"] == "experience"


async def test_what_this_task_was_told_comes_in_short_and_another_task_hears_all(
    client: httpx.AsyncClient, user: str
) -> None:
    lesson = await teach(client, user, rationale="It was retired in May.")
    await begin(client, user)
    await begin(client, user, "other")
    first, again, other = [(await ask(client, user, task))["hints"][0] for task in ("t", "t", "other")]
    assert first["text"] == other["text"]
    assert "It was retired in May" in first["text"]
    assert again["text"] == 'as advised before: do "use /v2/users" · avoid "calling /v1/users"'
    assert (again["source_id"], again["confidence"]) == (lesson, first["confidence"])


async def test_of_two_lessons_that_tell_the_opposite_one_is_told_throughout_a_task(
    client: httpx.AsyncClient, user: str
) -> None:
    def of_type(value: str) -> list[dict[str, str]]:
        return [{"field": "arguments.type", "operator": "eq", "value": value}]

    sure = await teach(client, user, "send `form`", avoid="send `json`", conditions=of_type("json"), confidence=0.8)
    unsure = await teach(client, user, "send `json`", avoid="send `form`", conditions=of_type("form"), confidence=0.5)

    async def told(kind: str) -> list[str]:
        hints = (await ask(client, user, tool="send", arguments={"type": kind}))["hints"]
        return [hint["source_id"] for hint in hints if hint["type"] == "experience"]

    await begin(client, user)
    assert [await told("json"), await told("form"), await told("json")] == [[sure], [], [sure]]
    refused = {"tool": "send", "status": "error", "error": "415 Unsupported Media Type"}
    await note(client, user, {**refused, "arguments": {"type": "form"}})
    assert [await told("form"), await told("json")] == [[unsure], []]


async def test_advice_holds_conditions_against_the_call_the_task_and_the_callers_state(
    client: httpx.AsyncClient, user: str
) -> None:
    async def of(**condition: Any) -> str:
        return await teach(client, user, action=str(condition), conditions=[{"operator": "eq", **condition}])

    by_tool, by_type = await of(field="tool", value="sql"), await of(field="task_type", value="export")
    by_error = await of(field="last_error_class", value="gone")
    by_state, laid_over = await of(field="env", value="prod"), await of(field="tool", value="mine")
    await begin(client, user, task_type="export")

    async def told(**fields: Any) -> set[str]:
        hints = (await ask(client, user, **fields))["hints"]
        return {hint["source_id"] for hint in hints if hint["type"] == "experience"}

    assert await told(tool="sql", arguments=None) == {by_tool, by_type}
    assert await told(tool="other", state={"env": "prod"}) == {by_type, by_state}
    assert await told(tool="other", state={"tool": "mine"}) == {by_type, laid_over}
    await note(client, user, GONE)
    assert await told(tool="other", arguments={}) == {by_type, by_error}


async def test_with_nothing_known_advice_says_so(client: httpx.AsyncClient, user: str) -> None:
    await begin(client, user)
    await write(
        client, user, "Tools are fun", tool_calls=[{"tool": "rm", "arguments": {"path": "/x"}, "status": "error"}]
    )
    given = await ask(client, user, tool="rm", arguments={"path": "/etc/passwd", "force": True})
    assert (given["hints"], given["degraded"]) == ([], [])
    assert "Nothing is known yet" in given["text"]


async def test_advice_in_a_chinese_task_is_chinese(client: httpx.AsyncClient, user: str) -> None:
    await begin(client, user, goal="导出商店接口的全部用户")
    await note(client, user, GONE)
    text = (await ask(client, user))["text"]
    assert "## 曾经失败（不要原样重复）" in text
    assert "本任务中用相同参数失败 1 次" in text
    assert "如前所述，失败" in (await ask(client, user))["text"]


async def test_what_users_share_is_advised_and_what_others_have_is_not(client: httpx.AsyncClient, user: str) -> None:
    other = new_user()
    await teach(client, other)
    await write(client, other, "secret", tool_calls=[{"tool": "http_get", "arguments": OLD, "status": "error"}])
    shared = await teach(client, "*shared", conditions=[{"field": "owner", "operator": "eq", "value": user}])
    await begin(client, user)
    given = await ask(client, user, state={"owner": user})
    assert [hint["source_id"] for hint in given["hints"]] == [shared]


async def test_a_task_that_expired_is_still_advised_from_what_is_kept(
    world: World, client: httpx.AsyncClient, user: str
) -> None:
    lesson = await teach(client, user)
    await begin(client, user)
    await note(client, user, GONE)
    await expire(world, user)
    assert [hint["source_id"] for hint in (await ask(client, user))["hints"]] == [lesson]
    unknown = await client.post(path("unknown", "advice"), json={"user_id": user, "tool": "x"})
    problem_of(unknown, 404)


async def test_without_postgres_this_tasks_failures_are_told_and_the_rest_is_named(
    backends: Backends, user: str
) -> None:
    async with proxied(backends.urls.database_url) as postgres:
        base = backends.new_settings()
        name = base.database_url.rpartition("/")[2]
        async with serving(
            base.model_copy(update={"database_url": f"{postgres.url.rpartition('/')[0]}/{name}"})
        ) as world:
            await begin(world.client, user)
            await note(world.client, user, GONE)
            await postgres.cut()
            given = await ask(world.client, user)
            assert [hint["type"] for hint in given["hints"]] == ["failed_before"]
            assert given["degraded"] == ["memories", "experiences"]
            started = await world.client.post("/v1/tasks", json={"user_id": user, "goal": GOAL, "task_id": "new"})
            assert problem_of(started, 503)["code"] == "store_unavailable"
            ended = await world.client.post(path("t", "finish"), json={"user_id": user, "outcome": "success"})
            problem_of(ended, 503)
            assert postgres.refused > 0
            await postgres.heal()
            assert await world.runtime.redis.exists(TaskKey("default", user, "new").task) == 0

            async def finished() -> bool:
                answer = await world.client.post(path("t", "finish"), json={"user_id": user, "outcome": "success"})
                return answer.status_code == 200

            await until(finished)


async def test_without_redis_every_route_of_the_loop_is_503(backends: Backends, user: str) -> None:
    async with proxied(backends.urls.redis_url) as redis, serving(backends.new_settings(redis_url=redis.url)) as world:
        await begin(world.client, user)
        await redis.cut()
        for address, body in (
            ("/v1/tasks", {"goal": GOAL, "task_id": "new"}), (path("t", "advice"), {"tool": "x"}),
            (path("t", "finish"), {"outcome": "success"}),
        ):  # fmt: skip
            problem_of(await world.client.post(address, json={"user_id": user, **body}), 503)
        assert redis.refused > 0


@pytest.mark.parametrize(
    ("verb", "field", "body"),
    [
        ("advice", "tool", {}), ("advice", "tool", {"tool": ""}), ("advice", "tool", {"tool": "x" * 257}),
        ("advice", "arguments", {"tool": "x", "arguments": [1]}), ("advice", "state", {"tool": "x", "state": 1}),
        ("advice", "arguments.a", {"tool": "x", "arguments": {"a": "\0"}}), ("advice", "more", {"tool": "x", "more": 1}),
        ("finish", "outcome", {}), ("finish", "outcome", {"outcome": "detour"}), ("finish", "outcome", {"outcome": None}),
        ("finish", "feedback", {"outcome": "success", "feedback": " "}), ("finish", "more", {"outcome": "success", "more": 1}),
        ("finish", "result.a", {"outcome": "success", "result": {"a": 2**70}}), ("finish", "user_id", {"outcome": "success", "user_id": ""}),
    ],
)  # fmt: skip
async def test_bad_questions_and_bad_endings_name_their_field(
    client: httpx.AsyncClient, user: str, verb: str, field: str, body: dict[str, Any]
) -> None:
    problem_of(await client.post(path("t", verb), json={"user_id": user, **body}), 422, field)


@pytest.mark.parametrize("task", ["a:b", "a/b", "{x}", "*", "任务/一", "👩‍💻", "a?b#c", "advice"])
async def test_any_task_id_goes_through_the_loop(client: httpx.AsyncClient, user: str, task: str) -> None:
    assert (await begin(client, user, task))["task_id"] == task
    await note(client, user, GONE, task)
    assert (await ask(client, user, task))["hints"][0]["source_id"] == task
    assert (await end(client, user, task))["episode"]["task_id"] == task


# finish


async def test_a_finish_answers_episode_review_and_lessons(client: httpx.AsyncClient, user: str) -> None:
    await begin(client, user, task_type="export", agent_id="a", session_id="s")
    for step in (GONE, CURED):
        await note(client, user, step)
    answer = await end(client, user, result="2 users", feedback="Use /v2/users from the start.")
    assert set(answer) == {"episode", "review", "experiences"}
    episode, review = answer["episode"], answer["review"]
    assert {"steps", "tool_calls", "repeated_calls", "failed_calls", "baseline", "worth_reviewing", "reasons"} <= set(
        review
    )
    assert (review["steps"], review["failed_calls"], review["worth_reviewing"]) == (2, 1, True)
    assert (episode["outcome"], episode["event_type"], episode["kind"]) == ("detour", "task_episode", "episodic")
    assert (episode["task_id"], episode["agent_id"], episode["session_id"]) == ("t", "a", "s")
    assert [call["status"] for call in episode["tool_calls"]] == ["error", "success"]
    assert "the docs name it" in episode["content"]
    assert answer["experiences"]
    for one in answer["experiences"]:
        lesson = await lesson_of(client, one["id"])
        assert (one["status"], lesson["source_memory_ids"]) == ("created", [episode["id"]])
    assert [one["id"] for one in await episodes(client, user)] == [episode["id"]]


async def test_an_aborted_task_has_an_episode_without_outcome(client: httpx.AsyncClient, user: str) -> None:
    await begin(client, user)
    episode = (await end(client, user, outcome="aborted"))["episode"]
    assert (episode["outcome"], episode["metadata"]["ended_as"]) == (None, "aborted")


async def test_eight_finishes_at_once_are_one(world: World, client: httpx.AsyncClient, user: str) -> None:
    lesson = await teach(client, user)
    await begin(client, user, task_type="export")
    await ask(client, user)
    await note(client, user, CURED)
    answers = await asyncio.gather(
        *(client.post(path("t", "finish"), json={"user_id": user, "outcome": "success"}) for _ in range(8))
    )
    assert [a.status_code for a in answers] == [200] * 8
    assert len({a.content for a in answers}) == 1
    assert len(await episodes(client, user)) == 1
    assert await world.sql("SELECT count(*) FROM run_effort WHERE user_id = %s", user) == [(1,)]
    assert (await lesson_of(client, lesson))["success_count"] == 1


async def test_finishes_of_two_processes_are_one(backends: Backends, user: str) -> None:
    settings = backends.new_settings()
    async with serving(settings) as one, serving(settings) as other:
        lesson = await teach(one.client, user)
        await begin(one.client, user, task_type="export")
        await ask(other.client, user)
        await note(other.client, user, CURED)
        answers = await asyncio.gather(
            *(
                w.client.post(path("t", "finish"), json={"user_id": user, "outcome": "success"})
                for w in (one, other) * 4
            )
        )
        assert [a.status_code for a in answers] == [200] * 8, [a.text[:200] for a in answers]
        assert len({a.content for a in answers}) == 1
        assert len(await episodes(one.client, user)) == 1
        assert await one.sql("SELECT count(*) FROM run_effort WHERE user_id = %s", user) == [(1,)]
        assert (await lesson_of(one.client, lesson))["success_count"] == 1


async def test_a_finish_is_repeated_after_the_working_memory_is_gone_and_after_a_restart(
    backends: Backends, user: str
) -> None:
    settings = backends.new_settings()
    async with serving(settings) as world:
        await begin(world.client, user)
        await note(world.client, user, GONE)
        first = await world.client.post(
            path("t", "finish"), json={"user_id": user, "outcome": "failure", "result": "x"}
        )
        await expire(world, user)
    async with serving(settings) as world:
        again = await world.client.post(
            path("t", "finish"), json={"user_id": user, "outcome": "failure", "result": "other"}
        )
        assert (again.status_code, again.content) == (200, first.content)


async def test_another_outcome_than_the_first_is_refused(client: httpx.AsyncClient, user: str) -> None:
    await begin(client, user)
    await end(client, user)
    refused = await client.post(path("t", "finish"), json={"user_id": user, "outcome": "failure"})
    assert problem_of(refused, 409)["code"] == "task_finished"
    assert len(await episodes(client, user)) == 1


async def test_a_step_after_the_finish_is_refused_and_one_before_it_is_answered_again(
    client: httpx.AsyncClient, user: str
) -> None:
    await begin(client, user)
    step, headers = {"user_id": user, **GONE}, {"Idempotency-Key": "step 1"}
    before = await client.post("/v1/working-memory/t/steps", json=step, headers=headers)
    await end(client, user)
    late = await client.post("/v1/working-memory/t/steps", json=step)
    assert problem_of(late, 409)["code"] == "task_finished"
    task = (await client.get("/v1/working-memory/t", params={"user_id": user})).json()
    assert len(task["tool_call_history"]) == 1
    again = await client.post("/v1/working-memory/t/steps", json=step, headers=headers)
    assert (again.status_code, again.content) == (200, before.content)
    await begin(client, user, goal="Another goal")
    assert (await client.post("/v1/working-memory/t/steps", json=step)).status_code == 200


@pytest.mark.parametrize("first", [None, "Use /v2/users."])
async def test_feedback_that_comes_after_the_finish_is_refused_not_dropped(
    client: httpx.AsyncClient, user: str, first: str | None
) -> None:
    await begin(client, user)
    told = {"user_id": user, "outcome": "success", **({"feedback": first} if first else {})}
    answer = await client.post(path("t", "finish"), json=told)
    assert answer.status_code == 200
    refused = await client.post(path("t", "finish"), json={**told, "feedback": "Always round the amounts."})
    assert problem_of(refused, 409)["code"] == "task_finished"
    for same in (told, {"user_id": user, "outcome": "success"}):
        again = await client.post(path("t", "finish"), json=same)
        assert (again.status_code, again.content) == (200, answer.content)


async def test_a_finish_after_the_life_ran_out_keeps_what_is_known(
    world: World, client: httpx.AsyncClient, user: str
) -> None:
    await begin(client, user, agent_id="a")
    await note(client, user, GONE)
    await expire(world, user)
    answer = await end(client, user, outcome="failure")
    assert GOAL in answer["episode"]["content"]
    assert (answer["episode"]["agent_id"], answer["episode"]["outcome"]) == ("a", "failure")
    assert (answer["review"]["steps"], len(answer["review"]["reasons"])) == (0, 1)
    assert "expired" in answer["review"]["reasons"][0]
    assert await world.sql("SELECT count(*) FROM run_effort WHERE user_id = %s", user) == [(0,)]


async def test_an_unknown_task_can_not_be_finished(client: httpx.AsyncClient, user: str) -> None:
    problem_of(await client.post(path("never", "finish"), json={"user_id": user, "outcome": "success"}), 404)


async def test_a_task_made_by_hand_can_be_finished_and_made_again(client: httpx.AsyncClient, user: str) -> None:
    for goal in ("first", "second"):
        await client.put("/v1/working-memory/t", json={"user_id": user, "task_goal": goal})
        await note(client, user, CURED)
        assert f"Task: {goal}" in (await end(client, user))["episode"]["content"]
    assert len(await episodes(client, user)) == 2


async def test_advice_that_was_taken_moves_confidence_and_other_advice_does_not(
    client: httpx.AsyncClient, user: str
) -> None:
    for outcome, moved in (("success", 1), ("failure", -1), ("aborted", 0)):
        user = new_user()
        taken = await teach(client, user)
        ignored = await teach(client, user, conditions=[{"field": "tool", "operator": "eq", "value": "rm"}])
        await begin(client, user)
        await ask(client, user)
        await note(client, user, CURED)
        await ask(client, user, tool="rm", arguments={"path": "x"})
        await note(client, user, {"tool": "rm", "arguments": {"path": "x"}, "status": "success"})
        await end(client, user, outcome=outcome)
        after = await lesson_of(client, taken)
        assert (after["confidence"] > 0.9) - (after["confidence"] < 0.9) == moved, outcome
        assert after["use_count"] == abs(moved)
        assert (await lesson_of(client, ignored))["use_count"] == 0
        history = (await client.get(f"/v1/experiences/{taken}/history")).json()["items"]
        assert [one["task_id"] for one in history if one["task_id"]] == ["t"] * abs(moved)


async def test_a_lesson_whose_call_failed_at_once_failed_whatever_became_of_the_task_and_once(
    client: httpx.AsyncClient,
) -> None:
    for error, outcome, moved in (
        ("415 Unsupported Media Type", "success", -1), ("415", "aborted", -1), ("503 Service Unavailable", "success", 1),
    ):  # fmt: skip
        user = new_user()
        lesson = await teach(client, user)
        await begin(client, user)
        await ask(client, user)
        await note(client, user, {**CURED, "status": "error", "error": error, "result": None})
        await ask(client, user)
        await note(client, user, CURED)
        for _ in range(2):
            await end(client, user, outcome=outcome)
        after = await lesson_of(client, lesson)
        assert (after["confidence"] > 0.9) - (after["confidence"] < 0.9) == moved, (error, outcome)
        assert (after["success_count"], after["failure_count"]) == ((1, 0) if moved > 0 else (0, 1))


async def test_lessons_given_at_the_start_are_judged_when_a_call_did_what_they_say(client: httpx.AsyncClient) -> None:
    for done, outcome, moved in (
        (CURED, "success", 1), (CURED, "failure", -1), (CURED, "aborted", 0), (GONE, "success", 0),
        ({**CURED, "status": "error", "error": "422", "result": None}, "success", -1),
    ):  # fmt: skip
        user = new_user()
        lesson = await teach(client, user, conditions=[{"field": "shop", "operator": "eq", "value": "eu"}],
                             action="call http_get with /v2/users")  # fmt: skip
        started = await begin(client, user, state={"shop": "eu"})
        assert [item["id"] for item in started["context"]["items"]] == [lesson]
        await note(client, user, done)
        await end(client, user, outcome=outcome)
        after = await lesson_of(client, lesson)
        assert (after["confidence"] > 0.9) - (after["confidence"] < 0.9) == moved, (done, outcome)
        assert after["use_count"] == abs(moved)


async def test_the_first_injection_of_a_similar_task_brings_what_the_earlier_one_taught_as_possibly_relevant(
    client: httpx.AsyncClient, user: str
) -> None:
    url = "https://shop/orders"
    refused = {"tool": "http_get", "arguments": {"url": url}, "status": "error", "error": "406 Not Acceptable"}
    await begin(client, user, "earlier", goal="List all orders of the shop API as CSV")
    await note(client, user, refused, "earlier")
    await note(
        client, user, {"tool": "http_get", "arguments": {"url": url, "format": "json"}, "status": "success"}, "earlier"
    )
    lessons = {one["id"] for one in (await end(client, user, "earlier"))["experiences"]}
    await write(client, user, "The garden was watered in June", wait=True)
    await until_indexed(client, user)
    context = (await begin(client, user, goal="List all invoices of the shop API as CSV"))["context"]
    shown = {item["id"] for item in context["items"] if item["what"] == "experience"}
    assert shown
    assert shown <= lessons
    assert "(possibly relevant · confidence" in context["text"]
    assert "format" in context["text"]
    other = (await begin(client, user, "other", goal="Water the garden"))["context"]
    assert [item for item in other["items"] if item["what"] == "experience"] == []


async def test_memories_given_at_the_start_and_used_are_marked_once(
    world: World, client: httpx.AsyncClient, user: str
) -> None:
    content = "Export all users of the shop API as CSV: account reporting_ro, cluster warehouse-7, port 6543"
    used = await write(client, user, content, wait=True)
    given = (await begin(client, user))["context"]
    assert [item["id"] for item in given["items"]] == [used["id"]]
    call = {"account": "reporting_ro", "cluster": "warehouse-7", "port": 6543}
    await note(client, user, {"tool": "connect", "arguments": call, "status": "success"})
    for _ in range(2):
        await end(client, user)
    rows = await world.sql("SELECT used_ids FROM retrieval_log WHERE user_id = %s AND task_id = 't'", user)
    assert [[str(one) for one in ids] for (ids,) in rows] == [[used["id"]]]
    assert (await client.get(f"/v1/memories/{used['id']}")).json()["heat"] == pytest.approx(1.1, abs=0.01)


async def test_what_a_session_had_buffered_is_written_at_the_end(client: httpx.AsyncClient, user: str) -> None:
    await begin(client, user, session_id="s")
    said = [
        {"role": "user", "content": "The invoices are in the folder finance/2026."},
        {"role": "assistant", "content": "Noted."},
    ]
    turn = await client.post("/v1/turns", json={"user_id": user, "session_id": "s", "task_id": "t", "messages": said})
    assert turn.json()["buffered"] > 0, turn.text
    await end(client, user)
    assert any("finance/2026" in one["content"] for one in await listed(client, user))


# The end of a working memory.


async def test_a_finished_task_lives_ten_minutes_and_nothing_renews_it_but_an_explicit_life(
    world: World, client: httpx.AsyncClient, user: str
) -> None:
    await begin(client, user)
    assert await left_ms(world, user) > 7_000_000
    await end(client, user)
    await end(client, user)
    address = "/v1/working-memory/t"
    problem_of(await client.post(f"{address}/steps", json={"user_id": user, **CURED}), 409)
    await client.patch(address, json={"user_id": user, "done_items": ["x"]})
    held = await client.get(address, params={"user_id": user})
    assert await left_ms(world, user) <= 600_000
    left = await world.runtime.working.get(_local(), user, "t")
    assert left.expires_at <= utc_now() + timedelta(seconds=600)
    assert (held.json()["done_items"], held.json()["tool_call_history"]) == (["x"], [])
    assert (await client.patch(address, json={"user_id": user, "ttl_seconds": 3_600})).status_code == 200
    assert 600_000 < await left_ms(world, user) <= 3_600_000
    await client.put(address, json={"user_id": user, "task_goal": "new"})
    assert await left_ms(world, user) > 7_000_000


async def test_a_finished_task_is_gone_when_its_time_is_over_and_its_answer_stays(
    backends: Backends, user: str
) -> None:
    settings = backends.new_settings()
    async with serving(settings, tunables=changed(settings, finished_ttl_seconds=1)) as world:
        await begin(world.client, user)
        first = await end(world.client, user)

        async def gone() -> bool:
            return not await world.runtime.redis.exists(TaskKey("default", user, "t").task)

        await until(gone)
        assert await end(world.client, user) == first
        assert (await begin(world.client, user))["working_memory"]["recent_steps"] == []


# Killed between any two stores.

STEPS = ("end_task", "write_memory", "judge", "mark_used", "distill")


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("expired", [False, True])
async def test_a_finish_killed_at_any_step_is_completed_by_the_next_one_and_nothing_happens_twice(
    backends: Backends, world: World, client: httpx.AsyncClient, user: str, step: str, moment: str, expired: bool
) -> None:
    content = "Export all users of the shop API as CSV: account reporting_ro, cluster warehouse-7, port 6543"
    known = await write(client, user, content, wait=True)
    lesson = await teach(client, user)
    await begin(client, user, task_type="export")
    await ask(client, user)
    await note(
        client, user, {**CURED, "arguments": {**NEW, "account": "reporting_ro", "port": 6543, "at": "warehouse-7"}}
    )
    finishing, real = world.runtime.finishing, world.runtime.finishing._doing
    finishing._doing = replace(real, **{step: _dying(getattr(real, step), moment)})
    try:
        killed = await client.post(path("t", "finish"), json={"user_id": user, "outcome": "success", "result": "r"})
    finally:
        finishing._doing = real
    assert killed.status_code == 500
    if expired:
        await expire(world, user)
    other = await client.post(path("t", "finish"), json={"user_id": user, "outcome": "failure"})
    assert problem_of(other, 409)["code"] == "task_finished"
    answer = await end(client, user)
    assert await end(client, user) == answer
    assert (answer["review"]["steps"], "Result: r" in answer["episode"]["content"]) == (1, True)
    assert [one["id"] for one in await episodes(client, user)] == [answer["episode"]["id"]]
    assert await world.sql("SELECT count(*) FROM run_effort WHERE user_id = %s", user) == [(1,)]
    assert (await lesson_of(client, lesson))["success_count"] == 1
    assert (await client.get(f"/v1/memories/{known['id']}")).json()["heat"] == pytest.approx(1.1, abs=0.01)
    assert await world.sql("SELECT closing FROM task_run WHERE user_id = %s", user) == [(None,)]


async def test_a_finish_killed_before_redis_knew_leaves_a_task_that_may_be_started_anew(
    world: World, client: httpx.AsyncClient, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(client, user)
    runs = world.runtime.finishing._runs

    async def dies(*_: Any) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(runs, "close", dies)
        assert (await client.post(path("t", "finish"), json={"user_id": user, "outcome": "success"})).status_code == 500
    assert await left_ms(world, user) > 7_000_000
    anew = await begin(client, user, goal="next")
    assert anew["working_memory"]["task_goal"] == "next"


def _dying(real: Callable[..., Awaitable[Any]], moment: str) -> Callable[..., Awaitable[Any]]:
    async def step(*arguments: Any, **named: Any) -> Any:
        if moment == "after":
            await real(*arguments, **named)
        raise RuntimeError("killed")

    return step


def _local() -> Any:
    from memory_service.access import LOCAL

    return LOCAL


# Forgetting.


async def test_erasing_the_episode_blanks_what_the_task_still_says_of_it(
    world: World, client: httpx.AsyncClient, user: str
) -> None:
    secret = "the-kraken-sleeps"
    headers = {"Idempotency-Key": f"finish of {user}"}
    body = {"user_id": user, "outcome": "success", "result": secret}
    await begin(client, user, goal=f"Wake {secret}")
    first = await client.post(path("t", "finish"), json=body, headers=headers)
    assert secret in first.text
    assert (await client.delete(f"/v1/memories/{first.json()['episode']['id']}")).status_code == 204
    again = await end(client, user)
    assert again == {**first.json(), "episode": None, "review": {**first.json()["review"], "reasons": []}}
    problem_of(await client.post(path("t", "finish"), json=body, headers=headers), 410)
    for table in ("task_run", "idempotency_key"):
        rows = await world.sql(f"SELECT to_jsonb(r)::text FROM {table} r")
        assert not [row for (row,) in rows if secret in row or secret.encode().hex() in row], table


async def test_erasing_a_user_leaves_nothing_of_his_tasks(world: World, client: httpx.AsyncClient, user: str) -> None:
    secret, other = "the-kraken-sleeps", new_user()
    for owner in (user, other):
        headers = {"Idempotency-Key": f"start of {owner}"}
        body = {"user_id": owner, "goal": f"Wake {secret}", "task_id": "t"}
        assert (await client.post("/v1/tasks", json=body, headers=headers)).status_code == 201
        await begin(client, owner, "live", goal=secret)
        await teach(client, owner)
        await ask(client, owner, "live", arguments={**OLD, "note": secret})
        await end(client, owner)
    counts = (await client.delete(f"/v1/users/{user}")).json()
    assert counts["task_runs"] == 2
    assert await world.sql("SELECT count(*) FROM task_run WHERE user_id = %s", user) == [(0,)]
    kept = await world.sql(
        "SELECT count(*) FROM idempotency_key WHERE response IS NOT NULL AND memory_ids @> ARRAY[%s::uuid]",
        user_mark("default", user),
    )
    assert kept == [(0,)]
    assert [key async for key in world.runtime.redis.scan_iter(f"*{user}*")] == []
    problem_of(await client.post(path("t", "finish"), json={"user_id": user, "outcome": "success"}), 404)
    gone = {"user_id": user, "goal": f"Wake {secret}", "task_id": "t"}
    repeated = await client.post("/v1/tasks", json=gone, headers={"Idempotency-Key": f"start of {user}"})
    problem_of(repeated, 410)
    assert await world.sql("SELECT count(*) FROM task_run WHERE user_id = %s", other) == [(2,)]
    assert (await client.delete(f"/v1/users/{user}")).json()["task_runs"] == 0


# Who may.


async def test_a_bound_key_may_leave_the_user_out_and_touches_no_other(keyed: World) -> None:
    mine, tenant = new_user(), "loop"
    async with keyed.with_key(await keyed.new_key("writer", tenant=tenant, user_id=mine)) as client:
        started = await client.post("/v1/tasks", json={"goal": GOAL, "task_id": "t"})
        assert (started.status_code, started.json()["working_memory"]["user_id"]) == (201, mine)
        assert (await client.post(path("t", "advice"), json={"tool": "x"})).status_code == 200
        assert (await client.post(path("t", "finish"), json={"outcome": "success"})).status_code == 200
        for address, body in (
            ("/v1/tasks", {"goal": "x"}),
            (path("t", "advice"), {"tool": "x"}),
            (path("t", "finish"), {"outcome": "failure"}),
        ):
            problem_of(await client.post(address, json={"user_id": new_user(), **body}), 403)
    async with keyed.with_key(await keyed.new_key("writer", tenant=tenant)) as client:
        problem_of(await client.post("/v1/tasks", json={"goal": GOAL}), 422, "user_id")


async def test_the_same_task_id_of_another_tenant_or_user_is_another_task(keyed: World) -> None:
    user = new_user()
    async with (
        keyed.with_key(await keyed.new_key("writer", tenant="one")) as mine,
        keyed.with_key(await keyed.new_key("writer", tenant="two")) as theirs,
    ):
        await begin(mine, user)
        await note(mine, user, GONE)
        problem_of(await theirs.post(path("t", "advice"), json={"user_id": user, "tool": "http_get"}), 404)
        problem_of(await theirs.post(path("t", "finish"), json={"user_id": user, "outcome": "success"}), 404)
        problem_of(await mine.post(path("t", "finish"), json={"user_id": new_user(), "outcome": "success"}), 404)
        await begin(theirs, user, goal="theirs")
        await end(theirs, user, outcome="aborted")
        assert GOAL in (await end(mine, user))["episode"]["content"]


async def test_a_reader_may_ask_but_moves_nothing_by_it(keyed: World) -> None:
    user = new_user()
    async with (
        keyed.with_key(await keyed.new_key("writer", tenant="readers")) as writer,
        keyed.with_key(await keyed.new_key("reader", tenant="readers")) as reader,
    ):
        lesson = await teach(writer, user)
        await begin(writer, user)
        assert (await ask(reader, user))["hints"][0]["source_id"] == lesson
        for address, body in (("/v1/tasks", {"goal": "x"}), (path("t", "finish"), {"outcome": "failure"})):
            problem_of(await reader.post(address, json={"user_id": user, **body}), 403)
        await note(writer, user, CURED)
        await end(writer, user)
        assert (await lesson_of(writer, lesson))["use_count"] == 0
