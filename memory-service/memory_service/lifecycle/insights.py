"""What do several episodes share that none of them says?  The same tool, the same cause of failure, the same cure.  Pure.

A failed call is an incident; its cure is what differed when the tool next worked in that episode, or the tool that was used
instead.  What at least `episodes_min` episodes share is a finding.  A finding says only what all of its sources show, so that
it still holds, and tells nobody's secret, when one of them is erased.  It must not word (insight_text) or store anything.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from memory_service.domain import Json
from memory_service.experience.distill.values import is_general, is_limit_name
from memory_service.experience.distill_rules import DistillRules
from memory_service.experience.quoting import MASK, is_secret_name, masked
from memory_service.experience.trajectory import Step, call_key, flat_arguments, leaves
from memory_service.lifecycle.insight_rules import InsightNumbers

CureKind = Literal["argument", "other_tool", "again", "none"]
ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Episode:
    """One remembered run or event with its calls, oldest first."""

    id: UUID
    at: datetime
    calls: tuple[Step, ...]
    task_type: str | None = None
    chinese: bool = False


@dataclass(frozen=True, slots=True)
class Cure:
    """`argument`: `path` had to be `new` (JSON text; ABSENT: left out).  `other_tool`: `tool` worked instead.  `again`: the
    same call did.
    """

    kind: CureKind
    path: str = ""
    new: str = ""
    tool: str = ""


@dataclass(frozen=True, slots=True)
class Incident:
    """One failed call.  `old` is what the cured argument was then (JSON text or ABSENT)."""

    episode: Episode
    tool: str
    cause: str
    error: str
    cure: Cure
    old: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """What `sources` (oldest first) share.  `old`: what the argument was in all of them, None when it differed or worked elsewhere.

    `error` is its text where all have the same, else "".  `calls` and `failed` count this tool in the episodes looked at.
    """

    tool: str
    cause: str
    cure: Cure
    sources: tuple[UUID, ...]
    first: datetime
    last: datetime
    old: str | None
    error: str
    task_type: str | None
    calls: int
    failed: int
    chinese: bool

    @property
    def key(self) -> str:
        """Equal for the same finding of another day."""
        return json.dumps([self.tool, self.cause, self.cure.kind, self.cure.path, self.cure.new, self.cure.tool])


def findings_of(episodes: Sequence[Episode], rules: DistillRules, numbers: InsightNumbers) -> list[Finding]:
    """Those that most episodes share first, at most `found_max`.  Linear in the number of calls."""
    shared: dict[tuple[str, str, Cure], list[Incident]] = defaultdict(list)
    uncured: dict[tuple[str, str], list[Incident]] = defaultdict(list)
    cured: set[tuple[str, str, UUID]] = set()
    for episode in episodes:
        for one in incidents_of(episode, rules, numbers):
            if one.cure.kind == "none":
                uncured[one.tool, one.cause].append(one)
            else:
                shared[one.tool, one.cause, one.cure].append(one)
                cured.add((one.tool, one.cause, one.episode.id))
    usage = _usage(episodes)
    found = [_finding(incidents, usage) for incidents in shared.values() if _enough(incidents, numbers)]
    told = {(one.tool, one.cause) for one in found}
    for (tool, cause), incidents in uncured.items():
        helped = sum(1 for t, c, _ in cured if (t, c) == (tool, cause))
        if (tool, cause) not in told and _enough(incidents, numbers) and helped < len(_ids(incidents)):
            found.append(_finding(incidents, usage))
    return sorted(found, key=lambda one: (-len(one.sources), one.key))[: numbers.found_max]


def incidents_of(episode: Episode, rules: DistillRules, numbers: InsightNumbers) -> Iterator[Incident]:
    """One for each different failure of an episode; repeating a failing call is no further one."""
    seen: set[tuple[str, str, Cure]] = set()
    calls = episode.calls[-numbers.calls_max :]
    for at, call in enumerate(calls):
        if not call.failed or not call.tool or call.tool in rules.tools.wait or call.tool in rules.tools.think:
            continue
        cause = rules.error_class(call.error or call.result)
        cure, old = _cure(calls, at, cause, rules, numbers)
        if (call.tool, cause, cure) in seen or cause == "none":
            continue
        seen.add((call.tool, cause, cure))
        yield Incident(episode, call.tool, cause, " ".join(call.error.split()), cure, old)


def _cure(calls: Sequence[Step], at: int, cause: str, rules: DistillRules, numbers: InsightNumbers) -> tuple[Cure, str]:
    """What mended it, and what the argument was before; Cure("none") when nothing did, or nothing that can be named."""
    failed, nothing = calls[at], (Cure("none"), "")
    later = calls[at + 1 : at + 1 + numbers.lookahead_calls_max]
    for step in later:
        if step.tool == failed.tool and not step.failed:
            if call_key(step) == call_key(failed):
                return nothing if rules.is_permanent(cause) else (Cure("again"), "")
            return _changed(failed, step, rules, numbers) or nothing
    if any(step.tool == failed.tool for step in later):
        return nothing  # it was tried again and failed again: what came after is another story
    skipped = rules.tools.wait | rules.tools.think
    other = next((step for step in later if step.tool not in skipped), None)
    if other is None or other.failed or not _about_the_same(failed, other):
        return nothing  # what comes next anyway, such as telling the user, is no cure
    return Cure("other_tool", tool=other.tool), ""


def _about_the_same(failed: Step, other: Step) -> bool:
    """Does the other tool get something that the failed call had?"""
    had, got = set(leaves(failed.arguments)), set(leaves(other.arguments))
    return bool({value for value in had & got if value.strip()})


def _changed(failed: Step, worked: Step, rules: DistillRules, numbers: InsightNumbers) -> tuple[Cure, str] | None:
    """The one argument that another run can set in the same way; None when there is none, or more than one."""
    before, after = flat_arguments(failed.arguments), flat_arguments(worked.arguments)
    changed = [path for path in sorted({*before, *after}) if before.get(path, ...) != after.get(path, ...)]
    if len(changed) > numbers.changed_arguments_max:
        return None
    told = []
    for path in changed:
        old, new = (
            _shown(path, before.get(path, ...), rules, numbers),
            _shown(path, after.get(path, ...), rules, numbers),
        )
        if new:
            told.append((Cure("argument", path=path, new=new), old))
    return told[0] if len(told) == 1 else None


def _shown(path: str, value: Any, rules: DistillRules, numbers: InsightNumbers) -> str:
    """The value as JSON, ABSENT for none; "" for one of this run only, or a secret."""
    if value is ...:
        return ABSENT
    counts = isinstance(value, int | float) and not isinstance(value, bool) and is_limit_name(path)
    if not counts and not is_general(path, value, numbers.value_chars_max):
        return ""
    text = json.dumps(value, ensure_ascii=False)
    return "" if is_secret_name(path, rules) or MASK in masked(text, rules) else text


def _enough(incidents: Sequence[Incident], numbers: InsightNumbers) -> bool:
    return len(_ids(incidents)) >= numbers.episodes_min


def _ids(incidents: Sequence[Incident]) -> set[UUID]:
    return {one.episode.id for one in incidents}


@dataclass(frozen=True, slots=True)
class _Usage:
    """How often a tool was called and failed, and with which values of which argument it worked."""

    calls: dict[str, int]
    failed: dict[str, int]
    worked_with: dict[tuple[str, str, str], int]


def _usage(episodes: Sequence[Episode]) -> _Usage:
    calls: dict[str, int] = defaultdict(int)
    failed: dict[str, int] = defaultdict(int)
    worked: dict[tuple[str, str, str], int] = defaultdict(int)
    for episode in episodes:
        for call in episode.calls:
            calls[call.tool] += 1
            failed[call.tool] += call.failed
            if not call.failed:
                for path, value in flat_arguments(call.arguments).items():
                    if isinstance(value, str | int | float | bool):
                        worked[call.tool, path, json.dumps(value, ensure_ascii=False)] += 1
    return _Usage(calls, failed, worked)


def _finding(incidents: Sequence[Incident], usage: _Usage) -> Finding:
    first = incidents[0]
    episodes = sorted({one.episode.id: one.episode for one in incidents}.values(), key=lambda e: (e.at, e.id))
    olds, errors = {one.old for one in incidents}, {one.error for one in incidents}
    types = {episode.task_type for episode in episodes}
    old = olds.pop() if len(olds) == 1 else ""
    worked = usage.worked_with.get((first.tool, first.cure.path, old), 0)
    chinese = sum(episode.chinese for episode in episodes)
    return Finding(
        tool=first.tool,
        cause=first.cause,
        cure=first.cure,
        sources=tuple(episode.id for episode in episodes),
        first=episodes[0].at,
        last=episodes[-1].at,
        # A value that worked elsewhere as often as it failed is not the mistake: then only the failure tells.
        old=old if old and worked < len(incidents) else None,
        error=errors.pop() if len(errors) == 1 else "",
        task_type=types.pop() if len(types) == 1 else None,
        calls=usage.calls[first.tool],
        failed=usage.failed[first.tool],
        chinese=2 * chinese > len(episodes),
    )


def conditions_of(finding: Finding) -> list[Json]:
    """When it applies: before the mistake where the arguments show it, else after the failure."""
    tool: Json = {"field": "tool", "operator": "eq", "value": finding.tool}
    if finding.cure.kind == "argument" and finding.old is not None:
        field = f"arguments.{finding.cure.path}"
        if finding.old == ABSENT:
            return [tool, {"field": field, "operator": "exists", "value": False}]
        return [tool, {"field": field, "operator": "eq", "value": json.loads(finding.old)}]
    after = [
        {"field": "last_error_tool", "operator": "eq", "value": finding.tool},
        {"field": "last_error_class", "operator": "eq", "value": finding.cause},
    ]
    return after if finding.cure.kind == "other_tool" else [tool, *after]
