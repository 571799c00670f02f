"""Does the benchmark of speed judge what it measured, and do the docs show the run that is committed?"""

from __future__ import annotations

import json

import pytest

from benchmarks.speed import bars, floors, page, steady
from benchmarks.speed.figures import Series, percentile
from benchmarks.speed.run import RESULTS
from benchmarks.speed.texts import queries, texts


def measured(**values: float) -> Series:
    series = Series()
    for name, value in values.items():
        series.add(name.replace("__", "."), value)
    return series


def test_texts_are_deterministic_all_different_and_asked_for_anew_each_round():
    assert texts("a", 2000) == texts("a", 2000)
    assert len({*texts("a", 2000), *texts("b", 2000)}) == 4000
    asked = [*queries("a", 200, 1000, "one"), *queries("a", 200, 1000, "two")]
    assert len(set(asked)) == 400


def test_the_median_of_rounds_is_reported_and_one_bad_round_does_not_count():
    series = Series()
    for seconds in ([0.001, 0.002, 0.003], [0.002, 0.002, 0.002], [0.5, 0.5, 0.5]):
        series.times("x", seconds)
    assert series["x"] == pytest.approx(2)
    assert series.p95("x") == pytest.approx(500)
    assert percentile([5, 1, 3], 0.5) == 3


@pytest.mark.parametrize(("ours_ms", "met", "goal_met"), [(1.0, True, True), (2.0, True, False), (3.0, False, False)])
def test_a_bar_is_met_or_missed_by_the_ratio(ours_ms: float, met: bool, goal_met: bool):
    [row] = bars.judged(measured(write_1__ours_ms=ours_ms, write_1__mem0_ms=20.0), 1000, 10_000)
    assert (row["value"], row["met"], row["goal_met"]) == (pytest.approx(20 / ours_ms, abs=1e-3), met, goal_met)


def test_every_bar_of_the_issue_is_there():
    assert len(bars.bars(1000, 10_000)) == 15
    senses = [(bar.bar, bar.goal) for bar in bars.bars(1000, 10_000)]
    assert all(
        (bar < goal) == (row.sense == "least") for (bar, goal), row in zip(senses, bars.bars(1000, 10_000), strict=True)
    )


def test_a_floor_that_is_missed_once_gets_another_round_and_a_regression_fails_in_all():
    def round_of(get_ms: float) -> Series:
        times = {
            "working_get.ours_ms": get_ms, "working_get.redis_ms": 0.1, "working_set.ours_ms": 0.1, "working_set.redis_ms": 0.1,
            "search_300.ours_ms": 5, "embed_300.alone_ms": 3, "cached_300.ours_ms": 2, "mcp.tool_ms": 6, "mcp.rest_ms": 5,
            "mcp.noop_ms": 1, "visible_ms": 50,
        }  # fmt: skip
        series = measured(write_8__ours_per_s=300, write_1__ours_mean_ms=4)
        for name, value in times.items():
            series.times(name, [value / 1000] * 10)
        return series

    def measure(values: list[float]) -> dict[str, list[float]]:
        return floors.judged(lambda _tag: round_of(values.pop(0)), 3)

    hiccup = measure([2.0, 0.5])
    assert hiccup["working memory get over raw redis-py"] == [pytest.approx(20), pytest.approx(5)]
    assert len(hiccup["working memory set over raw redis-py"]) == 1
    assert len(measure([2.0, 2.0, 2.0])["working memory get over raw redis-py"]) == 3


def test_the_slope_of_a_process_that_grows_by_a_mebibyte_a_minute_is_sixty_an_hour():
    assert steady.slope_per_hour([(second, 100 + second / 60) for second in range(0, 600, 5)]) == pytest.approx(60)
    assert steady.slope_per_hour([(0, 5), (10, 5)]) == 0


def test_the_table_in_the_docs_is_the_one_that_was_measured():
    told = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert "\n".join([page.BEGIN, *page.lines(told), page.END]) in page.DOCS.read_text(encoding="utf-8")
