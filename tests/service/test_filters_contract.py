"""`filters`: every operator on every kind of field, the same in each lane and in the list, compared with a reference in Python."""

# ruff: noqa: E501 - tables: one case reads best on one line

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from filter_reference import matches
from hypothesis import example, given, settings
from hypothesis import strategies as st
from service_running import World, indexed, listed, new_user, problem_of, search

MISSING = object()
VALUES: list[Any] = [
    MISSING, None, 0, 1, 1.0, 1.5, -5, 2**63 - 1, 1e22, 0.1 + 0.2, 0.3, True, False, "", "1", "1.0", "true", "null", "abc", "ABC", "abcd", "中文", "a%b", "a_b",
    "'; DROP TABLE memory; --", "2026-01-01T00:00:00Z", "2026-01-01T08:00:00+08:00", "2025-12-31T23:59:59.5Z", "2026-01-01", "2026-13-01T00:00:00Z",
    [], [1, "a", None, True], ["1"], [[1]], {}, {"a": 1}, {"a": {"b": [1, 2]}}, {"b": None},
]  # fmt: skip
OPERATORS = ("eq", "ne", "in", "nin", "gt", "gte", "lt", "lte", "contains", "exists")
ORDERED = ("gt", "gte", "lt", "lte")


@dataclass(frozen=True)
class Population:
    """Memories of one user that all answer to the word `quokka`, as the API shows them."""

    client: httpx.AsyncClient
    user: str
    memories: list[dict[str, Any]] = field(repr=False)

    def expected(self, filters: dict[str, Any]) -> set[str]:
        return {m["content"] for m in self.memories if matches(m, filters)}

    async def of_list(self, filters: dict[str, Any]) -> set[str]:
        return {m["content"] for m in await listed(self.client, self.user, filters=json.dumps(filters))}

    async def of_search(self, filters: dict[str, Any], mode: str) -> set[str]:
        answer = await search(self.client, self.user, "quokka", filters=filters, mode=mode, limit=100)
        assert answer["degraded"] == []
        return {r["content"] for r in answer["results"]}

    async def refuses(self, filters: dict[str, Any]) -> dict[str, Any]:
        """Both doors refuse it alike."""
        by_list = await self.client.get("/v1/memories", params={"user_id": self.user, "filters": json.dumps(filters)})
        by_search = await self.client.post(
            "/v1/memories/search", json={"user_id": self.user, "query": "x", "filters": filters}
        )
        assert problem_of(by_list, 422)["errors"] == problem_of(by_search, 422)["errors"]
        return by_search.json()  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
async def population(world: World) -> Population:
    user, items = new_user("filters"), []
    for n, value in enumerate(VALUES):
        metadata: dict[str, Any] = (
            {} if value is MISSING else {"v": value, "deep": {"er": {"v": value}}, "dotted.v": value}
        )
        item: dict[str, Any] = {
            "user_id": user,
            "content": f"quokka {n}",
            "infer": False,
            "metadata": metadata,
            "importance": n % 5 / 4,
        }
        if n % 3:
            item |= {"category": ["tools", "Tools", "工具"][n % 3], "agent_id": f"agent-{n % 4}", "event_type": "note"}
        if n % 4 == 1:
            item |= {
                "outcome": ["success", "failure"][n % 2],
                "tags": ["a", f"t{n % 3}"],
                "entities": ["Postgres", {"name": "db-7", "type": "host"}],
            }
        if n % 5 == 0:
            item |= {
                "occurred_at": f"2026-01-0{1 + n % 7}T12:00:00Z",
                "expires_at": "2126-01-01T00:00:00Z",
                "kind": "semantic",
            }
        items.append(item)
    answer = await world.client.post("/v1/memories/batch", json={"memories": items})
    assert {r["status"] for r in answer.json()["results"]} == {"created"}
    await indexed(world.client, user)
    first = answer.json()["results"][0]["id"]
    related = await world.client.patch(
        f"/v1/memories/{first}", json={"related_ids": [answer.json()["results"][1]["id"]]}
    )
    assert related.status_code == 200
    await indexed(world.client, user)
    await world.sql(
        "UPDATE memory SET pinned = true, last_accessed_at = '2100-01-01T00:00:00Z', access_count = 1000 WHERE user_id = %s AND content LIKE '%%7'",
        user,
    )
    return Population(world.client, user, await listed(world.client, user))


async def same_everywhere(population: Population, filters: dict[str, Any]) -> set[str]:
    expected = population.expected(filters)
    assert await population.of_list(filters) == expected, filters
    for mode in ("keyword", "vector", "hybrid"):
        assert await population.of_search(filters, mode) == expected, (mode, filters)
    return expected


@pytest.mark.parametrize(
    "filters",
    [
        {"kind": {"eq": "semantic"}}, {"category": {"eq": "tools"}}, {"category": {"ne": "tools"}}, {"category": {"eq": None}},
        {"category": {"in": ["工具", None]}}, {"category": {"nin": ["工具", "x"]}}, {"category": {"contains": "ool"}}, {"category": {"gt": "Tools"}},
        {"category": {"lte": "tools"}}, {"category": {"exists": False}}, {"outcome": {"in": ["success", "failure"]}}, {"agent_id": {"eq": "agent-1"}},
        {"content": {"contains": "1"}}, {"content": {"contains": "%"}}, {"content": {"gte": "quokka 3"}}, {"state": {"eq": "active"}},
        {"importance": {"gte": 0.5}}, {"importance": {"in": [0.25, 1]}}, {"importance": {"in": [1, 0.25, None]}}, {"importance": {"nin": [0, 0.5]}}, {"importance": {"eq": 1}},
        {"version": {"eq": 1}}, {"version": {"gt": 1}}, {"version": {"eq": 2**63 - 1}}, {"version": {"lt": 1.5}}, {"access_count": {"gte": 1000}}, {"heat": {"gt": 0.5}},
        {"pinned": {"eq": True}}, {"pinned": {"ne": True}}, {"pinned": {"in": [False]}}, {"pinned": {"exists": True}},
        {"occurred_at": {"gte": "2026-01-03T13:00:00+01:00", "lt": "2026-02-01T00:00:00Z"}}, {"occurred_at": {"eq": "2026-01-01T14:00:00+02:00"}},
        {"occurred_at": {"in": ["2026-01-01T12:00:00Z", "2026-01-06T12:00:00Z"]}}, {"expires_at": {"exists": True}}, {"expires_at": {"eq": None}},
        {"last_accessed_at": {"gte": "2100-01-01T00:00:00Z"}}, {"last_accessed_at": {"ne": "2026-01-01T00:00:00Z"}}, {"tags": {"contains": "a"}}, {"tags": {"eq": ["a", "t1"]}}, {"tags": {"eq": []}},
        {"related_ids": {"ne": []}}, {"superseded_by": {"eq": None}}, {"index.state": {"eq": "indexed"}}, {"index.state": {"ne": "indexed"}}, {"metadata": {"eq": {}}},
        {"metadata.nothing.here": {"exists": False}}, {"metadata.deep.er.v": {"eq": "abc"}}, {"metadata.dotted.v": {"eq": "abc"}}, {"metadata.v.a.b.0": {"eq": 1}},
        {"metadata.v": {"gte": 0}, "category": {"exists": True}}, {"metadata.v": {"gte": 0, "lt": 2}}, {"metadata.v": {"in": [1, "1", True, None]}},
        {"metadata.v": {"nin": list(range(2, 1002))}}, {"metadata.v": {"in": ["x" * 20] * 999 + ["abc"]}}, {"metadata.v": {"gt": 0.1 + 0.2}}, {"metadata.v": {"lte": 0.3}},
    ],
    ids=lambda filters: json.dumps(filters)[:70],
)  # fmt: skip
async def test_each_operator_means_the_same_in_every_lane(population: Population, filters: dict[str, Any]) -> None:
    await same_everywhere(population, filters)


async def test_entities_are_asked_by_name_or_as_they_come_out(population: Population) -> None:
    carrying = {m["content"] for m in population.memories if m["entities"]}
    assert carrying
    for value in ("Postgres", {"name": "db-7", "type": "host"}):
        assert await population.of_list({"entities": {"contains": value}}) == carrying
        assert await population.of_search({"entities": {"contains": value}}, "hybrid") == carrying
    assert await population.of_list({"entities": {"contains": "Post"}}) == set()


async def test_one_true_and_the_text_1_are_three_things(population: Population) -> None:
    found = [await same_everywhere(population, {"metadata.v": {"eq": value}}) for value in (1, "1", True)]
    assert [len(one) for one in found] == [2, 1, 1]  # 1 and 1.0 are the same number
    assert not found[0] & found[1]
    assert not found[0] & found[2]
    assert not found[1] & found[2]


async def test_missing_and_null_are_the_same(population: Population) -> None:
    absent = await same_everywhere(population, {"metadata.v": {"eq": None}})
    assert absent == {"quokka 0", "quokka 1"}
    assert await same_everywhere(population, {"metadata.v": {"exists": False}}) == absent
    assert absent <= await same_everywhere(population, {"metadata.v": {"ne": "abc"}})
    assert absent <= await same_everywhere(population, {"metadata.v": {"nin": ["abc", 1]}})
    assert not absent & await same_everywhere(population, {"metadata.v": {"nin": ["abc", None]}})


async def test_rfc_3339_strings_compare_as_instants(population: Population) -> None:
    same = await same_everywhere(population, {"metadata.v": {"eq": "2026-01-01T01:00:00+01:00"}})
    assert len(same) == 2
    assert len(await same_everywhere(population, {"metadata.v": {"lt": "2026-01-01T00:00:00Z"}})) == 1
    assert len(await same_everywhere(population, {"metadata.v": {"in": ["2025-12-31T18:59:59.500-05:00"]}})) == 1


json_values = st.one_of(
    st.sampled_from([v for v in VALUES if v is not MISSING]), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8), st.booleans(),
)  # fmt: skip


@st.composite
def conditions(draw: st.DrawFn) -> dict[str, Any]:
    """A valid condition on metadata."""
    field = draw(
        st.sampled_from(
            ["metadata.v", "metadata.deep.er.v", "metadata.dotted.v", "metadata.v.a", "metadata.v.0", "metadata.v.-1"]
        )
    )
    operator = draw(st.sampled_from(OPERATORS))
    if operator == "exists":
        return {field: {operator: draw(st.booleans())}}
    if operator in ("in", "nin"):
        return {field: {operator: draw(st.lists(json_values, min_size=1, max_size=5))}}
    ordered = operator in ORDERED
    value = draw(
        json_values.filter(lambda v: isinstance(v, str | int | float) and not isinstance(v, bool))
        if ordered
        else json_values
    )
    return {field: {operator: "x" if operator == "contains" and value is None else value}}


@settings(max_examples=120)
@given(filters=conditions())
@example(filters={"metadata.v": {"gt": 0.30000000000000004}})
@example(filters={"metadata.v": {"lte": 5e-324}})
@example(filters={"metadata.v": {"gt": 1.7976931348623157e308}})
@example(filters={"metadata.v": {"contains": "\\"}})
@example(filters={"metadata.v": {"gte": "\uffff\U0001f98a"}})
async def test_the_sql_filter_agrees_with_the_reference(population: Population, filters: dict[str, Any]) -> None:
    assert await population.of_list(filters) == population.expected(filters)


@pytest.mark.parametrize(
    ("filters", "field"),
    [
        ({"nope": {"eq": 1}}, "filters.nope"), ({"m.id": {"eq": 1}}, "filters.m.id"), ({"tenant": {"eq": "x"}}, "filters.tenant"), ({"content_hash": {"eq": "x"}}, "filters.content_hash"),
        ({"id) OR (1=1": {"eq": 1}}, "filters.id) OR (1=1"), ({"metadata": 5}, "filters.metadata"), ({"category": "x"}, "filters.category"), ({"category": {}}, "filters.category"),
        ({"category": {"like": "x"}}, "filters.category.like"), ({"category": {"$eq": "x"}}, "filters.category.$eq"), ({"category": {"eq; DROP TABLE memory": 1}}, "filters.category.eq; DROP TABLE memory"),
        ({"category": {"eq": 1}}, "filters.category.eq"), ({"category": {"in": "x"}}, "filters.category.in"), ({"category": {"in": []}}, "filters.category.in"),
        ({"category": {"in": ["x"] * 1001}}, "filters.category.in"), ({"category": {"in": [1]}}, "filters.category.in"), ({"category": {"gt": None}}, "filters.category.gt"),
        ({"category": {"contains": None}}, "filters.category.contains"), ({"category": {"exists": "yes"}}, "filters.category.exists"), ({"category": {"exists": 1}}, "filters.category.exists"),
        ({"importance": {"gte": "0.5"}}, "filters.importance.gte"), ({"importance": {"eq": True}}, "filters.importance.eq"), ({"importance": {"contains": 1}}, "filters.importance.contains"),
        ({"pinned": {"eq": 1}}, "filters.pinned.eq"), ({"pinned": {"gt": True}}, "filters.pinned.gt"), ({"occurred_at": {"gt": "yesterday"}}, "filters.occurred_at.gt"),
        ({"occurred_at": {"gt": 5}}, "filters.occurred_at.gt"), ({"occurred_at": {"eq": "2026-02-30T00:00:00Z"}}, "filters.occurred_at.eq"),
        ({"metadata.": {"eq": 1}}, "filters.metadata."), ({"metadata.a..b": {"eq": 1}}, "filters.metadata.a..b"), ({"metadata.v": {"gt": True}}, "filters.metadata.v.gt"),
        ({"metadata.v": {"gt": [1]}}, "filters.metadata.v.gt"), ({"metadata." + "a." * 40 + "b": {"eq": 1}}, None), ({"x" * 20_000: {"eq": 1}}, None),
        ({f"metadata.k{n}": {"eq": 1} for n in range(65)}, "filters"),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
async def test_what_makes_no_sense_is_refused_and_named(
    population: Population, filters: dict[str, Any], field: str | None
) -> None:
    body = await population.refuses(filters)
    if field is not None:
        assert field in [e["field"] for e in body["errors"]]
    assert len(json.dumps(body)) < 5_000  # an error does not echo what it was sent


@pytest.mark.parametrize(
    "filters",
    [
        {"metadata.'; DROP TABLE memory; --": {"eq": "'"}}, {"metadata.v": {"contains": "%s %(now)s"}}, {"metadata.%(f_1)s": {"eq": 1}}, {"metadata.{a,b}": {"eq": 1}},
        {"metadata.\"": {"contains": "\\"}}, {"metadata." + "x" * 10_000: {"exists": True}}, {"content": {"contains": "'"}}, {"content": {"eq": "x" * 100_000}},
        {"metadata." + ".".join("a" * 32): {"eq": 1}}, {"metadata.v": {"eq": {"a": {"b": {"c": [{"d": None}]}}}}}, {"category": {"in": [f"c{n}" for n in range(1000)]}},
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
async def test_a_hostile_filter_is_only_a_filter(population: Population, filters: dict[str, Any]) -> None:
    assert await population.of_search(filters, "hybrid") == population.expected(filters)


async def test_a_naive_time_in_a_filter_means_utc(population: Population) -> None:
    expected = await population.of_list({"occurred_at": {"eq": "2026-01-01T12:00:00Z"}})
    assert expected
    assert await population.of_list({"occurred_at": {"eq": "2026-01-01T12:00:00"}}) == expected
