"""How sure are we of a lesson, why, and which of two lessons for the same conditions counts?

Confidence is 0..1.  The stored value is that of the last ledger entry; the deltas of the ledger add up to it.  Since then it
fades, computed when read:

    effective = m + (confidence - m) × 2^(-days / half_life_days)   with m = faded_min; at or below m it does not fade

A change first books what has faded, so the ledger still adds up.  Steps go a share of the way to confidence_max or
confidence_min: the surer, the smaller the step up, and no number of steps makes certain.  Only a person can set 0 or 1.
Pure: `now` and settings come in.  Must not look at an experience's use counts: the ledger has them.
"""

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal
from uuid import UUID

from memory_service.experience.confidence_settings import ConfidenceSettings

Origin = Literal["success", "failure", "detour", "feedback", "insight"]
# started: by how it was learned · given: a person's number · faded: time · earlier: the sum of entries that were dropped
Cause = Literal["started", "given", "faded", "reinforced", "used_success", "used_failure", "earlier"]
DIGITS = 6  # of stored values and deltas; also what counts as equally confident
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_S = 86_400.0
FADED_BELOW = 1e9  # far under the strength of any date with any half-life


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    at: datetime
    cause: Cause
    delta: float


@dataclass(frozen=True, slots=True)
class Confidence:
    """`value` as of the last entry of `ledger`, which is never empty and whose deltas add up to `value`."""

    value: float
    ledger: tuple[LedgerEntry, ...]

    @property
    def settled_at(self) -> datetime:
        return self.ledger[-1].at


@dataclass(frozen=True, slots=True)
class Contender:
    """One of two experiences with the same condition_hash."""

    id: UUID
    action: str
    confidence: Confidence
    created_at: datetime


def started(origin: Origin, now: datetime, settings: ConfidenceSettings, given: float | None = None) -> Confidence:
    """Of a new experience.  `given` is a person's number and wins.  Raises ValueError when it is not 0..1."""
    if given is not None:
        return Confidence(_checked(given), (LedgerEntry(now, "given", _checked(given)),))
    starts = {
        "success": settings.success_start,
        "detour": settings.detour_start,
        "failure": settings.failure_start,
        "feedback": settings.human_start,
        "insight": settings.insight_start,
    }
    return Confidence(starts[origin], (LedgerEntry(now, "started", starts[origin]),))


def effective(confidence: float, ledger: Sequence[LedgerEntry], now: datetime, settings: ConfidenceSettings) -> float:
    """The stored `confidence` faded to `now`; a clock behind the ledger fades nothing."""
    return _faded(confidence, ledger[-1].at, now, settings) if ledger else confidence


def used(current: Confidence, succeeded: bool, now: datetime, settings: ConfidenceSettings) -> Confidence:
    """It was advised in a task, used, and the task went so."""
    if succeeded:
        return _stepped(current, "used_success", settings.success_share, settings.confidence_max, now, settings)
    return _stepped(current, "used_failure", settings.failure_share, settings.confidence_min, now, settings)


def reinforced(current: Confidence, now: datetime, settings: ConfidenceSettings) -> Confidence:
    """The same lesson was learned once more."""
    return _stepped(current, "reinforced", settings.reinforced_share, settings.confidence_max, now, settings)


def given(current: Confidence, value: float, now: datetime, settings: ConfidenceSettings) -> Confidence:
    """A person set it.  Raises ValueError when it is not 0..1."""
    return _booked(_settled(current, now, settings), "given", _checked(value), now, settings)


def same_action(one: str, other: str) -> bool:
    """Equal after NFKC, case and white-space folding: then a lesson is reinforced, not superseded."""
    return _folded(one) == _folded(other)


def winner(a: Contender, b: Contender, now: datetime, settings: ConfidenceSettings) -> Contender:
    """Which becomes active: the more confident at `now`, then the newer, then the greater id.  Symmetric."""
    return max(a, b, key=lambda one: (round(_now(one.confidence, now, settings), DIGITS), one.created_at, one.id.int))


def strength(confidence: float, settled_at: datetime, settings: ConfidenceSettings) -> float:
    """A number that sorts experiences like their effective confidence at every later moment, so that indexes can keep it.

    Above faded_min: log2(confidence - faded_min) + days / half_life_days, because fading subtracts the same from all.
    At or below it nothing fades: those sort under all others, by themselves.
    """
    above = confidence - settings.faded_min
    if above <= 0:
        return -FADED_BELOW + confidence
    days = (settled_at - EPOCH).total_seconds() / DAY_S
    return max(-FADED_BELOW / 2, math.log2(above) + days / settings.half_life_days)


def strength_min(confidence_min: float, now: datetime, settings: ConfidenceSettings) -> float:
    """The strength from which an experience is at least so confident at `now`."""
    return strength(confidence_min, now, settings)


def _now(current: Confidence, now: datetime, settings: ConfidenceSettings) -> float:
    return effective(current.value, current.ledger, now, settings)


def _faded(value: float, since: datetime, now: datetime, settings: ConfidenceSettings) -> float:
    days = max(0.0, (now - since).total_seconds() / DAY_S)
    above = value - settings.faded_min
    if above <= 0:
        return value
    faded: float = settings.faded_min + above * 2.0 ** (-days / settings.half_life_days)
    return faded


def _settled(current: Confidence, now: datetime, settings: ConfidenceSettings) -> Confidence:
    return _booked(current, "faded", _now(current, now, settings), now, settings)


def _stepped(
    current: Confidence, cause: Cause, share: float, towards: float, now: datetime, settings: ConfidenceSettings
) -> Confidence:
    """A value beyond `towards`, which only a person can set, stays: success must not lower, failure must not raise."""
    settled = _settled(current, now, settings)
    step = share * (towards - settled.value)
    wrong_way = step < 0 if towards == settings.confidence_max else step > 0
    return _booked(settled, cause, settled.value + (0.0 if wrong_way else step), now, settings)


def _booked(current: Confidence, cause: Cause, value: float, now: datetime, settings: ConfidenceSettings) -> Confidence:
    """The value with its entry; fading by nothing is not an entry, an outcome that moved nothing is."""
    value = round(value, DIGITS)
    if cause == "faded" and value == current.value:
        return current
    at = max(now, current.settled_at)  # another process's clock may be ahead; the ledger stays in order
    entry = LedgerEntry(at, cause, round(value - current.value, DIGITS))
    return Confidence(value, _bounded((*current.ledger, entry), settings.ledger_entries_max))


def _bounded(ledger: tuple[LedgerEntry, ...], entries_max: int) -> tuple[LedgerEntry, ...]:
    surplus = len(ledger) - entries_max
    if surplus <= 0:
        return ledger
    dropped = ledger[: surplus + 1]
    total = round(math.fsum(entry.delta for entry in dropped), DIGITS)
    return (replace(dropped[-1], cause="earlier", delta=total), *ledger[surplus + 1 :])


def _checked(value: float) -> float:
    if not 0.0 <= value <= 1.0:
        raise ValueError("must be between 0 and 1")
    return round(float(value), DIGITS)


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
