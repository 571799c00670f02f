"""Which triples on one field are true for a value, and which experiences have them?

Experiences are known by slot, distinct triples by number; both are small integers that the index hands out.  Strong triples
(eq, in, starts_with, and the ordered ones) are found by the value; weak ones (ne, nin, contains, not_contains, matches,
exists) hold for so many values, or cost so much to find, that all experiences with one are candidates when the field is there.
Must not evaluate what a hash or a bisection can't answer: that is settled later, for the candidates that are left.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory_service.experience.conditions import LISTED, ORDERED, Condition
from memory_service.experience.matching import Operand, comparable

Numbers = NDArray[np.int32]
EMPTY: Numbers = np.empty(0, np.int32)
STRONG = ("eq", "in", "starts_with")  # with the ordered ones
EXCLUDING = ("ne", "nin")
OF_MEMBERS = {"contains": True, "not_contains": False}  # of a list: what it means that the value is among its members
UNSETTLED_UNTIL_ASKED = ("contains", "not_contains", "matches")


class Posting:
    """A bag of int32, growing in place; removal swaps the last one in."""

    def __init__(self) -> None:
        self._items = array("i")

    def __len__(self) -> int:
        return len(self._items)

    def add(self, number: int) -> None:
        self._items.append(number)

    def remove(self, number: int) -> None:
        position = int(np.flatnonzero(self.view() == number)[0])
        self._items[position] = self._items[-1]
        self._items.pop()

    def view(self) -> Numbers:
        """Not copied: it must be gone before the next add or remove."""
        return np.frombuffer(self._items, np.int32) if self._items else EMPTY


class Found:
    """What one value or one prefix makes true: distinct triples, and the slots that have them."""

    def __init__(self) -> None:
        self.triples = Posting()
        self.slots = Posting()


class Members:
    """Distinct triples contains, or not_contains, by the value that they look for."""

    def __init__(self) -> None:
        self.all = Posting()
        self._by_key: dict[Hashable, Posting] = {}

    def add(self, key: Hashable, triple: int) -> None:
        self.all.add(triple)
        self._by_key.setdefault(key, Posting()).add(triple)

    def remove(self, key: Hashable, triple: int) -> None:
        self.all.remove(triple)
        self._by_key[key].remove(triple)
        if not self._by_key[key]:
            del self._by_key[key]

    def among(self, keys: frozenset[Hashable]) -> Iterator[Numbers]:
        shorter, longer = (keys, self._by_key) if len(keys) <= len(self._by_key) else (self._by_key, keys)
        yield from (self._by_key[key].view() for key in shorter if key in longer)


class Thresholds:
    """Entries (threshold, triple, slot) of one ordered operator and one kind of threshold, sorted by threshold."""

    def __init__(self) -> None:
        self._thresholds: list[Any] = []
        self._triples = array("i")
        self._slots = array("i")

    def __len__(self) -> int:
        return len(self._slots)

    def add(self, threshold: Any, triple: int, slot: int) -> None:
        position = bisect_right(self._thresholds, threshold)
        self._thresholds.insert(position, threshold)
        self._triples.insert(position, triple)
        self._slots.insert(position, slot)

    def remove(self, threshold: Any, slot: int) -> None:
        low, high = bisect_left(self._thresholds, threshold), bisect_right(self._thresholds, threshold)
        position = low + int(np.flatnonzero(np.frombuffer(self._slots, np.int32)[low:high] == slot)[0])
        for column in (self._thresholds, self._triples, self._slots):
            column.pop(position)

    def true_for(self, operator: str, value: Any) -> tuple[Numbers, Numbers]:
        """(triples, slots) whose comparison `value operator threshold` holds."""
        if operator in ("gt", "gte"):
            side = bisect_left if operator == "gt" else bisect_right
            chosen = slice(0, side(self._thresholds, value))
        else:
            side = bisect_right if operator == "lt" else bisect_left
            chosen = slice(side(self._thresholds, value), None)
        return np.frombuffer(self._triples, np.int32)[chosen], np.frombuffer(self._slots, np.int32)[chosen]


class FieldPostings:
    """Everything filed under one field.  `number` is the field's in the index."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.entries = 0  # (experience, triple) pairs; at 0 the field is dropped
        self.weak = Posting()  # slots, once per weak triple
        self.excluding = Posting()  # triples ne and nin: true unless the value is one of theirs
        self.unsettled = Posting()  # triples contains, not_contains and matches
        self._by_key: dict[Hashable, Found] = {}  # of eq and in
        self._members = {operator: Members() for operator in OF_MEMBERS}
        self._excluded_by_key: dict[Hashable, Posting] = {}  # key → triples ne and nin
        self._by_prefix: dict[Hashable, Found] = {}  # of starts_with
        self._prefix_lengths: Counter[int] = Counter()
        self._thresholds: dict[tuple[str, type], Thresholds] = {}

    def file(self, triple: int, new: bool, condition: Condition, slot: int) -> None:
        """One experience more has the triple; `new` when it is the first."""
        self.entries += 1
        if condition.operator in ORDERED:
            self._ordered(condition).add(condition.target, triple, slot)
        elif condition.operator in STRONG:
            for key in _keys(condition):
                found = self._strong(condition).setdefault(key, Found())
                found.slots.add(slot)
                if new:
                    found.triples.add(triple)
        elif condition.operator != "exists" or condition.value:
            self.weak.add(slot)
        if new:
            self._file_distinct(triple, condition)

    def take_out(self, triple: int, last: bool, condition: Condition, slot: int) -> None:
        """One experience less has the triple; `last` when none is left."""
        self.entries -= 1
        if condition.operator in ORDERED:
            self._ordered(condition).remove(condition.target, slot)
        elif condition.operator in STRONG:
            strong = self._strong(condition)
            for key in _keys(condition):
                strong[key].slots.remove(slot)
                if last:
                    strong[key].triples.remove(triple)
                if not strong[key].slots:
                    del strong[key]
        elif condition.operator != "exists" or condition.value:
            self.weak.remove(slot)
        if last:
            self._take_out_distinct(triple, condition)

    def _file_distinct(self, triple: int, condition: Condition) -> None:
        if condition.operator in UNSETTLED_UNTIL_ASKED:
            self.unsettled.add(triple)
            if condition.operator in OF_MEMBERS:
                self._members[condition.operator].add(condition.target, triple)
        elif condition.operator in EXCLUDING:
            self.excluding.add(triple)
            for key in _keys(condition):
                self._excluded_by_key.setdefault(key, Posting()).add(triple)
        elif condition.operator == "starts_with":
            self._prefix_lengths[len(condition.target)] += 1

    def _take_out_distinct(self, triple: int, condition: Condition) -> None:
        if condition.operator in UNSETTLED_UNTIL_ASKED:
            self.unsettled.remove(triple)
            if condition.operator in OF_MEMBERS:
                self._members[condition.operator].remove(condition.target, triple)
        elif condition.operator in EXCLUDING:
            self.excluding.remove(triple)
            for key in _keys(condition):
                self._excluded_by_key[key].remove(triple)
                if not self._excluded_by_key[key]:
                    del self._excluded_by_key[key]
        elif condition.operator == "starts_with":
            self._prefix_lengths[len(condition.target)] -= 1
            if not self._prefix_lengths[len(condition.target)]:
                del self._prefix_lengths[len(condition.target)]

    def _strong(self, condition: Condition) -> dict[Hashable, Found]:
        return self._by_prefix if condition.operator == "starts_with" else self._by_key

    def _ordered(self, condition: Condition) -> Thresholds:
        return self._thresholds.setdefault((condition.operator, _kind(condition.target)), Thresholds())

    # What a present value says.

    def true_for(self, operand: Operand) -> Iterator[tuple[Numbers, Numbers]]:
        """(triples, slots) of the true strong ones."""
        found = [self._by_key.get(operand.key)]
        if self._by_prefix and isinstance(operand.raw, str):
            found += [self._by_prefix.get(operand.raw[:length]) for length in self._prefix_lengths]
        yield from ((one.triples.view(), one.slots.view()) for one in found if one is not None)
        for (operator, kind), entries in self._thresholds.items():
            value = comparable(_SAMPLES[kind], operand)
            if value is not None and len(entries):
                yield entries.true_for(operator, value)

    def of_members(self, operand: Operand) -> Iterator[tuple[Numbers, bool]]:
        """Triples that a list settles, the later ones of a triple counting; nothing of a text or of a list that is too large."""
        if not isinstance(operand.raw, list):
            return
        keys, whole = operand.members
        for operator, holds in OF_MEMBERS.items() if whole else ():
            yield self._members[operator].all.view(), not holds
            yield from ((triples, holds) for triples in self._members[operator].among(keys))

    def excluded(self, operand: Operand) -> Numbers:
        """False triples ne and nin."""
        found = self._excluded_by_key.get(operand.key)
        return EMPTY if found is None else found.view()


def _keys(condition: Condition) -> Iterable[Hashable]:
    return condition.target if condition.operator in LISTED else (condition.target,)


_SAMPLES: dict[type, Any] = {str: "", float: 0.0, datetime: datetime.min}


def _kind(threshold: Any) -> type:
    return str if isinstance(threshold, str) else datetime if isinstance(threshold, datetime) else float
