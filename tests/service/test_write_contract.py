"""POST /v1/memories: what a write takes, refuses and answers."""

# ruff: noqa: E501 - tables: one case reads best on one line

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from service_running import World, is_uuid7, listed, new_user, problem_of, write

HOSTILE_VALUES = {
    "a NUL": '"a\\u0000b"',
    "a lone surrogate": '"\\ud800"',
}


async def post_raw(
    client: httpx.AsyncClient, body: bytes | str, path: str = "/v1/memories", **headers: str
) -> httpx.Response:
    return await client.post(path, content=body, headers={"content-type": "application/json", **headers})


async def test_a_write_answers_201_with_the_whole_memory_object(client: httpx.AsyncClient, user: str) -> None:
    answer = await client.post(
        "/v1/memories", json={"user_id": user, "content": "The deploy of 12 May failed: E1234 on db-7."}
    )
    assert answer.status_code == 201
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert body["status"] == "created"
    memory = body["memory"]
    assert list(memory) == [
        "id", "kind", "user_id", "agent_id", "session_id", "task_id", "content", "summary", "event_type", "category", "tags", "entities",
        "tool_calls", "outcome", "importance", "confidence", "heat", "state", "pinned", "superseded_by", "valid_from", "valid_to",
        "related_ids", "metadata", "version", "conflict_id", "occurred_at", "expires_at", "created_at", "updated_at", "last_accessed_at",
        "access_count", "index",
    ]  # fmt: skip
    assert is_uuid7(memory["id"])
    assert memory["version"] == 1
    assert memory["state"] == "active"
    assert memory["occurred_at"] == memory["created_at"]
    assert memory["index"]["state"] == "pending"
    assert set(memory["index"]) == {"state", "model"}


async def test_every_given_field_comes_back_as_it_was_given(client: httpx.AsyncClient, user: str) -> None:
    other = await write(client, user, "the first one")
    given: dict[str, Any] = {
        "kind": "semantic", "summary": "一句话", "event_type": "preference", "category": "工具", "tags": ["b", "a", "b"],
        "entities": ["Postgres", {"name": "db-7", "type": "host"}],
        "tool_calls": [{"tool": "psql", "arguments": {"q": None, "n": 1}, "status": "error", "error": "E1", "duration_ms": 12}],
        "outcome": "detour", "importance": 0.25, "agent_id": "coder", "session_id": "s/1", "task_id": "任务", "related_ids": [other["id"]],
        "metadata": {"k": [1, {"x": None}]}, "occurred_at": "2026-01-02T03:04:05+08:00", "expires_at": "2126-01-02T03:04:05Z",
    }  # fmt: skip
    memory = await write(client, user, "every field", **given)
    expected = {**given, "tags": ["b", "a"], "occurred_at": "2026-01-01T19:04:05Z"}
    expected["entities"] = [{"name": "Postgres", "type": "other"}, {"name": "db-7", "type": "host"}]
    for name, value in expected.items():
        assert memory[name] == value, name
    assert (await client.get(f"/v1/memories/{memory['id']}")).json() | {"index": None, "heat": None} == memory | {
        "index": None,
        "heat": None,
    }


@pytest.mark.parametrize("path", ["/v1/memories", "/v1/memories/search"])
@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (b"", 400, None), (b"{", 400, None), (b"\xff\xfe{}", 400, None), (b'{"user_id":"\xff"}', 400, None), (b"\xef\xbb\xbf{}", 400, None),
        (b"[]", 422, "body"), (b'"x"', 422, "body"), (b"null", 422, "body"), (b"7", 422, "body"),
        (b"{'a':1}", 400, None), (b"[" * 100_000, 422, "body"), (b'{"user_id":' * 100_000, 422, "body"),
    ],
    ids=lambda value: repr(value)[:24] if isinstance(value, bytes) else None,
)  # fmt: skip
async def test_what_is_not_a_json_object_is_refused(
    client: httpx.AsyncClient, path: str, body: bytes, status: int, field: str | None
) -> None:
    problem_of(await post_raw(client, body, path), status, field)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"content": None}, "content"), ({"content": 7}, "content"), ({"content": ""}, "content"), ({"content": "  \n\t"}, "content"),
        ({"content": "\u200b\u200d\ufeff \u2060"}, "content"), ({"user_id": None}, "user_id"), ({"user_id": 5}, "user_id"),
        ({"user_id": ""}, "user_id"), ({"user_id": "u" * 129}, "user_id"), ({"user_id": "a\nb"}, "user_id"), ({"user_id": "   "}, "user_id"),
        ({"kind": "procedural"}, "kind"), ({"kind": 1}, "kind"), ({"importance": 1.01}, "importance"), ({"importance": -0.1}, "importance"),
        ({"importance": "0.5"}, "importance"), ({"importance": True}, "importance"), ({"tags": "a"}, "tags"), ({"tags": [1]}, "tags.0"),
        ({"tags": ["ok", ""]}, "tags.1"), ({"tags": [str(i) for i in range(65)]}, "tags"), ({"outcome": "won"}, "outcome"),
        ({"occurred_at": "yesterday"}, "occurred_at"), ({"occurred_at": "2026-02-30T00:00:00Z"}, "occurred_at"),
        ({"occurred_at": 1_700_000_000}, "occurred_at"), ({"occurred_at": "0001-01-01T00:00:00+14:00"}, "occurred_at"),
        ({"expires_at": "2026-13-01T00:00:00Z"}, "expires_at"), ({"infer": "true"}, "infer"), ({"infer": 1}, "infer"),
        ({"metadata": []}, "metadata"), ({"metadata": "x"}, "metadata"), ({"entities": [{"type": "x"}]}, "entities.0.name"),
        ({"entities": [3]}, "entities.0"), ({"tool_calls": [{"arguments": {}}]}, "tool_calls.0.tool"),
        ({"tool_calls": [{"tool": "t", "extra": 1}]}, "tool_calls.0.extra"), ({"related_ids": ["x"]}, "related_ids.0"),
        ({"related_ids": ["019abcde-0000-7000-8000-000000000000"]}, "related_ids.0"), ({"agent_id": ""}, "agent_id"),
        ({"tenant": "other"}, "tenant"), ({"id": "x"}, "id"), ({"heat": 3}, "heat"), ({"state": "cold"}, "state"), ({"user": "x"}, "user"),
    ],
    ids=lambda value: json.dumps(value)[:40] if isinstance(value, dict) else None,
)  # fmt: skip
async def test_a_bad_field_is_named_and_nothing_is_written(
    client: httpx.AsyncClient, user: str, changed: dict[str, Any], field: str
) -> None:
    answer = await client.post("/v1/memories", json={"user_id": user, "content": "ok", **changed})
    problem_of(answer, 422, field)
    assert await listed(client, user) == []


async def test_all_bad_fields_are_named_at_once(client: httpx.AsyncClient, user: str) -> None:
    answer = await client.post("/v1/memories", json={"user_id": user, "content": 1, "importance": "x", "wrong": 2})
    assert {e["field"] for e in problem_of(answer, 422)["errors"]} == {"content", "importance", "wrong"}


@pytest.mark.parametrize(
    "field", ["user_id", "content", "summary", "category", "event_type", "agent_id", "session_id", "task_id", "unknown"]
)
@pytest.mark.parametrize("kind", HOSTILE_VALUES)
async def test_text_that_no_store_can_hold_is_refused_in_every_field(
    client: httpx.AsyncClient, user: str, field: str, kind: str
) -> None:
    fields = {"user_id": json.dumps(user), "content": '"ok"', field: HOSTILE_VALUES[kind]}
    body = "{" + ",".join(f'"{name}":{value}' for name, value in fields.items()) + "}"
    problem_of(await post_raw(client, body), 422, field)


@pytest.mark.parametrize(
    ("fragment", "field"),
    [
        ('"tags":["a","{bad}"]', "tags.1"), ('"entities":[{"name":"{bad}"}]', "entities.0.name"), ('"entities":["{bad}"]', "entities.0"),
        ('"metadata":{"a":{"b":["{bad}"]}}', "metadata.a.b.0"), ('"metadata":{"a":{"{bad}":1}}', "metadata.a"),
        ('"tool_calls":[{"tool":"t","arguments":{"x":"{bad}"}}]', "tool_calls.0.arguments.x"), ('"{bad}":1', "body"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("bad", ["\\u0000", "\\udfff"])
async def test_hidden_text_is_found_wherever_it_arrives(
    client: httpx.AsyncClient, user: str, fragment: str, field: str, bad: str
) -> None:
    body = f'{{"user_id":"{user}","content":"ok",{fragment.replace("{bad}", bad)}}}'
    problem_of(await post_raw(client, body), 422, field)


@pytest.mark.parametrize(
    "number",
    ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9223372036854775808", "-9223372036854775809", "1" * 5000],
)
@pytest.mark.parametrize(
    ("place", "field"), [('"importance":{n}', "importance"), ('"metadata":{"a":[1,{n}]}', "metadata.a.1")]
)
async def test_numbers_beyond_64_bits_and_not_finite_are_refused(
    client: httpx.AsyncClient, user: str, number: str, place: str, field: str
) -> None:
    body = f'{{"user_id":"{user}","content":"ok",{place.replace("{n}", number)}}}'
    problem_of(await post_raw(client, body), 422, field)


async def test_json_may_be_32_deep_and_not_33(client: httpx.AsyncClient, user: str) -> None:
    def nested(levels: int) -> str:  # the body is level 1, metadata level 2
        return f'{{"user_id":"{user}","content":"deep {levels}","infer":false,"metadata":{{"a":{"[" * (levels - 2)}{"]" * (levels - 2)}}}}}'

    assert (await post_raw(client, nested(32))).status_code == 201
    body = problem_of(await post_raw(client, nested(33)), 422)
    assert body["errors"][0]["field"].startswith("metadata.a")


async def test_content_of_256_kib_is_taken_and_one_byte_more_is_413(client: httpx.AsyncClient, user: str) -> None:
    fits = "中" * (262_144 // 3) + "x"  # bytes count, not characters
    assert len(fits.encode()) == 262_144
    memory = await write(client, user, fits)
    assert (await client.get(f"/v1/memories/{memory['id']}")).json()["content"] == fits
    problem_of(
        await client.post("/v1/memories", json={"user_id": user, "content": fits + "y", "infer": False}), 413, "content"
    )


async def test_a_body_above_16_mib_is_413_with_and_without_a_declared_length(client: httpx.AsyncClient) -> None:
    too_much = b'{"user_id":"u","content":"' + b"x" * 16_777_216 + b'"}'
    problem_of(await post_raw(client, too_much), 413)

    async def chunks() -> Any:
        for start in range(0, len(too_much), 1 << 20):
            yield too_much[start : start + (1 << 20)]

    problem_of(await client.post("/v1/memories", content=chunks()), 413)


METADATA = {
    "int": 1, "float": 1.5, "whole float": 2.0, "true": True, "null": None, "big": 2**63 - 1, "small": -(2**63), "exp": 1e22, "tiny": 5e-324,
    "huge": 1.7976931348623157e308, "precise": 0.1 + 0.2, "empty": {}, "list": [None, [], {"a": {"b": [1, "2"]}}], "中文键": "значение 🦊",
    "a.b.c": "dots", "": "empty key", "content": "shadow", "id": "shadow", "$where": "1; DROP TABLE memory", "quote'\"\\": "%_", "1": "one",
}  # fmt: skip


@pytest.mark.parametrize("key", METADATA)
async def test_metadata_is_kept_value_for_value(client: httpx.AsyncClient, user: str, key: str) -> None:
    memory = await write(client, user, f"meta {key}", metadata={key: METADATA[key]})
    assert memory["content"] == f"meta {key}"
    kept = (await client.get(f"/v1/memories/{memory['id']}")).json()["metadata"]
    assert kept == {key: METADATA[key]}
    if not isinstance(
        METADATA[key], float
    ):  # JSON knows one kind of number; whole ones come back without a point or with it
        assert json.dumps(kept[key], sort_keys=True) == json.dumps(METADATA[key], sort_keys=True)


async def test_one_and_true_and_the_text_1_stay_what_they_are(client: httpx.AsyncClient, user: str) -> None:
    memory = await write(client, user, "types", metadata={"n": 1, "f": 1.0, "b": True, "s": "1"})
    kept = (await client.get(f"/v1/memories/{memory['id']}")).json()["metadata"]
    assert {name: type(value) for name, value in kept.items()} == {"n": int, "f": float, "b": bool, "s": str}


async def test_non_ascii_is_never_escaped(client: httpx.AsyncClient, user: str) -> None:
    memory = await write(client, user, "数据库 пароль 🦊 é", metadata={"ключ": "值"})
    for answer in (
        await client.get(f"/v1/memories/{memory['id']}"),
        await client.get("/v1/memories", params={"user_id": user}),
    ):
        assert "\\u" not in answer.text
        assert "数据库 пароль 🦊 é" in answer.content.decode("utf-8")
    refused = await client.post("/v1/memories", json={"user_id": user, "content": "x", "ключ": 1})
    assert "ключ" in refused.content.decode("utf-8")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("2026-03-04T05:06:07Z", "2026-03-04T05:06:07Z"), ("2026-03-04T05:06:07.123456789+02:00", "2026-03-04T03:06:07.123456Z"),
        ("2026-03-04T05:06:07", "2026-03-04T05:06:07Z"), ("2026-03-04 05:06", "2026-03-04T05:06:00Z"), ("2026-03-04", "2026-03-04T00:00:00Z"),
        ("2026-03-04t05:06:07-11:30", "2026-03-04T16:36:07Z"), ("2024-02-29T00:00:00Z", "2024-02-29T00:00:00Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"), ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
    ],
)  # fmt: skip
async def test_times_come_in_with_any_offset_and_go_out_in_z(
    client: httpx.AsyncClient, user: str, given: str, shown: str
) -> None:
    memory = await write(client, user, "when", occurred_at=given)
    assert memory["occurred_at"] == shown
    read = (await client.get(f"/v1/memories/{memory['id']}")).json()
    assert read["occurred_at"] == shown
    for name in ("created_at", "updated_at", "valid_from"):
        assert read[name].endswith("Z")


@pytest.mark.parametrize(
    "user_id", ["a/b", "🦊", "中文 用户", "a%2Fb", "a+b c", "../x", "a?b#c", "ä" * 128, "'; DROP TABLE memory; --", "%"]
)
async def test_any_printable_user_id_works_everywhere(client: httpx.AsyncClient, user_id: str) -> None:
    from urllib.parse import quote

    mine = f"{user_id[:100]}{new_user('')}"
    memory = await write(client, mine, "mine")
    assert [m["id"] for m in await listed(client, mine)] == [memory["id"]]
    erased = await client.delete(f"/v1/users/{quote(mine, safe='')}")
    assert erased.status_code == 200
    assert erased.json()["user_id"] == mine
    assert erased.json()["memories"] == 1
    assert await listed(client, mine) == []


async def test_an_unknown_query_parameter_is_named(client: httpx.AsyncClient, user: str) -> None:
    problem_of(await client.post("/v1/memories?waits=indexed", json={"user_id": user, "content": "x"}), 422, "waits")
    problem_of(await client.post("/v1/memories?wait=soon", json={"user_id": user, "content": "x"}), 422, "wait")
    problem_of(await client.post("/v1/memories/search?limit=3", json={"user_id": user, "query": "x"}), 422, "limit")
    problem_of(await client.get("/health?x=1"), 422, "x")


@pytest.mark.parametrize(
    "address",
    [
        "/v1/memories?user_id=u&limit=1&limit=2",
        "/v1/memories?user_id=u&limit=1&user_id=v",
        "/v1/stats?user_id=u&user_id=u",
    ],
)
async def test_a_parameter_that_is_no_list_and_comes_twice_is_named(client: httpx.AsyncClient, address: str) -> None:
    problem_of(await client.get(address), 422, "limit" if "limit=2" in address else "user_id")
    listed_twice = await client.get("/v1/memories?user_id=u&tags=a&tags=b&kinds=semantic&kinds=episodic")
    assert listed_twice.status_code == 200, listed_twice.text


async def test_what_would_be_gone_at_once_is_not_written(client: httpx.AsyncClient, user: str) -> None:
    body = {"user_id": user, "content": "over already", "expires_at": "2020-01-01T00:00:00Z"}
    problem_of(await client.post("/v1/memories", json=body), 422, "expires_at")
    items = [body, {"user_id": user, "content": "still to come", "expires_at": "2126-01-01T00:00:00Z"}]
    results = (await client.post("/v1/memories/batch", json={"memories": items})).json()["results"]
    assert [r["status"] for r in results] == ["rejected", "created"]
    assert results[0]["error"]["errors"][0]["field"] == "expires_at"
    assert [m["content"] for m in await listed(client, user)] == ["still to come"]


async def test_wait_indexed_answers_when_the_vector_is_there(client: httpx.AsyncClient, user: str) -> None:
    memory = await write(client, user, "found at once by its vector", wait=True)
    assert memory["index"]["state"] == "indexed"
    answer = await client.post(
        "/v1/memories/search", json={"user_id": user, "query": "vector found at once", "mode": "vector"}
    )
    assert [r["id"] for r in answer.json()["results"]] == [memory["id"]]


async def test_infer_fills_what_is_missing_and_false_stores_as_given(client: httpx.AsyncClient, user: str) -> None:
    text = "The build of payments-api failed with error E4711 on 3 March."
    inferred = (await client.post("/v1/memories", json={"user_id": user, "content": text})).json()["memory"]
    assert inferred["event_type"] is not None
    assert inferred["entities"] != []
    plain = await write(client, new_user(), text)
    assert (plain["event_type"], plain["category"], plain["entities"], plain["tags"]) == (None, None, [], [])


async def test_a_read_of_an_address_that_is_no_route_is_a_problem_too(client: httpx.AsyncClient) -> None:
    problem_of(await client.get("/v1/nothing"), 404)
    problem_of(await client.put("/v1/memories", json={}), 405)


async def test_metadata_above_its_bound_is_413(client: httpx.AsyncClient, user: str) -> None:
    problem_of(
        await client.post("/v1/memories", json={"user_id": user, "content": "x", "metadata": {"a": "x" * 65_536}}),
        413,
        "metadata",
    )
    body = {"user_id": user, "content": "x", "infer": False, "metadata": {"a": "x" * 40_000}}
    assert (await client.post("/v1/memories", json=body)).status_code == 201
    body["metadata"] = {"b": "x" * 40_000}  # of the same memory, so it would be added to what is there
    problem_of(await client.post("/v1/memories", json=body), 413, "metadata")


async def test_the_tables_that_people_read_hold_the_row(world: World, user: str) -> None:
    memory = await write(world.client, user, "seen with psql", kind="semantic", entities=["Redis"], category="tools")
    rows = await world.sql("SELECT content, category, entities FROM semantic_memory WHERE user_id = %s", user)
    assert rows == [("seen with psql", "tools", [{"name": "Redis", "type": "other"}])]
    by_entity = await world.sql(
        """SELECT id FROM semantic_memory WHERE entities @> '[{"name": "Redis"}]' AND user_id = %s""", user
    )
    assert [str(row[0]) for row in by_entity] == [memory["id"]]
