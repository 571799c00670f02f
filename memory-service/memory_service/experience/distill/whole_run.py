"""What is there to tell of the run as a whole?

One lesson per run: the way that worked, or where it went wrong, with enough of the case that a similar task finds it again.
It never claims to know the cause of a failure; it quotes the steps to look at.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from memory_service.experience.distill.decisive import decisive_steps, telling_passages
from memory_service.experience.distill.run_view import RunView
from memory_service.experience.lessons import Lesson
from memory_service.experience.trajectory import Step
from memory_service.experience.word_breaks import all_chinese
from memory_service.terms import query_terms

_NOTHING = re.compile(
    r"(?:null|none|nil|no (?:results?|matches|hits|rows|items|data)(?: (?:were )?found)?|0 (?:results?|rows|matches|hits)"
    r"|nothing found|not found|\(0 rows\)|没有结果|无结果|未找到|无数据)[.。]?",
    re.IGNORECASE,
)


def whole_run(run: RunView) -> Iterator[Lesson]:
    if not run.steps:
        return
    yield _worked(run) if run.trajectory.outcome in ("success", "detour") else _went_wrong(run)


def _worked(run: RunView) -> Lesson:
    """Without failures and within the usual effort it is a success, else a detour whose wrong turns are named."""
    wrong = tuple(at for at, step in enumerate(run.steps) if step.failed)
    detour = run.trajectory.outcome == "detour" or bool(wrong) or run.review.worth_reviewing
    working = [at for at, step in enumerate(run.steps) if not step.failed and run.is_call(step)]
    return run.lesson(
        "what_worked",
        run.goal_conditions(run.rules.limits.goal_terms),
        (*wrong, *working[-2:]),
        action=run.say(f"What worked: {_way(run)}.", f"有效的做法：{_way(run)}。"),
        avoid="; ".join(filter(None, (_errors(run), _in_vain(run)))),
        rationale=_case(run),
        origin="detour" if detour else "success",
    )


def _went_wrong(run: RunView) -> Lesson:
    looked_at = decisive_steps(run)
    quotes = "; ".join(
        run.say(
            f"step {at} ({run.quote(run.steps[at].tool, 40)}): “{told}”",
            f"第 {at} 步（{run.quote(run.steps[at].tool, 40)}）：“{told}”",
        )
        for at, told in zip(looked_at, _told(run, looked_at), strict=True)
    )
    missed = ", ".join(_missed(run)[: run.rules.review.limits.named_terms_max])
    todo = [run.say("Check each of these steps against a source before building on it.", "先核实这些步骤，再往下做。")]
    if missed and not run.dialogue:
        todo.append(run.say(f"Cover what no call touched: {missed}.", f"补上没有任何调用涉及的内容：{missed}。"))
    ended = run.say("was aborted", "中止") if run.trajectory.outcome == "aborted" else run.say("failed", "失败")
    way = "" if run.dialogue else run.say(f" It went: {_way(run)}.", f"过程：{_way(run)}。")
    return run.lesson(
        "what_went_wrong",
        run.goal_conditions(run.rules.limits.goal_terms),
        looked_at,
        action=" ".join(todo) + way,
        avoid=run.say(f"A run like this {ended}. Look first at {quotes}", f"这样的任务{ended}了。先看{quotes}"),
        rationale=_case(run),
        origin="failure",
    )


def _case(run: RunView) -> str:
    """The goal and the most that the user said on the way, which is what makes the task recognisable."""
    said = max((step.result for step in run.steps if run.is_talk(step)), key=len, default="")
    quoted = run.quote(said, run.rules.limits.said_chars_max) if said and run.rules.limits.said_chars_max else ""
    told = run.say(f" The user: “{quoted}”", f"用户：“{quoted}”") if quoted else ""
    return run.say(f"The goal was: {run.goal_gist()}", f"目标：{run.goal_gist()}") + told


def _missed(run: RunView) -> list[str]:
    """Words of the goal that no call carried, without what any goal asks: "fetch" is done by calls of any name."""
    dull = run.rules.doing_terms | run.rules.generic_goal_terms
    likely = set(run.rules.word_breaks.words(run.trajectory.goal))
    return [
        word
        for word in run.review.untouched
        if dull.isdisjoint(query_terms(word, run.rules.vocabulary)) and (word in likely or not all_chinese(word))
    ]


def _way(run: RunView) -> str:
    """`a` → `b` ×3 → `c`: the calls that brought something, or the speakers, in order; the last ones when there are many."""
    if not run.dialogue and not any(run.is_call(step) and not step.failed for step in run.steps):
        if any(run.is_call(step) for step in run.steps):
            return run.say("no call worked", "没有一次调用成功")
        return run.say("talking only", "只有对话")
    vain = in_vain(run)
    names = [
        step.tool
        for at, step in enumerate(run.steps)
        if run.dialogue or (not step.failed and run.is_call(step) and at not in vain)
    ]
    grouped = [(name, len(list(group))) for name, group in groupby(names)][-run.rules.limits.tools_named_max :]
    return " → ".join(f"`{run.quote(name, 60)}`" + (f" ×{n}" if n > 1 else "") for name, n in grouped)


def in_vain(run: RunView) -> frozenset[int]:
    """Calls that answered with nothing, when a later call brought something: the detour is not the way."""
    brought = [at for at, step in enumerate(run.steps) if run.is_call(step) and not step.failed and not _is_empty(step)]
    last = brought[-1] if brought else -1
    return frozenset(
        at
        for at, step in enumerate(run.steps)
        if at < last and run.is_call(step) and not step.failed and _is_empty(step)
    )


def _is_empty(step: Step) -> bool:
    """An answer that holds nothing.  A step without a result says nothing about it."""
    text = step.result.strip()
    if not text:
        return False
    if _NOTHING.fullmatch(text):
        return True
    if text[0] not in "[{":
        return False
    try:
        found = json.loads(text)
    except ValueError:
        return False
    lists = list(found.values()) if isinstance(found, dict) else found
    return not lists or (any(isinstance(one, list) for one in lists) and not any(_holds(one) for one in lists))


def _holds(value: object) -> bool:
    """Whether part of an answer is something: not an empty list, nothing, zero, or a flag."""
    return not (value in (None, "", 0, "0") or isinstance(value, bool) or value == [] or value == {})


def _in_vain(run: RunView) -> str:
    """`tool` brought nothing (×3), for each tool with such calls, two at most."""
    counts = Counter(run.steps[at].tool for at in sorted(in_vain(run)))
    told = [
        run.say(f"`{run.quote(tool, 60)}` brought nothing", f"`{run.quote(tool, 60)}` 没有返回任何内容")
        + (f" (×{n})" if n > 1 else "")
        for tool, n in counts.items()
    ]
    return "; ".join(told[:2])


def _errors(run: RunView) -> str:
    """The distinct errors of a run that still got there, newest last, two at most."""
    told = dict.fromkeys(
        run.say(
            f"`{step.tool}` failed with “{run.quote(step.error or step.result)}”",
            f"`{step.tool}` 报错“{run.quote(step.error or step.result)}”",
        )
        for step in run.steps
        if step.failed
    )
    return "; ".join(list(told)[:2])


def _told(run: RunView, chosen: Sequence[int]) -> list[str]:
    """The error of a failed call, else what was said or asked."""
    if run.dialogue:
        return [run.quote(passage) for passage in telling_passages(run, chosen)]
    steps = [run.steps[at] for at in chosen]
    return [run.quote(step.error if step.failed and step.error else run.shown_arguments(step)) for step in steps]
