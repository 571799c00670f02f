"""Routes of the task loop: begin a task with what is known, ask before a call, finish it and learn from it."""

import hashlib
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Request, Response
from pydantic import Field

from memory_service.access import require_user
from memory_service.api.answers import Answer, checked_key, once, reply
from memory_service.api.body import Contract, read_body
from memory_service.api.contract import ContractRoute, takes
from memory_service.api.dependencies import Reader, Services, Writer, note
from memory_service.api.experience_answers import review_json
from memory_service.api.fields import Content, Identifier, Label, Text
from memory_service.bootstrap import Runtime
from memory_service.domain import Caller, Json, Memory, new_id
from memory_service.errors import InvalidFields
from memory_service.experience.drafts import Distilled
from memory_service.experience.review import Review
from memory_service.stores.postgres.tasks import user_mark
from memory_service.tasks.calls import PlannedCall
from memory_service.tasks.closing import Ending
from memory_service.tasks.service import Advising, NewTask, Started

router = APIRouter(prefix="/v1/tasks", route_class=ContractRoute, tags=["task loop"])
OwnUser = Annotated[Identifier | None, Field(description="may be left out with a key that is bound to a user")]


class StartTask(Contract):
    """POST /v1/tasks"""

    user_id: OwnUser = None
    goal: Content
    task_type: Label | None = None
    constraints: list[Text] = Field(default_factory=list)
    task_id: Annotated[Identifier | None, Field(description="made by the service when left out")] = None
    agent_id: Identifier | None = None
    session_id: Identifier | None = None
    state: Annotated[dict[str, Any] | None, Field(description="what conditions of experiences are held against")] = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    resume: Annotated[bool, Field(description="go on with the task when it lives already, instead of 409")] = False


class AskAdvice(Contract):
    """POST /v1/tasks/{task_id}/advice: the call that is about to be made."""

    user_id: OwnUser = None
    tool: Annotated[Text, Field(max_length=256)]
    arguments: dict[str, Any] | None = None
    state: dict[str, Any] | None = None


class FinishTask(Contract):
    """POST /v1/tasks/{task_id}/finish"""

    user_id: OwnUser = None
    outcome: Literal["success", "failure", "aborted"]
    result: Annotated[Any, Field(description="what came out, any JSON")] = None
    feedback: Annotated[Content | None, Field(description="what the user said about the run")] = None


@router.post("", status_code=201, openapi_extra=takes(StartTask))
async def start(request: Request, services: Services, caller: Writer) -> Response:
    """Begin a task: its working memory, and what is known already that may help."""
    body = await read_body(request, StartTask, services.tunables.limits)
    user_id = acting_user(caller, body.user_id)
    new = new_task(request, caller, user_id, body)
    note(request, user_id=user_id, task_id=new.task_id)
    mark = user_mark(caller.tenant, user_id)
    work = services.tasks.start
    return await once(request, services, caller, lambda record: work(caller, new, record), lambda s: started(s, mark))


@router.post("/{task_id}/advice", openapi_extra=takes(AskAdvice))
async def advice(request: Request, task_id: str, services: Services, caller: Reader) -> Response:
    """What failed, what worked, and which lessons apply to the call that is about to be made."""
    body = await read_body(request, AskAdvice, services.tunables.limits)
    user_id = acting_user(caller, body.user_id)
    planned = PlannedCall(body.tool, body.arguments or {})
    given = await services.tasks.advice(caller, user_id, task_id, planned, body.state)
    ids = [hint.source_id for hint in given.hints if hint.source_id != task_id]
    note(request, user_id=user_id, task_id=task_id, ids=ids, degraded=given.degraded)
    return reply(advice_json(given))


@router.post("/{task_id}/finish", openapi_extra=takes(FinishTask))
async def finish(request: Request, task_id: str, services: Services, caller: Writer) -> Response:
    """End a task: it becomes an episode, is reviewed, and its lessons are learned.  Idempotent."""
    body = await read_body(request, FinishTask, services.tunables.limits)
    user_id = acting_user(caller, body.user_id)
    note(request, user_id=user_id, task_id=task_id)
    ending, mark = Ending(body.outcome, body.result, body.feedback), user_mark(caller.tenant, user_id)

    def shape(episode: Memory | None, review: Review, distilled: Distilled) -> Json:
        return finished_json(services, episode, review, distilled)

    work = services.finishing.finish
    return await once(
        request,
        services,
        caller,
        lambda record: work(caller, user_id, task_id, ending, shape, record),
        lambda finished: Answer(200, finished.answer, (*finished.ids, mark)),
    )


# What the routes share.


def acting_user(caller: Caller, named: str | None) -> str:
    """The user that the request is about.  Raises InvalidFields, Forbidden."""
    user_id = named or caller.user_id
    if user_id is None:
        raise InvalidFields.of("user_id", "is required: this key is not bound to a user")
    require_user(caller, user_id)
    return user_id


def new_task(request: Request, caller: Caller, user_id: str, body: StartTask) -> NewTask:
    """The task to begin.  A start with an Idempotency-Key is always the same run, so that a cut-off one can be taken up."""
    return NewTask(
        user_id=user_id,
        goal=body.goal,
        task_id=body.task_id or str(new_id()),
        run_id=run_of(request, caller),
        task_type=body.task_type,
        constraints=tuple(body.constraints),
        agent_id=body.agent_id,
        session_id=body.session_id,
        state=body.state or {},
        max_tokens=body.max_tokens,
        resume=body.resume,
    )


def run_of(request: Request, caller: Caller) -> UUID:
    key = request.headers.get("idempotency-key")
    if key is None:
        return new_id()
    name = f"{caller.tenant}\0{caller.key_id or 'local'}\0{checked_key(key)}\0".encode() + request.state.raw_body
    return UUID(bytes=hashlib.sha256(name).digest()[:16])


def started(result: Started, mark: UUID) -> Answer:
    return Answer(200 if result.resumed else 201, result.to_json(), (*result.context.ids, mark))


def advice_json(given: Advising) -> Json:
    """`{hints:[{type,text,source_id,confidence?}], text, degraded}`"""
    hints = [
        {
            "type": hint.type,
            "text": hint.text,
            "source_id": hint.source_id,
            **({} if hint.confidence is None else {"confidence": hint.confidence}),
        }
        for hint in given.hints
    ]
    return {"hints": hints, "text": given.text, "degraded": list(given.degraded)}


def finished_json(services: Runtime, episode: Memory | None, review: Review, distilled: Distilled) -> Json:
    """`{episode, review, experiences:[{id,status}]}`; findings that were no lesson have no id and are left out."""
    kept = [one for one in distilled.stored if one.experience is not None]
    return {
        "episode": services.shown(episode) if episode else None,
        "review": review_json(review),
        "experiences": [{"id": str(one.experience.id), "status": one.status} for one in kept if one.experience],
    }
