"""What the turns around a memory, its speaker and its time add to its rank."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from memory_service.domain import Key, Lane
from memory_service.recall.calibration import Readings, Relevance
from memory_service.recall.conversation import Asked, links_of, only_asks, with_signals
from memory_service.recall.fusion import Candidate, Candidates, LaneScores, fuse
from memory_service.recall.time_expressions import load_time_rules, time_hints
from memory_service.recall.time_rules import TimeNumbers
from memory_service.scripts import Script
from memory_service.settings import Signals, load_settings, load_tunables
from memory_service.stores.postgres.rank_facts import Beside, RankFacts
from tests.unit.recall.fact_factories import NOW, Known, columns, key

NUMBERS = load_tunables(load_settings())
SIGNALS = NUMBERS.signals
READING = Readings.of(NUMBERS.section("relevance", Relevance), "intfloat/multilingual-e5-small").of_query(
    "an English query"
)
RULES = load_time_rules(
    Path(load_settings().config_folder) / "time_expressions.toml", NUMBERS.section("time_hints", TimeNumbers)
)
LOWEST = 0.78
ASKED_NOTHING = Asked.of("how long have you been surfing", [])


def turn(number: int, **fields: Any) -> Known:
    return Known(key(number), **{"occurred_at": NOW - timedelta(days=30), **fields})


def talk(*turns: Known) -> RankFacts:
    """Turns of one session in this order."""
    return columns(turns)


def scripts(ids: Iterable[Key]) -> dict[Key, Script]:
    return dict.fromkeys(ids, "latin")


def found(cosines: dict[Key, float], facts: RankFacts) -> Candidates:
    lanes: dict[Lane, LaneScores] = {"vector": LaneScores(list(cosines), [0.5] * len(cosines), list(cosines.values()))}
    return fuse(lanes, scripts(facts), READING, LOWEST)


def ranked(
    cosines: dict[Key, float], facts: RankFacts, asked: Asked = ASKED_NOTHING, numbers: Signals = SIGNALS
) -> dict[Key, Candidate]:
    beside = [Beside(one, True, following) for one, following in pairwise(facts)]
    told = with_signals(found(cosines, facts), facts, scripts(facts), links_of(beside), asked, READING, LOWEST, numbers)
    return {one.id: one for one in told}


QUESTION = turn(1, speaker="Ann", role="user", asks=True)
ANSWER = turn(2, speaker="Bo", role="user")
ASKS = pytest.approx(SIGNALS.asks * only_asks(QUESTION.head, SIGNALS.asks_told_bytes_max))


def test_the_answer_to_a_matching_question_is_found_although_no_lane_found_it_and_leads() -> None:
    facts = talk(QUESTION, ANSWER)
    told = ranked({QUESTION.id: 0.80}, facts)
    assert told[ANSWER.id].relevance > told[QUESTION.id].relevance
    assert told[ANSWER.id].lanes == {}
    assert told[ANSWER.id].signals == {"before": pytest.approx(told[ANSWER.id].signals["before"])}
    assert told[QUESTION.id].signals == {"asks": ASKS}


def test_what_a_turn_gains_is_its_share_of_what_the_turn_beside_it_is_worth_above_one_that_was_not_found() -> None:
    facts = talk(QUESTION._replace(asks=False), ANSWER)
    cosines = {QUESTION.id: 0.86, ANSWER.id: 0.82}
    own = {one.id: one.log_odds for one in found(cosines, facts)}
    floor = READING.rank_log_odds("latin", LOWEST, 0.0)
    told = ranked(cosines, facts)
    assert told[ANSWER.id].signals["before"] == pytest.approx(SIGNALS.before * (own[QUESTION.id] - floor))  # type: ignore[operator]
    assert told[QUESTION.id].signals["after"] == pytest.approx(SIGNALS.after * (own[ANSWER.id] - floor))  # type: ignore[operator]


def test_a_question_gives_its_answer_more_than_a_statement_gives_the_next_turn() -> None:
    asked = ranked({QUESTION.id: 0.86}, talk(QUESTION, ANSWER))[ANSWER.id]
    stated = ranked({QUESTION.id: 0.86}, talk(QUESTION._replace(asks=False), ANSWER))[ANSWER.id]
    assert asked.signals["before"] == pytest.approx(stated.signals["before"] * SIGNALS.answered / SIGNALS.before)


@pytest.mark.parametrize("unknown", [{"speaker": None, "role": None}, {"speaker": "Ann"}, {"speaker": "ANN"}])
def test_notes_of_one_speaker_or_of_nobody_known_gain_nothing_from_each_other(unknown: dict[str, str | None]) -> None:
    facts = talk(QUESTION._replace(asks=False), ANSWER._replace(**unknown))  # type: ignore[arg-type]
    told = ranked({QUESTION.id: 0.9}, facts)
    assert list(told) == [QUESTION.id]
    assert told[QUESTION.id].signals == {}


@pytest.mark.parametrize(
    ("head", "told"),
    [
        ("How long have you been surfing?", ""),
        ("你冲浪多久了？", ""),
        ("What? Really?!", ""),
        ("How are you? :)", " :)"),
        ("I moved to Oslo. And you?", "I moved to Oslo."),
        ("I moved to Oslo, and you?", "I moved to Oslo,"),
        ("I moved to Oslo and you?", ""),
        ("我搬到杭州了，你呢？", "我搬到杭州了，"),
        ("Who pays 1,000 at 12:30?", ""),
        ("What about 3.5? It is out. We use it", " It is out. We use it"),
        ("Is it at tides.example?no=3 now", ""),
        ("I moved. I found a job. Then it rained", "I moved. I found a job."),  # the mark is behind what is read
        ("no mark at all", ""),
        ("?!", ""),
        ("", ""),
    ],
)
def test_a_memory_that_asks_tells_its_statements_and_the_clauses_before_what_it_asks(head: str, told: str) -> None:
    assert only_asks(head, 1000) == pytest.approx(1 - len(told.encode()) / 1000)


def test_who_tells_enough_beside_asking_loses_nothing_however_it_is_written() -> None:
    assert only_asks("x" * 125 + ", and you?", 125) == 0
    assert only_asks("搬" * 42 + "，你呢？", 125) == 0
    assert only_asks("how " * 99 + "?", 125) == 1
    assert 0 < only_asks("I \ud800, and you?", 125) < 1


def test_who_states_something_and_then_asks_leads_who_only_asks() -> None:
    only = turn(1, asks=True, head="Do you surf?")
    also = turn(2, asks=True, head="I surf since May. Do you?")
    told = ranked({only.id: 0.86, also.id: 0.86}, talk(only, also))
    assert told[also.id].relevance > told[only.id].relevance


def test_roles_tell_turns_apart_where_no_speaker_is_known() -> None:
    user, assistant = turn(1, role="user", asks=True), turn(2, role="assistant")
    told = ranked({user.id: 0.9}, talk(user, assistant))
    assert set(told[assistant.id].signals) == {"before", "assistant"}


def test_what_a_user_asks_of_an_assistant_keeps_its_rank_and_the_reply_is_no_answer_about_the_user() -> None:
    user, assistant = turn(1, role="user", asks=True), turn(2, role="Assistant", asks=True)
    told = ranked({user.id: 0.88, assistant.id: 0.88}, talk(user, assistant))
    assert "asks" not in told[user.id].signals
    assert "asks" not in told[assistant.id].signals
    assert told[assistant.id].signals["assistant"] == SIGNALS.assistant
    assert told[user.id].relevance > told[assistant.id].relevance
    worth = told[assistant.id].signals["before"] / SIGNALS.before
    assert worth == pytest.approx(told[user.id].signals["after"] / SIGNALS.after)  # not `answered`


def test_an_answer_to_an_assistants_question_counts_as_one() -> None:
    assistant, user = turn(1, role="assistant", asks=True), turn(2, role="user")
    told = ranked({assistant.id: 0.88}, talk(assistant, user))
    stated = ranked({assistant.id: 0.88}, talk(assistant._replace(asks=False), user))
    assert told[user.id].signals["before"] > stated[user.id].signals["before"]


@pytest.mark.parametrize(
    ("query", "of_assistant"),
    [
        ("How did you recommend managing the retries?", True),
        ("What have you already told me about tides?", True),
        ("the book you suggested", True),
        ("What was your advice on Oslo?", True),
        ("Can you tell me where I live?", False),
        ("Could you give me a summary of what I said?", False),
        ("What did I say about you?", False),
        ("Which tide tables did the harbour master recommend?", False),
        ("你之前给我推荐了哪本书？", True),
        ("你推荐的书叫什么？", True),
        ("你对我说过什么？", True),
        ("你的建议是什么？", True),
        ("你能告诉我我住在哪里吗？", False),
        ("我之前说过我住在哪里？", False),
    ],
)
def test_what_an_assistant_said_keeps_its_rank_when_the_query_asks_for_it(query: str, of_assistant: bool) -> None:
    assistant = turn(1, role="assistant")
    signals = ranked({assistant.id: 0.85}, talk(assistant), Asked.of(query, []))[assistant.id].signals
    assert signals == ({} if of_assistant else {"assistant": SIGNALS.assistant})


def test_links_lead_both_ways_whichever_side_they_were_found_from() -> None:
    one, two, three = key(1), key(2), key(3)
    beside = [Beside(two, False, one), Beside(two, True, three)]
    assert links_of(beside) == {one: (None, two), two: (one, three), three: (two, None)}
    assert links_of([Beside(one, True, two)]) == links_of([Beside(two, False, one)])


def test_turns_beside_of_which_nothing_is_known_count_for_nothing() -> None:
    links = {QUESTION.id: (key(98), key(99))}
    facts = talk(QUESTION)
    told = with_signals(
        found({QUESTION.id: 0.86}, facts), facts, scripts(facts), links, ASKED_NOTHING, READING, LOWEST, SIGNALS
    )
    assert [one.signals for one in told] == [{"asks": ASKS}]


@pytest.mark.parametrize(
    ("query", "speaker", "named"),
    [
        ("Where did Caroline go?", "Caroline", True),
        ("where did CAROLINE go", "Caroline Smith", True),
        ("Where did Carol go?", "Caroline", False),
        ("王芳去了哪里？", "王芳", True),
        ("王芳去了哪里？", "芳", False),
        ("what did the user say", "User", False),
        ("what did the assistant say", "assistant", False),
        ("Where?", "", False),
        ("Where?", "!?", False),
    ],
)
def test_a_speaker_counts_when_the_query_names_them(query: str, speaker: str, named: bool) -> None:
    one = turn(1, speaker=speaker)
    signals = ranked({one.id: 0.85}, talk(one), Asked.of(query, []))[one.id].signals
    assert signals == ({"speaker": SIGNALS.speaker} if named else {})


def test_what_happened_at_the_time_that_the_query_names_ranks_higher_and_nothing_is_hidden() -> None:
    then, else_ = (
        turn(1, occurred_at=datetime(2023, 5, 10, tzinfo=UTC)),
        turn(2, occurred_at=datetime(2022, 1, 1, tzinfo=UTC)),
    )
    asked = Asked.of("what happened", time_hints("what happened in May 2023", NOW, RULES))
    told = ranked({then.id: 0.84, else_.id: 0.84}, talk(then, else_), asked)
    assert told[then.id].signals == {"time": pytest.approx(SIGNALS.time)}
    assert told[else_.id].signals == {}
    assert told[then.id].relevance > told[else_.id].relevance


def test_calibrated_relevance_which_decides_what_is_injected_is_of_the_memory_alone() -> None:
    facts = talk(QUESTION, ANSWER)
    before = {one.id: one.calibrated for one in found({QUESTION.id: 0.86, ANSWER.id: 0.82}, facts)}
    told = ranked({QUESTION.id: 0.86, ANSWER.id: 0.82}, facts)
    assert {i: one.calibrated for i, one in told.items()} == before


def test_without_a_vector_lane_candidates_stay_as_they_are() -> None:
    facts = talk(QUESTION, ANSWER)
    candidates = fuse({"keyword": LaneScores([ANSWER.id], [0.4], [3.0])}, {}, READING, None)
    told = with_signals(candidates, facts, scripts(facts), {}, ASKED_NOTHING, READING, None, SIGNALS)
    assert list(told) == list(candidates)
    assert [one.relevance for one in told] == [0.4]


def test_reminders_keep_their_small_relevance_whatever_the_signals() -> None:
    one = turn(1, asks=True)
    lanes: dict[Lane, LaneScores] = {"vector": LaneScores((), (), ()), "recent": LaneScores([one.id], [0.05], [0.05])}
    told = with_signals(
        fuse(lanes, {}, READING, 0.5), talk(one), scripts([one.id]), {}, ASKED_NOTHING, READING, 0.5, SIGNALS
    )
    assert told.one(0).relevance == 0.05
