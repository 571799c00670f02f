"""Are near-duplicates merged and look-alikes kept apart?"""

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_service.errors import SetupRefused
from memory_service.write.duplicates import content_hash, load_contrasts, normalise_text, same_meaning
from tests.unit.write.factories import CONFIG, labelled, shipped_contrasts

CLOSE, THRESHOLD = 0.99, 0.95


def _same(a: str, b: str, cosine: float = CLOSE) -> bool:
    return same_meaning(a, b, cosine, THRESHOLD, shipped_contrasts())


@pytest.mark.parametrize("pair", labelled("pairs"), ids=lambda pair: f"{pair['same']}-{pair['a'][:30]}")
def test_a_close_pair_is_merged_only_when_it_says_the_same(pair: dict[str, Any]) -> None:
    assert _same(pair["a"], pair["b"]) is pair["same"]
    assert _same(pair["b"], pair["a"]) is pair["same"]


def test_a_pair_at_the_threshold_is_not_merged() -> None:
    assert not _same("The user prefers dark mode.", "User prefers dark mode", cosine=THRESHOLD)


def test_case_width_spacing_and_invisible_characters_do_not_make_another_text() -> None:
    assert normalise_text("\ufeffＲｅｄｉｓ\u3000 Cache\u200b\n") == "redis cache"
    assert content_hash("Straße  A") == content_hash("STRASSE a")
    assert content_hash("a b") != content_hash("ab")
    assert len(content_hash("x")) == 32


@given(st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_normalising_twice_changes_nothing(text: str) -> None:
    assert normalise_text(normalise_text(text)) == normalise_text(text)


def test_long_texts_are_merged_only_when_equal() -> None:
    long = "word " * 2000
    assert _same(long, long.upper())
    assert not _same(long, f"{long}more")


@pytest.mark.parametrize("piece", ["a", "1.1", "not ", "一", "不", "\ufdfa", "C:\\", "Ab "])
def test_a_hostile_pair_is_compared_in_bounded_time(piece: str) -> None:
    text = piece * (shipped_contrasts().chars_max // len(normalise_text(piece) or piece) - 2)
    started = time.process_time()
    _same(text, f"{text}b")
    assert time.process_time() - started < 3  # measured below 0.3 s


def test_a_bad_contrasts_file_is_refused_by_name(tmp_path: Path) -> None:
    shipped = (CONFIG / "contrasts.toml").read_text(encoding="utf-8")
    (tmp_path / "contrasts.toml").write_text(shipped.replace('["吧", ', '["吧", 1, '), encoding="utf-8")
    with pytest.raises(SetupRefused, match=r"empty\.chinese_endings"):
        load_contrasts(tmp_path / "contrasts.toml")
