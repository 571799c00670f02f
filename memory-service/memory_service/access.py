"""Who is asking, and may they?  API keys, their cache and the rate limit.

The tenant comes from here and from nowhere else.  Keys are long random strings of which only the sha256 is stored.  With
Postgres down, keys seen lately stay known, so that working memory keeps answering.
"""

import asyncio
import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ipaddress import ip_address
from time import monotonic
from typing import TypeVar

from memory_service.domain import Caller, Clock, Role, new_id
from memory_service.errors import Forbidden, RateLimited, SetupRefused, StoreUnavailable, Unauthorized
from memory_service.settings import Limits, Settings
from memory_service.stores.postgres import keys
from memory_service.stores.postgres.keys import ApiKey
from memory_service.stores.postgres.pool import Connection, Postgres

KEY_PREFIX = "hs_"
HINT_CHARS = 7
CACHE_ENTRIES_MAX = 10_000
STALE_S_MAX = 600.0
STALE_AFTER_S = 0.5  # working memory must not wait for a Postgres that is down
T = TypeVar("T")
DEFAULT_TENANT = "default"
LOCAL = Caller(DEFAULT_TENANT, "admin")


@dataclass(slots=True)
class _Known:
    key: ApiKey
    checked_at: float
    good_until: float


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class Access:
    """`caller` for every request; `check_start` once."""

    def __init__(self, postgres: Postgres, numbers: Limits, clock: Clock) -> None:
        self._postgres = postgres
        self._numbers = numbers
        self._clock = clock
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._buckets: OrderedDict[bytes, _Bucket] = OrderedDict()
        self._any: bool | None = None
        self._any_until = 0.0
        self._loopback = True

    async def check_start(self, settings: Settings) -> None:
        """Without a key the service serves loopback only.  Raises SetupRefused."""
        self._loopback = is_loopback(settings.host)
        if self._loopback:
            return
        try:
            if await self.required():
                return
        except StoreUnavailable:
            raise SetupRefused(
                f"Postgres can't be asked whether API keys exist, so {settings.host} is not served yet"
            ) from None
        raise SetupRefused(
            f"no API key exists, so only loopback may be served, not {settings.host}. "
            "Create one: hindsight keys create --role admin (or set HINDSIGHT_API_KEY before hindsight migrate)"
        )

    async def required(self) -> bool:
        """Does any key exist?  Known keys answer for a while when Postgres is down."""
        if self._any is not None and monotonic() < self._any_until:
            return self._any
        try:
            self._any = await self._asked(keys.any_active, bounded=self._any is not None)
        except StoreUnavailable:
            if self._any is None:
                raise
        self._any_until = monotonic() + self._numbers.auth_cache_s
        return bool(self._any)

    async def caller(self, authorization: str | None) -> Caller:
        """The caller of this Authorization header.  Raises Unauthorized, RateLimited, StoreUnavailable."""
        if not await self.required():
            if not self._loopback:  # the last key was revoked while the service listens to a network
                raise Unauthorized("no API key exists any more; create one: hindsight keys create")
            return LOCAL
        scheme, _, text = (authorization or "").partition(" ")
        text = text.strip()
        if scheme.lower() != "bearer" or not text:
            raise Unauthorized("send the header Authorization: Bearer KEY")
        digest = key_hash(text)
        key = await self._find(digest)
        if key is None or not hmac.compare_digest(key.key_hash, digest):
            raise Unauthorized("this API key is unknown or revoked")
        self._spend(digest, key.requests_per_minute or self._numbers.requests_per_minute)
        return Caller(key.tenant, key.role, key.user_id, str(key.id))

    async def _find(self, digest: bytes) -> ApiKey | None:
        now, known = monotonic(), self._known.get(digest)
        if known is not None and now < known.good_until:
            return known.key
        usable = known is not None and now - known.checked_at < STALE_S_MAX
        try:
            key = await self._asked(lambda c: keys.find(c, digest), bounded=usable)
        except StoreUnavailable:
            if known is None or not usable:
                raise
            known.good_until = monotonic() + self._numbers.auth_cache_s
            return known.key
        if key is not None:  # unknown keys are not kept: anybody can send any number of them
            self._known[digest] = _Known(key, now, now + self._numbers.auth_cache_s)
            self._known.move_to_end(digest)
            while len(self._known) > CACHE_ENTRIES_MAX:
                self._known.popitem(last=False)
        else:
            self._known.pop(digest, None)
        return key

    async def _asked(self, question: Callable[[Connection], Awaitable[T]], *, bounded: bool) -> T:
        """Postgres's answer.  `bounded`: an older one is at hand, so a Postgres that hangs is not waited for as long."""
        try:
            async with asyncio.timeout(STALE_AFTER_S if bounded else None):
                return await self._postgres.read(question)
        except TimeoutError:
            raise StoreUnavailable("postgres") from None

    def _spend(self, digest: bytes, per_minute: int) -> None:
        """Token bucket: `per_minute` at once, refilled evenly over a minute.  Counted per process."""
        now, rate = monotonic(), per_minute / 60
        bucket = self._buckets.setdefault(digest, _Bucket(float(per_minute), now))
        bucket.tokens = min(per_minute, bucket.tokens + (now - bucket.at) * rate)
        bucket.at = now
        self._buckets.move_to_end(digest)
        while len(self._buckets) > CACHE_ENTRIES_MAX:
            self._buckets.popitem(last=False)
        if bucket.tokens < 1:
            raise RateLimited(
                f"at most {per_minute} requests a minute", retry_after_s=max((1 - bucket.tokens) / rate, 0.001)
            )
        bucket.tokens -= 1


def is_loopback(host: str) -> bool:
    """An address of this machine only.  A name such as 127.0.0.1.example.com leads anywhere."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def require_writer(caller: Caller) -> None:
    """Raises Forbidden for a reader."""
    if not caller.may_write:
        raise Forbidden("a key of role writer or admin is needed")


def require_admin(caller: Caller) -> None:
    """Raises Forbidden for anyone else."""
    if not caller.is_admin:
        raise Forbidden("a key of role admin is needed")


def require_user(caller: Caller, user_id: str) -> None:
    """Raises Forbidden when the key is bound to another user."""
    if not caller.may_act_for(user_id):
        raise Forbidden("this API key may act for its own user only")


def require_unbound(caller: Caller) -> None:
    """Raises Forbidden for a key that may act for one user only: this is about the whole tenant."""
    if caller.user_id is not None:
        raise Forbidden("a key that is bound to no user is needed")


def key_hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def new_key(
    *,
    tenant: str,
    role: Role,
    user_id: str | None,
    name: str,
    requests_per_minute: int | None,
    clock: Clock,
    text: str | None = None,
) -> tuple[ApiKey, str]:
    """A key and its text, which is shown once and stored nowhere.  `text` keeps one that the operator chose."""
    text = text or KEY_PREFIX + secrets.token_urlsafe(32)
    key = ApiKey(
        new_id(), tenant, role, user_id, name, key_hash(text), text[:HINT_CHARS] + "…", requests_per_minute, clock()
    )
    return key, text
