"""Which running request does a cancellation mean? Keeps the requests of stateless HTTP sessions findable.

The SDK's stateless transport handles every POST on its own, so `notifications/cancelled` of the 2025 protocols, which
arrives in another POST, would reach nobody. Must not let one client cancel another's work: a request is found only by
the random session id that its own `initialize` was answered with.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio

_Key = tuple[str, str]


class InFlight:
    """Bounded by the number of open HTTP connections: a request leaves when its handler ends."""

    def __init__(self) -> None:
        self._scopes: dict[_Key, anyio.CancelScope] = {}

    @contextmanager
    def track(self, session_id: str, request_id: str) -> Iterator[anyio.CancelScope]:
        key = (session_id, request_id)
        with anyio.CancelScope() as scope:
            self._scopes[key] = scope
            try:
                yield scope
            finally:
                if self._scopes.get(key) is scope:
                    del self._scopes[key]

    def cancel(self, session_id: str, request_id: str) -> bool:
        """False when no such request runs (any more), which the protocol tells us to ignore."""
        scope = self._scopes.get((session_id, request_id))
        if scope is None:
            return False
        scope.cancel()
        return True
