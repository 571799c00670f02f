"""What a body may hold: text that stores can keep, numbers of 64 bits, 32 levels."""

# ruff: noqa: E501 - tables: one case reads best on one line

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_service.api.body import check_values, parse_json, text_problem
from memory_service.api.fields import is_blank
from memory_service.errors import BadRequest, HindsightError, InvalidFields
from memory_service.settings import load_settings, load_tunables

LIMITS = load_tunables(load_settings()).limits


def complaints(text: str) -> list[tuple[str, str]]:
    return [(e.field, e.message) for e in check_values(parse_json(text.encode(), LIMITS), LIMITS)]


@pytest.mark.parametrize(
    ("text", "field"),
    [('{"a":NaN}', "a"), ('{"a":[0,-Infinity]}', "a.1"), ('{"a":1e400}', "a"), ('{"a":9223372036854775808}', "a"), ('{"a":"x\\u0000"}', "a"), ('{"a":{"\\ud800":1}}', "a")],
)  # fmt: skip
def test_a_bad_value_is_named(text: str, field: str) -> None:
    assert [f for f, _ in complaints(text)] == [field]


@pytest.mark.parametrize(
    "text",
    [
        '{"a":9223372036854775807}',
        '{"a":-9223372036854775808}',
        '{"a":1.7976931348623157e308}',
        '{"a":"\\ud83e\\udd8a"}',
        '{"a":5e-324}',
    ],
)
def test_what_fits_is_taken(text: str) -> None:
    assert complaints(text) == []


@pytest.mark.parametrize("text", ["", "{", "{}{}", "nul", "\ufeff{}", "{'a':1}", '{"a":01}', '{"a":+1}', '"\\x"'])
def test_what_is_no_json_is_malformed(text: str) -> None:
    with pytest.raises(BadRequest):
        parse_json(text.encode(), LIMITS)


def test_a_hundred_thousand_levels_are_refused_as_too_deep() -> None:
    with pytest.raises(InvalidFields, match="deeper than 32"):
        parse_json(b"[" * 100_000, LIMITS)


def test_complaints_are_bounded() -> None:
    assert len(check_values({"a": ["\0"] * 10_000}, LIMITS)) == 20


@given(st.binary(max_size=60))
def test_any_bytes_are_json_or_a_clear_error(raw: bytes) -> None:
    try:
        value = parse_json(raw, LIMITS)
    except HindsightError:
        return
    check_values(value, LIMITS)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(json_values)
def test_a_value_without_complaints_survives_utf_8_and_strict_json(value: Any) -> None:
    if not check_values(value, LIMITS):
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        assert json.loads(text.encode().decode()) == value
        assert "\\u0000" not in text


@given(st.text(), st.sampled_from(["\0", "\ud800", "\udfff"]), st.text())
def test_hidden_characters_are_found_anywhere(before: str, bad: str, after: str) -> None:
    assert text_problem(before + bad + after) is not None


@pytest.mark.parametrize(
    ("text", "blank"),
    [
        ("", True),
        (" \t\n\u3000", True),
        ("\u200b\u2060", True),
        ("\ufeff \u00ad", True),
        ("\u200bx", False),
        (".", False),
        ("🦊", False),
    ],
)
def test_blank_is_what_shows_nothing(text: str, blank: bool) -> None:
    assert is_blank(text) is blank


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (b'{"name": "a", "name": "b"}', "name"),
        (b'{"items": [{}, {"k": 1, "x": 2, "k": 1}]}', "items.1.k"),
        ('{"名": {"\\u540d": 1, "名": 2}}'.encode(), "名.名"),
    ],
)
def test_a_key_that_is_given_twice_is_named(raw: bytes, field: str) -> None:
    errors = check_values(parse_json(raw, LIMITS), LIMITS)
    assert [(e.field, e.message) for e in errors] == [(field, "is given twice")]
