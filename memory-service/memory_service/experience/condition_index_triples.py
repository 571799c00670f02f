"""Which number has a triple, and what is its answer for a state?

Distinct triples are kept once, however many experiences share them.  Number 0 stands for "no triple" and is always unknown.
Must not know what operators mean beyond which field decides that a triple can be unknown.
"""

from collections.abc import Iterable
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from memory_service.experience.condition_index_postings import Numbers
from memory_service.experience.conditions import Condition

T = TypeVar("T", bound=np.generic)

UNKNOWN, TRUE, FALSE, UNSETTLED = range(4)  # int8 answers
FIRST_CAPACITY = 64
# Fields that no state has: of number 0, and of `exists` true and false, which are never unknown.
NO_FIELD, EXISTS, EXISTS_NOT = range(3)
PSEUDO_FIELDS = {NO_FIELD: UNKNOWN, EXISTS: FALSE, EXISTS_NOT: TRUE}


def capacity_for(needed: int) -> int:
    """Half as much again, so that growing is linear over all additions."""
    return max(FIRST_CAPACITY, needed + needed // 2)


def grown(old: NDArray[T], capacity: int) -> NDArray[T]:
    """A longer copy, zero where it is new."""
    new = np.zeros(capacity, old.dtype)
    new[: len(old)] = old
    return new


class Triples:
    def __init__(self) -> None:
        self._number_of: dict[Condition, int] = {}
        self._conditions: list[Condition | None] = [None]
        self._entries: list[int] = [0]
        self._free: list[int] = []
        self._field_of: Numbers = np.zeros(FIRST_CAPACITY, np.int32)
        self._fields_used = len(PSEUDO_FIELDS)
        self._free_fields: list[int] = []
        self._exists: dict[tuple[int, bool], int] = {}

    def new_field(self) -> int:
        if self._free_fields:
            return self._free_fields.pop()
        self._fields_used += 1
        return self._fields_used - 1

    def drop_field(self, number: int) -> None:
        self._free_fields.append(number)

    def take(self, condition: Condition, field: int) -> tuple[int, bool]:
        """The triple's number, counted once more, and whether it is new."""
        triple = self._number_of.get(condition)
        if triple is not None:
            self._entries[triple] += 1
            return triple, False
        triple = self._free.pop() if self._free else self._new()
        self._number_of[condition] = triple
        self._conditions[triple] = condition
        self._entries[triple] = 1
        self._field_of[triple] = field
        if condition.operator == "exists":
            self._field_of[triple] = EXISTS if condition.value else EXISTS_NOT
            self._exists[field, condition.value] = triple
        return triple, True

    def give_back(self, triple: int, field: int) -> bool:
        """True when that was its last experience."""
        self._entries[triple] -= 1
        if self._entries[triple]:
            return False
        condition = self.condition(triple)
        del self._number_of[condition]
        if condition.operator == "exists":
            del self._exists[field, condition.value]
        self._conditions[triple] = None
        self._field_of[triple] = NO_FIELD
        self._free.append(triple)
        return True

    def _new(self) -> int:
        triple = len(self._conditions)
        self._conditions.append(None)
        self._entries.append(0)
        if triple >= len(self._field_of):
            self._field_of = grown(self._field_of, capacity_for(triple + 1))
        return triple

    def condition(self, triple: int) -> Condition:
        condition = self._conditions[triple]
        assert condition is not None, "a number that was given back"
        return condition

    def conditions(self, triples: Iterable[int]) -> list[Condition]:
        """In the order of `triples`: a search asks for a thousand at once."""
        return cast(list[Condition], [self._conditions[triple] for triple in triples])

    def entries_of(self, condition: Condition) -> int:
        return self._entries[self._number_of.get(condition, 0)]

    def answers(self, present: list[int], incomparable: list[int]) -> NDArray[np.int8]:
        """False for triples on present fields, unsettled for incomparable ones, unknown for the rest; exists is settled."""
        by_field = np.full(self._fields_used, UNKNOWN, np.int8)
        by_field[list(PSEUDO_FIELDS)] = list(PSEUDO_FIELDS.values())
        by_field[present] = FALSE
        by_field[incomparable] = UNSETTLED
        answers: NDArray[np.int8] = by_field.take(self._field_of[: len(self._conditions)])
        for field in present:
            for wanted in (True, False):
                if (triple := self._exists.get((field, wanted))) is not None:
                    answers[triple] = TRUE if wanted else FALSE
        return answers
