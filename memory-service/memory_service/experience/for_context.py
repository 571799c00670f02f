"""Which lessons belong into a prompt, and how well do they match?  From a query's results to what recall/injection.py shows.

The score is the quality of the match, not the confidence: exact = 1; partial = the share of its triples that are true, or its
relevance by meaning when that is more; semantic = relevance.  What the state contradicts is left out, and so are lessons of
little confidence.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from memory_service.domain import SHARED_USER, Experience, Json
from memory_service.experience import scenario
from memory_service.experience.confidence import effective
from memory_service.experience.confidence_settings import ConfidenceSettings
from memory_service.experience.drafts import Advised, ExperienceQuery, QueryAnswer
from memory_service.experience.succession import confidence_of
from memory_service.recall.context import ContextRequest, FindLearned, FindLessons, LessonsFound
from memory_service.recall.injection import InjectionNumbers, Lesson
from memory_service.scripts import is_chinese
from memory_service.shapes import to_json
from memory_service.stores.postgres import experiences
from memory_service.stores.postgres.pool import Postgres

WORDS = {**scenario.WORDS, "known": "is known", "not_known": "is not known"}
CHINESE_WORDS = {
    "eq": "为", "ne": "不为", "in": "属于", "nin": "不属于", "gt": "大于", "gte": "不小于", "lt": "小于", "lte": "不大于",
    "contains": "包含", "not_contains": "不包含", "starts_with": "开头为", "matches": "匹配",
    "known": "已知", "not_known": "未知",
}  # fmt: skip
TIE = 1e-6  # of relevance: of lessons that one memory brought, the surer comes first
AskLessons = Callable[[ExperienceQuery], Awaitable[QueryAnswer]]


def lessons_for_context(ask: AskLessons, numbers: InjectionNumbers) -> FindLessons:
    """The function that Contexts asks, over `ask`, which is Experiences.query."""

    async def find(request: ContextRequest) -> LessonsFound:
        answer = await ask(_query(request, numbers))
        fitting = [one for one in answer.results if match_quality(one) >= numbers.summary_min]
        chinese = is_chinese(request.query)
        lessons = [_lesson(one, chinese=chinese) for one in fitting[: numbers.experiences_max]]
        return LessonsFound(lessons, answer.degraded)

    return find


def lessons_learned(postgres: Postgres, numbers: InjectionNumbers, confidence: ConfidenceSettings) -> FindLearned:
    """The function that Contexts asks for lessons that came of memories.

    A run like the one that begins taught them.  Whether they hold is seen before a call; until then they are possibly relevant,
    as much as the memory is.  What another type of task taught is left out.
    """

    async def find(request: ContextRequest, memories: Mapping[UUID, float]) -> Sequence[Lesson]:
        users, tenant = _query(request, numbers).user_ids, request.chosen.tenant
        rows = await postgres.read(
            lambda c: experiences.learned_from(c, tenant, users, list(memories), numbers.experience_candidates)
        )
        chinese, found = is_chinese(request.query), []
        for row in rows:
            held = confidence_of(row)
            now = effective(held.value, held.ledger, request.chosen.now, confidence)
            if now < numbers.experience_confidence_min or row.task_type not in (None, request.task_type):
                continue
            score = max(memories.get(one, 0.0) for one in row.source_memory_ids)
            found.append(replace(_told(row, now, score, chinese=chinese), possibly=True))
        found.sort(key=lambda one: (-one.confidence, -one.id.int))
        return [replace(one, score=one.score - place * TIE) for place, one in enumerate(found)]

    return find


def match_quality(found: Advised) -> float:
    """0..1, compared like a relevance."""
    if found.failed:
        return 0.0
    if found.match == "exact":
        return 1.0
    if found.match == "partial":
        true = len(found.matched)
        return max(true / (true + len(found.missing)), found.relevance)
    return found.relevance


def _query(request: ContextRequest, numbers: InjectionNumbers) -> ExperienceQuery:
    """`kinds`, `tags` and the other filters are about memories; lessons have conditions for that."""
    users = [user for user in request.chosen.user_ids if user != SHARED_USER]
    shared = [SHARED_USER] if request.include_shared_lessons or len(users) < len(request.chosen.user_ids) else []
    return ExperienceQuery(
        tenant=request.chosen.tenant,
        user_ids=(*users, *shared),
        now=request.chosen.now,
        limit=numbers.experience_candidates,
        state=request.state,
        semantic_query=request.query,
        task_type=request.task_type,
        min_confidence=numbers.experience_confidence_min,
    )


def _lesson(found: Advised, *, chinese: bool) -> Lesson:
    return _told(found.experience, found.confidence, match_quality(found), chinese=chinese)


def _told(experience: Experience, confidence: float, score: float, *, chinese: bool) -> Lesson:
    return Lesson(
        id=experience.id,
        when=_when(experience.conditions, chinese=chinese),
        action=experience.action,
        avoid=experience.avoid,
        rationale=experience.rationale,
        confidence=confidence,
        score=score,
    )


def _when(conditions: tuple[Json, ...], *, chinese: bool) -> str:
    """The conditions as one text; it stands in quotes, so its own texts have none."""
    words, both = (CHINESE_WORDS, "，且 ") if chinese else (WORDS, " and ")
    return both.join(_condition(one, words) for one in conditions)


def _condition(condition: Json, words: Mapping[str, str]) -> str:
    field, operator, value = condition["field"], condition["operator"], condition["value"]
    if operator == "exists":
        return f"{field} {words['known' if value else 'not_known']}"
    return f"{field} {words[operator]} {value if isinstance(value, str) else to_json(value).decode()}"
