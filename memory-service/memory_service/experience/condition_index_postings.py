"""Which triples on one field are true for a value, and which experiences have them?

Experiences are known by slot, distinct triples by number; both are small integers that the index hands out.  Strong triples
(eq, in, starts_with, and the ordered ones) are found by the value; weak ones (ne, nin, contains, not_contains, matches,
exists) hold for so many values, or cost so much to find, that all experiences with one are candidates when the field is there.
Must not evaluate what a hash or a bisection can't answer: that is settled later, for the candidates that are left.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Hashable, Iterator
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory_service.experience.conditions import Condition
from memory_service.experience.matching import Operand, comparable

Numbers = NDArray[np.int32]
EMPTY: Numbers = np.empty(0, np.int32)


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
        self._by_key: dict[Hashable, Posting] = {}  # key → triples eq and in
        self._excluded_by_key: dict[Hashable, Posting] = {}  # key → triples ne and nin
        self._by_prefix: dict[str, int] = {}
        self._prefix_lengths: Counter[int] = Counter()
        self._thresholds: dict[tuple[str, type], Thresholds] = {}

    # A triple is filed when its first experience comes and taken out with its last one.

    def file(self, triple: int, condition: Condition) -> None:
        for keys, key in self._places(condition):
            keys.setdefault(key, Posting()).add(triple)
        if (bag := self._bag(condition)) is not None:
            bag.add(triple)
        if condition.operator == "starts_with":
            self._by_prefix[condition.target] = triple
            self._prefix_lengths[len(condition.target)] += 1

    def take_out(self, triple: int, condition: Condition) -> None:
        for keys, key in self._places(condition):
            keys[key].remove(triple)
            if not keys[key]:
                del keys[key]
        if (bag := self._bag(condition)) is not None:
            bag.remove(triple)
        if condition.operator == "starts_with":
            del self._by_prefix[condition.target]
            self._prefix_lengths[len(condition.target)] -= 1
            if not self._prefix_lengths[len(condition.target)]:
                del self._prefix_lengths[len(condition.target)]

    def _places(self, condition: Condition) -> Iterator[tuple[dict[Hashable, Posting], Hashable]]:
        if condition.operator in ("eq", "ne"):
            yield (self._by_key if condition.operator == "eq" else self._excluded_by_key), condition.target
        elif condition.operator in ("in", "nin"):
            for key in condition.target:
                yield (self._by_key if condition.operator == "in" else self._excluded_by_key), key

    def _bag(self, condition: Condition) -> Posting | None:
        if condition.operator in ("ne", "nin"):
            return self.excluding
        return self.unsettled if condition.operator in ("contains", "not_contains", "matches") else None

    def thresholds(self, condition: Condition) -> Thresholds:
        return self._thresholds.setdefault((condition.operator, _kind(condition.target)), Thresholds())

    # What a present value says.

    def hits(self, operand: Operand) -> Iterator[int]:
        """True triples eq, in and starts_with."""
        if (found := self._by_key.get(operand.key)) is not None:
            yield from found.view().tolist()
        if self._by_prefix and isinstance(operand.raw, str):
            for length in self._prefix_lengths:
                if length <= len(operand.raw) and (triple := self._by_prefix.get(operand.raw[:length])) is not None:
                    yield triple

    def excluded(self, operand: Operand) -> Numbers:
        """False triples ne and nin."""
        found = self._excluded_by_key.get(operand.key)
        return EMPTY if found is None else found.view()

    def ordered(self, operand: Operand) -> Iterator[tuple[Numbers, Numbers]]:
        """(triples, slots) of the true gt, gte, lt and lte."""
        for (operator, kind), entries in self._thresholds.items():
            value = comparable(_SAMPLES[kind], operand)
            if value is not None and len(entries):
                yield entries.true_for(operator, value)


_SAMPLES: dict[type, Any] = {str: "", float: 0.0, datetime: datetime.min}


def _kind(threshold: Any) -> type:
    return str if isinstance(threshold, str) else datetime if isinstance(threshold, datetime) else float
