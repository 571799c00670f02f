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


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("My port is 80.", "Your port is 81."),
        ("My port is 80.", "His port is 81."),
        ("The port is 80.", "Her port is 81."),
        ("我的端口是80", "他的端口是81"),
        ("I live in Berlin.", "He lives in Hamburg."),
        ("我不吃辣", "他吃辣"),
        ("node A listens on port 80", "node B listens on port 81"),
        ("node b listens on port 80", "node a listens on port 81"),
        ("库A的版本是1.0", "库B的版本是2.0"),
    ],
)
def test_what_is_said_of_one_is_not_said_of_another(old: str, new: str) -> None:
    assert between(old, new) is None
    assert between(new, old) is None


def test_who_takes_part_may_stay_unnamed() -> None:
    assert between("My port is 80.", "The port is 81.") == Verdict("update", "port", "80", "81")
    assert between("The user lives in Berlin.", "I live in Hamburg now.") == Verdict(
        "update", "residence", "berlin", "hamburg"
    )


def test_one_value_in_the_place_of_two_is_asked_about() -> None:
    found = between("The api listens on port 80 and 443.", "The api listens on port 8080.")
    assert found is not None
    assert found.relation == "contradiction"


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


@pytest.mark.parametrize(
    ("old", "new", "values"),
    [
        ("我住在北京。", "我住在上海。", ("北京", "上海")),
        ("我住在上海。", "我住在海南。", ("上海", "海南")),
        ("我住在里斯本。", "我住在和田。", ("里斯本", "和田")),
        ("我的名字叫和平。", "我的名字叫建国。", ("和平", "建国")),
        ("我的老板是会长。", "我的老板是上官。", ("会长", "上官")),
        ("The office is in 北京.", "The office is in 上海.", ("北京", "上海")),
        ("The API runs on port 8080.", "The API runs on port 8081.", ("8080", "8081")),
        ("I live in New York.", "I live in New Delhi.", ("new york", "new delhi")),
        ("My manager is John Smith.", "My manager is John Doe.", ("john smith", "john doe")),
        ("My name is Jean-Luc.", "My name is Jean-Paul.", ("jean-luc", "jean-paul")),
        ("My favorite color is blue.", "My favorite color is red.", ("blue", "red")),
    ],
)
def test_the_reason_names_whole_values_not_only_what_differs_in_them(
    old: str, new: str, values: tuple[str, str]
) -> None:
    verdict = between(old, new)
    assert verdict is not None
    assert (verdict.old_value, verdict.new_value) == values
    assert all(f'"{value}"' in verdict.reason for value in values)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("用户在会上发言。", "用户在会上提问。"),
        ("我和同事在公司里吃饭。", "我和同事在家里吃饭。"),
        ("我喜欢在早上跑步。", "我喜欢在公园跑步。"),
    ],
)
def test_a_particle_behind_a_preposition_makes_no_contradiction(old: str, new: str) -> None:
    assert between(old, new) is None
