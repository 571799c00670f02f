"""POST /v1/memories/search: what is found, in which lanes, and what never is."""

# ruff: noqa: E501 - tables: one case reads best on one line

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import httpx
import pytest
from service_running import World, found, indexed, listed, new_user, problem_of, search, write, write_many

MODES = ("hybrid", "vector", "keyword")


async def test_a_result_is_the_memory_with_score_and_lanes(client: httpx.AsyncClient, user: str) -> None:
    memory = await write(client, user, "The gateway restarts nightly at three", metadata={"k": 1}, wait=True)
    answer = await search(client, user, "when does the gateway restart")
    assert set(answer) == {"results", "degraded", "retrieval_id", "took_ms"}
    assert answer["degraded"] == []
    assert answer["took_ms"] > 0
    UUID(answer["retrieval_id"])
    (result,) = answer["results"]
    extra = set(result) - set(memory)
    assert extra == {"score", "lanes"}
    assert 0 < result["score"] <= 1
    assert {"vector", "keyword"} <= set(result["lanes"]) <= {"vector", "keyword", "structured", "recent"}
    assert {name: result[name] for name in ("id", "content", "metadata")} == {
        name: memory[name] for name in ("id", "content", "metadata")
    }


async def test_explain_shows_where_the_score_comes_from(client: httpx.AsyncClient, user: str) -> None:
    await write(client, user, "explain me", importance=1.0, wait=True)
    (result,) = (await search(client, user, "explain me", explain=True))["results"]
    details = result["score_details"]
    assert set(details["lanes"]) == set(result["lanes"]) >= {"vector", "keyword", "structured", "recent"}
    assert all(lane["rank"] == 1 and 0 <= lane["score"] <= 1 for lane in details["lanes"].values())
    assert 0 <= details["relevance"] <= 1
    assert 0 < details["freshness"] <= 1
    assert details["nudges"]["importance"] > 0
    assert "score_details" not in (await search(client, user, "explain me"))["results"][0]


async def test_the_limit_is_5_unless_given_and_top_k_is_its_alias(client: httpx.AsyncClient, user: str) -> None:
    await write_many(client, user, [f"pelican number {n}" for n in range(9)], wait=True)
    assert [
        len(await found(client, user, "pelican", **p))
        for p in ({}, {"limit": 7}, {"top_k": 3}, {"limit": 100}, {"top_k": 1})
    ] == [5, 7, 3, 9, 1]


async def test_limit_and_top_k_together_are_refused_because_they_mean_the_same(
    client: httpx.AsyncClient, user: str
) -> None:
    for asked in ({"limit": 1, "top_k": 3}, {"top_k": 3, "limit": 1}):
        for path, body in (("memories/search", {"query": "x"}), ("experiences/query", {"state": {}})):
            told = problem_of(await client.post(f"/v1/{path}", json={"user_id": user, **body, **asked}), 422, "top_k")
            assert told["errors"] == [{"field": "top_k", "message": "means the same as limit: give only one of them"}]
    elsewhere = await client.post("/v1/context", json={"user_id": user, "query": "x", "top_k": 3})
    assert "is not a field" in problem_of(elsewhere, 422, "top_k")["detail"]  # a context has no limit either


@pytest.mark.parametrize("name", ["limit", "top_k"])
@pytest.mark.parametrize("value", [0, 101, -1, "5", True, 5.0, None, [5], 2**63 - 1])
async def test_a_bad_limit_is_named(client: httpx.AsyncClient, user: str, name: str, value: Any) -> None:
    problem_of(await client.post("/v1/memories/search", json={"user_id": user, "query": "x", name: value}), 422, name)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"query": ""}, "query"), ({"query": " \u200b"}, "query"), ({"query": 5}, "query"), ({"query": None}, "query"), ({"query": "a\x00"}, "query"),
        ({"query": "x" * 32_769}, "query"), ({"kinds": ["both"]}, "kinds.0"), ({"kinds": "semantic"}, "kinds"), ({"tag_match": "some"}, "tag_match"), ({"tags": [None]}, "tags.0"),
        ({"filters": []}, "filters"), ({"filters": "x"}, "filters"), ({"since": "soon"}, "since"), ({"until": "2026-02-31T00:00:00Z"}, "until"), ({"as_of": 5}, "as_of"),
        ({"mode": "fuzzy"}, "mode"), ({"min_score": 2}, "min_score"), ({"min_score": "0.5"}, "min_score"), ({"explain": 1}, "explain"), ({"include_cold": "yes"}, "include_cold"),
        ({"agent_id": ""}, "agent_id"), ({"rerank": 1}, "rerank"), ({"tenant": "x"}, "tenant"), ({"cursor": "x"}, "cursor"),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
async def test_a_bad_field_is_named(client: httpx.AsyncClient, user: str, changed: dict[str, Any], field: str) -> None:
    problem_of(await client.post("/v1/memories/search", json={"user_id": user, "query": "x", **changed}), 422, field)


async def test_stale_vectors_are_dropped_and_more_are_fetched(world: World, user: str) -> None:
    stale = await write_many(world.client, user, [f"walrus walrus walrus {n}" for n in range(300)], wait=True)
    live = await write_many(
        world.client,
        user,
        [f"a walrus beside {n} other words that dilute the match a little" for n in range(12)],
        wait=True,
    )
    await world.sql("DELETE FROM memory WHERE id = ANY(%s)", [UUID(i) for i in stale[:150]])
    await world.sql(
        "UPDATE memory SET version = version + 1, content = 'changed' WHERE id = ANY(%s)",
        [UUID(i) for i in stale[150:]],
    )
    for mode in ("vector", "hybrid"):
        results = (await search(world.client, user, "walrus", mode=mode, limit=10))["results"]
        by_vector = [r["id"] for r in results if "vector" in r["lanes"]]
        assert len(results) == 10
        if mode == "vector":
            assert set(by_vector) <= set(live)
            assert len(by_vector) == 10


async def test_the_last_round_finds_what_a_narrow_filter_leaves(world: World, user: str) -> None:
    await write_many(world.client, user, [f"narwhal narwhal {n}" for n in range(400)], wait=True)
    wanted = await write(
        world.client, user, "one narwhal among very many other animals of the sea", metadata={"pick": True}, wait=True
    )
    results = (await search(world.client, user, "narwhal", mode="vector", filters={"metadata.pick": {"eq": True}}))[
        "results"
    ]
    assert [r["id"] for r in results] == [wanted["id"]]


async def test_an_expired_memory_is_gone_from_every_answer_at_once(world: World, user: str) -> None:
    memory = await write(world.client, user, "ephemeral axolotl", expires_at="2126-01-01T00:00:00Z", wait=True)
    other = await write(world.client, user, "the rest")
    path = f"/v1/memories/{memory['id']}"
    assert await found(world.client, user, "ephemeral axolotl", limit=1) == ["ephemeral axolotl"]
    ends = datetime.now(UTC) + timedelta(seconds=0.4)
    await world.client.patch(path, json={"expires_at": ends.isoformat()})
    await indexed(world.client, user)
    await asyncio.sleep(max((ends - datetime.now(UTC)).total_seconds(), 0) + 0.05)
    for mode in MODES:
        assert "ephemeral axolotl" not in await found(world.client, user, "ephemeral axolotl", mode=mode)
    assert [m["id"] for m in await listed(world.client, user)] == [other["id"]]
    for method in ("GET", "PATCH", "DELETE"):
        problem_of(
            await world.client.request(method, path, **({"json": {"category": "x"}} if method == "PATCH" else {})), 404
        )
    assert (await world.client.get("/v1/stats", params={"user_id": user})).json()["memories"]["episodic"]["total"] == 1


async def test_the_shared_pool_is_searched_when_asked_for(client: httpx.AsyncClient, user: str) -> None:
    word = f"word{new_user('').strip('-')}"
    await write(client, "*shared", f"common {word}", tags=[word], wait=True)
    await write(client, user, f"private {word}", tags=[word], wait=True)
    for mode in MODES:
        assert await found(client, user, word, mode=mode) == [f"private {word}"]
        assert sorted(await found(client, user, word, mode=mode, include_shared=True, tags=[word])) == [
            f"common {word}",
            f"private {word}",
        ]
    assert await found(client, "*shared", word, mode="keyword", include_shared=True) == [f"common {word}"]


async def test_what_one_agent_learned_the_others_find_unless_narrowed(client: httpx.AsyncClient, user: str) -> None:
    for agent in ("a", "b"):
        await write(
            client,
            user,
            f"heron of agent {agent}",
            agent_id=agent,
            session_id=f"s-{agent}",
            task_id=f"t-{agent}",
            wait=True,
        )
    await write(client, user, "heron of nobody", wait=True)
    for mode in MODES:
        assert len(await found(client, user, "heron", mode=mode)) == 3
        for narrow in ({"agent_id": "b"}, {"session_id": "s-b"}, {"task_id": "t-b"}):
            assert await found(client, user, "heron", mode=mode, **narrow) == ["heron of agent b"]


async def test_since_is_inclusive_and_until_exclusive(client: httpx.AsyncClient, user: str) -> None:
    for day in (1, 2, 3):
        await write(client, user, f"ibis {day}", occurred_at=f"2026-03-0{day}T00:00:00Z", wait=True)
    for mode in MODES:
        for params, days in (
            ({"since": "2026-03-02T00:00:00Z"}, {2, 3}), ({"until": "2026-03-02T00:00:00Z"}, {1}), ({"since": "2026-03-01T00:00:00.000001Z", "until": "2026-03-03"}, {2}),
            ({"since": "2026-03-02T02:00:00+02:00", "until": "2026-03-02T00:00:00.000001Z"}, {2}), ({"since": "2026-03-03", "until": "2026-03-01"}, set()),
        ):  # fmt: skip
            assert set(await found(client, user, "ibis", mode=mode, **params)) == {f"ibis {day}" for day in days}, (
                mode,
                params,
            )


async def test_min_score_drops_the_weak(client: httpx.AsyncClient, user: str) -> None:
    await write(client, user, "quarterly revenue of the northern region", wait=True)
    await write(client, user, "the cat sleeps", occurred_at="2020-01-01T00:00:00Z", wait=True)
    scores = [r["score"] for r in (await search(client, user, "quarterly revenue northern region"))["results"]]
    assert scores == sorted(scores, reverse=True)
    between = (scores[0] + scores[-1]) / 2
    kept = (await search(client, user, "quarterly revenue northern region", min_score=between))["results"]
    assert [r["score"] >= between for r in kept] == [True]
    assert await found(client, user, "quarterly revenue", min_score=1) == []
    assert len(await found(client, user, "quarterly revenue", min_score=0)) == 2


async def test_each_mode_uses_its_own_lanes(client: httpx.AsyncClient, user: str) -> None:
    await write(client, user, "lanes of the harbour", importance=1, wait=True)
    lanes = {mode: set((await search(client, user, "harbour", mode=mode))["results"][0]["lanes"]) for mode in MODES}
    assert lanes == {
        "hybrid": {"vector", "keyword", "structured", "recent"},
        "vector": {"vector"},
        "keyword": {"keyword"},
    }


async def test_words_count_of_what_the_vector_lane_brings_also_behind_the_best_keyword_hits(
    client: httpx.AsyncClient, user: str
) -> None:
    written = await write_many(client, user, [f"heron {'marsh ' * n}" for n in range(70)], wait=True)
    hybrid = (await search(client, user, "heron", limit=100, explain=True))["results"]
    ranks = [hit["score_details"]["lanes"]["keyword"]["rank"] for hit in hybrid]
    assert {hit["id"] for hit in hybrid} == set(written)
    assert sorted(ranks) == list(range(1, 71))
    assert len(await found(client, user, "heron", mode="keyword", limit=100)) == 60  # alone they bring no more


@pytest.mark.parametrize(
    ("content", "query"),
    [
        ("昨天部署失败,因为数据库连接超时", "数据库"), ("昨天部署失败,因为数据库连接超时", "连接超时怎么办"), ("我喜欢喝绿茶", "茶"), ("データベースの接続", "接続"),
        ("call getUserById in user_service.py", "getUserById"), ("call getUserById in user_service.py", "user_service.py"), ("failed with ORA-01017 at login", "ORA-01017"),
        ("HTTP 503 from payments", "503"), ("see /etc/nginx/nginx.conf line 12", "/etc/nginx/nginx.conf"), ("released v2.14.3 today", "v2.14.3"), ("error 0x80070005 access denied", "0x80070005"),
        ("the letter x marks it", "x"), ("C++ and C# differ", "C++"), ("id 550e8400-e29b-41d4-a716-446655440000", "550e8400-e29b-41d4-a716-446655440000"), ("Müller wrote naïve code", "muller naive"),
        ("ticket PROJ-1234 is open", "proj-1234"), ("mail to ana@example.com", "ana@example.com"), ("it's the user's wish", "users' wish"), ("🦊 was here", "🦊"),
    ],
)  # fmt: skip
async def test_keywords_find_chinese_identifiers_and_error_codes(
    client: httpx.AsyncClient, user: str, content: str, query: str
) -> None:
    await write_many(client, user, [content, "something else entirely", "另外一件事情"])
    assert (await found(client, user, query, mode="keyword"))[:1] == [content]


@pytest.mark.parametrize(
    "query",
    [
        "'",
        "\\",
        "%",
        "& | !",
        ":*",
        "<->",
        "' OR 1=1 --",
        "()",
        "\u3000.",
        "a" * 30_000,
        "x " * 10_000,
        "和 的",
        "the of and",
        "𝕏",
        "\u202eabc",
    ],
)
async def test_no_query_is_too_strange(client: httpx.AsyncClient, user: str, query: str) -> None:
    await write(client, user, "ordinary", wait=True)
    for mode in MODES:
        await search(client, user, query, mode=mode)


async def test_a_phrase_at_the_end_of_100_kb_is_found_by_keyword_and_by_vector(
    client: httpx.AsyncClient, user: str
) -> None:
    words = [
        "system",
        "report",
        "value",
        "process",
        "network",
        "memory",
        "storage",
        "request",
        "response",
        "handler",
        "module",
        "version",
    ]
    filler = " ".join(words[(n * 7 + n // 12) % len(words)] + str(n % 97) for n in range(13_000))[:100_000]
    phrase = "The zymurgist keeps forty-two axolotls in Reykjavik, feeds them beetroot crumbs and plays the theremin every Wednesday."
    long = f"{filler}\n{phrase}"
    await write_many(
        client, user, [long, f"{filler}\nNothing more was said about it.", "short and different"], wait=True
    )
    for mode in ("keyword", "vector", "hybrid"):
        (first, *_) = await found(client, user, phrase, mode=mode)
        assert first == long, mode


async def test_cold_and_superseded_come_only_when_asked_for(world: World, user: str) -> None:
    ids = await write_many(
        world.client, user, ["toucan active", "toucan cold", "toucan superseded", "toucan compressed"]
    )
    for n, state in ((1, "cold"), (2, "superseded"), (3, "compressed")):
        await world.sql("UPDATE memory SET state = %s WHERE id = %s", state, UUID(ids[n]))
    await world.sql("UPDATE index_outbox SET available_at = now() WHERE memory_id = ANY(%s)", [UUID(i) for i in ids])
    await world.sql(
        "INSERT INTO index_outbox (memory_id, tenant) SELECT id, tenant FROM memory WHERE user_id = %s ON CONFLICT DO NOTHING",
        user,
    )
    world.runtime.relay.nudge()
    await indexed(world.client, user)
    for mode in MODES:
        for params, expected in (
            ({}, {"active"}),
            ({"include_cold": True}, {"active", "cold"}),
            ({"include_superseded": True}, {"active", "superseded"}),
        ):
            assert {c.split()[1] for c in await found(world.client, user, "toucan", mode=mode, **params)} == expected, (
                mode,
                params,
            )


async def test_as_of_answers_what_was_believed_then(world: World, user: str) -> None:
    ids = await write_many(world.client, user, ["kestrel old belief", "kestrel new belief"])
    await world.sql(
        "UPDATE memory SET state = 'superseded', valid_from = '2026-01-01Z', valid_to = '2026-02-01Z', superseded_by = %s WHERE id = %s",
        UUID(ids[1]),
        UUID(ids[0]),
    )
    await world.sql("UPDATE memory SET valid_from = '2026-02-01Z' WHERE id = %s", UUID(ids[1]))
    await indexed(world.client, user)
    for mode in MODES:
        for moment, expected in (
            ("2026-01-15T00:00:00Z", ["kestrel old belief"]), ("2026-02-01T00:00:00Z", ["kestrel new belief"]), ("2026-01-31T23:59:59Z", ["kestrel old belief"]), ("2025-12-31T00:00:00Z", []),
        ):  # fmt: skip
            assert await found(world.client, user, "kestrel", mode=mode, as_of=moment) == expected, (mode, moment)


async def test_tags_and_kinds_narrow_every_lane(client: httpx.AsyncClient, user: str) -> None:
    await write(client, user, "lemur one", tags=["a", "b"], kind="semantic", wait=True)
    await write(client, user, "lemur two", tags=["a"], kind="episodic", wait=True)
    for mode in MODES:
        assert len(await found(client, user, "lemur", mode=mode, tags=["b", "x"])) == 1
        assert len(await found(client, user, "lemur", mode=mode, tags=["a", "b"])) == 2
        assert await found(client, user, "lemur", mode=mode, tags=["a", "b"], tag_match="all") == ["lemur one"]
        assert await found(client, user, "lemur", mode=mode, kinds=["episodic"]) == ["lemur two"]


async def test_rerank_without_a_reranker_is_named(client: httpx.AsyncClient, user: str) -> None:
    await write(client, user, "rank me", wait=True)
    answer = await search(client, user, "rank me", rerank=True)
    assert answer["degraded"] == ["rerank"]
    assert len(answer["results"]) == 1


async def test_a_search_is_logged_and_touches_what_it_returned(world: World, user: str) -> None:
    memory = await write(world.client, user, "touched by a search", wait=True)
    answer = await search(world.client, user, "touched", filters={"metadata.x": {"eq": None}})
    await world.runtime.retrieval_log.flush()
    ((query, filters, hits, source),) = await world.sql(
        "SELECT query, filters, hits, source FROM retrieval_log WHERE id = %s", UUID(answer["retrieval_id"])
    )
    assert (query, filters, source) == ("touched", {"metadata.x": {"eq": None}}, "search")
    assert [h["id"] for h in hits] == [memory["id"]]
    read = (await world.client.get(f"/v1/memories/{memory['id']}")).json()
    assert read["access_count"] == 1
    assert read["last_accessed_at"] >= memory["created_at"]
    assert read["version"] == 1


async def test_what_is_relevant_and_old_beats_what_is_fresh_and_beside_the_point(
    client: httpx.AsyncClient, user: str
) -> None:
    old = "The garage door code is 8842."
    await write(client, user, old, kind="semantic", occurred_at="2023-03-01T10:00:00Z")
    for text in (
        "Reviewed the garage invoice.",
        "Had lunch with the team.",
        "Watered the plants.",
        "The door was painted.",
    ):
        await write(client, user, text, kind="episodic", wait=True)
    answer = await client.post("/v1/memories/search", json={"user_id": user, "query": "what is the garage door code?"})
    assert answer.json()["results"][0]["content"] == old
