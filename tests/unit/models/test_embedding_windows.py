"""Are long texts cut so that nothing is lost and every piece fits?"""

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_service.models.packing import packed
from memory_service.models.windows import WindowRule, windows

RULE = WindowRule(budget=30, overlap=6, boundary_search=8)


def words(text: str) -> list[int]:
    return [match.start() for match in re.finditer(r"\w+|[^\w\s]", text)]


def rejoined(text: str, pieces: list[str]) -> bool:
    """Whether the pieces, laid on the text in order, leave no character out."""
    covered = 0
    at = 0
    for piece in pieces:
        at = text.find(piece, at)
        if at < 0 or at > covered:
            return False
        covered = max(covered, at + len(piece))
    return covered == len(text)


def test_a_short_text_is_one_piece_as_it_is() -> None:
    assert windows("  a b c\n", words("  a b c\n"), RULE) == ["  a b c\n"]


def test_an_empty_text_is_one_empty_piece() -> None:
    assert windows("", [], RULE) == [""]


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.sampled_from("ab.。 \n中文!"), max_size=600))
def test_every_character_is_in_a_piece_and_every_piece_fits(text: str) -> None:
    pieces = windows(text, words(text), RULE)

    assert rejoined(text, pieces)
    assert all(len(words(piece)) <= RULE.budget for piece in pieces)


def test_numbered_words_all_appear_and_neighbours_share_some() -> None:
    text = " ".join(f"w{number}" for number in range(500))
    pieces = windows(text, words(text), RULE)

    assert {word for piece in pieces for word in piece.split()} == set(text.split())
    for left, right in pairwise(pieces):
        shared = set(left.split()) & set(right.split())
        assert 1 <= len(shared) <= RULE.overlap


def test_a_phrase_no_longer_than_the_overlap_is_whole_in_some_piece_wherever_it_stands() -> None:
    for before in range(120):
        text = "filler " * before + "zebra quantum 77 " + "filler " * 60
        assert any("zebra quantum 77" in piece for piece in windows(text, words(text), RULE)), before


def test_a_line_end_is_preferred_to_a_sentence_end_and_that_to_a_space() -> None:
    line = "one two three four five. " * 4 + "six seven eight\nnine ten. " + "eleven " * 40
    sentence = "one two three four five six " * 4 + "seven. " + "eight " * 60

    assert windows(line, words(line), RULE)[0].endswith("eight\n")
    assert windows(sentence, words(sentence), RULE)[0].endswith("seven. ")


def test_chinese_is_cut_after_its_full_stop_without_a_space() -> None:
    text = "数据库迁移的问题昨天讨论" * 2 + "结束。" + "新的方案开始执行" * 10
    characters = list(range(len(text)))

    assert windows(text, characters, RULE)[0].endswith("。")


@pytest.mark.parametrize(("budget", "overlap", "search"), [(0, 0, 0), (10, 5, 5), (10, -1, 0)])
def test_a_rule_that_could_not_advance_is_refused(budget: int, overlap: int, search: int) -> None:
    with pytest.raises(ValueError, match="room"):
        WindowRule(budget, overlap, search)


@pytest.mark.parametrize("budget", [-5, 0, 1, 2, 10, 64, 500])
def test_a_small_window_gets_a_smaller_overlap_and_still_advances(budget: int) -> None:
    text = "".join(f"w{number} " for number in range(700))
    pieces = windows(text, words(text), WindowRule.fitted(budget, 48, 64))

    assert rejoined(text, pieces)
    assert max(len(words(piece)) for piece in pieces) <= max(1, budget)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 600), max_size=60))
def test_packing_covers_every_row_once_within_the_bounds(lengths: list[int]) -> None:
    groups = packed(lengths, 1024, 1.25)

    assert sorted(row for group in groups for row in group) == list(range(len(lengths)))
    for group in groups:
        sizes = [lengths[row] for row in group]
        assert len(group) * max(sizes) <= 1024 or len(group) == 1
        assert max(sizes) <= 1.25 * min(sizes)
