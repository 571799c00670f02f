"""The file tools: what is in which folder, and which traps wait there.

Files are real bytes in real encodings, so the errors of reading them are Python's own.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.loop.world import ToolFailed, World, take

# Folder → (encoding, delimiter) of the tables in it.
FOLDERS: Mapping[str, tuple[str, str]] = {
    "/archive/cn/": ("gbk", ","),
    "/archive/reports/": ("utf-8", ","),
    "/exchange/": ("utf-16", "\t"),
    "/exports/excel/": ("utf-8-sig", ","),
    "/exports/web/": ("utf-8", ","),
    "/exports/eu/": ("utf-8", ";"),
}
CHUNK_MB_MAX = 8
READ_ONLY = "/mnt/archive/"
COLUMNS = ("编号", "name", "amount")


def content_of(path: str) -> bytes:
    """The table at a path, made from its name."""
    encoding, delimiter = next((how for folder, how in FOLDERS.items() if path.startswith(folder)), ("", ""))
    if not encoding:
        raise ToolFailed(f"FileNotFoundError: [Errno 2] No such file or directory: '{path}'")
    stem = path.rpartition("/")[2].partition(".")[0]
    rows = [COLUMNS, *((str(n), f"{stem} 项目 {n}", str(7 * n)) for n in range(1, 9))]
    return "\r\n".join(delimiter.join(row) for row in rows).encode(encoding)


def read_table(_world: World, arguments: Mapping[str, Any]) -> str:
    path, column, encoding, delimiter = take(arguments, ("path", "column", "encoding", "delimiter"))
    try:
        text = content_of(path).decode(encoding)
    except UnicodeError as error:
        raise ToolFailed(f"{type(error).__name__}: {error}") from None
    except LookupError as error:
        raise ToolFailed(str(error)) from None
    try:
        header, *rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    except csv.Error as error:
        raise ToolFailed(f"csv.Error: {error}") from None
    if column not in header:
        raise ToolFailed(f"KeyError: column {column!r} not in {header}")
    at = header.index(column)
    return f"{len(rows)} rows; first {column}: {rows[0][at]}"


def list_folder(_world: World, arguments: Mapping[str, Any]) -> str:
    (path,) = take(arguments, ("path",))
    return f"{path}: 12 files"


def file_info(_world: World, arguments: Mapping[str, Any]) -> str:
    (path,) = take(arguments, ("path",))
    return f"{path}: {1000 + 37 * len(path)} bytes"


def write_file(_world: World, arguments: Mapping[str, Any]) -> str:
    path, _text, line_ending = take(arguments, ("path", "text", "line_ending"))
    if path.startswith(READ_ONLY):
        raise ToolFailed(f"OSError: [Errno 30] Read-only file system: '{path}'")
    if path.endswith(".bat") and line_ending != "crlf":
        raise ToolFailed("lint: 'rem' is not recognized as a command, line 1 does not end")
    return f"written {path}"


def checkout_workbook(world: World, arguments: Mapping[str, Any]) -> str:
    (path,) = take(arguments, ("path",))
    world.marks.add(("workbook", path))
    return f"checked out {path}"


def write_cells(world: World, arguments: Mapping[str, Any]) -> str:
    path, cells, _force = take(arguments, ("path", "cells"), ("force",))
    if path.startswith("/books/") and ("workbook", path) not in world.marks:
        raise ToolFailed(f"423 Locked: {path} is locked for editing")
    return f"wrote {len(cells)} cells"


def upload_file(_world: World, arguments: Mapping[str, Any]) -> str:
    path, chunk_mb = take(arguments, ("path", "chunk_mb"))
    if chunk_mb > CHUNK_MB_MAX:
        raise ToolFailed("413 Payload Too Large")
    return f"uploaded {path} in {256 // chunk_mb} chunks"


def set_modified(_world: World, arguments: Mapping[str, Any]) -> str:
    path, modified = take(arguments, ("path", "modified"))
    if len(modified) != 10 or modified[4] != "-" or modified[7] != "-":
        raise ToolFailed("ValueError: modified has a format that is not understood")
    return f"{path} now dates from {modified}"


def unpack(_world: World, arguments: Mapping[str, Any]) -> str:
    path, target = take(arguments, ("path", "target"))
    return f"unpacked {path} into {target}"


TOOLS: Mapping[str, Callable[..., str]] = {
    tool.__name__: tool
    for tool in (
        read_table, list_folder, file_info, write_file, checkout_workbook, write_cells, upload_file, set_modified, unpack,
    )
}  # fmt: skip
