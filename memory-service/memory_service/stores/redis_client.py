"""How is Redis reached?  One client for the whole process, and for every step a bound on how long it may take.

The bound is on a step as a whole: waiting for a connection, connecting, sending and reading.  redis-py's own socket_timeout counts
each of these anew, and on Python 3.11 makes a task for every send (a tenth of reading working memory).
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import redis.asyncio
from redis.asyncio import BlockingConnectionPool
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import OutOfMemoryError, RedisClusterException, RedisError

from memory_service.errors import StoreUnavailable

log = logging.getLogger(__name__)

RECONNECT_PAUSE_S = 0.05
CLUSTER_MARK = "+cluster://"
CLUSTER_ATTEMPTS = 3  # of one command, while a slot moves or another node takes over


class Redis(redis.asyncio.Redis):
    """`step_s`: how long `reached` waits for what is done within it."""

    step_s: float


class _Cluster(RedisCluster):
    step_s: float


def open_redis(url: str, timeout_s: float, connections_max: int) -> Redis:
    """The client that the whole process shares; connects on first use.

    A command that meets a dead connection is sent once more on a new one: all of ours may be repeated.  A time-out is not
    retried, a store that hangs would then hang every request twice as long.
    """
    if CLUSTER_MARK in url:
        return _open_cluster(url, timeout_s, connections_max)
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=connections_max,
        timeout=None,
        socket_timeout=None,
        socket_connect_timeout=timeout_s,
        retry=Retry(ConstantBackoff(RECONNECT_PAUSE_S), 1, supported_errors=(RedisConnectionError,)),
    )
    client = cast("Redis", Redis.from_pool(pool))  # which closes the pool with the client
    client.step_s = timeout_s
    return client


def _open_cluster(url: str, timeout_s: float, connections_max: int) -> Redis:
    """redis+cluster:// or rediss+cluster:// names one node of a Redis Cluster; the others are found from it.

    Here each attempt has a bound of its own: that a node does not answer is how the client learns to ask for another one.
    """
    made = _Cluster.from_url(
        url.replace(CLUSTER_MARK, "://", 1),
        max_connections=connections_max,  # to each node
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=Retry(ConstantBackoff(RECONNECT_PAUSE_S), CLUSTER_ATTEMPTS),
    )
    cluster = cast("Redis", made)  # it has every command that we use; the two have no common type
    cluster.step_s = 2 * timeout_s * (CLUSTER_ATTEMPTS + 1)
    return cluster


async def ping(client: Redis) -> None:
    """Raises StoreUnavailable when Redis does not answer."""
    async with reached(client):
        await client.ping()


@asynccontextmanager
async def reached(client: Redis) -> AsyncIterator[None]:
    """Turn whatever goes wrong with Redis into StoreUnavailable, without its text: that may carry an address.

    What takes longer than the client's `step_s` went wrong; redis-py closes a connection on which a command was given up.
    """
    try:
        async with asyncio.timeout(client.step_s):
            yield
    except OutOfMemoryError:
        log.warning("redis refuses writes: its memory is full")
        raise StoreUnavailable("redis", "redis is full") from None
    except (RedisError, RedisClusterException, OSError, TimeoutError) as error:
        log.warning("redis failed: %s", type(error).__name__)
        raise StoreUnavailable("redis") from None
