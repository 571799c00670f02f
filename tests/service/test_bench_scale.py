"""Does the benchmark of scale measure the service that it says it does?  Its parts on a small store; the sizes are its own business."""

from __future__ import annotations

from collections import Counter
from typing import Any

import httpx
import numpy as np
import psycopg
import pytest
from service_running import Backends, serving

from benchmarks.scale import bounds, plans, run
from benchmarks.scale.corpus import OWNER, Corpus, Question, by_weight, one_owner, shares, uniformly
from benchmarks.scale.loading import Loader
from memory_service.foundation import open_index
from memory_service.settings import Settings, load_tunables

WANT = {"user-00001": 260, "user-00002": 130, "user-00003": 10}


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return run._corpus()


@pytest.fixture(scope="module")
async def loaded(backends: Backends, corpus: Corpus) -> Settings:
    settings = backends.new_settings()
    await _grow(settings, corpus, WANT)
    return settings


async def _grow(settings: Settings, corpus: Corpus, want: dict[str, int]) -> int:
    index = open_index(settings, load_tunables(settings), run._embedder().fingerprint)
    try:
        return (
            await Loader(corpus, run._vocabulary(), settings.database_url, index).grow(want, lambda _line: None)
        ).rows
    finally:
        await index.close()


def questions(corpus: Corpus, count: int) -> list[Question]:
    chance = np.random.default_rng(1)
    return [corpus.question(chance, user, WANT[user]) for user in by_weight(chance, WANT, count)]


def test_shares_follow_zipf_and_add_up() -> None:
    for total in (1_000, 10_000, 100_000):
        assert sum(shares(total).values()) == sum(one_owner(total).values()) == total
        assert len(shares(total)) == total // 100
    counts = list(shares(100_000).values())
    assert counts[0] / counts[9] == pytest.approx(10, rel=0.05)
    assert one_owner(1_000_000)[OWNER] == 900_000
    chance = np.random.default_rng(0)
    drawn, evenly = (Counter(draw(chance, {"a": 900, "b": 100}, 2_000)) for draw in (by_weight, uniformly))
    assert drawn["a"] == pytest.approx(1_800, abs=100)
    assert evenly["a"] == pytest.approx(1_000, abs=150)


def test_a_memory_is_the_same_however_many_there_are(corpus: Corpus) -> None:
    few = {m.content for batch in corpus.batches(set(), {"user-00007": 30}, 100) for m in batch.memories}
    many = {
        m.content for batch in corpus.batches(set(), {"user-00007": 90, "user-00008": 90}, 100) for m in batch.memories
    }
    assert len(few) == 30
    assert few < many


async def test_what_was_loaded_is_what_a_service_serves(loaded: Settings, corpus: Corpus) -> None:
    async with serving(loaded) as world:
        assert await world.sql("SELECT count(*) FROM memory") == [(400,)]
        assert await world.runtime.index.count() == 400
        assert await world.sql("SELECT count(*) FROM index_outbox") == [(0,)]
        hits = 0
        for question in questions(corpus, 30):
            answer = await asked(world.client, question)
            assert answer["degraded"] == []
            assert {result["user_id"] for result in answer["results"]} <= {question.user_id}
            source = corpus.text_of(corpus.texts(question.user_id, question.source, 1)[0])
            hits += any(result["content"] == source for result in answer["results"])
        assert hits >= 27, hits  # words of a memory, of 260 at most, must lead back to it


async def asked(client: httpx.AsyncClient, question: Question) -> dict[str, Any]:
    body = {"user_id": question.user_id, "query": question.query, "limit": 10}
    answer = await client.post("/v1/memories/search", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


async def test_loading_again_adds_nothing(loaded: Settings, corpus: Corpus) -> None:
    assert await _grow(loaded, corpus, WANT) == 0


async def test_every_statement_of_a_search_is_explained(loaded: Settings, corpus: Corpus) -> None:
    found = await plans.explain(loaded, questions(corpus, 2))
    assert {"keyword_candidates", "rank_facts", "reminders_since"} <= set(found)
    assert all(statement.summary()["execution_p50_ms"] > 0 for statement in found.values())


async def test_below_the_bound_bounded_and_unbounded_agree(loaded: Settings, corpus: Corpus) -> None:
    compared = (await bounds.compare(loaded, corpus, questions(corpus, 5))).summary()
    assert compared["questions"] == 5
    assert compared["source_in_10_bounded"] >= 0.8


async def test_counts_of_a_user_come_from_the_index_alone(loaded: Settings) -> None:
    """For a user with 100,000 memories that is 60 ms instead of a second."""
    counted = """SELECT count(*) FROM memory m WHERE m.tenant = 'default' AND m.user_id = 'user-00001'
                 AND (m.expires_at IS NULL OR m.expires_at > now()) AND m.state = ANY('{active}')"""
    corpus = "SELECT count(*), avg(term_count) FROM memory WHERE tenant = 'default' AND user_id = 'user-00001'"
    async with await psycopg.AsyncConnection.connect(loaded.database_url, autocommit=True) as connection:
        await connection.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")  # so small a table is scanned
        for statement in (counted, corpus):
            cursor = await connection.execute(f"EXPLAIN {statement}")  # type: ignore[arg-type]
            plan = "\n".join(row[0] for row in await cursor.fetchall())
            assert plan.count("Index Only Scan using") == 2, plan
