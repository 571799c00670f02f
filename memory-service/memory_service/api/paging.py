"""Which page of a list is wanted, and how is it answered?

`Page` is the dependency of every route that lists: limit, its alias top_k, and cursor.  `page_json` shapes the answer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar
from uuid import UUID

from fastapi import Depends, Query

from memory_service.api import cursors
from memory_service.api.dependencies import Services
from memory_service.domain import Json

T = TypeVar("T")
Position = tuple[datetime, UUID]
START = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Paging:
    """`size` items behind `cursor`, which is checked by whoever knows what list it belongs to."""

    size: int
    cursor: str | None = None

    @property
    def wanted(self) -> int:
        """One more than is shown: whether there is a next page is seen by it."""
        return self.size + 1

    def after(self, scope: Any) -> Position | None:
        """Where the page begins; None at the start.  Raises InvalidFields for a cursor of another list."""
        return cursors.decode(self.cursor, scope) if self.cursor is not None else None

    def below(self, scope: Any) -> int | None:
        """The same in a list of versions, whose position is a number."""
        after = self.after(scope)
        return after[1].int if after else None


def paging_of(
    services: Services,
    limit: Annotated[int | None, Query(ge=1, le=100)] = None,
    top_k: Annotated[int | None, Query(ge=1, le=100, description="alias of limit")] = None,
    cursor: Annotated[str | None, Query(max_length=512)] = None,
) -> Paging:
    return Paging(limit or top_k or services.tunables.limits.page_items_default, cursor)


Page = Annotated[Paging, Depends(paging_of)]


def page_json(
    paging: Paging,
    scope: Any,
    rows: Sequence[T],
    total: int,
    position: Callable[[T], Position],
    shown: Callable[[T], Json],
) -> Json:
    """`{items, next_cursor, total}` of `rows`, of which up to `paging.wanted` were asked for."""
    page = rows[: paging.size]
    last = cursors.encode(position(page[-1]), scope) if len(rows) > paging.size else None
    return {"items": [shown(one) for one in page], "next_cursor": last, "total": total}


def version_position(version: int) -> Position:
    """A version as a position: cursors carry a time and a UUID."""
    return START, UUID(int=version)
