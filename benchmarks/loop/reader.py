"""How does the agent understand a text?  Stands in for the language model that would read it.

A reader of a dozen turns of phrase, English and Chinese, that knows no tool, no trap and no task: it collects what a text
names (`quoted` words, "at most 5", "written like …", "without …", "wait 5 s") with a sign, and tells how far a plan agrees.
It only orders plans that the agent would try anyway; it can't make one up.  Wrong advice is followed like good advice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.loop.subgoals import Plan
from benchmarks.loop.world import Call

ALIKE_WEIGHT = 0.5  # of a single earlier call against a lesson
How = Literal["named", "starts", "ends", "written", "at_most", "type", "wait", "identical", "alike"]

_QUOTED = re.compile(r"`([^`]+)`|\"([^\"]+)\"")
_LABELLED = re.compile(
    r"(?<!\w)(do|avoid|because|when|error|做法|避免|原因|当|错误|uncertain[^\"]*|不确定[^\"]*) (\"(?:[^\"\\]|\\.)*\")"
)
_LABELS = {"做法": "do", "避免": "avoid", "原因": "because", "当": "when", "错误": "error"}
_EARLIER = re.compile(
    r"(failed|worked|失败|成功)[^\"]*(?:arguments|参数|in this task|在本任务)?[^\"]*[:：]\s*(\"(?:[^\"\\]|\\.)*\")"
)
_ARGUMENT = re.compile(r"[(,]\s?([A-Za-z_][\w.]*)=")
_NARRATIVE = re.compile(
    r"^(?:What worked:|有效的做法|A run like this|这样的任务|Check each of these steps|先核实)|failed with “|报错“"
)
_NEGATED = re.compile(r"(?:\bwithout|\binstead of|去掉|缺少|代替)\s*(?:an? )?$", re.IGNORECASE)
_ASIDE = re.compile(r"(?:\bbefore|\bafter \w+ of)\s*$", re.IGNORECASE)
_ASIDE_AFTER = re.compile(r"^\s*(?:成功之前|返回|has worked)")
_STARTS, _ENDS, _WRITTEN = (
    re.compile(r"(?:starts? with|以)\s*$"),
    re.compile(r"(?:ends? (?:in|with)|以)\s*$"),
    re.compile(r"(?:written like|写成|用)\s*$"),
)
_STARTS_AFTER, _ENDS_AFTER, _WRITTEN_AFTER = (
    re.compile(r"^\s*开头"),
    re.compile(r"^\s*结尾"),
    re.compile(r"^\s*(?:的样子|这种写法)"),
)
_AT_MOST = re.compile(r"`?([\w.]+)`?\s*(?:at most|不超过|<=|≤)\s*(\d+(?:\.\d+)?)")
_TYPE = re.compile(r"`([\w.]+)`\s*(?:as an?|写成)\s*(whole number|number|string|list|boolean|整数)")
_WAIT = re.compile(r"(?:\bwait|retry.after:?|等待)\s*(\d+(?:\.\d+)?)", re.IGNORECASE)
_IDENTICAL = re.compile(r"identical|calling again at once|原样重复|立刻重试|完全相同", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Said:
    """One thing that a text names.  `sign`: +1 wanted, -1 unwanted.  `name` is an argument's where the text says so."""

    how: How
    value: str
    sign: int
    name: str = ""


def read(text: str) -> list[Said]:
    """What a hint says to do and, with the other sign, to avoid.

    Reasons, conditions and stories of whole runs are not followed.  Of a call that failed or worked before, its arguments are
    what was said.
    """
    said = [one for label, part in _parts(text) for one in _said(part, 1 if label == "do" else -1)]
    return said + [
        one for how, call in _EARLIER.findall(text) for one in _of_call(json.loads(call), how in ("worked", "成功"))
    ]


def read_error(error: str, failed: Plan, plan: Plan) -> float:
    """How far a plan does what an error message names and the failed plan did not have.  Without memory too."""
    before = set(_features(failed))
    named = sum(1 for feature in set(_features(plan)) - before if len(feature) > 2 and feature in error)
    asked = [Said("wait", found, 1) for found in _WAIT.findall(error)]
    return named + agreement(plan, asked, None)


def agreement(plan: Plan, said: Iterable[Said], last: Plan | None) -> float:
    """Sum over what was said.  `last` is the plan that failed just before."""
    return sum(one.sign * _fits(plan, one, last) for one in dict.fromkeys(said))


def about(text: str, tool: str) -> bool:
    """Whether a text speaks of a tool at all; what is said of another tool's arguments is not carried over."""
    return re.search(rf"(?<!\w){re.escape(tool)}(?!\w)", text) is not None


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """("do" | "avoid", what is said there) of a hint."""
    for label, quoted in _LABELLED.findall(text):
        part = json.loads(quoted)
        if _LABELS.get(label, label) in ("do", "avoid") and not _NARRATIVE.search(part):
            yield _LABELS.get(label, label), part


def _of_call(call: str, worked: bool) -> Iterator[Said]:
    """A whole call as one thing said: `tool(name=value, name=value)`."""
    marks = list(_ARGUMENT.finditer(call))
    ends = [*(mark.start() for mark in marks[1:]), len(call.rstrip(")"))]
    told = {mark.group(1): call[mark.end() : end] for mark, end in zip(marks, ends, strict=True)} if marks else {}
    if told:
        yield Said("alike", json.dumps(told, sort_keys=True), 1 if worked else -1)


def _said(part: str, sign: int) -> Iterator[Said]:
    for name, most in _AT_MOST.findall(part):
        yield Said("at_most", most, sign, name)
    for name, kind in _TYPE.findall(part):
        yield Said("type", kind, sign, name)
    for seconds in _WAIT.findall(part):
        yield Said("wait", seconds, sign)
    if _IDENTICAL.search(part):
        yield Said("identical", "", sign)
    for found in _QUOTED.finditer(part):
        before, after = part[: found.start()], part[found.end() :]
        if _ASIDE.search(before) or _ASIDE_AFTER.search(after):
            continue
        token = next(group for group in found.groups() if group is not None)
        yield Said(_how(before, after), token, -sign if _NEGATED.search(before) else sign)


def _how(before: str, after: str) -> How:
    if _STARTS_AFTER.search(after) or (
        _STARTS.search(before) and not _ENDS_AFTER.search(after) and "以" not in before[-3:]
    ):
        return "starts"
    if _ENDS_AFTER.search(after) or (_ENDS.search(before) and "以" not in before[-3:]):
        return "ends"
    if _WRITTEN_AFTER.search(after) or re.search(r"written like\s*$", before):
        return "written"
    return "named"


def _fits(plan: Plan, said: Said, last: Plan | None) -> float:
    call = plan.calls[-1]
    if said.how == "wait":
        return _waits(plan, float(said.value))
    if said.how == "identical":
        return float(last is not None and plan.calls == last.calls)
    if said.how == "alike":
        return _alike(call.arguments, json.loads(said.value))
    if said.how in ("at_most", "type"):
        value = call.arguments.get(said.name, ...)
        if value is ...:
            return 0.0
        if said.how == "type":
            return float(
                _type_of(value) == said.value or (said.value in ("whole number", "整数") and type(value) is int)
            )
        return float(_type_of(value) == "number" and value <= float(said.value))
    return float(any(_like(feature, said) for feature in _features(plan)))


def _waits(plan: Plan, seconds: float) -> float:
    """Long enough is good, much longer is a little worse."""
    waited = sum(call.arguments.get("seconds", 0) for call in plan.calls[:-1])
    return 1.0 - min(0.5, (waited - seconds) / 1000) if waited >= seconds else 0.0


def _alike(arguments: Mapping[str, Any], told: Mapping[str, Any]) -> float:
    """Share of arguments that are the same, below what a lesson counts: one case is weaker than a lesson."""
    mine = {
        name: json.dumps(value) if isinstance(value, Mapping) else _text(value) for name, value in arguments.items()
    }
    names = mine.keys() | told.keys()
    return ALIKE_WEIGHT * sum(mine.get(name) == told.get(name) for name in names) / max(1, len(names))


def _like(feature: str, said: Said) -> bool:
    if said.how == "starts":
        return feature.startswith(said.value)
    if said.how == "ends":
        return feature.endswith(said.value)
    if said.how == "written":
        return _shape(feature) == _shape(said.value) or (
            not re.search(r"\d", said.value) and _style(feature) == _style(said.value)
        )
    return feature == said.value or (" " in said.value and _shape(said.value) in _shape(feature))


def _shape(text: str) -> str:
    return re.sub(r"\d", "9", text)


def _style(text: str) -> frozenset[str]:
    """Which kinds of characters a word is made of: upper, lower, digits, and each separator."""
    return frozenset("A" if c.isupper() else "a" if c.islower() else "9" if c.isdigit() else c for c in text)


def _features(plan: Plan) -> Iterator[str]:
    """Everything about a plan that a text could name."""
    for call in plan.calls:
        yield call.tool
        yield from _named(call)


def _named(call: Call) -> Iterator[str]:
    for name, value in call.arguments.items():
        yield name
        if isinstance(value, Mapping):
            yield from value
        else:
            yield _text(value)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else "string" if isinstance(value, str) else "list"
