"""Is a finding worth keeping, and if not, why?

Trivial, empty and self-contradicting lessons are refused with a reason in words.  It must not improve a lesson.
"""

from memory_service.experience.distill.run_view import RunView, holds_for
from memory_service.experience.distill.values import is_identifier, is_setting_name
from memory_service.experience.lessons import Lesson
from memory_service.experience.quoting import MASK, masked
from memory_service.experience.trajectory import text_of, words

_ACTION_WORDS_MIN = 3
_FEEDBACK_WORDS_MIN = 2  # "Use euros."


def refusal(lesson: Lesson, run: RunView) -> str:
    """Why not, "" when the lesson of a rule is good."""
    reason = trivial(lesson, run)
    if reason:
        return reason
    contradiction = _contradicted_by(lesson, run)
    if contradiction is not None:
        return f"step {contradiction} of the same run worked although it met these conditions"
    if lesson.rule == "what_worked" and _one_plain_tool(run):
        return "a way of one tool teaches nothing"
    return ""


def _one_plain_tool(run: RunView) -> bool:
    """All was done with one tool and nobody was talked to: that it worked in the end names no way.  Its failures have lessons
    of their own."""
    if run.dialogue or any(run.is_talk(step) for step in run.steps):
        return False
    return len({step.tool for step in run.steps if run.is_call(step)}) == 1


def trivial(lesson: Lesson, run: RunView) -> str:
    """Why a lesson says nothing, or nothing that may be kept, whoever found it; "" when it does."""
    if not lesson.conditions:
        return "it has no condition, so it would apply always"
    of_user = lesson.rule == "user_feedback"
    words_min = _FEEDBACK_WORDS_MIN if of_user else _ACTION_WORDS_MIN
    if of_user and len(words(run.trajectory.feedback or "")) < words_min:
        return "the feedback is too short to tell what to do"
    if of_user and not lesson.action:
        return "the feedback judges the run and tells nothing to do"
    if len(words(lesson.action)) + len(words(lesson.avoid)) < words_min:
        return "it says nothing to do or to avoid"
    if _says_nothing(lesson, run, words_min):
        return "it is advice for any task"
    for triple in lesson.conditions:
        if isinstance(triple.value, str) and not triple.value.strip():
            return f"the condition on {triple.field} has no value"
        if MASK in masked(text_of(triple.value), run.rules):
            return f"the condition on {triple.field} would hold a secret"
        of_one_run = triple.operator == "eq" and triple.field.startswith("arguments.") and isinstance(triple.value, str)
        if of_one_run and is_identifier(triple.value) and not is_setting_name(triple.field):
            return f"the condition on {triple.field} names an id or number of this one run"
    return ""


def _says_nothing(lesson: Lesson, run: RunView, words_min: int) -> bool:
    """Fewer than a few words are left when the phrases that fit any task are taken out."""
    said = " ".join(words(f"{lesson.action} {lesson.avoid}"))
    for phrase in run.rules.empty_advice:
        said = said.replace(" ".join(words(phrase)), " ")
    return len(said.split()) < words_min


def _contradicted_by(lesson: Lesson, run: RunView) -> int | None:
    """A call that the lesson would have warned of and that worked.  Only for lessons about the arguments themselves."""
    about_arguments = [triple for triple in lesson.conditions if triple.field.startswith("arguments.")]
    after_calls = any(triple.field.startswith(("last_error", "succeeded_tools")) for triple in lesson.conditions)
    if not about_arguments or after_calls or lesson.rule == "user_feedback":
        return None
    return next(
        (at for at, step in enumerate(run.steps) if not step.failed and holds_for(lesson.conditions, step)), None
    )
