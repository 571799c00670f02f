"""What of a session's buffer is written now, and what stays?  Pure.

Cuts the buffered messages of each task into turns, asks `triggers` about what is new in each, `turns` what becomes of it,
and says which messages are then done with.  A turn that is written as what happened leaves the buffer whole; of a turn in
which only a preference or a correction was stated, just those sentences do, and the rest waits with the others.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from memory_service.write.drafts import Draft
from memory_service.write.triggers import (
    TRIGGERS,
    BufferState,
    Message,
    ToolStatus,
    Trigger,
    TriggerName,
    TriggerRules,
    Turn,
    should_write,
)
from memory_service.write.turn_spans import ALL, Span, merged_spans, spans_of, without
from memory_service.write.turns import STATED, Note, TurnScope, is_spent, merge_drafts, route_turn, turns_of

# What ends the waiting of everything that waits.
FLUSHING: frozenset[TriggerName] = frozenset({"turn_count", "task_end"})
_VISIBLE = re.compile(r"\w")


@dataclass(frozen=True, slots=True)
class Held:
    """One message of the buffer; `number` is its place, `cut` says that written sentences were taken out already.

    `of` are the memories that sentences of its turn became.
    """

    number: int
    id: UUID
    message: Message
    task_id: str | None = None
    agent_id: str | None = None
    tool_status: ToolStatus | None = None
    cut: bool = False
    of: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True)
class Occasion:
    """When and for whom the plan is made.  `living` are the tasks that have a working memory.

    `ended` is a task that ends now; `overfull` that the buffer has to be emptied before its turns are five.
    """

    user_id: str
    session_id: str
    now: datetime
    living: frozenset[str] = frozenset()
    ended: str | None = None
    overfull: bool = False


@dataclass(frozen=True, slots=True)
class TurnPlan:
    """`waiting` is how many turns stay in the buffer; `notes` are by task; `cuts` by number, the parts that get written.

    `rests` are the messages that stay of turns in which something was stated, with the sentences.
    """

    triggers: tuple[TriggerName, ...] = ()
    drafts: tuple[Draft, ...] = ()
    notes: Mapping[str, tuple[Note, ...]] = field(default_factory=dict)
    drops: frozenset[int] = frozenset()
    cuts: Mapping[int, tuple[Span, ...]] = field(default_factory=dict)
    rests: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    waiting: int = 0
    living: frozenset[str] = frozenset()

    @property
    def touched(self) -> frozenset[int]:
        """What is written now, whole or in part."""
        return self.drops | frozenset(self.cuts)

    @property
    def changed(self) -> frozenset[int]:
        """What will not be in the buffer as it was."""
        return self.touched | frozenset(self.rests)


def plan_turns(held: Sequence[Held], fresh: Collection[int], occasion: Occasion, rules: TriggerRules) -> TurnPlan:
    """The plan for all that is `held`, of which the messages numbered in `fresh` were not judged before."""
    tasks: dict[str | None, list[Held]] = {}
    for one in held:
        tasks.setdefault(one.task_id, []).append(one)
    parts = [_TaskPlan(messages, frozenset(fresh), occasion, rules) for messages in tasks.values()]
    for part in parts:
        part.make()
    fired = {name for part in parts for name in part.triggers}
    return TurnPlan(
        triggers=tuple(name for name in TRIGGERS if name in fired),
        drafts=tuple(
            draft for part in parts for draft in (*part.apart, *merge_drafts(part.drafts, rules.draft_chars_max))
        ),
        notes={part.task_id: tuple(dict.fromkeys(part.notes)) for part in parts if part.task_id and part.notes},
        drops=frozenset().union(*(part.drops for part in parts)),
        cuts={number: spans for part in parts for number, spans in part.cuts.items() if number not in part.drops},
        rests={number: said for part in parts for number, said in part.rests.items() if number not in part.drops},
        waiting=sum(part.waiting for part in parts),
        living=occasion.living,
    )


class _TaskPlan:
    """The plan of one task's turns, turn by turn."""

    def __init__(self, held: Sequence[Held], fresh: frozenset[int], occasion: Occasion, rules: TriggerRules) -> None:
        self._held = held
        self._fresh = fresh
        self._occasion = occasion
        self._rules = rules
        self._pending: list[list[Held]] = []
        self.task_id = held[0].task_id
        self.triggers: set[TriggerName] = set()
        self.drafts: list[Draft] = []
        self.apart: list[Draft] = []  # what waited longer than one memory can hold
        self.notes: list[Note] = []
        self.drops: set[int] = set()
        self.cuts: dict[int, tuple[Span, ...]] = {}
        self.rests: dict[int, tuple[str, ...]] = {}

    @property
    def waiting(self) -> int:
        """Turns that stay; the late answer to a turn that was written already is none."""
        return sum(map(_is_turn, self._pending))

    def make(self) -> None:
        turns = grouped(self._held)
        for at, turn in enumerate(turns):
            self._take(turn, last=at == len(turns) - 1)
        if self.drafts or self.apart:
            self._drop_spent()

    def _take(self, turn: list[Held], *, last: bool) -> None:
        new = [one for one in turn if one.number in self._fresh]
        ended = last and self._occasion.ended is not None and self._occasion.ended == self.task_id
        forced = last and self._occasion.overfull
        if not new and not ended and not forced:
            self._pending.append(turn)
            return
        waiting = self.waiting if _is_turn(turn) else self.waiting - 1
        if forced:
            waiting = self._rules.turns_between_writes
        part = Turn(tuple(one.message for one in new), new[-1].tool_status if new else None)
        found = should_write(part, BufferState(waiting, task_ended=ended), self._rules)
        first = next((at for at, one in enumerate(turn) if one.number in self._fresh), 0)
        triggers = [replace(one, message=one.message + first) if one.message is not None else one for one in found]
        self._route(turn, triggers)

    def _route(self, turn: list[Held], triggers: Sequence[Trigger]) -> None:
        names = {trigger.name for trigger in triggers}
        scope = self._scope(turn)
        rest = self._without_stated(turn, triggers)
        *longer_ago, earlier = self._packed(rest) if names & FLUSHING else [[]]
        for group in longer_ago:
            cause = [one for one in triggers if one.name in FLUSHING][:1]
            self.apart += route_turn(group[-1], cause, group[:-1], scope, self._rules).drafts
        routed = route_turn(_turn(rest), triggers, earlier, scope, self._rules)
        self.triggers |= names
        self.drafts += routed.drafts
        self.notes += routed.notes
        if names & FLUSHING:
            self.drops |= {one.number for group in self._pending for one in group}
            self._pending = []
        if names & FLUSHING or any(draft.kind == "episodic" for draft in routed.drafts):
            rest = self._left(rest)
        self._pending += [rest] if rest else []
        stated = tuple(
            dict.fromkeys(one for trigger in triggers if trigger.name in STATED for one in trigger.sentences)
        )
        if stated:
            self.rests |= {one.number: stated for one in rest}

    def _left(self, rest: list[Held]) -> list[Held]:
        """What stays of a turn that is written: an empty message where something new was stated, so that an answer to it
        that comes later is known as one."""
        left = [one for one in rest if one.number in self.cuts]
        self.drops |= {one.number for one in rest} - {one.number for one in left}
        for one in left:
            self.cuts[one.number] = ((0, ALL),)
        return [replace(one, message=replace(one.message, content="")) for one in left]

    def _drop_spent(self) -> None:
        """Answers to what was stated go with it.  The last turn's empty message stays: more answers may come."""
        for at, turn in enumerate(self._pending):
            if is_spent([one.message for one in turn]):
                awaits = at == len(self._pending) - 1
                self.drops |= {one.number for one in turn if not (awaits and one.message.role == "user")}

    def _packed(self, last: list[Held]) -> list[list[Turn]]:
        """What waits, in groups that fit one memory each; the last group leaves room for the turn `last`."""
        groups: list[list[Turn]] = [[]]
        room = self._rules.draft_chars_max - _shown_chars(last, self._rules)
        for turn in reversed([one for one in self._pending if not is_spent([held.message for held in one])]):
            chars = _shown_chars(turn, self._rules)
            if chars > room and (groups[0] or len(groups) == 1):
                groups.insert(0, [])
                room = self._rules.draft_chars_max
            groups[0].insert(0, _turn(turn))
            room -= chars
        return groups

    def _without_stated(self, turn: list[Held], triggers: Sequence[Trigger]) -> list[Held]:
        """The turn once its statements are written: as many messages, an empty one where nothing else was said."""
        for trigger in triggers:
            if trigger.name in STATED and trigger.message is not None:
                one = turn[trigger.message]
                spans = spans_of(one.message.content, trigger.sentences)
                self.cuts[one.number] = merged_spans((*self.cuts.get(one.number, ()), *spans))
        rest = []
        for one in turn:
            parts = self.cuts.get(one.number, ())
            left = without(one.message.content, parts)
            if parts and not _VISIBLE.search(left):
                self.cuts[one.number], left = ((0, ALL),), ""
            rest.append(replace(one, message=replace(one.message, content=left)))
        return rest

    def _scope(self, turn: Sequence[Held]) -> TurnScope:
        return TurnScope(
            user_id=self._occasion.user_id,
            session_id=self._occasion.session_id,
            at=self._occasion.now,
            task_id=self.task_id,
            agent_id=turn[-1].agent_id,
            task_lives=self.task_id in self._occasion.living,
        )


def grouped(held: Sequence[Held]) -> list[list[Held]]:
    """The messages by turns."""
    groups, start = [], 0
    for turn in turns_of([one.message for one in held]):
        groups.append(list(held[start : start + len(turn.messages)]))
        start += len(turn.messages)
    return groups


def forgetting(held: Sequence[Held], gone: Collection[UUID]) -> list[Held]:
    """All that is held, with nothing left in the turns that one of the memories `gone` was made of."""
    tasks: dict[str | None, list[Held]] = {}
    for one in held:
        tasks.setdefault(one.task_id, []).append(one)
    turns = [turn for messages in tasks.values() for turn in grouped(messages)]
    erased = {one.number for turn in turns if any(set(other.of) & set(gone) for other in turn) for one in turn}
    return [
        replace(one, message=replace(one.message, content=""), cut=True, of=()) if one.number in erased else one
        for one in held
    ]


def _turn(held: Sequence[Held]) -> Turn:
    return Turn(tuple(one.message for one in held), held[-1].tool_status)


def _shown_chars(held: Sequence[Held], rules: TriggerRules) -> int:
    """About how long these messages are in a memory of what happened."""
    speaker = 20
    return sum(min(len(one.message.content), rules.summary_messages_chars_max) + speaker for one in held)


def _is_turn(held: Sequence[Held]) -> bool:
    return any(one.message.role == "user" and one.message.content for one in held)
