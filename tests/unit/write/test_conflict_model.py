"""Whom is a language model asked about, and what of its verdicts is believed?"""

from __future__ import annotations

import asyncio
import tomllib
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from memory_service.domain import Memory
from memory_service.errors import LanguageModelUnavailable
from memory_service.models.language_schema import check_schema, fit
from memory_service.write.conflict_model import ConflictModel, ConflictModelNumbers, believed
from memory_service.write.similar import Neighbour
from tests.unit.write.factories import CONFIG

NOW = datetime(2026, 5, 1, tzinfo=UTC)


def numbers(**changes: Any) -> ConflictModelNumbers:
    shipped = ConflictModelNumbers(
        **tomllib.loads((CONFIG / "memory.toml").read_text(encoding="utf-8"))["conflict_model"]
    )
    return shipped.model_copy(update=changes)


def statement(content: str = "I like tea.", **fields: Any) -> Memory:
    memory = Memory(
        id=uuid4(), tenant="t", kind="semantic", user_id="ana", content=content, summary=content, created_at=NOW, updated_at=NOW,
        occurred_at=NOW,
    )  # fmt: skip
    return replace(memory, **fields)


class Model:
    """Says what it is given, or raises it; remembers what it was asked."""

    def __init__(self, says: Any) -> None:
        self.says = says
        self.asked: list[dict[str, Any]] = []

    async def complete_json(self, **question: Any) -> dict[str, Any]:
        self.asked.append(question)
        if isinstance(self.says, Exception):
            raise self.says
        return dict(self.says)


def comparing(says: Any = None, **changes: Any) -> ConflictModel:
    """Relevance is the cosine itself."""
    return ConflictModel(Model(says or {}), numbers(**changes), lambda _new, _older, cosine: cosine)


def verdict(number: Any, relation: Any = "contradiction", reason: Any = "tea, coffee") -> dict[str, Any]:
    return {"number": number, "relation": relation, "reason": reason}


def test_asked_about_is_what_is_near_or_has_no_vector_yet_in_this_order() -> None:
    near, far, fresh = statement("near"), statement("far"), statement("fresh")
    older = [Neighbour(near, 0.9), Neighbour(far, 0.1), Neighbour(fresh), Neighbour(near)]
    assert comparing(relevance_min=0.5).candidates(statement("new"), older) == [near, fresh]


@pytest.mark.parametrize(
    "fields",
    [{"user_id": "bob"}, {"kind": "episodic"}, {"state": "cold"}, {"state": "superseded"}, {"content": "x" * 501}],
)
def test_nobody_is_asked_about_what_can_not_be_contradicted(fields: dict[str, Any]) -> None:
    assert comparing().candidates(statement("new"), [Neighbour(statement(**fields), 1.0)]) == []


def test_a_new_story_is_compared_with_nothing() -> None:
    assert comparing().candidates(statement("long " * 200), [Neighbour(statement("old"), 1.0)]) == []


def test_verdicts_count_for_what_was_shown_under_their_numbers() -> None:
    older = [statement("I like tea."), statement("I live in Kiel."), statement("I have a dog.")]
    found = believed({"judgements": [verdict(2, "update"), verdict(1), verdict(3, "unrelated", "")]}, older, numbers())
    assert found is not None
    assert {i: (o.relation, o.text) for i, o in found.items()} == {
        older[0].id: ("contradiction", "I like tea."), older[1].id: ("update", "I live in Kiel."),
    }  # fmt: skip


@pytest.mark.parametrize(
    "judgements",
    [
        None, "all", {"1": "update"}, ["update"], [verdict(0)], [verdict(4)], [verdict(True)], [verdict("1")],
        [verdict(1), verdict(1, "unrelated")], [verdict(1), verdict(2), verdict(3)],
    ],
)  # fmt: skip
def test_an_answer_that_does_not_hold_together_or_flags_too_many_is_dropped_whole(judgements: Any) -> None:
    older = [statement(text) for text in ("a", "b", "c")]
    assert believed({"judgements": judgements}, older, numbers(flagged_max=2)) is None


@pytest.mark.parametrize("reason", [None, "", "  \u2028", "…", 5])
def test_a_verdict_without_words_flags_nothing(reason: Any) -> None:
    assert believed({"judgements": [verdict(1, reason=reason)]}, [statement("a")], numbers()) == {}


def test_a_reason_is_one_bounded_line_of_visible_text() -> None:
    one = statement("a")
    found = believed({"judgements": [verdict(1, reason="tea\n\x00\u2028 " + "coffee " * 100)]}, [one], numbers())
    assert found is not None
    reason = found[one.id].reason
    assert reason.startswith("tea coffee coffee")
    assert len(reason) <= numbers().reason_chars_max
    assert reason.isprintable()


def test_silence_about_one_statement_leaves_the_verdicts_about_others() -> None:
    one, two = statement("a"), statement("b")
    model = comparing({"judgements": [verdict(1)]})
    told = asyncio.run(model.judge({one.id: (one, [two])}))
    assert [o.relation for o in told[one.id].values()] == ["contradiction"]
    down = comparing(LanguageModelUnavailable())
    assert asyncio.run(down.judge({one.id: (one, [two])})) == {}


def test_the_schema_is_one_that_answers_are_checked_by() -> None:
    model = comparing({"judgements": []})
    asyncio.run(model.judge({(one := statement("a")).id: (one, [statement("b")])}))
    (question,) = model._model.asked  # type: ignore[attr-defined]
    check_schema(question["schema"])
    assert fit({"judgements": [verdict(1)]}, question["schema"])[1] == []
    assert fit({"judgements": [verdict(1, "delete")]}, question["schema"])[1] != []
