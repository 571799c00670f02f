"""Which relevance do cosines of an embedding model mean, in each script?

    python benchmarks/calibration.py [--facts FILE] [--results FILE]

Embeds the labelled facts (benchmarks/calibration_facts.jsonl: a query and the memory that answers it, in English and
Chinese, eight domains) with the model that the environment names, fits a logistic curve per pair of scripts, and prints:
the cosines, the curves as they go into config/memory.toml, how reliable they are on facts that they were not fitted on, and
what relevance the fusion with keywords makes of them.  Writes the same as JSON with the machine's facts.
"""

import argparse
import asyncio
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np

from memory_service.models.embedders import open_embedder
from memory_service.models.embedding_settings import EmbedderConfig, EmbeddingTunables
from memory_service.models.ports import Embedder, Vector
from memory_service.recall.calibration import (
    PAIR_SCRIPTS,
    Curve,
    PairScript,
    ScriptCurves,
    fit_curve,
    relevance,
    reliability,
)
from memory_service.recall.fusion import keyword_scores
from memory_service.settings import Rank, Settings, Tunables, load_settings, load_tunables
from memory_service.stores.postgres.keyword_hits import KeywordHits
from memory_service.terms import keyword_terms, query_terms
from memory_service.vocabulary import Vocabulary, load_vocabulary

HERE = Path(__file__).parent
LANGUAGES: dict[PairScript, tuple[str, str]] = {
    "latin": ("en", "en"), "cjk": ("zh", "zh"), "latin_cjk": ("en", "zh"), "cjk_latin": ("zh", "en"),
}  # fmt: skip
# Texts in different scripts share hardly more than names, of which these facts have few: what a shared word means can't be
# fitted from them and is borrowed from the more cautious of the two one-script curves.
BORROWED_BELOW_PAIRS = 16
EDGES = (0.0, 0.1, 0.3, 0.5, 0.7, 0.85, 1.0)
PERCENTILES = (5, 50, 95)
FULL_MIN, SUMMARY_MIN = 0.85, 0.7
MEAN_WEIGHTS = 0.55, 0.45  # of the weighted mean of both lanes that the hybrid curve is compared with
TS_RANK_ONE = 0.1 / 1.64493406685  # what Postgres gives for one occurrence


@dataclass(frozen=True, slots=True)
class Facts:
    """Texts by language; `domain[n]` is a number."""

    queries: dict[str, list[str]]
    memories: dict[str, list[str]]
    domain: list[int]

    def __len__(self) -> int:
        return len(self.domain)

    def pairs(self, numbers: Sequence[int]) -> dict[str, list[tuple[int, int]]]:
        """(query, memory) numbers: each related one, all others of its domain, and as many of other domains."""
        everyone = range(len(self))
        close = [(q, m) for q in numbers for m in everyone if m != q and self.domain[m] == self.domain[q]]
        per_query = len(close) // len(numbers)
        far = []
        for q in numbers:
            strangers = [m for m in everyone if self.domain[m] != self.domain[q]]
            far += [(q, strangers[(q * 5 + k * 8) % len(strangers)]) for k in range(per_query)]
        return {"related": [(q, q) for q in numbers], "same_domain": close, "unrelated": far}


def load_facts(path: Path) -> Facts:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    domains = list(dict.fromkeys(row["domain"] for row in rows))
    return Facts(
        {language: [row[f"query_{language}"] for row in rows] for language in ("en", "zh")},
        {language: [row[f"memory_{language}"] for row in rows] for language in ("en", "zh")},
        [domains.index(row["domain"]) for row in rows],
    )


async def cosines(facts: Facts, embedder: Embedder, vocabulary: Vocabulary) -> dict[PairScript, Vector]:
    """Per direction a matrix [query, memory]."""
    asked, stored = {}, {}
    for language in ("en", "zh"):
        asked[language] = np.stack(
            [await embedder.embed_query(vocabulary.normalise(q)) for q in facts.queries[language]]
        )
        stored[language] = await embedder.embed_passages([vocabulary.normalise(m) for m in facts.memories[language]])
    return {script: asked[q] @ stored[m].T for script, (q, m) in LANGUAGES.items()}


def keyword_matrix(facts: Facts, script: PairScript, vocabulary: Vocabulary, rank: Rank, per_term: int) -> Vector:
    """The keyword lane's score of every memory for every query, as the search computes it over these memories."""
    asked, stored = LANGUAGES[script]
    documents = [keyword_terms(text, vocabulary) for text in facts.memories[stored]]
    corpus = len(documents), sum(map(len, documents)) / len(documents)
    scores = np.zeros((len(facts), len(facts)), np.float32)
    for number, query in enumerate(facts.queries[asked]):
        terms = query_terms(query, vocabulary)
        weights = [tuple(_ts_rank(document.count(term)) for term in terms) for document in documents]
        found = [n for n, row in enumerate(weights) if any(row)]
        hits = KeywordHits(
            [UUID(int=n) for n in found], [len(documents[n]) for n in found], [weights[n] for n in found]
        )
        for memory_id, score in keyword_scores(hits, corpus, rank, per_term, len(facts)).items():
            scores[number, memory_id.int] = score.score
    return scores


def _ts_rank(times: int) -> float:
    return TS_RANK_ONE * sum(1 / n**2 for n in range(1, times + 1))


def fitted(facts: Facts, matrix: Vector, keywords: Vector, numbers: Sequence[int], gain: float | None) -> Curve:
    """Related against both kinds of other pairs, of which there are equally many."""
    pairs = facts.pairs(numbers)

    def values(*names: str) -> list[tuple[float, float]]:
        return [(float(matrix[pair]), float(keywords[pair])) for name in names for pair in pairs[name]]

    return fit_curve(values("related"), values("same_domain", "unrelated"), gain)


def keyword_curve(facts: Facts, keywords: Vector) -> dict[str, float]:
    """Relevance by the keyword score alone; texts that share no word are most of both sides' others."""
    pairs = facts.pairs(range(len(facts)))

    def values(*names: str) -> list[tuple[float, float]]:
        return [(float(keywords[pair]), 0.0) for name in names for pair in pairs[name]]

    curve = fit_curve(values("related"), values("same_domain", "unrelated"), 0.0)
    return {"midpoint": curve.midpoint, "slope": curve.slope}


def held_out(
    facts: Facts, matrix: Vector, keywords: Vector, script: PairScript, gain: float | None
) -> tuple[Vector, Vector]:
    """Relevance of every pair by the curves of the other half of the queries: dense, hybrid."""
    dense, hybrid = np.empty_like(matrix), np.empty_like(matrix)
    for half in (0, 1):
        curve = fitted(facts, matrix, keywords, [n for n in range(len(facts)) if n % 2 != half], gain)
        curves = ScriptCurves(latin=curve, cjk=curve, latin_cjk=curve, cjk_latin=curve)
        for query in range(half, len(facts), 2):
            both = [(float(c), float(k)) for c, k in zip(matrix[query], keywords[query], strict=True)]
            dense[query] = [relevance(c, script, curves) for c, _ in both]
            hybrid[query] = [relevance(c, script, curves, k) for c, k in both]
    return dense, hybrid


def measured(
    facts: Facts, matrix: Vector, names: Sequence[str] = ("related", "same_domain", "unrelated")
) -> dict[str, Any]:
    """Percentiles and the share above the two thresholds, per kind of pair; and of the best wrong memory of each query."""
    pairs = facts.pairs(range(len(facts)))
    columns = {name: np.array([matrix[pair] for pair in pairs[name]]) for name in names}
    wrong = matrix.copy()
    np.fill_diagonal(wrong, -1)
    columns["best_wrong"] = wrong.max(axis=1)
    return {
        name: {
            **{f"p{p}": round(float(np.percentile(values, p)), 3) for p in PERCENTILES},
            "full": round(float((values >= FULL_MIN).mean()), 3),
            "summary_or_full": round(float((values >= SUMMARY_MIN).mean()), 3),
        }
        for name, values in columns.items()
    }  # fmt: skip


def direction(facts: Facts, script: PairScript, matrix: Vector, keywords: Vector, gain: float | None) -> dict[str, Any]:
    """Everything about one pair of scripts."""
    dense, hybrid = held_out(facts, matrix, keywords, script, gain)
    fused = (MEAN_WEIGHTS[0] * dense + MEAN_WEIGHTS[1] * keywords).astype(np.float32)
    pairs = facts.pairs(range(len(facts)))

    def reliable(scores: Vector) -> list[dict[str, Any]]:
        labelled = [(float(scores[pair]), name == "related") for name, found in pairs.items() for pair in found]
        return [asdict(one) for one in reliability(labelled, EDGES)]

    cosine = measured(facts, matrix)
    for row in cosine.values():
        del row["full"], row["summary_or_full"]
    return {
        "pairs": {name: len(found) for name, found in pairs.items()},
        "cosine": cosine,
        "curve": fitted(facts, matrix, keywords, range(len(facts)), gain).model_dump(),
        "halves": [fitted(facts, matrix, keywords, range(half, len(facts), 2), gain).model_dump() for half in (0, 1)],
        "dense_reliability_held_out": reliable(dense),
        "hybrid_reliability_held_out": reliable(hybrid),
        "dense_relevance_held_out": measured(facts, dense),
        "keyword_gain_borrowed": gain is not None,
        "keyword_score": measured(facts, keywords),
        "mean_relevance_held_out": measured(facts, fused),
        "hybrid_relevance_held_out": measured(facts, hybrid),
        "first_is_right": {
            name: round(float((scores.argmax(axis=1) == np.arange(len(facts))).mean()), 3)
            for name, scores in (("dense", matrix), ("mean", fused), ("hybrid", hybrid))
        },
    }


def machine() -> dict[str, Any]:
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "load": [round(x, 1) for x in os.getloadavg()],
    }


def printed(result: dict[str, Any]) -> None:
    for script, found in result["directions"].items():
        print(f"\n{script}  pairs {found['pairs']}  right memory first {found['first_is_right']}")
        for title in (
            "cosine",
            "dense_relevance_held_out",
            "keyword_score",
            "mean_relevance_held_out",
            "hybrid_relevance_held_out",
        ):
            for name, row in found[title].items():
                print(f"  {title:25} {name:12} " + "  ".join(f"{key} {value:.3f}" for key, value in row.items()))
        for kind in ("dense", "hybrid"):
            for row in found[f"{kind}_reliability_held_out"]:
                line = "{low:.2f}-{high:.2f}: {count:4} pairs, promised {promised:.2f}, related {related:.2f}"
                print(f"  {kind:6} bin", line.format(**row))
    print()
    for script, curve in result["keyword"].items():
        print(f"[relevance.keyword]  # {script}\nmidpoint = {curve['midpoint']:.4f}\nslope = {curve['slope']:.1f}\n")
    for script, found in result["directions"].items():
        print(f'[relevance.models."{result["model"]["model"]}".{script}]')
        for name, value in found["curve"].items():
            print(f"{name} = {value:.{4 if 'midpoint' in name else 1}f}")
        print()


async def _open(settings: Settings, numbers: Tunables) -> Embedder:
    """The embedder that the service would use in this environment."""
    config = EmbedderConfig(
        provider=settings.embedding_provider,
        model=settings.embedding_model,
        revision=settings.embedding_revision,
        base_url=settings.embedding_base_url,
        api_key=settings.embedding_api_key,
        query_prefix=settings.embedding_query_prefix,
        passage_prefix=settings.embedding_passage_prefix,
        dimensions=settings.embedding_dimensions,
        model_dir=settings.models_folder,
        device=settings.embedding_device,
    )
    tunables = numbers.values("embedding", EmbeddingTunables, [field.name for field in fields(EmbeddingTunables)])
    return await open_embedder(config, tunables, lambda line: print(line, file=sys.stderr))


async def run(facts: Facts) -> dict[str, Any]:
    settings = load_settings()
    numbers = load_tunables(settings)
    vocabulary = load_vocabulary(settings.config_folder / "terms.toml", settings.config_folder / "stop_words.toml")
    embedder = await _open(settings, numbers)
    try:
        matrices = await cosines(facts, embedder, vocabulary)
        model = asdict(embedder.fingerprint)
    finally:
        await embedder.close()
    directions: dict[str, Any] = {}
    by_words: dict[str, Any] = {}
    for script in PAIR_SCRIPTS:  # the one-script curves come first
        keywords = keyword_matrix(facts, script, vocabulary, numbers.rank, numbers.search.keyword_per_term)
        shared = int((keywords.diagonal() > 0).sum())
        known = [found["curve"]["keyword_gain"] for found in directions.values()]
        gain = min(known[:2]) if shared < BORROWED_BELOW_PAIRS and known else None
        directions[script] = direction(facts, script, matrices[script], keywords, gain)
        if "_" not in script:
            by_words[script] = keyword_curve(facts, keywords)
    return {"machine": machine(), "model": model, "facts": len(facts), "keyword": by_words, "directions": directions}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--facts", type=Path, default=HERE / "calibration_facts.jsonl")
    parser.add_argument("--results", type=Path, default=HERE / "results" / "calibration.json")
    chosen = parser.parse_args()
    result = asyncio.run(run(load_facts(chosen.facts)))
    printed(result)
    chosen.results.parent.mkdir(parents=True, exist_ok=True)
    chosen.results.write_text(json.dumps(result, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
