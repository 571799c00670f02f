"""How does a request reach Qdrant?  REST over one shared httpx client; errors are named after facts.

Not qdrant-client: importing it takes 1.6 s of processor time and 50 MB (400 generated Pydantic models and gRPC), and a
search through it 2.3 ms more, measured side by side (DECISIONS 13).  We use eleven calls, all of them idempotent.
"""

from typing import Any

import httpx
import orjson

from memory_service.errors import StoreUnavailable

# A wrong key, a missing collection, a server that is starting: somebody will mend it, what was sent is not to blame.
NOT_THE_REQUEST = frozenset({401, 403, 404, 408, 429})


class PointRefused(Exception):
    """Qdrant is up and refused what was sent: a fault of these points, not of the connection."""


class CollectionExists(PointRefused):
    """Another process made the collection first."""


class QdrantHttp:
    """`call` for everything."""

    def __init__(self, url: str, api_key: str | None, timeout_s: float) -> None:
        headers = {"content-type": "application/json", **({"api-key": api_key} if api_key else {})}
        self._client = httpx.AsyncClient(base_url=url.rstrip("/"), headers=headers, timeout=timeout_s)

    async def close(self) -> None:
        await self._client.aclose()

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """Qdrant's `result`.  Vectors in `body` may be numpy arrays.

        Raises StoreUnavailable when Qdrant is not reachable or not in order, PointRefused when it refuses the request.
        """
        content = None if body is None else orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)
        answer = await self._send(method, path, content)
        if answer.is_success:
            try:
                return orjson.loads(answer.content)["result"]
            except (orjson.JSONDecodeError, KeyError, TypeError) as error:
                raise StoreUnavailable("qdrant") from error
        if answer.status_code == 409:
            raise CollectionExists("qdrant answered 409")
        if answer.status_code < 500 and answer.status_code not in NOT_THE_REQUEST:
            raise PointRefused(f"qdrant answered {answer.status_code}")
        raise StoreUnavailable("qdrant")

    async def _send(self, method: str, path: str, content: bytes | None) -> httpx.Response:
        """Once more when a kept connection turned out to be dead (a restarted server); a time-out is not repeated."""
        try:
            return await self._client.request(method, path, content=content)
        except httpx.TimeoutException as error:
            raise StoreUnavailable("qdrant") from error
        except httpx.TransportError:
            pass
        try:
            return await self._client.request(method, path, content=content)
        except httpx.HTTPError as error:
            raise StoreUnavailable("qdrant") from error
