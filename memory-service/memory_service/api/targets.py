"""Of which thing, at which version, does a request speak?

`MemoryId`, `ExperienceId` and `ConflictId` are ids from the address, `IfMatch` is the version that the caller saw last.  They stand
behind the caller in a signature: who may not ask at all does not learn whether an id was one.
"""

import re
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Header

from memory_service.domain import SHARED_USER
from memory_service.errors import InvalidFields, NotFound

_VERSION = re.compile(r'(?:W/)?"([0-9]{1,10})"|([0-9]{1,10})')


def path_id(text: str) -> UUID:
    """An id from the address; what is no UUID is as unknown as any other."""
    try:
        return UUID(text)
    except ValueError:
        raise NotFound from None


def version_of(if_match: str | None) -> int | None:
    """The version in If-Match, quoted or bare; `*` matches any."""
    if if_match is None or if_match.strip() == "*":
        return None
    found = _VERSION.fullmatch(if_match.strip())
    if found is None:
        raise InvalidFields.of("If-Match", "must be a version number")
    return int(found[1] or found[2])


def user_ids(user_id: str, include_shared: bool) -> tuple[str, ...]:
    """Whose things are meant: the user's, and those of the common pool when it is wanted too."""
    return (user_id, SHARED_USER) if include_shared and user_id != SHARED_USER else (user_id,)


def _memory(memory_id: str) -> UUID:
    return path_id(memory_id)


def _experience(experience_id: str) -> UUID:
    return path_id(experience_id)


def _conflict(conflict_id: str) -> UUID:
    return path_id(conflict_id)


def _expected(if_match: Annotated[str | None, Header()] = None) -> int | None:
    return version_of(if_match)


MemoryId = Annotated[UUID, Depends(_memory)]
ExperienceId = Annotated[UUID, Depends(_experience)]
ConflictId = Annotated[UUID, Depends(_conflict)]
IfMatch = Annotated[int | None, Depends(_expected)]
