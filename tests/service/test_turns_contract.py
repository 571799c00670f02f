"""POST /v1/turns: what of a dialogue is written, what waits, and that nothing is lost or written twice."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from service_running import Backends, World, listed, new_user, numbers, problem_of, proxied, serving, until

from memory_service.write.triggers import TRIGGERS

PLAIN = [{"role": "user", "content": "And the next one?"}, {"role": "assistant", "content": "Here it is."}]


def said(user: str, assistant: str | None = None) -> list[dict[str, Any]]:
    messages = [{"role": "user", "content": user}]
    return messages + ([{"role": "assistant", "content": assistant}] if assistant is not None else [])


async def post(
    client: httpx.AsyncClient, user: str, messages: list[dict[str, Any]], key: str | None = None, **fields: Any
) -> httpx.Response:
    body = {"user_id": user, "session_id": "s", "messages": messages, **fields}
    return await client.post("/v1/turns", json=body, headers={"Idempotency-Key": key} if key else None)


async def told(client: httpx.AsyncClient, user: str, messages: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    answer = await post(client, user, messages, **fields)
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


async def contents(client: httpx.AsyncClient, user: str) -> list[str]:
    return sorted(one["content"] for one in await listed(client, user))


async def end_task(world: World, user: str, task: str) -> list[Any]:
    from memory_service.access import LOCAL

    return await world.runtime.turns.end_task(LOCAL, user, task)


# What triggers.


async def test_a_plain_turn_only_joins_the_buffer(client: httpx.AsyncClient, user: str) -> None:
    assert await told(client, user, PLAIN) == {"buffered": 1, "triggers": [], "written": []}
    assert await listed(client, user) == []


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("Open the file. From now on answer in German, please. Thanks!", "From now on answer in German, please."),
        ("打开这个文件。以后请用中文回答。谢谢！", "以后请用中文回答。"),
        ('I prefer the label "Save all" on that button.', 'I prefer the label "Save all" on that button.'),
    ],
)
async def test_a_preference_is_a_semantic_memory_that_names_its_trigger(
    client: httpx.AsyncClient, user: str, text: str, stored: str
) -> None:
    answer = await told(client, user, said(text, "Sure."))
    assert answer["triggers"] == ["preference"]
    (one,) = answer["written"]
    assert (one["kind"], one["status"], one["trigger"], one["inferred_by"]) == (
        "semantic", "created", "preference", "rules",
    )  # fmt: skip
    memory = (await client.get(f"/v1/memories/{one['id']}")).json()
    assert memory["content"] == stored
    assert memory["metadata"] == {"triggers": ["preference"]}
    assert memory["session_id"] == "s"
    found = await listed(client, user, filters=json.dumps({"metadata.triggers": {"contains": "preference"}}))
    assert [m["id"] for m in found] == [one["id"]]


@pytest.mark.parametrize(
    ("messages", "trigger", "kind", "outcome"),
    [
        (said("No, the port is 5433, not 5432."), "correction", None, None),
        (said("不对，端口应该是 5433，不是 5432。"), "correction", None, None),
        (
            [*said("Deploy it."), {"role": "tool", "name": "deploy", "content": "Error: permission denied"}],
            "tool_error", "episodic", "failure",
        ),
        (
            [*said("部署。"), {"role": "tool", "name": "deploy", "content": "部署已经成功，订单号 7731"}],
            "tool_result", "episodic", "success",
        ),
        (said("The scope has changed: new goal, the report only."), "state_change", "episodic", None),
        (said("That's all for today."), "task_end", "episodic", None),
    ],
)  # fmt: skip
async def test_each_trigger_writes_before_the_answer(
    client: httpx.AsyncClient,
    user: str,
    messages: list[dict[str, Any]],
    trigger: str,
    kind: str | None,
    outcome: str | None,
) -> None:
    answer = await told(client, user, messages)
    assert answer["triggers"] == [trigger]
    (one,) = answer["written"]
    memory = (await client.get(f"/v1/memories/{one['id']}")).json()
    assert memory["metadata"]["triggers"] == [trigger]
    assert memory["outcome"] == outcome
    assert kind in (None, memory["kind"])


async def test_the_callers_word_on_the_last_tool_call_triggers(client: httpx.AsyncClient, user: str) -> None:
    answer = await told(client, user, said("Run it.", "I ran it."), last_tool_status="error")
    assert answer["triggers"] == ["tool_error"]
    assert (await listed(client, user))[0]["outcome"] == "failure"


async def test_the_fifth_turn_writes_all_five_as_one_episode(client: httpx.AsyncClient, user: str) -> None:
    for number in range(4):
        answer = await told(client, user, said(f"Question {number}?", f"Answer {number}."))
        assert (answer["buffered"], answer["triggers"]) == (number + 1, [])
    answer = await told(client, user, said("Question 4?", "Answer 4."))
    assert (answer["buffered"], answer["triggers"]) == (0, ["turn_count"])
    (memory,) = await listed(client, user)
    assert memory["kind"] == "episodic"
    assert memory["content"] == "\n".join(f"user: Question {n}?\nassistant: Answer {n}." for n in range(5))
    assert (await told(client, user, PLAIN))["buffered"] == 1


async def test_a_backlog_in_one_request_is_cut_into_turns(client: httpx.AsyncClient, user: str) -> None:
    messages = [m for n in range(6) for m in said(f"Question {n}?", f"Answer {n}.")]
    answer = await told(client, user, messages)
    assert (answer["buffered"], answer["triggers"]) == (1, ["turn_count"])


async def test_half_a_turn_waits_for_its_other_half(client: httpx.AsyncClient, user: str) -> None:
    assert (await told(client, user, said("How big is the table?")))["buffered"] == 1
    tool = [{"role": "tool", "name": "sql", "content": "rows: 812"}]
    assert (await told(client, user, tool))["buffered"] == 1
    assert (await told(client, user, [{"role": "assistant", "content": "It has 812 rows."}]))["buffered"] == 1
    assert (await told(client, user, said("And the index?", "Two.")))["buffered"] == 2
    await told(client, user, said("That's all for today."))
    (memory,) = await listed(client, user)
    assert memory["content"].startswith(
        "user: How big is the table?\ntool sql: rows: 812\nassistant: It has 812 rows.\nuser: And the index?"
    )


async def test_a_late_answer_does_not_fire_what_its_question_fired_before(client: httpx.AsyncClient, user: str) -> None:
    assert (await told(client, user, said("I prefer tables. What is next?")))["triggers"] == ["preference"]
    answer = await told(client, user, [{"role": "assistant", "content": "The next file."}])
    assert (answer["triggers"], answer["buffered"]) == ([], 1)


async def test_what_surrounds_a_stated_preference_waits_without_it(client: httpx.AsyncClient, user: str) -> None:
    await told(client, user, said("Open the file. I prefer tables. Then count the lines.", "There are 12."))
    await told(client, user, said("That's all for today."))
    assert await contents(client, user) == [
        "I prefer tables.",
        "user: Open the file. Then count the lines.\nassistant: There are 12.\nuser: That's all for today.",
    ]


async def test_a_sentence_that_is_preference_and_correction_is_one_memory(client: httpx.AsyncClient, user: str) -> None:
    answer = await told(client, user, said("No, that's wrong: from now on always use tabs, not spaces."))
    assert set(answer["triggers"]) >= {"preference", "correction"}
    assert len(answer["written"]) == len(await listed(client, user)) == 1


async def test_saying_it_again_is_a_duplicate(client: httpx.AsyncClient, user: str) -> None:
    first = (await told(client, user, said("I prefer tables.")))["written"][0]
    again = (await told(client, user, said("I prefer tables."), session_id="other"))["written"][0]
    assert (again["id"], again["status"]) == (first["id"], "duplicate")


async def test_times_and_agents_of_the_dialogue_are_kept(client: httpx.AsyncClient, user: str) -> None:
    message = {"role": "user", "content": "I prefer tables.", "at": "2026-03-01T10:00:00+02:00", "name": "ana"}
    await told(client, user, [message], agent_id="coder")
    (memory,) = await listed(client, user)
    assert (memory["occurred_at"], memory["agent_id"]) == ("2026-03-01T08:00:00Z", "coder")


# Sessions, tasks, working memory.


async def test_sessions_and_users_have_buffers_of_their_own(client: httpx.AsyncClient, user: str) -> None:
    other = new_user()
    for n in range(4):
        await told(client, user, said(f"Question {n}?"))
    assert (await told(client, user, PLAIN, session_id="s:2{x}*"))["buffered"] == 1
    assert (await told(client, other, PLAIN))["buffered"] == 1
    assert (await told(client, user, PLAIN))["triggers"] == ["turn_count"]


async def test_turns_of_two_tasks_in_one_session_are_not_mixed(
    world: World, client: httpx.AsyncClient, user: str
) -> None:
    await told(client, user, said("About a?", "A."), task_id="a")
    await told(client, user, said("About b?", "B."), task_id="b")
    await told(client, user, said("More about a?", "AA."), task_id="a", session_id="s2")
    written = await end_task(world, user, "a")
    assert [(one.trigger, one.memory.task_id) for one in written] == [("task_end", "a")] * 2
    assert await contents(client, user) == ["user: About a?\nassistant: A.", "user: More about a?\nassistant: AA."]
    assert await end_task(world, user, "a") == []
    assert await end_task(world, user, "nothing") == []
    assert (await told(client, user, said("And b?"), task_id="b"))["buffered"] == 2


async def test_a_live_task_is_told_what_was_stated_and_what_failed(client: httpx.AsyncClient, user: str) -> None:
    await client.put("/v1/working-memory/t1", json={"user_id": user, "task_goal": "ship"})
    messages = [
        *said("Deploy. From now on use the blue cluster."),
        {"role": "tool", "name": "deploy", "content": "Error: permission denied"},
    ]
    answer = await told(client, user, messages, task_id="t1")
    assert answer["working_memory"] == {
        "confirmed_facts": ["From now on use the blue cluster."],
        "failed_attempts": ["deploy: Error: permission denied"],
        "recent_steps": [],
    }
    moved = await told(client, user, said("Step 2 of 4 is done."), task_id="t1")
    assert (moved["triggers"], moved["written"], moved["buffered"]) == (["state_change"], [], 1)
    task = (await client.get("/v1/working-memory/t1", params={"user_id": user})).json()
    preference = answer["written"][0]["id"]
    assert [(f["fact"], f["source"]) for f in task["confirmed_facts"]] == [
        ("From now on use the blue cluster.", f"memory:{preference}")
    ]
    failed = answer["written"][1]["id"]
    assert [(f["action"], f["error"], f["source"]) for f in task["failed_attempts"]] == [
        ("deploy", "Error: permission denied", f"memory:{failed}")
    ]
    assert task["recent_steps"] == [{"text": "Step 2 of 4 is done."}]
    for one in answer["written"]:
        assert (await client.delete(f"/v1/memories/{one['id']}")).status_code == 204

    async def forgotten() -> bool:
        now = (await client.get("/v1/working-memory/t1", params={"user_id": user})).json()
        return now["confirmed_facts"] == now["failed_attempts"] == []

    await until(forgotten)


async def test_a_plain_turn_leaves_working_memory_alone(client: httpx.AsyncClient, user: str) -> None:
    await client.put("/v1/working-memory/t1", json={"user_id": user, "task_goal": "ship"})
    before = (await client.get("/v1/working-memory/t1", params={"user_id": user})).json()
    assert "working_memory" not in await told(client, user, PLAIN, task_id="t1")
    after = (await client.get("/v1/working-memory/t1", params={"user_id": user})).json()
    assert {**after, "expires_at": ""} == {**before, "expires_at": ""}


async def test_the_state_of_a_task_without_working_memory_becomes_an_episode(
    client: httpx.AsyncClient, user: str
) -> None:
    answer = await told(client, user, said("Step 2 of 4 is done."), task_id="gone")
    assert [one["trigger"] for one in answer["written"]] == ["state_change"]
    assert (await client.get("/v1/working-memory/gone", params={"user_id": user})).status_code == 404


# What is refused.


@pytest.mark.parametrize(
    ("change", "status", "field"),
    [
        ({"messages": []}, 422, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, 422, "messages.0.role"),
        ({"messages": [{"role": "user", "content": " \u200b"}]}, 422, "messages.0.content"),
        ({"messages": [{"role": "user", "content": "a\0b"}]}, 422, "messages.0.content"),
        ({"messages": [{"role": "user"}]}, 422, "messages.0.content"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, 422, "messages.0.content"),
        ({"messages": [{"role": "user", "content": "x", "at": "yesterday"}]}, 422, "messages.0.at"),
        ({"messages": [{"role": "user", "content": "x", "mood": "y"}]}, 422, "messages.0.mood"),
        ({"messages": [{"role": "user", "content": "x"}] * 201}, 422, "messages"),
        ({"messages": [{"role": "user", "content": "x" * 262_145}]}, 413, "messages.0.content"),
        ({"messages": [{"role": "user", "content": "x" * 262_144}] * 5}, 413, "messages"),
        ({"last_tool_status": "fine"}, 422, "last_tool_status"),
        ({"session_id": ""}, 422, "session_id"),
        ({"session_id": None}, 422, "session_id"),
        ({"task_id": "a\nb"}, 422, "task_id"),
        ({"kind": "semantic"}, 422, "kind"),
    ],
)
async def test_a_bad_request_is_named_and_buffers_nothing(
    client: httpx.AsyncClient, user: str, change: dict[str, Any], status: int, field: str | None
) -> None:
    body = {"user_id": user, "session_id": "s", "messages": PLAIN, **change}
    problem_of(await client.post("/v1/turns", json=body), status, field)
    assert (await told(client, user, PLAIN))["buffered"] == 1


# Repeats, races, crashes.


async def test_a_repeated_request_is_answered_alike_and_joins_once(client: httpx.AsyncClient, user: str) -> None:
    first = await post(client, user, PLAIN, key="k1")
    again = await post(client, user, PLAIN, key="k1")
    assert (again.content, again.headers["idempotency-replayed"]) == (first.content, "true")
    assert (await told(client, user, PLAIN))["buffered"] == 2
    problem_of(await post(client, user, said("Something else?"), key="k1"), 422)
    fired = await post(client, user, said("I prefer tables."), key="k2")
    assert (await post(client, user, said("I prefer tables."), key="k2")).content == fired.content
    await client.delete(f"/v1/memories/{fired.json()['written'][0]['id']}")
    problem_of(await post(client, user, said("I prefer tables."), key="k2"), 410)
    assert await listed(client, user) == []


async def test_posts_of_one_session_at_once_lose_no_turn_and_write_none_twice(
    client: httpx.AsyncClient, user: str
) -> None:
    await asyncio.gather(*(told(client, user, said(f"Question number {n}?", "Yes." * 200)) for n in range(40)))
    await asyncio.gather(*(told(client, user, said(f"That's all for today, {n}.")) for n in range(3)))
    text = "\n".join(await contents(client, user))
    assert [text.count(f"Question number {n}?") for n in range(40)] == [1] * 40
    assert [text.count(f"today, {n}.") for n in range(3)] == [1] * 3


async def test_what_a_killed_request_left_behind_is_judged_by_the_next(backends: Backends, user: str) -> None:
    settings = backends.new_settings()
    quick = with_turns(numbers(settings), lease_seconds=1)
    async with serving(settings, tunables=quick) as world:
        await killed(world, "_written", post(world.client, user, said("Go on. From now on answer in German.")))
        assert await listed(world.client, user) == []
        assert (await told(world.client, user, PLAIN))["buffered"] == 1  # the dead one's claim still holds
        await asyncio.sleep(1.1)
        answer = await told(world.client, user, PLAIN)
        assert answer["triggers"] == ["preference"]
        assert answer["buffered"] == 3
        assert await contents(world.client, user) == ["From now on answer in German."]


async def test_the_end_of_a_task_finds_what_a_killed_request_left_behind(backends: Backends, user: str) -> None:
    settings = backends.new_settings()
    async with serving(settings, tunables=with_turns(numbers(settings), lease_seconds=1)) as world:
        await killed(world, "_written", post(world.client, user, said("从现在起请用中文回答。先看日志。"), task_id="t"))
        await asyncio.sleep(1.1)
        assert {one.trigger for one in await end_task(world, user, "t")} == {"preference", "task_end"}
        assert "从现在起请用中文回答。" in await contents(world.client, user)


@pytest.mark.parametrize("key", [None, "k1"])
async def test_a_kill_between_commit_and_buffer_writes_nothing_twice_and_brings_nothing_back(
    backends: Backends, user: str, key: str | None
) -> None:
    settings = backends.new_settings()
    async with serving(settings, tunables=with_turns(numbers(settings), lease_seconds=1)) as world:
        text = "Look at the log. From now on answer in German."
        await killed(world, "_settled", post(world.client, user, said(text), key=key))
        (memory,) = await listed(world.client, user)
        assert (await world.client.delete(f"/v1/memories/{memory['id']}")).status_code == 204
        await asyncio.sleep(1.1)
        answer = await told(world.client, user, said("That's all for today."))
        assert answer["triggers"] == ["task_end"]
        assert await contents(world.client, user) == ["user: Look at the log.\nuser: That's all for today."]


async def test_a_memory_that_was_erased_is_not_written_again_by_a_later_flush(
    client: httpx.AsyncClient, user: str
) -> None:
    written = (await told(client, user, said("Show the list. I prefer dark mode.", "Here.")))["written"]
    failed = [*said("Run the zebra job."), {"role": "tool", "content": "Error: disk full"}]
    written += (await told(client, user, failed))["written"]
    for one in written:
        assert (await client.delete(f"/v1/memories/{one['id']}")).status_code == 204
    for _ in range(5):
        await told(client, user, PLAIN)
    (memory,) = await listed(client, user)
    assert "dark mode" not in memory["content"]
    assert "zebra" not in memory["content"]


@pytest.mark.parametrize("together", [True, False])
async def test_erasing_a_memory_takes_the_answer_to_it_along(
    world: World, client: httpx.AsyncClient, user: str, together: bool
) -> None:
    if together:
        written = (await told(client, user, said("Show Zorba's list. Please call me Zorba.", "Zorba's list, Zorba.")))[
            "written"
        ]
    else:
        written = (await told(client, user, said("Please call me Zorba.")))["written"]
        await told(client, user, [{"role": "assistant", "content": "ok Zorba"}])
    assert await keys_holding(world.runtime.redis, "Zorba") != []
    assert (await client.delete(f"/v1/memories/{written[0]['id']}")).status_code == 204

    async def gone() -> bool:
        return await keys_holding(world.runtime.redis, "Zorba") == []

    await until(gone)
    await told(client, user, [{"role": "assistant", "content": "Anything else, Zorba?"}])  # still an answer to it
    for n in range(6):
        await told(client, user, said(f"Question {n}?", f"Answer {n}."))
    assert await listed(client, user) != []
    assert "Zorba" not in str(await contents(client, user))


async def test_an_erased_statement_is_not_written_before_the_relay_has_cleaned_the_buffer(
    world: World, client: httpx.AsyncClient, user: str
) -> None:
    written = (await told(client, user, said("Show Zorba's list. Please call me Zorba.", "Here, Zorba.")))["written"]
    # No outbox row: the relay knows nothing of it.
    await world.sql("DELETE FROM memory WHERE id = %s", written[0]["id"])
    await told(client, user, said("That's all for today."))
    assert await contents(client, user) == ["user: That's all for today."]


async def test_an_episode_holds_no_answer_without_its_question(client: httpx.AsyncClient, user: str) -> None:
    for text, answer in (
        ("以后请用中文回答。", "明白"),
        ("From now on use tabs.", "Sure."),
        ("我喜欢深色主题。", "好"),
    ):
        await told(client, user, said(text))
        await told(client, user, [{"role": "assistant", "content": answer}])
    for n in range(5):
        await told(client, user, said(f"Question {n}?", f"Answer {n}."))
    episodes = [one["content"] for one in await listed(client, user) if one["kind"] == "episodic"]
    assert episodes == ["\n".join(f"user: Question {n}?\nassistant: Answer {n}." for n in range(5))]


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("My password is hunter2-XYZ, don't store it.", "hunter2-XYZ"),
        ("From now on use the token ghp_abcdefghijklmnop0123456789.", "ghp_abcdefghijklmnop0123456789"),
        ("The key is sk-proj-abcdefghijklmnop0123.", "sk-proj-abcdefghijklmnop0123"),
        ("我的密码是 hunter2，以后请用它登录。", "hunter2"),
        ("Connect to postgres://app:s3cr3t@db/x.", "s3cr3t"),
    ],
)
async def test_a_secret_in_dialogue_is_stored_nowhere(
    world: World, client: httpx.AsyncClient, user: str, text: str, secret: str
) -> None:
    await client.put("/v1/working-memory/t", json={"user_id": user, "task_goal": "log in"})
    await told(client, user, said(text, f"I use password: {secret}"), task_id="t")
    assert await keys_holding(world.runtime.redis, secret) == []
    await told(client, user, said("That's all for today."), task_id="t")
    kept = str(await contents(client, user)) + (await client.get(f"/v1/working-memory/t?user_id={user}")).text
    assert "[masked]" in kept
    assert secret not in kept


async def test_what_a_user_writes_himself_is_stored_as_given(client: httpx.AsyncClient, user: str) -> None:
    text = "My password is hunter2-XYZ."
    await client.post("/v1/memories", json={"user_id": user, "content": text})
    assert await contents(client, user) == [text]


async def test_erasing_a_user_erases_what_waits(world: World, client: httpx.AsyncClient, user: str) -> None:
    secret, client_redis = f"secret-{user}", world.runtime.redis
    await told(client, user, said(f"Think of {secret}?"))
    await told(client, user, said(f"Think of {secret}?"), session_id="other")
    await told(client, user, said("I prefer tables."))
    assert await keys_holding(client_redis, secret) != []
    counts = (await client.delete(f"/v1/users/{user}")).json()
    assert (counts["sessions"], counts["memories"]) == (2, 1)
    assert await keys_holding(client_redis, secret) == []
    assert await world.sql("SELECT count(*) FROM turn_written WHERE user_id = %s", user) == [(0,)]
    assert (await client.delete(f"/v1/users/{user}")).json()["sessions"] == 0
    await told(client, user, said("That's all for today."))
    assert secret not in str(await contents(client, user))


async def test_a_buffer_ends_by_itself_and_is_bounded(backends: Backends, user: str) -> None:
    settings = backends.new_settings()
    small = with_turns(numbers(settings), flush_bytes=5_000, buffer_messages_max=6)
    async with serving(settings, tunables=small) as world:
        await told(world.client, user, PLAIN)
        names = [name async for name in world.runtime.redis.scan_iter(match=f"*{user}*turn*")]
        assert len(names) == 2
        assert all([0 < await world.runtime.redis.ttl(name) <= 86_400 for name in names])
        answer = await told(world.client, user, said("Read this: " + "word " * 1_200))
        assert (answer["triggers"], answer["buffered"]) == (["turn_count"], 0)
        for n in range(3):
            await told(
                world.client,
                user,
                [{"role": "assistant", "content": f"line {n} a"}, {"role": "assistant", "content": f"line {n} b"}],
            )
        await told(world.client, user, [{"role": "assistant", "content": "line 3 a"}])
        text = "\n".join(await contents(world.client, user))
        assert [text.count(f"line {n} b") for n in range(3)] == [1, 1, 1]
        assert "line 3" not in text


# Stores that are down.


async def test_with_redis_down_what_triggers_is_written_whole_and_the_rest_is_refused(
    backends: Backends, user: str
) -> None:
    settings = backends.new_settings()
    async with (
        proxied(settings.redis_url) as proxy,
        serving(settings.model_copy(update={"redis_url": proxy.url})) as world,
    ):
        await told(world.client, user, PLAIN)
        await proxy.cut()
        answer = await told(world.client, user, said("Open it. I prefer tables.", "Done."), task_id="t")
        assert (answer["triggers"], answer["degraded"], answer["buffered"]) == (["preference"], ["redis"], 0)
        assert await contents(world.client, user) == [
            "I prefer tables.", "user: Open it.\nassistant: Done.",
        ]  # fmt: skip
        assert problem_of(await post(world.client, user, PLAIN), 503)["code"] == "store_unavailable"
        assert proxy.refused
        await proxy.heal()
        assert (await told(world.client, user, PLAIN))["buffered"] == 2


async def test_with_postgres_down_a_plain_turn_waits_and_a_trigger_is_refused_and_can_be_sent_again(
    backends: Backends, user: str
) -> None:
    settings = backends.new_settings()
    async with (
        proxied(settings.database_url) as proxy,
        serving(settings.model_copy(update={"database_url": proxy.url})) as world,
    ):
        await told(world.client, user, PLAIN)
        await proxy.cut()
        assert (await told(world.client, user, PLAIN))["buffered"] == 2
        problem_of(await post(world.client, user, said("I prefer tables. Go on.")), 503)
        await proxy.heal()
        answer = await told(world.client, user, said("I prefer tables. Go on."))
        assert (answer["buffered"], [one["status"] for one in answer["written"]]) == (3, ["created"])
        await told(world.client, user, said("That's all for today."))
        assert "\n".join(await contents(world.client, user)).count("Go on.") == 1


async def test_every_trigger_is_one_of_the_contracts(client: httpx.AsyncClient) -> None:
    assert TRIGGERS == (
        "preference", "correction", "tool_error", "tool_result", "state_change", "turn_count", "task_end",
    )  # fmt: skip


# Ways to break things.


def with_turns(tunables: Any, **changed: Any) -> Any:
    return tunables.model_copy(update={"turns": {**tunables.model_extra["turns"], **changed}})


class Killed(BaseException):
    """The process ends here: nothing after this line runs, no clean-up either."""


async def killed(world: World, step: str, request: Any) -> None:
    """Run a request that dies when it comes to `step`."""
    turns = world.runtime.turns
    died = []

    async def die(*_args: Any, **_fields: Any) -> None:
        died.append(step)
        raise Killed

    setattr(turns, step, die)
    try:
        with pytest.raises(BaseException):  # noqa: B017, PT011 - whatever the stack makes of it
            await request
    finally:
        delattr(turns, step)
    assert died == [step]


async def keys_holding(redis: Any, text: str) -> list[bytes]:
    names = [name async for name in redis.scan_iter(match="hs:*turns:*")]
    return [name for name in names if text in str(await redis.hgetall(name))]
