"""Does every result stay below 100,000 bytes, and can everything that was cut be had?"""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from gateway_running import call, call_error, http_client, read
from gateway_stand_in import Answer, StandIn
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_gateway import cursors
from mcp_gateway.errors import BadArguments
from mcp_gateway.results import fit_answer, fit_hits, fits, to_text, wire_bytes

BYTES_MAX = 100_000
HUGE_CHINESE = "".join(chr(0x4E00 + n % 20000) for n in range(256 * 1024 // 3))  # 256 KiB of UTF-8


async def raw_call(url: str, protocol: str, tool: str, arguments: dict[str, Any]) -> tuple[int, Any]:
    """How many bytes one answer is on the wire, and its JSON."""
    params: dict[str, Any] = {"name": tool, "arguments": arguments}
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": protocol}
    if protocol == "2026-07-28":
        prefix = "io.modelcontextprotocol/"
        params["_meta"] = {f"{prefix}protocolVersion": protocol, f"{prefix}clientCapabilities": {}}
        headers |= {"mcp-method": "tools/call", "mcp-name": tool}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    async with httpx.AsyncClient(trust_env=False) as client:
        response = await client.post(url, json=message, headers=headers)
    assert response.status_code == 200, response.text
    answer = json.loads(next(line for line in response.text.splitlines() if '"result"' in line).removeprefix("data: "))
    return len(response.content), json.loads(answer["result"]["content"][0]["text"])  # fitted, not chopped off


@pytest.mark.asyncio
@pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("content", [HUGE_CHINESE, '"' * 200_000, "\\\n" * 50_000, "😀" * 60_000, "a" * 262_144])
async def test_one_huge_memory_stays_below_the_limit_on_the_wire(
    content: str, protocol: str, full_gateway_url: str, service: StandIn
) -> None:
    service.add_memory(content)
    size, answer = await raw_call(full_gateway_url, protocol, "memory_search", {"query": "x"})
    assert answer["results"]
    assert BYTES_MAX / 4 < size < BYTES_MAX  # the limit is used, not hidden behind


@pytest.mark.asyncio
@pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"])
async def test_a_hundred_long_chinese_hits_stay_below_the_limit(
    protocol: str, full_gateway_url: str, service: StandIn
) -> None:
    for number in range(100):
        service.add_memory(f"{number} " + HUGE_CHINESE[:3000], tags=["标签"], metadata={"备注": "中" * 100})
    size, answer = await raw_call(full_gateway_url, protocol, "memory_search", {"query": "x", "top_k": 100})
    assert answer["results"]
    assert size < BYTES_MAX


def working_memory(**fields: Any) -> dict[str, Any]:
    return {"task_id": "7", "user_id": "ana", "task_goal": "g", "expires_at": "2026-05-01T12:00:00Z"} | fields


HUGE_TASKS: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "a huge context": (
        "task_start",
        "/v1/tasks",
        {"goal": "g"},
        {"task_id": "7", "working_memory": working_memory(), "context": {"text": HUGE_CHINESE, "items": [{"id": "m"}]}},
    ),
    "a huge goal": (
        "task_start",
        "/v1/tasks",
        {"goal": "g"},
        {"task_id": "7", "working_memory": working_memory(task_goal="😀" * 60_000), "context": {"text": "known"}},
    ),
    "twenty thousand facts": (
        "task_start",
        "/v1/tasks",
        {"goal": "g"},
        {
            "task_id": "7",
            "working_memory": working_memory(confirmed_facts=[{"fact": f"{n} 事实"} for n in range(20_000)]),
            "context": {"text": "known"},
        },
    ),
    "huge variables": (
        "task_start",
        "/v1/tasks",
        {"goal": "g"},
        {
            "task_id": "7",
            "working_memory": working_memory(variables={"k" * 100_000 + str(n): '"\\\n' * 9_000 for n in range(9)}),
            "context": {"text": "known"},
        },
    ),
    "huge hints": (
        "task_advice",
        "/v1/tasks/7/advice",
        {"task_id": "7", "tool": "rm"},
        {"task_id": "7", "hints": [{"type": "failed_before", "text": HUGE_CHINESE}] * 9, "text": HUGE_CHINESE},
    ),
    "a huge review": (
        "task_finish",
        "/v1/tasks/7/finish",
        {"task_id": "7", "outcome": "success"},
        {
            "task_id": "7",
            "episode": {"id": "e", "content": HUGE_CHINESE, "summary": HUGE_CHINESE, "tags": ["t" * 9_000] * 30},
            "review": {"steps": 9, "reasons": [HUGE_CHINESE] * 3},
            "experiences": [{"id": str(n), "status": "created"} for n in range(5_000)],
        },
    ),
}


@pytest.mark.asyncio
@pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("case", HUGE_TASKS)
async def test_a_huge_answer_about_a_task_is_cut_inside_and_says_so(
    case: str, protocol: str, full_gateway_url: str, service: StandIn
) -> None:
    tool, path, arguments, given = HUGE_TASKS[case]
    service.misbehave("POST", path, Answer(200, given))
    size, answer = await raw_call(full_gateway_url, protocol, tool, arguments)
    assert BYTES_MAX / 4 < size < BYTES_MAX
    assert set(answer) == {*given, "cut"}
    assert answer["task_id"] == "7"
    assert "Too long" in answer["cut"]
    if tool != "task_advice":
        assert "Read the resource memory://" in answer["cut"]


@pytest.mark.asyncio
async def test_an_answer_about_a_task_that_fits_is_whole(full_gateway_url: str, service: StandIn) -> None:
    context = {"text": "咖" * 5_000, "items": [{"id": str(number)} for number in range(200)]}
    service.misbehave("POST", "/v1/tasks", Answer(201, {"task_id": "7", "working_memory": {}, "context": context}))
    async with http_client(full_gateway_url) as client:
        assert await call(client, "task_start", {"goal": "g"}) == {
            "task_id": "7",
            "working_memory": {},
            "context": context,
        }


@pytest.mark.asyncio
async def test_pages_give_every_hit_once(full_gateway_url: str, service: StandIn) -> None:
    ids = [service.add_memory(f"{number} " + HUGE_CHINESE[:3000])["id"] for number in range(100)]
    found: list[str] = []
    async with http_client(full_gateway_url) as client:
        arguments: dict[str, Any] = {"query": "x", "top_k": 100}
        for _ in range(20):
            answer = await call(client, "memory_search", arguments)
            found += [hit["id"] for hit in answer["results"]]
            if "next_cursor" not in answer:
                break
            arguments["cursor"] = answer["next_cursor"]
    assert found == ids


@pytest.mark.asyncio
async def test_the_next_page_starts_after_top_k(full_gateway_url: str, service: StandIn) -> None:
    ids = [service.add_memory(f"m{number}")["id"] for number in range(5)]
    async with http_client(full_gateway_url) as client:
        first = await call(client, "memory_search", {"query": "x", "top_k": 3})
        second = await call(client, "memory_search", {"query": "x", "top_k": 3, "cursor": first["next_cursor"]})
    assert [hit["id"] for hit in first["results"]] == ids[:3]
    assert [hit["id"] for hit in second["results"]] == ids[3:]
    assert "next_cursor" not in second


@pytest.mark.asyncio
async def test_a_cut_content_is_marked_and_read_on_by_cursor(full_gateway_url: str, service: StandIn) -> None:
    memory = service.add_memory(HUGE_CHINESE)
    async with http_client(full_gateway_url) as client:
        (hit,) = (await call(client, "memory_search", {"query": "x"}))["results"]
        kept, marker = hit["content"].split("… [cut: ")
        assert f"memory://memories/{memory['id']}" in marker
        text, cursor = kept, hit["content_cursor"]
        for _ in range(20):
            piece = await call(client, "memory_search", {"query": "x", "cursor": cursor})
            assert piece["from"] == len(text)
            text += piece["content"]
            if "next_cursor" not in piece:
                break
            cursor = piece["next_cursor"]
    assert text == HUGE_CHINESE
    assert piece["total_chars"] == len(HUGE_CHINESE)


@pytest.mark.asyncio
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_resource_has_a_huge_memory_whole(mode: str, full_gateway_url: str, service: StandIn) -> None:
    memory = service.add_memory(HUGE_CHINESE)
    async with http_client(full_gateway_url, mode) as client:
        assert await read(client, f"memory://memories/{memory['id']}") == memory


@pytest.mark.asyncio
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_memory_beyond_the_clients_largest_message_comes_in_pieces(
    mode: str, full_gateway_url: str, service: StandIn
) -> None:
    content = "\x01\x02" * 130_000  # six bytes a character in JSON, seven on the wire
    uri = f"memory://memories/{service.add_memory(content)['id']}"
    text = ""
    async with http_client(full_gateway_url, mode) as client:
        for _ in range(10):
            piece = await read(client, uri)
            text += piece["content"]
            if "next_uri" not in piece:
                break
            uri = piece["next_uri"]
    assert text == content


@pytest.mark.asyncio
async def test_forged_and_foreign_cursors_are_refused(full_gateway_url: str, service: StandIn) -> None:
    for number in range(6):
        service.add_memory(f"m{number}")
    async with http_client(full_gateway_url) as client:
        cursor = (await call(client, "memory_search", {"query": "x"}))["next_cursor"]
        for forged in ("", "x", "%%%", cursor[:-1], cursor + "A", cursor.swapcase(), "咖", "A" * 5000):
            advice = await call_error(client, "memory_search", {"query": "x", "cursor": forged})
            assert "'cursor' is not one that memory_search returned" in advice
        for other in ({"query": "y"}, {"query": "x", "tags": ["t"]}, {"query": "x", "user_id": "bob"}):
            advice = await call_error(client, "memory_search", other | {"cursor": cursor})
            assert "'cursor' belongs to another search" in advice


@given(st.text(max_size=200))
def test_no_text_is_taken_for_a_cursor(text: str) -> None:
    with pytest.raises(BadArguments):
        cursors.decode(text)


@given(st.integers(0, 10**6), st.text(max_size=60))
def test_cursors_survive_the_round_trip(offset: int, name: str) -> None:
    for cursor in (cursors.HitsCursor(offset, name), cursors.ContentCursor(name, offset)):
        assert cursors.decode(cursors.encode(cursor)) == cursor


memories = st.builds(
    lambda content, copies, summary, tags, metadata: {
        "id": "0190",
        "content": content * copies,
        "summary": summary,
        "tags": tags,
        "metadata": metadata,
        "score": 0.5,
    },
    st.text(max_size=30),
    st.integers(1, 20_000),
    st.text(max_size=2000),
    st.lists(st.text(max_size=50), max_size=200),
    st.dictionaries(st.text(max_size=50), st.text(max_size=500), max_size=20),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(memories, min_size=1, max_size=6), st.integers(20_000, 100_000))
def test_any_hits_fit_and_at_least_one_is_given(hits: list[dict[str, Any]], bytes_max: int) -> None:
    page = fit_hits(hits, bytes_max, {})
    assert 1 <= page.taken <= len(hits)
    assert len(json.dumps(to_text({"results": page.hits}))) < bytes_max


documents = st.dictionaries(
    st.text(max_size=20),
    st.recursive(
        st.none() | st.integers(-9, 9) | st.builds(lambda text, copies: text * copies, st.text(max_size=9), st.integers(1, 9_000)),
        lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(max_size=90), inner, max_size=9),
        max_leaves=30,
    ),
    max_size=12,
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(documents, st.integers(20_000, 100_000))
def test_any_answer_fits_and_keeps_its_fields(document: dict[str, Any], bytes_max: int) -> None:
    fitted = fit_answer(document, bytes_max, "Ask for less.")
    assert wire_bytes(to_text(fitted)) <= bytes_max
    assert set(fitted) >= set(document)
    assert (fitted == document) == (wire_bytes(to_text(document)) <= bytes_max)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet='a"\\\x01é中😀', max_size=40), st.integers(-30, 30))
def test_what_is_not_measured_fits_as_if_it_were(text: str, more: int) -> None:
    for limit in (wire_bytes(text) + more, wire_bytes("😀" * len(text)) + more):
        assert fits(text, limit) == (wire_bytes(text) <= limit)
