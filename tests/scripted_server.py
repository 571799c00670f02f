"""A server on a socket that misbehaves on purpose, for the tests of what calls servers."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager


class Server:
    """Answers each request with what `script` gives for its number; None cuts the connection, b"" never answers.

    After an answer of `last` it closes the connection.
    """

    def __init__(self, script: Callable[[int], bytes | None], last: Collection[bytes] = ()) -> None:
        self.script, self.last = script, last
        self.connections, self.open, self.requests = 0, 0, list[bytes]()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"content-length: (\d+)", head.lower())
                self.requests.append(head + await reader.readexactly(int(length[1]) if length else 0))
                answer = self.script(len(self.requests))
                if answer is None:
                    break
                writer.write(answer)
                if answer in self.last:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        self.open -= 1
        writer.close()


@asynccontextmanager
async def serving(
    script: Callable[[int], bytes | None], last: Collection[bytes] = ()
) -> AsyncIterator[tuple[Server, str]]:
    """The server and its address."""
    server = Server(script, last)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    try:
        yield server, f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        listening.close()
