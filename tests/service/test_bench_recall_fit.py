"""Does the fit of [signals] find the weights that made the data, and change nothing else of the config?"""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.recall import fit as command
from benchmarks.recall import results
from benchmarks.recall.cases import own
from benchmarks.recall.lists import NAMES, HitList, answering, loaded, saved
from benchmarks.recall.numbers_file import changed, write
from benchmarks.recall.weights import RIDGE, fit, judged, order, without
from memory_service.settings import Settings

TRUE = np.array([0.2, 0.7, 0.3, -1.0, 1.5, -2.0, 0.8])
TEMPERATURE = 2.0
HITS = 12


def hit_list(lanes: np.ndarray, features: np.ndarray, gains: np.ndarray, evidence: int = 1) -> HitList:
    count = len(lanes)
    return HitList(lanes, features, gains.astype(float), np.ones(count), np.zeros(count), np.zeros(count), evidence)


def synthetic(seed: int, count: int) -> list[HitList]:
    """Questions whose one piece of evidence is drawn by the softmax of the log-odds with TRUE: the model that is fitted."""
    chance = np.random.default_rng(seed)
    told = []
    for _ in range(count):
        lanes, features = chance.normal(0, 1, HITS), chance.normal(0, 1, (HITS, len(NAMES)))
        odds = np.exp(lanes + features @ TRUE)
        told.append(hit_list(lanes, features, np.arange(HITS) == chance.choice(HITS, p=odds / odds.sum())))
    return told


def test_weights_that_made_the_lists_are_found():
    sets = {"a": synthetic(1, 1500), "b": synthetic(2, 500)}
    found = fit(sets, ridge=0.0)
    assert found == pytest.approx(TRUE, abs=0.15)
    assert (found == fit(sets, ridge=0.0)).all()
    assert np.linalg.norm(fit(sets, ridge=0.1)) < np.linalg.norm(found)


def test_the_minimum_is_one_no_small_change_lowers():
    each = synthetic(3, 60)

    def loss(weights: np.ndarray) -> float:
        odds = [one.lanes + one.features @ weights for one in each]
        losses = [np.log(np.exp(z).sum()) - z[one.gains > 0][0] for z, one in zip(odds, each, strict=True)]
        return float(np.mean(losses) + RIDGE * weights @ weights)

    found = fit({"a": each})
    assert all(
        loss(found) <= loss(found + step) for step in 1e-3 * np.vstack([np.eye(len(NAMES)), -np.eye(len(NAMES))])
    )


def test_memories_that_an_answer_had_no_room_for_take_part_without_signals():
    each = synthetic(8, 300)
    lowest = [one.lanes.min() for one in each]
    whole = [
        replace(
            one,
            lanes=np.append(one.lanes, [low] * 5),
            features=np.vstack([one.features, np.zeros((5, len(NAMES)))]),
            gains=np.append(one.gains, np.zeros(5)),
        )
        for one, low in zip(each, lowest, strict=True)
    ]
    assert fit({"a": [replace(one, unseen=5) for one in each]}) == pytest.approx(fit({"a": whole}))
    assert fit({"a": each}) != pytest.approx(fit({"a": whole}), abs=1e-3)


def test_the_order_of_sets_does_not_matter_and_a_small_set_weighs_more_a_question():
    a, b = synthetic(9, 400), [replace(one, features=-one.features) for one in synthetic(10, 100)]
    together = fit({"a": a, "b": b})
    assert together == pytest.approx(fit({"b": b, "a": a}))
    speaker = NAMES.index("speaker")
    assert together[speaker] < fit({"a": [*a, *b]})[speaker]


def test_a_question_without_evidence_among_its_hits_teaches_nothing_but_counts_as_not_found():
    each = synthetic(4, 40)
    blind = hit_list(each[0].lanes, each[0].features, np.zeros(HITS))
    # the square root of the number of questions weighs sets against each other; one set alone is only itself
    assert fit({"a": [*each, blind]}) == pytest.approx(fit({"a": each}))
    assert judged([blind], TRUE, TEMPERATURE) == {"recall@5": 0, "recall@10": 0, "recall@20": 0, "mrr": 0}
    assert fit({"a": [blind]}) == pytest.approx(np.zeros(len(NAMES)))


def test_the_order_is_that_of_the_service_and_its_worth_is_as_by_hand():
    features = np.zeros((4, len(NAMES)))
    features[1, NAMES.index("speaker")] = 1
    one = hit_list(np.array([1.0, 0.0, 0.9, -3.0]), features, np.array([0, 1, 0, 0]), evidence=2)
    assert order(one, TRUE, TEMPERATURE).tolist() == [1, 0, 2, 3]
    assert judged([one], TRUE, TEMPERATURE)["mrr"] == 1.0
    assert judged([one], TRUE, TEMPERATURE)["recall@5"] == 0.5
    assert judged([one], without(TRUE, "speaker"), TEMPERATURE)["mrr"] == pytest.approx(1 / 3, abs=1e-3)
    fresh = HitList(
        one.lanes, features, one.gains, np.array([0.5, 0.5, 1.0, 0.5]), np.array([0, 0, 0, 0.9]), one.least, 2
    )
    assert order(fresh, TRUE, TEMPERATURE).tolist() == [3, 2, 1, 0]


def test_both_weights_of_the_turn_before_are_left_out_together():
    assert without(TRUE, "before").tolist() == [0, 0, *TRUE[2:]]
    assert without(TRUE, "time")[-1] == 0


def test_what_answers_a_question_is_told_from_the_turns():
    mara, lin = own(Path(command.__file__).with_name("example.jsonl"))
    assert answering(mara, 200) == {"m2"}
    assert answering(lin, 200) == {"l3"}
    assert answering(mara, 1) == {"m2"}
    asking = [replace(turn, content=turn.content + "？") for turn in lin.turns]
    assert answering(replace(lin, turns=asking), 1) == {
        "l3",
        "l6",
    }  # what the assistant says answers always; it earns nothing


def test_worth_compares_configured_fitted_and_held_out_weights_and_the_page_shows_all():
    sets = {"a": synthetic(5, 80), "b": synthetic(6, 80)}
    told = command.worth(sets, TRUE, TEMPERATURE)
    assert told["sets"]["a"]["held_out_weights"] == command._named(fit({"b": sets["b"]}))
    assert told["sets"]["a"]["without"]["all of them"]["mrr"] < told["sets"]["a"]["mrr"]
    assert set(told["sets"]["a"]["without"]) == {*NAMES, "all of them"} - {"answered"}
    page = "\n".join(command.page(told))
    assert "without speaker" in page
    assert "fitted to others" in page
    alone = command.worth({"a": sets["a"]}, TRUE, TEMPERATURE)
    assert alone["sets"]["a"]["held_out"] is None
    assert command.page(alone)
    table = results.signals_table(told)
    assert table[0].count("|") == table[2].count("|") == 5


def test_a_signal_that_no_hit_tells_keeps_its_weight():
    assistant = NAMES.index("assistant")
    silent = np.arange(len(NAMES)) == assistant
    sets = {"a": [replace(one, features=np.where(silent, 0.0, one.features)) for one in synthetic(11, 80)]}
    told = command.worth(sets, TRUE, TEMPERATURE)
    assert told["untold"] == ["assistant"]
    assert told["fitted"]["assistant"] == TRUE[assistant]
    assert told["fitted"]["speaker"] != TRUE[NAMES.index("speaker")]
    assert "not told" in "\n".join(command.page(told))


def test_numbers_of_hits_survive_being_saved(tmp_path: Path):
    sets = {"a": synthetic(7, 3), "none": [hit_list(np.zeros(0), np.zeros((0, len(NAMES))), np.zeros(0))]}
    saved(tmp_path / "lists.json", sets, TRUE)
    again, weights = loaded(tmp_path / "lists.json")
    assert weights == pytest.approx(TRUE)
    assert again["none"][0].features.shape == (0, len(NAMES))
    assert fit({"a": again["a"]}) == pytest.approx(fit({"a": sets["a"]}))


PAGE = """# numbers
[other]
time = 3.0  # stays

[signals]
tail_chars = 200                     # not fitted
before = 0.15                        # share … of "before"
time=1.0
asks = -0.95                         # it ends with a question

[last]   # time
time = 4.0
"""


def test_writing_changes_the_numbers_of_one_section_and_keeps_every_comment():
    assert changed(PAGE, "signals", {"before": 0.123456, "time": 2.0, "asks": -0.0001}) == PAGE.replace(
        "before = 0.15                        # share", "before = 0.12                        # share"
    ).replace("time=1.0", "time=2.0").replace(
        "asks = -0.95                         #", "asks = 0.0                           #"
    )


def test_a_key_that_is_not_there_or_not_a_number_writes_nothing(tmp_path: Path):
    path = tmp_path / "memory.toml"
    path.write_text(PAGE, encoding="utf-8")
    for section, numbers in (("signals", {"speaker": 1.0, "time": 9.0}), ("nothing", {"time": 9.0})):
        with pytest.raises(ValueError, match="has no"):
            write(path, section, numbers)
    assert path.read_text(encoding="utf-8") == PAGE


def test_the_real_config_takes_fitted_weights_without_another_change(tmp_path: Path):
    real = (Settings().config_folder / "memory.toml").read_text(encoding="utf-8")
    told = changed(real, "signals", dict(zip(NAMES, TRUE.tolist(), strict=True)))
    assert {name: tomllib.loads(told)["signals"][name] for name in NAMES} == dict(
        zip(NAMES, TRUE.tolist(), strict=True)
    )
    assert [line.partition("#")[2] for line in told.splitlines()] == [
        line.partition("#")[2] for line in real.splitlines()
    ]
    now = {name: tomllib.loads(real)["signals"][name] for name in NAMES}
    assert changed(real, "signals", now) == real
