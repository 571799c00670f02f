"""How is a lesson shown?  Experiences, what became of them, reviews and advice as JSON objects of API.md."""

from collections.abc import Iterable
from uuid import UUID

from memory_service.bootstrap import Runtime
from memory_service.domain import Experience, Json
from memory_service.experience.drafts import Advised, Distilled, Judged, Stored
from memory_service.experience.review import Review
from memory_service.shapes import experience_json
from memory_service.stores.postgres.experiences import ExperienceVersion
from memory_service.timestamps import time_text


def shown(services: Runtime, experience: Experience) -> Json:
    """The experience object of API.md, with its confidence as of now beside the stored one."""
    return experience_json(experience, services.experiences.effective_confidence(experience))


def stored_json(services: Runtime, stored: Stored) -> Json:
    """`{status, reason?, experience}`"""
    reason = {"reason": stored.reason} if stored.reason else {}
    experience = stored.refused if stored.experience is None else shown(services, stored.experience)
    return {"status": stored.status, **reason, "experience": experience}


def judged_json(services: Runtime, told: Judged) -> Json:
    """`{experience, repeated?}`"""
    repeated = {"repeated": True} if told.repeated else {}
    return {"experience": shown(services, told.experience), **repeated}


def ids_of(stored: Iterable[Stored]) -> tuple[UUID, ...]:
    return tuple(one.experience.id for one in stored if one.experience is not None)


def distilled_json(services: Runtime, distilled: Distilled) -> Json:
    """`reason` says why the rules stood alone although a language model was asked."""
    lessons = [stored_json(services, one) for one in distilled.stored]
    reason = {"reason": distilled.reason} if distilled.reason else {}
    review = review_json(distilled.review)
    return {"review": review, "distilled_by": distilled.by, **reason, "experiences": lessons}


def review_json(review: Review) -> Json:
    """`baseline` is what such a run usually takes; `baseline.runs` is how many runs it stands on, 0 for the settings."""
    usual = review.baseline.effort
    return {
        "steps": review.steps,
        "tool_calls": review.tool_calls,
        "repeated_calls": review.repeated_calls,
        "near_repeats": review.near_repeats,
        "failed_calls": review.failed_calls,
        "retries": review.retries,
        "baseline": {
            "runs": review.baseline.runs,
            "steps": usual.steps,
            "tool_calls": usual.tool_calls,
            "repeated_calls": usual.repeated_calls,
            "duration_ms": usual.duration_ms,
        },
        "score": round(review.score, 6),
        "worth_reviewing": review.worth_reviewing,
        "reasons": list(review.reasons),
    }


def advised_json(services: Runtime, result: Advised, *, explain: bool) -> Json:
    """The experience's fields and how it was found; with `explain` also what the state contradicts and each lane's score."""
    found = {
        **experience_json(result.experience, result.confidence),
        "match": result.match,
        "matched": list(result.matched),
        "missing": list(result.missing),
        "score": round(result.score, 6),
    }
    if explain:
        found["score_details"] = {"failed": list(result.failed), "lanes": dict(result.lanes)}
    return found


def version_json(row: ExperienceVersion) -> Json:
    """One version with what made it."""
    return {
        "version": row.version,
        "at": time_text(row.at),
        "actor": row.actor,
        "cause": row.cause,
        "task_id": row.task_id,
        "changes": row.changes,
        "experience": row.snapshot,
    }
