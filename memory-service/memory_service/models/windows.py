"""Where is a long text cut so that every piece fits a model's window?

Pure: a text and the character span of each of its tokens in, pieces out.  It must not tokenise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_SENTENCE_ENDS = ".!?…;。！？；"
_CJK_SENTENCE_ENDS = "。！？；"
_LINE, _SENTENCE, _WORD, _TOKEN = 3, 2, 1, 0


@dataclass(frozen=True, slots=True)
class WindowRule:
    """All in tokens: the most that a piece holds, what neighbours share, how far back a better cut is looked for."""

    budget: int
    overlap: int
    boundary_search: int

    def __post_init__(self) -> None:
        if self.budget < 1 or not 0 <= self.overlap + self.boundary_search < self.budget:
            raise ValueError("overlap and boundary search must leave room in the window for new text")

    @classmethod
    def fitted(cls, budget: int, overlap: int, boundary_search: int) -> "WindowRule":
        """As wished, but for a small window at most a quarter of it for each of the two."""
        budget = max(1, budget)
        return cls(budget, min(overlap, budget // 4), min(boundary_search, budget // 4))


def windows(text: str, starts: Sequence[int], rule: WindowRule) -> list[str]:
    """Consecutive overlapping pieces of `text`, at least one, that together cover every character.

    `starts` holds the index of each token's first character, ascending.  A piece ends where the next one's first new
    token begins, at the end of a line if one is near, else of a sentence, else of a word.
    """
    cuts = _cuts(text, starts, rule)
    if not cuts:
        return [text]
    pieces = [text[: starts[cuts[0]]]]
    for cut, following in pairwise([*cuts, len(starts)]):
        first = _overlap_start(text, starts, cut, rule)
        end = starts[following] if following < len(starts) else len(text)
        pieces.append(text[starts[first] : end])
    return pieces


def _cuts(text: str, starts: Sequence[int], rule: WindowRule) -> list[int]:
    """Token numbers at which a new piece's own text begins."""
    cuts: list[int] = []
    begin = 0  # first token of the current piece, its overlap included
    while begin + rule.budget < len(starts):
        full = begin + rule.budget
        cut = _best_cut(text, starts, full - rule.boundary_search, full)
        cuts.append(cut)
        begin = _overlap_start(text, starts, cut, rule)
    return cuts


def _overlap_start(text: str, starts: Sequence[int], cut: int, rule: WindowRule) -> int:
    """First token of the piece whose own text begins at token `cut`: whole words, at most `overlap` tokens before."""
    for token in range(cut - rule.overlap, cut):
        if _boundary(text, starts[token]) >= _WORD:
            return token
    return cut - rule.overlap


def _best_cut(text: str, starts: Sequence[int], lowest: int, highest: int) -> int:
    """The last token in lowest..highest that begins after the strongest kind of boundary found there."""
    best, best_rank = highest, _TOKEN
    for token in range(highest, lowest, -1):
        rank = _boundary(text, starts[token])
        if rank > best_rank:
            best, best_rank = token, rank
        if rank == _LINE:
            break
    return best


def _boundary(text: str, at: int) -> int:
    """How well a text reads when it is cut before character `at`.

    A token may begin with the white space before its word, or after it, depending on the tokenizer; both are looked at.
    """
    before = text[max(0, at - 2) : at]
    around = text[max(0, at - 1) : at + 1]
    if "\n" in around:
        return _LINE
    spaced = any(character.isspace() for character in around)
    stripped = before.rstrip()
    if stripped[-1:] in _SENTENCE_ENDS and stripped and (spaced or stripped[-1] in _CJK_SENTENCE_ENDS):
        return _SENTENCE
    return _WORD if spaced else _TOKEN
