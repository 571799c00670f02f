"""Which memories does a list show?  The query parameters of GET /v1/memories as a filter, and a page of it."""

from typing import Annotated, Any, Literal

from fastapi import Depends, Query

from memory_service.access import require_user
from memory_service.api.body import check_values, parse_json
from memory_service.api.dependencies import Reader, Services
from memory_service.api.fields import Identifier, Label, Time
from memory_service.api.paging import Paging, page_json
from memory_service.api.targets import user_ids
from memory_service.bootstrap import Runtime
from memory_service.domain import Json, Kind, MemoryFilter, Outcome, State
from memory_service.errors import HindsightError, InvalidFields
from memory_service.recall.filters import parse_filters
from memory_service.settings import Limits


def listed_memories(
    services: Services,
    caller: Reader,
    user_id: Annotated[Identifier, Query()],
    kinds: Annotated[list[Kind] | None, Query()] = None,
    tags: Annotated[list[Label] | None, Query()] = None,
    tag_match: Annotated[Literal["any", "all"], Query()] = "any",
    filters: Annotated[str | None, Query(max_length=65_536, description="JSON")] = None,
    agent_id: Annotated[Identifier | None, Query()] = None,
    session_id: Annotated[Identifier | None, Query()] = None,
    task_id: Annotated[Identifier | None, Query()] = None,
    since: Annotated[Time | None, Query()] = None,
    until: Annotated[Time | None, Query()] = None,
    as_of: Annotated[Time | None, Query()] = None,
    state: Annotated[list[State] | None, Query()] = None,
    outcome: Annotated[Outcome | None, Query()] = None,
    include_cold: Annotated[bool, Query()] = False,
    include_superseded: Annotated[bool, Query()] = False,
    include_shared: Annotated[bool, Query()] = False,
) -> MemoryFilter:
    """Raises Forbidden for another user, InvalidFields for filters that can't be read."""
    require_user(caller, user_id)
    limits = services.tunables.limits
    conditions = parse_filters(filters_of_query(filters, limits), limits.filter_conditions_max)
    if outcome is not None:
        conditions += parse_filters({"outcome": {"eq": outcome}}, 1)
    return MemoryFilter(
        tenant=caller.tenant,
        user_ids=user_ids(user_id, include_shared),
        now=services.clock(),
        kinds=tuple(kinds or ()),
        states=tuple(state) if state else states(include_cold, include_superseded),
        tags=tuple(tags or ()),
        tag_match=tag_match,
        agent_id=agent_id,
        session_id=session_id,
        task_id=task_id,
        since=since,
        until=until,
        as_of=as_of,
        conditions=conditions,
    )


Listed = Annotated[MemoryFilter, Depends(listed_memories)]


async def listed(services: Runtime, chosen: MemoryFilter, paging: Paging) -> Json:
    """One page of memories."""
    what = (chosen.tenant, chosen.user_ids, chosen.kinds, chosen.states, chosen.tags, chosen.tag_match)
    who = (chosen.agent_id, chosen.session_id, chosen.task_id)
    scope = ["memories", *what, *who, chosen.since, chosen.until, chosen.as_of, repr(chosen.conditions)]
    rows, total = await services.reader.page(chosen, paging.after(scope), paging.wanted)
    return page_json(paging, scope, rows, total, lambda one: (one.created_at, one.id), services.shown)


def states(include_cold: bool, include_superseded: bool) -> tuple[State, ...]:
    chosen: list[State] = ["active"]
    chosen += ["cold"] if include_cold else []
    return (*chosen, "superseded") if include_superseded else tuple(chosen)


def filters_of_query(text: str | None, limits: Limits) -> dict[str, Any]:
    """`filters` of a query string is JSON, held to the same rules as a body."""
    if text is None:
        return {}
    try:
        value = parse_json(text.encode(), limits)
    except HindsightError:
        raise InvalidFields.of("filters", "must be JSON") from None
    if not isinstance(value, dict):
        raise InvalidFields.of("filters", "must be a JSON object")
    if errors := check_values(value, limits, "filters"):
        raise InvalidFields("; ".join(f"{e.field}: {e.message}" for e in errors[:5]), errors=tuple(errors))
    return value
