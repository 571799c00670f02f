"""What can the example agent do? Four tools that stay in one folder and on this machine, declared as OpenAI wants them.

They must not follow a link, a path or a redirect out of there, and must not read without a bound.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

Json = Any

BODY_BYTES_MAX = 1_000_000  # of a page and of a file
PAGE_SECONDS_MAX = 15.0


class ToolFailed(Exception):
    """A tool call came to nothing; the message goes to the model."""


@dataclass(frozen=True)
class Tool:
    """`parameters` are JSON Schema properties; `execute` gets the folder and the arguments."""

    name: str
    description: str
    parameters: Mapping[str, Json]
    required: tuple[str, ...]
    execute: Callable[[Path, Mapping[str, Json]], str]

    def declared(self) -> dict[str, Json]:
        schema = {"type": "object", "properties": self.parameters, "required": list(self.required)}
        function = {"name": self.name, "description": self.description, "parameters": schema}
        return {"type": "function", "function": function}

    def run(self, folder: Path, given: Mapping[str, Json]) -> str:
        """Raises ToolFailed, whatever the model passed."""
        missing = [name for name in self.required if name not in given]
        if missing:
            raise ToolFailed(f"the argument {missing[0]} is missing")
        try:
            return self.execute(folder, given)
        except (OSError, ValueError, TypeError, httpx.HTTPError, httpx.InvalidURL) as failure:
            raise ToolFailed(f"{type(failure).__name__}: {failure}") from None


def _inside(folder: Path, path: Json) -> Path:
    """Links are followed before the check, so that none leads out."""
    found = (folder / str(path)).resolve()
    if not found.is_relative_to(folder.resolve()):
        raise ToolFailed(f"{path} is outside of the working folder")
    return found


def _list_files(folder: Path, given: Mapping[str, Json]) -> str:
    found = sorted(_inside(folder, given.get("path") or ".").iterdir())
    return "\n".join(f"{one.name}/" if one.is_dir() else one.name for one in found) or "(empty)"


def _read_file(folder: Path, given: Mapping[str, Json]) -> str:
    with _inside(folder, given["path"]).open("rb") as file:
        data = file.read(BODY_BYTES_MAX + 1)
    if len(data) > BODY_BYTES_MAX:
        raise ToolFailed(f"the file has more than {BODY_BYTES_MAX} bytes")
    return data.decode()


def _write_file(folder: Path, given: Mapping[str, Json]) -> str:
    data = str(given["content"]).encode()
    if len(data) > BODY_BYTES_MAX:
        raise ToolFailed(f"more than {BODY_BYTES_MAX} bytes")
    target = _inside(folder, given["path"])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    return f"wrote {len(data)} bytes"


def _http_get(folder: Path, given: Mapping[str, Json]) -> str:
    url, ends = str(given["url"]), time.monotonic() + PAGE_SECONDS_MAX
    parts = urlsplit(url)
    if parts.scheme != "http" or not _is_loopback(parts.hostname or ""):
        raise ToolFailed("only http:// addresses of this machine may be read")
    body = bytearray()
    with (
        httpx.Client(timeout=PAGE_SECONDS_MAX, trust_env=False, follow_redirects=False) as http,
        http.stream("GET", url, params=given.get("params") or None) as page,
    ):
        for chunk in page.iter_bytes():
            body += chunk
            if len(body) > BODY_BYTES_MAX or time.monotonic() > ends:
                raise ToolFailed(f"the page has more than {BODY_BYTES_MAX} bytes or takes too long")
    text = body.decode(errors="replace")
    if not page.is_success:
        raise ToolFailed(f"{page.status_code} {page.reason_phrase}: {text}")
    return text


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


_TEXT = {"type": "string"}
_PATH = {"path": {"type": "string", "description": "Relative to the working folder."}}
_PAGE = {"url": _TEXT, "params": {"type": "object", "description": "The query's parameters, by name."}}
TOOLS = {
    tool.name: tool
    for tool in (
        Tool("list_files", "List a folder.", _PATH, (), _list_files),
        Tool("read_file", "Read a text file.", _PATH, ("path",), _read_file),
        Tool("write_file", "Write a text file.", {**_PATH, "content": _TEXT}, ("path", "content"), _write_file),
        Tool("http_get", "Read a page of this machine.", _PAGE, ("url",), _http_get),
    )
}
