"""Routes of working memory: what is going on in a task.  Redis only; they answer with Postgres and Qdrant down."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import (
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from memory_service.api.answers import checked_key, reply
from memory_service.api.body import Contract, read_body
from memory_service.api.contract import ContractRoute, takes
from memory_service.api.dependencies import Reader, Services, Writer, note
from memory_service.api.fields import Identifier, Text, Time, not_blank
from memory_service.errors import InvalidFields
from memory_service.working.commits import TaskMemory
from memory_service.working.items import SCALARS, Fact, FailedAttempt, Patch, PendingItem, Step, StepStatus, ToolCall
from memory_service.working.service import RepeatableRequest

router = APIRouter(prefix="/v1/working-memory", route_class=ContractRoute, tags=["working memory"])


def _number(value: Any) -> Any:
    """An integer stays one; pydantic's float would turn 3 into 3.0."""
    if type(value) not in (int, float):
        raise ValueError("must be a number")
    return value


Milliseconds = Annotated[int | float, BeforeValidator(_number), Field(ge=0)]


class OrText(Contract):
    """A list item that may also be given as a plain string; the published schema says so."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core_schema))
        return {"anyOf": [{"type": "string"}, dict(schema)]}


class Item(OrText):
    """A plain string is the item's first field."""

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, value: Any) -> Any:
        return {next(iter(cls.model_fields)): value} if isinstance(value, str) else value


class FactIn(Item):
    """A fact that holds in this task; `source` "memory:ID" marks a copy of a long-term memory, which goes when that goes."""

    fact: Text
    source: str | None = None
    at: Time | None = None

    def meant(self) -> Fact:
        return Fact(self.fact, self.source, self.at)


class PendingIn(Item):
    """Something to do; 1 is first, 5 last, 3 the default."""

    item: Text
    priority: Annotated[int, Field(ge=1, le=5)] | None = None

    def meant(self) -> str | PendingItem:
        return self.item if self.priority is None else PendingItem(self.item, self.priority)


class FailureIn(Item):
    """Something that was tried and did not work; `source` as with a fact."""

    action: Text
    reason: str | None = None
    error: str | None = None
    at: Time | None = None
    source: str | None = None

    def meant(self) -> FailedAttempt:
        return FailedAttempt(self.action, self.reason, self.error, self.at, self.source)


class CallIn(Item):
    """One entry of the call history."""

    tool: Text
    arguments: dict[str, Any] = Field(default_factory=dict)
    status: StepStatus | None = None
    duration_ms: Milliseconds | None = None
    at: Time | None = None

    def meant(self) -> ToolCall:
        return ToolCall(self.tool, self.arguments, self.status, self.duration_ms, self.at)


class StepIn(Contract):
    """One tool call and what came of it."""

    tool: Text
    arguments: dict[str, Any] | None = None
    status: StepStatus
    result: Any = None
    error: str | None = None
    duration_ms: Milliseconds | None = None
    reason: str | None = None

    def meant(self) -> Step:
        return Step(
            self.tool, self.status, self.arguments or {}, self.result, self.error, self.reason, self.duration_ms
        )


class PastStepIn(StepIn, OrText):
    """A step of the past, or a sentence: `{"text": …}` or plain."""

    at: Time | None = None

    def meant(self) -> Step:
        return Step(
            self.tool,
            self.status,
            self.arguments or {},
            self.result,
            self.error,
            self.reason,
            self.duration_ms,
            self.at,
        )


def _sentence_or_step(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    text = value["text"] if isinstance(value, dict) and set(value) == {"text"} else value
    return not_blank(text) if isinstance(text, str) else validate(value)


# Not `str | PastStepIn`: errors of a union name its members as if they were fields of the request.
RecentStep = Annotated[PastStepIn, WrapValidator(_sentence_or_step)]


class TaskFields(Contract):
    """What PUT and PATCH share."""

    user_id: Identifier
    agent_id: Identifier | None = None
    task_goal: Text | None = None
    task_type: Text | None = None
    constraints: list[Text] = Field(default_factory=list)
    confirmed_facts: list[FactIn] = Field(default_factory=list)
    pending_items: list[PendingIn] = Field(default_factory=list)
    done_items: list[Text] = Field(default_factory=list)
    failed_attempts: list[FailureIn] = Field(default_factory=list)
    tool_call_history: list[CallIn] = Field(default_factory=list)
    recent_steps: list[RecentStep] = Field(default_factory=list)
    variables: dict[str, Any] = Field(default_factory=dict)
    ttl_seconds: Annotated[int, Field(description="60 to 86400; each read or write renews it")] | None = None

    def patch(self) -> Patch:
        """The change that this body asks for; null clears the three plain fields."""
        return Patch(
            fields={name: getattr(self, name) for name in SCALARS if name in self.model_fields_set},
            constraints=self.constraints,
            confirmed_facts=[item.meant() for item in self.confirmed_facts],
            pending_items=[item.meant() for item in self.pending_items],
            done_items=self.done_items,
            failed_attempts=[item.meant() for item in self.failed_attempts],
            tool_call_history=[item.meant() for item in self.tool_call_history],
            recent_steps=[item if isinstance(item, str) else item.meant() for item in self.recent_steps],
            variables=self.variables,
            remove=getattr(self, "remove", {}),
            ttl_seconds=self.ttl_seconds,
        )


class PutTask(TaskFields):
    """PUT /v1/working-memory/{task_id}: everything that is not named is empty."""

    task_id: Identifier | None = None


class PatchTask(TaskFields):
    """PATCH /v1/working-memory/{task_id}: lists are appended, variables merged, other named fields set."""

    remove: dict[str, list[str]] = Field(default_factory=dict, description="texts by list, or names under `variables`")


class NoteStep(StepIn):
    """POST /v1/working-memory/{task_id}/steps"""

    user_id: Identifier


@router.put("/{task_id}", openapi_extra=takes(PutTask))
async def replace(request: Request, task_id: str, services: Services, caller: Writer) -> Response:
    """Create the working memory of a task, or replace it."""
    body = await read_body(request, PutTask, services.tunables.limits)
    note(request, user_id=body.user_id, task_id=task_id)
    if body.task_id not in (None, task_id):
        raise InvalidFields.of("task_id", "is not the one in the address")
    return answer(await services.working.replace(caller, body.user_id, task_id, body.patch()))


@router.get("/{task_id}")
async def read(
    request: Request, task_id: str, services: Services, caller: Reader, user_id: Annotated[Identifier, Query()]
) -> Response:
    """The working memory of a task.  Reading renews its life."""
    note(request, user_id=user_id, task_id=task_id)
    return answer(await services.working.get(caller, user_id, task_id))


@router.delete("/{task_id}", status_code=204)
async def delete(
    request: Request, task_id: str, services: Services, caller: Writer, user_id: Annotated[Identifier, Query()]
) -> Response:
    """Forget the working memory of a task."""
    note(request, user_id=user_id, task_id=task_id)
    await services.working.delete(caller, user_id, task_id)
    return Response(status_code=204)


@router.patch("/{task_id}", openapi_extra=takes(PatchTask))
async def patch(request: Request, task_id: str, services: Services, caller: Writer) -> Response:
    """Append, merge, set and remove, all or nothing.  Parallel patches lose nothing."""
    body = await read_body(request, PatchTask, services.tunables.limits)
    note(request, user_id=body.user_id, task_id=task_id)
    if not body.model_fields_set - {"user_id"}:
        raise InvalidFields.of("body", "names no field to change")
    return answer(await services.working.patch(caller, body.user_id, task_id, body.patch()))


@router.post("/{task_id}/steps", openapi_extra=takes(NoteStep))
async def note_step(request: Request, task_id: str, services: Services, caller: Writer) -> Response:
    """Note one tool call; a failed one also lands in failed_attempts."""
    body = await read_body(request, NoteStep, services.tunables.limits)
    note(request, user_id=body.user_id, task_id=task_id)
    return answer(await services.working.record_step(caller, body.user_id, task_id, body.meant(), repeatable(request)))


@router.get("/{task_id}/context")
async def context(
    request: Request, task_id: str, services: Services, caller: Reader,
    user_id: Annotated[Identifier, Query()], max_tokens: Annotated[int | None, Query(ge=1)] = None,
) -> Response:  # fmt: skip
    """The task as text for a prompt, within the budget; goal and constraints always come, cut where they alone exceed it."""
    note(request, user_id=user_id, task_id=task_id)
    built = await services.working.context(caller, user_id, task_id, max_tokens)
    return reply({"text": built.text, "tokens": built.tokens, "truncated": built.truncated})


def answer(memory: TaskMemory) -> Response:
    response = Response(memory.to_bytes(), media_type="application/json")
    if memory.replayed:
        response.headers["Idempotency-Replayed"] = "true"
    return response


def repeatable(request: Request) -> RepeatableRequest | None:
    """The Idempotency-Key and what came with it."""
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    return RepeatableRequest(checked_key(key), request.state.raw_body)
