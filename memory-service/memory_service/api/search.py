"""The route of the search."""

from dataclasses import replace
from math import isfinite
from typing import Any

from fastapi import APIRouter, Request, Response

from memory_service.access import require_user
from memory_service.api.answers import reply
from memory_service.api.body import read_body
from memory_service.api.context_schemas import BuildContext
from memory_service.api.contract import ContractRoute, takes
from memory_service.api.dependencies import Reader, Services, note
from memory_service.api.memory_list import states
from memory_service.api.schemas import SearchMemories
from memory_service.api.targets import user_ids
from memory_service.bootstrap import Runtime
from memory_service.domain import Caller, Json, MemoryFilter
from memory_service.recall.filters import parse_filters
from memory_service.recall.service import Found, SearchAnswer, SearchRequest

router = APIRouter(prefix="/v1/memories", route_class=ContractRoute, tags=["memories"])


@router.post("/search", openapi_extra=takes(SearchMemories))
async def search(request: Request, services: Services, caller: Reader) -> Response:
    """Find memories by meaning, words, structure and time."""
    body = await read_body(request, SearchMemories, services.tunables.limits)
    require_user(caller, body.user_id)
    answer = await services.recall.search(search_request(body, caller, services))
    ids = [str(found.memory.id) for found in answer.found]
    note(request, user_id=body.user_id, lanes_ms=dict(answer.lane_ms), ids=ids, degraded=answer.degraded)
    return reply(_shown(answer, services, explain=body.explain))


def search_request(body: SearchMemories, caller: Caller, services: Runtime) -> SearchRequest:
    """The search as recall understands it."""
    chosen = replace(chosen_memories(body, caller, services), task_id=body.task_id)
    given = body.filters or {}
    return SearchRequest(body.query, chosen, body.limit, body.mode, body.min_score, body.rerank, given)


def chosen_memories(body: SearchMemories | BuildContext, caller: Caller, services: Runtime) -> MemoryFilter:
    """Which memories count, by what searches and contexts share; a task narrows a search only."""
    return MemoryFilter(
        tenant=caller.tenant,
        user_ids=user_ids(body.user_id, bool(body.include_shared)),
        now=services.clock(),
        kinds=tuple(body.kinds or ()),
        states=states(body.include_cold, body.include_superseded),
        tags=tuple(body.tags or ()),
        tag_match=body.tag_match,
        agent_id=body.agent_id,
        session_id=body.session_id,
        since=body.since,
        until=body.until,
        as_of=body.as_of,
        conditions=parse_filters(body.filters or {}, services.tunables.limits.filter_conditions_max),
    )


def _shown(answer: SearchAnswer, services: Runtime, *, explain: bool) -> Json:
    results = []
    for found in answer.found:
        shown: dict[str, Any] = services.shown(found.memory)
        shown["score"] = round(found.ranked.score, 6)
        shown["lanes"] = list(found.ranked.candidate.lanes)
        if explain:
            shown["score_details"] = _details(found)
        results.append(shown)
    return {
        "results": results,
        "degraded": answer.degraded,
        "retrieval_id": str(answer.retrieval_id),
        "took_ms": answer.took_ms,
    }


def _details(found: Found) -> Json:
    """Each lane's rank and score, what else speaks for it in log-odds, the fused relevance and every nudge."""
    ranked = found.ranked
    lanes = {
        lane: {"rank": score.rank, "score": round(score.score, 6), "raw": round(score.raw, 6)}
        for lane, score in ranked.candidate.lanes.items()
    }
    return {
        "lanes": lanes,
        "log_odds": _rounded(ranked.candidate.log_odds),
        "signals": {name: round(value, 6) for name, value in ranked.candidate.signals.items()},
        "relevance": round(ranked.candidate.relevance, 6),
        "freshness": round(ranked.freshness, 6),
        "nudges": {name: round(value, 6) for name, value in ranked.nudges.items()},
    }


def _rounded(log_odds: float | None) -> float | None:
    """None also for what is no number in JSON: a memory of which no lane can say anything."""
    return None if log_odds is None or not isfinite(log_odds) else round(log_odds, 6)
