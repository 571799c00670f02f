"""What of a session's dialogue is not written yet?  One hash per session in Redis, every change one atomic script.

Knows bytes, numbers and claims, not what a message means.  Keys: `hs:{tenant:user}:turns:session` is one buffer,
`…:turn-sessions` lists a user's sessions by the time they end, so that erasing a user needs no scan (as working memory does).

A request claims what it handles; whatever it does not settle, since it died, is free again when its lease has run out, so a
message is lost by no crash.  Two requests never hold the same message.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import unquote

from memory_service.stores.redis import encode_part
from memory_service.stores.redis_client import Redis, reached

SCRIPTS = Path(__file__).parent
# lapsed: the request that held it died before it settled.
Claim = Literal["", "mine", "other", "lapsed"]


@dataclass(frozen=True, slots=True)
class SessionKey:
    """Names of everything that belongs to one session's buffer."""

    tenant: str
    user_id: str
    session_id: str

    @property
    def member(self) -> str:
        return encode_part(self.session_id)

    @property
    def buffer(self) -> str:
        return f"{_buffers(self.tenant, self.user_id)}{self.member}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One message; numbers rise in the order of arrival."""

    number: int
    payload: bytes
    claim: Claim


@dataclass(frozen=True, slots=True)
class BufferBounds:
    """Life and lease in milliseconds; the bounds are of one session."""

    life_ms: int
    lease_ms: int
    messages_max: int
    bytes_max: int


class SessionBuffer:
    """Buffers of all sessions.  Every method raises StoreUnavailable when Redis is down."""

    def __init__(self, redis: Redis, bounds: BufferBounds) -> None:
        self._redis = redis
        self._bounds = bounds
        names = ("append", "claim", "settle", "erase_user")
        self._scripts = {
            name: redis.register_script((SCRIPTS / f"turns_{name}.lua").read_text("utf-8")) for name in names
        }

    async def append(
        self, key: SessionKey, batch: str, holder: str, messages: Sequence[bytes] = ()
    ) -> list[Entry] | None:
        """Add messages, claimed by `holder` → all of the session in order; None when there is no room and nothing was added.

        `batch` and `holder` are 32 characters.  The same batch again adds nothing and claims what it added before.
        """
        bounds = self._bounds
        answer = await self._run(
            "append",
            [key.buffer, _index(key.tenant, key.user_id)],
            [
                batch, holder, bounds.lease_ms, bounds.life_ms, key.member, bounds.messages_max, bounds.bytes_max, *messages,
            ],
        )  # fmt: skip
        if isinstance(answer, bytes):
            return None
        rows = zip(answer[::3], answer[1::3], answer[2::3], strict=True)
        found = [Entry(int(number), payload, cast("Claim", claim.decode())) for number, payload, claim in rows]
        return sorted(found, key=lambda entry: entry.number)

    async def claim(self, key: SessionKey, holder: str, numbers: Sequence[int]) -> set[int]:
        """Take these messages → those that are the holder's now."""
        if not numbers:
            return set()
        return set(map(int, await self._run("claim", [key.buffer], [holder, self._bounds.lease_ms, *numbers])))

    async def settle(
        self,
        key: SessionKey,
        holder: str,
        *,
        drop: Sequence[int] = (),
        keep: Mapping[int, bytes] | None = None,
        forget_batch: str = "",
    ) -> None:
        """End the claims: `drop` leaves the buffer; of `keep` the text is replaced, b"" leaves it as it is."""
        pairs = [part for pair in (keep or {}).items() for part in pair]
        await self._run("settle", [key.buffer], [holder, forget_batch, len(drop), *drop, *pairs])

    async def sessions_of(self, tenant: str, user_id: str) -> list[SessionKey]:
        """The user's sessions that may have a buffer, soonest to end first."""
        async with reached(self._redis):
            members = cast("list[bytes]", await self._redis.zrange(_index(tenant, user_id), 0, -1))
        return [SessionKey(tenant, user_id, unquote(member.decode())) for member in members]

    async def delete_user(self, tenant: str, user_id: str) -> int:
        """Delete all buffers of a user → how many there were."""
        return int(await self._run("erase_user", [_index(tenant, user_id)], [_buffers(tenant, user_id)]))

    async def _run(self, name: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        async with reached(self._redis):
            return await self._scripts[name](keys=keys, args=args)


def _user(tenant: str, user_id: str) -> str:
    return f"hs:{{{encode_part(tenant)}:{encode_part(user_id)}}}"


def _buffers(tenant: str, user_id: str) -> str:
    return f"{_user(tenant, user_id)}:turns:"


def _index(tenant: str, user_id: str) -> str:
    return f"{_user(tenant, user_id)}:turn-sessions"
