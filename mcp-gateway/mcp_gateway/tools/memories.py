"""Which tools search and change long-term memories? Each maps to one route under /v1/memories."""

from __future__ import annotations

from mcp_gateway import cursors, results
from mcp_gateway.advice import Effect
from mcp_gateway.arguments import Argument
from mcp_gateway.client import Json, path_segment
from mcp_gateway.errors import BadArguments, Refused
from mcp_gateway.tools.tool import USER_ID, Call, Tool, meanwhile

HITS_MAX = 100
_NO_MEMORY = "There is no memory with this id: it was deleted, has expired or is someone else's. Search for it again."
_NO_SEARCH = "This memory service cannot search memories. Go on without them."
_ID = Argument("id", "string", "Id of the memory, as a search returned it.", required=True)
_TAGS = Argument("tags", "string list", 'Short labels, e.g. ["deploy", "postgres"].')
_IMPORTANCE = Argument("importance", "number", "0 (trivial) to 1 (must never be forgotten).", minimum=0, maximum=1)
_METADATA = Argument("metadata", "object", 'Any JSON object kept with the memory, e.g. {"ticket": 42}.')
_TOP_K = Argument("top_k", "integer", "How many hits at most.", default=5, minimum=1, maximum=HITS_MAX)


async def _search(call: Call) -> Json:
    cursor = cursors.decode(call.get("cursor")) if call.get("cursor") is not None else None
    if isinstance(cursor, cursors.ContentCursor):
        memory = await call.service.read(call.caller, "GET", f"/v1/memories/{path_segment(cursor.memory_id)}")
        return results.fit_content(memory, cursor.offset, call.settings.gateway_result_bytes_max)
    question = call.picked("query", "kinds", "tags", "since", "until")
    question["user_id"] = await call.user_id()
    return await _page(call, question, cursor)


async def _search_episodes(call: Call) -> Json:
    task_type = call.get("task_type")
    description = call.get("task_description")
    # A memory has no task type of its own, so it steers the search as text instead of filtering it to nothing.
    query = f"{task_type}: {description}" if task_type else description
    answer = await _page(call, {"query": query, "kinds": ["episodic"], "user_id": await call.user_id()}, None)
    answer.pop("next_cursor", None)  # this tool takes no cursor; more is asked for with a larger top_k
    return answer


async def _page(call: Call, question: dict[str, Json], cursor: cursors.HitsCursor | None) -> Json:
    """REST search has no cursor: a later page is a deeper search with the earlier hits left out."""
    if cursor is not None and cursor.question != cursors.fingerprint(question):
        raise BadArguments("'cursor' belongs to another search. Repeat its arguments unchanged, or leave it out.")
    offset = cursor.offset if cursor is not None else 0
    limit = min(offset + call.get("top_k"), HITS_MAX)
    # Nearly always a page holds as many hits as were asked for.
    usual_cursor = meanwhile(lambda: _cursor(limit, question))
    answer = await call.service.read(call.caller, "POST", "/v1/memories/search", body={**question, "limit": limit})
    found = answer["results"]
    rest = {name: answer[name] for name in ("degraded", "retrieval_id") if answer.get(name)}
    if "degraded" in rest:
        rest["note"] = "Part of the search failed, so hits may be missing."
    # Leaves room for the cursor, which is only known after fitting.
    page = results.fit_hits(found[offset:], call.settings.gateway_result_bytes_max - 200, rest)
    reached = offset + page.taken
    more = reached < len(found) or (len(found) == limit < HITS_MAX)
    if not more:
        return {"results": page.hits, **rest}
    following = usual_cursor() if reached == limit else _cursor(reached, question)
    return {"results": page.hits, **rest, "next_cursor": following}


def _cursor(offset: int, question: dict[str, Json]) -> str:
    return cursors.encode(cursors.HitsCursor(offset, cursors.fingerprint(question)))


async def _write(call: Call) -> Json:
    body = call.picked("content", "tags", "importance", "outcome", "metadata", "related_ids", kind="memory_type")
    body["user_id"] = await call.user_id()
    return results.written(await call.service.write(call.caller, "/v1/memories", body))


async def _update(call: Call) -> Json:
    changes = call.picked("content", "tags", "importance", "metadata")
    if not changes:
        raise BadArguments("Nothing to change: pass at least one of content, tags, importance, metadata.")
    path = f"/v1/memories/{_memory_segment(call)}"
    memory = await call.service.change(call.caller, "PATCH", path, body=changes)
    return results.written({"status": "updated", "memory": memory})


async def _delete(call: Call) -> Json:
    await call.service.change(call.caller, "DELETE", f"/v1/memories/{_memory_segment(call)}")
    return {"status": "deleted", "id": call.get("id")}


async def _feedback(call: Call) -> Json:
    segment, outcome = _memory_segment(call), call.get("outcome")
    try:
        body = call.picked("outcome", "note")
        answer = await call.service.write_once(call.caller, f"/v1/memories/{segment}/feedback", body, beside="note")
        return {"status": "recorded", "id": call.get("id"), **_moved(answer)}
    except Refused as refusal:
        if refusal.code == "idempotency_mismatch":  # the same rating within a day, with another note
            answer = await call.service.read(call.caller, "GET", f"/v1/memories/{segment}")
            unkept = {"note": "The same rating within a day counts once; the first note is kept."}
            return {"status": "recorded", "id": call.get("id"), **_moved(answer), **unkept}
        # Nothing was rated yet. The id may be an experience's; those know success and failure only.
        if refusal.status != 404 or outcome not in ("success", "failure"):
            raise
    path = f"/v1/experiences/{segment}/feedback"
    answer = await call.service.write_once(call.caller, path, {"outcome": outcome})
    unkept = {"note": "An experience keeps no note; only the outcome was recorded."} if call.get("note") else {}
    return {"status": "recorded", "id": call.get("id"), **_moved(answer), **unkept}


def _moved(answer: Json) -> dict[str, Json]:
    memory = answer.get("memory") or answer.get("experience") or answer if isinstance(answer, dict) else {}
    return {name: memory[name] for name in ("heat", "confidence") if memory.get(name) is not None}


def _memory_segment(call: Call) -> str:
    if not call.get("id").strip():
        raise BadArguments("'id' must not be blank. Use the id of a search hit.")
    return path_segment(call.get("id"))


memory_search = Tool(
    name="memory_search",
    title="Search memories",
    description=(
        "Search everything remembered about a user: facts, preferences, decisions, past events. Use it before you "
        "answer or act on anything that may have come up before. Not for live data such as current files or prices. "
        'Example: {"query": "how do we deploy the billing service", "top_k": 5}. A long answer ends with next_cursor; '
        "repeat the call with it as cursor."
    ),
    arguments=(
        Argument("query", "string", "What to look for, in plain words, any language.", required=True),
        USER_ID,
        _TOP_K,
        Argument("kinds", "string list", "Only these kinds.", choices=("episodic", "semantic")),
        Argument("tags", "string list", "Only memories with one of these tags."),
        Argument("since", "string", "Only what happened at or after this time, RFC 3339, e.g. 2026-01-31T00:00:00Z."),
        Argument("until", "string", "Only what happened before this time, RFC 3339."),
        Argument("cursor", "string", "next_cursor or content_cursor of an earlier answer, with the same arguments."),
    ),
    effect=Effect.READ,
    run=_search,
    missing=_NO_MEMORY,
    read_only=True,
    renamed={"limit": "top_k"},
)

search_episodic_memory = Tool(
    name="search_episodic_memory",
    title="Find past cases",
    description=(
        "Find past cases similar to the task at hand: what was done, how it ended. Use it when you plan, or for more "
        "cases than task_start brings. Not for facts or preferences (memory_search) and not for live data. "
        'Example: {"task_description": "migrate the orders table without downtime", "task_type": "migration"}.'
    ),
    arguments=(
        Argument("task_description", "string", "The task at hand, in one or two sentences.", required=True),
        Argument("task_type", "string", "Kind of task, e.g. migration, bugfix, research."),
        _TOP_K,
        USER_ID,
    ),
    effect=Effect.READ,
    run=_search_episodes,
    missing=_NO_SEARCH,
    read_only=True,
    renamed={"limit": "top_k", "query": "task_description"},
)

memory_write = Tool(
    name="memory_write",
    title="Remember",
    description=(
        "Save one thing worth knowing in a later conversation: a fact, preference, decision, result or mistake. "
        "One self-contained statement per call, with names and dates. Not for secrets, chit-chat or notes that "
        "matter only for the running task (task_note). Saying the same again is harmless: it answers 'duplicate'. "
        'Example: {"content": "Ana prefers metric units in all reports.", "tags": ["preference"]}.'
    ),
    arguments=(
        Argument("content", "string", "The whole text to remember, at most 256 KiB.", required=True),
        Argument(
            "memory_type",
            "string",
            "episodic = something that happened, semantic = something that is true, auto = let the service decide.",
            default="auto",
            choices=("auto", "episodic", "semantic"),
        ),
        _TAGS,
        _IMPORTANCE,
        Argument("outcome", "string", "How it ended, if it did.", choices=("success", "failure", "detour")),
        _METADATA,
        Argument("related_ids", "string list", "Ids of memories that this one belongs to."),
        USER_ID,
    ),
    effect=Effect.SAVE,
    run=_write,
    missing="This memory service cannot write memories.",
    renamed={"kind": "memory_type"},
)

memory_update = Tool(
    name="memory_update",
    title="Correct a memory",
    description=(
        "Correct a memory whose id you know. Only the given arguments change; tags and metadata are replaced whole. "
        "Not for new information: use memory_write. "
        'Example: {"id": "01890a5d-ac96-774b-bcce-b302099a8057", "content": "The meeting is on Tuesday."}.'
    ),
    arguments=(_ID, Argument("content", "string", "The new whole text."), _TAGS, _IMPORTANCE, _METADATA),
    effect=Effect.CHANGE,
    run=_update,
    missing=_NO_MEMORY,
    destructive=True,
)

memory_delete = Tool(
    name="memory_delete",
    title="Forget a memory",
    description=(
        "Erase one memory for good. Use it only when the user asks to forget something. Outdated facts are better "
        'corrected with memory_update. Example: {"id": "01890a5d-ac96-774b-bcce-b302099a8057"}.'
    ),
    arguments=(_ID,),
    effect=Effect.DELETE,
    run=_delete,
    missing=_NO_MEMORY,
    destructive=True,
    idempotent=True,
)

memory_feedback = Tool(
    name="memory_feedback",
    title="Rate a memory",
    description=(
        "Say whether a memory or an experience that you used helped: success, failure, irrelevant or outdated "
        "(experiences: success or failure). Use it after acting on a search hit or a lesson; it decides what is found "
        "later. Not needed for advice of a task that you finish. The same rating again within a day counts once. "
        'Example: {"id": "01890a5d-ac96-774b-bcce-b302099a8057", "outcome": "success"}.'
    ),
    arguments=(
        Argument("id", "string", "Id of the memory or experience.", required=True),
        Argument(
            "outcome",
            "string",
            "How it turned out.",
            required=True,
            choices=("success", "failure", "irrelevant", "outdated"),
        ),
        Argument("note", "string", "Why, in one sentence."),
    ),
    effect=Effect.SAVE,
    run=_feedback,
    missing=(
        "There is no memory or experience with this id. If it is an experience, the outcome must be success or failure."
    ),
    idempotent=True,
)
