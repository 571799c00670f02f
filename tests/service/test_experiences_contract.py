"""Experiences: one active lesson per set of conditions, exact before partial before semantic, reviewed runs, confidence."""

# ruff: noqa: E501 - tables: one case reads best on one line

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from service_running import Backends, World, found, new_user, numbers, problem_of, proxied, serving, until, write

from memory_service.domain import utc_now
from memory_service.errors import StoreUnavailable
from memory_service.stores.postgres import experience_index

ON_POSTGRES = {"field": "db.engine", "operator": "eq", "value": "postgres"}
BIG = {"field": "db.size_gb", "operator": "gt", "value": 500}
PROD = {"field": "env", "operator": "eq", "value": "prod"}
STATE = {"db": {"engine": "postgres", "size_gb": 900}}
WRITER = Path(__file__).parent / "write_experiences.py"


async def lesson(
    client: httpx.AsyncClient, user: str, action: str = "Build the index concurrently", **fields: Any
) -> Any:
    """The answer of POST /v1/experiences: {status, experience, reason?}."""
    body = {"user_id": user, "conditions": [ON_POSTGRES], "action": action, **fields}
    answer = await client.post("/v1/experiences", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def query(client: httpx.AsyncClient, user: str, **fields: Any) -> list[dict[str, Any]]:
    answer = await client.post("/v1/experiences/query", json={"user_id": user, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()["results"]  # type: ignore[no-any-return]


async def listed(client: httpx.AsyncClient, user: str, **params: Any) -> list[dict[str, Any]]:
    answer = await client.get("/v1/experiences", params={"user_id": user, **params})
    assert answer.status_code == 200, answer.text
    return answer.json()["items"]  # type: ignore[no-any-return]


async def indexed(world: World, user: str) -> None:
    async def done() -> bool:
        ((waiting,),) = await world.sql(
            "SELECT count(*) FROM index_outbox o JOIN experience e ON e.id = o.memory_id WHERE e.user_id = %s", user
        )
        return waiting == 0

    await until(done)


def trajectory(*steps: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "goal": "Deploy the billing service to the staging cluster",
        "outcome": "failure",
        "steps": list(steps),
        **fields,
    }


RECOVERED = (
    {"tool": "http_get", "arguments": {"url": "/api/v1/orders", "format": "xml"}, "status": "error", "error": "415 Unsupported format: use json"},
    {"tool": "http_get", "arguments": {"url": "/api/v1/orders", "format": "json"}, "status": "success", "result": "[]"},
)  # fmt: skip


async def distilled(client: httpx.AsyncClient, user: str, run: dict[str, Any], **fields: Any) -> Any:
    answer = await client.post("/v1/experiences/distill", json={"user_id": user, "trajectory": run, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


# Writing.


async def test_a_lesson_by_hand_is_stored_with_the_confidence_of_a_person(client: httpx.AsyncClient, user: str) -> None:
    made = await lesson(
        client,
        user,
        avoid="CREATE INDEX",
        rationale="It locks writes",
        task_type="migration",
        tags=["db", "db"],
        agent_id="a",
    )
    assert made["status"] == "created"
    one = made["experience"]
    assert UUID(one["id"]).version == 7
    assert {k: one[k] for k in ("user_id", "agent_id", "task_type", "action", "avoid", "rationale", "origin", "confidence", "tags", "status", "superseded_by", "version", "use_count")} == {
        "user_id": user, "agent_id": "a", "task_type": "migration", "action": "Build the index concurrently", "avoid": "CREATE INDEX", "rationale": "It locks writes",
        "origin": "feedback", "confidence": 0.9, "tags": ["db"], "status": "active", "superseded_by": None, "version": 1, "use_count": 0,
    }  # fmt: skip
    assert one["conditions"] == [ON_POSTGRES]
    assert [(e["cause"], e["delta"]) for e in one["confidence_ledger"]] == [("given", 0.9)]
    assert (await client.get(f"/v1/experiences/{one['id']}")).json() | {"effective_confidence": 0} == one | {
        "effective_confidence": 0
    }


async def test_the_order_and_spelling_of_conditions_does_not_matter(client: httpx.AsyncClient, user: str) -> None:
    first = await lesson(client, user, conditions=[ON_POSTGRES, BIG])
    again = await lesson(
        client,
        user,
        "  build THE index   concurrently ",
        conditions=[{**BIG, "value": 500.0}, {**ON_POSTGRES, "operator": " EQ "}, ON_POSTGRES],
        tags=["more"],
    )
    assert again["status"] == "reinforced"
    assert again["experience"]["id"] == first["experience"]["id"]
    assert again["experience"]["confidence"] > 0.9
    assert again["experience"]["tags"] == ["more"]
    assert sum(e["delta"] for e in again["experience"]["confidence_ledger"]) == pytest.approx(
        again["experience"]["confidence"]
    )


async def test_another_task_type_or_user_is_another_place(client: httpx.AsyncClient, user: str) -> None:
    hashes = [
        (await lesson(client, who, task_type=kind))["experience"]["condition_hash"]
        for who, kind in ((user, None), (user, "migration"), (new_user(), None))
    ]
    assert len(set(hashes)) == 3


async def test_of_two_actions_the_more_confident_counts_and_at_a_tie_the_newer(
    client: httpx.AsyncClient, user: str
) -> None:
    first = (await lesson(client, user, "one", confidence=0.6))["experience"]
    weaker = await lesson(client, user, "two", confidence=0.5)
    assert weaker["status"] == "rejected"
    assert "more confident" in weaker["reason"]
    assert (weaker["experience"]["status"], weaker["experience"]["superseded_by"]) == ("superseded", first["id"])
    newer = await lesson(client, user, "three", confidence=0.7)
    assert newer["status"] == "superseded_other"
    old = (await client.get(f"/v1/experiences/{first['id']}")).json()
    assert (old["status"], old["superseded_by"]) == ("superseded", newer["experience"]["id"])
    assert [r["action"] for r in await query(client, user, state=STATE)] == ["three"]
    assert {one["action"] for one in await listed(client, user, status=["superseded", "retired"])} == {"one", "two"}


async def test_a_superseded_lesson_that_is_learned_often_enough_comes_back(
    client: httpx.AsyncClient, user: str
) -> None:
    await lesson(client, user, "strong", confidence=0.6)
    statuses = [(await lesson(client, user, "weak", confidence=0.5))["status"] for _ in range(4)]
    assert statuses[0] == "rejected"
    assert "superseded_other" in statuses
    assert [one["action"] for one in await listed(client, user)] == ["weak"]
    assert len(await listed(client, user, status=["superseded"])) == 1


async def test_sixteen_writers_in_two_processes_leave_one_active(backends: Backends, user: str) -> None:
    settings = backends.new_settings()
    async with serving(settings) as world:
        others = await asyncio.create_subprocess_exec(
            sys.executable, str(WRITER), settings.database_url, settings.redis_url, settings.qdrant_url, settings.qdrant_collection, user, "8",
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert others.stdout is not None
        assert (await others.stdout.readline()).strip() == b"ready"
        mine = await asyncio.gather(
            *(lesson(world.client, user, f"mine {n}", confidence=0.5 + n / 100) for n in range(8))
        )
        out, err = await others.communicate()
        assert others.returncode == 0, err.decode()[-2000:]
        theirs = out.decode().split()
        assert len(theirs) == 8
        assert {m["status"] for m in mine} | set(theirs) <= {"created", "superseded_other", "rejected"}
        assert [m["status"] for m in mine].count("created") + theirs.count("created") == 1
        rows = await world.sql(
            "SELECT action, status, superseded_by, confidence FROM experience WHERE user_id = %s", user
        )
        assert len(rows) == 16
        active = [row for row in rows if row[1] == "active"]
        assert len(active) == 1
        assert active[0][3] == max(row[3] for row in rows)
        assert all(row[2] is not None for row in rows if row[1] == "superseded")
        assert [r["action"] for r in await query(world.client, user, state=STATE)] == [active[0][0]]


async def test_the_same_key_writes_once(client: httpx.AsyncClient, user: str) -> None:
    headers = {"Idempotency-Key": str(uuid4())}
    body = {"user_id": user, "conditions": [ON_POSTGRES], "action": "once only please"}
    one, two = [await client.post("/v1/experiences", json=body, headers=headers) for _ in range(2)]
    assert (one.status_code, one.text) == (two.status_code, two.text)
    made = one.json()["experience"]
    feedback = {"Idempotency-Key": str(uuid4())}
    for _ in range(2):
        moved = await client.post(
            f"/v1/experiences/{made['id']}/feedback", json={"outcome": "success"}, headers=feedback
        )
    assert moved.json()["experience"]["use_count"] == 1
    run = {"Idempotency-Key": str(uuid4())}
    told = [
        await client.post(
            "/v1/experiences/distill", json={"user_id": user, "trajectory": trajectory(*RECOVERED)}, headers=run
        )
        for _ in range(2)
    ]
    assert told[0].text == told[1].text
    assert {e["status"] for e in told[1].json()["experiences"]} <= {"created", "rejected"}
    assert (await client.delete(f"/v1/experiences/{made['id']}")).status_code == 204
    problem_of(await client.post("/v1/experiences", json=body, headers=headers), 410)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"conditions": []}, "conditions"), ({"conditions": "x"}, "conditions"), ({"conditions": [ON_POSTGRES] * 13}, "conditions"),
        ({"conditions": [{"field": "a..b", "operator": "eq", "value": 1}]}, "conditions.0.field"), ({"conditions": [{"field": "a", "operator": "like", "value": 1}]}, "conditions.0.operator"),
        ({"conditions": [{"field": "a", "operator": "matches", "value": "("}]}, "conditions.0.value"), ({"conditions": [{"field": "a", "operator": "eq", "value": None}]}, "conditions.0.value"),
        ({"conditions": [3]}, "conditions.0"), ({"conditions": [{**ON_POSTGRES, "more": 1}]}, "conditions.0.more"), ({"action": " "}, "action"), ({"action": 1}, "action"), ({"confidence": 1.1}, "confidence"),
        ({"origin": "magic"}, "origin"), ({"task_type": ""}, "task_type"), ({"unknown": 1}, "unknown"), ({"tags": ["a\0"]}, "tags.0"), ({"user_id": ""}, "user_id"), ({"source_memory_ids": ["x"]}, "source_memory_ids.0"),
    ],
)  # fmt: skip
async def test_a_bad_lesson_is_refused_naming_the_place(
    client: httpx.AsyncClient, user: str, changed: dict[str, Any], field: str
) -> None:
    body = {"user_id": user, "conditions": [ON_POSTGRES], "action": "do", **changed}
    problem_of(await client.post("/v1/experiences", json=body), 422, field)
    assert await listed(client, user) == []


async def test_too_long_an_action_is_413(client: httpx.AsyncClient, user: str) -> None:
    problem_of(
        await client.post("/v1/experiences", json={"user_id": user, "conditions": [ON_POSTGRES], "action": "x" * 8001}),
        413,
        "action",
    )


async def test_the_number_of_patterns_of_a_user_is_bounded(backends: Backends, user: str) -> None:
    settings = backends.new_settings()
    shipped = numbers(settings)
    few = shipped.model_copy(
        update={"experience": {**(shipped.model_extra or {})["experience"], "patterns_per_user_max": 2}}
    )
    async with serving(settings, tunables=few) as world:

        def body(pattern: str) -> dict[str, Any]:
            return {
                "user_id": user,
                "conditions": [{"field": "tool", "operator": "matches", "value": pattern}],
                "action": f"for {pattern}",
            }

        for pattern in ("^a", "^b", "^a"):
            assert (await world.client.post("/v1/experiences", json=body(pattern))).status_code == 201
        problem_of(await world.client.post("/v1/experiences", json=body("^c")), 422, "conditions")


# Querying.


async def test_exact_comes_before_partial_before_semantic(world: World, user: str) -> None:
    client = world.client
    await lesson(client, user, "partial one", conditions=[ON_POSTGRES, PROD], confidence=0.99)
    await lesson(client, user, "exact one", conditions=[ON_POSTGRES, BIG], confidence=0.3)
    await lesson(client, user, "never one", conditions=[{**ON_POSTGRES, "value": "mysql"}])
    await lesson(
        client,
        user,
        "Ask before restarting the kraken",
        conditions=[{"field": "ocean", "operator": "exists", "value": True}],
        confidence=0.4,
    )
    await indexed(world, user)
    results = await query(client, user, state=STATE, semantic_query="restart the kraken", limit=10)
    assert [(r["action"], r["match"]) for r in results[:3]] == [
        ("exact one", "exact"),
        ("partial one", "partial"),
        ("Ask before restarting the kraken", "semantic"),
    ]
    exact, partial = results[:2]
    assert (len(exact["matched"]), exact["missing"]) == (2, [])
    assert (partial["matched"], partial["missing"]) == ([ON_POSTGRES], [PROD])
    assert all(0 <= r["score"] <= 1 for r in results)
    assert [r["action"] for r in await query(client, user, state=STATE)] == ["exact one", "partial one"]


async def test_what_the_state_contradicts_is_never_a_match_and_last_by_meaning(world: World, user: str) -> None:
    client = world.client
    await lesson(
        client,
        user,
        "Vacuum the table of orders at night",
        conditions=[{**ON_POSTGRES, "value": "mysql"}],
        confidence=0.9,
    )
    await lesson(
        client,
        user,
        "Vacuum the table of orders at noon",
        conditions=[{"field": "hour", "operator": "lt", "value": 13}],
        confidence=0.5,
    )
    await indexed(world, user)
    assert await query(client, user, state=STATE) == []
    told = await query(client, user, state=STATE, semantic_query="vacuum the table of orders at night", explain=True)
    assert [r["action"][-5:] for r in told] == [" noon", "night"]
    assert told[1]["score_details"]["failed"] == [{**ON_POSTGRES, "value": "mysql"}]


async def test_conditions_keep_only_lessons_that_carry_them(client: httpx.AsyncClient, user: str) -> None:
    await lesson(client, user, "both", conditions=[ON_POSTGRES, BIG])
    await lesson(client, user, "one", conditions=[ON_POSTGRES])
    await lesson(client, user, "other", conditions=[BIG])
    told = await query(client, user, conditions=[{"field": "db.engine", "operator": "EQ", "value": "postgres"}])
    assert [(r["action"], r["match"], r["matched"], r["missing"]) for r in told] == [
        ("one", "exact", [ON_POSTGRES], []),
        ("both", "partial", [ON_POSTGRES], [BIG]),
    ]
    assert [r["action"] for r in await query(client, user, state=STATE, conditions=[BIG], limit=10)] in (
        ["both", "other"],
        ["other", "both"],
    )


async def test_task_type_and_tags_narrow_and_lessons_without_a_type_are_for_all(
    client: httpx.AsyncClient, user: str
) -> None:
    await lesson(client, user, "typed", task_type="migration", tags=["db"])
    await lesson(client, user, "untyped", tags=["db", "sql"])
    await lesson(client, user, "elsewhere", task_type="deployment")
    assert {r["action"] for r in await query(client, user, state=STATE, task_type="migration")} == {"typed", "untyped"}
    assert {r["action"] for r in await query(client, user, state=STATE, tags=["sql"])} == {"untyped"}
    assert {
        r["action"]
        for r in await query(
            client, user, semantic_query="typed untyped elsewhere", task_type="deployment", tags=["sql"]
        )
    } == {"untyped"}


async def test_the_common_pool_is_asked_too_unless_told_otherwise(client: httpx.AsyncClient, user: str) -> None:
    where = {"field": "only.for", "operator": "eq", "value": user}
    await lesson(client, "*shared", f"shared with {user}", conditions=[where])
    state = {"only.for": user}
    assert [r["user_id"] for r in await query(client, user, state=state)] == ["*shared"]
    assert await query(client, user, state=state, include_shared=False) == []
    assert await query(client, user, semantic_query=f"shared with {user}", include_shared=False) == []


async def test_confidence_fades_and_min_confidence_sees_it_faded(backends: Backends, user: str) -> None:
    now = [utc_now()]
    async with serving(backends.new_settings(), clock=lambda: now[0]) as world:
        made = (await lesson(world.client, user, confidence=0.9))["experience"]
        assert len(await query(world.client, user, state=STATE, min_confidence=0.9)) == 1
        now[0] += timedelta(days=180)
        assert await query(world.client, user, state=STATE, min_confidence=0.56) == []
        (later,) = await query(world.client, user, state=STATE, min_confidence=0.54)
        assert (later["confidence"], later["effective_confidence"]) == (0.9, 0.55)
        assert await query(world.client, user, semantic_query=made["action"], min_confidence=0.56) == []
        moved = (await world.client.post(f"/v1/experiences/{made['id']}/feedback", json={"outcome": "success"})).json()[
            "experience"
        ]
        assert [e["cause"] for e in moved["confidence_ledger"]] == ["given", "faded", "used_success"]
        assert 0.55 < moved["confidence"] < 0.65


async def test_a_query_must_ask_for_something(client: httpx.AsyncClient, user: str) -> None:
    problem_of(await client.post("/v1/experiences/query", json={"user_id": user, "task_type": "x"}), 422, "body")
    problem_of(await client.post("/v1/experiences/query", json={"user_id": user, "state": {}, "limit": 101}), 422)
    problem_of(await client.post("/v1/experiences/query", json={"user_id": user, "conditions": []}), 422, "conditions")


async def test_without_qdrant_keywords_and_conditions_still_answer(backends: Backends, user: str) -> None:
    settings = backends.new_settings()
    async with (
        proxied(settings.qdrant_url) as proxy,
        serving(settings.model_copy(update={"qdrant_url": proxy.url})) as world,
    ):
        await proxy.cut()
        await lesson(world.client, user, "Throttle the exporter of invoices")
        answer = await world.client.post(
            "/v1/experiences/query", json={"user_id": user, "state": STATE, "semantic_query": "exporter invoices"}
        )
        assert answer.json()["degraded"] == ["vector"]
        assert [r["match"] for r in answer.json()["results"]] == ["exact"]
        (by_words,) = await query(world.client, user, semantic_query="exporter invoices")
        assert by_words["match"] == "semantic"
        assert proxy.refused > 0


async def test_a_long_goal_is_looked_up_by_words_from_all_of_it(backends: Backends, user: str) -> None:
    settings = backends.new_settings()
    words = ["".join(letters) for letters in product("bcdfg", "aeiou", "klmn")]
    async with (
        proxied(settings.qdrant_url) as proxy,
        serving(settings.model_copy(update={"qdrant_url": proxy.url})) as world,
    ):
        await proxy.cut()
        await lesson(world.client, user, "Throttle the exporter of invoices")
        goal = f"{' '.join(words)}: throttle the exporter of invoices"
        assert [r["match"] for r in await query(world.client, user, semantic_query=goal)] == ["semantic"]


async def test_memory_searches_never_return_lessons_and_queries_never_memories(world: World, user: str) -> None:
    client = world.client
    await lesson(client, user, "Polish the brass sextant weekly")
    await indexed(world, user)
    assert await found(client, user, "Polish the brass sextant weekly") == []
    assert await found(client, user, "Polish the brass sextant weekly", mode="vector") == []
    await write(client, user, "Polish the brass sextant weekly", wait=True)
    told = await client.post(
        "/v1/memories", json={"user_id": user, "content": "Polish the brass sextant weekly!", "kind": "semantic"}
    )
    assert told.json()["status"] in ("created", "duplicate")
    lessons = await query(
        client, user, semantic_query="Polish the brass sextant weekly", limit=10, include_shared=False
    )
    assert [r["action"] for r in lessons] == ["Polish the brass sextant weekly"]


async def test_another_process_sees_a_change_at_once(backends: Backends, user: str) -> None:
    settings = backends.new_settings()
    async with serving(settings) as one, serving(settings) as two:
        made = (await lesson(one.client, user, "seen"))["experience"]
        assert [r["action"] for r in await query(two.client, user, state=STATE)] == ["seen"]
        await lesson(one.client, user, "seen too", conditions=[BIG])
        assert len(await query(two.client, user, state=STATE)) == 2
        await one.client.patch(f"/v1/experiences/{made['id']}", json={"status": "retired"})
        assert [r["action"] for r in await query(two.client, user, state=STATE)] == ["seen too"]
        await one.client.patch(f"/v1/experiences/{made['id']}", json={"status": "active", "action": "seen again"})
        assert {r["action"] for r in await query(two.client, user, state=STATE)} == {"seen again", "seen too"}
        await one.client.delete(f"/v1/experiences/{made['id']}")
        assert [r["action"] for r in await query(two.client, user, state=STATE)] == ["seen too"]
        await one.client.delete(f"/v1/users/{user}")
        assert await query(two.client, user, state=STATE) == []
        await lesson(one.client, user, "after")
        assert [r["action"] for r in await query(two.client, user, state=STATE)] == ["after"]


async def test_a_state_with_a_goal_is_also_looked_up_by_meaning_and_one_without_is_not(world: World, user: str) -> None:
    client = world.client
    nowhere = {"field": "nowhere", "operator": "eq", "value": "x"}
    await lesson(client, user, "Polish the brass sextant weekly with lamp oil", conditions=[nowhere])
    await indexed(world, user)
    goal = "Polish the brass sextant weekly with lamp oil, please"
    told = await query(client, user, state={"goal": goal, "tool": "polish"}, include_shared=False)
    assert [(r["action"], r["match"]) for r in told] == [("Polish the brass sextant weekly with lamp oil", "semantic")]
    assert await query(client, user, state={"text": goal, "tool": "polish"}, include_shared=False) == []
    assert await query(client, user, state={"goal": "Bake bread"}, include_shared=False) == []
    assert await query(client, user, state={"goal": ["no", {"text": 1}], "arguments": 7}, include_shared=False) == []


async def test_an_erasure_is_read_alone_and_no_other_user_is_read_again(backends: Backends, user: str) -> None:
    settings = backends.new_settings()
    async with serving(settings) as world:
        active = world.runtime.experiences._advice._active
        other = new_user()
        made = [
            (await lesson(world.client, user, f"n {n}", conditions=[{**BIG, "value": n}]))["experience"]["id"]
            for n in range(4)
        ]
        await lesson(world.client, other, "theirs")
        for who in (user, other):
            await query(world.client, who, state=STATE, include_shared=False)
        whole = active.whole_reads
        await world.client.delete(f"/v1/experiences/{made[0]}")
        await world.client.delete(f"/v1/experiences/{made[1]}")
        left = await query(world.client, user, state=STATE, include_shared=False, limit=10)
        assert {one["id"] for one in left} == set(made[2:])
        assert len(await query(world.client, other, state=STATE, include_shared=False)) == 1
        assert active.whole_reads == whole


async def test_an_index_that_missed_too_many_erasures_is_read_anew(backends: Backends, user: str) -> None:
    settings = backends.new_settings()
    shipped = numbers(settings)
    few = shipped.model_copy(update={"experience": {**(shipped.model_extra or {})["experience"], "gone_rows_max": 1}})
    async with serving(settings, tunables=few) as one, serving(settings, tunables=few) as two:
        made = [
            (await lesson(one.client, user, f"n {n}", conditions=[{**BIG, "value": n}]))["experience"]["id"]
            for n in range(5)
        ]
        assert len(await query(two.client, user, state=STATE, limit=10)) == 5
        active = two.runtime.experiences._advice._active
        whole = active.whole_reads
        for experience_id in made[:4]:
            await one.client.delete(f"/v1/experiences/{experience_id}")
        assert await one.sql("SELECT count(*) FROM experience_gone WHERE user_id = %s", user) == [(1,)]
        assert [r["id"] for r in await query(two.client, user, state=STATE, limit=10)] == made[4:]
        assert active.whole_reads == whole + 1


async def test_a_query_during_the_first_reading_is_answered_from_postgres_and_says_so(
    backends: Backends, user: str
) -> None:
    settings = backends.new_settings()
    shipped = numbers(settings)
    impatient = {**(shipped.model_extra or {})["experience"], "load_wait_s": 0.0, "load_slice_rows": 2}
    async with serving(settings, tunables=shipped.model_copy(update={"experience": impatient})) as world:
        for n in range(7):
            await lesson(world.client, user, f"n {n}", conditions=[ON_POSTGRES, {**BIG, "value": n}])
        ask = {"user_id": user, "state": STATE, "limit": 10, "include_shared": False}
        first = (await world.client.post("/v1/experiences/query", json=ask)).json()
        assert first["degraded"] == ["conditions"]
        assert {(r["action"], r["match"]) for r in first["results"]} == {(f"n {n}", "exact") for n in range(7)}

        async def read() -> bool:
            return (await world.client.post("/v1/experiences/query", json=ask)).json()["degraded"] == []

        await until(read)
        later = (await world.client.post("/v1/experiences/query", json=ask)).json()
        assert [r["id"] for r in later["results"]] == [r["id"] for r in first["results"]]
        assert world.runtime.experiences._advice._active.whole_reads == 1


async def test_of_a_query_during_the_first_reading_what_was_found_before_a_failure_counts(
    backends: Backends, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    carrying_any = experience_index.carrying_any

    async def failing_later(connection: Any, tenant: str, user_ids: Any, sets: Any, each: int, most: int) -> Any:
        asked.append(len(sets))
        if len(asked) > 1:
            raise StoreUnavailable("postgres", "gone")
        return await carrying_any(connection, tenant, user_ids, sets, each, most)

    monkeypatch.setattr(experience_index, "carrying_any", failing_later)
    settings = backends.new_settings()
    shipped = numbers(settings)
    impatient = {
        **(shipped.model_extra or {})["experience"],
        "load_wait_s": 0.0, "load_slice_rows": 1, "unloaded_fields_at_once": 1, "unloaded_deadline_s": 60.0,
    }  # fmt: skip
    async with serving(settings, tunables=shipped.model_copy(update={"experience": impatient})) as world:
        for n in range(3):
            await lesson(world.client, user, f"first {n}", conditions=[{**ON_POSTGRES, "field": "a", "value": n}])
            await lesson(world.client, user, f"then {n}", conditions=[{**ON_POSTGRES, "field": "b", "value": n}])
        ask = {"user_id": user, "state": {"a": 1, "b": 1}, "limit": 10, "include_shared": False}
        answer = (await world.client.post("/v1/experiences/query", json=ask)).json()
    assert asked == [1, 1]
    assert answer["degraded"] == ["conditions"]
    assert [r["action"] for r in answer["results"]] == ["first 1"]


async def test_during_the_first_reading_given_conditions_find_what_has_all_of_them(
    backends: Backends, user: str
) -> None:
    settings = backends.new_settings()
    shipped = numbers(settings)
    narrow = {"load_wait_s": 0.0, "load_slice_rows": 1, "unloaded_lessons_max": 1}
    impatient = {**(shipped.model_extra or {})["experience"], **narrow}
    async with serving(settings, tunables=shipped.model_copy(update={"experience": impatient})) as world:
        for n in range(4):
            await lesson(world.client, user, f"n {n}", conditions=[ON_POSTGRES, {**BIG, "value": n}])
        ask = {"user_id": user, "conditions": [{**BIG, "value": 3}, ON_POSTGRES], "include_shared": False}
        answer = (await world.client.post("/v1/experiences/query", json=ask)).json()
    assert (answer["degraded"], [r["action"] for r in answer["results"]]) == (["conditions"], ["n 3"])


async def test_looking_up_conditions_does_not_read_a_pending_list(world: World) -> None:
    """With one each look-up reads up to 4 MB of unsorted entries, and a query during the first reading makes dozens."""
    rows = await world.sql("SELECT reloptions FROM pg_class WHERE relname = 'experience_conditions'")
    assert rows == [(["fastupdate=off"],)]


# Distilling.


async def test_a_call_that_failed_and_then_worked_becomes_a_lesson_for_the_next(
    client: httpx.AsyncClient, user: str
) -> None:
    told = await distilled(client, user, trajectory(*RECOVERED, task_type="api"))
    review = told["review"]
    assert (review["steps"], review["tool_calls"], review["failed_calls"], review["worth_reviewing"]) == (2, 2, 1, True)
    assert review["reasons"]
    assert set(review["baseline"]) >= {"runs", "steps"}
    created = [e["experience"] for e in told["experiences"] if e["status"] == "created"]
    assert any("json" in (e["action"] + str(e["conditions"])) for e in created), created
    assert all(e["source_steps"] for e in created)
    state = {
        "tool": "http_get",
        "arguments": {"url": "/api/v1/orders", "format": "xml"},
        "last_error_class": "none",
        "failed_tools": [],
        "succeeded_tools": [],
    }
    advice = await query(client, user, state=state, task_type="api", limit=10)
    assert any(r["match"] in ("exact", "partial") for r in advice), advice
    again = await distilled(client, user, trajectory(*RECOVERED, task_type="api"))
    assert {e["status"] for e in again["experiences"]} <= {"reinforced", "rejected"}
    assert "reinforced" in {e["status"] for e in again["experiences"]}


async def test_a_refused_finding_says_why_and_has_no_id(client: httpx.AsyncClient, user: str) -> None:
    told = await distilled(
        client, user, trajectory({"tool": "noop", "arguments": {}, "status": "success"}, feedback="ok")
    )
    refused = [e for e in told["experiences"] if e["status"] == "rejected"]
    assert refused
    assert all(e["reason"] and e["experience"]["id"] is None for e in refused)


async def test_a_lesson_that_a_person_retired_does_not_come_back_by_itself(
    client: httpx.AsyncClient, user: str
) -> None:
    first = await distilled(client, user, trajectory(*RECOVERED))
    for made in (e for e in first["experiences"] if e["status"] == "created"):
        await client.patch(f"/v1/experiences/{made['experience']['id']}", json={"status": "retired"})
    again = await distilled(client, user, trajectory(*RECOVERED))
    assert {e["status"] for e in again["experiences"]} == {"rejected"}
    assert await listed(client, user) == []


async def test_the_baseline_is_what_this_users_runs_of_this_type_took(client: httpx.AsyncClient, user: str) -> None:
    step = {"tool": "run", "arguments": {"n": 1}, "status": "success"}
    for n in range(12):
        last = await distilled(
            client,
            user,
            trajectory(*[{**step, "arguments": {"n": i}} for i in range(4)], outcome="success", task_type="steady"),
        )
        assert last["review"]["baseline"]["runs"] in (0, n)
    assert last["review"]["baseline"]["runs"] > 0
    assert last["review"]["baseline"]["steps"] == 4
    assert (await distilled(client, user, trajectory(step, task_type="other")))["review"]["baseline"]["runs"] == 0
    assert (await distilled(client, new_user(), trajectory(step, task_type="steady")))["review"]["baseline"][
        "runs"
    ] == 0


@pytest.mark.parametrize(
    ("run", "field"),
    [
        ({"outcome": "maybe"}, "trajectory.outcome"), ({"steps": [{"arguments": {}}]}, "trajectory.steps.0.tool"), ({"steps": [{"tool": "t", "status": "ok"}]}, "trajectory.steps.0.status"),
        ({"steps": [{"tool": "t", "arguments": [1]}]}, "trajectory.steps.0.arguments"), ({"steps": [{"tool": "t", "extra": 1}]}, "trajectory.steps.0.extra"), ({"goal": ""}, "trajectory.goal"),
        ({"steps": [{"tool": "t"}] * 100_000}, "trajectory.steps"), ({"steps": [{"tool": "t", "result": "\ud800"}]}, None),
    ],
)  # fmt: skip
async def test_a_bad_run_is_refused(
    client: httpx.AsyncClient, user: str, run: dict[str, Any], field: str | None
) -> None:
    import json

    body = json.dumps(
        {"user_id": user, "trajectory": trajectory(**run) if "steps" not in run else {**trajectory(), **run}}
    )
    problem_of(await client.post("/v1/experiences/distill", content=body), 422, field)


async def test_a_run_above_16_mib_is_413(client: httpx.AsyncClient, user: str) -> None:
    big = trajectory({"tool": "t", "result": "x" * 17_000_000})
    problem_of(await client.post("/v1/experiences/distill", json={"user_id": user, "trajectory": big}), 413)


# One lesson.


async def test_feedback_moves_confidence_and_counts(client: httpx.AsyncClient, user: str) -> None:
    made = (await lesson(client, user))["experience"]
    path = f"/v1/experiences/{made['id']}/feedback"
    up = (await client.post(path, json={"outcome": "success", "task_id": "t-1"})).json()["experience"]
    down = (await client.post(path, json={"outcome": "failure"})).json()["experience"]
    assert down["confidence"] < made["confidence"] < up["confidence"]
    assert (down["use_count"], down["success_count"], down["failure_count"]) == (2, 1, 1)
    assert sum(e["delta"] for e in down["confidence_ledger"]) == pytest.approx(down["confidence"])
    items = (await client.get(f"/v1/experiences/{made['id']}/history")).json()["items"]
    assert [(i["version"], i["cause"], i["task_id"]) for i in items] == [
        (3, "feedback_failure", None),
        (2, "feedback_success", "t-1"),
        (1, "created", None),
    ]
    problem_of(await client.post(path, json={"outcome": "irrelevant"}), 422, "outcome")


async def test_a_task_speaks_about_a_lesson_once(client: httpx.AsyncClient, user: str) -> None:
    made = (await lesson(client, user))["experience"]
    path = f"/v1/experiences/{made['id']}/feedback"
    told = [
        (await client.post(path, json={"outcome": o, "task_id": "t-1"})).json()
        for o in ("success", "success", "failure")
    ]
    assert [one.get("repeated", False) for one in told] == [False, True, True]
    assert {one["experience"]["use_count"] for one in told} == {1}
    assert len({one["experience"]["confidence"] for one in told}) == 1
    other = (await client.post(path, json={"outcome": "success", "task_id": "t-2"})).json()
    assert (other["experience"]["use_count"], "repeated" in other) == (2, False)
    at_once = [client.post(path, json={"outcome": "success", "task_id": "t-3"}) for _ in range(8)]
    assert sorted("repeated" in one.json() for one in await asyncio.gather(*at_once)) == [False] + [True] * 7
    assert (await client.get(f"/v1/experiences/{made['id']}")).json()["use_count"] == 3


async def test_a_bound_key_may_judge_the_common_pool_once_a_task_but_not_change_it(keyed: World, user: str) -> None:
    admin = keyed.with_key(await keyed.new_key("admin"))
    mine, theirs = [keyed.with_key(await keyed.new_key("writer", user_id=u)) for u in (user, new_user())]
    where = {"field": "only.for", "operator": "eq", "value": user}
    made = (await lesson(admin, "*shared", "for all of us", conditions=[where]))["experience"]
    path = f"/v1/experiences/{made['id']}"
    problem_of(await mine.post(f"{path}/feedback", json={"outcome": "failure"}), 422, "task_id")
    for who, repeated in ((mine, False), (mine, True), (theirs, False)):
        told = await who.post(f"{path}/feedback", json={"outcome": "success", "task_id": "t-1"})
        assert (told.status_code, told.json().get("repeated", False)) == (200, repeated)
    problem_of(await mine.patch(path, json={"action": "mine now"}), 404)
    problem_of(await mine.delete(path), 404)
    history = (await theirs.get(f"{path}/history")).json()["items"]
    assert [(i["cause"], i["task_id"]) for i in history] == [
        ("feedback_success", None),
        ("feedback_success", None),
        ("created", None),
    ]
    reader = keyed.with_key(await keyed.new_key("reader", user_id=user))
    assert (await reader.post(f"{path}/feedback", json={"outcome": "success", "task_id": "t-9"})).status_code == 403


async def test_patch_changes_only_what_it_names_and_keeps_history(client: httpx.AsyncClient, user: str) -> None:
    made = (await lesson(client, user, avoid="this", tags=["a"]))["experience"]
    path = f"/v1/experiences/{made['id']}"
    changed = (
        await client.patch(
            path, json={"avoid": None, "action": "Do that instead", "confidence": 0.4}, headers={"If-Match": '"1"'}
        )
    ).json()
    assert (changed["avoid"], changed["action"], changed["confidence"], changed["tags"], changed["version"]) == (
        None,
        "Do that instead",
        0.4,
        ["a"],
        2,
    )
    problem_of(await client.patch(path, json={"action": "x"}, headers={"If-Match": "1"}), 409)
    assert problem_of(await client.patch(path, json={"action": None}), 422, "action")
    problem_of(await client.patch(path, json={}), 422)
    problem_of(await client.patch(path, json={"origin": "success"}), 422, "origin")
    history = (await client.get(f"{path}/history", params={"limit": 1})).json()
    assert history["total"] == 2
    assert history["items"][0]["changes"]["action"] == {"from": "Build the index concurrently", "to": "Do that instead"}
    assert history["items"][0]["experience"]["avoid"] is None
    older = (await client.get(f"{path}/history", params={"limit": 1, "cursor": history["next_cursor"]})).json()
    assert (older["items"][0]["version"], older["items"][0]["experience"]["avoid"], older["next_cursor"]) == (
        1,
        "this",
        None,
    )


async def test_a_change_may_not_make_two_active_lessons_for_the_same_conditions(
    client: httpx.AsyncClient, user: str
) -> None:
    one = (await lesson(client, user, "one"))["experience"]
    two = (await lesson(client, user, "two", conditions=[BIG]))["experience"]
    problem_of(await client.patch(f"/v1/experiences/{two['id']}", json={"conditions": [ON_POSTGRES]}), 409)
    await client.patch(f"/v1/experiences/{one['id']}", json={"status": "retired"})
    moved = await client.patch(f"/v1/experiences/{two['id']}", json={"conditions": [ON_POSTGRES]})
    assert moved.json()["condition_hash"] == one["condition_hash"]
    problem_of(await client.patch(f"/v1/experiences/{one['id']}", json={"status": "active"}), 409)
    assert [r["action"] for r in await query(client, user, state=STATE)] == ["two"]


async def test_a_test_case_reads_as_given_when_then(client: httpx.AsyncClient, user: str) -> None:
    tool = {"field": "tool", "operator": "eq", "value": "psql"}
    made = (await lesson(client, user, conditions=[ON_POSTGRES, tool], avoid="locking writes", task_type="migration"))[
        "experience"
    ]
    case = (await client.get(f"/v1/experiences/{made['id']}/test-case")).json()
    assert case["given"] == ["the task is of type migration", 'db.engine is "postgres"']
    assert case["when"].endswith('tool is "psql"')
    assert case["then"] == ["Build the index concurrently", "do not: locking writes"]
    assert case["text"].startswith("Given ")


async def test_pages_are_stable_and_newest_first(client: httpx.AsyncClient, user: str) -> None:
    for n in range(5):
        await lesson(
            client,
            user,
            f"number {n}",
            conditions=[{"field": "n", "operator": "eq", "value": n}],
            task_type="a" if n % 2 else "b",
            tags=[f"t{n}"],
        )
    seen, cursor = [], None
    while True:
        page = (
            await client.get(
                "/v1/experiences", params={"user_id": user, "limit": 2, **({"cursor": cursor} if cursor else {})}
            )
        ).json()
        assert page["total"] == 5
        seen += [one["action"] for one in page["items"]]
        if (cursor := page["next_cursor"]) is None:
            break
    assert seen == [f"number {n}" for n in (4, 3, 2, 1, 0)]
    assert len(await listed(client, user, task_type="a")) == 2
    assert len(await listed(client, user, tags=["t1", "t2"])) == 2
    problem_of(await client.get("/v1/experiences", params={"user_id": user, "cursor": "forged"}), 422, "cursor")
    problem_of(await client.get("/v1/experiences", params={"user_id": user, "status": "gone"}), 422)


async def test_an_erased_lesson_is_gone_with_its_vector_and_history(world: World, user: str) -> None:
    client = world.client
    made = (await lesson(client, user, "Erase me utterly"))["experience"]
    await indexed(world, user)
    assert await points(world, made["id"]) == 1
    path = f"/v1/experiences/{made['id']}"
    assert (await client.delete(path)).status_code == 204
    for method, tail in (("GET", ""), ("DELETE", ""), ("GET", "/history"), ("GET", "/test-case")):
        problem_of(await client.request(method, path + tail), 404)
    assert await query(client, user, state=STATE, semantic_query="Erase me utterly", include_shared=False) == []
    assert await world.sql("SELECT 1 FROM experience_version WHERE user_id = %s", user) == []

    async def vectorless() -> bool:
        return await points(world, made["id"]) == 0

    await until(vectorless)


async def test_erasing_a_user_erases_lessons_vectors_and_efforts(world: World, user: str) -> None:
    client = world.client
    made = (await lesson(client, user))["experience"]
    await client.post(f"/v1/experiences/{made['id']}/feedback", json={"outcome": "success", "task_id": "t-1"})
    gone = (await lesson(client, user, "gone", conditions=[BIG]))["experience"]
    await client.delete(f"/v1/experiences/{gone['id']}")
    assert await world.sql("SELECT 1 FROM experience_gone WHERE user_id = %s", user)
    assert await world.sql("SELECT 1 FROM experience_feedback WHERE user_id = %s", user)
    await distilled(client, user, trajectory(*RECOVERED))
    await indexed(world, user)
    counts = (await client.delete(f"/v1/users/{user}")).json()
    assert counts["experiences"] >= 2
    for table in (
        "experience", "experience_version", "experience_change", "experience_gone", "experience_feedback", "run_effort",
    ):  # fmt: skip
        assert await world.sql(f"SELECT 1 FROM {table} WHERE user_id = %s", user) == [], table

    async def vectorless() -> bool:
        return await points(world, made["id"]) == 0

    await until(vectorless)
    assert (await client.delete(f"/v1/users/{user}")).json()["experiences"] == 0


async def test_a_rebuild_brings_the_vectors_of_lessons_back(backends: Backends, user: str) -> None:
    async with serving(backends.new_settings()) as world:
        made = (await lesson(world.client, user))["experience"]
        gone = (await lesson(world.client, user, "a better one", confidence=1.0))["experience"]
        await indexed(world, user)
        assert (await points(world, made["id"]), await points(world, gone["id"])) == (0, 1)
        await world.runtime.index.replace()
        assert await points(world, gone["id"]) == 0
        assert await world.runtime.relay.enqueue_all() == 1
        world.runtime.relay.nudge()

        async def back() -> bool:
            return await points(world, gone["id"]) == 1

        await until(back)


async def points(world: World, experience_id: str) -> int:
    """How many vectors Qdrant has of one lesson, asked directly."""
    body = {"filter": {"must": [{"key": "memory_id", "match": {"value": experience_id}}]}, "exact": True}
    async with httpx.AsyncClient(trust_env=False) as direct:
        answer = await direct.post(
            f"{world.settings.qdrant_url}/collections/{world.settings.qdrant_collection}/points/count", json=body
        )
    return int(answer.json()["result"]["count"])
