"""Does this caller need a key, and for whom may the key act? Asks the service and remembers the answer briefly.

Must not judge keys itself, keep them readable, or hold up a request when the service is down.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum

import anyio

from mcp_gateway.client import Caller, Json, ServiceClient
from mcp_gateway.errors import Refused, ServiceFailure
from mcp_gateway.settings import GatewaySettings


class Verdict(Enum):
    ACCEPTED = "accepted"
    KEY_NEEDED = "key needed"
    # Service down, too slow, or a version without GET /v1/keys/self: the call itself will tell.
    UNSURE = "unsure"


@dataclass(frozen=True)
class Standing:
    verdict: Verdict
    user_id: str | None = None


@dataclass
class _Entry:
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    standing: Standing | None = None
    fresh_until: float = 0.0


class AccessDesk:
    """Standing of a caller, by the digest of its Authorization header; concurrent questions are asked once."""

    def __init__(self, service: ServiceClient, settings: GatewaySettings) -> None:
        self._service = service
        self._timeout_seconds = settings.gateway_access_timeout_seconds
        self._cache_seconds = settings.gateway_access_cache_seconds
        self._entries_max = settings.gateway_access_cache_entries_max
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()

    async def standing(self, caller: Caller) -> Standing:
        entry = self._entry(hashlib.sha256(caller.authorization).digest() if caller.authorization else b"")
        if entry.standing is not None and time.monotonic() < entry.fresh_until:
            return entry.standing  # without the lock, which would go once around the event loop
        async with entry.lock:
            if entry.standing is None or time.monotonic() >= entry.fresh_until:
                entry.standing = await self._ask(caller)
                entry.fresh_until = time.monotonic() + self._cache_seconds
            return entry.standing

    def _entry(self, digest: bytes) -> _Entry:
        entry = self._entries.get(digest)
        if entry is None:
            entry = self._entries[digest] = _Entry()
            while len(self._entries) > self._entries_max:
                self._entries.popitem(last=False)
        else:
            self._entries.move_to_end(digest)
        return entry

    async def _ask(self, caller: Caller) -> Standing:
        with anyio.move_on_after(self._timeout_seconds):
            try:
                return _read_self(await self._service.read(caller, "GET", "/v1/keys/self"))
            except Refused as refusal:
                if refusal.status == 404:
                    return await self._ask_without_self(caller)
                return Standing(Verdict.KEY_NEEDED if refusal.status == 401 else Verdict.UNSURE)
            except ServiceFailure:
                return Standing(Verdict.UNSURE)
        return Standing(Verdict.UNSURE)

    async def _ask_without_self(self, caller: Caller) -> Standing:
        """A list without its user is refused before any store is touched: 401 without a needed key, else 422."""
        try:
            await self._service.read(caller, "GET", "/v1/memories")
        except Refused as refusal:
            if refusal.status == 401:
                return Standing(Verdict.KEY_NEEDED)
            return Standing(Verdict.ACCEPTED if refusal.status == 422 else Verdict.UNSURE)
        return Standing(Verdict.UNSURE)


def _read_self(answer: Json) -> Standing:
    user_id = answer.get("user_id") if isinstance(answer, dict) else None
    return Standing(Verdict.ACCEPTED, user_id if isinstance(user_id, str) and user_id else None)
