"""What of a turn becomes which memory?  Pure.

Cuts dialogue into turns, routes what fired (what holds → semantic, what happened → episodic, how things stand now → working
memory) and merges the writes of one task before they are stored.  It must not decide whether to write; `triggers` does
that, and what a text means is the summariser's work.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from memory_service.domain import KindChoice, Outcome
from memory_service.write.drafts import Draft
from memory_service.write.duplicates import content_hash
from memory_service.write.summarise import summarise
from memory_service.write.triggers import Message, ToolStatus, Trigger, TriggerName, TriggerRules, Turn

CUT = " … "
CAUSE = "triggers"  # metadata key that says why a memory was written
STATED: frozenset[TriggerName] = frozenset({"preference", "correction"})
TOOL: dict[TriggerName, Outcome] = {"tool_error": "failure", "tool_result": "success"}
NoteKind = Literal["step", "failure"]


@dataclass(frozen=True, slots=True)
class TurnScope:
    """Whose dialogue it is; `at` is when the turn arrived, for messages that bring no time.

    `task_lives`: there is a working memory of the task that can be changed; without one its state is an event like others.
    """

    user_id: str
    session_id: str
    at: datetime
    task_id: str | None = None
    agent_id: str | None = None
    task_lives: bool = True

    @property
    def notable(self) -> bool:
        return self.task_id is not None and self.task_lives


@dataclass(frozen=True, slots=True)
class Note:
    """A change of the task's working memory: a step that was made, or what was tried and failed, with its error."""

    kind: NoteKind
    text: str
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Routed:
    """What one write consists of; notes only with a task, whose working memory can hold them."""

    drafts: tuple[Draft, ...]
    notes: tuple[Note, ...]


def turns_of(messages: Sequence[Message], last_tool_status: ToolStatus | None = None) -> list[Turn]:
    """Turns in order: a user message and what follows it until the next one; what stands before the first is a turn too.

    The tool's status belongs to the last turn.
    """
    groups: list[list[Message]] = []
    for message in messages:
        if message.role == "user" or not groups:
            groups.append([message])
        else:
            groups[-1].append(message)
    # A system prompt before the first user message is no turn of its own.
    if len(groups) > 1 and all(message.role == "system" for message in groups[0]):
        groups[:2] = [groups[0] + groups[1]]
    last = len(groups) - 1
    return [Turn(tuple(group), last_tool_status if n == last else None) for n, group in enumerate(groups)]


def route_turn(
    turn: Turn, triggers: Sequence[Trigger], earlier: Sequence[Turn], scope: TurnScope, rules: TriggerRules
) -> Routed:
    """Drafts and notes for what fired, not yet merged; nothing when nothing fired.  A statement becomes one memory only.

    Statements come from the triggers; `turn` is what is left of the turn without them, an empty message where all was stated.
    `earlier` are the turns in the buffer that were not written yet: they join what is written for a count or an end.
    """
    drafts: list[Draft] = []
    notes: list[Note] = []
    stated = frozenset(one for trigger in triggers if trigger.name in STATED for one in trigger.sentences)
    for trigger in triggers:
        if trigger.name in STATED:
            drafts += [_stated(trigger, turn, sentence, scope, rules) for sentence in trigger.sentences]
        elif trigger.name in TOOL:
            drafts.append(_happened(trigger, [turn], TOOL[trigger.name], scope, rules))
            if trigger.name == "tool_error" and scope.notable:
                notes.append(_what_failed(turn, trigger, rules))
        elif trigger.name == "state_change":
            told = [sentence for sentence in trigger.sentences if sentence not in stated]
            if scope.notable:
                notes += [Note("step", sentence) for sentence in told]
            elif told or not trigger.sentences:
                drafts.append(_happened(trigger, [turn], None, scope, rules))
        else:
            told_by = [one for one in (*earlier, turn) if not is_spent(one.messages)]
            drafts += [_happened(trigger, told_by, None, scope, rules)] if told_by else []
    return Routed(tuple(draft for draft in drafts if draft.content), tuple(dict.fromkeys(notes)))


def is_spent(messages: Sequence[Message]) -> bool:
    """Was all that the user said in this turn written as statements, so that only the answers to them are left?"""
    said = [message.content for message in messages if message.role == "user"]
    worked = any(message.role == "tool" and message.content for message in messages)
    return bool(said) and not any(said) and not worked


def merge_drafts(drafts: Sequence[Draft], chars_max: int) -> list[Draft]:
    """Writes of one task as few memories, in the order of their first ones.

    What happened in one task and session becomes one episodic memory: the texts that are not part of a longer one, joined and
    bounded by `chars_max`; a failure and a success together are a detour.  What holds stays one memory a statement, since
    each may be corrected on its own; the same statement twice is one.
    """
    groups: dict[tuple[object, ...], list[Draft]] = {}
    for draft in drafts:
        scope = (draft.user_id, draft.agent_id, draft.session_id, draft.task_id)
        stated = draft.kind != "episodic"
        groups.setdefault((*scope, content_hash(draft.content) if stated else None), []).append(draft)
    return [_merged(group, chars_max) for group in groups.values()]


def _merged(group: Sequence[Draft], chars_max: int) -> Draft:
    first = group[0]
    if len(group) == 1:
        return first
    times = [draft.occurred_at for draft in group if draft.occurred_at is not None]
    weights = [draft.importance for draft in group if draft.importance is not None]
    outcomes = {draft.outcome for draft in group} - {None}
    content = first.content if first.kind != "episodic" else cut_middle(_joined(group), chars_max)
    causes = dict.fromkeys(cause for draft in group for cause in draft.metadata.get(CAUSE, ()))
    return replace(
        first,
        content=content,
        summary=None if content != first.content else first.summary,
        tags=tuple(dict.fromkeys(tag for draft in group for tag in draft.tags)),
        tool_calls=tuple(call for draft in group for call in draft.tool_calls),
        related_ids=tuple(dict.fromkeys(one for draft in group for one in draft.related_ids)),
        outcome="detour" if len(outcomes) > 1 else next(iter(outcomes), None),
        importance=max(weights, default=None),
        occurred_at=min(times, default=None),
        metadata={**{k: v for draft in reversed(group) for k, v in draft.metadata.items()}, CAUSE: list(causes)},
    )


def _joined(group: Sequence[Draft]) -> str:
    """Texts in their order, without those that another one contains."""
    texts = list(dict.fromkeys(draft.content for draft in group))
    return "\n\n".join(text for text in texts if not any(text != other and text in other for other in texts))


def _stated(trigger: Trigger, turn: Turn, sentence: str, scope: TurnScope, rules: TriggerRules) -> Draft:
    """A preference holds, whatever its words look like by themselves; what a correction mends is for the summariser to tell."""
    kind: KindChoice = "semantic" if trigger.name == "preference" else "auto"
    draft = _draft(trigger, sentence, kind, None, turn, scope)
    if kind != "semantic" or summarise(sentence, rules.summary).category is not None:
        return draft
    wish = rules.wish
    return replace(draft, event_type=wish.name, category=wish.category, importance=wish.importance)


def _happened(
    trigger: Trigger, turns: Sequence[Turn], outcome: Outcome | None, scope: TurnScope, rules: TriggerRules
) -> Draft:
    lines = [_line(message, rules.summary_messages_chars_max) for turn in turns for message in turn.messages]
    content = cut_middle("\n".join(filter(None, lines)), rules.draft_chars_max)
    return _draft(trigger, content, "episodic", outcome, turns[0], scope)


def _draft(
    trigger: Trigger, content: str, kind: KindChoice, outcome: Outcome | None, turn: Turn, scope: TurnScope
) -> Draft:
    return Draft(
        user_id=scope.user_id,
        content=content,
        kind=kind,
        outcome=outcome,
        occurred_at=next((message.at for message in turn.messages if message.at is not None), scope.at),
        agent_id=scope.agent_id,
        session_id=scope.session_id,
        task_id=scope.task_id,
        metadata={CAUSE: [trigger.name]},
    )


def _line(message: Message, chars_max: int) -> str:
    """`speaker: text` on its own line; instructions to the model are nobody's memory."""
    text = message.content.strip()
    if message.role == "system" or not text:
        return ""
    speaker = f"{message.role} {message.name}" if message.name else message.role
    return f"{speaker}: {cut_middle(text, chars_max)}"


def _what_failed(turn: Turn, trigger: Trigger, rules: TriggerRules) -> Note:
    """The tool, or else what the user had asked for, and the sentence that tells of the error; the rest is in the memory."""
    message = turn.messages[trigger.message] if trigger.message is not None else turn.messages[-1]
    said = cut_middle(
        trigger.sentences[0] if trigger.sentences else message.content.strip(), rules.summary_messages_chars_max
    )
    asked = next((one.content.strip() for one in turn.messages if one.role == "user" and one.content.strip()), None)
    tried = message.name or (asked if message.role != "user" else None)
    if not tried:
        return Note("failure", said)
    return Note("failure", cut_middle(tried, rules.summary_messages_chars_max), said or None)


def cut_middle(text: str, chars_max: int) -> str:
    """Head and tail with a mark between; the tail is shorter, but results and errors stand there."""
    if len(text) <= chars_max:
        return text
    room = max(chars_max - len(CUT), 0)
    tail = room // 4
    return f"{text[: room - tail].rstrip()}{CUT}{text[len(text) - tail :].lstrip() if tail else ''}"
