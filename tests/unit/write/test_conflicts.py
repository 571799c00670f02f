"""When do two statements contradict each other, and when does one update the other?"""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from memory_service.errors import SetupRefused
from memory_service.settings import Settings
from memory_service.write.conflict_rules import load_conflict_rules
from memory_service.write.conflicts import Verdict, relation_of
from memory_service.write.contrasts import load_contrasts

FILE = Settings().config_folder / "conflicts.toml"
CONTRASTS = load_contrasts(FILE.with_name("contrasts.toml"))
RULES = load_conflict_rules(FILE, CONTRASTS)
PAIRS = Path(__file__).parents[3] / "benchmarks" / "conflict_pairs.jsonl"


def between(old: str, new: str) -> Verdict | None:
    return relation_of(new, old, RULES)


def test_the_labelled_pairs_are_read_with_a_precision_of_at_least_nine_in_ten() -> None:
    pairs = [orjson.loads(line) for line in PAIRS.read_bytes().splitlines()]
    said = [
        (pair["label"], verdict.relation if (verdict := between(pair["old"], pair["new"])) else "none")
        for pair in pairs
    ]
    flagged = [label for label, word in said if word != "none"]
    right = [label for label, word in said if word == label]
    assert len(pairs) >= 140
    assert len(right) / len(flagged) >= 0.95
    assert len(right) >= 0.9 * sum(label in ("contradiction", "update") for label, _ in said)


def test_a_number_in_the_same_place_is_an_update() -> None:
    verdict = between("SSH listens on port 22.", "SSH listens on port 49222.")
    assert verdict == Verdict("update", "port", "22", "49222")
    assert verdict.reason == 'port: was "22", now "49222"'


def test_another_preference_of_the_same_kind_is_a_contradiction() -> None:
    verdict = between("I prefer tea.", "I prefer coffee.")
    assert verdict == Verdict("contradiction", "preference", "tea", "coffee")
    assert verdict.reason == 'preference: one text says "tea", the other "coffee"'


def test_a_contradiction_is_seen_across_languages() -> None:
    assert between("I prefer answers in Chinese.", "我偏好用英文回答。") == Verdict(
        "contradiction", "manner", "chinese", "英文"
    )


def test_words_of_change_make_a_contradiction_an_update() -> None:
    assert between("My manager is Sarah.", "My manager is Tom.").relation == "contradiction"  # type: ignore[union-attr]
    assert between("My manager is Sarah.", "My manager is Tom now.").relation == "update"  # type: ignore[union-attr]


def test_what_can_not_change_never_becomes_an_update() -> None:
    verdict = between("My birthday is on 3 May.", "My birthday is now on 5 May.")
    assert verdict is not None
    assert verdict.relation == "contradiction"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("I like tea.", "I hate tea."),
        ("我喜欢香菜。", "我不喜欢香菜。"),
        ("The feature is enabled.", "The feature is disabled."),
        ("I drink coffee with sugar.", "I drink coffee without sugar."),
    ],
)
def test_a_statement_and_its_opposite_contradict(old: str, new: str) -> None:
    verdict = between(old, new)
    assert verdict is not None
    assert verdict.relation == "contradiction"
    assert "affirms what the other denies" in verdict.reason


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("I live in Berlin.", "Does Ana live in Munich?"),
        ("I live in Berlin.", "If I live in Munich one day, I will cycle."),
        ("I live in Berlin.", "I used to live in Munich."),
        ("I live in Berlin.", "I live in Berlin, in Kreuzberg."),
        ("I work at Siemens.", "I also work at Bosch."),
        ("Bob lives in Berlin.", "Ana lives in Munich."),
        ("Server 3 listens on port 80.", "Server 4 listens on port 80."),
        ("I don't like meetings on Friday.", "I don't like meetings on Monday."),
        ("", ""),
    ],
)
def test_what_can_both_be_true_is_left_alone(old: str, new: str) -> None:
    assert between(old, new) is None


def test_long_texts_are_stories_not_statements() -> None:
    assert between("I prefer tea. " + "It was a long day. " * 80, "I prefer coffee.") is None


@pytest.mark.parametrize(
    "text", ["((((", "'" * 900, "不" * 900, "now " * 200, "\u0000\ud800", "a" * 1000, "1 2 3 " * 160]
)
def test_any_text_is_read_without_harm(text: str) -> None:
    between(text, text[::-1])
    between("I prefer tea.", text)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (('changes = "plainly"', 'changes = "sometimes"'), r"attribute\.\d+\.changes"),
        (("sentences_max = 6", "sentences_max = 0"), "limits.sentences_max"),
        (("[negation]", "[negations]"), "negation"),
        (("[limits]", "[limits"), "not valid TOML"),
    ],
)
def test_a_wrong_file_is_refused_naming_the_entry(tmp_path: Path, change: tuple[str, str], named: str) -> None:
    wrong = tmp_path / "conflicts.toml"
    wrong.write_text(FILE.read_text(encoding="utf-8").replace(*change, 1), encoding="utf-8")
    with pytest.raises(SetupRefused, match=named):
        load_conflict_rules(wrong, CONTRASTS)


@pytest.mark.parametrize(
    ("old", "new", "relation"),
    [
        ("The DNS server is at 10.0.0.53.", "DNS server address: 10.0.4.2.", "update"),
        ("My phone plan costs 25 euros a month.", "I now pay 32 euros a month for my phone plan.", "update"),
        ("接口超时时间为30秒。", "API 超时设成了60秒。", "update"),
        ("CI runs on Jenkins.", "We migrated CI from Jenkins to GitHub Actions.", "update"),
        ("The review is on March 12.", "The review has been pushed to March 19.", "update"),
        ("I indent Python with tabs.", "I always use spaces for indentation in Python.", "contradiction"),
        ("The build server runs Debian.", "The build server runs Fedora.", "contradiction"),
        ("用户晕车，坐不了长途大巴。", "用户从不晕车，长途大巴没问题。", "contradiction"),
    ],
)
def test_the_same_thing_in_other_words_is_seen(old: str, new: str, relation: str) -> None:
    verdict = between(old, new)
    assert verdict is not None
    assert verdict.relation == relation


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Backups run nightly at 2.", "Log rotation runs nightly at 3."),
        ("The backup runs at 02:00.", "On Sundays the backup runs at 05:00."),
        ("The server port is 22.", "The server version is 23."),
        ("I prefer tea.", "On weekends, I prefer coffee."),
        ("I speak French.", "I speak German."),
        ("We moved the docs from Notion to GitLab.", "CI runs on Jenkins."),
    ],
)
def test_a_value_of_something_else_or_of_another_time_is_left_alone(old: str, new: str) -> None:
    assert between(old, new) is None
