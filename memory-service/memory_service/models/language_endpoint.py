"""How is a chat endpoint asked, and what happens when it is slow, busy, broken or gone?

One request at a time and the retries around it: rate, slots, breaker, timeouts, Retry-After, and fields that the server
refuses.  It reads no more than a bounded answer and does not look into it; `language` does.  Logs name neither contents
nor addresses nor keys.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx

from memory_service.errors import LanguageModelUnavailable, SetupRefused
from memory_service.models.language_answers import Completion, NoChatCompletion, read_completion
from memory_service.models.language_pacing import Breaker, BreakerRule, TokenBucket
from memory_service.models.language_request import SHAPES_MAX, Ask, Shape, request_body, simpler
from memory_service.models.language_settings import LanguageConfig, LanguageNumbers

log = logging.getLogger(__name__)

_PATH = "/chat/completions"
_REFUSES_A_FIELD = frozenset({400, 422})
_BUSY = 429
_RETRIED_BELOW_500 = frozenset({408, 409, 425, _BUSY})
REFUSAL_BYTES_MAX = 65_536  # of the body of an error; only the names of refused fields are looked for in it


class LanguageModelResting(LanguageModelUnavailable):
    """Not asked at all: it failed too often just now, or asked to be left alone."""


class _Failed(Exception):
    """One attempt came to nothing.  `again`: another may succeed; `dead`: it speaks against the endpoint, not the request."""

    def __init__(self, reason: str, *, again: bool, dead: bool, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.again = again
        self.dead = dead
        self.retry_after_s = retry_after_s


class ChatEndpoint:
    """One endpoint and model.  `complete` may be called concurrently from one event loop."""

    def __init__(self, config: LanguageConfig, numbers: LanguageNumbers) -> None:
        url = _completions_url(config)
        headers = {"content-type": "application/json", "accept": "application/json", "accept-encoding": "identity"}
        if config.api_key:
            headers["authorization"] = f"Bearer {config.api_key}"
        # A proxy from the environment is for hosts elsewhere; one on this machine must not be asked through it.
        self._client = httpx.AsyncClient(
            headers=headers,
            timeout=numbers.attempt_timeout_s,
            trust_env=url.host not in ("localhost", "127.0.0.1", "::1"),
        )
        self._url, self._model, self._numbers = url, config.model, numbers
        self._shapes: dict[str, Shape] = {}  # by purpose: a server may refuse one schema and take another
        self._slots = asyncio.Semaphore(numbers.concurrent_requests_max)
        self._waiting = 0
        self._breaker = Breaker(BreakerRule(numbers.breaker_failures_max, numbers.breaker_rest_s))
        self._requests = TokenBucket(numbers.requests_per_minute, numbers.rate_burst_s, 0.0)
        self._tokens = TokenBucket(numbers.tokens_per_minute, numbers.rate_burst_s, 0.0)

    async def complete(self, ask: Ask, ends: float) -> Completion:
        """The completion, not later than the loop's time `ends`.

        Raises LanguageModelUnavailable, or NoChatCompletion when something else answers there.
        """
        for attempt in range(self._numbers.attempts_max):
            try:
                return await self._attempt(ask, ends)
            except _Failed as failed:
                failure = failed
            except LanguageModelResting:
                if attempt == 0:
                    raise
                break
            wait_s = self._pause_s(attempt, failure.retry_after_s)
            late = _now() + wait_s >= ends
            if late and failure.retry_after_s:
                self._breaker.rest(failure.retry_after_s, _now())
            if late or not failure.again or attempt + 1 == self._numbers.attempts_max:
                break
            await asyncio.sleep(wait_s)
        raise LanguageModelUnavailable(f"the language model {failure}")

    async def close(self) -> None:
        await self._client.aclose()

    def _pause_s(self, attempt: int, asked_s: float | None) -> float:
        """Full jitter (AWS Architecture Blog, 2015), on top of what the server asked for."""
        drawn = random.uniform(0, min(self._numbers.retry_s_max, self._numbers.retry_base_s * 2**attempt))  # noqa: S311
        return drawn if asked_s is None else asked_s + drawn

    async def _attempt(self, ask: Ask, ends: float) -> Completion:
        self._refuse_while_resting()
        async with self._slot(ends):
            estimate = ask.text_bytes / self._numbers.bytes_per_token
            await self._wait_for_turn(estimate, ends)
            if not self._breaker.admits(_now()):
                self._refuse_while_resting()
                raise LanguageModelResting("the language model is being tried by another request after failures")
            completion = await self._watched(ask, ends)
            self._tokens.back(estimate - (completion.tokens_in + completion.tokens_out or estimate))
            return completion

    def _refuse_while_resting(self) -> None:
        if (left_s := self._breaker.wait_s(_now())) > 0:
            raise LanguageModelResting(
                "the language model is left alone for a while after failures", retry_after_s=left_s
            )

    @asynccontextmanager
    async def _slot(self, ends: float) -> AsyncIterator[None]:
        """One of the few requests in flight."""
        if self._waiting >= self._numbers.waiting_calls_max:
            raise LanguageModelUnavailable("too many requests wait for the language model")
        self._waiting += 1
        try:
            async with asyncio.timeout_at(ends):
                await self._slots.acquire()
        except TimeoutError:
            raise LanguageModelUnavailable("the language model was busy with other requests all the time") from None
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._slots.release()

    async def _wait_for_turn(self, tokens: float, ends: float) -> None:
        """Raises LanguageModelUnavailable when the configured rate lets the request through too late."""
        now = _now()
        wait_s = max(self._requests.take(1, now), self._tokens.take(tokens, now))
        try:
            if now + wait_s >= ends:
                raise LanguageModelUnavailable(
                    "the configured rate of the language model is used up", retry_after_s=wait_s
                )
            if wait_s:
                await asyncio.sleep(wait_s)
        except BaseException:
            self._requests.back(1)
            self._tokens.back(tokens)
            raise

    async def _watched(self, ask: Ask, ends: float) -> Completion:
        """Tells the breaker how it went, whichever way the attempt ends."""
        try:
            completion = await self._exchange(ask, ends)
        except _Failed as failed:
            self._failed() if failed.dead else self._breaker.abandoned()
            raise
        except NoChatCompletion:
            self._failed()
            raise
        except BaseException:
            self._breaker.abandoned()
            raise
        self._breaker.succeeded()
        return completion

    def _failed(self) -> None:
        if self._breaker.failed(_now()):
            log.warning("the language model failed too often and is left alone for %s s", self._numbers.breaker_rest_s)

    async def _exchange(self, ask: Ask, ends: float) -> Completion:
        """One question, asked in simpler shapes until the server takes it; the shape that it took is remembered."""
        first = shape = self._shapes.get(ask.purpose, Shape())
        for _ in range(SHAPES_MAX):
            body = request_body(ask, shape, self._model, self._numbers.answer_tokens_max, self._numbers.temperature)
            status, headers, content = await self._post(body, ends)
            if status not in _REFUSES_A_FIELD:
                break
            plainer = simpler(shape, content.decode("utf-8", "replace"))
            if plainer is None:
                raise _Failed(f"refused the request ({status})", again=False, dead=False)
            shape = plainer
        if not 200 <= status < 300:
            again = status in _RETRIED_BELOW_500 or status >= 500
            after_s = retry_after_s(headers.get("retry-after", ""), datetime.now(UTC), self._numbers.retry_after_s_max)
            raise _Failed(
                f"answered {status}", again=again, dead=status != _BUSY, retry_after_s=after_s if again else None
            )
        completion = read_completion(content)
        if shape != first:
            log.info("the language model's endpoint takes %s for %s", shape, ask.purpose)
            self._shapes[ask.purpose] = shape
        return completion

    async def _post(self, body: bytes, ends: float) -> tuple[int, httpx.Headers, bytes]:
        """Status, headers and the bounded body of one request.  httpx's own timeout does not bound a trickle."""
        try:
            async with asyncio.timeout_at(min(_now() + self._numbers.attempt_timeout_s, ends)):
                async with self._client.stream("POST", self._url, content=body) as answer:
                    return answer.status_code, answer.headers, await self._bounded(answer)
        except (TimeoutError, httpx.TimeoutException):
            raise _Failed("did not answer in time", again=True, dead=True) from None
        except httpx.HTTPError:
            raise _Failed("could not be reached or broke off", again=True, dead=True) from None

    async def _bounded(self, answer: httpx.Response) -> bytes:
        """Raises NoChatCompletion for more than fits and for compression, which could hide any size."""
        if answer.headers.get("content-encoding", "identity") != "identity":
            raise NoChatCompletion("the language model's endpoint compressed its answer without being asked")
        content = bytearray()
        async for chunk in answer.aiter_raw():
            content += chunk
            if not answer.is_success and len(content) >= REFUSAL_BYTES_MAX:
                break
            if len(content) > self._numbers.answer_bytes_max:
                raise NoChatCompletion("the language model's endpoint answered far more than was asked for")
        return bytes(content)


def retry_after_s(header: str, now: datetime, longest_s: float) -> float | None:
    """Seconds from a Retry-After header, which holds seconds or an HTTP date; None when it is absent or unreadable."""
    value = header.strip()
    if value.isascii() and value.replace(".", "", 1).isdigit() and len(value) < 16:
        return min(float(value), longest_s)
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return min(max((moment - now).total_seconds(), 0.0), longest_s)


def _completions_url(config: LanguageConfig) -> httpx.URL:
    """Raises SetupRefused, without repeating what may hold a secret."""
    if not config.model:
        raise SetupRefused("HINDSIGHT_LLM_BASE_URL is set, so HINDSIGHT_LLM_MODEL is needed too (for example qwen3:8b)")
    if config.api_key and not (config.api_key.isascii() and config.api_key.isprintable()):
        raise SetupRefused("HINDSIGHT_LLM_API_KEY holds characters that no HTTP header takes")
    try:
        url = httpx.URL(config.base_url)
    except (httpx.InvalidURL, ValueError):
        raise SetupRefused("HINDSIGHT_LLM_BASE_URL is not a URL") from None
    if url.scheme not in ("http", "https") or not url.host or "%" in url.host:
        raise SetupRefused(
            "HINDSIGHT_LLM_BASE_URL must begin with http:// or https:// (for example http://127.0.0.1:11434/v1)"
        )
    if url.userinfo:
        raise SetupRefused(
            "HINDSIGHT_LLM_BASE_URL must not hold a user or password; a key goes into HINDSIGHT_LLM_API_KEY"
        )
    path = url.path.rstrip("/")
    return url.copy_with(path=path if path.endswith(_PATH) else path + _PATH)


def _now() -> float:
    return asyncio.get_running_loop().time()
