"""How does an answer fit into the bytes that a client takes? Compact JSON, cut with a marker that says how to go on.

Pure. Must not drop anything silently: what is cut is marked, what does not fit gets a cursor.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import orjson

from mcp_gateway.client import Json
from mcp_gateway.cursors import ContentCursor, encode

# The result's frame around the text: JSON-RPC envelope, `_meta`, content block.
_FRAME_BYTES = 2_000
# What one character takes at most, as a pair of escaped surrogates.
_ESCAPED_BYTES_MAX = 12
_QUOTES_BYTES = 2
# Below this many characters a hit says too little; then whole hits move to the next page instead.
_CONTENT_CHARS_MIN = 400
_SUMMARY_CHARS_MAX = 1_000
_SHELL = ("id", "kind", "score", "summary", "occurred_at", "outcome", "category", "agent_id", "task_id", "conflict_id")
# Tags and metadata ride along only while small; the resource has them whole.
_EXTRAS_BYTES_MAX = 2_000
# A text of an answer that is not a list of hits keeps at least this much, then its lists get shorter.
_TEXT_CHARS_MIN = 200


@dataclass(frozen=True)
class Page:
    """The hits that fit, and how many of the given ones they are."""

    hits: list[dict[str, Json]]
    taken: int


def to_text(value: Json) -> str:
    return orjson.dumps(value).decode()


def fits(text: str, bytes_max: int) -> bool:
    """Whether `text` takes at most so many bytes inside a JSON-RPC message; a short one is not measured for it."""
    return _quoted_fits(text, bytes_max - _FRAME_BYTES)


def wire_bytes(text: str) -> int:
    """Bytes of `text` inside a JSON-RPC message. The 2026-07-28 transport of mcp 2.3 escapes all non-ASCII
    (`json.dumps` in `_streamable_http_modern._write`), so a Chinese character costs six bytes, not three."""
    return len(json.dumps(text)) + _FRAME_BYTES


def fit_hits(memories: Sequence[Mapping[str, Json]], bytes_max: int, rest: Mapping[str, Json]) -> Page:
    """As many hits as fit beside `rest`: first whole, then with equally cut contents, then fewer of them."""
    rest_text = to_text(rest)
    shells = [_shell(memory) for memory in memories]
    contents = [str(memory.get("content") or "") for memory in memories]
    whole = _render(shells, contents, max(map(len, contents), default=0))
    if fits(rest_text + to_text(whole), bytes_max - _QUOTES_BYTES):  # nearly always
        return Page(whole, len(whole))
    budget = bytes_max - wire_bytes(rest_text)
    # A character costs at least one byte: counting characters first keeps the measuring of bytes cheap.
    lengths = [len(content) for content in contents]
    roof = _largest(_CONTENT_CHARS_MIN, bytes_max, lambda chars: sum(min(size, chars) for size in lengths) <= budget)
    cap = _largest(_CONTENT_CHARS_MIN, roof, lambda chars: _cost(_render(shells, contents, chars)) <= budget)
    hits = _render(shells, contents, cap)
    spent = taken = 0
    for hit in hits:
        spent += _cost([hit])
        if spent > budget and taken:
            break
        taken += 1
    return Page(hits[:taken], taken)


def fit_content(memory: Mapping[str, Json], offset: int, bytes_max: int) -> dict[str, Json]:
    """One piece of a long content: `{id, content, from, to, total_chars, next_cursor?}`, positions in characters."""
    memory_id, content = str(memory.get("id")), str(memory.get("content") or "")

    def piece(end: int) -> dict[str, Json]:
        view = {"id": memory_id, "content": content[offset:end], "from": offset, "to": end}
        view["total_chars"] = len(content)
        if end < len(content):
            view["next_cursor"] = encode(ContentCursor(memory_id, end))
        return view

    last = min(len(content), offset + bytes_max)
    end = _largest(min(offset + 1, last), last, lambda at: wire_bytes(to_text(piece(at))) <= bytes_max)
    return piece(end)


def fit_document(document: Json, bytes_max: int, marker: str) -> str:
    """A whole JSON document as text, or its beginning and `marker` when it is too long."""
    text = to_text(document)
    if wire_bytes(text) <= bytes_max:
        return text
    end = _largest(0, min(len(text), bytes_max), lambda at: wire_bytes(text[:at] + marker) <= bytes_max)
    return text[:end] + marker


def fit_answer(answer: Json, bytes_max: int, rest: str) -> Json:
    """The answer itself while it fits; else a copy of the same shape with its longest texts, then its longest lists
    cut, and `cut` saying so and, in the words of `rest`, how to get the rest."""
    if wire_bytes(to_text(answer)) <= bytes_max:
        return answer

    def shown(chars: int, items: int) -> Json:
        copy = _shortened(answer, chars, items, outermost=True)
        return {**copy, "cut": f"Too long for one answer, so texts and lists were cut. {rest}"}

    def fits(chars: int, items: int) -> bool:
        return wire_bytes(to_text(shown(chars, items))) <= bytes_max

    if fits(_TEXT_CHARS_MIN, bytes_max):
        return shown(_grown(_TEXT_CHARS_MIN, bytes_max, lambda size: fits(size, bytes_max)), bytes_max)
    return shown(_TEXT_CHARS_MIN, _grown(1, bytes_max, lambda count: fits(_TEXT_CHARS_MIN, count)))


def written(answer: Mapping[str, Json]) -> dict[str, Json]:
    """What a write did, without echoing the text: `{status, id, kind, summary, …}`."""
    memory = answer.get("memory")
    view = {key: value for key, value in answer.items() if key != "memory" and value is not None}
    if isinstance(memory, Mapping):
        view |= _kept(memory, ("id", "kind", "event_type", "importance", "tags", "version"))
        view["summary"] = _cut(str(memory.get("summary") or ""), _SUMMARY_CHARS_MAX)
    return view


def _shell(memory: Mapping[str, Json]) -> dict[str, Json]:
    """A hit without its content: what a model needs to judge and to refer to it."""
    shell = _kept(memory, _SHELL)
    summary = str(shell.get("summary") or "")
    if summary and summary != memory.get("content"):
        shell["summary"] = _cut(summary, _SUMMARY_CHARS_MAX)
    else:
        shell.pop("summary", None)
    for name in ("tags", "metadata"):
        value = memory.get(name)
        if value and _quoted_fits(to_text(value), _EXTRAS_BYTES_MAX):
            shell[name] = value
        elif value:
            shell[f"{name}_omitted"] = f"too long; read memory://memories/{memory.get('id')}"
    return shell


def _render(shells: Sequence[dict[str, Json]], contents: Sequence[str], chars: int) -> list[dict[str, Json]]:
    return [_with_content(shell, content, chars) for shell, content in zip(shells, contents, strict=True)]


def _with_content(shell: dict[str, Json], content: str, chars: int) -> dict[str, Json]:
    if len(content) <= chars:
        return {**shell, "content": content}
    memory_id = str(shell.get("id"))
    marker = (
        f"… [cut: {chars} of {len(content)} characters. The rest: read memory://memories/{memory_id}, "
        "or call memory_search with this hit's content_cursor as cursor]"
    )
    return {
        **shell,
        "content": content[:chars] + marker,
        "content_cursor": encode(ContentCursor(memory_id, chars)),
    }


def _shortened(value: Json, chars: int, items: int, *, outermost: bool = False) -> Json:
    """Texts of at most `chars` characters before their marker, lists and objects of at most `items`; the outermost
    object keeps all its fields, because the contract bounds them."""
    if isinstance(value, str) and len(value) > chars:
        return f"{value[:chars]}… [cut: {chars} of {len(value)} characters]"
    if isinstance(value, list):
        return [_shortened(member, chars, items) for member in value[:items]]
    if isinstance(value, dict):
        fields = islice(value.items(), None if outermost else items)
        return {name[:chars]: _shortened(member, chars, items) for name, member in fields}
    return value


def _quoted_fits(text: str, bytes_max: int) -> bool:
    return len(text) * _ESCAPED_BYTES_MAX + _QUOTES_BYTES <= bytes_max or len(json.dumps(text)) <= bytes_max


def _cost(value: Json) -> int:
    return len(json.dumps(to_text(value)))


def _kept(memory: Mapping[str, Json], names: Sequence[str]) -> dict[str, Json]:
    return {name: value for name in names if (value := memory.get(name)) is not None}


def _cut(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[:chars]}…"


def _largest(low: int, high: int, fits: Callable[[int], bool]) -> int:
    """The largest value in low..high that fits; `low` when none does. `fits` must be monotone."""
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _grown(low: int, high: int, fits: Callable[[int], bool]) -> int:
    """As `_largest`, by doubling first: what is measured stays near the limit, however long the whole is."""
    while low < high and fits(min(high, 2 * low)):
        low = min(high, 2 * low)
    return _largest(low, min(high, 2 * low - 1), fits) if low < high else low
