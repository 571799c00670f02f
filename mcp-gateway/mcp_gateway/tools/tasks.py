"""Which tools accompany a running task? They map to /v1/tasks and /v1/working-memory.

Answers repeat nothing that the caller just sent; what matters next is what the service knows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from mcp_gateway import results
from mcp_gateway.advice import Effect
from mcp_gateway.arguments import Argument
from mcp_gateway.client import Json, path_segment
from mcp_gateway.errors import BadArguments, PartlySaved, Refused, ServiceFailure
from mcp_gateway.tools.tool import USER_ID, Call, Tool

_NO_TASK = "There is no such task: its working memory has expired (after 2 hours without use), or the task_id is wrong."
_MADE = (
    "No task with this task_id was running, so a new one was made for this note. If you meant a running task, check its "
    "task_id and note it there again."
)
_NO_TASKS = "This memory service does not offer tasks. Use memory_search and memory_write."
_WORKING_REST = "Read the resource memory://working/{task_id} for the rest."
_TASK_ID = Argument("task_id", "string", "Your id for the task, the same in every call about it.", required=True)
_STATE = Argument("state", "object", 'The situation as data, e.g. {"branch": "main", "tests": "red"}.')
_STEP_ONLY = ("arguments", "status", "result", "error")


async def _start(call: Call) -> Json:
    body = call.picked("goal", "task_type", "constraints", "task_id", "state")
    body["user_id"] = await call.user_id()
    try:
        answer = await call.service.write(call.caller, "/v1/tasks", body)
    except Refused as refusal:
        if refusal.status != 409 or refusal.retry_after is not None:
            raise
        raise BadArguments(
            "Nothing was saved. A task with this task_id is running: go on with it (task_note, task_advice, task_finish), "
            "or start another one without task_id."
        ) from None
    return {**answer, "working_memory": _filled(answer.get("working_memory"))}


async def _note(call: Call) -> Json:
    path = f"/v1/working-memory/{_task_segment(call)}"
    notes, step = _notes(call), _step(call)
    if not notes and not step:
        raise BadArguments("Nothing to note: pass fact, todo, done, variable or tool.")
    user_id = await call.user_id()
    made = False
    if notes:
        body = {"user_id": user_id, **notes}
        made = await _in_task(call, path, user_id, lambda: call.service.change(call.caller, "PATCH", path, body=body))
    if step:
        entry = {"user_id": user_id, **step}
        try:
            made |= await _in_task(call, path, user_id, lambda: call.service.write(call.caller, f"{path}/steps", entry))
        except ServiceFailure as failure:
            raise (PartlySaved(failure) if notes else failure) from None
    return {"status": "noted", "task_id": call.get("task_id"), **({"notice": _MADE} if made else {})}


async def _in_task(call: Call, path: str, user_id: str, send: Callable[[], Awaitable[Json]]) -> bool:
    """Send; when the task has no working memory yet, give it an empty one and send again → whether one was made.

    PUT replaces, so two first notes of one task must not both create: the lock lets the second one see the first's.
    """
    try:
        await send()
        return False
    except Refused as refusal:
        if refusal.status != 404:
            raise
    async with call.service.creation_lock:
        try:
            await send()
            return False
        except Refused as refusal:
            if refusal.status != 404:
                raise
            await call.service.change(call.caller, "PUT", path, body={"user_id": user_id})
            await send()
            return True


def _notes(call: Call) -> dict[str, Json]:
    """PATCH appends to lists and merges variables; a finished item also leaves the list of pending ones."""
    notes: dict[str, Json] = {}
    if call.get("fact") is not None:
        notes["confirmed_facts"] = [call.get("fact")]
    if call.get("todo") is not None:
        notes["pending_items"] = [call.get("todo")]
    if call.get("done") is not None:
        notes["done_items"] = [call.get("done")]
        notes["remove"] = {"pending_items": [call.get("done")]}
    if call.get("variable") is not None:
        notes["variables"] = call.get("variable")
    return notes


def _step(call: Call) -> dict[str, Json]:
    if call.get("tool") is None:
        stray = [name for name in _STEP_ONLY if call.get(name) is not None]
        if stray:
            raise BadArguments(f"'{stray[0]}' belongs to a tool call: pass 'tool' with its name as well.")
        return {}
    step = call.picked("tool", *_STEP_ONLY)
    if "status" not in step:
        if "error" not in step and "result" not in step:
            raise BadArguments(
                "Nothing was noted: say how the call went, with 'status' (success or error), 'result' or 'error'."
            )
        step["status"] = "error" if "error" in step else "success"
    return step


async def _advise(call: Call) -> Json:
    body = {"user_id": await call.user_id(), **call.picked("tool", "arguments", "state")}
    return await call.service.read(call.caller, "POST", f"/v1/tasks/{_task_segment(call)}/advice", body=body)


async def _finish(call: Call) -> Json:
    body = {"user_id": await call.user_id(), **call.picked("outcome", "result", "feedback")}
    answer = await call.service.write(call.caller, f"/v1/tasks/{_task_segment(call)}/finish", body)
    episode = answer.get("episode")  # null when it was erased since
    return {**answer, "episode": results.written({"memory": episode}) if episode else None}


def _filled(working: Json) -> Json:
    """A working memory without its empty lists and unset fields: a new task has little else."""
    if not isinstance(working, dict):
        return working
    return {name: value for name, value in working.items() if value not in (None, [], {})}


def _task_segment(call: Call) -> str:
    if not call.get("task_id").strip():
        raise BadArguments("'task_id' must not be blank.")
    return path_segment(call.get("task_id"))


task_start = Tool(
    name="task_start",
    title="Start a task",
    description=(
        "Begin a task of several steps: gives it a working memory and returns what is already known about such tasks. "
        "Use it first, then task_advice, task_note and task_finish. Not for single questions. "
        'Example: {"goal": "upgrade the cluster to 1.31", "task_type": "upgrade", "constraints": ["no downtime"]}.'
    ),
    arguments=(
        Argument("goal", "string", "What is to be achieved.", required=True),
        Argument("task_type", "string", "Kind of task, e.g. upgrade."),
        Argument("constraints", "string list", "What must hold all the time."),
        Argument("task_id", "string", "Your own id for the task; left out, the service makes one."),
        _STATE,
        USER_ID,
    ),
    effect=Effect.SAVE,
    run=_start,
    missing=_NO_TASKS,
    rest=_WORKING_REST,
)

task_note = Tool(
    name="task_note",
    title="Note progress",
    description=(
        "Note progress of a running task in its working memory (made by the first note): a confirmed fact, a to-do, "
        "something done, a variable, or a tool call and how it went; task_finish learns from these calls. Notes fade "
        'after 2 hours without use; for what matters later use memory_write. Example: {"task_id": "upgrade-7", '
        '"fact": "staging runs 1.30", "tool": "kubectl", "arguments": {"cmd": "drain"}, "error": "timeout"}.'
    ),
    arguments=(
        _TASK_ID,
        Argument("fact", "string", "Something now known for sure."),
        Argument("todo", "string", "Something still to be done."),
        Argument("done", "string", "Something finished, in the words of its to-do."),
        Argument("variable", "object", 'Values to keep, merged by name, e.g. {"port": 5433}.'),
        Argument("tool", "string", "Name of a tool that was called."),
        Argument("arguments", "object", "The arguments it was called with."),
        Argument(
            "status", "string", "How the call went; needed without 'result' or 'error'.", choices=("success", "error")
        ),
        Argument("result", "string", "What it returned, shortened."),
        Argument("error", "string", "Its error message."),
        USER_ID,
    ),
    effect=Effect.SAVE,
    run=_note,
    missing=_NO_TASK,
    renamed={"confirmed_facts": "fact", "pending_items": "todo", "done_items": "done", "variables": "variable"},
)

task_advice = Tool(
    name="task_advice",
    title="Advice before a tool call",
    description=(
        "Ask what is known about a tool call before you make it: failed before, worked before, lessons. Use it before "
        "expensive or risky calls of the running task. Not for general questions (memory_search). "
        'Example: {"task_id": "upgrade-7", "tool": "kubectl", "arguments": {"cmd": "drain node-3"}}.'
    ),
    arguments=(
        _TASK_ID,
        Argument("tool", "string", "Name of the tool about to be called.", required=True),
        Argument("arguments", "object", "The arguments about to be used."),
        _STATE,
        USER_ID,
    ),
    effect=Effect.READ,
    run=_advise,
    missing=_NO_TASK,
    read_only=True,
)

task_finish = Tool(
    name="task_finish",
    title="Finish a task",
    description=(
        "End the task: keeps it as an episode, reviews the calls that were noted and learns lessons from them. Use it "
        'once, also when the task failed. Example: {"task_id": "upgrade-7", "outcome": "success", "result": "1.31 everywhere"}.'
    ),
    arguments=(
        _TASK_ID,
        Argument("outcome", "string", "How it ended.", required=True, choices=("success", "failure", "aborted")),
        Argument("result", "string", "What came out, in one or two sentences."),
        Argument("feedback", "string", "What a person said about it."),
        USER_ID,
    ),
    effect=Effect.SAVE,
    run=_finish,
    missing=_NO_TASK,
    rest="Read the resource memory://memories/{id} with the id of the episode.",
)
