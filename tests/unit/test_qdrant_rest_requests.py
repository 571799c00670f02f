"""Is every request either understood whole or refused? The parts of the translation that need no running process."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local_stack.qdrant.errors import ApiError, BadRequest, NotMapped
from local_stack.qdrant.fields import Fields, point_id
from local_stack.qdrant.filters import filter_of
from local_stack.qdrant.indexes import index_schema
from local_stack.qdrant.points import points_of, vectors_of
from local_stack.qdrant.queries import query_request, scroll_request
from local_stack.qdrant.schema import VectorNames, config_out, configuration, vector_names

NAMES = VectorNames({"": 2}, frozenset({"words"}))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
WORDS = st.sampled_from(
    ["must", "should", "must_not", "min_should", "conditions", "min_count", "key", "match", "range"]
)
FILTERISH = st.recursive(
    JSON, lambda inner: st.dictionaries(WORDS, inner | st.lists(inner, max_size=3), max_size=3), max_leaves=12
)


@settings(max_examples=60, deadline=None)
@given(FILTERISH)
def test_no_filter_however_malformed_gets_past_as_a_crash(value: object) -> None:
    with suppress(ApiError, ValueError, TypeError, OverflowError):  # exactly what the application turns into an answer
        filter_of(value)


@settings(max_examples=60, deadline=None)
@given(JSON)
def test_no_body_however_malformed_gets_past_as_a_crash(value: object) -> None:
    for read in (
        lambda: query_request(Fields(value, "body"), lambda _id, _using: [1.0]),
        lambda: scroll_request(Fields(value, "body")),
        lambda: points_of(Fields(value, "body"), NAMES),
        lambda: configuration(Fields(value, "body")),
        lambda: index_schema(value),
    ):
        with suppress(ApiError, ValueError, TypeError, OverflowError):
            read()


def test_a_field_nobody_took_is_named() -> None:
    fields = Fields({"limit": 1, "novel": 2, "null": None}, "body")
    fields.whole("limit")
    with pytest.raises(NotMapped, match="novel"):
        fields.done()


@pytest.mark.parametrize("value", [True, -1, 2**64, 1.0, "", "abc", None, []])
def test_what_is_no_point_id_is_refused(value: object) -> None:
    with pytest.raises(BadRequest, match="not a valid point ID"):
        point_id(value)


def test_a_uuid_is_accepted_in_any_form_and_kept_in_one() -> None:
    canonical = "550e8400-e29b-41d4-a716-446655440000"
    assert point_id(canonical) == point_id(canonical.upper()) == point_id(canonical.replace("-", "")) == canonical


@pytest.mark.parametrize(
    "value", [[1.0], [1.0, 2.0, 3.0], ["1", 2.0], [True, 1.0], {"nope": [1.0, 2.0]}, {"words": [1.0, 2.0]}, 5, []]
)
def test_a_vector_that_does_not_fit_is_refused_before_it_is_logged(value: object) -> None:
    with pytest.raises(BadRequest):
        vectors_of(value, NAMES)


def test_a_filter_nested_beyond_reason_is_refused() -> None:
    value: dict[str, object] = {}
    for _ in range(200):
        value = {"must": [value]}
    with pytest.raises(BadRequest, match="deeper"):
        filter_of(value)


def test_speed_settings_are_kept_and_shown() -> None:
    body = {
        "vectors": {"size": 3, "distance": "Cosine", "on_disk": True, "hnsw_config": {"m": 4}},
        "quantization_config": {"scalar": {"type": "int8"}},
        "hnsw_config": {"m": 8},
    }
    config = configuration(Fields(body, "body"))
    shown = config_out(config)
    assert shown["params"]["vectors"] == body["vectors"]
    assert shown["quantization_config"] == {"scalar": {"type": "int8"}}
    assert shown["hnsw_config"]["m"] == 8
    assert shown["hnsw_config"]["ef_construct"] == 100
    assert vector_names(config) == VectorNames({"": 3}, frozenset())
