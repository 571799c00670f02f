"""Is this turn of a dialogue written at once, and why?  Pure.

Phrases and cues of config/triggers.toml (and the event types of config/summarise.toml) per sentence, the tool's status, and
what the session's buffer says.  Quotations, quoted lines, code, questions, suppositions and negations do not fire.  It must
not decide what is written or where; `turns` does that.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, get_args

from memory_service.errors import SetupRefused
from memory_service.settings import tables_of
from memory_service.write.event_types import cue_weight, is_question
from memory_service.write.rules import EventTypeRule, Pattern, SummaryRules, literal_pattern
from memory_service.write.sentences import QUOTATION, analysed_part, sentences

Role = Literal["system", "user", "assistant", "tool"]
ToolStatus = Literal["success", "error"]
TriggerName = Literal["preference", "correction", "tool_error", "tool_result", "state_change", "turn_count", "task_end"]
TRIGGERS: tuple[TriggerName, ...] = get_args(TriggerName)
SPOKEN: tuple[TriggerName, ...] = ("preference", "correction", "tool_error", "tool_result", "state_change", "task_end")

_CODE = re.compile(r"(?ms)^[ \t]{0,3}(```|~~~)[^\n]*\n.*?(?:^[ \t]{0,3}\1|\Z)")
_ENDS = ".!?。！？；"
_QUOTED_LINE = re.compile(r"(?m)^[ \t]{0,3}>.*$")


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a turn, as the caller wrote it."""

    role: Role
    content: str
    name: str | None = None
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """A user message and what answers it; `last_tool_status` is the caller's word on the last tool call."""

    messages: tuple[Message, ...]
    last_tool_status: ToolStatus | None = None


@dataclass(frozen=True, slots=True)
class BufferState:
    """What the session's buffer knows before this turn: turns since the last write, and of the task what the caller saw."""

    turns_since_write: int = 0
    task_changed: bool = False
    task_ended: bool = False


@dataclass(frozen=True, slots=True)
class Trigger:
    """`message` is the index of the message that fired, None when none did; `sentences` are those in it that did, as written."""

    name: TriggerName
    message: int | None = None
    sentences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TriggerRule:
    name: TriggerName
    roles: frozenset[str]
    event_types: tuple[EventTypeRule, ...]
    weight_min: float
    phrases: tuple[Pattern, ...]
    requests: tuple[Pattern, ...]
    denied: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class TriggerRules:
    """config/triggers.toml, compiled, with the summariser's rules that it refers to."""

    turns_between_writes: int
    messages_max: int
    draft_chars_max: int
    summary_messages_chars_max: int
    message_head_chars_max: int
    message_tail_chars_max: int
    tool_head_chars_max: int
    tool_tail_chars_max: int
    denied: tuple[Pattern, ...]
    wish: EventTypeRule
    rules: tuple[TriggerRule, ...]
    summary: SummaryRules


def should_write(turn: Turn, buffer: BufferState, rules: TriggerRules) -> tuple[Trigger, ...]:
    """What fires, in the order of TRIGGERS, each once; empty when the turn only joins the buffer."""
    found = _spoken(turn, rules)
    if turn.last_tool_status == "error":
        found.setdefault("tool_error", Trigger("tool_error", _last_tool_message(turn)))
    if buffer.task_changed:
        found.setdefault("state_change", Trigger("state_change"))
    if buffer.task_ended:
        found.setdefault("task_end", Trigger("task_end"))
    if buffer.turns_since_write + 1 >= rules.turns_between_writes:
        found["turn_count"] = Trigger("turn_count")
    return tuple(found[name] for name in TRIGGERS if name in found)


def _spoken(turn: Turn, rules: TriggerRules) -> dict[TriggerName, Trigger]:
    """What the messages say; of one trigger the last message that fires, since it says how things stand."""
    found: dict[TriggerName, Trigger] = {}
    for index, message in _read_messages(turn.messages, rules.messages_max):
        concerned = [rule for rule in rules.rules if message.role in rule.roles]
        if not concerned:
            continue
        stated = list(_stated(message, rules))
        for rule in concerned:
            if _overruled(rule.name, message, turn.last_tool_status):
                continue
            fired = tuple(written for sentence, written in stated if fires(sentence, rule, rules))
            if fired:
                found[rule.name] = Trigger(rule.name, index, fired)
    return found


def fires(sentence: str, rule: TriggerRule, rules: TriggerRules) -> bool:
    """Does one statement, or a request put as a question, without quotations, set this trigger off?"""
    if any(pattern.search(sentence) for pattern in (*rules.denied, *rule.denied)):
        return False
    if any(pattern.search(sentence) for pattern in rule.requests):
        return True
    if is_question(sentence, rules.summary):
        return False
    if any(pattern.search(sentence) for pattern in rule.phrases):
        return True
    return any(cue_weight(sentence, event_type) >= rule.weight_min for event_type in rule.event_types)


def _overruled(name: TriggerName, message: Message, status: ToolStatus | None) -> bool:
    """The caller's word on the tool's status counts more than what its output looks like: a log full of errors can be read well."""
    if message.role != "tool" or status is None:
        return False
    return (name, status) in {("tool_error", "success"), ("tool_result", "error")}


def _read_messages(messages: Sequence[Message], most: int) -> list[tuple[int, Message]]:
    """All with their indexes; of too many the first and the last ones."""
    numbered = list(enumerate(messages))
    return numbered if len(numbered) <= most else numbered[: most // 2] + numbered[len(numbered) - (most - most // 2) :]


def _stated(message: Message, rules: TriggerRules) -> Iterator[tuple[str, str]]:
    """(What the writer states, the same as written): no code, no quoted lines, and in the first no quotations.

    A tool's answer is read at its head and tail, quotes and all: JSON is full of them.
    """
    if message.role == "tool":
        written = _ends(message.content, rules.tool_head_chars_max, rules.tool_tail_chars_max)
        text = written
    else:
        text = _ends(message.content, rules.message_head_chars_max, rules.message_tail_chars_max)
        written = _QUOTED_LINE.sub(" ", _CODE.sub("\n", analysed_part(text, rules.summary.limits)))
        text = QUOTATION.sub(lambda quoted: " " * len(quoted.group()), written)
    end = 0
    for sentence in sentences(text, rules.summary.limits.sentence_chars_max):
        start = text.find(sentence, end)
        after = start + len(sentence)
        while (
            start > end and text[start - 1] == " "
        ):  # a quotation at the edge of a sentence was blanked, and is part of it
            start -= 1
        while sentence[-1] not in _ENDS and after < len(text) and text[after] == " ":
            after += 1
        end = after
        yield sentence, written[start:after].strip()


def _ends(text: str, head: int, tail: int) -> str:
    """Head and tail of a long text with a line break between; the whole of a short one."""
    return text if len(text) <= head + tail else f"{text[:head]}\n{text[len(text) - tail :]}"


def _last_tool_message(turn: Turn) -> int | None:
    return next((i for i in range(len(turn.messages) - 1, -1, -1) if turn.messages[i].role == "tool"), None)


def load_trigger_rules(path: Path, summary: SummaryRules) -> TriggerRules:
    """Read config/triggers.toml.  Raises SetupRefused naming the entry that is wrong."""
    tables = tables_of(path)
    for name in sorted(set(tables) - {"limits", "denied", "wish", "trigger"}):
        raise SetupRefused(f"{path}: the entry {name} is unknown.")
    rows = tables.get("trigger")
    if not isinstance(rows, list):
        raise SetupRefused(f"{path}: there must be [[trigger]] tables.")
    rules = tuple(_rule(path, row, summary) for row in rows)
    if sorted(rule.name for rule in rules) != sorted(SPOKEN):
        raise SetupRefused(f"{path}: [[trigger]] must name each of {', '.join(SPOKEN)} once.")
    limits = _table(path, "limits", tables.get("limits"), LIMITS)
    denied = _table(path, "denied", tables.get("denied"), ("any",))
    return TriggerRules(
        **{name: _positive(path, name, limits[name]) for name in LIMITS},
        denied=_patterns(path, "denied.any", denied["any"]),
        wish=_wish(path, tables.get("wish"), summary),
        rules=rules,
        summary=summary,
    )


LIMITS = (
    "turns_between_writes", "messages_max", "draft_chars_max", "summary_messages_chars_max", "message_head_chars_max",
    "message_tail_chars_max", "tool_head_chars_max", "tool_tail_chars_max",
)  # fmt: skip
RULE_KEYS = ("name", "roles", "event_types", "weight_min", "phrases", "requests", "denied")


def _wish(path: Path, table: object, summary: SummaryRules) -> EventTypeRule:
    name = _table(path, "wish", table, ("event_type",))["event_type"]
    found = next((one for one in summary.event_types if one.name == name and one.category is not None), None)
    if found is None:
        raise SetupRefused(f"{path}: wish.event_type must be a name from summarise.toml that has a category.")
    return found


def _rule(path: Path, row: object, summary: SummaryRules) -> TriggerRule:
    table = _table(path, "trigger", row, RULE_KEYS)
    name, roles = table["name"], table["roles"]
    if name not in SPOKEN:
        raise SetupRefused(f"{path}: trigger.name {name!r} is none of {', '.join(SPOKEN)}.")
    if not isinstance(roles, list) or not roles or not set(map(str, roles)) <= set(get_args(Role)):
        raise SetupRefused(f"{path}: trigger {name}: roles must be of {', '.join(get_args(Role))}.")
    known = {rule.name: rule for rule in summary.event_types}
    types = table["event_types"]
    if not isinstance(types, list) or not all(one in known for one in types):
        raise SetupRefused(f"{path}: trigger {name}: event_types must be names from summarise.toml.")
    return TriggerRule(
        name=next(one for one in SPOKEN if one == name),
        roles=frozenset(map(str, roles)),
        event_types=tuple(known[one] for one in types),
        weight_min=_positive(path, f"{name}.weight_min", table["weight_min"]),
        phrases=_patterns(path, f"{name}.phrases", table["phrases"]),
        requests=_patterns(path, f"{name}.requests", table["requests"]),
        denied=_patterns(path, f"{name}.denied", table["denied"]),
    )


def _table(path: Path, name: str, table: object, keys: Sequence[str]) -> Mapping[str, object]:
    if not isinstance(table, dict) or set(table) != set(keys):
        raise SetupRefused(f"{path}: {name} must have exactly the entries {', '.join(keys)}.")
    return table


def _positive(path: Path, name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value < 1e9:
        raise SetupRefused(f"{path}: {name} must be a number of 1 or more.")
    return int(value)


def _patterns(path: Path, name: str, phrases: object) -> tuple[Pattern, ...]:
    """Compiled like the summariser's cues: ASCII word borders, so that "用Redis" has one."""
    if not isinstance(phrases, list) or not all(isinstance(one, str) and one.strip() for one in phrases):
        raise SetupRefused(f"{path}: {name} must be a list of texts.")
    compiled = []
    for phrase in phrases:
        try:
            source = phrase[3:] if phrase.startswith("re:") else literal_pattern(phrase)
            compiled.append(re.compile(source, re.ASCII | re.IGNORECASE))
        except re.error as problem:
            raise SetupRefused(f"{path}: {name} has the bad pattern {phrase!r}: {problem}") from problem
    return tuple(compiled)
