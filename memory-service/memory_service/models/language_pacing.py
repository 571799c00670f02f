"""May the language model be asked now, or when?  A token bucket for its rate and a breaker for when it is dead.

Pure: every method takes `now` (seconds of a monotonic clock) and none waits.
"""

from dataclasses import dataclass


class TokenBucket:
    """`per_minute` units a minute, of which `burst_s` seconds' worth may come at once; 0 a minute means no limit.

    Takers go into debt and are told how long to wait for it, so they are served in the order of asking.
    """

    def __init__(self, per_minute: float, burst_s: float, now: float) -> None:
        self._rate = per_minute / 60
        self._capacity = max(self._rate * burst_s, 1.0)
        self._level, self._at = self._capacity, now

    def take(self, units: float, now: float) -> float:
        """Seconds to wait before the units may be used.  One that does not want to wait so long gives them `back`."""
        if not self._rate:
            return 0.0
        self._level = min(self._capacity, self._level + (now - self._at) * self._rate) - units
        self._at = now
        # More than fits into the bucket is let through when the bucket is full; the debt delays those after it.
        return max(0.0, (min(units, self._capacity) - units - self._level) / self._rate)

    def back(self, units: float) -> None:
        """What was taken and not used, or, negative, was used beyond what was taken."""
        self._level = min(self._capacity, self._level + units)


@dataclass(frozen=True, slots=True)
class BreakerRule:
    failures_max: int
    rest_s: float


class Breaker:
    """After `failures_max` failures in a row nobody is let through for `rest_s`, then one at a time until one succeeds."""

    def __init__(self, rule: BreakerRule) -> None:
        self._rule = rule
        self._failures = 0
        self._rests_until = 0.0
        self._probing = False

    def admits(self, now: float) -> bool:
        """True lets one attempt through, which must end in `succeeded`, `failed` or `abandoned`."""
        if now < self._rests_until or self._probing:
            return False
        self._probing = self._failures >= self._rule.failures_max
        return True

    def wait_s(self, now: float) -> float:
        return max(0.0, self._rests_until - now)

    def succeeded(self) -> None:
        self._failures, self._probing = 0, False

    def failed(self, now: float) -> bool:
        """True when this failure begins a rest."""
        self._failures, self._probing = self._failures + 1, False
        if self._failures < self._rule.failures_max:
            return False
        self._rests_until = now + self._rule.rest_s
        return True

    def abandoned(self) -> None:
        """The attempt ended without a word about the endpoint."""
        self._probing = False

    def rest(self, seconds: float, now: float) -> None:
        """The endpoint itself asked to be left alone."""
        self._rests_until = max(self._rests_until, now + seconds)
