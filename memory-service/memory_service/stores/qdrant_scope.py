"""How do points of an older version get the field that every search narrows by?

Their payload has all that it is made of, so no text is read and no vector made.  It may be begun again at any page.
"""

from typing import Any

from memory_service.domain import Json
from memory_service.stores.qdrant_http import QdrantHttp
from memory_service.stores.qdrant_payload import EXPERIENCE_KIND, SCOPE, scope_of
from memory_service.stores.qdrant_points import equals

PAGE_POINTS = 500
FIELDS = ("tenant", "user_id", "kind", "state")


async def fill_scopes(http: QdrantHttp, collection: str) -> int:
    """Give every point of `/collections/NAME` its scope; how many points there were.  Raises what QdrantHttp.call raises."""
    offset, seen = None, 0
    while True:
        body: Json = {"limit": PAGE_POINTS, "with_payload": {"include": list(FIELDS)}, "with_vector": False}
        if offset is not None:
            body["offset"] = offset
        page = await http.call("POST", f"{collection}/points/scroll", body)
        if operations := _operations(page["points"]):
            await http.call("POST", f"{collection}/points/batch?wait=true", {"operations": operations})
        seen += len(page["points"])
        offset = page.get("next_page_offset")
        if offset is None:
            return seen


def _operations(points: list[Json]) -> list[Json]:
    """One for all points that are alike.  Each names what was read, so that a point that is written anew meanwhile is left alone."""
    alike: dict[tuple[Any, ...], list[Any]] = {}
    for point in points:
        read = tuple((point.get("payload") or {}).get(name) for name in FIELDS)
        if all(isinstance(value, str) for value in read):
            alike.setdefault(read, []).append(point["id"])
    made = []
    for read, ids in alike.items():
        tenant, user_id, kind, state = read
        scope = scope_of(tenant, user_id, kind if kind == EXPERIENCE_KIND else state)
        unchanged = [equals(name, value) for name, value in zip(FIELDS, read, strict=True)]
        made.append({"set_payload": {"payload": {SCOPE: scope}, "filter": {"must": [{"has_id": ids}, *unchanged]}}})
    return made
