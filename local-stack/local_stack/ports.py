"""Which port is free? Looks only at this machine; claims nothing, so a caller must be ready to lose a race."""

from __future__ import annotations

import random
import socket

from local_stack.errors import PortTaken
from local_stack.limits import limit


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """True when a server could bind `host:port` now. SO_REUSEADDR, as every server here sets it: TIME_WAIT is free."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def choose(preferred: int | None, taken: frozenset[int] = frozenset()) -> int:
    """The preferred port when it is free, else a random free one of the inner range that is not in `taken`."""
    if preferred is not None and preferred not in taken and is_free(preferred):
        return preferred
    first, last = int(limit("ports", "inner_first")), int(limit("ports", "inner_last"))
    for _ in range(int(limit("ports", "attempts"))):
        port = random.randint(first, last)  # noqa: S311  # no secret
        if port not in taken and is_free(port):
            return port
    raise PortTaken(f"No free port between {first} and {last} on 127.0.0.1.")
