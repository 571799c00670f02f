"""What did the user say about the run?

Explicit feedback is the surest lesson there is: it is kept in the user's words, bound to this kind of task.
"""

import re
from collections.abc import Iterator

from memory_service.experience.distill.run_view import RunView
from memory_service.experience.distill.told import told
from memory_service.experience.lessons import Lesson, Triple
from memory_service.experience.trajectory import words


def user_feedback(run: RunView) -> Iterator[Lesson]:
    said = run.quote(run.trajectory.feedback or "", run.rules.limits.text_chars_max)
    if not said:
        return
    what = told(said, run.rules.feedback, words(run.trajectory.goal))
    named = _named_tools(run, said)
    yield run.lesson(
        "user_feedback",
        (*(Triple("tool", "eq", tool) for tool in named if len(named) == 1), *run.kind_of_task(said)),
        tuple(at for at, step in enumerate(run.steps) if step.tool in named),
        action=what.action,
        avoid=what.avoid,
        rationale=run.say(f"The user said so after: {run.goal_gist()}", f"用户在此任务后提出：{run.goal_gist()}"),
        origin="feedback",
    )


def _named_tools(run: RunView, said: str) -> tuple[str, ...]:
    """Tools of the run that the feedback names as a word: feedback on one tool is about the calls of it."""
    tools = dict.fromkeys(step.tool for step in run.steps if len(step.tool) > 2)
    return tuple(tool for tool in tools if re.search(rf"(?<![\w]){re.escape(tool)}(?![\w])", said, re.IGNORECASE))
