"""How does a user's memory get into a file from the command line?  `hindsight export`.

Asks a running service, so that keys, tenants and formats are the service's own and any server can be exported from anywhere.
The file has its name only once it is whole.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import httpx
import orjson
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from memory_service.errors import SetupRefused
from memory_service.moving.settings import MovingNumbers
from memory_service.settings import Settings, load_tunables

STDOUT = Path("-")
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - where a service that listens everywhere is asked


def export(settings: Settings, *, user_id: str, path: Path, url: str | None) -> int:
    """Write the export to `path` ("-": standard output); how many lines it has between header and end.

    Raises SetupRefused for what the service refuses, and when the export breaks off.
    """
    numbers = moving_numbers(settings)
    with client_of(settings, url, numbers) as client, _opened(path) as file, _bar() as progress:
        task = progress.add_task("exporting", total=None)
        try:
            with client.stream("GET", "/v1/export", params={"user_id": user_id}) as answer:
                if answer.status_code != 200:
                    answer.read()
                    raise SetupRefused(told(answer))
                return _copied(
                    answer.iter_bytes(), file, lambda n, total: progress.update(task, completed=n, total=total)
                )
        except httpx.HTTPError as error:
            raise SetupRefused(f"the export broke off: {unreachable(error, client)}") from None


def moving_numbers(settings: Settings) -> MovingNumbers:
    return load_tunables(settings).section("moving", MovingNumbers)


def client_of(settings: Settings, url: str | None, numbers: MovingNumbers) -> httpx.Client:
    """A client of the service at `url`, or at the address of the settings; with the key of the settings."""
    address = url or f"http://{ANY_ADDRESS.get(settings.host, settings.host)}:{settings.port}"
    headers = {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
    try:
        return httpx.Client(base_url=address, headers=headers, timeout=numbers.client_timeout_s)
    except (httpx.InvalidURL, UnicodeEncodeError):
        raise SetupRefused("--url or the key is not valid") from None


def told(answer: httpx.Response) -> str:
    """What a problem says."""
    try:
        detail = str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        detail = "no Hindsight service answers at this address"
    return f"the service answered {answer.status_code}: {detail}"


def unreachable(error: httpx.HTTPError, client: httpx.Client) -> str:
    return f"{client.base_url} can't be reached ({type(error).__name__}); --url names another address"


def _copied(pieces: Iterator[bytes], file: BinaryIO, show: Callable[[int, int], None]) -> int:
    """Raises SetupRefused when the last line is not the end of what the header announced."""
    total, line = 0, b""
    seen = 0
    for piece in pieces:
        file.write(piece)
        parts = (line + piece).split(b"\n")
        line = parts.pop()
        for part in parts:
            seen += 1
            if seen == 1:
                total = sum(orjson.loads(part)["counts"].values())
            last = part
        show(min(max(seen - 1, 0), total), total)
    if seen < 2 or line or b'"end"' not in last[:40]:
        raise SetupRefused("the export broke off before its end; try again")
    return seen - 2


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """The file under a provisional name, readable by the owner only; renamed when all went well, removed otherwise."""
    if path == STDOUT:
        yield sys.stdout.buffer
        return
    part = path.with_name(f"{path.name}.part")
    try:
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    except OSError as error:
        raise SetupRefused(f"{part}: {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _bar() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True))
