"""Which old memories tell the same kind of thing, so that one summary can stand for them?  Pure.

First by what they are (kind, event type, tools, language), then by meaning: complete linkage, so that every two members of a
group are alike.  A chain of neighbours, each a little further from the first, never becomes one group (single linkage would
make it one), and a group has a longest span of time and a largest size.  It must not read, write or word anything.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

import numpy as np
import numpy.typing as npt

from memory_service.domain import Kind, Outcome
from memory_service.models.ports import Vector

SECONDS_A_WEEK = 604_800


@dataclass(frozen=True, slots=True)
class Candidate:
    """What grouping knows of a memory that may be compressed.  `words`: stems of what it tells, without numbers and ids.

    `summary_id` is None for one that waits, else the summary that it is in already: such ones make a group that others may join.
    """

    id: UUID
    version: int
    kind: Kind
    event_type: str | None
    category: str | None
    outcome: Outcome | None
    tools: tuple[str, ...]
    chinese: bool
    occurred_at: datetime
    words: frozenset[str] = frozenset()
    all_calls_worked: bool | None = None
    summary_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class GroupRules:
    """`closeness_min` is of two members: 0 as close as an average pair that may be related, 1 the same (`closeness`).

    `words_shared_min` is of the one with fewer words; calls of the same tool need not share any.
    """

    closeness_min: float
    closeness_min_same_tool: float
    words_shared_min: float
    size_min: int
    size_max: int
    span_days_max: float
    compared_max: int
    same_outcome: bool


@dataclass(slots=True)
class Group:
    """Members in the order of time.  `summary_id`: the summary that `new` ones join; None for a new one."""

    summary_id: UUID | None = None
    members: list[Candidate] = field(default_factory=list)

    @property
    def new(self) -> list[Candidate]:
        return [one for one in self.members if one.summary_id is None]


Key = tuple[object, ...]
SECONDS_A_DAY = 86_400


def alike_by_nature(candidates: Sequence[Candidate], rules: GroupRules) -> dict[Key, list[Candidate]]:
    """Candidates by what they are; only these are compared by meaning.  Agents may differ, users never come here together."""
    found: dict[Key, list[Candidate]] = {}
    for one in candidates:
        ended = (one.outcome, one.all_calls_worked) if rules.same_outcome else ()
        key = (
            one.kind,
            one.event_type,
            one.category if one.kind == "semantic" else None,
            one.tools,
            one.chinese,
            ended,
        )
        found.setdefault(key, []).append(one)
    return {key: sorted(ones, key=lambda one: (one.occurred_at, one.id)) for key, ones in found.items()}


def slices(ones: Sequence[Candidate], rules: GroupRules) -> Iterator[list[Candidate]]:
    """In the order of time, so many at once as are compared with each other: n² stays bounded however many there are."""
    for start in range(0, len(ones), rules.compared_max):
        yield list(ones[start : start + rules.compared_max])


def groups_of(
    ones: Sequence[Candidate], vectors: Mapping[UUID, Vector], midpoint: float, rules: GroupRules
) -> list[Group]:
    """Groups of one slice that are worth a summary: new ones of at least `size_min`, and old ones that somebody joins.

    `ones` in the order of time; those without a vector are left out.  `midpoint` is the cosine from which this model's pairs
    are more likely related than not.
    """
    known = [one for one in ones if one.id in vectors]
    if not known:
        return []
    near = closeness(np.stack([vectors[one.id] for one in known]), midpoint)
    least = rules.closeness_min_same_tool if known[0].tools else rules.closeness_min
    if not known[0].tools:
        near = np.where(words_shared(known) >= rules.words_shared_min, near, np.float32(-1.0))
    linked = _Linked(known, near, rules)
    for at, one in enumerate(known):
        if one.summary_id is None:
            linked.place(at, least)
    found = [
        one for one in linked.groups if one.new and (one.summary_id is not None or len(one.members) >= rules.size_min)
    ]
    for group in found:
        group.members.sort(key=lambda one: (one.occurred_at, one.id))
    return found


def closeness(vectors: Vector, midpoint: float) -> npt.NDArray[np.float32]:
    """Of every two rows (unit length): how far their cosine is on the way from `midpoint` to 1.

    Cosines of different models and scripts are not comparable, their midpoints (docs/CALIBRATION.md) are what is.
    """
    cosines = vectors @ vectors.T
    return np.asarray((cosines - midpoint) / (1.0 - midpoint), np.float32)


def words_shared(ones: Sequence[Candidate]) -> npt.NDArray[np.float32]:
    """Of every two: the share of the shorter one's words that the other has, 1 when it has none.

    A small model takes "rolled back orders-service" for nearly the same as "deployed orders-service" (cosine .95).
    """
    places: dict[str, int] = {}
    for one in ones:
        for word in one.words:
            places.setdefault(word, len(places))
    told = np.zeros((len(ones), max(len(places), 1)), np.float32)
    for at, one in enumerate(ones):
        told[at, [places[word] for word in one.words]] = 1.0
    fewest = np.minimum.outer(told.sum(axis=1), told.sum(axis=1))
    return np.asarray(np.where(fewest > 0, told @ told.T / np.maximum(fewest, 1.0), 1.0), np.float32)


class _Linked:
    """The groups so far.  `_link[g]` is the least closeness of every candidate to a member of group g."""

    def __init__(self, known: Sequence[Candidate], near: npt.NDArray[np.float32], rules: GroupRules) -> None:
        self.groups: list[Group] = []
        self._known = known
        self._near = near
        self._rules = rules
        self._days = np.array([one.occurred_at.timestamp() / SECONDS_A_DAY for one in known])
        self._link = np.zeros((len(known), len(known)), np.float32)
        self._size = np.zeros(len(known), np.int64)
        self._first = np.zeros(len(known))
        self._last = np.zeros(len(known))
        begun: dict[UUID, int] = {}
        for at, one in enumerate(known):
            if one.summary_id is not None:
                self._add(at, begun.setdefault(one.summary_id, len(self.groups)))

    def place(self, at: int, least: float) -> None:
        """Into the group whose farthest member is nearest, or into a new one."""
        n, day = len(self.groups), self._days[at]
        span = np.maximum(self._last[:n], day) - np.minimum(self._first[:n], day)
        room = (self._size[:n] < self._rules.size_max) & (span <= self._rules.span_days_max)
        fits = np.where(room, self._link[:n, at], -np.inf)
        best = int(fits.argmax()) if n else 0
        self._add(at, best if n and fits[best] >= least else n)

    def _add(self, at: int, n: int) -> None:
        one, day = self._known[at], self._days[at]
        if n == len(self.groups):
            self.groups.append(Group(one.summary_id))
            self._link[n], self._first[n], self._last[n] = self._near[at], day, day
        self.groups[n].members.append(one)
        self._size[n] += 1
        self._link[n] = np.minimum(self._link[n], self._near[at])
        self._first[n], self._last[n] = min(self._first[n], day), max(self._last[n], day)


def first_window(now: datetime, windows: int, at_once: int) -> int:
    """With which of `windows` this week's run begins, so that `at_once` a week reach all of them in turn."""
    week = int(now.timestamp() // (SECONDS_A_WEEK))
    return week * at_once % windows
