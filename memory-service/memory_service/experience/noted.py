"""Which lessons were asked for, and which were told?  Queries of callers, noted in the log of retrievals.

The log keeps what was asked in words and which fields the state had, never the state's values.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import islice
from time import monotonic
from typing import Any

from memory_service.domain import Json, new_id
from memory_service.experience.drafts import ExperienceQuery, QueryAnswer
from memory_service.settings import Retrievals
from memory_service.stores.postgres.retrievals import Retrieval

SOURCE = "experience"
AskLessons = Callable[[ExperienceQuery], Awaitable[QueryAnswer]]


def noted_queries(ask: AskLessons, note: Callable[[Retrieval], None], numbers: Retrievals) -> AskLessons:
    """`ask`, which is Experiences.query, for callers who ask by themselves; contexts and advice have logs of their own."""

    async def asked(query: ExperienceQuery) -> QueryAnswer:
        started = monotonic()
        answer = await ask(query)
        note(retrieval_of(query, answer, 1000 * (monotonic() - started), numbers))
        return answer

    return asked


def retrieval_of(query: ExperienceQuery, answer: QueryAnswer, took_ms: float, numbers: Retrievals) -> Retrieval:
    """The log's entry."""
    return Retrieval(
        id=new_id(),
        tenant=query.tenant,
        user_id=query.user_ids[0],
        at=query.now,
        source=SOURCE,
        query=query.semantic_query or "",
        filters=_filters(query, numbers),
        hits=[
            {
                "id": str(one.experience.id),
                "score": round(one.score, 6),
                "match": one.match,
                "lanes": list(one.lanes),
                "what": "experience",
            }
            for one in answer.results
        ],
        degraded=list(answer.degraded),
        took_ms=round(took_ms, 3),
    )


def _filters(query: ExperienceQuery, numbers: Retrievals) -> Json:
    """What narrowed the query; of state and conditions the names of fields alone."""
    conditions = [str(one.get("field", "")) for one in query.conditions or ()]
    kept = {
        "state_fields": None if query.state is None else _names(fields_of(query.state), numbers),
        "condition_fields": None if query.conditions is None else _names(iter(conditions), numbers),
        "task_type": query.task_type,
        "tags": list(query.tags) or None,
        "min_confidence": query.min_confidence,
    }
    return {name: value for name, value in kept.items() if value is not None}


def _names(names: Iterator[str], numbers: Retrievals) -> list[str]:
    return [name[: numbers.state_field_chars_max] for name in islice(names, numbers.state_fields_max)]


def fields_of(state: Mapping[str, Any]) -> Iterator[str]:
    """Dotted paths of its values, in the order given."""
    stack = [("", iter(state.items()))]
    while stack:
        prefix, items = stack[-1]
        item = next(items, None)
        if item is None:
            stack.pop()
        elif isinstance(item[1], Mapping) and item[1]:
            stack.append((f"{prefix}{item[0]}.", iter(item[1].items())))
        else:
            yield f"{prefix}{item[0]}"
