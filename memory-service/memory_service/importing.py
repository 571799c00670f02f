"""How does a file get into the memory from the command line?  `hindsight import`.

Sends the file in chunks to a running service, which has the rights, the checks and the relay; each chunk may be sent again
without harm, so an import that broke off is simply repeated.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import httpx
import orjson
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from memory_service.domain import SHARED_USER
from memory_service.errors import SetupRefused
from memory_service.exporting import client_of, moving_numbers, told, unreachable
from memory_service.moving.settings import MovingNumbers
from memory_service.settings import Settings, load_tunables

SEEDS = "seed-memories.jsonl"
SHOWN_MAX = 20
AGAIN = (429, 502, 503, 504)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole lines; the first has the number `before` + 1 in the file."""

    before: int
    body: bytes


@dataclass(slots=True)
class Report:
    """What became of the file.  `refused` are `{line, id, code, detail}` with line numbers of the file."""

    imported: int = 0
    unchanged: int = 0
    refused: list[dict[str, Any]] = field(default_factory=list)
    new_ids: int = 0
    whole: bool = True

    @property
    def good(self) -> bool:
        return self.whole and not self.refused

    def add(self, answer: dict[str, Any], before: int) -> None:
        self.imported += answer["imported"]
        self.unchanged += answer["unchanged"]
        self.refused += [{**one, "line": one["line"] + before} for one in answer["refused"]]
        self.new_ids += len(answer["ids"])

    def lines(self) -> list[str]:
        """For people."""
        told = [f"{self.imported} imported, {self.unchanged} unchanged, {len(self.refused)} refused"]
        told += [f"{self.new_ids} got new ids, because theirs belong to somebody else here"] if self.new_ids else []
        told += [f"line {r['line']}: {r['code']}: {r['detail']}" for r in self.refused[:SHOWN_MAX]]
        rest = len(self.refused) - SHOWN_MAX
        told += [f"… and {rest} more"] if rest > 0 else []
        told += [] if self.whole else ["the file has no end: it was cut off when it was exported or copied"]
        return told


def import_file(settings: Settings, path: Path | None, *, user_id: str | None, url: str | None) -> Report:
    """`path` None: the lessons that come with Hindsight, for everybody of the tenant unless `user_id` says whom.

    Raises SetupRefused when the file can't be read, or the service refuses or can't be reached for long.
    """
    if path is None:
        path, user_id = settings.config_folder / SEEDS, user_id or SHARED_USER
    numbers, most = moving_numbers(settings), load_tunables(settings).limits.body_bytes_max
    report = Report()
    try:
        with path.open("rb") as file, client_of(settings, url, numbers) as client, _bar() as progress:
            task = progress.add_task("importing", total=path.stat().st_size)
            watch = _Ends()
            for chunk in _chunks(file, numbers, most, report, watch):
                if chunk.body:
                    report.add(_sent(client, chunk.body, user_id, numbers), chunk.before)
                progress.update(task, completed=file.tell())
            report.whole = watch.whole
    except OSError as error:
        raise SetupRefused(f"{path}: {error.strerror}") from None
    report.refused.sort(key=lambda one: one["line"])
    return report


@dataclass(slots=True)
class _Ends:
    """Is it a whole export?  What has no header is no export and has no end."""

    first: bytes = b""
    last: bytes = b""
    lines: int = 0

    def see(self, line: bytes) -> None:
        if not line.strip():
            return
        self.first = self.first or line
        self.last = line
        self.lines += 1

    @property
    def whole(self) -> bool:
        if _read(self.first).get("type") != "header":
            return True
        end = _read(self.last)
        return end.get("type") == "end" and end.get("lines") == self.lines - 2


def _read(line: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(line.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _chunks(file: BinaryIO, numbers: MovingNumbers, most: int, report: Report, watch: _Ends) -> Iterator[Chunk]:
    """Bounded pieces of the file.  A line that no request can hold is refused here and an empty one sent in its place."""
    taken: list[bytes] = []
    size = before = 0
    while line := file.readline(most):
        if len(line) == most and not line.endswith(b"\n"):
            while (rest := file.readline(most)) and not rest.endswith(b"\n"):
                pass
            report.refused.append(
                {"line": before + len(taken) + 1, "id": None, "code": "too_large", "detail": f"above {most} bytes"}
            )
            line = b"\n"
        watch.see(line)
        if taken and (size + len(line) > numbers.client_chunk_bytes or len(taken) >= numbers.client_chunk_lines):
            yield Chunk(before, b"".join(taken))
            before, taken, size = before + len(taken), [], 0
        taken.append(line)
        size += len(line)
    yield Chunk(before, b"".join(taken))


def _sent(client: httpx.Client, body: bytes, user_id: str | None, numbers: MovingNumbers) -> dict[str, Any]:
    """One chunk, again after a lost connection or a service that is busy.  Raises SetupRefused."""
    params = {"user_id": user_id} if user_id else {}
    reason = ""
    for attempt in range(numbers.client_attempts_max):
        pause = min(numbers.client_backoff_s * 2**attempt, numbers.client_backoff_s_max)
        try:
            answer = client.post("/v1/import", content=body, params=params)
        except httpx.HTTPError as error:
            reason = unreachable(error, client)
        else:
            if answer.status_code == 200:
                return answer.json()  # type: ignore[no-any-return]
            reason = told(answer)
            if answer.status_code not in AGAIN:
                break
            wanted = answer.headers.get("retry-after", "")
            pause = min(max(pause, float(wanted if wanted.isdigit() else 0)), numbers.client_backoff_s_max)
        if attempt + 1 < numbers.client_attempts_max:
            time.sleep(pause)
    raise SetupRefused(f"{reason}. What was imported stays; run the command again to go on")


def _bar() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True))
