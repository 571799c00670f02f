"""The route of the context: what an agent should have in its prompt."""

from fastapi import APIRouter, Request, Response

from memory_service.access import require_user
from memory_service.api.answers import reply
from memory_service.api.body import read_body
from memory_service.api.context_schemas import BuildContext
from memory_service.api.contract import ContractRoute, takes
from memory_service.api.dependencies import Reader, Services, note
from memory_service.api.search import chosen_memories
from memory_service.bootstrap import Runtime
from memory_service.domain import Caller, Json
from memory_service.errors import InvalidFields
from memory_service.recall.context import ContextAnswer, ContextRequest

router = APIRouter(prefix="/v1", route_class=ContractRoute, tags=["memories"])


@router.post("/context", openapi_extra=takes(BuildContext))
async def context(request: Request, services: Services, caller: Reader) -> Response:
    """Graded, budgeted, labelled text that is ready for a prompt."""
    body = await read_body(request, BuildContext, services.tunables.limits)
    require_user(caller, body.user_id)
    answer = await services.contexts.build(context_request(body, caller, services))
    ids = [str(item.id) for item in answer.items]
    note(request, user_id=body.user_id, ids=ids, tokens=answer.tokens, degraded=answer.degraded)
    return reply(context_json(answer))


def context_request(body: BuildContext, caller: Caller, services: Runtime) -> ContextRequest:
    """The request as recall understands it."""
    numbers = services.contexts.numbers
    max_tokens = numbers.tokens_default if body.max_tokens is None else body.max_tokens
    if max_tokens > numbers.tokens_max:
        raise InvalidFields.of("max_tokens", f"must be at most {numbers.tokens_max}")
    return ContextRequest(
        query=body.query,
        chosen=chosen_memories(body, caller, services),
        max_tokens=max_tokens,
        state=body.state,
        task_id=body.task_id,
        include_shared_lessons=body.include_shared is not False,
        filters_given=body.filters or {},
    )


def context_json(answer: ContextAnswer) -> Json:
    """`{text, tokens, items, retrieval_id, degraded}`"""
    return {
        "text": answer.text,
        "tokens": answer.tokens,
        "items": [
            {"id": str(item.id), "grade": item.grade, "score": round(item.score, 6), "what": item.what}
            for item in answer.items
        ],
        "retrieval_id": str(answer.retrieval_id),
        "degraded": answer.degraded,
    }
