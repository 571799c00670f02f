"""What is there to tell of the run as a whole?

One lesson per run: the way that worked, or where it went wrong, with enough of the case that a similar task finds it again.
It never claims to know the cause of a failure; it quotes the steps to look at.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

from memory_service.experience.distill.decisive import decisive_steps, telling_passages
from memory_service.experience.distill.run_view import RunView
from memory_service.experience.lessons import Lesson


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
        avoid=_errors(run),
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
    missed = ", ".join(run.review.untouched[: run.rules.review.limits.named_terms_max])
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


def _way(run: RunView) -> str:
    """`a` → `b` ×3 → `c`: the calls that worked, or the speakers, in order; the last ones when there are many."""
    names = [step.tool for step in run.steps if run.dialogue or (not step.failed and run.is_call(step))]
    grouped = [(name, len(list(group))) for name, group in groupby(names)][-run.rules.limits.tools_named_max :]
    return " → ".join(f"`{run.quote(name, 60)}`" + (f" ×{n}" if n > 1 else "") for name, n in grouped) or run.say(
        "talking only", "只有对话"
    )


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
