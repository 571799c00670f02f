"""What is remembered of a finished task?  One episodic memory: goal, decisions and their reasons, calls, outcome, time.

Pure.  It must not judge the run; the review does.
"""

from collections import Counter
from collections.abc import Iterator

from memory_service.domain import Json, Outcome
from memory_service.experience.review import Review
from memory_service.scripts import is_chinese
from memory_service.stores.postgres.tasks import TaskRun
from memory_service.tasks.calls import cut_arguments
from memory_service.tasks.closing import Closing
from memory_service.tasks.settings import TaskNumbers
from memory_service.tasks.wording import call_text
from memory_service.working.items import Step
from memory_service.write.drafts import Draft, plain_summary

EVENT_TYPE = "task_episode"
LABEL_CHARS_MAX = 128  # the contract's bound on a tag; a task made by hand may have any text as its type


def outcome_of(closing: Closing, review: Review, worth_reviewing_min: float) -> Outcome | None:
    """A success with failed calls, more repeated ones or clearly more effort than usual was a detour; an aborted task has none."""
    if closing.outcome == "aborted":
        return None
    if closing.outcome == "failure":
        return "failure"
    repeated = review.repeated_calls > review.baseline.effort.repeated_calls
    return "detour" if review.failed_calls or repeated or review.score >= worth_reviewing_min else "success"


def episode_of(run: TaskRun, closing: Closing, review: Review, outcome: Outcome | None, numbers: TaskNumbers) -> Draft:
    """The memory to write, complete: nothing of it is to be inferred."""
    content = "\n".join(_lines(closing, review, outcome, numbers))
    telling = outcome in ("failure", "detour") or bool(closing.feedback)
    return Draft(
        user_id=run.user_id,
        content=content,
        kind="episodic",
        summary=plain_summary(_summary(closing, outcome), numbers.episode_text_chars_max),
        event_type=EVENT_TYPE,
        tags=(closing.task_type,) if closing.task_type and len(closing.task_type) <= LABEL_CHARS_MAX else (),
        entities=(),
        tool_calls=tuple(_tool_call(call, numbers) for call in closing.calls[-numbers.episode_calls_max :]),
        outcome=outcome,
        importance=numbers.importance_telling if telling else numbers.importance_smooth,
        occurred_at=closing.at,
        agent_id=run.agent_id,
        session_id=run.session_id,
        task_id=run.task_id,
        metadata={
            "task_type": closing.task_type,
            "ended_as": closing.outcome,
            "duration_ms": closing.duration_ms,
            "steps": review.steps,
            "steps_expired": closing.expired,
        },
        infer=False,
    )


def _summary(closing: Closing, outcome: Outcome | None) -> str:
    chinese = is_chinese(closing.goal)
    ended = _ended(outcome, chinese=chinese)
    return f"任务“{closing.goal}”：{ended}。" if chinese else f"Task “{closing.goal}”: {ended}."


def _lines(closing: Closing, review: Review, outcome: Outcome | None, numbers: TaskNumbers) -> Iterator[str]:
    chinese, chars = is_chinese(closing.goal), numbers.episode_text_chars_max

    def say(english: str, chinese_text: str) -> str:
        return chinese_text if chinese else english

    seconds = f"{closing.duration_ms / 1000:.1f}"
    started = closing.started_at.strftime("%Y-%m-%d %H:%M:%S")
    ended = _ended(outcome, chinese=chinese)
    yield say(f"Task: {closing.goal}", f"任务：{closing.goal}")
    yield say(
        f"Outcome: {ended}. Started {started} UTC, took {seconds} s, {review.steps} steps, "
        f"{review.failed_calls} failed, {review.repeated_calls} repeated.",
        f"结果：{ended}。开始于 {started} UTC，用时 {seconds} 秒，共 {review.steps} 步，"
        f"失败 {review.failed_calls} 次，重复 {review.repeated_calls} 次。",
    )
    if closing.expired:
        yield say("Its steps had expired before it was finished.", "任务结束前，步骤记录已过期。")
    if closing.constraints:
        yield say("Constraints: ", "约束：") + "; ".join(_short(text, chars) for text in closing.constraints)
    decisions = [call for call in closing.calls if call.reason][-numbers.episode_decisions_max :]
    if decisions:
        yield say("Key decisions:", "关键决策：")
        yield from (f"- {_short(call.reason or '', chars)} → {_call(call, chars)}" for call in decisions)
    failures = [call for call in closing.calls if call.status == "error"][-numbers.episode_failures_max :]
    if failures:
        yield say("What failed:", "失败的调用：")
        yield from (f"- {_call(call, chars)}: {_short(call.error or '?', chars)}" for call in failures)
    if closing.calls:
        counted = Counter(call.tool for call in closing.calls)
        yield say("Tools: ", "工具：") + ", ".join(f"{tool} ×{n}" for tool, n in counted.most_common())
    if closing.result:
        yield say(f"Result: {_short(closing.result, chars)}", f"产出：{_short(closing.result, chars)}")
    if closing.feedback:
        yield say(f"Feedback: {_short(closing.feedback, chars)}", f"反馈：{_short(closing.feedback, chars)}")


def _ended(outcome: Outcome | None, *, chinese: bool) -> str:
    english = {"success": "success", "failure": "failure", "detour": "success after a detour", None: "aborted"}
    return (
        {"success": "成功", "failure": "失败", "detour": "绕弯路后成功", None: "中止"}[outcome]
        if chinese
        else english[outcome]
    )


def _tool_call(call: Step, numbers: TaskNumbers) -> Json:
    told: Json = {
        "tool": call.tool,
        "arguments": cut_arguments(call.arguments, numbers.episode_text_chars_max),
        "status": call.status,
    }
    if call.error:
        told["error"] = _short(call.error, numbers.episode_text_chars_max)
    if call.duration_ms is not None:
        told["duration_ms"] = call.duration_ms
    return told


def _call(call: Step, chars_max: int) -> str:
    return _short(call_text(call.tool, call.arguments), chars_max)


def _short(text: str, chars_max: int) -> str:
    """On one line, cut with a mark."""
    return plain_summary(text, chars_max)
