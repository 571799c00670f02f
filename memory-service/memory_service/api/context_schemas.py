"""What may a caller send to POST /v1/context?  The search's filters, a budget, and where the agent stands."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from memory_service.api.body import Contract
from memory_service.api.fields import Identifier, Query, Time
from memory_service.api.schemas import Tags
from memory_service.domain import Kind


def _distinct(value: list[Kind]) -> list[Kind]:
    return list(dict.fromkeys(value))


class BuildContext(Contract):
    """POST /v1/context"""

    user_id: Identifier
    query: Query
    max_tokens: Annotated[int, Field(ge=1, description="of the whole text; 1500 unless given")] | None = None
    task_id: Annotated[
        Identifier | None, Field(description="the running task that this is for; it does not narrow the search")
    ] = None
    state: Annotated[
        dict[str, Any] | None, Field(description="what the conditions of experiences are held against")
    ] = None
    kinds: Annotated[list[Kind], AfterValidator(_distinct)] | None = None
    tags: Tags | None = None
    tag_match: Literal["any", "all"] = "any"
    filters: dict[str, Any] | None = None
    agent_id: Identifier | None = None
    session_id: Identifier | None = None
    since: Time | None = None
    until: Time | None = None
    include_cold: bool = False
    include_superseded: bool = False
    as_of: Time | None = None
    include_shared: Annotated[
        bool | None,
        Field(description="the common pool too; unless given, of memories no and of experiences yes"),
    ] = None
