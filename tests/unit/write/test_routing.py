"""Does a text land in the memory where a person would look for it?"""

import pytest

from memory_service.write.routing import route, semantic_category
from memory_service.write.summarise import Summary, summarise
from tests.unit.write.factories import shipped_rules


def _summary(content: str) -> Summary:
    return summarise(content, shipped_rules())


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ("I prefer tabs", "semantic"),
        ("所有接口必须做鉴权", "semantic"),
        ("The config is stored in /etc/app.conf", "semantic"),
        ("The deploy failed with exit code 1", "episodic"),
        ("我们决定改用 Kafka", "episodic"),
        ("How do I restart it?", "episodic"),
    ],
)
def test_knowledge_is_semantic_and_happenings_are_episodic(content: str, kind: str) -> None:
    assert route("auto", _summary(content)) == kind


def test_the_callers_kind_always_wins() -> None:
    assert route("episodic", _summary("I prefer tabs")) == "episodic"
    assert route("semantic", _summary("The deploy failed"), has_outcome=True) == "semantic"


def test_a_memory_with_tool_calls_or_an_outcome_is_episodic() -> None:
    assert route("auto", _summary("I prefer tabs"), has_tool_calls=True) == "episodic"
    assert route("auto", _summary("I prefer tabs"), has_outcome=True) == "episodic"


def test_semantic_text_without_a_known_category_is_a_fact() -> None:
    assert semantic_category(_summary("The deploy failed")) == "fact"
    assert semantic_category(_summary("I prefer tabs")) == "preference"
