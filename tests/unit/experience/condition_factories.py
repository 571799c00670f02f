"""Limits, triples, states and random ones for tests of conditions; every part can be given, none must."""

from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from memory_service.experience.conditions import Condition, parse_conditions
from memory_service.experience.conditions_settings import ConditionLimits
from memory_service.experience.confidence_settings import ConfidenceSettings
from memory_service.settings import load_settings, load_tunables

NOW = datetime(2026, 5, 4, 9, 30, tzinfo=UTC)
TUNABLES = load_tunables(load_settings())
LIMITS = TUNABLES.section("experience_conditions", ConditionLimits)
CONFIDENCE = TUNABLES.section("experience_confidence", ConfidenceSettings)


def limits(**numbers: Any) -> ConditionLimits:
    return LIMITS.model_copy(update=numbers)


def triple(field: str = "tool", operator: str = "eq", value: Any = "bash") -> dict[str, Any]:
    return {"field": field, "operator": operator, "value": value}


def parsed(*triples: dict[str, Any]) -> tuple[Condition, ...]:
    return parse_conditions(list(triples), LIMITS)


# A small world, so that random triples and random states often meet.
FIELDS = ("a", "b", "a.b", "c", "c.d", "c.d.0", "list", "list.0", "list.1.x")
TEXTS = (
    "x",
    "xy",
    "xyz",
    "10",
    "true",
    "",
    "2026-01-01T00:00:00Z",
    "2026-01-01T01:00:00+01:00",
    "2026-06-01T00:00:00Z",
    "é中",
)
SCALARS = st.one_of(
    st.sampled_from(TEXTS), st.integers(-2, 3), st.sampled_from((0.5, 1.0, -0.0, 2.5, 2.0**53)), st.booleans()
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(("b", "d", "x", "0")), inner, max_size=3)
    ),
    max_leaves=5,
)
STATE_VALUES = VALUES | st.none() | st.lists(VALUES | st.none(), max_size=3)
STATES = st.dictionaries(st.sampled_from((*FIELDS, "other")), STATE_VALUES, max_size=7)
PATTERNS = st.sampled_from(("^x", "y$", "x.?z", "(?i)Y", r"\d+", "(x+x+)+y", "中"))
FILLED = st.sampled_from([text for text in TEXTS if text])


def _values_of(operator: str) -> st.SearchStrategy[Any]:
    if operator in ("in", "nin"):
        return st.lists(VALUES, min_size=1, max_size=3)
    if operator in ("gt", "gte", "lt", "lte"):
        return st.sampled_from(TEXTS) | st.integers(-2, 3) | st.sampled_from((0.5, 2.5))
    if operator in ("contains", "not_contains"):
        return VALUES.filter(lambda value: value != "")
    return {"exists": st.booleans(), "starts_with": FILLED, "matches": PATTERNS}.get(operator, VALUES)


TRIPLES = st.sampled_from(
    ("eq", "ne", "in", "nin", "gt", "gte", "lt", "lte", "contains", "not_contains", "starts_with", "matches", "exists")
).flatmap(lambda operator: st.builds(triple, st.sampled_from(FIELDS), st.just(operator), _values_of(operator)))
TRIPLE_LISTS = st.lists(TRIPLES, min_size=1, max_size=5)
