"""What does each method find for each question of a case?  The service's search beside the baselines, on the same turns.

The dense baseline is the order of the cosines that the service's vector lane tells with `explain`: of the same vectors, made by
the same model from the same indexed text.  Everything else is computed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.recall import baselines
from benchmarks.recall.asking import Service, Written, hits
from benchmarks.recall.cases import Case
from benchmarks.recall.scores import DEPTHS, score
from memory_service.terms import query_terms
from memory_service.vocabulary import Vocabulary

SEARCH = "search"
BM25, BM25_BEFORE, DENSE, RRF, RRF_BEFORE = (
    "BM25",
    "BM25 + date, turn before",
    "dense",
    "RRF",
    "RRF + date, turn before",
)
BASELINES = (BM25, BM25_BEFORE, DENSE, RRF, RRF_BEFORE)
DEPTH = max(DEPTHS)
DENSE_LIMIT = 100  # the contract's largest


@dataclass(frozen=True, slots=True)
class Row:
    """One question: the metrics of every method."""

    user: str
    category: str
    scores: dict[str, dict[str, float]]


class Words:
    """Both keyword baselines over one case."""

    def __init__(self, case: Case, vocabulary: Vocabulary) -> None:
        self._refs = [turn.ref for turn in case.turns]
        self._vocabulary = vocabulary
        self._bare = baselines.Bm25(baselines.bare(case, vocabulary))
        self._before = baselines.Bm25(baselines.with_turn_before(case, vocabulary))

    def ranked(self, query: str) -> tuple[list[str], list[str]]:
        """Refs by the bare texts, and with the turn before."""
        terms = query_terms(query, self._vocabulary)
        bare, before = self._bare.ranked(terms), self._before.ranked(terms)
        return [self._refs[number] for number in bare], [self._refs[number] for number in before]


async def rows(service: Service, one: Written, words: Words) -> list[Row]:
    """In the order of the questions."""
    told = []
    for question in one.case.questions:
        found = await hits(service, one, question.query, DEPTH)
        dense = await _dense(service, one, question.query)
        bare, before = words.ranked(question.query)
        flat = [sorted(refs)[0] for refs in dense]
        rankings: dict[str, Sequence[set[str]]] = {
            SEARCH: [one.stands_for(hit) for hit in found],
            BM25: _alone(bare),
            BM25_BEFORE: _alone(before),
            DENSE: dense,
            RRF: _alone(baselines.fused([bare, flat])),
            RRF_BEFORE: _alone(baselines.fused([before, flat])),
        }
        scores = {method: score(ranking, question.evidence) for method, ranking in rankings.items()}
        told.append(Row(one.case.user, question.category, scores))
    return told


def _alone(refs: Sequence[str]) -> list[set[str]]:
    return [{ref} for ref in refs]


async def _dense(service: Service, one: Written, query: str) -> list[set[str]]:
    """The turns by falling cosine.

    A search gives its hits in the order of their scores, so one of the nearest could be missing when a hundred others have better
    ones.  It is counted then.
    """
    found = await hits(service, one, query, DENSE_LIMIT, mode="vector", explain=True)
    told = [(hit["score_details"]["lanes"].get("vector"), one.stands_for(hit)) for hit in found]
    near = sorted(
        ((lane["raw"], lane["rank"], refs) for lane, refs in told if lane), key=lambda item: (-item[0], item[1])
    )
    ranks = {rank for _, rank, _ in near}
    one.cosines_missing += sum(rank not in ranks for rank in range(1, min(DEPTH, len(one.refs)) + 1))
    return [refs for _, _, refs in near]
