"""The route of raw dialogue: the service decides whether, what and where to write."""

import hashlib
from typing import Annotated, Any
from uuid import uuid4

from fastapi import APIRouter, Request, Response
from pydantic import Field

from memory_service.access import require_user
from memory_service.api.answers import Answer, checked_key, once
from memory_service.api.body import Contract, read_body
from memory_service.api.contract import ContractRoute, takes
from memory_service.api.dependencies import Services, Writer, note
from memory_service.api.fields import Content, Identifier, Label, Time
from memory_service.api.problems import problem
from memory_service.bootstrap import Runtime
from memory_service.domain import Caller, Json
from memory_service.errors import InvalidFields, TooLarge
from memory_service.write.triggers import Message, Role, ToolStatus
from memory_service.write.turn_values import TurnsAnswer, TurnsRequest, WrittenTurn

router = APIRouter(prefix="/v1/turns", route_class=ContractRoute, tags=["turns"])
BATCH_CHARS = 32


class MessageIn(Contract):
    """One message; `name` is the tool's or the speaker's."""

    role: Role
    content: Content
    name: Label | None = None
    at: Time | None = None


class TakeTurns(Contract):
    """POST /v1/turns"""

    user_id: Identifier
    session_id: Identifier
    messages: Annotated[list[MessageIn], Field(min_length=1)]
    task_id: Identifier | None = None
    agent_id: Identifier | None = None
    last_tool_status: ToolStatus | None = None


@router.post("", openapi_extra=takes(TakeTurns))
async def take(request: Request, services: Services, caller: Writer) -> Response:
    """Add dialogue to its session's buffer, and write what triggers."""
    body = await read_body(request, TakeTurns, services.tunables.limits)
    require_user(caller, body.user_id)
    check_sizes(body, services)
    note(request, user_id=body.user_id)
    asked = turns_request(request, body, caller)
    return await once(request, services, caller, lambda record: services.turns.take(caller, asked, record), answered)


def check_sizes(body: TakeTurns, services: Runtime) -> None:
    """Raises InvalidFields, TooLarge."""
    numbers, limits = services.turns.numbers, services.tunables.limits
    if len(body.messages) > numbers.request_messages_max:
        raise InvalidFields.of("messages", f"must have at most {numbers.request_messages_max} items")
    sizes = [len(message.content.encode()) for message in body.messages]
    for at, size in enumerate(sizes):
        if size > limits.content_bytes_max:
            raise TooLarge.of(f"messages.{at}.content", f"above {limits.content_bytes_max} bytes of UTF-8")
    if sum(sizes) > numbers.request_bytes_max:
        raise TooLarge.of("messages", f"together above {numbers.request_bytes_max} bytes of UTF-8")


def turns_request(request: Request, body: TakeTurns, caller: Caller) -> TurnsRequest:
    """A request with an Idempotency-Key is always the same batch, so that its messages join the buffer once."""
    key = request.headers.get("idempotency-key")
    batch = uuid4().hex
    if key is not None:
        owner = caller.key_id or "local"
        batch = hashlib.sha256(f"{owner}\0{checked_key(key)}".encode()).hexdigest()[:BATCH_CHARS]
    return TurnsRequest(
        user_id=body.user_id,
        session_id=body.session_id,
        messages=tuple(Message(one.role, one.content, one.name, one.at) for one in body.messages),
        task_id=body.task_id,
        agent_id=body.agent_id,
        last_tool_status=body.last_tool_status,
        batch=batch,
    )


def answered(answer: TurnsAnswer) -> Answer:
    """`{buffered, triggers[], written:[{id,kind,status,trigger,inferred_by}]}`, and of working memory what it was told."""
    body: Json = {
        "buffered": answer.buffered,
        "triggers": list(answer.triggers),
        "written": [written_json(one) for one in answer.written],
    }
    if answer.notes is not None:
        body["working_memory"] = {
            "confirmed_facts": [text for text, _ in answer.notes.facts],
            "failed_attempts": [": ".join(filter(None, (action, error))) for action, error, _ in answer.notes.failures],
            "recent_steps": list(answer.notes.steps),
        }
    if answer.degraded:
        body["degraded"] = list(answer.degraded)
    return Answer(200, body, tuple(one.memory.id for one in answer.written if one.memory is not None))


def written_json(one: WrittenTurn) -> Json:
    shown: dict[str, Any] = {"status": one.status, "trigger": one.trigger, "inferred_by": one.inferred_by}
    shown |= {"reason": one.reason} if one.reason else {}
    if one.error is not None:
        return {**shown, "error": problem(one.error)}
    return {"id": str(one.memory.id), "kind": one.memory.kind, **shown} if one.memory is not None else shown
