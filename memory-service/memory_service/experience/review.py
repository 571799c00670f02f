"""Did this run take more effort than it should have, and is it worth distilling?

A pure score over what was done: size against the baseline of the task type, what was asked for and never tried, repeats,
failures and retries.  The outcome does not enter the score, so that a "success" that was none still shows; a failure is always
worth it, and so are feedback and a call that failed on the way, for how it was cured is what a run teaches.  It must not look
for lessons; `distill` does.

score = 1 / (1 + exp(-slope × Σ weight × signal)), our own formula; its weights were set once on public runs, by hand and
nearly equal, because 30 positive runs can't carry a fit.
"""

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from memory_service.experience.baseline import Baseline, Effort
from memory_service.experience.review_rules import ReviewRules, ScoreNumbers
from memory_service.experience.trajectory import Step, Trajectory, argument_text, call_key, words
from memory_service.scripts import is_chinese
from memory_service.terms import Vocabulary, query_terms

_GOAL_WORD = re.compile(
    r"[^\W\u3400-\u9fff](?:(?:(?![\u3400-\u9fff])[\w@./:'’+-])*[^\W\u3400-\u9fff])?|[\u3400-\u9fff]+"
)
_WORD_CHARS_MIN = 2


@dataclass(frozen=True, slots=True)
class Review:
    """`effort` is what the service keeps of the run for later baselines; `near_repeats` includes the exact ones;
    `retries` are failed calls whose tool was called again later; `untouched` are words of the goal that no call carried.
    """

    steps: int
    tool_calls: int
    repeated_calls: int
    near_repeats: int
    failed_calls: int
    retries: int
    effort: Effort
    baseline: Baseline
    score: float
    worth_reviewing: bool
    reasons: tuple[str, ...]
    untouched: tuple[str, ...] = ()


def review_trajectory(trajectory: Trajectory, baseline: Baseline, rules: ReviewRules, vocabulary: Vocabulary) -> Review:
    """Judge one `analysed` trajectory.  Linear in its text; every call meets a bounded number of earlier ones."""
    untouched = untouched_goal_words(trajectory, rules, vocabulary)
    effort = _effort(trajectory, rules, len(untouched))
    near = _near_repeats(trajectory.steps, rules)
    failed = sum(step.failed for step in trajectory.steps)
    retries = _retries(trajectory.steps)
    score = _score(effort, baseline.effort, near, retries, failed, rules.score)
    forced = trajectory.outcome != "success" or failed > 0 or bool((trajectory.feedback or "").strip())
    counted = Review(
        steps=len(trajectory.steps),
        tool_calls=int(effort.tool_calls),
        repeated_calls=int(effort.repeated_calls),
        near_repeats=near,
        failed_calls=failed,
        retries=retries,
        effort=effort,
        baseline=baseline,
        score=score,
        worth_reviewing=forced or score >= rules.score.worth_reviewing_min,
        reasons=(),
        untouched=untouched,
    )
    return _with_reasons(counted, trajectory, rules)


def _effort(trajectory: Trajectory, rules: ReviewRules, untouched: int) -> Effort:
    steps = trajectory.steps
    durations = [step.duration_ms for step in steps if step.duration_ms is not None]
    return Effort(
        steps=len(steps),
        tool_calls=sum(step.tool.casefold() not in rules.tools.talk for step in steps),
        repeated_calls=len(steps) - len({call_key(step) for step in steps}),
        argument_chars=sum(len(argument_text(step)) for step in steps),
        untouched_goal_terms=untouched,
        closing_chars=len(argument_text(steps[-1])) if steps else 0,
        duration_ms=sum(durations) if steps and len(durations) == len(steps) else None,
    )


def untouched_goal_words(trajectory: Trajectory, rules: ReviewRules, vocabulary: Vocabulary) -> tuple[str, ...]:
    """Words of the goal that no call carries in its name, argument names or values, as written and in order; Chinese as bigrams.

    Compared by stem; stop words don't count, and what was only said to the user is not done.
    """
    done = "\n".join(
        f"{' '.join((step.tool, *step.arguments)).replace('_', ' ')} {argument_text(step)}"
        for step in trajectory.steps
        if step.tool.casefold() not in rules.tools.talk
    )
    carried = set(query_terms(done[: rules.limits.covered_chars_max], vocabulary))
    asked = dict.fromkeys(_GOAL_WORD.findall(trajectory.goal))
    missing: dict[str, str] = {}  # what identifies the word → the word
    for word in list(asked)[: rules.limits.lookup_terms_max]:
        terms = query_terms(word, vocabulary)
        if is_chinese(word):
            missing.update({term: term for term in terms if term not in carried})
        elif (
            terms
            and len(word) >= _WORD_CHARS_MIN
            and word.casefold() not in vocabulary.stop_words
            and terms[0] not in carried
        ):
            missing.setdefault(terms[0], word)
    return tuple(missing.values())


def _near_repeats(steps: Sequence[Step], rules: ReviewRules) -> int:
    """Calls whose words mostly stood in an earlier call of the same tool (Jaccard overlap)."""
    earlier: dict[str, list[frozenset[str]]] = defaultdict(list)
    found = 0
    for step in steps:
        mine = frozenset(words(f"{' '.join(step.arguments)} {argument_text(step)}"))
        near = (other for other in earlier[step.tool][-rules.limits.compared_calls_max :])
        found += any(_overlap(mine, other) >= rules.score.near_repeat_overlap for other in near)
        earlier[step.tool].append(mine)
    return found


def _overlap(one: frozenset[str], other: frozenset[str]) -> float:
    union = len(one | other)
    return len(one & other) / union if union else 1.0


def _retries(steps: Sequence[Step]) -> int:
    last_call = {step.tool: at for at, step in enumerate(steps)}
    return sum(step.failed and last_call[step.tool] > at for at, step in enumerate(steps))


def _score(effort: Effort, usual: Effort, near: int, retries: int, failed: int, numbers: ScoreNumbers) -> float:
    def ratio(mine: float | None, median: float | None) -> float:
        if mine is None or median is None:
            return 0.0
        return max(-numbers.ratio_max, min(numbers.ratio_max, math.log((1 + mine) / (1 + median))))

    def count(n: float) -> float:
        return n / (n + numbers.half_count)

    total = (
        numbers.steps * ratio(effort.steps, usual.steps)
        + numbers.argument_chars * ratio(effort.argument_chars, usual.argument_chars)
        + numbers.untouched_goal * ratio(effort.untouched_goal_terms, usual.untouched_goal_terms)
        + numbers.closing_chars * ratio(effort.closing_chars, usual.closing_chars)
        + numbers.duration * ratio(effort.duration_ms, usual.duration_ms)
        + numbers.repeats * count(near)
        + numbers.retries * count(retries)
        + numbers.failures * count(failed)
    )
    return 1 / (1 + math.exp(-numbers.slope * total))


def _stretches(untouched: Sequence[str], goal: str) -> list[str]:
    """For a reader: Chinese pairs that overlap in the goal are told as the stretch they stand in."""
    told: list[str] = []
    for word in untouched:
        longer = told[-1] + word[1:] if told and is_chinese(word) and told[-1][-1] == word[0] else ""
        if longer and longer in goal:
            told[-1] = longer
        else:
            told.append(word)
    return told


def _counted(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _with_reasons(review: Review, trajectory: Trajectory, rules: ReviewRules) -> Review:
    return replace(review, reasons=tuple(_reasons(review, trajectory, rules)))


def _reasons(review: Review, trajectory: Trajectory, rules: ReviewRules) -> list[str]:
    zh = trajectory.chinese
    usual = review.baseline.effort
    found: list[str] = []

    def say(true: bool, english: str, chinese: str) -> None:
        if true:
            found.append(chinese if zh else english)

    say(trajectory.outcome == "failure", "The run failed.", "任务失败。")
    say(trajectory.outcome == "aborted", "The run was aborted.", "任务中止。")
    say(trajectory.outcome == "detour", "The goal was reached by a detour.", "绕了弯路才完成。")
    say(bool((trajectory.feedback or "").strip()), "The user gave feedback.", "用户给了反馈。")
    say(
        review.failed_calls > 0,
        f"Calls that failed: {review.failed_calls}, of which tried again: {review.retries}.",
        f"失败的调用：{review.failed_calls} 次，其中重试 {review.retries} 次。",
    )
    say(
        review.near_repeats > 0,
        f"Calls that repeat or nearly repeat an earlier one: {review.near_repeats} (exactly: {review.repeated_calls}).",
        f"重复或几乎重复的调用：{review.near_repeats} 次（完全相同 {review.repeated_calls} 次）。",
    )
    say(
        review.steps > usual.steps,
        f"{_counted(review.steps, 'step')}; {usual.steps:g} are usual.",
        f"共 {review.steps} 步，通常 {usual.steps:g} 步。",
    )
    say(
        review.tool_calls > usual.tool_calls,
        f"{_counted(review.tool_calls, 'tool call')}; {usual.tool_calls:g} are usual.",
        f"工具调用 {review.tool_calls} 次，通常 {usual.tool_calls:g} 次。",
    )
    if (
        review.effort.duration_ms is not None
        and usual.duration_ms is not None
        and review.effort.duration_ms > usual.duration_ms
    ):
        mine, median = review.effort.duration_ms / 1000, usual.duration_ms / 1000
        say(True, f"It took {mine:.1f} s; {median:.1f} s are usual.", f"耗时 {mine:.1f} 秒，通常 {median:.1f} 秒。")
    say(review.effort.argument_chars > usual.argument_chars, "It wrote more than usual.", "写入的内容比通常多。")
    more_untouched = review.effort.untouched_goal_terms > usual.untouched_goal_terms
    named = ", ".join(_stretches(review.untouched, trajectory.goal)[: rules.limits.named_terms_max])
    say(
        more_untouched,
        f"More of the goal than usual reached no call: {named}.",
        f"目标中较多内容没有任何调用涉及：{named}。",
    )
    if not found:
        found.append("没有超出通常水平的地方。" if zh else "Nothing above the usual effort.")
    return found
