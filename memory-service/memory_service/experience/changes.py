"""What does a person's change make of a lesson?  Pure: the experience before, the named fields and `now` in, the one after out."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from memory_service.domain import Experience, Json
from memory_service.experience.conditions import condition_hash, parse_conditions
from memory_service.experience.conditions_settings import ConditionLimits
from memory_service.experience.confidence import given, used
from memory_service.experience.confidence_settings import ConfidenceSettings
from memory_service.experience.succession import confidence_of, with_confidence
from memory_service.shapes import experience_json

UNTOLD = ("confidence_ledger", "version", "updated_at")  # of a snapshot's difference: they change every time
TEXT = (
    "action",
    "avoid",
    "rationale",
    "conditions",
    "tags",
    "status",
)  # what the vector and the keyword terms depend on


def patched(
    experience: Experience,
    changes: Mapping[str, Any],
    now: datetime,
    limits: ConditionLimits,
    settings: ConfidenceSettings,
) -> Experience:
    """Only what is named changes.  Raises InvalidFields for bad conditions."""
    plain = {name: value for name, value in changes.items() if name not in ("conditions", "confidence")}
    after = replace(experience, **plain)
    if "confidence" in changes:
        after = with_confidence(after, given(confidence_of(after), changes["confidence"], now, settings))
    if "conditions" in changes or "task_type" in changes:
        parsed = parse_conditions(changes.get("conditions", experience.conditions), limits)
        triples = tuple(condition.as_json() for condition in parsed)
        digest = condition_hash(parsed, tenant=after.tenant, user_id=after.user_id, task_type=after.task_type)
        after = replace(after, conditions=triples, condition_hash=digest)
    if after.status == "active":
        after = replace(after, superseded_by=None)
    return after if after == experience else replace(after, version=experience.version + 1, updated_at=now)


def after_use(experience: Experience, succeeded: bool, now: datetime, settings: ConfidenceSettings) -> Experience:
    """It was used in a task, and the task went so."""
    return replace(
        with_confidence(experience, used(confidence_of(experience), succeeded, now, settings)),
        use_count=experience.use_count + 1,
        success_count=experience.success_count + succeeded,
        failure_count=experience.failure_count + (not succeeded),
        version=experience.version + 1,
        updated_at=now,
    )


def snapshot_of(experience: Experience) -> Json:
    """The version as it is kept; the ledger stays with the experience alone."""
    return {name: value for name, value in experience_json(experience).items() if name != "confidence_ledger"}


def differences(before: Experience | None, after: Experience) -> Json:
    """{field: {from, to}}; nothing for a new one."""
    if before is None:
        return {}
    one, other = experience_json(before), experience_json(after)
    return {
        name: {"from": one[name], "to": other[name]}
        for name in other
        if name not in UNTOLD and one[name] != other[name]
    }


def text_changed(before: Experience | None, after: Experience) -> bool:
    """Must the vector be made anew?"""
    return before is None or any(getattr(before, name) != getattr(after, name) for name in TEXT)
