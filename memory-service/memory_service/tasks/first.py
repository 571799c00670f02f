"""What is an agent given when its task begins?  The first injection, asked of recall's contexts.

It must not decide what is relevant or how it reads; recall does.
"""

from collections.abc import Awaitable, Callable

from memory_service.domain import Clock, MemoryFilter
from memory_service.recall.context import ContextAnswer, ContextRequest
from memory_service.tasks.ports import BuildContext, FirstContext, FirstQuestion

SOURCE = "task_start"


def first_context(
    build: Callable[[ContextRequest], Awaitable[ContextAnswer]], memories_max: int, clock: Clock
) -> BuildContext:
    """The function that a start asks, over `build`, which is Contexts.build."""

    async def ask(question: FirstQuestion) -> FirstContext:
        answer = await build(
            ContextRequest(
                query=question.query,
                chosen=MemoryFilter(question.tenant, question.user_ids, clock()),
                max_tokens=question.max_tokens,
                task_type=question.task_type,
                state=question.state,
                memories_max=memories_max,
                source=SOURCE,
                task_id=question.task_id,
                learned_too=True,
            )
        )
        items = tuple(
            {"id": str(item.id), "grade": item.grade, "score": round(item.score, 6), "what": item.what}
            for item in answer.items
        )
        return FirstContext(answer.text, answer.tokens, items, answer.retrieval_id, tuple(answer.degraded))

    return ask
