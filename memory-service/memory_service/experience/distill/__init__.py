"""What does a run teach, without a language model?

`distill` runs the finders below over one reviewed run.  Each yields lessons of one decision point; every lesson is checked
and refused with a reason when it is trivial.  Pure and deterministic: equal runs give equal lessons.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from memory_service.experience.distill.acceptance import refusal
from memory_service.experience.distill.feedback import user_feedback
from memory_service.experience.distill.ordering import orders_and_waits
from memory_service.experience.distill.recovered import first_tries, recovered_calls
from memory_service.experience.distill.repeated import permanent_errors, repeated_errors
from memory_service.experience.distill.run_view import RunView, view_of
from memory_service.experience.distill.whole_run import whole_run
from memory_service.experience.distill_rules import DistillRules
from memory_service.experience.lessons import Lesson, Rejected
from memory_service.experience.review import Review
from memory_service.experience.trajectory import Trajectory

__all__ = ["distill"]

Finder = Callable[[RunView], Iterator[Lesson]]

# The surest first: of two lessons with the same conditions, and when a run has too many findings, the later gives way.
TALK_FINDERS: tuple[Finder, ...] = (user_feedback, whole_run)
CALL_FINDERS: tuple[Finder, ...] = (
    *TALK_FINDERS,
    recovered_calls,
    orders_and_waits,
    first_tries,
    permanent_errors,
    repeated_errors,
)


def distill(
    trajectory: Trajectory, review: Review, rules: DistillRules, told: Sequence[Lesson | Rejected] = ()
) -> list[Lesson | Rejected]:
    """Lessons of one `analysed` trajectory and the findings that are none.  At most `lessons_max` lessons.

    `told` are a language model's lessons, already judged: they come after what the user said and before the other rules'.
    A run that is not worth reviewing still leaves its one line about what worked, so that a similar task finds it.
    """
    run = view_of(trajectory, review, rules)
    finders = TALK_FINDERS if run.dialogue else CALL_FINDERS
    said, *others = finders
    found = [*said(run), *told, *(lesson for finder in others for lesson in finder(run))]
    judged: list[Lesson | Rejected] = []
    kept: dict[tuple[object, ...], Lesson] = {}
    for lesson in found:
        if isinstance(lesson, Rejected):
            judged.append(lesson)
            continue
        reason = "" if lesson in told else refusal(lesson, run)
        key = tuple(sorted((triple.field, triple.operator, repr(triple.value)) for triple in lesson.conditions))
        if not reason and key in kept:
            reason = f"another lesson of this run ({kept[key].rule}) has the same conditions"
        if not reason and lesson.rule == "permanent_error":
            reason = _covered(lesson, kept.values())
        if not reason and len(kept) >= rules.limits.lessons_max:
            reason = f"the run already gave {rules.limits.lessons_max} lessons"
        if reason:
            judged.append(Rejected(lesson, reason))
        else:
            kept[key] = lesson
            judged.append(lesson)
    return judged


def _covered(lesson: Lesson, kept: Iterable[Lesson]) -> str:
    """Why a dead resource is no lesson: another of this run warns of the whole place it stands in."""
    mine = {triple.field: triple.value for triple in lesson.conditions if triple.operator in ("starts_with", "eq")}
    for other in kept:
        places = [t for t in other.conditions if t.operator == "starts_with" and t.field.startswith("arguments.")]
        tool = next((t.value for t in other.conditions if t.field == "tool"), None)
        if places and tool == mine.get("tool") and len(other.conditions) == len(places) + 1 and all(
            isinstance(mine.get(t.field), str) and mine[t.field].startswith(t.value) for t in places
        ):  # fmt: skip
            return f"another lesson of this run ({other.rule}) speaks of the whole place"
    return ""
