"""What can be read by URI? memory://memories/{id}, memory://working/{task_id}[?user_id=] and memory://stats.

Must not change anything. A memory is read whole; one that is too long for a client's largest message comes in pieces,
each naming the URI of the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from mcp_types import Resource, ResourceTemplate

from mcp_gateway import results
from mcp_gateway.client import Caller, Json, ServiceClient, path_segment
from mcp_gateway.errors import BadArguments

TEMPLATES = (
    ResourceTemplate(
        name="memory",
        title="One memory, whole",
        uri_template="memory://memories/{id}",
        description=(
            "A memory with its complete text. If it is too long for one message, the answer is a piece and next_uri "
            "(the same URI with ?offset=CHARACTERS) reads on."
        ),
        mime_type="application/json",
    ),
    ResourceTemplate(
        name="working memory",
        title="Working memory of a task",
        uri_template="memory://working/{task_id}",
        description="Goal, facts, to-dos, failures and variables of a running task. Percent-encode the task id.",
        mime_type="application/json",
    ),
    # Beside the plain one, not instead of it: many clients fill in {name} only and know no {?name} of RFC 6570.
    ResourceTemplate(
        name="working memory of a user",
        title="Working memory of a user's task",
        uri_template="memory://working/{task_id}?user_id={user_id}",
        description="The same for a task of a user other than the gateway's default. Percent-encode both.",
        mime_type="application/json",
    ),
)
CONCRETE = (
    Resource(
        name="stats",
        title="Numbers about the memories",
        uri="memory://stats",
        description="How many memories of which kind and state there are.",
        mime_type="application/json",
    ),
)
_PARAMETERS = {"memories": {"offset"}, "working": {"user_id"}, "stats": set[str]()}
MISSING = "There is nothing at this URI: it was deleted, has expired or is someone else's."


@dataclass(frozen=True)
class Address:
    """A parsed URI; `offset` counts characters of a memory's content, `user_id` says whose task it is."""

    kind: str
    name: str
    offset: int = 0
    user_id: str | None = None


def parse_uri(uri: str) -> Address:
    """Raises BadArguments for anything but the three kinds, and for a parameter that the kind does not have."""
    refusal = BadArguments(
        "This gateway has memory://memories/{id}, memory://working/{task_id}, memory://working/{task_id}?user_id={user_id} "
        "and memory://stats. Check the URI."
    )
    try:
        parts = urlsplit(uri)
        name = unquote(parts.path.removeprefix("/"), errors="strict")
        given = _parameters(parts.query)
    except ValueError:
        raise refusal from None
    known = parts.scheme == "memory" and (
        (parts.netloc in ("memories", "working") and name.strip()) or (parts.netloc == "stats" and not name)
    )
    if not known or set(given) - _PARAMETERS[parts.netloc]:
        raise refusal
    offset = given.get("offset", "0")
    if not (offset.isascii() and offset.isdigit() and len(offset) < 10):
        raise refusal
    return Address(parts.netloc, name, int(offset), given.get("user_id"))


def _parameters(query: str) -> dict[str, str]:
    """By RFC 3986, not as a web form: a plus stays a plus. An empty one counts as not given, as in a template that was
    not filled in. Raises ValueError for a repeated one."""
    given: dict[str, str] = {}
    for pair in query.split("&"):
        name, _, value = pair.partition("=")
        if name in given:
            raise ValueError(name)
        if value:
            given[name] = unquote(value, errors="strict")
    return given


async def read_memory(service: ServiceClient, caller: Caller, address: Address, bytes_max: int) -> str:
    memory = await service.read(caller, "GET", f"/v1/memories/{path_segment(address.name)}")
    whole = results.to_text(memory)
    if address.offset == 0 and results.wire_bytes(whole) <= bytes_max:
        return whole
    piece = results.fit_content(memory, address.offset, bytes_max - 200)
    piece.pop("next_cursor", None)
    if piece["to"] < piece["total_chars"]:
        piece["next_uri"] = f"memory://memories/{path_segment(address.name)}?offset={piece['to']}"
    if address.offset == 0:
        piece["cut"] = "The content is too long for one message. Read next_uri for the rest."
    return results.to_text(piece)


async def read_working_memory(
    service: ServiceClient, caller: Caller, address: Address, user_id: str, bytes_max: int
) -> str:
    path = f"/v1/working-memory/{path_segment(address.name)}"
    state: Json = await service.read(caller, "GET", path, params={"user_id": user_id})
    return results.fit_document(state, bytes_max, "… [cut: the working memory is too long for one message]")


async def read_stats(service: ServiceClient, caller: Caller, user_id: str | None, bytes_max: int) -> str:
    params = {"user_id": user_id} if user_id is not None else None
    stats: Json = await service.read(caller, "GET", "/v1/stats", params=params)
    return results.fit_document(stats, bytes_max, "… [cut]")
