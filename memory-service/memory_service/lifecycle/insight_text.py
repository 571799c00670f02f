"""How is a finding said?  Action, what to avoid and why, or one statement of fact; English or Chinese like its sources.  Pure."""

import hashlib
from dataclasses import dataclass
from uuid import UUID

from memory_service.experience.distill_rules import DistillRules
from memory_service.experience.quoting import safe_text
from memory_service.lifecycle.insights import ABSENT, Finding
from memory_service.lifecycle.summary_text import date_range

UUID_VERSION, UUID_VARIANT = 0x7 << 76, 0x2 << 62
RANDOM_BITS = (1 << 74) - 1


@dataclass(frozen=True, slots=True)
class LessonTexts:
    action: str
    avoid: str
    rationale: str


def lesson_texts(finding: Finding, rules: DistillRules) -> LessonTexts:
    """Of a finding with a cure."""
    zh, tool, cure = finding.chinese, finding.tool, finding.cure
    when = f"{tool} 报 {finding.cause} 错误时" if zh else f"When `{tool}` fails with {finding.cause}"
    why = _why(finding, rules)
    if cure.kind == "other_tool":
        action = f"{when}，改用 {cure.tool}。" if zh else f"{when}, use `{cure.tool}` instead."
        avoid = f"不要反复调用 {tool}。" if zh else f"Calling `{tool}` again and again."
        mended = f"改用 {cure.tool} 之后都成功了。" if zh else f"each time `{cure.tool}` worked instead."
        return LessonTexts(action, avoid, why + mended)
    if cure.kind == "again":
        action = f"{when}，用同样的参数再调用一次。" if zh else f"{when}, make the same call once more."
        mended = "同样的调用再试一次都成功了。" if zh else "each time the same call worked later."
        return LessonTexts(action, "", why + mended)
    shown = _with(cure.path, cure.new, chinese=zh)
    action = f"调用 {tool} 时{shown}。" if zh else f"Call `{tool}` {shown}."
    avoid = ""
    if finding.old is not None:
        old = _with(cure.path, finding.old, chinese=zh)
        avoid = f"不要{old} 来调用 {tool}。" if zh else f"Calling `{tool}` {old}."
    mended = f"{shown} 之后都成功了。" if zh else f"each time it worked {shown}."
    return LessonTexts(action, avoid, why + mended)


def fact_text(finding: Finding, rules: DistillRules) -> str:
    """Of a finding without a cure: what keeps failing."""
    dates = date_range(finding.first, finding.last, chinese=finding.chinese)
    count, said = len(finding.sources), _quoted(finding, rules)
    if finding.chinese:
        return (
            f"{finding.tool} 常报 {finding.cause} 错误{said}：{count} 次任务中出现（{dates}），试过的办法都没有解决。"
        )
    return f"{finding.tool} keeps failing with {finding.cause}{said}: in {count} episodes ({dates}), and nothing that was tried mended it."


def insight_id(finding: Finding, tenant: str, user_id: str) -> UUID:
    """The same for the same finding from the same first episode on: what was erased is not proposed from the same evidence again.

    A UUIDv7 with the time of that episode and a hash in place of the random bits.
    """
    text = f"insight\0{tenant}\0{user_id}\0{finding.key}\0{finding.sources[0]}".encode()
    digest = int.from_bytes(hashlib.sha256(text).digest()[:10], "big") & RANDOM_BITS
    time_bits = finding.sources[0].int >> 80
    return UUID(int=time_bits << 80 | UUID_VERSION | (digest >> 62) << 64 | UUID_VARIANT | digest & ((1 << 62) - 1))


def _why(finding: Finding, rules: DistillRules) -> str:
    count, said = len(finding.sources), _quoted(finding, rules)
    if finding.chinese:
        return f"在 {count} 次任务中，{finding.tool} 报 {finding.cause} 错误{said}；"
    return f"In {count} episodes `{finding.tool}` failed with {finding.cause}{said}; "


def _quoted(finding: Finding, rules: DistillRules) -> str:
    """The error's words where all sources have the same."""
    text = safe_text(finding.error, rules, rules.limits.quote_chars_max)
    return f"（“{text}”）" if text and finding.chinese else f" (“{text}”)" if text else ""


def _with(path: str, value: str, *, chinese: bool) -> str:
    if value == ABSENT:
        return f"不带 {path}" if chinese else f"without `{path}`"
    return f"让 {path} = {value}" if chinese else f"with `{path}` = {value}"
