"""Is a head that was judged before judged alike, and never one that only looks like it?"""

from __future__ import annotations

from typing import Any

import pytest
from mcp.server.transport_security import TransportSecuritySettings

from mcp_gateway import heads
from mcp_gateway.heads import Judge, Judgement, take_fields

USUAL = {
    "host": "localhost:8080",
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2025-06-18",
}


@pytest.fixture
def judge() -> Judge:
    return Judge(TransportSecuritySettings(allowed_hosts=["localhost:*"], allowed_origins=["http://localhost:*"]))


def scope(given: dict[str, str], *more: tuple[str, str], method: str = "POST") -> dict[str, Any]:
    lines = [*given.items(), *more]
    return {"type": "http", "method": method, "headers": [(name.encode(), value.encode()) for name, value in lines]}


async def judged(judge: Judge, given: dict[str, str], *more: tuple[str, str], method: str = "POST") -> Judgement:
    asked = scope(given, *more, method=method)
    return await judge.judge(asked, take_fields(asked))


async def test_what_is_refused_behind_a_good_head_is_refused_each_time(judge: Judge) -> None:
    for _ in range(3):
        good = await judged(judge, USUAL)
        assert (good.refusal, good.packed, good.version) == (None, False, "2025-06-18")
        for wrong, status in (
            ({"host": "evil.example"}, 421),
            ({"origin": "http://evil.example"}, 403),
            ({"content-type": "text/plain"}, 400),
        ):
            refusal = (await judged(judge, USUAL | wrong)).refusal
            assert refusal is not None
            assert refusal.status_code == status


@pytest.mark.parametrize(
    ("other", "packed", "version"),
    [
        ({"content-encoding": "gzip"}, True, "2025-06-18"),
        ({"content-encoding": "identity"}, False, "2025-06-18"),
        ({"accept": "application/json"}, False, None),
        ({"mcp-protocol-version": "2025-11-25"}, False, "2025-11-25"),
        ({"mcp-protocol-version": "2026-07-28"}, False, None),
        ({"content-type": "application/jsonp"}, False, None),
    ],
)
async def test_each_header_counts_behind_a_good_head(
    judge: Judge, other: dict[str, str], packed: bool, version: str | None
) -> None:
    for _ in range(2):
        await judged(judge, USUAL)
        assert await judged(judge, USUAL | other) == Judgement(None, packed, version)


async def test_the_method_counts(judge: Judge) -> None:
    typeless = {name: value for name, value in USUAL.items() if name != "content-type"}
    assert (await judged(judge, typeless, method="GET")).refusal is None
    assert (await judged(judge, typeless, method="POST")).refusal is not None


async def test_a_doubled_header_is_judged_as_the_sdk_reads_it(judge: Judge) -> None:
    await judged(judge, USUAL)
    assert (await judged(judge, USUAL, ("host", "evil.example"))).refusal is None  # the first one counts
    refusal = (await judged(judge, USUAL | {"host": "evil.example"}, ("host", "localhost:8080"))).refusal
    assert refusal is not None
    doubled = await judged(judge, USUAL | {"content-encoding": "identity"}, ("content-encoding", "gzip"))
    assert doubled.packed


async def test_a_known_head_is_judged_by_nobody_again(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await judged(judge, USUAL, ("authorization", "Bearer a"))
    monkeypatch.setattr(heads, "_plain_version", lambda _request: pytest.fail("judged again"))
    assert await judged(judge, USUAL, ("authorization", "Bearer b"), ("x-request-id", "r-2")) is first


async def test_what_is_remembered_is_bounded_and_holds_no_key(judge: Judge) -> None:
    for number in range(1_000):
        await judged(judge, USUAL | {"host": f"localhost:{number}"}, ("authorization", "Bearer very-secret"))
    await judged(judge, USUAL | {"host": "localhost:" + "7" * 5_000})
    remembered = repr(judge._remembered)
    assert len(judge._remembered) <= 128
    assert len(remembered) < 128 * 2_000
    assert "very-secret" not in remembered


@pytest.mark.parametrize(("given", "kept"), [("r-9", True), ("", False), ("a b", False), ("x" * 129, False)])
def test_the_request_id_is_the_callers_where_it_is_one(given: str, kept: bool) -> None:
    asked = scope({"x-request-id": given}, ("x-request-id", "second"))
    taken = take_fields(asked)[b"x-request-id"]
    assert (taken == given.encode()) == kept
    assert [value for name, value in asked["headers"] if name == b"x-request-id"] == [taken]
