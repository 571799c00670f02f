"""How is the service asked without the asking being what is measured?

A kept-open socket, a request in one send, an answer read by its length: about 0.05 ms of Python.  httpx takes 1.0 ms a call, which
is more than most of what is measured here.  One `Line` a client; it is not safe between threads.
"""

from __future__ import annotations

import json
import socket
from typing import Any

_TIMEOUT_S = 60.0
_CHUNK = 65_536


class Failed(Exception):
    """The service answered with something that is not 2xx, or not at all."""


class Line:
    """One connection to `port` on this machine."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket = self._opened()

    def _opened(self) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self._port), _TIMEOUT_S)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    def close(self) -> None:
        self._socket.close()

    def ask(self, method: str, path: str, body: Any = None, headers: str = "") -> Any:
        """The answer's JSON.  Raises Failed for a status other than 2xx."""
        return json.loads(self.raw(method, path, b"" if body is None else json.dumps(body).encode(), headers))

    def raw(self, method: str, path: str, body: bytes = b"", headers: str = "") -> bytes:
        """The answer's bytes.  Raises Failed; the next request then has a new connection where this one broke."""
        kind = "content-type: application/json\r\n" if body else ""
        head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{headers}{kind}content-length: {len(body)}\r\n\r\n"
        try:
            self._socket.sendall(head.encode() + body)
            status, answer = self._answer()
        except OSError as error:
            self._socket.close()
            self._socket = self._opened()
            raise Failed(f"{method} {path}: {error!r}") from error
        if not 200 <= status < 300:
            raise Failed(f"{method} {path}: {status} {answer[:300]!r}")
        return answer

    def _answer(self) -> tuple[int, bytes]:
        got = b""
        while b"\r\n\r\n" not in got:
            got += self._more()
        head, _, rest = got.partition(b"\r\n\r\n")
        lower = head.lower()
        if b"content-length:" in lower:
            length = int(lower.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
            parts = [rest]
            left = length - len(rest)
            while left > 0:
                parts.append(self._more())
                left -= len(parts[-1])
            rest = b"".join(parts)
        elif b"transfer-encoding: chunked" in lower:
            rest = self._chunked(rest)
        return int(head[9:12]), rest

    def _chunked(self, got: bytes) -> bytes:
        whole = b""
        while True:
            while b"\r\n" not in got:
                got += self._more()
            size, _, got = got.partition(b"\r\n")
            length = int(size, 16)
            while len(got) < length + 2:
                got += self._more()
            whole, got = whole + got[:length], got[length + 2 :]
            if length == 0:
                return whole

    def _more(self) -> bytes:
        got = self._socket.recv(_CHUNK)
        if not got:
            raise ConnectionError("the connection was closed")
        return got
