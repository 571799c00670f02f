"""A search in a conversation: what the turns beside a memory do, over the real stores."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from service_running import indexed, new_user, search

START = datetime(2024, 5, 1, 12, tzinfo=UTC)
QUESTION = "How long have you been learning to play the accordion?"
ANSWER = "Two years by now, my sister talked me into it."


def turn(number: int, speaker: str | None, content: str, session: str = "talk") -> dict[str, Any]:
    at = (START + timedelta(minutes=number)).isoformat()
    metadata = {} if speaker is None else {"speaker": speaker}
    return {"content": content, "session_id": session, "occurred_at": at, "metadata": metadata, "kind": "episodic"}


async def say(client: httpx.AsyncClient, user: str, turns: list[dict[str, Any]]) -> list[str]:
    """Written in one go and indexed; their ids."""
    items = [{"user_id": user, "infer": False, **one} for one in turns]
    told = (await client.post("/v1/memories/batch", json={"memories": items})).json()["results"]
    assert {one["status"] for one in told} == {"created"}
    await indexed(client, user)
    return [one["id"] for one in told]


async def results(client: httpx.AsyncClient, user: str, query: str, **fields: Any) -> dict[str, dict[str, Any]]:
    answer = await search(client, user, query, explain=True, limit=100, **fields)
    assert answer["degraded"] == []
    return {one["id"]: one for one in answer["results"]}


def signals(result: dict[str, Any]) -> dict[str, float]:
    told: dict[str, float] = result["score_details"]["signals"]
    return told


async def test_an_answer_that_shares_no_word_with_the_query_is_found_by_the_question_before_it(
    client: httpx.AsyncClient, user: str
) -> None:
    noise = [
        turn(n, "Ann" if n % 2 else "Bo", f"Parcel {n} left the warehouse for dock {n % 7}", f"s{n}")
        for n in range(150)
    ]
    ids = await say(client, user, [*noise, turn(200, "Ann", QUESTION), turn(201, "Bo", ANSWER)])
    told = await results(client, user, "learning the accordion")
    order = list(told)
    assert order.index(ids[-1]) <= 1
    assert signals(told[ids[-1]])["before"] > 0
    assert signals(told[ids[-2]])["asks"] < 0


async def test_notes_without_speakers_and_notes_of_one_speaker_stand_alone(
    client: httpx.AsyncClient, user: str
) -> None:
    ids = await say(client, user, [turn(0, None, QUESTION), turn(1, None, ANSWER)])
    ids += await say(client, user, [turn(2, "Ann", QUESTION + " Say.", "own"), turn(3, "ann", ANSWER + " Yes.", "own")])
    told = await results(client, user, "learning the accordion")
    assert all("before" not in signals(told[i]) and "after" not in signals(told[i]) for i in ids)


async def test_only_turns_of_the_same_session_and_user_lend_each_other_anything(
    client: httpx.AsyncClient, user: str
) -> None:
    other = new_user()
    await say(client, other, [turn(0, "Ann", QUESTION)])
    first, second = await say(client, user, [turn(1, "Bo", ANSWER), turn(2, "Ann", QUESTION, "another")])
    told = await results(client, user, "learning the accordion")
    assert "before" not in signals(told[first])
    assert "before" not in signals(told[second])


async def test_an_erased_question_lends_its_answer_nothing_and_the_turn_before_it_takes_its_place(
    client: httpx.AsyncClient, user: str
) -> None:
    turns = [turn(0, "Ann", "The accordion stands in the hall"), turn(1, "Ann", QUESTION), turn(2, "Bo", ANSWER)]
    earlier, question, answer = await say(client, user, turns)
    before = signals((await results(client, user, "learning the accordion"))[answer])["before"]
    assert (await client.delete(f"/v1/memories/{question}")).status_code == 204
    told = await results(client, user, "learning the accordion")
    assert question not in told
    assert 0 < signals(told[answer])["before"] < before
    assert (await client.delete(f"/v1/memories/{earlier}")).status_code == 204
    assert "before" not in signals((await results(client, user, "learning the accordion"))[answer])


async def test_a_turn_that_the_filter_leaves_out_lends_nothing_and_does_not_come_back(
    client: httpx.AsyncClient, user: str
) -> None:
    question, answer = await say(client, user, [turn(0, "Ann", QUESTION), turn(1, "Bo", ANSWER)])
    told = await results(client, user, "learning the accordion", filters={"metadata.speaker": {"eq": "Bo"}})
    assert list(told) == [answer]
    assert "before" not in signals(told[answer])
    told = await results(client, user, "learning the accordion", until=(START + timedelta(seconds=30)).isoformat())
    assert list(told) == [question]


async def test_a_named_speaker_and_a_named_time_count_and_are_shown(client: httpx.AsyncClient, user: str) -> None:
    ann, bo = await say(
        client, user, [turn(0, "Ann Lee", "I baked a cake", "a"), turn(1, "Bo", "I baked a cake!", "b")]
    )
    told = await results(client, user, "What did Ann bake in May 2024?")
    assert set(signals(told[ann])) == {"speaker", "time"}
    assert set(signals(told[bo])) == {"time"}
    assert next(iter(told)) == ann


async def test_speakers_and_roles_of_any_json_type_are_taken_for_what_they_are(
    client: httpx.AsyncClient, user: str
) -> None:
    odd: list[Any] = [None, 1, True, [], {}, ["Ann"], {"name": "Ann"}, "", " ", "?", "x" * 5_000, "Ann\n" * 50]
    turns = [
        {**turn(n, None, f"Remark {n} of Ann"), "metadata": {"speaker": one, "role": one}} for n, one in enumerate(odd)
    ]
    ids = await say(client, user, turns)
    told = await results(client, user, "remark of Ann")
    assert set(told) == set(ids)
    assert {ids.index(i) for i, one in told.items() if "speaker" in signals(one)} == {len(odd) - 1}


async def test_equal_times_keep_the_order_of_writing(client: httpx.AsyncClient, user: str) -> None:
    turns = [turn(0, "Ann", QUESTION), turn(0, "Bo", ANSWER), turn(0, "Ann", "Lovely.")]
    question, answer, reply = await say(client, user, turns)
    told = await results(client, user, "learning the accordion")
    worth = signals(told[answer])["before"]
    assert worth > signals(told[reply]).get("before", 0.0)
    assert question in told


async def test_searches_by_words_alone_have_no_signals(client: httpx.AsyncClient, user: str) -> None:
    question, _ = await say(client, user, [turn(0, "Ann", QUESTION), turn(1, "Bo", ANSWER)])
    told = await results(client, user, "accordion", mode="keyword")
    assert list(told) == [question]
    assert signals(told[question]) == {}
    assert told[question]["score_details"]["log_odds"] is None
