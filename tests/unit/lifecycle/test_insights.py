"""What several episodes share is found; what one says, or what differs between them, is not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memory_service.domain import new_id
from memory_service.experience.distill_rules import load_distill_rules
from memory_service.experience.review_rules import load_review_rules
from memory_service.experience.trajectory import Step
from memory_service.lifecycle.insight_model import believable
from memory_service.lifecycle.insight_rules import InsightNumbers
from memory_service.lifecycle.insight_text import LessonTexts, fact_text, insight_id, lesson_texts
from memory_service.lifecycle.insights import Cure, Episode, Finding, conditions_of, findings_of
from memory_service.settings import Settings
from memory_service.vocabulary import load_vocabulary
from tests.unit.lifecycle.lifecycle_factories import SHIPPED

FOLDER = Settings().config_folder
RULES = load_distill_rules(
    FOLDER / "distill.toml",
    load_review_rules(FOLDER / "review.toml"),
    load_vocabulary(FOLDER / "terms.toml", FOLDER / "stop_words.toml"),
)
NUMBERS = SHIPPED.section("insights", InsightNumbers)
MARCH = datetime(2026, 3, 2, 9, tzinfo=UTC)


def failed(tool: str = "http_get", error: str = "415 unsupported media type", **arguments: Any) -> Step:
    return Step(tool, arguments, "error", error=error)


def worked(tool: str = "http_get", **arguments: Any) -> Step:
    return Step(tool, arguments, "success")


def episode(*calls: Step, day: int = 0, **fields: Any) -> Episode:
    return Episode(new_id(), MARCH + timedelta(days=day), calls, **fields)


def found(*episodes: Episode) -> list[Finding]:
    return findings_of(episodes, RULES, NUMBERS)


def cured(n: int = 3, **fields: Any) -> list[Episode]:
    """Episodes in which JSON instead of XML was the cure."""
    return [
        episode(
            failed(path=f"/v1/orders/{d}", format="xml"), worked(path=f"/v1/orders/{d}", format="json"), day=d, **fields
        )
        for d in range(n)
    ]


def test_the_same_tool_cause_and_cure_in_three_episodes_is_an_insight_in_two_it_is_chance() -> None:
    assert found(*cured(2)) == []
    (one,) = found(*cured(3))
    assert (one.tool, one.cause, one.cure) == ("http_get", "unsupported", Cure("argument", "format", '"json"'))
    assert (len(one.sources), one.old, one.error) == (3, '"xml"', "415 unsupported media type")
    assert conditions_of(one) == [
        {"field": "tool", "operator": "eq", "value": "http_get"},
        {"field": "arguments.format", "operator": "eq", "value": "xml"},
    ]
    texts = lesson_texts(one, RULES)
    assert texts.action == 'Call `http_get` with `format` = "json".'
    assert texts.avoid == 'Calling `http_get` with `format` = "xml".'
    assert texts.rationale == (
        "In 3 episodes `http_get` failed with unsupported (“415 unsupported media type”); "
        'each time it worked with `format` = "json".'
    )


def test_repeating_in_one_episode_counts_once() -> None:
    again = [failed(format="xml"), worked(format="json")] * 5
    assert found(episode(*again), episode(*again)) == []


def test_different_cures_of_one_cause_are_not_added_up() -> None:
    episodes = [episode(failed(format="xml"), worked(format=to), day=n) for n, to in enumerate(("json", "csv", "text"))]
    assert found(*episodes) == []


def test_a_value_that_works_elsewhere_is_not_blamed_then_the_failure_is_the_sign() -> None:
    fine = [episode(worked(format="xml", path="/v2")) for _ in range(4)]
    (one,) = found(*cured(3), *fine)
    assert one.old is None
    assert {"field": "last_error_class", "operator": "eq", "value": "unsupported"} in conditions_of(one)
    assert lesson_texts(one, RULES).avoid == ""


def test_another_tool_that_worked_instead_is_an_insight() -> None:
    slow = failed("weather_api", "429 too many requests", city="Berlin")
    (one,) = found(*(episode(slow, worked("weather_cache", city="Berlin"), day=n) for n in range(3)))
    assert one.cure == Cure("other_tool", tool="weather_cache")
    assert lesson_texts(one, RULES).action == "When `weather_api` fails with rate_limit, use `weather_cache` instead."
    assert {c["field"] for c in conditions_of(one)} == {"last_error_tool", "last_error_class"}


def test_what_comes_next_anyway_is_no_cure() -> None:
    slow = failed("weather_api", "429 too many requests", city="Berlin")
    (one,) = found(*(episode(slow, worked("tell_user", text="no luck"), day=n) for n in range(3)))
    assert one.cure == Cure("none")


def test_the_same_call_that_works_later_is_an_insight_unless_the_cause_is_permanent() -> None:
    flaky = [episode(failed(error="503 try again later", a="b"), worked(a="b"), day=n) for n in range(3)]
    (one,) = found(*flaky)
    assert one.cure == Cure("again")
    permanent = [episode(failed(error="404 not found", a="b"), worked(a="b"), day=n) for n in range(3)]
    assert [f.cure.kind for f in found(*permanent)] == ["none"]


def test_what_nothing_mended_is_a_fact_with_its_dates() -> None:
    (one,) = found(*(episode(failed("export", "403 forbidden"), day=n) for n in range(4)))
    assert one.cure == Cure("none")
    assert fact_text(one, RULES) == (
        "export keeps failing with permission (“403 forbidden”): in 4 episodes (March 2026), and nothing that was tried mended it."
    )


def test_in_chinese_when_most_episodes_are() -> None:
    (one,) = found(*cured(3, chinese=True))
    assert lesson_texts(one, RULES).action == '调用 http_get 时让 format = "json"。'
    assert "在 3 次任务中" in lesson_texts(one, RULES).rationale


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"order": "A1B2C3D4"}, {"order": "Z9Y8X7W6"}),  # ids of one run
        ({"password": "hunter"}, {"password": "winter"}),  # a secret
        ({"q": "x" * 100}, {"q": "y" * 100}),  # data
        ({"a": "x", "b": "x", "c": "x"}, {"a": "y", "b": "y", "c": "y"}),  # nobody knows which
    ],
)
def test_what_is_of_one_run_secret_or_unclear_is_no_cure(before: dict[str, str], after: dict[str, str]) -> None:
    for one in found(*(episode(failed(**before), worked(**after), day=n) for n in range(3))):
        assert one.cure.kind == "none"
        assert "hunter" not in fact_text(one, RULES)


def test_the_error_is_quoted_only_where_all_sources_have_the_same() -> None:
    episodes = [episode(failed("export", f"403 forbidden for user {n}"), day=n) for n in range(3)]
    (one,) = found(*episodes)
    assert one.error == ""
    assert "user" not in fact_text(one, RULES)


def test_an_insight_has_the_same_id_every_day_and_another_for_another_user() -> None:
    episodes = cured(4)
    (one,) = found(*episodes[:3])
    (later,) = found(*episodes)
    assert insight_id(one, "t", "ana") == insight_id(later, "t", "ana")
    assert insight_id(one, "t", "ana") != insight_id(one, "t", "bea")
    assert insight_id(one, "t", "ana").version == 7


def test_thousands_of_episodes_are_read_in_one_pass() -> None:
    episodes = [
        episode(failed(f"tool{n % 500}", a=n), worked(f"tool{n % 500}", a=n), day=n % 100) for n in range(5_000)
    ]
    assert len(found(*episodes)) <= NUMBERS.found_max


def test_a_models_wording_must_name_what_cures_and_invent_no_number() -> None:
    (one,) = found(*cured(3))
    plain = lesson_texts(one, RULES)
    good = LessonTexts("Ask `http_get` for format json.", "XML.", "It failed in 3 episodes.")
    assert believable(good, one, plain, "3 episodes")
    assert not believable(
        LessonTexts("Ask for the right format.", "", "It failed in 3 episodes."), one, plain, "3 episodes"
    )
    assert not believable(LessonTexts(good.action, "", "It failed in 17 episodes."), one, plain, "3 episodes")
    assert not believable(LessonTexts(good.action, "", ""), one, plain, "3 episodes")
