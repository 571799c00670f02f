"""Two hundred days of a user, in English and Chinese, with the clock of the service moved and the jobs run when they are due.

What is warm cools, what is cold is told briefly, what is pinned or used stays; and everything can still be had.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from service_running import Backends, World, found, indexed, listed, serving
from test_compression_contract import MARCH, Clock, read, sources_of

DAYS = 200
USED_EVERY_DAYS = 14


def call(tool: str, argument: str, ms: int, error: str | None = None) -> dict[str, Any]:
    told = {"tool": tool, "arguments": {"q": argument}, "status": "error" if error else "success", "duration_ms": ms}
    return {**told, "error": error} if error else told


async def remembered(world: World, user: str, content: str, *calls: dict[str, Any], **fields: Any) -> str:
    outcome = {"outcome": "failure" if any("error" in c for c in calls) else "success"} if calls else {}
    body = {"user_id": user, "content": content, "infer": False, "tool_calls": list(calls), **outcome, **fields}
    if calls:
        body["event_type"] = "tool_result"
    answer = await world.client.post("/v1/memories", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["memory"]["id"])


async def first_week(world: World, clock: Clock, user: str) -> dict[str, list[str]]:
    """Few calls, many calls and single facts of a week in March; ids by what they are."""
    ids: dict[str, list[str]] = {"few": [], "少": [], "many": [], "多": []}
    for day in range(6):
        ids["many"].append(
            await remembered(
                world, user, f"Asked the weather service about Oslo, time {day}", call("weather_api", "Oslo", 200)
            )
        )
        ids["多"].append(
            await remembered(world, user, f"查询了北京的汇率，第{day}次", call("rate_api", "北京", 100 + 10 * day))
        )
        if day < 4:
            error = "503 overloaded" if day == 3 else None
            ids["few"].append(
                await remembered(
                    world, user, f"Deployed the shop, attempt {day}", call("deploy", "shop", 1_000 + 500 * day, error)
                )
            )
            ids["少"].append(
                await remembered(world, user, f"备份了订单数据库，第{day}次", call("backup", "订单", 60_000))
            )
        clock.now += timedelta(days=1)
    ids["pinned"] = [await remembered(world, user, "The safe in the office opens with the blue key")]
    ids["used"] = [await remembered(world, user, "Invoices go out on the fifth working day")]
    ids["alone"] = [await remembered(world, user, "The lighthouse keeper is called Runa")]
    assert (await world.client.post(f"/v1/memories/{ids['pinned'][0]}/pin")).status_code == 200
    await indexed(world.client, user)
    return ids


async def lived(world: World, clock: Clock, user: str, used: str, step_days: int) -> dict[str, int]:
    """Until day 200, the jobs whenever they are due; the day by which each memory was first seen in a new state."""
    seen: dict[str, int] = {}
    while (day := (clock.now - MARCH).days) < DAYS:
        clock.now += timedelta(days=step_days)
        if day // USED_EVERY_DAYS != (day + step_days) // USED_EVERY_DAYS:
            await world.client.post(f"/v1/memories/{used}/feedback", json={"outcome": "success"})
        await world.runtime.schedule.tick()
        await indexed(world.client, user)
        for one, state in await world.sql("SELECT id::text, state FROM memory WHERE user_id = %s", user):
            seen.setdefault(f"{one} {state}", (clock.now - MARCH).days)
    return seen


@pytest.mark.parametrize("step_days", [7, pytest.param(1, marks=pytest.mark.slow)])
async def test_two_hundred_days_later_the_old_is_told_briefly_and_nothing_is_lost(
    backends: Backends, user: str, step_days: int
) -> None:
    clock = Clock()
    async with serving(backends.new_settings(), clock=clock) as world:
        ids = await first_week(world, clock, user)
        days = await lived(world, clock, user, ids["used"][0], step_days)
        told = {
            name: await read(world, (await read(world, ids[name][0]))["superseded_by"])
            for name in ("few", "少", "many", "多")
        }

        # What happened when: cold below 0.3, summed up below 0.1; repeated events within weeks.
        cold, summed = days[f"{ids['few'][0]} cold"], days[f"{ids['few'][0]} compressed"]
        assert 80 <= cold <= 80 + 7 + step_days
        assert 153 <= summed <= 153 + 7 + step_days
        assert days[f"{ids['many'][0]} compressed"] <= 14 + 7 + step_days
        assert (await read(world, ids["alone"][0]))["state"] == "cold"
        assert [(await read(world, ids[name][0]))["state"] for name in ("pinned", "used")] == ["active", "active"]

        # What is said.
        assert told["few"]["summary"] == (
            "deploy called 4 times, 3 succeeded, 1 failed (75% success), 1.8 s on average, March 2026."
        )
        assert "Errors: 503 overloaded ×1" in told["few"]["content"]
        assert told["少"]["summary"] == "backup 调用 4 次，成功 4 次，平均 1 分钟，2026年3月。"
        assert told["many"]["summary"] == "weather_api called 6 times, 6 succeeded, 200 ms on average, March 2026."
        assert told["多"]["summary"] == "rate_api 调用 6 次，成功 6 次，平均 125 毫秒，2026年3月。"

        # What a search brings: the young summaries, not what is cold, and no source in either case.
        assert {told["few"]["state"], told["少"]["state"]} == {"active"}
        assert {told["many"]["state"], told["多"]["state"]} == {"cold"}
        every = {i for name in ("few", "少", "many", "多") for i in ids[name]}
        for query, name, with_cold in (
            ("deployed the shop", "few", False), ("备份订单数据库", "少", False),
            ("weather service Oslo", "many", True), ("查询北京的汇率", "多", True),
        ):  # fmt: skip
            assert (told[name]["content"] in await found(world.client, user, query)) is not with_cold
            assert (await found(world.client, user, query, include_cold=True))[0] == told[name]["content"]
        assert not every & {m["id"] for m in await listed(world.client, user, include_cold=True)}

        # And everything can be had: by its id, from its summary, and back.
        for name, summary in told.items():
            assert await sources_of(world, summary["id"]) == set(ids[name])
            assert (await read(world, ids[name][0]))["content"]
        back = (await world.client.post(f"/v1/memories/{ids['few'][3]}/restore")).json()
        assert (back["state"], back["heat"]) == ("active", 1.0)
        rest = await read(world, (await read(world, ids["few"][0]))["superseded_by"])
        assert rest["summary"] == "deploy called 3 times, 3 succeeded, 1.5 s on average, March 2026."
        assert "503" not in rest["content"]
        clock.now += timedelta(days=step_days)
        await world.runtime.schedule.tick()
        assert (await read(world, ids["few"][3]))["state"] == "active"
