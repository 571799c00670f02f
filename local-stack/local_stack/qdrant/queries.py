"""What should a query score by? Translates Qdrant's query language into the engine's requests.

Mapped: nearest (dense, sparse, by point id), mmr, prefetch, fusion (rrf, dbsf), order_by, sample. Recommendations,
discovery and formulas answer 501.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import qdrant_edge as edge

from local_stack.limits import limit
from local_stack.qdrant.errors import BadRequest, NotMapped
from local_stack.qdrant.fields import Fields, PointId, point_id
from local_stack.qdrant.filters import filter_of
from local_stack.qdrant.points import vector_of, with_payload_of, with_vector_of

_LIMIT = 10  # Qdrant's default of `limit` and of a prefetch's `limit`
_RRF_K = 2  # Qdrant's default of `rrf.k`
_MMR_DIVERSITY = 0.5  # Qdrant's default of `mmr.diversity`
_DEPTH_MAX = 8

if TYPE_CHECKING:  # the engine's type aliases exist in its stub only
    # Finds the stored vector of a point id: (id, vector's name) → vector.
    Resolve = Callable[[PointId, str], edge.NamedVector]


@dataclass(frozen=True)
class Query:
    """A parsed query and the point ids it was asked by, which Qdrant leaves out of the result."""

    scoring: edge.ScoringQueryType | None
    exclude: tuple[PointId, ...] = ()


def result_limit(fields: Fields, name: str = "limit") -> int:
    """`limit`, bounded: one huge page would hold the whole process."""
    found = fields.whole(name, least=1, most=int(limit("qdrant", "result_limit_max")))
    return _LIMIT if found is None else found


def query_request(fields: Fields, resolve: Resolve, page: int | None = None) -> edge.QueryRequest:
    """The engine's request for the body of `points/query`. `page` replaces the body's own limit."""
    taken = result_limit(fields) if page is None else page
    using = fields.text("using")
    query = _query(fields.take("query"), using, taken, resolve)
    found = edge.QueryRequest(
        limit=taken,
        offset=fields.whole("offset") or 0,
        query=query.scoring,
        prefetches=_prefetches(fields.take("prefetch"), resolve, 1),
        with_vector=with_vector_of(fields.take("with_vector")),
        with_payload=with_payload_of(fields.take("with_payload"), default=False),
        filter=_without(filter_of(fields.take("filter")), query.exclude),
        score_threshold=fields.number("score_threshold"),
        params=params_of(fields.take("params")),
    )
    fields.done()
    return found


def _without(found: edge.Filter | None, ids: tuple[PointId, ...]) -> edge.Filter | None:
    if not ids:
        return found
    return edge.Filter(must=None if found is None else [found], must_not=[edge.HasIdCondition(set(ids))])


def _prefetches(value: object, resolve: Resolve, depth: int) -> list[edge.Prefetch]:
    if value is None:
        return []
    if depth > _DEPTH_MAX:
        raise BadRequest(f"prefetch is nested deeper than {_DEPTH_MAX}")
    return [_prefetch(item, resolve, depth) for item in (value if isinstance(value, list) else [value])]


def _prefetch(value: object, resolve: Resolve, depth: int) -> edge.Prefetch:
    fields = Fields(value, "prefetch")
    taken = result_limit(fields)
    query = _query(fields.take("query"), fields.text("using"), taken, resolve)
    found = edge.Prefetch(
        limit=taken,
        query=query.scoring,
        prefetches=_prefetches(fields.take("prefetch"), resolve, depth + 1),
        params=params_of(fields.take("params")),
        filter=_without(filter_of(fields.take("filter")), query.exclude),
        score_threshold=fields.number("score_threshold"),
    )
    fields.done()
    return found


def _query(value: object, using: str | None, taken: int, resolve: Resolve) -> Query:
    if value is None:
        return Query(None)
    if not isinstance(value, dict) or "values" in value:
        return _nearest(value, using, resolve)
    fields = Fields(value, "query")
    found = _scoring(fields, using, taken, resolve)
    fields.done()
    return found


def _scoring(fields: Fields, using: str | None, taken: int, resolve: Resolve) -> Query:
    if "nearest" in fields:
        return _nearest_or_mmr(fields, using, taken, resolve)
    if "order_by" in fields:
        return Query(order_by_of(fields.take("order_by")))
    if "fusion" in fields:
        kind = fields.choice("fusion", ("rrf", "dbsf"))
        return Query(_fusion(edge.Fusion.Rrf(k=_RRF_K) if kind == "rrf" else edge.Fusion.Dbsf()))
    if "rrf" in fields:
        return Query(_fusion(_rrf(Fields(fields.take("rrf"), "query.rrf"))))
    if "sample" in fields:
        fields.choice("sample", ("random",))
        return Query(edge.Sample.Random)
    raise NotMapped(f"query by {', '.join(sorted(fields.names())) or 'an empty object'}")


def _fusion(found: edge.Fusion.Rrf | edge.Fusion.Dbsf) -> edge.Fusion:
    return found  # type: ignore[return-value]  # the stub does not say that these are subclasses of Fusion


def _rrf(fields: Fields) -> edge.Fusion.Rrf:
    k = fields.whole("k", least=1)
    weights = fields.items("weights")
    fields.done()
    if weights is not None and not all(isinstance(weight, int | float) for weight in weights):
        raise BadRequest("query.rrf.weights must hold numbers")
    return edge.Fusion.Rrf(k=k or _RRF_K, weights=None if weights is None else [float(weight) for weight in weights])


def _nearest(value: object, using: str | None, resolve: Resolve) -> Query:
    if isinstance(value, int | str) and not isinstance(value, bool):
        found = point_id(value)
        return Query(edge.Query.Nearest(resolve(found, using or ""), using=using), exclude=(found,))
    return Query(edge.Query.Nearest(vector_of(value), using=using))


def _nearest_or_mmr(fields: Fields, using: str | None, taken: int, resolve: Resolve) -> Query:
    target, mmr = fields.need("nearest"), fields.take("mmr")
    if mmr is None:
        return _nearest(target, using, resolve)
    options = Fields(mmr, "query.mmr")
    diversity = options.number("diversity")
    candidates = options.whole("candidates_limit", least=1)
    options.done()
    exclude: tuple[PointId, ...] = ()
    if isinstance(target, int | str) and not isinstance(target, bool):
        exclude = (point_id(target),)
        vector = resolve(exclude[0], using or "")
    else:
        vector = vector_of(target)
    # Qdrant's `diversity` runs from relevance (0) to diversity (1); the engine's lambda is the other way round.
    trust = 1 - (_MMR_DIVERSITY if diversity is None else diversity)
    return Query(edge.Mmr(vector, lambda_=trust, candidates_limit=candidates or taken, using=using), exclude)


def order_by_of(value: object) -> edge.OrderBy:
    """A key, or a key with direction and start."""
    if isinstance(value, str):
        return edge.OrderBy(value)
    fields = Fields(value, "order_by")
    key = fields.need_text("key")
    direction = fields.choice("direction", ("asc", "desc"))
    start = fields.take("start_from")
    fields.done()
    if start is not None and (isinstance(start, bool) or not isinstance(start, int | float | str)):
        raise BadRequest("order_by.start_from must be a number or an RFC 3339 time")
    sense = edge.Direction.Desc if direction == "desc" else edge.Direction.Asc
    return edge.OrderBy(key, direction=sense, start_from=start)


def params_of(value: object) -> edge.SearchParams | None:
    """Search parameters. `hnsw_ef` has no effect while no graph is built; see collections.py."""
    if value is None:
        return None
    fields = Fields(value, "params")
    quantization = fields.take("quantization")
    found = edge.SearchParams(
        hnsw_ef=fields.whole("hnsw_ef"),
        exact=fields.flag("exact") or False,
        quantization=None if quantization is None else _quantization(Fields(quantization, "params.quantization")),
        indexed_only=False,
    )
    fields.ignore("indexed_only")  # there is never an unindexed rest to leave out: every segment is searched whole
    fields.done()
    return found


def _quantization(fields: Fields) -> edge.QuantizationSearchParams:
    found = edge.QuantizationSearchParams(
        ignore=fields.flag("ignore") or False,
        rescore=fields.flag("rescore"),
        oversampling=fields.number("oversampling"),
    )
    fields.done()
    return found


def scroll_request(fields: Fields) -> edge.ScrollRequest:
    """The engine's request for the body of `points/scroll`."""
    order = fields.take("order_by")
    offset = fields.take("offset")
    if order is not None and offset is not None:
        raise BadRequest("Cannot use offset with order_by. Use order_by.start_from instead")
    found = edge.ScrollRequest(
        offset=None if offset is None else point_id(offset),
        limit=result_limit(fields),
        filter=filter_of(fields.take("filter")),
        with_payload=with_payload_of(fields.take("with_payload"), default=True),
        with_vector=with_vector_of(fields.take("with_vector")),
        order_by=None if order is None else order_by_of(order),
    )
    fields.done()
    return found
