"""What does a task ask for, and how would a model that knows nothing try it?

A subgoal is one thing to get done, with the ways to do it in the order in which a model would try them: the default first,
then variations.  No way is marked as the right one; only the world knows.  Values come from pools that train and test
tasks do not share.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.loop.world import Call

Split = Literal["train", "test"]


@dataclass(frozen=True, slots=True)
class Plan:
    """One way: the calls in order, the last one is the point.  `variation` names what is special about it."""

    variation: str
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Subgoal:
    english: str
    chinese: str
    plans: tuple[Plan, ...]


Kind = Callable[["Values"], Subgoal]

_POOLS: Mapping[Split, Mapping[str, tuple[str, ...]]] = {
    "train": {
        "stem": ("ledger", "stock", "payroll", "routes", "tariffs", "claims", "visits", "shipments"),
        "person": ("Ana Ruiz", "Tom Baker", "Li Wei", "Sara Holm"),
        "place": ("Lindenweg 4, Bonn", "12 Mill Lane, York", "人民路 18 号", "Via Roma 3, Asti"),
        "thing": ("garden hose", "desk lamp", "rain jacket", "tea kettle"),
        "column": ("customerid", "orderdate", "unitprice"),
        "table": ("orders", "returns", "deliveries"),
        "small": ("countries",),
        "view": ("daily_sales", "open_orders", "stock_levels"),
    },
    "test": {
        "stem": ("inventory", "budget", "members", "sensors", "contracts", "grades", "flights", "repairs"),
        "person": ("Ivo Novak", "Mei Chen", "Paula Ortiz", "Jonas Falk"),
        "place": ("Hauptstr. 91, Jena", "7 Harbour Row, Hull", "中山路 5 号", "Calle Sol 22, Soria"),
        "thing": ("camping stove", "bike bell", "wool scarf", "wall clock"),
        "column": ("supplierid", "invoicedate", "taxrate"),
        "table": ("invoices", "payments", "subscriptions"),
        "small": ("currencies", "holidays"),
        "view": ("late_payments", "churn_by_region", "refund_rate"),
    },
}
_MONTHS: Mapping[Split, tuple[int, ...]] = {"train": (1, 2, 3, 4, 5), "test": (7, 8, 9, 10, 11)}
_NUMBERS: Mapping[Split, tuple[int, int]] = {"train": (1100, 4900), "test": (5100, 9900)}


@dataclass(slots=True)
class Values:
    """Seeded draws from the pools of one split; no value is drawn twice in a task while the pool lasts."""

    split: Split
    chance: random.Random
    _left: dict[str, list[str]] = field(default_factory=dict)

    def of(self, pool: str) -> str:
        left = self._left.setdefault(pool, [])
        if not left:
            left.extend(self.chance.sample(_POOLS[self.split][pool], len(_POOLS[self.split][pool])))
        return left.pop()

    def number(self) -> int:
        return self.chance.randint(*_NUMBERS[self.split])

    def day(self) -> tuple[int, int, int]:
        """Year, month, day; the day above 12, so that no two formats can be confused."""
        return 2025, self.chance.choice(_MONTHS[self.split]), self.chance.randint(13, 28)


def plain(tool: str, english: str, chinese: str, **arguments: Any) -> Subgoal:
    """Something that works at once."""
    return Subgoal(english, chinese, (Plan("as asked", (Call(tool, arguments),)),))


def varied(tool: str, base: Mapping[str, Any], argument: str, values: Iterable[Any]) -> tuple[Plan, ...]:
    """One plan per value of one argument; the first value is the default."""
    return tuple(Plan(f"{argument}={value}", (Call(tool, {**base, argument: value}),)) for value in values)


def repeated(call: Call, waits: Iterable[int]) -> tuple[Plan, ...]:
    """The call; then again at once; then after waits of so many seconds."""
    after = (Plan(f"wait {seconds} s", (Call("wait", {"seconds": seconds}), call)) for seconds in waits)
    return (Plan("as asked", (call,)), Plan("again", (call,)), *after)
