"""Which tools use conditional lessons? Each maps to one route under /v1/experiences."""

from __future__ import annotations

from mcp_gateway.advice import Effect
from mcp_gateway.arguments import Argument
from mcp_gateway.client import Json
from mcp_gateway.tools.tool import USER_ID, Call, Tool

_NO_EXPERIENCES = "This memory service does not offer experiences. Use memory_search and memory_write instead."


async def _query(call: Call) -> Json:
    body = call.picked("semantic_query", "conditions", "state", "task_type", "min_confidence", limit="top_k")
    body["user_id"] = await call.user_id()
    return await call.service.read(call.caller, "POST", "/v1/experiences/query", body=body)


async def _distill(call: Call) -> Json:
    trajectory = call.picked("goal", "outcome", "steps", "task_type", "feedback")
    body = {"user_id": await call.user_id(), "trajectory": trajectory}
    return await call.service.write(call.caller, "/v1/experiences/distill", body)


memory_query = Tool(
    name="memory_query",
    title="Query experiences",
    description=(
        "Find lessons that apply to the current situation: 'when these conditions hold, do this, avoid that'. Use it "
        "before a risky or repeated step and describe the situation in state. Not for facts (memory_search). "
        'Example: {"state": {"db": {"engine": "postgres", "size_gb": 900}}, "task_type": "migration"}.'
    ),
    arguments=(
        Argument("semantic_query", "string", "The situation in words."),
        Argument(
            "conditions",
            "object list",
            'Only lessons that carry these triples, e.g. [{"field": "db.engine", "operator": "eq", "value": "postgres"}].',
        ),
        Argument("state", "object", "The situation as data; the lessons' conditions are evaluated against it."),
        Argument("task_type", "string", "Kind of task, e.g. migration."),
        Argument("top_k", "integer", "How many lessons at most.", default=3, minimum=1, maximum=100),
        Argument("min_confidence", "number", "Leave out lessons below this, 0 to 1.", minimum=0, maximum=1),
        USER_ID,
    ),
    effect=Effect.READ,
    run=_query,
    missing=_NO_EXPERIENCES,
    read_only=True,
    rest="Ask again with a smaller top_k.",
    renamed={"limit": "top_k"},
)

memory_distill = Tool(
    name="memory_distill",
    title="Learn from a run",
    description=(
        "Turn a finished run into lessons for next time. Use it once after a run that failed, took detours or got "
        "feedback. Not needed after task_finish, which does it. Not for single facts (memory_write). "
        'Example: {"goal": "deploy v2", "outcome": "failure", "steps": [{"tool": "kubectl", '
        '"arguments": {"cmd": "apply"}, "status": "error", "error": "quota exceeded"}]}.'
    ),
    arguments=(
        Argument("goal", "string", "What the run was to achieve.", required=True),
        Argument(
            "outcome", "string", "How it ended.", required=True, choices=("success", "failure", "detour", "aborted")
        ),
        Argument(
            "steps",
            "object list",
            "The tool calls in order: {tool, arguments, status, result?, error?, duration_ms?, reason?}.",
            required=True,
        ),
        Argument("task_type", "string", "Kind of task, e.g. deployment."),
        Argument("feedback", "string", "What a person said about the run."),
        USER_ID,
    ),
    effect=Effect.SAVE,
    run=_distill,
    missing=_NO_EXPERIENCES,
    renamed={f"trajectory.{name}": name for name in ("goal", "outcome", "steps", "task_type", "feedback")},
)
