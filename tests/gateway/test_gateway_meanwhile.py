"""Is work that does not need the service's answer done while it is waited for?"""

from __future__ import annotations

import asyncio

from mcp_gateway.tools.tool import meanwhile


async def test_it_is_done_while_something_else_is_waited_for_and_once() -> None:
    done: list[str] = []
    value = meanwhile(lambda: done.append("work") or "value")
    assert done == []
    await asyncio.sleep(0)
    assert done == ["work"]
    assert (value(), value(), done) == ("value", "value", ["work"])


async def test_who_does_not_wait_gets_it_all_the_same() -> None:
    done: list[str] = []
    value = meanwhile(lambda: done.append("work") or "value")
    assert value() == "value"
    await asyncio.sleep(0)
    assert done == ["work"]
