"""What is known of candidates, as columns and as the words of somebody."""

from datetime import timedelta

from memory_service.stores.postgres.rank_facts import NOTHING_KNOWN, RankFacts
from tests.unit.recall.fact_factories import NOW, Known, columns, key

SAID = Known(
    key(1),
    head="Do you surf?",
    asks=True,
    session_id="talk",
    speaker="Ann",
    occurred_at=NOW - timedelta(microseconds=1),
)
NOTE = Known(key(2), session_id="talk")
REPLY = Known(key(3), session_id="talk", role="assistant")


def test_a_memory_is_given_back_as_who_said_it_what_and_when_to_the_microsecond() -> None:
    one = columns([NOTE, SAID])[SAID.id]
    assert (one.id, one.head, one.asks, one.speaker, one.occurred_at) == (
        SAID.id, "Do you surf?", True, "Ann", NOW - timedelta(microseconds=1)
    )  # fmt: skip


def test_turns_are_those_in_a_session_that_somebody_says_in_the_order_asked_for_and_bounded() -> None:
    alone = Known(key(4), speaker="Ann")
    facts = columns([SAID, NOTE, REPLY, alone])
    asked = [key(9), alone.id, REPLY.id, NOTE.id, SAID.id]
    assert [one.id for one in facts.turns(asked, 5)] == [REPLY.id, SAID.id]
    assert [one.id for one in facts.turns(asked, 1)] == [REPLY.id]


def test_what_is_known_already_is_not_replaced_by_what_others_say_and_each_comes_once() -> None:
    both = columns([SAID]).with_others(columns([SAID._replace(head="late"), REPLY, REPLY]))
    assert both.ids == [SAID.id, REPLY.id]
    assert both[SAID.id].head == "Do you surf?"
    assert both.numbers["importance"].tolist() == [SAID.importance, REPLY.importance]


def test_of_no_rows_nothing_is_known() -> None:
    assert list(RankFacts.unpacked((None,) * 7)) == []
    assert list(columns([SAID]).with_others(NOTHING_KNOWN)) == [SAID.id]
    assert list(NOTHING_KNOWN.with_others(columns([SAID]))) == [SAID.id]
