"""Where does one Chinese word end and the next begin, as far as that can be known without a dictionary?

Most content words have two characters, and function characters (把 的 从 用 …) stand between words.  So a run is cut at those,
except inside the listed words that contain one (用户, 过程), and what is left is read in pairs.  A pair across a cut is no
word: 生成|本周 holds no 成本.  It must not know which words tell something.
"""

import re
from collections.abc import Iterator, Sequence

_CHINESE_RUN = re.compile(r"[\u3400-\u9fff]+")


def all_chinese(word: str) -> bool:
    """Nothing but Chinese characters?  Of a term; what language a text is in is `scripts.is_chinese`."""
    return _CHINESE_RUN.fullmatch(word) is not None


class WordBreaks:
    """`breaks`: function words and common verbs, each a cut; `whole`: words that hold a function character and stay whole."""

    def __init__(self, breaks: Sequence[str], whole: Sequence[str]) -> None:
        longest_first = sorted((*breaks, *whole), key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, longest_first)))
        self._whole = frozenset(whole)

    def segments(self, text: str) -> Iterator[str]:
        """Stretches between cuts, in order; a listed whole word is one of its own."""
        for run in _CHINESE_RUN.findall(text):
            start = 0
            for found in self._known.finditer(run):
                if found.start() > start:
                    yield run[start : found.start()]
                if found.group() in self._whole:
                    yield found.group()
                start = found.end()
            if start < len(run):
                yield run[start:]

    def words(self, text: str) -> list[str]:
        """Each segment in pairs from its start; a lone last character says too little."""
        pairs = (part[at : at + 2] for part in self.segments(text) for at in range(0, len(part) - 1, 2))
        return list(dict.fromkeys(pairs))

    def pairs(self, text: str) -> frozenset[str]:
        """Every two characters that stand together in one segment: words, whichever way the segment is cut."""
        return frozenset(part[at : at + 2] for part in self.segments(text) for at in range(len(part) - 1))
