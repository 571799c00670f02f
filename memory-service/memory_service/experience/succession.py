"""Which of several lessons for the same conditions counts from now on, and what changes?

Pure.  One is active at any time.  The same action again reinforces the lesson that says so; of two that differ the more
confident one counts, then the newer; the other stays as superseded with a pointer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from memory_service.domain import Experience, Json
from memory_service.experience.confidence import (
    Confidence,
    Contender,
    LedgerEntry,
    reinforced,
    same_action,
    winner,
)
from memory_service.experience.confidence_settings import ConfidenceSettings
from memory_service.experience.drafts import WriteStatus
from memory_service.experience.settings import ExperienceNumbers
from memory_service.timestamps import parse_time, time_text


@dataclass(frozen=True, slots=True)
class Changed:
    """A row to write: `before` is None for a new one."""

    before: Experience | None
    after: Experience
    cause: str


@dataclass(frozen=True, slots=True)
class Succession:
    """`told` is the lesson that the writer's words ended up in."""

    status: WriteStatus
    told: Experience
    changes: tuple[Changed, ...]
    reason: str | None = None


def confidence_of(experience: Experience) -> Confidence:
    """The ledger as confidence.py reads it."""
    entries = tuple(LedgerEntry(parse_time(e["at"]), e["cause"], e["delta"]) for e in experience.confidence_ledger)
    return Confidence(experience.confidence, entries)


def with_confidence(experience: Experience, confidence: Confidence) -> Experience:
    return replace(experience, confidence=confidence.value, confidence_ledger=ledger_json(confidence))


def ledger_json(confidence: Confidence) -> tuple[Json, ...]:
    return tuple({"at": time_text(entry.at), "cause": entry.cause, "delta": entry.delta} for entry in confidence.ledger)


def succession(
    newcomer: Experience,
    known: Sequence[Experience],
    now: datetime,
    numbers: ExperienceNumbers,
    settings: ConfidenceSettings,
    *,
    learned: bool,
) -> Succession:
    """`known` have the newcomer's condition_hash; at most one is active."""
    same = [one for one in known if same_action(one.action, newcomer.action)]
    if learned and (retired := next((one for one in same if one.status == "retired"), None)) is not None:
        return Succession("rejected", retired, (), "a person retired this lesson")
    active = next((one for one in known if one.status == "active"), None)
    if active is None:
        return Succession("created", newcomer, (Changed(None, newcomer, "created"),))
    if active in same:
        stronger = _again(active, newcomer, now, numbers, settings)
        return Succession("reinforced", stronger, (Changed(active, stronger, "reinforced"),))
    before = next((one for one in same if one.status == "superseded"), None)
    challenger = newcomer if before is None else _again(before, newcomer, now, numbers, settings)
    return _decided(challenger, before, active, now, settings)


def _decided(
    challenger: Experience, before: Experience | None, active: Experience, now: datetime, settings: ConfidenceSettings
) -> Succession:
    cause = "created" if before is None else "reinforced"
    if winner(_contender(challenger), _contender(active), now, settings).id == challenger.id:
        wins = replace(challenger, status="active", superseded_by=None)
        loses = replace(active, status="superseded", superseded_by=wins.id, version=active.version + 1, updated_at=now)
        # The loser first: at no moment are two active, which the unique index would refuse.
        changes = (Changed(active, loses, "superseded"), Changed(before, wins, cause))
        return Succession("superseded_other", wins, changes)
    loser = replace(challenger, status="superseded", superseded_by=active.id)
    reason = "a more confident lesson for the same conditions is active; this one is kept as superseded"
    return Succession("rejected", loser, (Changed(before, loser, cause),), reason)


def _again(
    known: Experience, newcomer: Experience, now: datetime, numbers: ExperienceNumbers, settings: ConfidenceSettings
) -> Experience:
    """The same lesson once more: surer, with the newcomer's labels and sources added; its words stay."""
    sources = dict.fromkeys((*known.source_memory_ids, *newcomer.source_memory_ids))
    return replace(
        with_confidence(known, reinforced(confidence_of(known), now, settings)),
        tags=tuple(dict.fromkeys((*known.tags, *newcomer.tags)))[: numbers.tags_max],
        source_memory_ids=tuple(sources)[: numbers.source_ids_max],
        version=known.version + 1,
        updated_at=now,
    )


def _contender(experience: Experience) -> Contender:
    return Contender(experience.id, experience.action, confidence_of(experience), experience.created_at)
