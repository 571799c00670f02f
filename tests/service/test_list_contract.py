"""GET /v1/memories: filters as query parameters, and pages that stay stable while rows come and go."""

# ruff: noqa: E501 - tables: one case reads best on one line

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from service_running import listed, new_user, problem_of, write, write_many


async def page(client: httpx.AsyncClient, user: str, **params: Any) -> dict[str, Any]:
    answer = await client.get("/v1/memories", params={"user_id": user, **params})
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


async def test_a_list_is_newest_first_with_a_total(client: httpx.AsyncClient, user: str) -> None:
    for n in range(3):
        await write(client, user, f"note {n}")
    answer = await page(client, user)
    assert [m["content"] for m in answer["items"]] == ["note 2", "note 1", "note 0"]
    assert answer["next_cursor"] is None
    assert answer["total"] == 3


async def test_pages_lose_nothing_and_repeat_nothing_while_rows_come_and_go(
    client: httpx.AsyncClient, user: str
) -> None:
    ids = await write_many(client, user, [f"row {n}" for n in range(25)])
    seen, cursor, pages = [], None, 0
    while True:
        answer = await page(client, user, limit=7, **({"cursor": cursor} if cursor else {}))
        seen += [m["id"] for m in answer["items"]]
        pages += 1
        await write(client, user, f"newer {pages}")
        assert (await client.delete(f"/v1/memories/{answer['items'][0]['id']}")).status_code == 204
        if (cursor := answer["next_cursor"]) is None:
            break
    assert pages == 4
    assert sorted(seen) == sorted(ids)


async def test_the_default_page_has_50_rows(client: httpx.AsyncClient, user: str) -> None:
    await write_many(client, user, [f"row {n}" for n in range(51)])
    answer = await page(client, user)
    assert (len(answer["items"]), answer["total"]) == (50, 51)
    assert answer["next_cursor"]


async def test_top_k_is_an_alias_of_limit(client: httpx.AsyncClient, user: str) -> None:
    await write_many(client, user, ["a", "b", "c"])
    assert len((await page(client, user, top_k=2))["items"]) == 2


@pytest.mark.parametrize("path", ["/v1/memories", "/v1/conflicts", "/v1/experiences", "/v1/retrievals"])
async def test_limit_and_top_k_together_are_refused_because_they_mean_the_same(
    client: httpx.AsyncClient, user: str, path: str
) -> None:
    for params in ({"limit": 1, "top_k": 3}, {"top_k": 3, "limit": 1}, {"top_k": 1, "limit": 1}):
        told = problem_of(await client.get(path, params={"user_id": user, **params}), 422, "top_k")
        assert told["errors"] == [{"field": "top_k", "message": "means the same as limit: give only one of them"}]


@pytest.mark.parametrize("name", ["limit", "top_k"])
@pytest.mark.parametrize("value", ["0", "101", "-1", "x", "true", "", "1e1", "99999999999999999999"])
async def test_a_bad_limit_is_named(client: httpx.AsyncClient, user: str, name: str, value: str) -> None:
    problem_of(await client.get("/v1/memories", params={"user_id": user, name: value}), 422, name)


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({}, "user_id"), ({"user_id": ""}, "user_id"), ({"user_id": "a\x00b"}, "user_id"), ({"user_id": "u", "kinds": "both"}, "kinds.0"),
        ({"user_id": "u", "since": "soon"}, "since"), ({"user_id": "u", "until": "2026-02-31"}, "until"), ({"user_id": "u", "state": "hot"}, "state.0"),
        ({"user_id": "u", "nonsense": "1"}, "nonsense"), ({"user_id": "u", "tag": "1"}, "tag"), ({"user_id": "u", "include_cold": "perhaps"}, "include_cold"),
        ({"user_id": "u", "filters": "{"}, "filters"), ({"user_id": "u", "filters": "[]"}, "filters"), ({"user_id": "u", "filters": "7"}, "filters"),
        ({"user_id": "u", "filters": '{"metadata.a":{"eq":"\\u0000"}}'}, "filters.metadata.a.eq"),
        ({"user_id": "u", "filters": '{"metadata.a":{"eq":"\\ud800"}}'}, "filters.metadata.a.eq"),
        ({"user_id": "u", "filters": '{"metadata.a":{"eq":NaN}}'}, "filters.metadata.a.eq"),
        ({"user_id": "u", "filters": '{"metadata.a":{"eq":99999999999999999999}}'}, "filters.metadata.a.eq"),
        ({"user_id": "u", "filters": "[" * 5000}, "filters"), ({"user_id": "u", "filters": '{"metadata.a":{"eq":' + "[" * 40 + "]" * 40 + "}}"}, "filters.metadata.a.eq.0.0.0.0.0"), ({"user_id": "u", "filters": '{"outcome":5}', "outcome": "success"}, "filters.outcome"),
        ({"user_id": "u", "filters": '{"nope":{"eq":1}}'}, "filters.nope"), ({"user_id": "u", "tags": "a\x00"}, "tags"),
    ],
    ids=str,
)  # fmt: skip
async def test_a_bad_parameter_is_named(client: httpx.AsyncClient, params: dict[str, str], field: str) -> None:
    problem_of(await client.get("/v1/memories", params=params), 422, field)


@pytest.mark.parametrize("encoded", ["%ED%A0%80", "%FF", "a%C3"])
async def test_a_parameter_that_is_not_utf8_is_refused_not_replaced(client: httpx.AsyncClient, encoded: str) -> None:
    problem_of(await client.get(f"/v1/memories?user_id={encoded}"), 422, "user_id")


@pytest.mark.parametrize("cursor", ["x", "AAAA", "é", "a" * 512, "=====", "%00", "eyJhIjoxfQ", " "])
async def test_a_forged_cursor_is_422(client: httpx.AsyncClient, user: str, cursor: str) -> None:
    problem_of(await client.get("/v1/memories", params={"user_id": user, "cursor": cursor}), 422, "cursor")


async def test_a_cursor_works_for_its_own_list_only(client: httpx.AsyncClient, user: str) -> None:
    await write_many(client, user, ["a", "b", "c"])
    cursor = (await page(client, user, limit=1))["next_cursor"]
    edited = cursor[:-2] + ("AA" if cursor[-2:] != "AA" else "BB")
    for params in (
        {"user_id": new_user(), "cursor": cursor},
        {"user_id": user, "cursor": cursor, "kinds": "semantic"},
        {"user_id": user, "cursor": edited},
    ):
        problem_of(await client.get("/v1/memories", params=params), 422, "cursor")
    assert len((await page(client, user, limit=2, cursor=cursor))["items"]) == 2


async def test_list_parameters_repeat(client: httpx.AsyncClient, user: str) -> None:
    await write(client, user, "one", tags=["a", "b"])
    await write(client, user, "two", tags=["a"])
    await write(client, user, "three", tags=["c"], kind="semantic")

    async def contents(**params: Any) -> set[str]:
        return {m["content"] for m in await listed(client, user, **params)}

    assert await contents(tags=["a", "c"]) == {"one", "two", "three"}
    assert await contents(tags=["a", "b"], tag_match="all") == {"one"}
    assert await contents(kinds=["semantic"]) == {"three"}
    assert await contents(kinds=["semantic", "episodic"]) == {"one", "two", "three"}


async def test_each_narrowing_parameter_narrows(client: httpx.AsyncClient, user: str) -> None:
    await write(client, user, "plain", kind="episodic")
    await write(client, user, "agent", agent_id="a1")
    await write(client, user, "session", session_id="s1")
    await write(client, user, "task", task_id="t1")
    await write(client, user, "won", outcome="success")
    await write(client, user, "old", occurred_at="2020-01-01T00:00:00Z")
    for params, expected in (
        ({"agent_id": "a1"}, ["agent"]), ({"session_id": "s1"}, ["session"]), ({"task_id": "t1"}, ["task"]), ({"outcome": "success"}, ["won"]),
        ({"until": "2020-01-01T00:00:01Z"}, ["old"]), ({"until": "2020-01-01T00:00:00Z"}, []), ({"since": "2020-01-01T00:00:00Z", "until": "2021-01-01T01:00:00+01:00"}, ["old"]),
        ({"filters": json.dumps({"outcome": {"exists": True}}), "outcome": "success"}, ["won"]), ({"state": "cold"}, []),
    ):  # fmt: skip
        assert [m["content"] for m in await listed(client, user, **params)] == expected, params


async def test_the_shared_pool_is_listed_when_asked_for(client: httpx.AsyncClient, user: str) -> None:
    mark = new_user("mark")
    await write(client, "*shared", "for all", tags=[mark])
    await write(client, user, "mine", tags=[mark])
    assert [m["content"] for m in await listed(client, user, tags=mark)] == ["mine"]
    assert [m["content"] for m in await listed(client, user, tags=mark, include_shared=True)] == ["mine", "for all"]
    assert [m["content"] for m in await listed(client, "*shared", tags=mark)] == ["for all"]
