"""Is what was sent a memory, or a change of one, that may be stored?  Bodies become drafts and changes.

Sizes and users are checked here, field by field; what a batch holds is judged item by item, so one bad item never spoils the others.
"""

from datetime import datetime
from typing import Any

import orjson
from fastapi import Request

from memory_service.access import require_user
from memory_service.api.body import (
    TWICE,
    Repeating,
    parse_json,
    read_bytes,
    shown,
    validated,
    with_own_user,
)
from memory_service.api.schemas import PatchMemory, WriteMemory
from memory_service.domain import Caller
from memory_service.errors import HindsightError, InvalidFields, TooLarge
from memory_service.settings import Limits
from memory_service.write.drafts import Draft


def checked_draft(body: WriteMemory, caller: Caller, limits: Limits, now: datetime) -> Draft:
    """The draft, once its sizes, its user and its end are right."""
    require_user(caller, body.user_id)
    check_sizes(body.content, body.metadata, limits)
    if body.expires_at is not None and body.expires_at <= now:
        raise InvalidFields.of("expires_at", "is in the past: it would be gone at once")
    return body.draft()


def check_sizes(content: str | None, metadata: dict[str, Any] | None, limits: Limits) -> None:
    """Raises TooLarge."""
    if content is not None and len(content.encode()) > limits.content_bytes_max:
        raise TooLarge.of("content", f"above {limits.content_bytes_max} bytes of UTF-8")
    if metadata and len(orjson.dumps(metadata)) > limits.metadata_bytes_max:
        raise TooLarge.of("metadata", f"above {limits.metadata_bytes_max} bytes of JSON")


async def read_batch(request: Request, limits: Limits) -> list[Any]:
    """The items of a batch, unchecked: each is judged by itself."""
    raw = await read_bytes(request, limits)
    request.state.raw_body = raw
    value = parse_json(raw, limits)
    if isinstance(value, Repeating):
        raise InvalidFields.of(shown((value.repeated,)), TWICE)
    if not isinstance(value, dict) or not isinstance(value.get("memories"), list):
        raise InvalidFields.of("memories", "is required and must be a list")
    for name in value:
        if name != "memories":
            raise InvalidFields.of(name, "is not a field of this request")
    if not 1 <= len(value["memories"]) <= limits.batch_items_max:
        raise InvalidFields.of("memories", f"must have 1 to {limits.batch_items_max} items")
    return value["memories"]  # type: ignore[no-any-return]


def batch_drafts(items: list[Any], caller: Caller, limits: Limits, now: datetime) -> list[Draft | HindsightError]:
    """Each item as a draft, or as what is wrong with it."""
    drafts: list[Draft | HindsightError] = []
    for item in items:
        try:
            draft = validated(WriteMemory, with_own_user(WriteMemory, item, caller), limits)
            drafts.append(checked_draft(draft, caller, limits, now))
        except HindsightError as error:
            drafts.append(error)
    return drafts


def patch_changes(patch: PatchMemory, limits: Limits) -> dict[str, Any]:
    """Raises TooLarge, InvalidFields."""
    check_sizes(patch.content, patch.metadata, limits)
    try:
        changes = patch.changes()
    except ValueError as error:
        raise InvalidFields.of(str(error), "can't be cleared") from None
    if not changes:
        raise InvalidFields.of("body", "names no field to change")
    return changes
