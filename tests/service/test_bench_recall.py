"""Does the benchmark of recall read the sets as they are published, score rankings right and measure the service that it says?"""

from __future__ import annotations

import json
from dataclasses import replace
from math import log
from pathlib import Path

import httpx
import numpy as np
import pytest
from service_running import World

from benchmarks.recall import results, run
from benchmarks.recall.asking import Refused, Service, Written, hits, written
from benchmarks.recall.baselines import Bm25, bare, fused, with_turn_before
from benchmarks.recall.cases import Case, Turn, own
from benchmarks.recall.compared import BASELINES, SEARCH, Row
from benchmarks.recall.lists import NAMES, OtherService, collected, weights_of
from benchmarks.recall.run import measure, vocabulary
from benchmarks.recall.scores import interval, score
from benchmarks.recall.weights import order
from memory_service.recall.calibration import Relevance

EXAMPLE = Path(results.__file__).with_name("example.jsonl")


def test_rankings_are_scored_as_by_hand():
    evidence = frozenset({"a", "b", "c", "d"})
    ranked = [{"x"}, {"a", "b"}, {"a"}, {"y"}, {"z"}, {"c"}]
    assert score(ranked, evidence) == {"recall@5": 0.5, "recall@10": 0.75, "recall@20": 0.75, "mrr": 0.5}
    assert set(score([], evidence).values()) == {0.0}
    late = [{str(n)} for n in range(10)] + [{"d"}]
    assert score(late, frozenset("d")) == {"recall@5": 0, "recall@10": 0, "recall@20": 1, "mrr": 1 / 11}


def test_intervals_resample_users_and_not_their_questions():
    values, users = [1.0] * 50 + [0.0] * 50, [f"u{n // 10}" for n in range(100)]
    low, high = interval(values, users)
    assert low < 0.3
    assert high > 0.7
    assert interval(values, users) == (low, high)
    by_question = interval(values, ["one"] * 100)
    assert 0.38 < by_question[0] < by_question[1] < 0.62


def test_bm25_is_lucenes_and_a_term_counts_once_in_a_query():
    index = Bm25([["kite", "red"], ["kite", "kite", "sky", "blue"], ["sea"]])
    mean, idf = 7 / 3, log(1 + 1.5 / 2.5)
    first = idf * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 2 / mean))
    second = idf * 2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 4 / mean))
    assert index.scores(["kite", "kite", "moon"]) == pytest.approx({0: first, 1: second})
    assert index.ranked(["kite"]) == [1, 0]
    assert index.ranked(["moon"]) == []


def test_the_turn_before_and_the_date_lead_to_a_turn_only_when_they_are_indexed():
    case = own(EXAMPLE)[0]
    words = vocabulary()
    plain, wide = bare(case, words)[1], with_turn_before(case, words)[1]
    assert "balconi" not in plain
    assert {"balconi", "march"} <= set(wide)
    assert "balconi" not in with_turn_before(case, words)[2]


def test_fusion_weighs_ranks_only_and_prefers_what_both_found():
    assert fused([["a", "b", "c"], ["d", "b"]]) == ["b", "a", "d", "c"]


def rows(values: dict[str, list[float]]) -> list[Row]:
    count = len(values[SEARCH])
    given = {name: values.get(name, [0.0] * count) for name in (SEARCH, *BASELINES)}
    metrics = ("recall@5", "recall@10", "recall@20", "mrr")
    return [Row(f"u{n}", "c", {m: dict.fromkeys(metrics, v[n]) for m, v in given.items()}) for n in range(count)]


def test_the_lead_is_over_the_best_baseline_and_of_the_same_questions():
    told = results.figures(rows({SEARCH: [1, 1, 0, 1], "dense": [1, 0, 0, 1], "BM25": [0, 0, 0, 1]}), {})
    assert told["lead"]["recall@10"]["over"] == "dense"
    assert told["lead"]["recall@10"]["mean"] == 0.25
    assert told["lead"]["recall@10"]["interval"][0] == 0
    assert "| x | 4 | 4 | 75.0 (50.0) |" in results.table({"x": told})[2]


def test_a_set_takes_the_place_of_its_last_run_and_leaves_the_others(tmp_path: Path):
    path = tmp_path / "recall.json"
    for label, entry in (("a", 1), ("b", 2), ("a", 3)):
        results.keep(path, "sets", {label: entry})
    assert json.loads(path.read_text()) == {"sets": {"a": 3, "b": 2}}


async def test_the_example_is_written_found_and_erased(world: World):
    cases = own(EXAMPLE)
    before = await world.sql("SELECT count(*) FROM memory")
    told = await measure(world.client, cases)
    assert (told["users"], told["turns"], told["questions"], told["problems"]) == (2, 12, 6, {})
    assert told["cosines_missing"] == 0
    assert told["methods"][SEARCH]["recall@10"] == 1.0  # each user has six memories
    assert told["methods"]["BM25"]["mrr"] > 0.5
    assert told["methods"]["dense"]["recall@10"] == 1.0
    assert told["methods"]["RRF"]["recall@10"] == 1.0
    assert await world.sql("SELECT count(*) FROM memory") == before


async def test_equal_turns_are_found_with_the_memory_that_they_became(world: World):
    case = replace(own(EXAMPLE)[0])
    again = replace(case.turns[-1], ref="m6 again", metadata={})
    case.turns = [*case.turns, again]
    async with written(Service(world.client), case) as one:
        [found] = await hits(Service(world.client), one, "pack the blue tent", 1)
        assert one.stands_for(found) == {"m6", "m6 again"}
        assert one.duplicates == 1


async def test_a_turn_that_the_service_refuses_is_counted_and_a_user_is_erased_all_the_same(world: World):
    case = own(EXAMPLE)[0]
    case.turns[0] = Turn("m1", "nothing\x00", case.turns[0].occurred_at)
    service = Service(world.client)

    async def interrupted() -> None:
        async with written(service, case) as one:
            users.append(one.user_id)
            assert one.problems["refused"] == 1
            raise RuntimeError("stop here")

    users: list[str] = []
    with pytest.raises(RuntimeError, match="stop here"):
        await interrupted()
    assert (await service.ask("GET", f"/v1/memories?user_id={users[0]}"))["total"] == 0
    with pytest.raises(Refused, match="422"):
        await service.ask("POST", "/v1/memories/search", {"user_id": users[0], "query": " "})


@pytest.mark.parametrize(("late", "problems"), [(2, {}), (99, {"vector degraded": 1})])
async def test_a_lane_that_is_late_once_is_asked_again_and_one_that_stays_late_is_counted(
    late: int, problems: dict[str, int]
):
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        return httpx.Response(200, json={"degraded": ["vector"] if len(asked) <= late else [], "results": []})

    one = Written(Case("a"), "a")
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://x") as client:
        assert await hits(Service(client), one, "what?", 5) == []
    assert one.problems == problems
    assert len(asked) == min(late + 1, 5)


async def test_explain_tells_enough_to_put_the_hits_into_the_services_order(world: World):
    numbers = world.runtime.tunables
    weights = weights_of(numbers.signals)
    temperature = numbers.section("relevance", Relevance).rank_temperature
    seen = np.zeros(len(weights))
    for case in own(EXAMPLE):
        async with written(Service(world.client), case) as one:
            for told in await collected(Service(world.client), one, numbers.signals, numbers.rank):
                assert order(told, weights, temperature).tolist() == list(range(len(told.gains)))
                assert told.gains.sum() == told.evidence
                seen += np.abs(told.features).sum(axis=0)
    told_by_the_example = [
        NAMES.index(n) for n in ("answered", "after", "asks", "speaker", "assistant") if weights[NAMES.index(n)]
    ]
    assert (seen[told_by_the_example] > 0).all()


@pytest.mark.parametrize(("status", "exit_status"), [("created", 0), ("rejected", 2)])
def test_the_command_keeps_a_clean_run_only(
    status: str, exit_status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/batch"):
            memories = json.loads(request.content)["memories"]
            told = [{"status": status, "id": memory["metadata"]["ref"]} for memory in memories]
            return httpx.Response(200, json={"results": told})
        return httpx.Response(200, json={"results": [], "degraded": [], "index": {"pending": 0, "dead": 0}})

    kept = tmp_path / "recall.json"
    transport = httpx.MockTransport(answer)
    monkeypatch.setattr(run, "client", lambda url, key: httpx.AsyncClient(base_url=url, transport=transport))
    command = [
        "run",
        "own",
        "--data",
        str(EXAMPLE),
        "--base-url",
        "http://x",
        "--results",
        str(kept),
        "--label",
        "mine",
    ]
    monkeypatch.setattr("sys.argv", command)
    assert run.main() == exit_status
    assert kept.exists() == (exit_status == 0)
    assert ("not a clean run: {'refused': 12}" in capsys.readouterr().out) == (exit_status == 2)
    if kept.exists():
        assert json.loads(kept.read_text())["sets"]["mine"]["methods"][SEARCH]["recall@10"] == 0


def test_the_docs_show_every_set_and_what_is_worse_than_a_baseline():
    machine = {"at": "2031-05-08T10:00:00+00:00", "python": "3.11.7", "processors": 2}
    good = results.figures(rows({SEARCH: [1, 1], "dense": [1, 0]}), {})
    bad = results.figures(rows({SEARCH: [0, 1], "RRF": [1, 1]}), {})
    kept = {"sets": {"good": {**good, "machine": machine}, "bad": {**bad, "machine": machine}}}
    page = f"before\n{results.BEGIN}\nold\n{results.END}\nafter"
    shown = results.renewed(page, kept)
    assert "| good | 2 | 2 |" in shown
    assert "finds more: bad, c: 50.0 against 100.0 (RRF, 2 questions)." in shown
    assert "2031-05-08." in shown
    assert "old" not in shown
    assert results.renewed(shown, kept) == shown
    assert results.renewed(shown, {}) == page.replace("old\n", "")
    with pytest.raises(ValueError, match="no <!-- recall"):
        results.renewed("a page without marks", kept)


async def test_a_service_with_other_weights_than_the_config_is_noticed(world: World):
    numbers = world.runtime.tunables
    other = numbers.signals.model_copy(update={"assistant": numbers.signals.assistant - 1})
    async with written(Service(world.client), own(EXAMPLE)[1]) as one:
        with pytest.raises(OtherService, match="other weights"):
            await collected(Service(world.client), one, other, numbers.rank)


def test_the_table_in_the_docs_is_the_one_that_was_measured():
    kept = json.loads(results.RESULTS.read_text(encoding="utf-8")) if results.RESULTS.exists() else {}
    page = results.DOCS.read_text(encoding="utf-8")
    assert "\n".join([results.BEGIN, *results.section(kept), results.END]) in page
    assert results.renewed(page, kept) == page
