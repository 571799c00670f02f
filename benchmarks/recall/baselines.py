"""What would the textbook find in the same turns?  BM25, fusion of ranks, and what is put into their index.  Pure.

BM25 over one user's turns (Robertson's formula with Lucene's idf), on the words by which the product too finds texts; equal-weight
reciprocal rank fusion (Cormack, Clarke and Büttcher 2009).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from math import log1p

from benchmarks.recall.cases import Case
from memory_service.terms import keyword_terms
from memory_service.vocabulary import Vocabulary

K1, B = 1.2, 0.75  # Lucene's defaults, and those of [rank]
RRF_K = 60  # of the paper
DEPTH = 100  # of each list that is fused


class Bm25:
    """An index over documents that are lists of terms."""

    def __init__(self, documents: Sequence[Sequence[str]], k1: float = K1, b: float = B) -> None:
        lengths = [len(document) for document in documents]
        mean = sum(lengths) / len(lengths) or 1.0
        self._norms = [k1 * (1 - b + b * length / mean) for length in lengths]
        self._k1 = k1
        self._postings: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for number, document in enumerate(documents):
            for term, times in Counter(document).items():
                self._postings[term].append((number, times))

    def scores(self, terms: Sequence[str]) -> dict[int, float]:
        """Of each document with any of the distinct `terms`, by its number."""
        found: dict[int, float] = defaultdict(float)
        for term in dict.fromkeys(terms):
            postings = self._postings.get(term, [])
            idf = log1p((len(self._norms) - len(postings) + 0.5) / (len(postings) + 0.5))
            for number, times in postings:
                found[number] += idf * times * (self._k1 + 1) / (times + self._norms[number])
        return dict(found)

    def ranked(self, terms: Sequence[str]) -> list[int]:
        """Numbers of documents, best first; the earlier of equals first."""
        found = self.scores(terms)
        return sorted(found, key=lambda number: (-found[number], number))


def bare(case: Case, vocabulary: Vocabulary) -> list[list[str]]:
    """The terms of each turn as it was written: speaker and text."""
    return [keyword_terms(turn.content, vocabulary) for turn in case.turns]


def with_turn_before(case: Case, vocabulary: Vocabulary) -> list[list[str]]:
    """The same with the date and the text of the turn before."""
    own = dict(zip((turn.ref for turn in case.turns), bare(case, vocabulary), strict=True))
    before = case.before()
    documents = []
    for turn in case.turns:
        date = keyword_terms(f"{turn.occurred_at:%d %B %Y %A}".lstrip("0"), vocabulary)
        documents.append(own[turn.ref] + date + (own[before[turn.ref].ref] if turn.ref in before else []))
    return documents


def fused(rankings: Sequence[Sequence[str]]) -> list[str]:
    """Refs by the sum of 1 / (60 + rank) over the first hundred of each ranking."""
    found: dict[str, float] = defaultdict(float)
    for ranking in rankings:
        for rank, ref in enumerate(ranking[:DEPTH], 1):
            found[ref] += 1 / (RRF_K + rank)
    return sorted(found, key=lambda ref: -found[ref])
