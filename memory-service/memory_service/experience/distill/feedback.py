"""What did the user say about the run?

Explicit feedback is the surest lesson there is: it is kept in the user's words, bound to this kind of task.
"""

import re
from collections.abc import Iterator

from memory_service.experience.distill.run_view import RunView
from memory_service.experience.lessons import Lesson, Triple

_SENTENCE = re.compile(r"[^。！？!?；;\n.]+(?:[。！？!?；;]|\.(?=\s|$)|\.(?=\S)[^。！？!?；;\n.]*)*")
_NEGATED = re.compile(
    r"\b(?:don't|do not|never|stop|avoid|shouldn't|should not|mustn't|must not|no need to|wrong"
    r"|instead of)\b|不要|别再|别|不应|不该|禁止|避免|勿|不能再",
    re.IGNORECASE,
)


def user_feedback(run: RunView) -> Iterator[Lesson]:
    said = run.quote(run.trajectory.feedback or "", run.rules.limits.text_chars_max)
    if not said:
        return
    sentences = [sentence.strip() for sentence in _SENTENCE.findall(said) if sentence.strip()] or [said]
    avoid = " ".join(sentence for sentence in sentences if _NEGATED.search(sentence))
    action = " ".join(sentence for sentence in sentences if not _NEGATED.search(sentence))
    yield run.lesson(
        "user_feedback",
        (*_about_tool(run, said), *run.goal_conditions(run.rules.limits.feedback_goal_terms)),
        _mentioned(run, said),
        action=action or run.say("Follow the user's correction.", "按用户的纠正去做。"),
        avoid=avoid,
        rationale=run.say(f"The user said so after: {run.goal_gist()}", f"用户在此任务后提出：{run.goal_gist()}"),
        origin="feedback",
    )


def _about_tool(run: RunView, said: str) -> tuple[Triple, ...]:
    """Feedback that names one tool of the run is about the calls of that tool."""
    named = {step.tool for step in run.steps if step.tool.casefold() in said.casefold() and len(step.tool) > 2}
    return (Triple("tool", "eq", named.pop()),) if len(named) == 1 else ()


def _mentioned(run: RunView, said: str) -> tuple[int, ...]:
    folded = said.casefold()
    return tuple(at for at, step in enumerate(run.steps) if len(step.tool) > 2 and step.tool.casefold() in folded)
