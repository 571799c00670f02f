"""Whatever arrives, the answer is a clear one: never a 5xx, and what was refused was not written."""

# ruff: noqa: E501 - tables: one case reads best on one line

from __future__ import annotations

import json
from typing import Any

import httpx
from hypothesis import given, settings
from hypothesis import strategies as st
from service_running import new_user

EXAMPLES = 40
words = st.text(max_size=12)  # surrogates and NUL included
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-3, 200), st.floats(), words,
    st.sampled_from(["2026-01-01T00:00:00Z", "2026-02-30", "semantic", "hybrid", "eq", "\u200b", "\x00", "\ud800", "*shared", "%", "'", "1e999"]),
)  # fmt: skip
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4), max_leaves=12
)
field_conditions = st.dictionaries(
    st.sampled_from(["content", "tags", "entities", "importance", "pinned", "occurred_at", "metadata", "metadata.a", "metadata.a.0", "id", "index.state", "heat", "nope"]) | words,
    st.dictionaries(st.sampled_from(["eq", "ne", "in", "nin", "gt", "gte", "lt", "lte", "contains", "exists", "like"]), values, max_size=2) | values,
    max_size=3,
)  # fmt: skip
FIELDS = {
    "write": ("kind", "summary", "event_type", "category", "tags", "entities", "tool_calls", "outcome", "importance", "occurred_at", "agent_id", "related_ids", "metadata", "expires_at", "infer", "extra"),
    "search": ("limit", "top_k", "kinds", "tags", "tag_match", "agent_id", "since", "until", "include_cold", "as_of", "include_shared", "mode", "rerank", "min_score", "explain", "extra"),
    "patch": ("content", "summary", "category", "event_type", "tags", "entities", "outcome", "importance", "confidence", "occurred_at", "expires_at", "related_ids", "metadata", "version"),
}  # fmt: skip


def bodies(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(FIELDS[kind]) | words, values, max_size=5)


async def send(client: httpx.AsyncClient, method: str, path: str, body: Any) -> httpx.Response:
    raw = json.dumps(body).encode()  # NaN, Infinity and \\ud800 go out as they are
    answer = await client.request(method, path, content=raw)
    assert answer.status_code in (200, 201, 400, 404, 409, 413, 422), (answer.status_code, body)
    json.loads(answer.content.decode("utf-8"), parse_constant=refuse)
    return answer


def refuse(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


@settings(max_examples=EXAMPLES)
@given(body=bodies("write"), content=values)
async def test_no_body_of_a_write_breaks_the_service(
    client: httpx.AsyncClient, body: dict[str, Any], content: Any
) -> None:
    user = new_user()
    answer = await send(client, "POST", "/v1/memories", {"user_id": user, "content": content, **body})
    if answer.status_code == 201:
        memory = answer.json()["memory"]
        read = (await client.get(f"/v1/memories/{memory['id']}")).json() if memory["expires_at"] is None else memory
        assert read["content"] == content
        assert read["metadata"] == (body.get("metadata") or {})


@settings(max_examples=EXAMPLES)
@given(items=st.lists(bodies("write") | values, min_size=1, max_size=4))
async def test_no_batch_breaks_the_service(client: httpx.AsyncClient, items: list[Any]) -> None:
    user = new_user()
    memories = [{"user_id": user, "content": "fine", **item} if isinstance(item, dict) else item for item in items]
    answer = await send(client, "POST", "/v1/memories/batch", {"memories": memories})
    if answer.status_code == 200:
        assert [r["index"] for r in answer.json()["results"]] == list(range(len(memories)))


@settings(max_examples=EXAMPLES)
@given(body=bodies("search"), query=words, filters=field_conditions)
async def test_no_search_breaks_the_service(
    client: httpx.AsyncClient, body: dict[str, Any], query: str, filters: dict[str, Any]
) -> None:
    await send(client, "POST", "/v1/memories/search", {"user_id": "fuzz", "query": query, "filters": filters, **body})


@settings(max_examples=EXAMPLES)
@given(filters=field_conditions)
async def test_no_list_breaks_the_service(client: httpx.AsyncClient, filters: dict[str, Any]) -> None:
    answer = await client.get("/v1/memories", params={"user_id": "fuzz", "filters": json.dumps(filters)})
    assert answer.status_code in (200, 422), (answer.status_code, filters)


@settings(max_examples=EXAMPLES)
@given(body=bodies("patch"))
async def test_no_patch_breaks_the_service(client: httpx.AsyncClient, user: str, body: dict[str, Any]) -> None:
    answer = await client.post("/v1/memories", json={"user_id": user, "content": "patched at random", "infer": False})
    await send(client, "PATCH", f"/v1/memories/{answer.json()['memory']['id']}", body)


@settings(max_examples=EXAMPLES)
@given(
    cursor=st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
    | st.binary(max_size=40).map(lambda raw: raw.hex())
)
async def test_no_cursor_breaks_the_service(client: httpx.AsyncClient, cursor: str) -> None:
    answer = await client.get("/v1/memories", params={"user_id": "fuzz", "cursor": cursor})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "cursor"
