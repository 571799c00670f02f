"""Which of a user's lessons apply to this state, without evaluating each of them?

Counting with early refusal.  Every distinct triple gets one answer for the state (unknown, true, false, or unsettled until
somebody needs it); triples are found by field and value, not gone through.  Candidates are the experiences with a triple that
is or may be true.  They are then refused column by column, each one's most selective triple first and text searches last, so
most are gone after one step and patterns run only for what is left.  All steps are numpy passes over candidates.

Cost: O(fields of the state + candidates), and one pass over distinct triples (1 byte each) and over slots (1 byte each).
The answers are those of `matching.Evaluator.match` for every experience, exactly.

Order of both lists, descending: (partial only: share of true triples), strength, created_at, id.  `strength` is any number
that sorts like confidence at every moment: confidence.strength.

Pure and in memory.  For one thread at a time; must not be searched while it is changed.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from memory_service.experience.condition_index_fields import FieldTree
from memory_service.experience.condition_index_postings import FieldPostings, Numbers, Posting
from memory_service.experience.condition_index_ranking import Ranks
from memory_service.experience.condition_index_triples import (
    FALSE,
    TRUE,
    UNKNOWN,
    UNSETTLED,
    Triples,
    capacity_for,
    grown,
)
from memory_service.experience.conditions import ORDERED, Condition
from memory_service.experience.matching import Evaluator, Match, Operand

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The earlier a triple is looked at, the more candidates it should refuse and the less it may cost.
SELECTIVE_FIRST = {
    operator: rank
    for rank, operators in enumerate(
        (
            ("eq", "in"),
            ("starts_with",),
            ORDERED,
            ("ne", "nin", "exists"),
            ("contains", "not_contains", "matches"),
        )
    )
    for operator in operators
}
ANSWERS = {None: UNKNOWN, True: TRUE, False: FALSE}


@dataclass(frozen=True, slots=True)
class Entry:
    """One active experience as the index sees it."""

    id: UUID
    conditions: tuple[Condition, ...]
    strength: float
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Hit:
    id: UUID
    match: Match


@dataclass(frozen=True, slots=True)
class Hits:
    """`exact_total` and `partial_total` count all matches, before limits, `accept` and `strength_min`."""

    exact: tuple[Hit, ...]
    partial: tuple[Hit, ...]
    exact_total: int
    partial_total: int


class ConditionIndex:
    def __init__(self, evaluator: Evaluator, entries: Iterable[Entry] = ()) -> None:
        self._evaluator = evaluator
        self._tree = FieldTree()
        self._fields: dict[str, FieldPostings] = {}
        self._triples = Triples()
        self._absent = Posting()  # slots with an `exists false`, once per such triple
        self._slot_of: dict[UUID, int] = {}
        self._free_slots: list[int] = []
        self._slots_used = 0
        self._columns: list[Numbers] = []  # the triples of a slot, one array per position; 0 where it has fewer
        self._counts: NDArray[np.int8] = np.zeros(0, np.int8)
        self._ranks = Ranks()
        for entry in entries:
            self.add(entry)

    def __len__(self) -> int:
        return len(self._slot_of)

    def __contains__(self, experience_id: object) -> bool:
        return experience_id in self._slot_of

    # Changing: O(triples of the one experience), a removal also scans the lists it leaves (4 bytes an entry).

    def add(self, entry: Entry) -> None:
        """Also replaces the entry of that id."""
        self.remove(entry.id)
        slot = self._free_slots.pop() if self._free_slots else self._new_slot()
        conditions = sorted(set(entry.conditions), key=self._position)
        self._widen(len(conditions))
        for position, condition in enumerate(conditions):
            self._columns[position][slot] = self._file(condition, slot)
        self._counts[slot] = len(conditions)
        self._ranks.put(slot, entry.strength, (entry.created_at - EPOCH) // timedelta(microseconds=1), entry.id)
        self._slot_of[entry.id] = slot

    def remove(self, experience_id: UUID) -> bool:
        """False when there is none."""
        slot = self._slot_of.pop(experience_id, None)
        if slot is None:
            return False
        for position in range(int(self._counts[slot])):
            self._take_out(int(self._columns[position][slot]), slot)
            self._columns[position][slot] = 0
        self._counts[slot] = 0
        self._free_slots.append(slot)
        return True

    def _position(self, condition: Condition) -> tuple[int, int, bytes]:
        return SELECTIVE_FIRST[condition.operator], self._triples.entries_of(condition), condition.canonical

    def _new_slot(self) -> int:
        slot, self._slots_used = self._slots_used, self._slots_used + 1
        if slot >= len(self._counts):
            more = capacity_for(slot + 1)
            self._counts = grown(self._counts, more)
            self._columns = [grown(column, more) for column in self._columns]
            self._ranks.grow(more)
        return slot

    def _widen(self, width: int) -> None:
        while len(self._columns) < width:
            self._columns.append(np.zeros(len(self._counts), np.int32))

    def _file(self, condition: Condition, slot: int) -> int:
        field = self._fields.get(condition.field)
        if field is None:
            field = self._fields[condition.field] = FieldPostings(self._triples.new_field())
            self._tree.add(condition.field)
        triple, new = self._triples.take(condition, field.number)
        field.file(triple, new, condition, slot)
        if condition.operator == "exists" and not condition.value:
            self._absent.add(slot)
        return triple

    def _take_out(self, triple: int, slot: int) -> None:
        condition = self._triples.condition(triple)
        field = self._fields[condition.field]
        field.take_out(triple, self._triples.give_back(triple, field.number), condition, slot)
        if condition.operator == "exists" and not condition.value:
            self._absent.remove(slot)
        if not field.entries:
            self._tree.remove(condition.field)
            self._triples.drop_field(self._fields.pop(condition.field).number)

    # Searching.

    def search(
        self,
        state: Mapping[str, Any],
        *,
        exact_max: int,
        partial_max: int,
        accept: Callable[[UUID], bool] | None = None,
        strength_min: float | None = None,
    ) -> Hits:
        """The best `exact_max` exact and `partial_max` partial matches among those that `accept` and `strength_min` let through.

        `accept` is asked in order, best first, and only until the limits are full.
        """
        operands = {path: Operand(value, self._evaluator.limits) for path, value in self._tree.present(state)}
        answers, candidates = self._answers(operands)
        slots, true = self._refuse(candidates, answers, operands)
        some = true > 0
        whole = some & (true == self._counts[slots])
        exact, partial = slots[whole], slots[some & ~whole]
        share = true[some & ~whole] / self._counts[partial]
        best_exact = self._ranks.best(exact, None, exact_max, accept, strength_min)
        best_partial = self._ranks.best(partial, share, partial_max, accept, strength_min)
        return Hits(self._hits(best_exact, state), self._hits(best_partial, state), len(exact), len(partial))

    def _answers(self, operands: Mapping[str, Operand]) -> tuple[NDArray[np.int8], Numbers]:
        """One answer per distinct triple, and at least the slots that have a true or unsettled one."""
        present = [(self._fields[path], operand) for path, operand in operands.items()]
        incomparable = [field.number for field, operand in present if operand.key is None]
        answers = self._triples.answers([field.number for field, _ in present], incomparable)
        candidates = [self._absent.view()]
        for field, operand in present:
            candidates.append(field.weak.view())
            if operand.key is None:  # the few values that are too large: every triple on them is evaluated when needed
                continue
            answers[field.excluding.view()] = TRUE
            answers[field.excluded(operand)] = FALSE
            answers[field.unsettled.view()] = UNSETTLED
            for triples, holds in field.of_members(operand):
                answers[triples] = ANSWERS[holds]
            for triples, slots in field.true_for(operand):
                answers[triples] = TRUE
                candidates.append(slots)
        if sum(map(len, candidates)) >= self._slots_used:  # marking that many takes longer than looking at all slots
            return answers, np.arange(self._slots_used, dtype=np.int32)
        marked = np.zeros(self._slots_used, np.bool_)
        for slots in candidates:
            marked[slots] = True
        return answers, np.flatnonzero(marked).astype(np.int32)

    def _refuse(
        self, slots: Numbers, answers: NDArray[np.int8], operands: Mapping[str, Operand]
    ) -> tuple[Numbers, NDArray[np.int8]]:
        """The candidates without a false triple, and how many true ones each has."""
        true = np.zeros(len(slots), np.int8)
        for column in self._columns:
            triples = column.take(slots)
            given = answers.take(triples)
            if (asked := triples[given == UNSETTLED]).size:
                self._settle(asked, answers, operands)
                given = answers.take(triples)
            left = given != FALSE  # compress is six times as fast as indexing by a mask
            slots, true = slots.compress(left), (true + (given == TRUE)).compress(left)
        return slots, true

    def _settle(self, asked: Numbers, answers: NDArray[np.int8], operands: Mapping[str, Operand]) -> None:
        """Evaluate each distinct triple among those asked for."""
        wanted = np.zeros(len(answers), np.bool_)
        wanted[asked] = True
        numbers = np.flatnonzero(wanted)
        holds, conditions = self._evaluator.holds, self._triples.conditions(numbers.tolist())
        answers[numbers] = [ANSWERS[holds(one, operands[one.field])] for one in conditions]

    def _hits(self, slots: Iterable[int], state: Mapping[str, Any]) -> tuple[Hit, ...]:
        """Matched and missing triples, spelled out for the few that are returned."""
        hits = []
        for slot in slots:
            triples = (int(self._columns[position][slot]) for position in range(int(self._counts[slot])))
            conditions = sorted((self._triples.condition(triple) for triple in triples), key=lambda c: c.canonical)
            hits.append(Hit(self._ranks.id_of(slot), self._evaluator.match(conditions, state)))
        return tuple(hits)
