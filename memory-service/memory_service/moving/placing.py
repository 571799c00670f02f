"""Which of two active lessons for the same conditions counts after an import?  Pure.

The more confident, then the newer, as everywhere (experience/confidence.py `winner`); but nothing is merged: both keep their
ids, the other is kept as superseded.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from memory_service.domain import Experience
from memory_service.experience.confidence import Contender, winner
from memory_service.experience.confidence_settings import ConfidenceSettings
from memory_service.experience.succession import confidence_of


@dataclass(frozen=True, slots=True)
class Placing:
    """`newcomer` as it is stored; `loser` is the one that was active here, as it is stored when it gives way."""

    newcomer: Experience
    loser: Experience | None = None


def placed(newcomer: Experience, active: Experience | None, now: datetime, settings: ConfidenceSettings) -> Placing:
    """`active` has the newcomer's condition_hash and another id; None when there is none."""
    if newcomer.status != "active":
        return Placing(newcomer)
    newcomer = replace(newcomer, superseded_by=None)
    if active is None:
        return Placing(newcomer)
    if winner(_contender(newcomer), _contender(active), now, settings).id == active.id:
        return Placing(replace(newcomer, status="superseded", superseded_by=active.id))
    loser = replace(active, status="superseded", superseded_by=newcomer.id, version=active.version + 1, updated_at=now)
    return Placing(newcomer, loser)


def _contender(experience: Experience) -> Contender:
    return Contender(experience.id, experience.action, confidence_of(experience), experience.created_at)
