"""How does a request reach Qdrant?  REST over the kept connections of aiohttp; errors are named after facts.

Not qdrant-client: importing it takes 1.6 s of processor time and 50 MB (400 generated Pydantic models and gRPC), and a
search through it 2.3 ms more, measured side by side (DECISIONS 13).  We use eleven calls, all of them idempotent.
"""

from io import BytesIO
from typing import Any
from urllib.parse import quote

import aiohttp
import orjson
from yarl import URL

from memory_service.errors import SetupRefused, StoreUnavailable

# A wrong key, a missing collection, a server that is starting: somebody will mend it, what was sent is not to blame.
NOT_THE_REQUEST = frozenset({401, 403, 404, 408, 429})

ANSWER_BYTES_MAX = 256 * 1024 * 1024  # a page of vectors is 1 MB
CONNECTIONS_MAX = 100  # more requests than that wait

_PATH = "/?=&%:,;@!$'()*+"  # stays as it is in an address


class PointRefused(Exception):
    """Qdrant is up and refused what was sent: a fault of these points, not of the connection."""


class CollectionExists(PointRefused):
    """Another process made the collection first."""


class QdrantHttp:
    """`call` for everything.  Bound to the event loop that first calls."""

    def __init__(
        self, url: str, api_key: str | None, timeout_s: float, answer_bytes_max: int = ANSWER_BYTES_MAX
    ) -> None:
        """Raises SetupRefused.  `timeout_s` bounds a whole request, waiting for a connection included."""
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._answer_bytes_max = answer_bytes_max
        self._headers = {"content-type": "application/json", **({"api-key": api_key} if api_key else {})}
        try:
            address = URL(url)
            self._base = f"{address.origin()}{address.raw_path}".rstrip("/")
            usable = address.scheme in ("http", "https") and all(
                text.isascii() and text.isprintable() for text in self._headers.values()
            )
        except ValueError:
            usable = False
        if not usable:
            raise SetupRefused(
                "HINDSIGHT_QDRANT_URL must be an address like http://127.0.0.1:6333, and the key printable ASCII"
            )
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        if self._session is not None:
            await self._session.close()

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """Qdrant's `result`.  Vectors in `body` may be numpy arrays.

        Raises StoreUnavailable when Qdrant is not reachable or not in order, PointRefused when it refuses the request.
        """
        content = None if body is None else orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)
        status, answer = await self._send(method, path, content)
        if 200 <= status < 300:
            try:
                return orjson.loads(answer)["result"]
            except (orjson.JSONDecodeError, KeyError, TypeError) as error:
                raise StoreUnavailable("qdrant") from error
        if status == 409:
            raise CollectionExists("qdrant answered 409")
        if status < 500 and status not in NOT_THE_REQUEST:
            raise PointRefused(f"qdrant answered {status}")
        raise StoreUnavailable("qdrant")

    async def _send(self, method: str, path: str, content: bytes | None) -> tuple[int, bytes]:
        """Once more when a kept connection turned out to be dead (a restarted server); a time-out is not repeated."""
        try:
            try:
                return await self._exchange(method, path, content)
            except (TimeoutError, aiohttp.ClientConnectorError):
                raise
            except aiohttp.ClientError:
                return await self._exchange(method, path, content)
        except (TimeoutError, aiohttp.ClientError) as error:
            raise StoreUnavailable("qdrant") from error

    async def _exchange(self, method: str, path: str, content: bytes | None) -> tuple[int, bytes]:
        """Status and bounded body.  Leaving early, by an error or cancelled, closes the connection."""
        address = URL(self._base + quote(path, safe=_PATH), encoded=True)
        # A file, since aiohttp warns of more than 1 MiB of bytes: it sends a file in parts.
        data = None if content is None else BytesIO(content)
        room, parts = self._answer_bytes_max, list[bytes]()
        guards = () if method == "POST" else (_unrepeated,)
        opened = self._opened().request(method, address, data=data, allow_redirects=False, middlewares=guards)
        async with opened as answer:
            async for part in answer.content.iter_any():
                room -= len(part)
                if room < 0:
                    raise StoreUnavailable("qdrant")
                parts.append(part)
        return answer.status, b"".join(parts)

    def _opened(self) -> aiohttp.ClientSession:
        """Made by the first call, because a session belongs to the loop that runs."""
        if self._closed:
            raise StoreUnavailable("qdrant")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=CONNECTIONS_MAX),
                timeout=self._timeout,
                headers=self._headers,
                skip_auto_headers=("accept-encoding",),  # packing costs more than the way next door
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            )
        return self._session


async def _unrepeated(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """aiohttp repeats GET, PUT and DELETE after a broken connection, but no POST; `_send` does it for all, once."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise aiohttp.ClientConnectionError(str(error)) from error
